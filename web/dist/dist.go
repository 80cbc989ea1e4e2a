// Package dist holds the page's files as they are built from web/page.
package dist

import "embed"

// Files are the page's files: index.html, app.js and the folder speedscope.
//
//go:embed index.html app.js speedscope
var Files embed.FS
