// Package control is how a running flight recorder is asked: over a socket in
// the user's own runtime folder, and over HTTP where that was wanted. The socket
// is the user's alone, by the rights of its folder; over HTTP whoever asks for a
// dump needs the token. It knows the questions and answers, not the recorder.
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

// Recorder answers. Its methods are called concurrently.
type Recorder interface {
	Status() Status
	// Dump writes a dump; where stream is not nil it goes there and nowhere else.
	Dump(ctx context.Context, r Request, stream io.Writer) ([]Dump, error)
}

// Request asks for a dump.
type Request struct {
	Target string // a process number or name; "": all
	Kind   string // "request", "http", "signal"
	Text   string // why, for people
}

// Status is what a recorder says of itself.
type Status struct {
	Name     string    `json:"name"`
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Waiting  string    `json:"waiting,omitempty"` // for what, while there is no target
	Keep     string    `json:"keep"`
	Interval string    `json:"interval"` // between two samples of a thread, now
	Asked    string    `json:"asked"`    // the one asked for; longer ones keep what it takes below MaxCPU
	Takes    float64   `json:"takes"`    // share of one CPU, of late; 0 where nothing bounds it
	MaxCPU   float64   `json:"max_cpu"`  // 0: no bound
	Dir      string    `json:"dir"`
	Triggers []string  `json:"triggers"`
	Targets  []Target  `json:"targets"`
	Dumps    []Dump    `json:"dumps"` // the latest in its folder, oldest first
	Fired    int       `json:"fired"`
	Failed   int       `json:"failed"` // dumps that could not be written
	Broken   int       `json:"broken"` // checks of triggers that ended in a panic
	Trouble  string    `json:"trouble,omitempty"`
}

// Target is a process that is watched.
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
	Short    uint64    `json:"short"` // times that a ring could not have the memory it wanted
}

// Dump is one that was made; of those of earlier recorders the text, the process
// and what was measured are missing.
type Dump struct {
	Target  string    `json:"target"`
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	Text    string    `json:"text"`
	Files   []string  `json:"files"`
	Bytes   int64     `json:"bytes"`
	Seconds float64   `json:"seconds"` // that it spans
	Threads int       `json:"threads"`
	// How long it took, in ms: until the rings were copied, until the recording
	// was on disk, and until it had its names.
	Frozen  float64 `json:"frozen_ms"`
	Written float64 `json:"written_ms"`
	Named   float64 `json:"named_ms"`
}

// Dir is the user's folder for sockets and ring files: sliver in
// $XDG_RUNTIME_DIR, else in a folder of memory. It is made if it is not there;
// one that others may write to is refused.
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

// socket is the path of a recorder's socket.
func socket(dir, name string) string { return filepath.Join(dir, name+".sock") }

// Listen makes the socket of a recorder called name; one of that name that is
// running is an error, what a dead one left is replaced. Of several that want the
// name of a dead one at the same time, one has it.
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

// Handler answers on the socket.
func Handler(r Recorder) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.Status()) })
	mux.HandleFunc("POST /dump", func(w http.ResponseWriter, q *http.Request) { dump(w, q, r, "request") })
	return mux
}

// Token makes a new one.
func Token() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Web answers over TCP: what changes nothing to everyone who may connect, a dump
// to those with the token. hosts are the names that the address goes by; metrics
// answers /metrics, and may be nil.
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
		// A page of somewhere else that the user's browser shows must not reach
		// us by a name that it had pointed here.
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

// Limits of the server over TCP, as the page has them.
const (
	maxConns    = 128
	maxHeader   = 16 << 10
	maxForm     = 64 << 10
	headTimeout = 5 * time.Second
	readTimeout = 30 * time.Second // of a request
	idleTimeout = 60 * time.Second
)

// Server is one for Web, with bounds on time and size, for what Limit listens at.
func Server(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: netlimit.Context, ConnState: netlimit.State}
}

// Limit bounds the connections of a listener: those without the token give way.
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

// recording is the type of a dump that is sent as the answer.
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
		panic(http.ErrAbortHandler) // the reader sees that it is cut off
	}
}

// sender sets the type when the first byte comes.
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
