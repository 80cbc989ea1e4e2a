// Package web serves a timeline, live or finished, to browsers and programs: HTTP, a
// websocket, the embedded page. It reads recordings and rings with its own cursors and
// never slows their writers. Control actions and exports are functions supplied by the
// caller.
//
// A Server may be used by several goroutines. docs/web-api.md describes the interface.
package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/internal/netlimit"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web/store"
	"github.com/sliverprof/sliver/web/wire"
)

// Options configure a Server.
type Options struct {
	Source Source
	// Compare is a second recording to compare with; may be nil.
	Compare Source
	// Addr is the address to listen on, "" for a free port of 127.0.0.1. Addresses that
	// other machines can reach require Token.
	Addr string
	// Token is the token that clients must send; "" generates a random one. It has at
	// least MinToken characters: letters, digits, '-' and '_'.
	Token string
	// Hosts are host names accepted in requests, in addition to localhost and IP
	// addresses.
	Hosts []string
	// Control is what clients may do; nil functions are not offered.
	Control Control
	// Recorders are shown on the page and can be asked for dumps; may be nil.
	Recorders Recorders
	// Status is shown on the page; may be nil. It is called once a second.
	Status func() Status
	// Formats are available for download, by Export.
	Formats []Format
	// Export writes the selected part of the recording in one of Formats.
	Export func(ctx context.Context, w io.Writer, format string, part Part) error
	// MaxSlices limits the timeline in memory; 0 is store.DefaultLimit.
	MaxSlices int
	// Overflow is a folder for an unnamed file that holds the slices beyond the first
	// OverflowAt (0: store.InMemory), which then need not be in memory. If it is "", the
	// oldest slices are dropped at MaxSlices.
	Overflow   string
	OverflowAt int
	// MaxClients limits websockets; 0 is 128.
	MaxClients int
	Version    string // of the program, for the page
	Logf       func(format string, args ...any)
}

// Control holds the actions that clients with the token may request.
type Control struct {
	Start       func() error // record again after the end; Replace then sets the new source
	Pause       func() error
	Resume      func() error
	Stop        func() error
	SetInterval func(time.Duration) error
	SetThreads  func(selection string) error
	// KeepLast writes the last part of the recording to a separate file and returns its
	// name.
	KeepLast func(time.Duration) (name string, err error)
}

// Status is a recording's statistics; Paused and Threads are of one in progress.
type Status struct {
	Paused   bool          `json:"paused"`
	Interval time.Duration `json:"interval_ns"`
	Samples  uint64        `json:"samples"`
	Lost     uint64        `json:"lost"`             // ticks and events without a sample
	Losses   string        `json:"losses,omitempty"` // every kind of missing or incomplete data, in words
	PauseP50 int64         `json:"pause_p50"`        // ns a thread was stopped, median
	PauseP99 int64         `json:"pause_p99"`
	Overhead float64       `json:"overhead"` // share of the threads' time
	Threads  string        `json:"threads"`  // the selection
}

// Format is an export that the page offers.
type Format struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	About string `json:"about,omitempty"` // one line
	Ext   string `json:"ext"`             // with the dot
	// Use is the tool in which the page can open it: "perfetto", "firefox" or
	// "speedscope"; "" for none.
	Use string `json:"use,omitempty"`
}

// Part selects a part of a recording.
type Part struct {
	From, To stack.Time // 0: open
	Threads  []int      // by Seq; nil: all. Of several processes: see ThreadsOf

	of ofProcesses // the source that has numbered the threads; nil: a recording is numbered as NewRecording does
}

// Limits of the server.
const (
	MinToken = 16

	maxHeader    = 16 << 10
	maxBody      = 64 << 10
	headTimeout  = 5 * time.Second
	readTimeout  = 30 * time.Second // of a request; websockets have their own limits
	idleTimeout  = 60 * time.Second
	maxConns     = 512
	maxTickets   = 64
	ticketLife   = time.Minute
	defaultWS    = 128
	heavyAtOnce  = 2
	exportAtOnce = 2
)

// Server serves one timeline. Close ends it.
type Server struct {
	o     Options
	ln    net.Listener
	http  *http.Server
	token string
	page  *assets

	main    atomic.Pointer[feed] // the displayed timeline
	compare *feed                // nil: none

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	heavy   chan struct{}
	build   chan struct{} // limits work for pages: see turns
	made    atomic.Int64  // frames built
	told    told
	exports chan struct{}

	began time.Time

	mu      sync.Mutex
	clients map[*client]struct{}
	came    int // clients so far
	tickets map[string]*ticket
	closed  bool

	openID    string // of OpenURL, until used
	openUntil time.Time
}

