package main

import (
	"fmt"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/plural"
)

// maxWrote is how many files of one format have a line each.
const maxWrote = 8

// eachWrote describes files that were written: a line each, or one line for all of a format if they are many. left says what a
// file leaves out.
func eachWrote(files []export.File, yield func(line, left string)) {
	for len(files) > 0 {
		n, bytes := 1, files[0].Bytes
		for n < len(files) && files[n].Format == files[0].Format {
			bytes += files[n].Bytes
			n++
		}
		if n > maxWrote {
			yield(fmt.Sprintf("%s, the first is %s (%s, %s together)", plural.Of(n, "file"), files[0].Path, files[0].Format, bytesText(bytes)), files[0].Left)
			files = files[n:]
			continue
		}
		f := files[0]
		path, hint := f.Path, openHint(f.Format, f.Path)
		if path == "-" {
			path, hint = "standard output", ""
		}
		yield(fmt.Sprintf("%s (%s, %s)%s", path, f.Format, bytesText(f.Bytes), hint), f.Left)
		files = files[1:]
	}
}
