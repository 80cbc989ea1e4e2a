// Package telemetry exports sliver's own metrics: OpenTelemetry instruments that read a
// recording's statistics on demand, and two ways to export them: a page for Prometheus,
// and OTLP over HTTP, configured by the standard environment variables. Samplers do not
// call this package, and nothing is counted twice: the packages sampler and trace do the
// counting.
//
// Everything may be used from any goroutine.
package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sliverprof/sliver/session"
)

// Source is a recording in progress.
type Source interface {
	Account() session.Account
}

// Keeper is a Source that is a flight recorder, with additional figures.
type Keeper interface {
	Source
	Kept() Kept
}

// Kept is a flight recorder's statistics apart from its samples.
type Kept struct {
	Targets              int    // processes watched now
	Taken                uint64 // processes watched so far
	RingBytes, RingLimit int64  // memory of the rings now, and its limit
	Short                uint64 // times that a ring did not get the memory it needed
	Fired                map[string]uint64
	Dumps                map[string]uint64 // by reason
	Failed               uint64
	Broken               uint64        // checks of triggers that ended in a panic
	Interval             time.Duration // between two samples of a thread, now
}

// scope names the instruments and spans.
const scope = "github.com/sliverprof/sliver"

// Names of the metrics, with their units and attributes. docs/metrics.md describes them.
const (
	Threads     = "sliver.threads"            // {thread}, sampled now
	Samples     = "sliver.samples"            // {sample}; role, way
	Missed      = "sliver.ticks.missed"       // {tick}; role, reason
	Truncated   = "sliver.samples.truncated"  // {sample}; role
	Restarted   = "sliver.calls.restarted"    // {call}; role
	Observed    = "sliver.observed.time"      // s; role
	Unwinding   = "sliver.unwind.time"        // s; role
	Pause       = "sliver.pause"              // s, a histogram; role
	ShortPauses = "sliver.pauses.under_40us"  // {stop}
	Overwritten = "sliver.events.overwritten" // {event}
	RingFill    = "sliver.ring.fill"          // 1, of the fullest ring
	RingPeak    = "sliver.ring.fill.peak"     // 1
	Written     = "sliver.recording.size"     // By
	CPU         = "sliver.cpu.time"           // s

	// Of a flight recorder.
	Targets     = "sliver.watch.targets"       // {process}
	Taken       = "sliver.watch.targets.taken" // {process}
	RingBytes   = "sliver.watch.rings.size"    // By
	RingLimit   = "sliver.watch.rings.limit"   // By
	RingShort   = "sliver.watch.rings.short"   // {ring}
	Triggers    = "sliver.watch.triggers"      // {trigger}; kind
	Dumps       = "sliver.watch.dumps"         // {dump}; reason
	FailedDumps = "sliver.watch.dumps.failed"  // {dump}
	Broken      = "sliver.watch.checks.failed" // {check}
	Interval    = "sliver.watch.interval"      // s
)

// Names of attributes.
const (
	Role   = "role"   // main, or the pattern of the threads' names
	Way    = "way"    // how a sample was taken: stop, unrun, read, part, clock
	Reason = "reason" // why a sample is missing: late, timed_out, denied, stretched; or the reason of a dump
	Kind   = "kind"   // of a trigger
)

// instruments are the observable instruments.
type instruments struct {
	threads                                                            metric.Int64ObservableGauge
	samples, missed, truncated, restarted, short, overwritten, written metric.Int64ObservableCounter
	observed, unwinding, cpu                                           metric.Float64ObservableCounter
	fill, peak                                                         metric.Float64ObservableGauge

	targets, ringBytes, ringLimit                          metric.Int64ObservableGauge
	taken, ringShort, triggers, dumps, failedDumps, broken metric.Int64ObservableCounter
	interval                                               metric.Float64ObservableGauge
}