// feed is a source with its store.
type feed struct {
	src  Source
	st   *store.Store
	base stack.Time
	gone chan struct{} // closed when another feed replaces it
	read chan struct{} // closed when the source has been read to its end
	once sync.Once

	mu     sync.Mutex
	done   bool
	reason string
	err    error

	beating sync.Mutex
	last    *beat
	analyst analyst
	tasker  tasker
	classes classes
	files   fileOps
}

func newFeed(src Source, o *Options) *feed {
	st := store.New(o.MaxSlices)
	if o.Overflow != "" {
		st.Overflow(o.Overflow, o.OverflowAt)
	}
	return &feed{src: src, st: st, base: src.Process().Clocks.Monotonic, gone: make(chan struct{}), read: make(chan struct{})}
}

func (f *feed) cancel() { f.once.Do(func() { close(f.gone) }) }

func (f *feed) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-f.gone:
			stop()
		case <-ctx.Done():
		}
	}()
	reason, err := f.src.Run(ctx, f.st)
	f.mu.Lock()
	f.done, f.reason, f.err = true, reason, err
	f.mu.Unlock()
	close(f.read)
}

func (f *feed) state() (done bool, reason string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ended, reason := f.st.Ended(); ended && !f.done {
		return true, reason, nil
	}
	return f.done, f.reason, f.err
}

// CheckAddress checks whether a server may listen on addr with the token that the user
// chose, "" if none; how names the way to choose one.
func CheckAddress(addr, token, how string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("invalid listen address %q: write HOST:PORT (example: 127.0.0.1:8080)", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("invalid listen address %q: the port is a number up to 65535, 0 for a free one", addr)
	}
	if err := checkToken(token); err != nil {
		return err
	}
	if token == "" && !loopback(host) {
		return fmt.Errorf("%s can be reached by other machines: stacks and control of the recording would be open to them; "+
			"choose a token with %s, or listen on 127.0.0.1 and forward the port", addr, how)
	}
	return nil
}

// Serve starts to listen and to read the source, and returns. The server ends with ctx or
// by Close.
func Serve(ctx context.Context, o Options) (*Server, error) {
	if o.Source == nil {
		return nil, errors.New("web: no source")
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if err := CheckAddress(o.Addr, o.Token, "--web-token"); err != nil {
		return nil, err
	}
	if o.MaxClients <= 0 {
		o.MaxClients = defaultWS
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Token == "" {
		b := make([]byte, 16)
		if _, err := rand.Read(b); err != nil {
			return nil, fmt.Errorf("make a token: %w", err)
		}
		o.Token = hex.EncodeToString(b)
	}
	page, err := loadAssets()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the page: %w", err)
	}
	s := &Server{
		o: o, ln: ln, token: o.Token, page: page, heavy: make(chan struct{}, heavyAtOnce),
		build: make(chan struct{}, max(1, runtime.NumCPU()/2)), exports: make(chan struct{}, exportAtOnce),
		clients: map[*client]struct{}{}, tickets: map[string]*ticket{}, began: time.Now(),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	feeds := []*feed{newFeed(o.Source, &o)}
	s.main.Store(feeds[0])
	if o.Compare != nil {
		s.compare = newFeed(o.Compare, &o)
		feeds = append(feeds, s.compare)
	}
	s.http = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(logWriter(o.Logf), "", 0), BaseContext: func(net.Listener) context.Context { return s.ctx },
		ConnContext: netlimit.Context, ConnState: netlimit.State,
	}
	s.wg.Add(1)
	go func() { defer s.wg.Done(); page.warm() }()
	for _, f := range feeds {
		s.wg.Add(1)
		go func() { defer s.wg.Done(); f.run(s.ctx); s.analyzeWhole(f); s.poke() }()
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if err := s.http.Serve(&limitListener{netlimit.New(ln, maxConns)}); !errors.Is(err, http.ErrServerClosed) {
			o.Logf("web server: %v", err)
		}
	}()
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		<-s.ctx.Done()
		s.shut()
	}()
	return s, nil
}

type logWriter func(format string, args ...any)

