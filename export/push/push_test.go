package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/export/foreign"
	"github.com/sliverprof/sliver/export/otlp"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/otelreceiver"
	"github.com/sliverprof/sliver/trace"
)

// recording returns one with some calls.
func recording(t testing.TB) *trace.Recording {
	t.Helper()
	var b bytes.Buffer
	if _, err := foreign.ReadNanoscope(strings.NewReader("1:+main\n10:+work\n90:POP\n100:POP\n"), nil, &b, foreign.Options{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// backend is a fake backend that replies as configured and stores the requests.
type backend struct {
	*httptest.Server
	t  testing.TB
	mu sync.Mutex

	answers []int // statuses, in order; 200 when used up
	after   string
	took    []request
	news    chan struct{}
}

type request struct {
	path, kind, auth string
	body             []byte
}

func newBackend(t testing.TB, answers ...int) *backend {
	b := &backend{t: t, answers: answers, news: make(chan struct{}, 1000)}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	z, err := gzip.NewReader(r.Body)
	if err != nil || r.Header.Get("Content-Encoding") != "gzip" || r.Method != http.MethodPost {
		b.t.Errorf("%s %v: %v", r.Method, r.Header, err)
		return
	}
	body, err := io.ReadAll(z)
	if err != nil {
		b.t.Error(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	status := http.StatusOK
	if len(b.answers) > 0 {
		status, b.answers = b.answers[0], b.answers[1:]
	}
	if b.after != "" {
		w.Header().Set("Retry-After", b.after)
	}
	w.WriteHeader(status)
	if status == http.StatusOK {
		b.took = append(b.took, request{r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), body})
	} else {
		fmt.Fprint(w, "no \x1b[31mthanks")
	}
	b.news <- struct{}{}
}

func sink(t testing.TB, k Kind, url string) *Sink {
	t.Helper()
	s, err := ParseSink(k, url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type problems struct {
	mu  sync.Mutex
	all []string
}

func (p *problems) add(s string) { p.mu.Lock(); p.all = append(p.all, s); p.mu.Unlock() }
func (p *problems) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.all, "\n")
}

func pusher(t testing.TB, dir string, o Options) (*Pusher, *problems) {
	t.Helper()
	if o.Spool == nil {
		sp, err := OpenSpool(dir, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		o.Spool = sp
	}
	ps := &problems{}
	o.Problem, o.Version = ps.add, "v1"
	if o.FirstWait == 0 {
		o.FirstWait, o.MaxWait = time.Millisecond, 5*time.Millisecond
	}
	return New(o), ps
}

func closed(p *Pusher) Report {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return p.Close(ctx)
}

// The Collector's own receiver accepts the profiles with the given resource.
func TestCollector(t *testing.T) {
	r := otelreceiver.Start(t)
	p, ps := pusher(t, t.TempDir(), Options{Sinks: []*Sink{sink(t, OTLP, r.URL)}, Resource: []otlp.Attribute{{Key: "service.name", Value: "orders"}, {Key: "deployment.environment", Value: "test"}}})
	if err := p.Window(recording(t), view.Options{}); err != nil {
		t.Fatal(err)
	}
	b := r.Next(t)
	if b.Resource["service.name"] != "orders" || b.Resource["deployment.environment"] != "test" || b.Resource["process.executable.name"] != "shop" || b.Resource["os.type"] != "linux" {
		t.Errorf("resource %v", b.Resource)
	}
	wall := int64(0)
	for _, x := range b.Profiles {
		if x.Type == "wall" {
			for _, s := range x.Samples {
				wall += s.Value
			}
		}
	}
	if wall != 99 {
		t.Errorf("%d ns, want 99: %+v", wall, b.Profiles)
	}
	if rep := closed(p); rep != (Report{Sent: 1}) || ps.String() != "" {
		t.Errorf("%+v %s", rep, ps)
	}
}

// Pyroscope and Parca receive a pprof profile in their documented formats.
func TestPprofBackends(t *testing.T) {
	py, pa := newBackend(t), newBackend(t)
	p, ps := pusher(t, t.TempDir(), Options{Sinks: []*Sink{sink(t, Pyroscope, py.URL), sink(t, Parca, pa.URL+"/under/here")}, Headers: http.Header{"Authorization": {"Bearer x"}}})
	if err := p.Window(recording(t), view.Options{}); err != nil {
		t.Fatal(err)
	}
	if rep := closed(p); rep != (Report{Sent: 2}) || ps.String() != "" {
		t.Fatalf("%+v %s", rep, ps)
	}
	check := func(r request, path string, labels []label, raw []byte) {
		t.Helper()
		if r.path != path || r.kind != "application/json" || r.auth != "Bearer x" {
			t.Errorf("request %s %s %s", r.path, r.kind, r.auth)
		}
		found := map[string]string{}
		for _, l := range labels {
			found[l.Name] = l.Value
		}
		if found["__name__"] != "process_cpu" || found["service_name"] != "shop" {
			t.Errorf("labels %v", labels)
		}
		prof, err := profile.ParseData(raw)
		if err != nil || len(prof.Sample) == 0 {
			t.Errorf("profile %v: %v", prof, err)
		}
	}
	var a struct {
		Series []struct {
			Labels  []label
			Samples []struct {
				ID         string
				RawProfile []byte
			}
		}
	}
	if err := json.Unmarshal(py.took[0].body, &a); err != nil || len(a.Series) != 1 || len(a.Series[0].Samples[0].ID) != 36 {
		t.Fatalf("%+v: %v", a, err)
	}
	check(py.took[0], "/push.v1.PusherService/Push", a.Series[0].Labels, a.Series[0].Samples[0].RawProfile)
	var b struct {
		Series []struct {
			Labels  struct{ Labels []label }
			Samples []struct{ RawProfile []byte }
		}
	}
	if err := json.Unmarshal(pa.took[0].body, &b); err != nil || len(b.Series) != 1 {
		t.Fatalf("%+v: %v", b, err)
	}
	check(pa.took[0], "/under/here", b.Series[0].Labels.Labels, b.Series[0].Samples[0].RawProfile)
}

// A backend that is down for a while finally receives all windows, in order.
func TestRetry(t *testing.T) {
	b := newBackend(t, 503, 429, 502, 504)
	dir := t.TempDir()
	p, ps := pusher(t, dir, Options{Sinks: []*Sink{sink(t, OTLP, b.URL)}})
	for range 3 {
		if err := p.Window(recording(t), view.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if rep := closed(p); rep != (Report{Sent: 3}) || len(b.took) != 3 {
		t.Errorf("%+v, took %d", rep, len(b.took))
	}
	if s := ps.String(); !strings.Contains(s, "cannot be reached, windows wait on disk: status 503") || !strings.Contains(s, "takes profiles again") || strings.Count(s, "\n") != 1 {
		t.Errorf("said %s", s)
	}
	if es, _ := os.ReadDir(dir); len(es) != 0 {
		t.Errorf("%d files are left", len(es))
	}
}

// Unsent items outlive the program, and the next one sends them.
func TestOutlives(t *testing.T) {
	b := newBackend(t)
	url := b.URL
	b.Server.Close()
	dir := t.TempDir()
	s := sink(t, OTLP, url)
	p, _ := pusher(t, dir, Options{Sinks: []*Sink{s}})
	if err := p.Window(recording(t), view.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if rep := p.Close(ctx); rep != (Report{Waiting: 1}) {
		t.Fatalf("%+v", rep)
	}
	up := newBackend(t)
	moved := *s
	p, _ = pusher(t, dir, Options{Sinks: []*Sink{&moved}, Client: &http.Client{Transport: to(up.Listener.Addr().String())}})
	if rep := closed(p); rep != (Report{Sent: 1}) || len(up.took) != 1 {
		t.Errorf("%+v, took %d", rep, len(up.took))
	}
}

// to sends every request to one host.
type to string

func (h to) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = string(h)
	return http.DefaultTransport.RoundTrip(r)
}

// A rejected item is not retried, and is reported in one printable line.
func TestRefused(t *testing.T) {
	b := newBackend(t, 400)
	p, ps := pusher(t, t.TempDir(), Options{Sinks: []*Sink{sink(t, OTLP, b.URL)}})
	for range 2 {
		if err := p.Window(recording(t), view.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if rep := closed(p); rep != (Report{Sent: 1, Lost: 1}) {
		t.Errorf("%+v", rep)
	}
	if s := ps.String(); !strings.Contains(s, "refused a window: status 400 Bad Request no") || strings.ContainsAny(s, "\x1b\n") {
		t.Errorf("said %q", s)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "x": 0, "999999999": maxAfter,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:00:00 GMT": 0} {
		if got := retryAfter(in, now); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

// The spool drops the oldest items to stay within its limit.
func TestSpoolBound(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenSpool(dir, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := s.Put(&Item{To: "x", At: time.Unix(int64(i), 0), Body: make([]byte, 20_000)}); err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		es, _ := os.ReadDir(dir)
		for _, e := range es {
			fi, _ := e.Info()
			size += fi.Size()
		}
		if size > 100_000 {
			t.Fatalf("%d bytes", size)
		}
	}
	it, err := s.Claim("x")
	if err != nil || it == nil || it.At.Unix() < 15 || s.Dropped() < 15 {
		t.Errorf("%v, %v, %d dropped", it, err, s.Dropped())
	}
	if err := s.Put(&Item{To: "x", Body: make([]byte, 200_000)}); err == nil {
		t.Error("an item larger than the spool is kept")
	}
}

// Two programs with one folder: each item is sent once. Damaged files are removed.
func TestSpoolShared(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t)
	a, err := OpenSpool(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := a.Put(&Item{To: sink(t, OTLP, b.URL).Key(), At: time.Unix(int64(i), 0), Body: zipped("x")}); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"1.push": "nonsense", "2.push": "{}", "3.push.new": "half", "4.push": strings.Repeat("x", 10_000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stale := filepath.Join(dir, "0.push"+claimed)
	head, _ := json.Marshal(Item{To: sink(t, OTLP, b.URL).Key(), At: time.Unix(1, 0)})
	if err := os.WriteFile(stale, append(append(head, '\n'), zipped("y")...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(stale, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	p, _ := pusher(t, dir, Options{Sinks: []*Sink{sink(t, OTLP, b.URL)}})
	q, _ := pusher(t, dir, Options{Sinks: []*Sink{sink(t, OTLP, b.URL)}})
	x, y := closed(p), closed(q)
	if x.Sent+y.Sent != 21 || len(b.took) != 21 || x.Waiting+y.Waiting != 0 {
		t.Errorf("%+v, %+v, took %d", x, y, len(b.took))
	}
}

func zipped(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return b.Bytes()
}

func TestParseSink(t *testing.T) {
	for _, c := range [][3]string{{"otlp", "http://h:4318", "http://h:4318/v1development/profiles"}, {"otlp", "https://h/", "https://h/v1development/profiles"},
		{"parca", "http://h:7070", "http://h:7070/profiles/writeraw"}, {"otlp", "http://h/x?y=1", "http://h/x?y=1"}} {
		if s, err := ParseSink(Kind(c[0]), c[1]); err != nil || s.URL != c[2] {
			t.Errorf("%v: %v, %v", c, s, err)
		}
	}
	for _, bad := range []string{"", "h:4318", "ftp://h", "http://", "::"} {
		if s, err := ParseSink(OTLP, bad); err == nil {
			t.Errorf("%q: %v", bad, s)
		}
	}
	if k := sink(t, OTLP, "http://user:secret@h").Key(); strings.Contains(k, "secret") || strings.Contains(sink(t, OTLP, "http://user:secret@h").Host(), "secret") {
		t.Error("a secret is shown")
	}
}

func FuzzItem(f *testing.F) {
	f.Add([]byte("{\"to\":\"x\"}\nbody"))
	f.Add([]byte("{}\n"))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if it, err := parseItem(bytes.NewReader(b)); err == nil && len(it.Body) == 0 {
			t.Fatal("no body")
		}
	})
}

// An item that is repeatedly claimed and released always counts as waiting.
func TestWaitingWhileClaimed(t *testing.T) {
	sp, err := OpenSpool(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := sp.Put(&Item{To: "here", Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if it, _ := sp.Claim("here"); it != nil {
				sp.Release(it)
			}
		}
	}()
	for range 2000 {
		if n := sp.Waiting("here"); n != 1 {
			t.Errorf("%d are waiting, want 1", n)
			break
		}
	}
	close(stop)
	<-done
}
