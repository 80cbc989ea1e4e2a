// Package otlp sends metrics and spans to an OpenTelemetry collector: OTLP over HTTP,
// binary protobuf, configured by the standard environment variables. It does not depend
// on the metrics it sends.
//
// OpenTelemetry's own exporters do the same, but they depend on gRPC and would make the
// program 9 to 11 MB larger (figures in docs/notes/dependencies.md). This package has no gRPC, no
// JSON, and only cumulative counters.
//
// Exporters may be used from any goroutine.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of one export.
const (
	tries       = 5
	firstWait   = 200 * time.Millisecond // doubled after each attempt
	maxResponse = 64 << 10               // bytes of a reply that are read
)

// client posts to one URL.
type client struct {
	c    Config
	http *http.Client
}

func newClient(c Config) *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = c.TLS
	return &client{c: c, http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // headers may contain a secret that is only for this host
	}}}
}

// post sends body, and retries if the reply permits it, until the timeout.
func (c *client) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.c.Timeout)
	defer cancel()
	if c.c.Gzip {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		body = z.Bytes()
	}
	wait := firstWait
	for try := 1; ; try++ {
		after, err := c.once(ctx, body)
		if err == nil || after < 0 || try == tries {
			return err
		}
		pause := max(after, wait/2+time.Duration(rand.Int64N(int64(wait))))
		wait *= 2
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// once sends body once. After a temporary error, after is the delay that the receiver
// requests (0: none given); after a permanent one it is negative.
func (c *client) once(ctx context.Context, body []byte) (after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.c.URL, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "OTel-OTLP-Exporter-sliver")
	if c.c.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for k, v := range c.c.Headers {
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return -1, err
		}
		return 0, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return -1, fmt.Errorf("post to %s: %w", c.c.URL, err)
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return -1, c.rejected(answer)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		s, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		after = time.Duration(max(min(s, 3600), 0)) * time.Second
	default:
		after = -1
	}
	return after, fmt.Errorf("post to %s: %s", c.c.URL, res.Status)
}

// rejected parses an Export…ServiceResponse: field 1 is partial_success, with the number
// of rejected points or spans and the reason.
func (c *client) rejected(answer []byte) error {
	part, _ := field(answer, 1)
	if part == nil {
		return nil
	}
	why, n := field(part, 2)
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s took not all: %d left out: %.200q", c.c.URL, n, why)
}

// field returns the last bytes field of number num in a message, and the value of its
// last varint field 1. For a damaged message it returns the fields before the damage.
func field(b []byte, num protowire.Number) (found []byte, first uint64) {
	for len(b) > 0 {
		f, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return found, first
		}
		b = b[n:]
		v := protowire.ConsumeFieldValue(f, typ, b)
		if v < 0 {
			return found, first
		}
		switch {
		case f == num && typ == protowire.BytesType:
			found, _ = protowire.ConsumeBytes(b)
		case f == 1 && typ == protowire.VarintType:
			first, _ = protowire.ConsumeVarint(b)
		}
		b = b[v:]
	}
	return found, first
}

// MetricExporter implements sdk/metric.Exporter.
type MetricExporter struct{ c *client }

// NewMetrics returns an exporter for metrics to the destination c.
func NewMetrics(c Config) *MetricExporter { return &MetricExporter{newClient(c)} }

// Temporality is cumulative, as sliver's statistics are.
func (e *MetricExporter) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

// Aggregation is the SDK's default.
func (e *MetricExporter) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

// Export sends collected metrics.
func (e *MetricExporter) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	b, err := encodeMetrics(rm)
	return errors.Join(err, e.c.post(ctx, b))
}

// ForceFlush does nothing, as the exporter buffers nothing.
func (e *MetricExporter) ForceFlush(context.Context) error { return nil }

// Shutdown closes idle connections.
func (e *MetricExporter) Shutdown(context.Context) error {
	e.c.http.CloseIdleConnections()
	return nil
}

// SpanExporter implements sdk/trace.SpanExporter.
type SpanExporter struct{ c *client }

// NewTraces returns an exporter for spans to the destination c.
func NewTraces(c Config) *SpanExporter { return &SpanExporter{newClient(c)} }

// ExportSpans sends ended spans.
func (e *SpanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	return e.c.post(ctx, encodeSpans(spans))
}

// Shutdown closes idle connections.
func (e *SpanExporter) Shutdown(context.Context) error {
	e.c.http.CloseIdleConnections()
	return nil
}
