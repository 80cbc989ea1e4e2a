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

	"github.com/sliverprof/sliver/telemetry/otlp"
	"github.com/sliverprof/sliver/telemetry/prom"
)

// Config of a Pipeline.
type Config struct {
	Listen  string              // address for Prometheus to ask, a port alone meaning loopback; "": none
	Page    bool                // Page is wanted, whether or not it is at an address of its own
	Getenv  func(string) string // for OTLP; nil: os.Getenv
	Version string              // of this program
	// Warn is told what telemetry cannot do; a recording does not fail for that.
	Warn func(error)
}

// Pipeline is the way from accounts and spans to those who want them.
type Pipeline struct {
	cfg     Config
	begin   time.Time
	res     *resource.Resource
	listen  net.Listener
	server  *http.Server
	metrics otlp.Config
	push    bool // metrics, to there
	spans   *sdktrace.TracerProvider
	meters  []*sdkmetric.MeterProvider
	page    *sdkmetric.ManualReader
}

// closeWithin bounds how long a receiver that does not answer can hold up the
// end of the program.
const closeWithin = 3 * time.Second

// New reads the environment and begins to listen. An address that cannot be had
// is an error; what the environment asks for and cannot be done is a warning,
// since it was set for other programs too.
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

// resource is who measures: sliver, beneath what OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES say.
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

// Tracer takes spans; nil where nobody wants them.
func (p *Pipeline) Tracer() oteltrace.Tracer {
	if p.spans == nil {
		return nil
	}
	return p.spans.Tracer(scope, oteltrace.WithInstrumentationVersion(p.cfg.Version))
}

// Addr is where Prometheus asks, such as 127.0.0.1:9464; "" if nowhere.
func (p *Pipeline) Addr() string {
	if p.listen == nil {
		return ""
	}
	return p.listen.Addr().String()
}

// Watch begins to publish what src says. It is for one source.
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
		host = "127.0.0.1" // nothing is shown to the network that nobody asked to show
	}
	return host, port
}

// Address reports, by an error that says so, what is no address to listen on.
func Address(addr string) error {
	_, port := hostPort(addr)
	if _, err := net.LookupPort("tcp", port); addr == "" || err != nil {
		return fmt.Errorf("%q is no address to listen on: write a port or HOST:PORT", addr)
	}
	return nil
}

// serve begins to listen; who asks before Watch waits for it.
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

// Page answers as Prometheus asks, for a server of somebody else's; Watch has
// been called, and Config.Page was set.
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

// Close sends what is left, and ends. The source may be gone afterwards.
func (p *Pipeline) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if p.server != nil {
		if len(p.meters) == 0 {
			p.listen.Close() // nobody serves it yet
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

// warnMetrics and warnSpans tell of failures to send, which the SDK would hand
// to a handler that is global.
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
