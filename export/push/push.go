// Package push sends windows of a recording to profile backends: an OpenTelemetry
// collector by OTLP over HTTP, and Pyroscope and Parca by their pprof push interfaces.
// Windows that cannot be sent are queued in a Spool and retried with increasing delays
// until they are sent or dropped in favour of newer ones.
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

// Window queues the part of rec that o selects for every sink. It skips a window without
// samples.
func (p *Pusher) Window(rec *trace.Recording, o view.Options) error {
	w := &window{rec: rec, o: o, extra: p.o.Resource, version: p.o.Version, made: map[Kind][]byte{}}
	var errs []error
	for i, s := range p.o.Sinks {
		it, err := w.item(s)
		if err == nil && it == nil {
			return nil
		}
		if err == nil {
			it.At = time.Now()
			err = p.o.Spool.Put(it)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		select {
		case p.wake[i] <- struct{}{}:
		default:
		}
	}
	return errors.Join(errs...)
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

// window is a part of a recording for several sinks.
type window struct {
	rec     *trace.Recording
	o       view.Options
	extra   []otlp.Attribute
	version string
	made    map[Kind][]byte // encoded profiles; Pyroscope and Parca share the pprof one
}

// resource describes a process.
func (w *window) resource(one *trace.Recording) []otlp.Attribute {
	return merge(otlp.Resource(one), w.extra)
}

// profile returns the window in the format of a kind of sink; nil: it is empty.
func (w *window) profile(k Kind) ([]byte, error) {
	if k != OTLP {
		k = Pyroscope
	}
	if b, ok := w.made[k]; ok {
		return b, nil
	}
	var b bytes.Buffer
	var n int
	var err error
	if k == OTLP {
		n, err = otlp.Encode(&b, w.rec, w.o, w.resource, w.version)
	} else {
		n, err = pprof.Encode(&b, w.rec, w.o)
	}
	if err != nil {
		return nil, err
	}
	w.made[k] = nil
	if n > 0 {
		w.made[k] = b.Bytes()
	}
	return w.made[k], nil
}

// item builds the request for a sink; nil: there is nothing to send.
func (w *window) item(s *Sink) (*Item, error) {
	body, err := w.profile(s.Kind)
	if err != nil || body == nil {
		return nil, err
	}
	it := &Item{To: s.Key(), Type: "application/x-protobuf"}
	if s.Kind != OTLP {
		it.Type = "application/json"
		if body, err = s.rawProfile(body, w.resource(w.rec)); err != nil {
			return nil, err
		}
	}
	var z bytes.Buffer
	zip := gzip.NewWriter(&z)
	if _, err := zip.Write(body); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	it.Body = z.Bytes()
	return it, nil
}

type label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// rawProfile builds a request with a pprof profile in it, according to
// https://grafana.com/docs/pyroscope/latest/reference-server-api and parca's
// proto/parca/profilestore/v1alpha1/profilestore.proto.
func (s *Sink) rawProfile(pprof []byte, resource []otlp.Attribute) ([]byte, error) {
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
		return json.Marshal(map[string]any{"normalized": false, "series": []any{map[string]any{
			"labels": set{labels}, "samples": []any{map[string]any{"rawProfile": pprof}}}}})
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return json.Marshal(map[string]any{"series": []any{map[string]any{
		"labels": labels, "samples": []any{map[string]any{"ID": uuid, "rawProfile": pprof}}}}})
}

// Report is the result of a Pusher.
type Report struct {
	Sent    int // accepted items
	Lost    int // rejected or dropped items
	Waiting int // items still in the spool
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
			p.sent++
			p.mu.Unlock()
			if down {
				p.problem("%s takes profiles again", s.Host())
			}
			wait, down = p.o.FirstWait, false
			continue
		case errors.As(err, &no):
			p.o.Spool.Done(it)
			p.mu.Lock()
			p.lost++
			p.mu.Unlock()
			p.problem("%s refused a window: %v", s.Host(), err)
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
