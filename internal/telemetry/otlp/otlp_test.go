package otlp

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	protometrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	prototrace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func env(vars map[string]string) func(string) string { return func(k string) string { return vars[k] } }

func TestFromEnv(t *testing.T) {
	const e = "OTEL_EXPORTER_OTLP_"
	for _, c := range []struct {
		about string
		vars  map[string]string
		s     Signal
		want  Config
		none  bool
		says  string // part of the error message
	}{
		{about: "nothing", none: true},
		{about: "disabled", vars: map[string]string{e + "ENDPOINT": "http://x:1", "OTEL_SDK_DISABLED": "TRUE"}, none: true},
		{about: "none", vars: map[string]string{e + "ENDPOINT": "http://x:1", "OTEL_METRICS_EXPORTER": "none"}, none: true},
		{about: "asked for by name", vars: map[string]string{"OTEL_METRICS_EXPORTER": "otlp"},
			want: Config{URL: "http://localhost:4318/v1/metrics"}},
		{about: "a folder", vars: map[string]string{e + "ENDPOINT": "https://x:1/in/"}, s: Traces, want: Config{URL: "https://x:1/in/v1/traces"}},
		{about: "own", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "METRICS_ENDPOINT": "http://y:2"},
			want: Config{URL: "http://y:2/"}},
		{about: "the other's", vars: map[string]string{e + "TRACES_ENDPOINT": "http://y:2"}, none: true},
		{about: "all", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "PROTOCOL": "http/protobuf", e + "TIMEOUT": "250",
			e + "HEADERS": "a=b, Key = c%20d,", e + "COMPRESSION": "gzip"},
			want: Config{URL: "http://x:1/v1/metrics", Timeout: 250 * time.Millisecond, Gzip: true, Headers: map[string]string{"a": "b", "Key": "c d"}}},
		{about: "own before common", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "TIMEOUT": "1", e + "METRICS_TIMEOUT": "2",
			e + "COMPRESSION": "gzip", e + "METRICS_COMPRESSION": "none"},
			want: Config{URL: "http://x:1/v1/metrics", Timeout: 2 * time.Millisecond}},
		{about: "grpc", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "METRICS_PROTOCOL": "grpc"}, says: e + "METRICS_PROTOCOL"},
		{about: "no URL", vars: map[string]string{e + "ENDPOINT": "x:4317"}, says: e + "ENDPOINT"},
		{about: "timeout", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "TIMEOUT": "10s"}, says: "milliseconds"},
		{about: "compression", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "COMPRESSION": "zstd"}, says: "gzip"},
		{about: "headers", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "HEADERS": "a"}, says: e + "HEADERS"},
		{about: "exporter", vars: map[string]string{e + "ENDPOINT": "http://x:1", "OTEL_METRICS_EXPORTER": "console"}, says: "otlp and none"},
		{about: "certificate", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "CERTIFICATE": "/nonexistent"}, says: e + "CERTIFICATE"},
		{about: "pair", vars: map[string]string{e + "ENDPOINT": "http://x:1", e + "CLIENT_CERTIFICATE": "/nonexistent"}, says: e + "CLIENT_CERTIFICATE"},
	} {
		if c.s == "" {
			c.s = Metrics
		}
		got, ok, err := FromEnv(c.s, env(c.vars))
		if c.says != "" {
			if err == nil || ok || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v %v", c.about, ok, err)
			}
			continue
		}
		if err != nil || ok == c.none {
			t.Errorf("%s: %v %v", c.about, ok, err)
			continue
		}
		if c.none {
			continue
		}
		if c.want.Timeout == 0 {
			c.want.Timeout = 10 * time.Second
		}
		if c.want.Headers == nil {
			c.want.Headers = map[string]string{}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.about, got, c.want)
		}
	}
	if _, _, err := FromEnv(Metrics, env(map[string]string{e + "ENDPOINT": "http://x:1", e + "HEADERS": "key=%zzsecret"})); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("a header's value is in the error: %v", err)
	}
}

var (
	at    = time.Unix(1_700_000_000, 123)
	since = at.Add(-time.Minute)
)

func metrics() *metricdata.ResourceMetrics {
	set := attribute.NewSet(attribute.String("role", "w-\xff"), attribute.Int("n", -7), attribute.Bool("b", true), attribute.Float64("f", .5),
		attribute.StringSlice("l", []string{"x", ""}))
	return &metricdata.ResourceMetrics{
		Resource: resource.NewSchemaless(attribute.String("service.name", "sliver")),
		ScopeMetrics: []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: "s", Version: "1"}, Metrics: []metricdata.Metrics{
			{Name: "count", Unit: "{x}", Description: "Counts.", Data: metricdata.Sum[int64]{IsMonotonic: true, Temporality: metricdata.CumulativeTemporality,
				DataPoints: []metricdata.DataPoint[int64]{{Attributes: set, StartTime: since, Time: at, Value: 1 << 40}, {Value: -1}}}},
			{Name: "delta", Data: metricdata.Sum[float64]{Temporality: metricdata.DeltaTemporality,
				DataPoints: []metricdata.DataPoint[float64]{{Value: .25}}}},
			{Name: "int", Data: metricdata.Gauge[int64]{DataPoints: []metricdata.DataPoint[int64]{{Value: 4}}}},
			{Name: "float", Data: metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{{Value: 0}}}},
			{Name: "pause", Unit: "s", Data: metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality,
				DataPoints: []metricdata.HistogramDataPoint[float64]{{StartTime: since, Time: at, Count: 6, Sum: .5, Bounds: []float64{.001, .002},
					BucketCounts: []uint64{1, 2, 3}, Max: metricdata.NewExtrema(.3)}}}},
		}}},
	}
}

