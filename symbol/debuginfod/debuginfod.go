// Package debuginfod fetches debug files by build ID from servers that implement
// debuginfod's protocol (elfutils, debuginfod(8)): GET URL/buildid/ID/debuginfo. It
// sends no request unless a Finder is created, and bounds the time spent on a server.
//
// A Finder may be used by several goroutines.
package debuginfod

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
)

// Variables of the environment that debuginfod's own client reads.
const (
	URLs    = "DEBUGINFOD_URLS"    // servers, separated by spaces
	Timeout = "DEBUGINFOD_TIMEOUT" // seconds without progress, default 90
)

// Finder queries servers.
type Finder struct {
	servers []string
	timeout time.Duration
	dir     *cache.Dir
	client  *http.Client
	version string
	problem func(string)
	ctx     context.Context // of all requests
	stop    context.CancelFunc

	mu      sync.Mutex
	missing map[string]bool // build IDs that no server has
	down    map[string]bool // servers that failed: not queried again
	turn    map[string]*sync.Mutex
}

// Bounds of requests.
const (
	maxServers     = 16
	defaultTimeout = 90 * time.Second
	// giveUp bounds the total time for one file.
	giveUp = 10 * time.Minute
)

// New returns a Finder configured by the environment that getenv reads; nil if it names
// no server. The Finder stores files in dir and reports failing servers to problem.
func New(getenv func(string) string, dir *cache.Dir, version string, problem func(string)) (*Finder, error) {
	f := &Finder{timeout: defaultTimeout, dir: dir, version: version, problem: problem, missing: map[string]bool{}, down: map[string]bool{}, turn: map[string]*sync.Mutex{}}
	for _, s := range strings.Fields(getenv(URLs)) {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			if strings.HasPrefix(s, "ima:") {
				continue // a policy of elfutils' client for the servers behind it
			}
			return nil, fmt.Errorf("%s: invalid address %q (example: https://debuginfod.elfutils.org)", URLs, s)
		}
		if len(f.servers) < maxServers {
			f.servers = append(f.servers, strings.TrimRight(s, "/"))
		}
	}
	if len(f.servers) == 0 {
		return nil, nil
	}
	if n, err := strconv.Atoi(getenv(Timeout)); err == nil && n > 0 {
		f.timeout = time.Duration(n) * time.Second
	}
	f.client = &http.Client{}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f, nil
}

// Stop ends the requests in progress and all later ones: only files that are on this machine
// are found from then on.
func (f *Finder) Stop() { f.stop() }

// Find implements symbol.Finder.
func (f *Finder) Find(q symbol.Query, try func(name string, src symbol.Source) bool) {
	if q.Kind != symbol.KindDebug && q.Kind != symbol.KindAlt {
		return
	}
	id := strings.ToLower(q.BuildID)
	if b, err := hex.DecodeString(id); err != nil || len(b) < 8 || len(b) > 64 {
		return
	}
	src, err := f.open(id)
	if err != nil {
		return
	}
	if try("debuginfod:"+id, src) {
		return
	}
	src.Close()
	f.dir.Remove(id) // not the requested file
}

var errMissing = errors.New("no server has it")

func (f *Finder) open(id string) (*os.File, error) {
	f.mu.Lock()
	turn := f.turn[id]
	if turn == nil {
		turn = &sync.Mutex{}
		f.turn[id] = turn
	}
	f.mu.Unlock()
	turn.Lock() // one download for all callers
	defer turn.Unlock()
	if src, err := f.dir.File(id); err == nil {
		return src, nil
	}
	f.mu.Lock()
	gone := f.missing[id]
	f.mu.Unlock()
	if gone {
		return nil, errMissing
	}
	for _, s := range f.servers {
		if f.ctx.Err() != nil {
			return nil, errMissing
		}
		f.mu.Lock()
		down := f.down[s]
		f.mu.Unlock()
		if down {
			continue
		}
		src, err := f.fetch(s, id)
		if err == nil {
			return src, nil
		}
		if !errors.Is(err, errMissing) && f.ctx.Err() == nil {
			f.mu.Lock()
			f.down[s] = true
			f.mu.Unlock()
			if f.problem != nil {
				f.problem(fmt.Sprintf("debuginfod: %s is not asked any more: %v", hostOf(s), err))
			}
		}
	}
	f.mu.Lock()
	f.missing[id] = true
	f.mu.Unlock()
	return nil, errMissing
}

func hostOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "a server"
	}
	return u.Host
}

func (f *Finder) fetch(server, id string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(f.ctx, giveUp)
	defer cancel()
	// The timeout covers the time without progress.
	idle := time.AfterFunc(f.timeout, cancel)
	defer idle.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/buildid/"+id+"/debuginfo", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "sliver/"+f.version)
	res, err := f.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %v", f.timeout)
		}
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return nil, errMissing
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", res.Status)
	}
	return f.dir.Put(id, func(w io.Writer) error {
		n, err := io.Copy(w, &watched{res.Body, idle, f.timeout})
		if err == nil && res.ContentLength >= 0 && n != res.ContentLength {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}

// watched restarts the timeout whenever data arrive.
type watched struct {
	r    io.Reader
	idle *time.Timer
	time time.Duration
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	if n > 0 {
		w.idle.Reset(w.time)
	}
	return n, err
}
