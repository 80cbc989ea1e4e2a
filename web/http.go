package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed dist
var dist embed.FS

// assets are the page's files, each compressed when it is first asked for.
type assets struct {
	files  map[string]*asset
	policy string
}

// versionLen is how many digits of a file's hash the page asks for it with.
const versionLen = 16

type asset struct {
	body  []byte
	ctype string
	etag  func() string
	// zipped is nil where that is no shorter.
	zipped func() []byte
}

var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8", ".json": "application/json", ".woff2": "font/woff2",
	".png": "image/png", ".ico": "image/x-icon", ".md": "text/plain; charset=utf-8",
}

func loadAssets() (*assets, error) {
	a := &assets{files: map[string]*asset{}}
	err := fs.WalkDir(dist, "dist", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := dist.ReadFile(p)
		if err != nil {
			return err
		}
		f := &asset{body: b, ctype: types[path.Ext(p)], etag: sync.OnceValue(func() string { return etagOf(b) }),
			zipped: sync.OnceValue(func() []byte { return zip(b) })}
		if f.ctype == "" {
			f.ctype = "application/octet-stream"
		}
		a.files["/"+strings.TrimPrefix(p, "dist/")] = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded page: %w", err)
	}
	if a.files["/index.html"] == nil {
		return nil, errors.New("this program was built without its page")
	}
	a.policy = policyOf(a.files["/index.html"].body)
	return a, nil
}

// warm compresses what every page asks for, before one does.
func (a *assets) warm() {
	for _, name := range []string{"/index.html", "/app.js"} {
		if f := a.files[name]; f != nil {
			f.etag()
			f.zipped()
		}
	}
}

func etagOf(b []byte) string {
	sum := sha256.Sum256(b)
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}

func zip(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write(b)
	if w.Close() != nil || z.Len() >= len(b) {
		return nil
	}
	return z.Bytes()
}

// policyOf is the policy of our own page: nothing from elsewhere, nothing inline
// but the one style sheet that is in it, by its hash. Symbol names are text to
// the page, and were one ever to reach HTML, it could run nothing.
func policyOf(page []byte) string {
	style := "'self'"
	if _, rest, ok := bytes.Cut(page, []byte("<style>")); ok {
		if css, _, ok := bytes.Cut(rest, []byte("</style>")); ok {
			sum := sha256.Sum256(css)
			style = "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
	}
	return "default-src 'none'; script-src 'self'; style-src " + style + "; img-src 'self' data: blob:; font-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
}

// speedscopePolicy lets the embedded speedscope style itself.
const speedscopePolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", s.guard(s.serveWS))
	mux.HandleFunc("GET /api/info", s.guard(s.serveInfo))
	mux.HandleFunc("POST /api/query", s.guard(s.serveQuery))
	mux.HandleFunc("POST /api/control", s.guard(s.serveControl))
	mux.HandleFunc("GET /api/recorders", s.guard(s.serveRecorders))
	mux.HandleFunc("POST /api/dump", s.guard(s.serveDump))
	mux.HandleFunc("POST /api/ticket", s.guard(s.serveNewTicket))
	mux.HandleFunc("POST /api/perfetto", s.guard(s.servePerfetto))
	mux.HandleFunc("GET /t/{ticket}/{name}", s.serveTicket)
	mux.HandleFunc("GET /open/{id}", s.serveOpen)
	mux.HandleFunc("GET /", s.servePage)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		p := s.page.policy
		if strings.HasPrefix(r.URL.Path, "/speedscope/") {
			p = speedscopePolicy
		}
		h.Set("Content-Security-Policy", p)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
		h.Set("Cache-Control", "no-store")
		if !s.hostAllowed(r.Host) {
			http.Error(w, "This server is not known by the name "+asciiOnly(r.Host)+". Use 127.0.0.1 or localhost.", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func asciiOnly(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// guard lets through what comes from our own page, or from a program, with the
// token.
func (s *Server) guard(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !originAllowed(r) {
			fail(w, http.StatusForbidden, "requests from other sites are refused")
			return
		}
		if !s.authorized(r) {
			fail(w, http.StatusUnauthorized, "the token is missing or wrong: open the URL that sliver printed")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		f(w, r)
	}
}

func fail(w http.ResponseWriter, code int, msg string) {
	reply(w, code, map[string]string{"error": msg})
}

func reply(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "the answer cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(b) // a client that went away is no error of ours
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	p := r.URL.Path
	if strings.HasSuffix(p, "/") {
		p += "index.html"
	}
	f := s.page.files[path.Clean(p)]
	if f == nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.ctype)
	h.Set("ETag", f.etag())
	h.Set("Cache-Control", "no-cache")
	if v := r.URL.RawQuery; len(v) == versionLen && strings.HasPrefix(f.etag()[1:], v) {
		// The page names what it wants by its hash: that never changes.
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.etag() {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.body
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		if z := f.zipped(); z != nil {
			h.Set("Content-Encoding", "gzip")
			body = z
		}
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body)
}

func (s *Server) serveInfo(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, s.hello())
}

func (s *Server) serveQuery(w http.ResponseWriter, r *http.Request) {
	var q query
	if err := decode(r.Body, &q); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
	defer cancel()
	v, err := s.answer(ctx, &q)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	reply(w, http.StatusOK, v)
}

func decode(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	return nil
}

// control is the body of /api/control.
type control struct {
	Action     string `json:"action"`
	IntervalNS int64  `json:"interval_ns,omitempty"`
	Threads    string `json:"threads,omitempty"`
	LastNS     int64  `json:"last_ns,omitempty"`
}

func (c *Control) actions() []string {
	out := []string{}
	add := func(ok bool, name string) {
		if ok {
			out = append(out, name)
		}
	}
	add(c.Start != nil, "start")
	add(c.Pause != nil, "pause")
	add(c.Resume != nil, "resume")
	add(c.Stop != nil, "stop")
	add(c.SetInterval != nil, "interval")
	add(c.SetThreads != nil, "threads")
	add(c.KeepLast != nil, "keep")
	return out
}

// do runs an action; kept is the name of a file that it wrote.
func (c *Control) do(x *control) (known bool, kept string, err error) {
	switch {
	case x.Action == "start" && c.Start != nil:
		return true, "", c.Start()
	case x.Action == "pause" && c.Pause != nil:
		return true, "", c.Pause()
	case x.Action == "resume" && c.Resume != nil:
		return true, "", c.Resume()
	case x.Action == "stop" && c.Stop != nil:
		return true, "", c.Stop()
	case x.Action == "interval" && c.SetInterval != nil:
		return true, "", c.SetInterval(time.Duration(x.IntervalNS))
	case x.Action == "threads" && c.SetThreads != nil:
		return true, "", c.SetThreads(x.Threads)
	case x.Action == "keep" && c.KeepLast != nil:
		kept, err := c.KeepLast(time.Duration(x.LastNS))
		return true, kept, err
	}
	return false, "", nil
}

func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	var x control
	if err := decode(r.Body, &x); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	known, kept, err := s.o.Control.do(&x)
	switch {
	case !known:
		fail(w, http.StatusNotFound, "this recording offers no control by that name")
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
	default:
		s.poke()
		st := s.status()
		st.Kept = kept
		reply(w, http.StatusOK, st)
	}
}
