package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/sliverprof/sliver/internal/telemetry/otlp"
	"github.com/sliverprof/sliver/internal/telemetry/prom"
)

// Config configures a Pipeline.
type Config struct {
	Listen  string              // address for Prometheus scrapes; a port alone means loopback; "": none
	Page    bool                // Page is used, with or without an address of its own
	Getenv  func(string) string // for OTLP; nil: os.Getenv
	Version string              // of this program
	// Warn receives telemetry failures, which do not stop a recording.
	Warn func(error)
}

// Pipeline connects statistics and spans to their receivers.
type Pipeline struct {
	cfg     Config
	begin   time.Time
	res     *resource.Resource
	listen  net.Listener
	server  *http.Server
	metrics otlp.Config
	push    bool // metrics are pushed to push's receiver
	spans   *sdktrace.TracerProvider
	meters  []*sdkmetric.MeterProvider
	page    *sdkmetric.ManualReader
}

// closeWithin limits how long an unresponsive receiver can delay the program's end.
const closeWithin = 3 * time.Second

// New reads the environment and starts to listen. An unusable address is an error. An
// unsupported environment variable is a warning, as it may be meant for other programs.
func New(c Config) (*Pipeline, error) {
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	p := &Pipeline{cfg: c, begin: time.Now()}
	var err error
	if p.metrics, p.push, err = otlp.FromEnv(otlp.Metrics, c.Getenv); err != nil {
		c.Warn(fmt.Errorf("no metrics are sent: %w", err))
	}
	traces, ok, err := otlp.FromEnv(otlp.Traces, c.Getenv)
	if err != nil {
		c.Warn(fmt.Errorf("no trace is sent: %w", err))
	}
	p.res = p.resource()
	if ok {
		p.spans = sdktrace.NewTracerProvider(sdktrace.WithResource(p.res), sdktrace.WithBatcher(warnSpans{otlp.NewTraces(traces), c.Warn}))
	}
	if c.Listen != "" {
		if err := p.serve(); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// resource returns sliver's resource, overridden by OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES.
func (p *Pipeline) resource() *resource.Resource {
	own := resource.NewSchemaless(attribute.String("service.name", "sliver"), attribute.String("service.version", p.cfg.Version))
	env, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		p.cfg.Warn(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err))
	}
	both, err := resource.Merge(own, env)
	if err != nil {
		return own
	}
	return both
}

// Tracer returns the tracer for spans; nil if traces are not exported.
func (p *Pipeline) Tracer() oteltrace.Tracer {
	if p.spans == nil {
		return nil
	}
	return p.spans.Tracer(scope, oteltrace.WithInstrumentationVersion(p.cfg.Version))
}

// Addr returns the address for scrapes, such as 127.0.0.1:9464; "" if there is none.
func (p *Pipeline) Addr() string {
	if p.listen == nil {
		return ""
	}
	return p.listen.Addr().String()
}

// Watch starts to publish the statistics of src. It must be called for one source only.
func (p *Pipeline) Watch(src Source) error {
	producer := sdkmetric.WithProducer(&Producer{Source: src, Since: p.begin})
	var opts []sdkmetric.Option
	if p.listen != nil || p.cfg.Page {
		p.page = sdkmetric.NewManualReader(producer)
		opts = append(opts, sdkmetric.WithReader(p.page))
	}
	if p.push {
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(warnMetrics{otlp.NewMetrics(p.metrics), p.cfg.Warn}, producer)))
	}
	if len(opts) == 0 {
		return nil
	}
	mp := sdkmetric.NewMeterProvider(append(opts, sdkmetric.WithResource(p.res))...)
	p.meters = append(p.meters, mp)
	if _, err := Instruments(mp.Meter(scope), src); err != nil {
		return err
	}
	if p.listen != nil {
		go func() { _ = p.server.Serve(p.listen) }() // ends with Close
	}
	return nil
}

func hostPort(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = "", addr // a port alone
	}
	if host == "" {
		host = "127.0.0.1" // nothing is exposed to the network by default
	}
	return host, port
}

// Address validates an address to listen on.
func Address(addr string) error {
	_, port := hostPort(addr)
	if _, err := net.LookupPort("tcp", port); addr == "" || err != nil {
		return fmt.Errorf("invalid listen address %q: write PORT or HOST:PORT", addr)
	}
	return nil
}

// serve starts to listen; requests before Watch wait for it.
func (p *Pipeline) serve() error {
	var err error
	if p.listen, err = net.Listen("tcp", net.JoinHostPort(hostPort(p.cfg.Listen))); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", p.answer)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "sliver's metrics are at /metrics")
	})
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	return nil
}

// Page returns the scrape handler for another server. Watch must have been called, and
// Config.Page set.
func (p *Pipeline) Page() http.Handler { return http.HandlerFunc(p.answer) }

func (p *Pipeline) answer(w http.ResponseWriter, r *http.Request) {
	var rm metricdata.ResourceMetrics
	var b bytes.Buffer
	err := p.page.Collect(r.Context(), &rm)
	if err == nil {
		err = prom.Write(&b, &rm)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", prom.ContentType)
	_, _ = w.Write(b.Bytes())
}

// Close sends the remaining data and ends. The source is not used afterwards.
func (p *Pipeline) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if p.server != nil {
		if len(p.meters) == 0 {
			p.listen.Close() // the server does not use it yet
		}
		_ = p.server.Shutdown(ctx)
	}
	for _, m := range p.meters {
		if err := m.Shutdown(ctx); err != nil && !errors.Is(err, sdkmetric.ErrReaderShutdown) {
			p.cfg.Warn(err)
		}
	}
	if p.spans != nil {
		if err := p.spans.Shutdown(ctx); err != nil {
			p.cfg.Warn(err)
		}
	}
}

// warnMetrics and warnSpans report send failures, which the SDK would pass to a global
// handler.
type warnMetrics struct {
	sdkmetric.Exporter
	warn func(error)
}

func (w warnMetrics) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	if err := w.Exporter.Export(ctx, rm); err != nil {
		w.warn(fmt.Errorf("metrics were not sent: %w", err))
	}
	return nil
}

type warnSpans struct {
	sdktrace.SpanExporter
	warn func(error)
}

func (w warnSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := w.SpanExporter.ExportSpans(ctx, spans); err != nil {
		w.warn(fmt.Errorf("the trace was not sent: %w", err))
	}
	return nil
}
