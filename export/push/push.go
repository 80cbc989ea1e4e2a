// Package push sends windows of a recording to profile backends: an OpenTelemetry
// collector by OTLP over HTTP, and Pyroscope and Parca by their pprof push interfaces.
// Windows that cannot be sent are queued in a Spool and retried with increasing delays
// until they are sent or dropped in favour of newer ones.
//
// Of a recording of several processes, each process with samples has a window: a resource of OTLP, a series of
// Pyroscope and Parca. One profile for all of them would lose their numbers, since Pyroscope drops labels that are
// numbers (Normalize in its pkg/pprof/pprof.go), and its limits are for a profile: 4 MiB and 16,000 samples
// (pkg/validation/limits.go, both at 3fe6a457). A request has the windows of at most maxTogether processes, since
// Parca refuses a whole request for one invalid series (NormalizeWriteRawRequest in its
// pkg/normalizer/normalizer.go at 3b5647cd).
//
// The package does not depend on a live recording: windows are trace.Recordings.
package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/export/otlp"
	"github.com/sliverprof/sliver/export/pprof"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Kind is a push protocol.
type Kind string

// Values of Kind.
const (
	OTLP      Kind = "otlp"      // POST /v1development/profiles, protobuf
	Pyroscope Kind = "pyroscope" // push.v1.PusherService/Push of the Connect protocol, JSON
	Parca     Kind = "parca"     // parca.profilestore's WriteRaw by its HTTP gateway, JSON
)

// paths are the default paths for a URL without one.
var paths = map[Kind]string{
	OTLP:      "/v1development/profiles",
	Pyroscope: "/push.v1.PusherService/Push",
	Parca:     "/profiles/writeraw",
}

// Sink is a backend.
type Sink struct {
	Kind Kind
	URL  string // including its path
}

// ParseSink parses a URL given by the user.
func ParseSink(kind Kind, s string) (*Sink, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s: invalid address %q (example: http://localhost:4318)", kind, s)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = paths[kind]
	}
	return &Sink{kind, u.String()}, nil
}

// Key identifies the sink in a Spool. It contains no secrets of the URL.
func (s *Sink) Key() string {
	h := sha256.Sum256([]byte(string(s.Kind) + " " + s.URL))
	return string(s.Kind) + "-" + hex.EncodeToString(h[:8])
}

// Host returns the URL's host, for messages.
func (s *Sink) Host() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return string(s.Kind)
	}
	return string(s.Kind) + " at " + u.Host
}

// Options configure a Pusher.
type Options struct {
	Sinks    []*Sink
	Spool    *Spool
	Resource []otlp.Attribute // added to the recording's attributes, and override them
	Headers  http.Header      // such as Authorization
	Client   *http.Client     // nil: one with a timeout of 30 s
	Version  string
	// FirstWait and MaxWait limit the time between retries; 0: 1 s and 60 s.
	FirstWait, MaxWait time.Duration
	// Problem receives error messages, one line each; it is called from several
	// goroutines.
	Problem func(string)
}

// Pusher sends windows. Window is for one goroutine at a time.
type Pusher struct {
	o    Options
	wake []chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	sent int
	lost int
}

// New starts a Pusher. The caller must call Close.
func New(o Options) *Pusher {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // headers may contain a secret that is only for this host
		}}
	}
	if o.FirstWait == 0 {
		o.FirstWait = time.Second
	}
	if o.MaxWait == 0 {
		o.MaxWait = time.Minute
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Pusher{o: o, stop: stop}
	for _, s := range o.Sinks {
		wake := make(chan struct{}, 1)
		wake <- struct{}{} // there may be items of an earlier run
		p.wake = append(p.wake, wake)
		p.done.Add(1)
		go p.run(ctx, s, wake)
	}
	return p
}

// Limits of a request with windows of several processes.
const (
	maxTogether = 16
	// maxRequest is the size in bytes before compression. A Collector takes 20 MiB (defaultMaxRequestBodySize of its
	// config/confighttp v0.162.0).
	maxRequest = 16 << 20
)

// Window queues the part of rec that o selects for every sink, without processes that have no samples in it. The
// windows that fail are counted as lost; the others are queued.
func (p *Pusher) Window(rec *trace.Recording, o view.Options) error {
	var errs []error
	for all := range slices.Chunk(rec.All(), maxTogether) {
		w := &window{o: o, extra: p.o.Resource, version: p.o.Version, made: map[part]encoded{}}
		for i := range p.o.Sinks {
			errs = append(errs, p.put(w, i, all)...)
		}
	}
	if n := len(errs); n > 0 {
		p.Lose(n)
		if n > 1 {
			return fmt.Errorf("%w, and %d more", errs[0], n-1)
		}
		return errs[0]
	}
	return nil
}