// TestMetrics decodes the encoded metrics with the published schema.
func TestMetrics(t *testing.T) {
	b, err := encodeMetrics(metrics())
	if err != nil {
		t.Fatal(err)
	}
	var req collectmetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(b, &req); err != nil {
		t.Fatal(err)
	}
	rm := req.ResourceMetrics[0]
	if a := rm.Resource.Attributes[0]; a.Key != "service.name" || a.Value.GetStringValue() != "sliver" {
		t.Errorf("resource %v", rm.Resource)
	}
	sm := rm.ScopeMetrics[0]
	if sm.Scope.Name != "s" || sm.Scope.Version != "1" || len(sm.Metrics) != 5 {
		t.Fatalf("%v", sm)
	}
	m := sm.Metrics[0]
	sum := m.GetSum()
	if m.Name != "count" || m.Unit != "{x}" || m.Description != "Counts." || !sum.IsMonotonic ||
		sum.AggregationTemporality != protometrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE || len(sum.DataPoints) != 2 {
		t.Errorf("%v", m)
	}
	p := sum.DataPoints[0]
	if p.GetAsInt() != 1<<40 || p.TimeUnixNano != uint64(at.UnixNano()) || p.StartTimeUnixNano != uint64(since.UnixNano()) {
		t.Errorf("%v", p)
	}
	if sum.DataPoints[1].GetAsInt() != -1 {
		t.Errorf("%v", sum.DataPoints[1])
	}
	attrs := map[string]any{}
	for _, a := range p.Attributes {
		switch a.Key {
		case "role":
			attrs[a.Key] = a.Value.GetStringValue()
		case "n":
			attrs[a.Key] = a.Value.GetIntValue()
		case "b":
			attrs[a.Key] = a.Value.GetBoolValue()
		case "f":
			attrs[a.Key] = a.Value.GetDoubleValue()
		case "l":
			vs := a.Value.GetArrayValue().Values
			attrs[a.Key] = len(vs) == 2 && vs[0].GetStringValue() == "x"
		}
	}
	if want := map[string]any{"role": "w-\ufffd", "n": int64(-7), "b": true, "f": .5, "l": true}; !reflect.DeepEqual(attrs, want) {
		t.Errorf("attributes %v, want %v", attrs, want)
	}
	if d := sm.Metrics[1].GetSum(); d.IsMonotonic || d.DataPoints[0].GetAsDouble() != .25 ||
		d.AggregationTemporality != protometrics.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA {
		t.Errorf("%v", d)
	}
	if g := sm.Metrics[2].GetGauge(); g.DataPoints[0].GetAsInt() != 4 {
		t.Errorf("%v", g)
	}
	if _, ok := sm.Metrics[3].GetGauge().DataPoints[0].Value.(*protometrics.NumberDataPoint_AsDouble); !ok {
		t.Errorf("a zero is left out: %v", sm.Metrics[3])
	}
	h := sm.Metrics[4].GetHistogram()
	hp := h.DataPoints[0]
	if hp.Count != 6 || hp.GetSum() != .5 || !reflect.DeepEqual(hp.BucketCounts, []uint64{1, 2, 3}) ||
		!reflect.DeepEqual(hp.ExplicitBounds, []float64{.001, .002}) || hp.Min != nil || hp.GetMax() != .3 {
		t.Errorf("%v", hp)
	}
	rm2 := metrics()
	rm2.ScopeMetrics[0].Metrics[0].Data = metricdata.Summary{}
	if _, err := encodeMetrics(rm2); err == nil {
		t.Error("a summary is left out without a word")
	}
}

// receiver is a collector that stores what it receives.
type receiver struct {
	*httptest.Server
	bodies  chan []byte
	headers chan http.Header
}

