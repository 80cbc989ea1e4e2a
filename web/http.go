package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/internal/netlimit"
	"github.com/sliverprof/sliver/web/dist"
)

// assets are the page's files, each compressed at its first request.
type assets struct {
	files  map[string]*asset
	policy string
}

// versionLen is how many digits of a file's hash are in its URL.
const versionLen = 16

type asset struct {
	body  []byte
	ctype string
	etag  func() string
	// zipped returns nil if compression does not make it shorter.
	zipped func() []byte
}

var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8", ".json": "application/json", ".woff2": "font/woff2",
	".png": "image/png", ".ico": "image/x-icon", ".md": "text/plain; charset=utf-8",
}

func loadAssets() (*assets, error) {
	a := &assets{files: map[string]*asset{}}
	err := fs.WalkDir(dist.Files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := dist.Files.ReadFile(p)
		if err != nil {
			return err
		}
		f := &asset{body: b, ctype: types[path.Ext(p)], etag: sync.OnceValue(func() string { return etagOf(b) }),
			zipped: sync.OnceValue(func() []byte { return zip(b) })}
		if f.ctype == "" {
			f.ctype = "application/octet-stream"
		}
		a.files["/"+p] = f
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

// warm compresses the files that every page needs in advance.
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

// policyOf returns the content security policy of the page: nothing from other origins, and
// nothing inline except its own style sheet, by hash. Symbol names are text to the page;
// even if one reached HTML, it could not run anything.
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

// speedscopePolicy permits the inline styles of the embedded speedscope.
const speedscopePolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	// Each path accepts one method (GET includes HEAD) and rejects all others explicitly:
	// the page's files are below "/", which would otherwise match a GET for a query's path.
	for _, x := range []struct {
		method, path string
		serve        http.HandlerFunc
	}{
		{http.MethodGet, "/ws", s.guard(s.serveWS)},
		{http.MethodGet, "/api/info", s.guard(s.serveInfo)},
		{http.MethodPost, "/api/query", s.guard(s.serveQuery)},
		{http.MethodPost, "/api/control", s.guard(s.serveControl)},
		{http.MethodGet, "/api/recorders", s.guard(s.serveRecorders)},
		{http.MethodPost, "/api/dump", s.guard(s.serveDump)},
		{http.MethodPost, "/api/ticket", s.guard(s.serveNewTicket)},
		{http.MethodPost, "/api/perfetto", s.guard(s.servePerfetto)},
		{http.MethodGet, "/t/{ticket}/{name}", s.serveTicket},
		{http.MethodGet, "/open/{id}", s.serveOpen},
		{http.MethodGet, "/", s.servePage},
	} {
		mux.HandleFunc(x.path, only(x.method, x.serve))
	}
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

// only rejects requests with another method.
func only(method string, serve http.HandlerFunc) http.HandlerFunc {
	allow := method
	if method == http.MethodGet {
		allow = "GET, HEAD"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
			serve(w, r)
			return
		}
		w.Header().Set("Allow", allow)
		fail(w, http.StatusMethodNotAllowed, "this answers to "+allow)
	}
}

func asciiOnly(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// guard accepts requests with the token, from the page itself or from a program.
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
		netlimit.Keep(r.Context())
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
	_, _ = w.Write(b) // a disconnected client is not an error
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
		// The URL contains the hash, so the content never changes.
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
	if err := q.checkBody(); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	v, err := s.answer(ctx, &q)
	switch {
	case errors.Is(err, errUnknown):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, errTooMany):
		fail(w, http.StatusTooManyRequests, err.Error())
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
	default:
		reply(w, http.StatusOK, v)
	}
}

// decode reads the body of a request: one value, without unknown fields. A whole number may
// have decimals, as JSON Schema permits: 5.0.
func decode(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.UseNumber()
	var any any
	if err := d.Decode(&any); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the request: something follows the value")
	}
	any, err := whole(any)
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	b, err := json.Marshal(any)
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	d = json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	return nil
}

// maxWhole is where a float64 no longer represents every whole number.
const maxWhole = 1 << 53

// whole rewrites whole numbers in a decoded value without decimals, and rejects null, which
// no field may be.
func whole(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case nil:
		return nil, errors.New("invalid value null")
	case map[string]any:
		for k, e := range x {
			if x[k], err = whole(e); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range x {
			if x[i], err = whole(e); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if !strings.ContainsAny(string(x), ".eE") {
			return v, nil
		}
		if f, err := x.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < maxWhole {
			return json.Number(strconv.FormatInt(int64(f), 10)), nil
		}
	}
	return v, nil
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