// Lose counts n windows that could not be made.
func (p *Pusher) Lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost += n
}

// put queues the window of some processes for sink i. If their request is too large or fails, each half has its own:
// in the end, only the processes that fail alone are lost. It returns an error for each of them.
func (p *Pusher) put(w *window, i int, all []*trace.Recording) []error {
	it, size, err := w.item(p.o.Sinks[i], all)
	if err == nil && it == nil {
		return nil
	}
	several := len(all) > 1
	if err == nil && (size <= maxRequest || !several) {
		it.At = time.Now()
		err = p.o.Spool.Put(it)
	}
	switch {
	case several && (err != nil || size > maxRequest):
		half := len(all) / 2
		return append(p.put(w, i, all[:half]), p.put(w, i, all[half:])...)
	case err != nil:
		return []error{fmt.Errorf("process %d: %w", all[0].Process.PID, err)}
	}
	select {
	case p.wake[i] <- struct{}{}:
	default:
	}
	return nil
}

// merge returns a's attributes, replaced by b's where names match, and the rest of b.
func merge(a, b []otlp.Attribute) []otlp.Attribute {
	at := map[string]int{}
	var out []otlp.Attribute
	for _, x := range append(append([]otlp.Attribute(nil), a...), b...) {
		if i, ok := at[x.Key]; ok {
			out[i] = x
			continue
		}
		at[x.Key] = len(out)
		out = append(out, x)
	}
	return out
}

// window is a window of some processes for several sinks.
type window struct {
	o       view.Options
	extra   []otlp.Attribute
	version string
	made    map[part]encoded
}

// part is what one encoding has: in OTLP some processes, the first of which is first, in pprof one. Pyroscope and
// Parca share the latter.
type part struct {
	otlp  bool
	first *trace.Recording
	n     int
}

// encoded are the profiles of n processes with samples.
type encoded struct {
	body []byte
	n    int
}

// resource describes a process.
func (w *window) resource(one *trace.Recording) []otlp.Attribute {
	return merge(otlp.Resource(one), w.extra)
}

// encode returns the window of all in OTLP, or of one process in pprof.
func (w *window) encode(asOTLP bool, all []*trace.Recording) (encoded, error) {
	k := part{asOTLP, all[0], len(all)}
	if x, ok := w.made[k]; ok {
		return x, nil
	}
	rec := *all[0]
	rec.Others = all[1:]
	var b bytes.Buffer
	var n int
	var err error
	if asOTLP {
		n, err = otlp.Encode(&b, &rec, w.o, w.resource, w.version)
	} else if n, err = pprof.Encode(&b, &rec, w.o); n > 0 {
		n = 1
	}
	if err != nil {
		return encoded{}, err
	}
	x := encoded{b.Bytes(), n}
	w.made[k] = x
	return x, nil
}

// item builds the request for a sink, and returns its size in bytes before compression; nil: there is nothing to send.
func (w *window) item(s *Sink, all []*trace.Recording) (it *Item, size int, err error) {
	it = &Item{To: s.Key(), Type: "application/x-protobuf"}
	var x encoded
	if s.Kind == OTLP {
		x, err = w.encode(true, all)
	} else {
		it.Type = "application/json"
		x, err = w.series(s, all)
	}
	if err != nil || x.n == 0 {
		return nil, 0, err
	}
	var z bytes.Buffer
	zip := gzip.NewWriter(&z)
	if _, err := zip.Write(x.body); err != nil {
		return nil, 0, err
	}
	if err := zip.Close(); err != nil {
		return nil, 0, err
	}
	it.Processes, it.Body = x.n, z.Bytes()
	return it, len(x.body), nil
}

type label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// series builds a request with a series for each process, which has a pprof profile, according to
// https://grafana.com/docs/pyroscope/latest/reference-server-api and parca's
// proto/parca/profilestore/v1alpha1/profilestore.proto.
func (w *window) series(s *Sink, all []*trace.Recording) (encoded, error) {
	var series []any
	for i, one := range all {
		pprof, err := w.encode(false, all[i:i+1])
		if err != nil {
			return encoded{}, err
		}
		if pprof.n == 0 {
			continue
		}
		x, err := s.rawProfile(pprof.body, w.resource(one))
		if err != nil {
			return encoded{}, err
		}
		series = append(series, x)
	}
	request := map[string]any{"series": series}
	if s.Kind == Parca {
		request["normalized"] = false
	}
	body, err := json.Marshal(request)
	return encoded{body, len(series)}, err
}