func (l logWriter) Write(b []byte) (int, error) {
	l("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

func checkToken(t string) error {
	if t == "" {
		return nil
	}
	if len(t) < MinToken {
		return fmt.Errorf("the token of %d characters can be guessed; use at least %d", len(t), MinToken)
	}
	for _, c := range t {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("the token: %q cannot be in it; use letters, digits, - and _", c)
		}
	}
	return nil
}

// loopback reports whether only this machine can reach a listener on host.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// URL returns the address to open in a browser. The token is in its fragment, which
// browsers do not send.
func (s *Server) URL() string {
	host, port, _ := net.SplitHostPort(s.ln.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/"}
	return u.String() + "#token=" + s.token
}

// OpenURL returns an address to start a browser with. It works once and only for a short
// time, so that other users of the machine, who can read command lines, cannot use it.
func (s *Server) OpenURL() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a URL: %w", err)
	}
	id := hex.EncodeToString(b)
	s.mu.Lock()
	s.openID, s.openUntil = id, time.Now().Add(ticketLife)
	s.mu.Unlock()
	page, _, _ := strings.Cut(s.URL(), "#")
	return page + "open/" + id, nil
}

// serveOpen redirects a browser to the page, with the token.
func (s *Server) serveOpen(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	ok := s.openID != "" && subtle.ConstantTimeCompare([]byte(s.openID), []byte(r.PathValue("id"))) == 1 && time.Now().Before(s.openUntil)
	if ok {
		s.openID = ""
	}
	s.mu.Unlock()
	if !ok {
		http.Error(w, "This link has been used or is too old. Open the URL that sliver printed.", http.StatusNotFound)
		return
	}
	w.Header().Set("Location", "/#token="+s.token)
	w.WriteHeader(http.StatusFound)
}

// Addr returns the listener's address.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Token returns the token that clients must send.
func (s *Server) Token() string { return s.token }

// Replace ends the displayed timeline and starts that of src, which must be of the same
// process. Pages reconnect by themselves.
func (s *Server) Replace(src Source) {
	f := newFeed(src, &s.o)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	old := s.main.Swap(f)
	s.wg.Add(1)
	clients := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		clients = append(clients, c)
	}
	s.mu.Unlock()
	old.cancel()
	go func() { defer s.wg.Done(); f.run(s.ctx); s.poke() }()
	for _, c := range clients {
		c.close() // it reconnects and finds the new source
	}
}

// feed returns the timeline of a query: 0 is the displayed one, 1 the one to compare
// with.
func (s *Server) feed(src int) *feed {
	switch {
	case src == 0:
		return s.main.Load()
	case src == 1:
		return s.compare
	}
	return nil
}

// Clients returns the number of open websockets.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// Loaded reports whether the source has been read to its end.
func (s *Server) Loaded() bool {
	done, _, _ := s.feed(0).state()
	return done
}

// Close closes all connections and waits for the server's goroutines.
func (s *Server) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

func (s *Server) shut() {
	s.mu.Lock()
	s.closed = true
	clients := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		clients = append(clients, c)
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { c.leave() })
	}
	all.Wait()
	_ = s.http.Close()
}

// hostAllowed prevents DNS rebinding: a page of another site can make its own name point
// here, but then that name is in Host.
func (s *Server) hostAllowed(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || net.ParseIP(host) != nil {
		return true
	}
	for _, h := range s.o.Hosts {
		if strings.EqualFold(h, host) {
			return true
		}
	}
	return false
}

// originAllowed: programs send no Origin; a browser's must be the page itself.
func originAllowed(r *http.Request) bool {
	o := r.Header.Get("Origin")
	if o == "" {
		return r.Header.Get("Sec-Fetch-Site") == "" || r.Header.Get("Sec-Fetch-Site") == "same-origin" || r.Header.Get("Sec-Fetch-Site") == "none"
	}
	u, err := url.Parse(o)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

func (s *Server) tokenIs(t string) bool {
	return subtle.ConstantTimeCompare([]byte(t), []byte(s.token)) == 1
}

// authorized looks for the token in the headers. Browsers, which cannot set headers for
// websockets, send it as a subprotocol.
func (s *Server) authorized(r *http.Request) bool {
	if t := r.Header.Get("X-Sliver-Token"); t != "" {
		return s.tokenIs(t)
	}
	if t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return s.tokenIs(t)
	}
	if r.URL.Path == "/ws" {
		for _, h := range r.Header.Values("Sec-WebSocket-Protocol") {
			for _, p := range strings.Split(h, ",") {
				if t, ok := strings.CutPrefix(strings.TrimSpace(p), tokenProtocol); ok && s.tokenIs(t) {
					return true
				}
			}
		}
	}
	return false
}

const tokenProtocol = wire.Protocol + ".token."
