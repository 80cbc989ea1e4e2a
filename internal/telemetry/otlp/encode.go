package otlp

import (
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// msg is a protobuf message under construction. Field numbers are those of
// opentelemetry-proto v1.11, opentelemetry/proto/{common,resource,metrics,trace}/v1.
type msg []byte

func (m *msg) sub(field protowire.Number, fill func(*msg)) {
	var in msg
	fill(&in)
	m.bytes(field, in)
}

func (m *msg) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

// text omits an empty string, as proto3 does.
func (m *msg) text(field protowire.Number, s string) {
	if s != "" {
		m.bytes(field, []byte(s))
	}
}

func (m *msg) varint(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *msg) fixed(field protowire.Number, v uint64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), v)
}

func (m *msg) double(field protowire.Number, v float64) { m.fixed(field, math.Float64bits(v)) }

func (m *msg) time(field protowire.Number, t time.Time) {
	if !t.IsZero() {
		m.fixed(field, uint64(t.UnixNano()))
	}
}

func (m *msg) attributes(field protowire.Number, kvs []attribute.KeyValue) {
	for _, kv := range kvs {
		m.sub(field, func(m *msg) {
			m.text(1, string(kv.Key))
			m.sub(2, func(m *msg) { m.value(kv.Value) })
		})
	}
}