// rawProfile returns a series with a profile.
func (s *Sink) rawProfile(pprof []byte, resource []otlp.Attribute) (any, error) {
	labels := []label{{"__name__", "process_cpu"}}
	for _, a := range resource {
		name := strings.NewReplacer(".", "_", "-", "_").Replace(a.Key)
		switch v := a.Value.(type) {
		case string:
			labels = append(labels, label{name, v})
		case int64:
			labels = append(labels, label{name, strconv.FormatInt(v, 10)})
		}
	}
	sort.Slice(labels, func(i, j int) bool { return labels[i].Name < labels[j].Name })
	if s.Kind == Parca {
		type set struct {
			Labels []label `json:"labels"`
		}
		return map[string]any{"labels": set{labels}, "samples": []any{map[string]any{"rawProfile": pprof}}}, nil
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return map[string]any{"labels": labels, "samples": []any{map[string]any{"ID": uuid, "rawProfile": pprof}}}, nil
}

// Report is the result of a Pusher. Each process has windows of its own.
type Report struct {
	Sent    int // accepted windows
	Lost    int // windows that could not be made, or were rejected or dropped
	Waiting int // windows still in the spool
}

// Close tries to send the remaining items until ctx ends.
func (p *Pusher) Close(ctx context.Context) Report {
	var keys []string
	for _, s := range p.o.Sinks {
		keys = append(keys, s.Key())
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
wait:
	for p.o.Spool.Waiting(keys...) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			break wait
		}
	}
	p.stop()
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return Report{p.sent, p.lost + p.o.Spool.Dropped(), p.o.Spool.Waiting(keys...)}
}

func (p *Pusher) problem(format string, args ...any) {
	if p.o.Problem != nil {
		p.o.Problem(fmt.Sprintf(format, args...))
	}
}

// run sends the items for one sink.
func (p *Pusher) run(ctx context.Context, s *Sink, wake <-chan struct{}) {
	defer p.done.Done()
	wait := p.o.FirstWait
	down := false
	for {
		it, err := p.o.Spool.Claim(s.Key())
		if err != nil {
			p.problem("%v", err)
		}
		if it == nil {
			select {
			case <-wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		after, err := p.send(ctx, s, it)
		var no *refused
		switch {
		case err == nil:
			p.o.Spool.Done(it)
			p.mu.Lock()
			p.sent += it.windows()
			p.mu.Unlock()
			if down {
				p.problem("%s takes profiles again", s.Host())
			}
			wait, down = p.o.FirstWait, false
			continue
		case errors.As(err, &no):
			p.o.Spool.Done(it)
			p.Lose(it.windows())
			what := "a window"
			if n := it.windows(); n > 1 {
				what = fmt.Sprintf("the windows of %d processes", n)
			}
			p.problem("%s refused %s: %v", s.Host(), what, err)
			continue
		}
		p.o.Spool.Release(it)
		if ctx.Err() != nil {
			return
		}
		if !down {
			p.problem("%s cannot be reached, windows wait on disk: %v", s.Host(), err)
			down = true
		}
		if after == 0 {
			// Between half of it and all, so that a fleet does not retry at the same
			// time.
			after = wait/2 + time.Duration(mathrand.Int64N(int64(wait/2)+1))
			wait = min(2*wait, p.o.MaxWait)
		}
		t := time.NewTimer(min(after, maxAfter))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// maxAfter limits the delay that a backend can request by Retry-After.
const maxAfter = 10 * time.Minute

// refused is a reply after which a retry is useless.
type refused struct{ what string }

func (r *refused) Error() string { return r.what }

const maxAnswer = 16 << 10 // bytes of a reply that are read

// send sends one request. after is the delay that the backend requests.
func (p *Pusher) send(ctx context.Context, s *Sink, it *Item) (after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(it.Body))
	if err != nil {
		return 0, &refused{err.Error()}
	}
	req.Header = p.o.Headers.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", it.Type)
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "sliver/"+p.o.Version)
	res, err := p.o.Client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which may contain a secret
		}
		return 0, err
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	// OTLP/HTTP's retryable statuses.
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return retryAfter(res.Header.Get("Retry-After"), time.Now()), fmt.Errorf("status %s", res.Status)
	}
	said := view.Text(strings.TrimSpace(string(b)), 200)
	return 0, &refused{strings.TrimSpace("status " + res.Status + " " + said)}
}

// retryAfter parses seconds or a date.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n > 0 {
		return time.Duration(min(n, int(maxAfter/time.Second))) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}