func receive(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	r := &receiver{bodies: make(chan []byte, 100), headers: make(chan http.Header, 100)}
	n := 0
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body := io.Reader(q.Body)
		if q.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		r.bodies <- b
		r.headers <- q.Header
		n++
		if answer != nil {
			answer(n, w)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// TestSpans sends spans of the SDK and decodes them with the published schema.
func TestSpans(t *testing.T) {
	r := receive(t, nil)
	exp := NewTraces(Config{URL: r.URL, Timeout: time.Minute, Gzip: true, Headers: map[string]string{"X-Key": "v"}})
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exp), sdktrace.WithResource(resource.NewSchemaless(attribute.String("a", "b"))))
	tr := tp.Tracer("t", oteltrace.WithInstrumentationVersion("2"))
	ctx, root := tr.Start(context.Background(), "root", oteltrace.WithTimestamp(since), oteltrace.WithAttributes(attribute.Int("pid", 5)))
	_, child := tr.Start(ctx, "child")
	child.RecordError(errors.New("it broke"))
	child.SetStatus(codes.Error, "broken")
	child.End()
	root.End(oteltrace.WithTimestamp(at))
	if err := tp.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	var req collecttrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(<-r.bodies, &req); err != nil {
		t.Fatal(err)
	}
	if h := <-r.headers; h.Get("X-Key") != "v" || h.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("%v", h)
	}
	rs := req.ResourceSpans[0]
	if rs.Resource.Attributes[0].Key != "a" || rs.ScopeSpans[0].Scope.Name != "t" || rs.ScopeSpans[0].Scope.Version != "2" {
		t.Errorf("%v", rs)
	}
	spans := map[string]*prototrace.Span{}
	for _, s := range rs.ScopeSpans[0].Spans {
		spans[s.Name] = s
	}
	c, p := spans["child"], spans["root"]
	if c == nil || p == nil {
		t.Fatalf("%v", rs)
	}
	if string(c.ParentSpanId) != string(p.SpanId) || string(c.TraceId) != string(p.TraceId) || len(p.TraceId) != 16 || len(p.SpanId) != 8 ||
		len(p.ParentSpanId) != 0 || p.Kind != prototrace.Span_SPAN_KIND_INTERNAL {
		t.Errorf("%v\n%v", p, c)
	}
	if p.StartTimeUnixNano != uint64(since.UnixNano()) || p.EndTimeUnixNano != uint64(at.UnixNano()) || p.Attributes[0].Value.GetIntValue() != 5 {
		t.Errorf("%v", p)
	}
	if c.Status.Code != prototrace.Status_STATUS_CODE_ERROR || c.Status.Message != "broken" || len(c.Events) != 1 || c.Events[0].Name != "exception" {
		t.Errorf("%v", c)
	}
}

// TestTries: temporary errors are retried, permanent ones are returned at once, and
// partial rejections are reported.
func TestTries(t *testing.T) {
	post := func(answer func(n int, w http.ResponseWriter)) (int, error) {
		r := receive(t, answer)
		err := NewMetrics(Config{URL: r.URL, Timeout: time.Minute}).Export(context.Background(), metrics())
		return len(r.bodies), err
	}
	if n, err := post(func(n int, w http.ResponseWriter) {
		if n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}); n != 3 || err != nil {
		t.Errorf("%d tries, %v", n, err)
	}
	if n, err := post(func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }); n != 1 || err == nil ||
		!strings.Contains(err.Error(), "403") {
		t.Errorf("%d tries, %v", n, err)
	}
	if _, err := post(func(_ int, w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(http.StatusFound) }); err == nil {
		t.Error("a redirect was followed")
	}
	if n, err := post(func(_ int, w http.ResponseWriter) {
		b, _ := proto.Marshal(&collectmetrics.ExportMetricsServiceResponse{
			PartialSuccess: &collectmetrics.ExportMetricsPartialSuccess{RejectedDataPoints: 3, ErrorMessage: "too old"}})
		w.Write(b)
	}); n != 1 || err == nil || !strings.Contains(err.Error(), "3 left out") || !strings.Contains(err.Error(), "too old") {
		t.Errorf("%d tries, %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests); cancel() })
	if err := NewMetrics(Config{URL: r.URL, Timeout: time.Minute}).Export(ctx, metrics()); err == nil {
		t.Error("no error though the time was up")
	}
}

// TestTLS: a collector's own certificate is trusted if the configuration names it.
func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE": ca}
	c, ok, err := FromEnv(Metrics, env(vars))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := NewMetrics(c).Export(context.Background(), metrics()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.TLS = nil
	x := NewMetrics(c)
	x.c.c.Timeout = 50 * time.Millisecond
	if err := x.Export(ctx, metrics()); err == nil {
		t.Error("an unknown certificate is trusted")
	}
	cancel()
}

// FuzzAnswer: any reply of a collector is parsed without a panic.
func FuzzAnswer(f *testing.F) {
	for _, n := range []int64{0, 3} {
		b, err := proto.Marshal(&collectmetrics.ExportMetricsServiceResponse{
			PartialSuccess: &collectmetrics.ExportMetricsPartialSuccess{RejectedDataPoints: n, ErrorMessage: "x"}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x0a, 0xff})
	c := newClient(Config{URL: "http://x"})
	f.Fuzz(func(t *testing.T, b []byte) {
		err := c.rejected(b)
		var res collectmetrics.ExportMetricsServiceResponse
		if proto.Unmarshal(b, &res) == nil && res.PartialSuccess.GetRejectedDataPoints() == 0 && err != nil {
			t.Errorf("%v for an answer that rejects nothing: %x", err, b)
		}
	})
}
