package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	protometrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// collector keeps the newest metrics and all spans that it receives.
type collector struct {
	mu      sync.Mutex
	metrics map[string]*protometrics.Metric
	spans   []string
	format  map[string]bool
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/v1/metrics":
		var q collectmetrics.ExportMetricsServiceRequest
		if err = proto.Unmarshal(b, &q); err == nil {
			c.metrics = map[string]*protometrics.Metric{}
			for _, s := range q.ResourceMetrics[0].ScopeMetrics {
				for _, m := range s.Metrics {
					c.metrics[m.Name] = m
				}
			}
		}
	case "/v1/traces":
		var q collecttrace.ExportTraceServiceRequest
		if err = proto.Unmarshal(b, &q); err == nil {
			for _, s := range q.ResourceSpans[0].ScopeSpans[0].Spans {
				c.spans = append(c.spans, s.Name)
				for _, a := range s.Attributes {
					if a.Key == "sliver.format" {
						c.format[a.Value.GetStringValue()] = true
					}
				}
			}
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// sum sums a counter's points with this attribute; key "": all.
func (c *collector) sum(name, key, value string) (n float64) {
	m := c.metrics[name]
	for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
		ok := key == ""
		for _, a := range p.Attributes {
			ok = ok || a.Key == key && a.Value.GetStringValue() == value
		}
		if ok {
			n += float64(p.GetAsInt()) + p.GetAsDouble()
		}
	}
	return n
}

// TestTelemetry scrapes a recording while it runs, makes it send its metrics and its
// trace to a collector, and compares both with its summary.
func TestTelemetry(t *testing.T) {
	p := spin(t)
	c := &collector{format: map[string]bool{}}
	srv := httptest.NewServer(c)
	defer srv.Close()
	cmd := slivercmd(t, t.TempDir(), "record", "-p", pidOf(p), "-i", "2ms", "--json", "--metrics", "0", "-o", "x.sliver", "-o", "x.pb.gz")
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+srv.URL, "OTEL_SDK_DISABLED=", "OTEL_METRICS_EXPORTER=", "OTEL_TRACES_EXPORTER=")
	var out bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(errs)
	url := ""
	for url == "" && lines.Scan() {
		url, _ = strings.CutPrefix(lines.Text(), "metrics: ")
	}
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("no address is given: %q", url)
	}
	var live map[string]*dto.MetricFamily
	taken := func() (n float64) { // from the thread while it ran
		for _, m := range live["sliver_samples_total"].GetMetric() {
			for _, l := range m.Label {
				if l.GetValue() == "stop" || l.GetValue() == "clock" {
					n += m.Counter.GetValue()
				}
			}
		}
		return n
	}
	for live == nil || taken() < 20 { // up to the test's deadline
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		live, err = parser.TextToMetricFamilies(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := live["sliver_threads"].Metric[0].Gauge.GetValue(); n != 1 {
		t.Errorf("%v threads", n)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Errorf("sliver says %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	free(t, p.PID)
	var sum summaryJSON
	if err := json.Unmarshal(out.Bytes(), &sum); err != nil {
		t.Fatal(err)
	}
	if n := taken(); n > float64(sum.Stops+sum.Clocked) {
		t.Errorf("%v stops and copies while it ran, %d and %d in the end", n, sum.Stops, sum.Clocked)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range []struct {
		what      string
		got, want float64
	}{
		{"samples", c.sum("sliver.samples", "", ""), float64(sum.Samples)},
		{"stops", c.sum("sliver.samples", "way", "stop"), float64(sum.Stops)},
		{"clocked", c.sum("sliver.samples", "way", "clock"), float64(sum.Clocked)},
		{"unrun", c.sum("sliver.samples", "way", "unrun"), float64(sum.Unrun)},
		{"read", c.sum("sliver.samples", "way", "read") + c.sum("sliver.samples", "way", "part"), float64(sum.Read)},
		{"truncated", c.sum("sliver.samples.truncated", "", ""), float64(sum.Truncated)},
		{"late", c.sum("sliver.ticks.missed", "reason", "late"), float64(sum.Late)},
		{"timed out", c.sum("sliver.ticks.missed", "reason", "timed_out"), float64(sum.TimedOut)},
		{"denied", c.sum("sliver.ticks.missed", "reason", "denied"), float64(sum.Denied)},
		{"stretched", c.sum("sliver.ticks.missed", "reason", "stretched"), float64(sum.Stretched)},
		{"overwritten", c.sum("sliver.events.overwritten", "", ""), float64(sum.Overwritten)},
		{"under 40 µs", c.sum("sliver.pauses.under_40us", "", ""), float64(sum.Pause.Under)},
	} {
		if x.got != x.want {
			t.Errorf("%s: %v was sent, %v is in the summary", x.what, x.got, x.want)
		}
	}
	h := c.metrics["sliver.pause"].GetHistogram().GetDataPoints()
	if len(h) != 1 || h[0].Count < sum.Stops || int64(h[0].GetMax()*1e9+.5) != sum.Pause.Max || h[0].Attributes[0].Value.GetStringValue() != "main" {
		t.Errorf("pauses %v; the summary has %d stops, the longest %d ns", h, sum.Stops, sum.Pause.Max)
	} else if mean := h[0].GetSum() / float64(h[0].Count) * 1e9; mean < float64(sum.Pause.Mean)-1 || mean > float64(sum.Pause.Mean)+2 {
		t.Errorf("the pauses' mean is %v ns, in the summary %d", mean, sum.Pause.Mean)
	}
	if u, b := c.sum("sliver.unwind.time", "", ""), c.sum("sliver.recording.size", "", ""); u <= 0 || b <= 0 {
		t.Errorf("unwinding took %v s, %v bytes were written", u, b)
	}
	if f := c.sum("sliver.ring.fill.peak", "", ""); f <= 0 || f > 1 {
		t.Errorf("the fullest ring was at %v", f)
	}
	if sum.FirstNS <= 0 || sum.FirstNS > 60e9 || sum.Pause.Worst != sum.Pause.Max || sum.Pause.UnderShare < 0 || sum.Pause.UnderShare > 1 {
		t.Errorf("%+v", sum)
	}
	seen := strings.Join(c.spans, " ")
	for _, want := range []string{"record", "maps", "attach", "sample", "symbolize", "export"} {
		if !strings.Contains(" "+seen+" ", " "+want+" ") {
			t.Errorf("no span %s among %s", want, seen)
		}
	}
	if !c.format["sliver"] || !c.format["pprof"] {
		t.Errorf("exports of %v", c.format)
	}
}

// TestMetricsAddress: an unusable address is a one-line error, and nothing is recorded.
func TestMetricsAddress(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	for address, status := range map[string]int{"127.0.0.1:70000": 2, "192.0.2.1:7000": 1} {
		r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "1s", "--metrics", address, "-o", "x.sliver")
		if r.status != status || strings.Count(r.errors, "\n") != 1 || !strings.Contains(r.errors, "metrics:") {
			t.Errorf("%s: %+v", address, r)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
