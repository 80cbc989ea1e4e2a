package telemetry

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

type fixed struct{ a session.Account }

func (f *fixed) Account() session.Account { return f.a }

func account() session.Account {
	return session.Account{
		Threads: 3, SelfCPU: 2e9, Pauses: stack.Pauses{Under: 4},
		Load: trace.Load{Bytes: 1000, Overwritten: 7, Fill: .25, Peak: .5},
		Roles: []sampler.RoleAccount{
			{Role: "main", Threads: 1, Stats: stack.ThreadStats{Samples: 10, Stops: 3, Unrun: 2, Read: 5, Part: 4, Late: 6, Truncated: 8,
				TimedOut: 9, Denied: 11, Stretched: 12, Restarted: 13, SpanNS: 5e8, WalkNS: 25e7},
				Pauses: sampler.Distribution{Bounds: []int64{4096, 8192}, Counts: []uint64{1, 0, 2}, Count: 3, Sum: 30_000, Max: 20_000}},
			{Role: "worker-*", Threads: 2, Stats: stack.ThreadStats{Samples: 1, Unrun: 1}},
		},
	}
}

// scrape reads a metrics page with Prometheus's own parser.
func scrape(t *testing.T, addr string) map[string]*dto.MetricFamily {
	t.Helper()
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(ct, "text/plain; version=0.0.4") {
		t.Fatalf("%s, %s", res.Status, ct)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	fs, err := p.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// value returns the value of the metric with exactly these labels (name, value, …).
func value(t *testing.T, fs map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	if f := fs[name]; f != nil {
	metrics:
		for _, m := range f.Metric {
			if len(m.Label) != len(labels)/2 {
				continue
			}
			for _, l := range m.Label {
				found := false
				for i := 0; i < len(labels); i += 2 {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue metrics
				}
			}
			switch {
			case m.Counter != nil:
				return m.Counter.GetValue()
			case m.Gauge != nil:
				return m.Gauge.GetValue()
			}
		}
	}
	t.Errorf("no %s %v", name, labels)
	return -1
}

// TestBothWays: the statistics arrive completely, both by scrape and by push.
func TestBothWays(t *testing.T) {
	var mu sync.Mutex
	var last *collectmetrics.ExportMetricsServiceRequest
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var q collectmetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(b, &q); err != nil || r.URL.Path != "/v1/metrics" {
			t.Errorf("%s: %v", r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		last = &q
	}))
	defer s.Close()
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "where=here")
	vars := map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": s.URL + "/v1/metrics"}
	p, err := New(Config{Listen: "0", Version: "v1", Getenv: func(k string) string { return vars[k] }, Warn: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if p.Tracer() != nil {
		t.Error("a tracer though nobody wants spans")
	}
	if host, _, err := net.SplitHostPort(p.Addr()); err != nil || host != "127.0.0.1" {
		t.Errorf("a port alone listens at %s", p.Addr())
	}
	src := &fixed{account()}
	if err := p.Watch(src); err != nil {
		t.Fatal(err)
	}
	fs := scrape(t, p.Addr())
	for _, c := range []struct {
		want float64
		name string
		ls   []string
	}{
		{3, "sliver_threads", nil}, {1000, "sliver_recording_size_bytes_total", nil}, {7, "sliver_events_overwritten_total", nil},
		{.25, "sliver_ring_fill_ratio", nil}, {.5, "sliver_ring_fill_peak_ratio", nil}, {2, "sliver_cpu_time_seconds_total", nil},
		{4, "sliver_pauses_under_40us_total", nil},
		{3, "sliver_samples_total", []string{"role", "main", "way", "stop"}}, {2, "sliver_samples_total", []string{"role", "main", "way", "unrun"}},
		{1, "sliver_samples_total", []string{"role", "main", "way", "read"}}, {4, "sliver_samples_total", []string{"role", "main", "way", "part"}},
		{1, "sliver_samples_total", []string{"role", "worker-*", "way", "unrun"}},
		{6, "sliver_ticks_missed_total", []string{"role", "main", "reason", "late"}},
		{9, "sliver_ticks_missed_total", []string{"role", "main", "reason", "timed_out"}},
		{11, "sliver_ticks_missed_total", []string{"role", "main", "reason", "denied"}},
		{12, "sliver_ticks_missed_total", []string{"role", "main", "reason", "stretched"}},
		{8, "sliver_samples_truncated_total", []string{"role", "main"}}, {13, "sliver_calls_restarted_total", []string{"role", "main"}},
		{.5, "sliver_observed_time_seconds_total", []string{"role", "main"}}, {.25, "sliver_unwind_time_seconds_total", []string{"role", "main"}},
	} {
		if got := value(t, fs, c.name, c.ls...); got != c.want {
			t.Errorf("%s %v is %v, want %v", c.name, c.ls, got, c.want)
		}
	}
	h := fs["sliver_pause_seconds"].GetMetric()
	if len(h) != 1 || h[0].Histogram.GetSampleCount() != 3 || h[0].Histogram.GetSampleSum() != 30e-6 ||
		len(h[0].Histogram.Bucket) != 3 || h[0].Histogram.Bucket[0].GetUpperBound() != 4.096e-6 {
		t.Errorf("%v", h)
	}
	info := fs["target_info"].GetMetric()[0].Label
	seen := map[string]string{}
	for _, l := range info {
		seen[l.GetName()] = l.GetValue()
	}
	if seen["service_name"] != "sliver" || seen["service_version"] != "v1" || seen["where"] != "here" {
		t.Errorf("%v", seen)
	}
	src.a.Load.Bytes = 2000
	if got := value(t, scrape(t, p.Addr()), "sliver_recording_size_bytes_total"); got != 2000 {
		t.Errorf("the next scrape has %v", got)
	}
	p.Close()
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("it listens after Close")
	}
	mu.Lock()
	defer mu.Unlock()
	if last == nil {
		t.Fatal("nothing was sent")
	}
	names := map[string]bool{}
	for _, sm := range last.ResourceMetrics[0].ScopeMetrics {
		for _, m := range sm.Metrics {
			names[m.Name] = true
			if m.Name == Written && m.GetSum().DataPoints[0].GetAsInt() != 2000 {
				t.Errorf("%v", m)
			}
		}
	}
	for _, n := range []string{Threads, Samples, Missed, Truncated, Restarted, Observed, Unwinding, Pause, ShortPauses, Overwritten, RingFill,
		RingPeak, Written, CPU} {
		if !names[n] {
			t.Errorf("%s was not sent", n)
		}
	}
}

// TestNobody: without a receiver nothing is set up, and a recording that never started
// leaves nothing behind.
func TestNobody(t *testing.T) {
	p, err := New(Config{Getenv: func(string) string { return "" }, Warn: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Watch(&fixed{}); err != nil || p.Addr() != "" || p.Tracer() != nil {
		t.Errorf("%v %q", err, p.Addr())
	}
	p.Close()

	p, err = New(Config{Listen: "127.0.0.1:0", Getenv: func(string) string { return "" }, Warn: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	addr := p.Addr()
	if _, err := New(Config{Listen: addr, Getenv: func(string) string { return "" }, Warn: func(err error) { t.Error(err) }}); err == nil {
		t.Error("one address is had twice")
	}
	p.Close()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("it listens after Close")
	}
}

// TestWrongWords: an unsupported setting that was made for all programs is a warning. A
// missing receiver neither fails nor delays the end.
func TestWrongWords(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := gone.Addr().String()
	gone.Close()
	for _, c := range []struct{ name, value, says string }{
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "50", "were not sent"},
	} {
		var mu sync.Mutex
		var said []string
		vars := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + addr, c.name: c.value}
		p, err := New(Config{Getenv: func(k string) string { return vars[k] }, Warn: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, err.Error())
		}})
		if err != nil {
			t.Fatal(err)
		}
		if tr := p.Tracer(); tr != nil {
			_, s := tr.Start(context.Background(), "x")
			s.End()
		}
		if err := p.Watch(&fixed{account()}); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		p.Close()
		if took := time.Since(begin); took > 5*closeWithin {
			t.Errorf("closing took %v", took)
		}
		if !strings.Contains(strings.Join(said, "\n"), c.says) {
			t.Errorf("%s=%s: %q", c.name, c.value, said)
		}
	}
}