// Instruments makes m's instruments read src. Pauses are not included, as the API has no
// instrument that accepts a complete histogram: see Producer.
func Instruments(m metric.Meter, src Source) (metric.Registration, error) {
	var in instruments
	var all []metric.Observable
	var failed error
	counter := func(to *metric.Int64ObservableCounter, name, unit, about string) {
		i, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
		if err != nil {
			failed = err
		}
		*to, all = i, append(all, i)
	}
	seconds := func(to *metric.Float64ObservableCounter, name, about string) {
		i, err := m.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(about))
		if err != nil {
			failed = err
		}
		*to, all = i, append(all, i)
	}
	share := func(to *metric.Float64ObservableGauge, name, about string) {
		i, err := m.Float64ObservableGauge(name, metric.WithUnit("1"), metric.WithDescription(about))
		if err != nil {
			failed = err
		}
		*to, all = i, append(all, i)
	}
	gauge := func(to *metric.Int64ObservableGauge, name, unit, about string) {
		i, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		if err != nil {
			failed = err
		}
		*to, all = i, append(all, i)
	}
	gauge(&in.threads, Threads, "{thread}", "Threads that are sampled now.")
	counter(&in.samples, Samples, "{sample}", "Samples by how they were taken.")
	counter(&in.missed, Missed, "{tick}", "Ticks of threads without a sample, by why.")
	counter(&in.truncated, Truncated, "{sample}", "Samples whose stack is not complete.")
	counter(&in.restarted, Restarted, "{call}", "System calls that a stop interrupted and that were put back.")
	counter(&in.short, ShortPauses, "{stop}", "Stops shorter than 40 microseconds.")
	counter(&in.overwritten, Overwritten, "{event}", "Events lost between a ring and the recording.")
	counter(&in.written, Written, "By", "Bytes written to the recording.")
	seconds(&in.observed, Observed, "Time that threads were under observation, summed up.")
	seconds(&in.unwinding, Unwinding, "Time taken to unwind stacks.")
	seconds(&in.cpu, CPU, "CPU time of sliver itself since sampling began.")
	share(&in.fill, RingFill, "How full the fullest ring is now.")
	share(&in.peak, RingPeak, "The fullest that any ring was.")
	keeper, isKeeper := src.(Keeper)
	if isKeeper {
		gauge(&in.targets, Targets, "{process}", "Processes that are watched now.")
		i, err := m.Float64ObservableGauge(Interval, metric.WithUnit("s"), metric.WithDescription("Time between two samples of a thread now."))
		if err != nil {
			failed = err
		}
		in.interval, all = i, append(all, i)
		counter(&in.taken, Taken, "{process}", "Processes that have been watched.")
		gauge(&in.ringBytes, RingBytes, "By", "Memory that rings take now.")
		gauge(&in.ringLimit, RingLimit, "By", "Memory that the rings may take.")
		counter(&in.ringShort, RingShort, "{ring}", "Times that a ring could not have the memory it wanted.")
		counter(&in.triggers, Triggers, "{trigger}", "Triggers that fired.")
		counter(&in.dumps, Dumps, "{dump}", "Dumps that were written.")
		counter(&in.failedDumps, FailedDumps, "{dump}", "Dumps that could not be written.")
		counter(&in.broken, Broken, "{check}", "Checks of triggers that ended in a panic.")
	}
	if failed != nil {
		return nil, failed
	}
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		a := src.Account()
		in.observe(o, &a)
		if isKeeper {
			in.observeKept(o, keeper.Kept())
		}
		return nil
	}, all...)
}

