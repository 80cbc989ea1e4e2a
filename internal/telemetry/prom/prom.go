// Package prom writes collected metrics in Prometheus's text exposition format, version
// 0.0.4, with names according to OpenTelemetry's specification "Prometheus and
// OpenMetrics Compatibility". It does not depend on the metrics. docs/notes/dependencies.md compares
// it with OpenTelemetry's own exporter in features and size.
package prom

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// ContentType is the media type of Write's output.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write writes all of rm, with its resource as target_info. Kinds that sliver does not
// use (exponential histograms, summaries) are an error.
func Write(w io.Writer, rm *metricdata.ResourceMetrics) error {
	var b bytes.Buffer
	if rm.Resource != nil {
		head(&b, "target_info", "gauge", "The measured target.")
		sample(&b, "target_info", labels(rm.Resource.Set()), "1")
	}
	for i := range rm.ScopeMetrics {
		for j := range rm.ScopeMetrics[i].Metrics {
			if err := metric(&b, &rm.ScopeMetrics[i].Metrics[j]); err != nil {
				return err
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func metric(b *bytes.Buffer, m *metricdata.Metrics) error {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		points(b, m, d.IsMonotonic, d.DataPoints)
	case metricdata.Sum[float64]:
		points(b, m, d.IsMonotonic, d.DataPoints)
	case metricdata.Gauge[int64]:
		points(b, m, false, d.DataPoints)
	case metricdata.Gauge[float64]:
		points(b, m, false, d.DataPoints)
	case metricdata.Histogram[float64]:
		histogram(b, m, d.DataPoints)
	default:
		return fmt.Errorf("metric %s: no text for %T", m.Name, m.Data)
	}
	return nil
}

func points[N int64 | float64](b *bytes.Buffer, m *metricdata.Metrics, counter bool, ps []metricdata.DataPoint[N]) {
	kind := "gauge"
	if counter {
		kind = "counter"
	}
	n := name(m.Name, m.Unit, counter)
	head(b, n, kind, m.Description)
	for i := range ps {
		sample(b, n, labels(&ps[i].Attributes), number(float64(ps[i].Value)))
	}
}

func histogram(b *bytes.Buffer, m *metricdata.Metrics, ps []metricdata.HistogramDataPoint[float64]) {
	n := name(m.Name, m.Unit, false)
	head(b, n, "histogram", m.Description)
	for i := range ps {
		p := &ps[i]
		ls := labels(&p.Attributes)
		below := uint64(0)
		for k, c := range p.BucketCounts {
			below += c
			le := math.Inf(1)
			if k < len(p.Bounds) {
				le = p.Bounds[k]
			}
			sample(b, n+"_bucket", append(slices.Clone(ls), label{"le", number(le)}), strconv.FormatUint(below, 10))
		}
		sample(b, n+"_sum", ls, number(p.Sum))
		sample(b, n+"_count", ls, strconv.FormatUint(p.Count, 10))
	}
}

// units maps the units that sliver uses to suffixes.
var units = map[string]string{"s": "seconds", "By": "bytes"}

// name converts an OpenTelemetry name: words joined by _, then the unit, then _total for
// counters.
func name(n, unit string, counter bool) string {
	n = word(n)
	suffix := units[unit]
	if unit == "1" && !counter {
		suffix = "ratio"
	}
	if suffix != "" && !strings.HasSuffix(n, "_"+suffix) {
		n += "_" + suffix
	}
	if counter {
		n += "_total"
	}
	return n
}

// word replaces invalid characters of a name.
func word(s string) string {
	out := []byte(s)
	for i, c := range out {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= '0' && c <= '9' && i > 0) {
			out[i] = '_'
		}
	}
	return string(out)
}

type label struct{ name, value string }

func labels(set *attribute.Set) []label {
	var ls []label
	for _, kv := range set.ToSlice() {
		ls = append(ls, label{word(string(kv.Key)), kv.Value.String()})
	}
	return ls
}

func head(b *bytes.Buffer, n, kind, about string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", n, helpEscapes.Replace(about), n, kind)
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func sample(b *bytes.Buffer, n string, ls []label, value string) {
	b.WriteString(n)
	for i, l := range ls {
		b.WriteByte("{,"[min(i, 1)])
		// A thread's name may contain any bytes; the format is UTF-8.
		fmt.Fprintf(b, `%s="%s"`, l.name, labelEscapes.Replace(strings.ToValidUTF8(l.value, "\ufffd")))
	}
	if len(ls) > 0 {
		b.WriteByte('}')
	}
	b.WriteByte(' ')
	b.WriteString(value)
	b.WriteByte('\n')
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