// value encodes an AnyValue. Kinds that sliver does not use are sent as text.
func (m *msg) value(v attribute.Value) {
	switch v.Type() {
	case attribute.BOOL:
		n := uint64(0)
		if v.AsBool() {
			n = 1
		}
		m.varint(2, n)
	case attribute.INT64:
		m.varint(3, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		m.double(4, v.AsFloat64())
	case attribute.STRINGSLICE:
		m.sub(5, func(m *msg) {
			for _, s := range v.AsStringSlice() {
				m.sub(1, func(m *msg) { m.bytes(1, valid(s)) })
			}
		})
	default:
		m.bytes(1, valid(v.String()))
	}
}

func (m *msg) resource(r *resource.Resource) {
	if r != nil {
		m.sub(1, func(m *msg) { m.attributes(1, r.Attributes()) })
	}
}

func (m *msg) scope(s instrumentation.Scope) {
	m.sub(1, func(m *msg) {
		m.text(1, s.Name)
		m.text(2, s.Version)
	})
}

// encodeMetrics encodes an ExportMetricsServiceRequest.
func encodeMetrics(rm *metricdata.ResourceMetrics) ([]byte, error) {
	var out msg
	var failed error
	out.sub(1, func(m *msg) {
		m.resource(rm.Resource)
		for i := range rm.ScopeMetrics {
			s := &rm.ScopeMetrics[i]
			m.sub(2, func(m *msg) {
				m.scope(s.Scope)
				for j := range s.Metrics {
					m.sub(2, func(m *msg) {
						if err := m.metric(&s.Metrics[j]); err != nil {
							failed = err
						}
					})
				}
			})
		}
	})
	return out, failed
}

func (m *msg) metric(d *metricdata.Metrics) error {
	m.text(1, d.Name)
	m.text(2, d.Description)
	m.text(3, d.Unit)
	switch x := d.Data.(type) {
	case metricdata.Gauge[int64]:
		m.sub(5, func(m *msg) { numbers(m, x.DataPoints) })
	case metricdata.Gauge[float64]:
		m.sub(5, func(m *msg) { numbers(m, x.DataPoints) })
	case metricdata.Sum[int64]:
		m.sub(7, func(m *msg) { numbers(m, x.DataPoints); m.sum(x.Temporality, x.IsMonotonic) })
	case metricdata.Sum[float64]:
		m.sub(7, func(m *msg) { numbers(m, x.DataPoints); m.sum(x.Temporality, x.IsMonotonic) })
	case metricdata.Histogram[float64]:
		m.sub(9, func(m *msg) {
			for i := range x.DataPoints {
				m.sub(1, func(m *msg) { m.histogram(&x.DataPoints[i]) })
			}
			m.varint(2, temporality(x.Temporality))
		})
	default:
		return fmt.Errorf("metric %s: cannot encode %T", d.Name, d.Data)
	}
	return nil
}

func (m *msg) sum(t metricdata.Temporality, monotonic bool) {
	m.varint(2, temporality(t))
	if monotonic {
		m.varint(3, 1)
	}
}

func temporality(t metricdata.Temporality) uint64 {
	if t == metricdata.DeltaTemporality {
		return 1
	}
	return 2
}

func numbers[N int64 | float64](m *msg, ps []metricdata.DataPoint[N]) {
	for i := range ps {
		p := &ps[i]
		m.sub(1, func(m *msg) {
			m.attributes(7, p.Attributes.ToSlice())
			m.time(2, p.StartTime)
			m.time(3, p.Time)
			switch v := any(p.Value).(type) {
			case int64:
				m.fixed(6, uint64(v))
			case float64:
				m.double(4, v)
			}
		})
	}
}

func (m *msg) histogram(p *metricdata.HistogramDataPoint[float64]) {
	m.attributes(9, p.Attributes.ToSlice())
	m.time(2, p.StartTime)
	m.time(3, p.Time)
	m.fixed(4, p.Count)
	m.double(5, p.Sum)
	var packed []byte
	for _, c := range p.BucketCounts {
		packed = protowire.AppendFixed64(packed, c)
	}
	m.bytes(6, packed)
	packed = nil
	for _, b := range p.Bounds {
		packed = protowire.AppendFixed64(packed, math.Float64bits(b))
	}
	m.bytes(7, packed)
	if v, ok := p.Min.Value(); ok {
		m.double(11, v)
	}
	if v, ok := p.Max.Value(); ok {
		m.double(12, v)
	}
}

// encodeSpans encodes an ExportTraceServiceRequest. All spans of a provider share one
// resource; they are grouped by scope.
func encodeSpans(spans []sdktrace.ReadOnlySpan) []byte {
	var scopes []instrumentation.Scope
	by := map[instrumentation.Scope][]sdktrace.ReadOnlySpan{}
	for _, s := range spans {
		sc := s.InstrumentationScope()
		if by[sc] == nil {
			scopes = append(scopes, sc)
		}
		by[sc] = append(by[sc], s)
	}
	var out msg
	out.sub(1, func(m *msg) {
		if len(spans) > 0 {
			m.resource(spans[0].Resource())
		}
		for _, sc := range scopes {
			m.sub(2, func(m *msg) {
				m.scope(sc)
				for _, s := range by[sc] {
					m.sub(2, func(m *msg) { m.span(s) })
				}
			})
		}
	})
	return out
}

func (m *msg) span(s sdktrace.ReadOnlySpan) {
	trace, id := s.SpanContext().TraceID(), s.SpanContext().SpanID()
	m.bytes(1, trace[:])
	m.bytes(2, id[:])
	m.text(3, s.SpanContext().TraceState().String())
	if p := s.Parent(); p.SpanID().IsValid() {
		parent := p.SpanID()
		m.bytes(4, parent[:])
	}
	m.text(5, s.Name())
	m.varint(6, uint64(s.SpanKind())) // both number the kinds alike
	m.time(7, s.StartTime())
	m.time(8, s.EndTime())
	m.attributes(9, s.Attributes())
	for _, e := range s.Events() {
		m.sub(11, func(m *msg) {
			m.time(1, e.Time)
			m.text(2, e.Name)
			m.attributes(3, e.Attributes)
		})
	}
	if st := s.Status(); st.Code != codes.Unset {
		m.sub(15, func(m *msg) {
			m.text(2, st.Description)
			code := uint64(1)
			if st.Code == codes.Error {
				code = 2
			}
			m.varint(3, code)
		})
	}
}

// valid converts a thread's name, which may contain any bytes, to UTF-8.
func valid(s string) []byte { return []byte(strings.ToValidUTF8(s, "\ufffd")) }