func (in *instruments) observe(o metric.Observer, a *session.Account) {
	o.ObserveInt64(in.threads, int64(a.Threads))
	for i := range a.Roles {
		r := &a.Roles[i]
		role := attribute.String(Role, r.Role)
		count := func(c metric.Int64ObservableCounter, n uint64, as ...attribute.KeyValue) {
			o.ObserveInt64(c, int64(n), metric.WithAttributes(append(as, role)...))
		}
		s := &r.Stats
		count(in.samples, s.Stopped(), attribute.String(Way, "stop"))
		count(in.samples, s.Unrun, attribute.String(Way, "unrun"))
		count(in.samples, s.Read-min(s.Part, s.Read), attribute.String(Way, "read"))
		count(in.samples, s.Part, attribute.String(Way, "part"))
		count(in.samples, s.Clocked, attribute.String(Way, "clock"))
		count(in.missed, s.Late, attribute.String(Reason, "late"))
		count(in.missed, s.Rested, attribute.String(Reason, "rested"))
		count(in.missed, s.TimedOut, attribute.String(Reason, "timed_out"))
		count(in.missed, s.Denied, attribute.String(Reason, "denied"))
		count(in.missed, s.Stretched, attribute.String(Reason, "stretched"))
		count(in.truncated, s.Truncated)
		count(in.restarted, s.Restarted)
		o.ObserveFloat64(in.observed, inSeconds(s.SpanNS), metric.WithAttributes(role))
		o.ObserveFloat64(in.unwinding, inSeconds(s.WalkNS), metric.WithAttributes(role))
	}
	o.ObserveInt64(in.short, int64(a.Pauses.Under))
	o.ObserveInt64(in.overwritten, int64(a.Load.Overwritten))
	o.ObserveInt64(in.written, a.Load.Bytes)
	o.ObserveFloat64(in.fill, a.Load.Fill)
	o.ObserveFloat64(in.peak, a.Load.Peak)
	o.ObserveFloat64(in.cpu, inSeconds(a.SelfCPU))
}

func (in *instruments) observeKept(o metric.Observer, k Kept) {
	o.ObserveFloat64(in.interval, k.Interval.Seconds())
	o.ObserveInt64(in.targets, int64(k.Targets))
	o.ObserveInt64(in.taken, int64(k.Taken))
	o.ObserveInt64(in.ringBytes, k.RingBytes)
	o.ObserveInt64(in.ringLimit, k.RingLimit)
	o.ObserveInt64(in.ringShort, int64(k.Short))
	o.ObserveInt64(in.failedDumps, int64(k.Failed))
	o.ObserveInt64(in.broken, int64(k.Broken))
	for kind, n := range k.Fired {
		o.ObserveInt64(in.triggers, int64(n), metric.WithAttributes(attribute.String(Kind, kind)))
	}
	for reason, n := range k.Dumps {
		o.ObserveInt64(in.dumps, int64(n), metric.WithAttributes(attribute.String(Reason, reason)))
	}
}

func inSeconds(ns int64) float64 { return float64(ns) / 1e9 }

// Producer supplies the sampler's histogram of pauses to a reader (sdk/metric.Producer).
type Producer struct {
	Source Source
	Since  time.Time // start of counting
}

// Produce implements sdk/metric.Producer.
func (p *Producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	a := p.Source.Account()
	h := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
	now := time.Now()
	for i := range a.Roles {
		r := &a.Roles[i]
		d := &r.Pauses
		if d.Count == 0 {
			continue
		}
		pt := metricdata.HistogramDataPoint[float64]{
			Attributes: attribute.NewSet(attribute.String(Role, r.Role)), StartTime: p.Since, Time: now,
			Count: d.Count, BucketCounts: d.Counts, Sum: inSeconds(d.Sum), Max: metricdata.NewExtrema(inSeconds(d.Max)),
		}
		for _, b := range d.Bounds {
			pt.Bounds = append(pt.Bounds, inSeconds(b))
		}
		h.DataPoints = append(h.DataPoints, pt)
	}
	if len(h.DataPoints) == 0 {
		return nil, nil
	}
	return []metricdata.ScopeMetrics{{
		Scope: instrumentation.Scope{Name: scope},
		Metrics: []metricdata.Metrics{{Name: Pause, Unit: "s", Data: h,
			Description: "How long threads were stopped, from before the request to after the resume."}},
	}}, nil
}
