// Package control serves requests to a running flight recorder: over a socket in the
// user's own runtime folder, and optionally over HTTP. The rights of its folder make the
// socket private to the user. Over HTTP a request for a dump needs the token. The package
// defines the requests and replies; a Recorder executes them.
package control

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/internal/netlimit"
)

// Recorder executes requests. Its methods are called concurrently.
type Recorder interface {
	Status() Status
	// Dump writes a dump; if stream is not nil, only to stream.
	Dump(ctx context.Context, r Request, stream io.Writer) ([]Dump, error)
}

// Request is a request for a dump.
type Request struct {
	Target string // a PID or name; "": all
	Kind   string // "request", "http", "signal"
	Text   string // reason, for people
}

// Status is the state of a recorder.
type Status struct {
	Name     string    `json:"name"`
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Waiting  string    `json:"waiting,omitempty"` // what it waits for without a target
	Keep     string    `json:"keep"`
	Interval string    `json:"interval"` // between two samples of a thread, now
	Asked    string    `json:"asked"`    // the configured interval; longer ones keep Takes below MaxCPU
	Takes    float64   `json:"takes"`    // recent share of one CPU; 0 without a limit
	MaxCPU   float64   `json:"max_cpu"`  // 0: no limit
	Dir      string    `json:"dir"`
	Triggers []string  `json:"triggers"`
	Targets  []Target  `json:"targets"`
	Dumps    []Dump    `json:"dumps"` // the latest in its folder, oldest first
	Fired    int       `json:"fired"`
	Failed   int       `json:"failed"` // dumps that could not be written
	Broken   int       `json:"broken"` // checks of triggers that ended in a panic
	Trouble  string    `json:"trouble,omitempty"`
}

// Target is a watched process.
type Target struct {
	PID      int       `json:"pid"`
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Threads  int       `json:"threads"`
	Bytes    int64     `json:"bytes"` // of its rings
	MaxBytes int64     `json:"max_bytes"`
	RingFile string    `json:"ring_file,omitempty"`
	Samples  uint64    `json:"samples"`
	Late     uint64    `json:"late"`
	Short    uint64    `json:"short"` // times that a ring did not get the memory it needed
}

// Dump is a finished dump. For dumps of earlier recorders the text, the process and the
// measurements are missing.
type Dump struct {
	Target  string    `json:"target"`
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	Text    string    `json:"text"`
	Files   []string  `json:"files"`
	Bytes   int64     `json:"bytes"`
	Seconds float64   `json:"seconds"` // time span that it covers
	Threads int       `json:"threads"`
	// Durations in ms: until the rings were copied, until the recording was on disk, and
	// until it had its names.
	Frozen  float64 `json:"frozen_ms"`
	Written float64 `json:"written_ms"`
	Named   float64 `json:"named_ms"`
}

// Dir returns the user's folder for sockets and ring files: sliver in $XDG_RUNTIME_DIR,
// otherwise in a memory-backed folder. Dir creates it if necessary and rejects one that
// others may write to.
func Dir() (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir != "" {
		dir = filepath.Join(dir, "sliver")
	} else {
		base := "/dev/shm"
		if fi, err := os.Stat(base); err != nil || !fi.IsDir() {
			base = os.TempDir()
		}
		dir = filepath.Join(base, "sliver-"+strconv.Itoa(os.Getuid()))
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the folder for sockets and ring files: %w", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("look at the folder for sockets and ring files: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || !ok || int(st.Uid) != os.Geteuid() || fi.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is not a folder of yours alone: remove it, or set XDG_RUNTIME_DIR", dir)
	}
	return dir, nil
}

// socket returns the path of a recorder's socket.
func socket(dir, name string) string { return filepath.Join(dir, name+".sock") }

// Listen creates the socket of a recorder called name. It is an error if a recorder of
// that name is running; the socket of a dead one is replaced. If several processes try to
// take the name of a dead one at the same time, one succeeds.
func Listen(dir, name string) (net.Listener, error) {
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	path := socket(dir, name)
	if _, err := os.Lstat(path); err == nil {
		if running(path) {
			return nil, fmt.Errorf("a recorder called %s is running; give this one another name with --as", name)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove what a dead recorder left: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Handler serves requests on the socket.
func Handler(r Recorder) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.Status()) })
	mux.HandleFunc("POST /dump", func(w http.ResponseWriter, q *http.Request) { dump(w, q, r, "request") })
	return mux
}

// Token returns a new random token.
func Token() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Web serves requests over TCP: read-only ones to everyone who may connect, dumps only
// with the token. hosts are the allowed host names; metrics serves /metrics, and may be
// nil.
func Web(r Recorder, token string, hosts []string, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s := r.Status(); len(s.Targets) == 0 {
			http.Error(w, "waiting for "+s.Waiting, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, q *http.Request) {
		if allowed(w, q, token) {
			answer(w, r.Status())
		}
	})
	mux.HandleFunc("POST /dump", func(w http.ResponseWriter, q *http.Request) {
		if allowed(w, q, token) {
			dump(w, q, r, "http")
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		// DNS rebinding protection: a foreign page in the user's browser must not reach
		// this server through a name that points here.
		host, _, err := net.SplitHostPort(q.Host)
		if err != nil {
			host = q.Host
		}
		known := net.ParseIP(host) != nil
		for _, h := range hosts {
			known = known || strings.EqualFold(h, host)
		}
		if !known || q.Header.Get("Origin") != "" {
			http.Error(w, "this is not for pages of other hosts", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, q)
	})
}

// Limits of the TCP server, the same as for the page.
const (
	maxConns    = 128
	maxHeader   = 16 << 10
	maxForm     = 64 << 10
	headTimeout = 5 * time.Second
	readTimeout = 30 * time.Second // of a request
	idleTimeout = 60 * time.Second
)

// Server returns an HTTP server for Web, with limits on time and size, for Limit's
// listener.
func Server(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: netlimit.Context, ConnState: netlimit.State}
}

// Limit limits the connections of a listener; those without the token are closed first.
func Limit(l net.Listener) net.Listener { return netlimit.New(l, maxConns) }

func allowed(w http.ResponseWriter, q *http.Request, token string) bool {
	given := strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1 {
		netlimit.Keep(q.Context())
		return true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
	return false
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// recording is the media type of a dump sent as the reply.
const recording = "application/x-sliver"

func dump(w http.ResponseWriter, q *http.Request, r Recorder, kind string) {
	q.Body = http.MaxBytesReader(w, q.Body, maxForm)
	if err := q.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	ask := Request{Target: q.FormValue("target"), Kind: kind, Text: q.FormValue("text")}
	if q.FormValue("stream") == "" {
		ds, err := r.Dump(q.Context(), ask, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer(w, ds)
		return
	}
	s := &sender{w: w}
	if _, err := r.Dump(q.Context(), ask, s); err != nil {
		if !s.begun {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		panic(http.ErrAbortHandler) // the client notices the truncation
	}
}

// sender sets the media type at the first byte.
type sender struct {
	w     http.ResponseWriter
	begun bool
}

func (s *sender) Write(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", recording)
	}
	return s.w.Write(b)
}
