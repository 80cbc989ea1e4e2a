package prom

import (
	"bytes"
	"math"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

const ugly = "a\\b\"c\nd\xff é"

func metrics() *metricdata.ResourceMetrics {
	role := func(s string) attribute.Set { return attribute.NewSet(attribute.String("the.role", s)) }
	return &metricdata.ResourceMetrics{
		Resource: resource.NewSchemaless(attribute.String("service.name", "sliver"), attribute.Int("n", 3)),
		ScopeMetrics: []metricdata.ScopeMetrics{{Metrics: []metricdata.Metrics{
			{Name: "a.count", Unit: "{thing}", Description: "Things,\nwith a \\.", Data: metricdata.Sum[int64]{IsMonotonic: true,
				DataPoints: []metricdata.DataPoint[int64]{{Attributes: role(ugly), Value: 1 << 40}, {Attributes: role("x"), Value: 2}}}},
			{Name: "b.time", Unit: "s", Data: metricdata.Sum[float64]{IsMonotonic: true,
				DataPoints: []metricdata.DataPoint[float64]{{Value: .25}}}},
			{Name: "c.fill", Unit: "1", Data: metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{{Value: 1e-9}}}},
			{Name: "d.size", Unit: "By", Data: metricdata.Gauge[int64]{DataPoints: []metricdata.DataPoint[int64]{{Value: -5}}}},
			{Name: "e.pause", Unit: "s", Data: metricdata.Histogram[float64]{DataPoints: []metricdata.HistogramDataPoint[float64]{{
				Attributes: role("main"), Count: 6, Sum: .5, Bounds: []float64{.001, .002}, BucketCounts: []uint64{1, 2, 3}}}}},
		}}},
	}
}

// TestRead parses the output with Prometheus's own parser.
func TestRead(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, metrics()); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	got, err := parser.TextToMetricFamilies(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.Bytes())
	}
	if len(got) != 6 {
		t.Errorf("%d families in\n%s", len(got), b.Bytes())
	}
	label := func(m *dto.Metric, n string) string {
		for _, l := range m.Label {
			if l.GetName() == n {
				return l.GetValue()
			}
		}
		return ""
	}
	if m := got["target_info"].Metric[0]; label(m, "service_name") != "sliver" || label(m, "n") != "3" || m.Gauge.GetValue() != 1 {
		t.Errorf("target_info is %v", m)
	}
	c := got["a_count_total"]
	if c.GetType() != dto.MetricType_COUNTER || len(c.Metric) != 2 || c.GetHelp() != "Things,\nwith a \\." {
		t.Fatalf("%v", c)
	}
	if m := c.Metric[0]; m.Counter.GetValue() != 1<<40 || label(m, "the_role") != "a\\b\"c\nd\ufffd é" {
		t.Errorf("%v", m)
	}
	if m := got["b_time_seconds_total"].Metric[0]; m.Counter.GetValue() != .25 {
		t.Errorf("%v", m)
	}
	if m := got["c_fill_ratio"].Metric[0]; m.Gauge.GetValue() != 1e-9 {
		t.Errorf("%v", m)
	}
	if m := got["d_size_bytes"].Metric[0]; m.Gauge.GetValue() != -5 {
		t.Errorf("%v", m)
	}
	h := got["e_pause_seconds"].Metric[0].Histogram
	if h.GetSampleCount() != 6 || h.GetSampleSum() != .5 || len(h.Bucket) != 3 {
		t.Fatalf("%v", h)
	}
	for i, want := range []struct {
		le    float64
		count uint64
	}{{.001, 1}, {.002, 3}, {math.Inf(1), 6}} {
		if b := h.Bucket[i]; b.GetUpperBound() != want.le || b.GetCumulativeCount() != want.count {
			t.Errorf("bucket %d is %v, want %v", i, b, want)
		}
	}
}

// TestUnknown: an unsupported kind is an error and is never omitted.
func TestUnknown(t *testing.T) {
	rm := metrics()
	rm.ScopeMetrics[0].Metrics[0].Data = metricdata.ExponentialHistogram[float64]{}
	var b bytes.Buffer
	if err := Write(&b, rm); err == nil || b.Len() > 0 {
		t.Errorf("%v, and %d bytes are written", err, b.Len())
	}
}
