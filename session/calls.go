package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/session/methods"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// TraceOptions choose functions whose calls are recorded exactly, beside the samples.
type TraceOptions struct {
	Functions []exact.Function // as exact.Find found them, all traceable
	Engine    string           // see exact.Options
	Limit     exact.Limit      // see exact.Options
	Slower    time.Duration    // shorter calls are only counted
	Later     *exact.Names     // see exact.Options
	// Live, if not nil, is called with the calls of Functions while they are recorded, by one goroutine at a time.
	Live func(*trace.CallBatch)
	// Methods returns a Tracer of Java methods, not yet started, which replaces Functions; nil: Functions are traced.
	Methods func() (*methods.Tracer, error)
}

// Calls are the accounts of traced functions.
type Calls struct {
	Engine    string
	Functions []exact.Function
	exact.Stats

	// These are of Java methods.
	LostBytes  uint64        // see methods.Stats
	Missing    time.Duration // see methods.Stats
	ClockError time.Duration // see methods.Stats
	Silent     []string      // names that were asked for, and of which no call was seen
	Notes      []string      // what else a user should know

	kind  stack.Kind // of the functions
	began stack.Time
}

// tracer traces calls.
type tracer interface {
	Run(ctx context.Context, deliver func([]calls.Call)) error
	Close() error
	account() *Calls // from any goroutine
}

// functions is exact.Tracer as tracer.
type functions struct{ *exact.Tracer }

func (f functions) account() *Calls {
	st := f.Stats()
	known := f.Known()
	return &Calls{Engine: f.Engine, Functions: known[:min(len(known), len(st.Funcs))], Stats: st, began: f.Began} // some may have come since
}

// javaMethods is methods.Tracer as tracer.
type javaMethods struct{ *methods.Tracer }

func (m javaMethods) account() *Calls {
	st := m.Stats()
	known := m.Known()
	c := &Calls{Engine: methods.Engine, Functions: known[:min(len(known), len(st.Funcs))], Stats: st.Stats, LostBytes: st.LostBytes, Missing: st.Missing, ClockError: st.ClockError,
		Silent: m.Silent(), Notes: m.Notes, kind: methods.Kind, began: m.Began}
	for i := range c.Functions {
		c.Functions[i].Module = c.kind.Module()
	}
	return c
}

// tracing records the calls of chosen functions. Its methods but account are for the Session's
// goroutine.
type tracing struct {
	o   *TraceOptions
	t   tracer
	rec *trace.Recorder

	stop context.CancelFunc
	done chan struct{}
	err  error // of Run, after done

	mu    sync.Mutex // guards batch
	batch []calls.Call
	noted time.Time
	known int // functions in the accounts that were written last

	live liveCalls // for the goroutine of Run
}

const (
	// noteEvery is how long calls wait before they are written: what a kill -9 costs.
	noteEvery = time.Second
	// noteCalls is how many calls wait at most.
	noteCalls = 1 << 14
)

// traceCalls begins to record calls. ctx ends the wait for that.
func traceCalls(ctx context.Context, p *target.Process, o *TraceOptions, rec *trace.Recorder) (*tracing, error) {
	x := &tracing{o: o, rec: rec, done: make(chan struct{}), noted: time.Now()}
	var err error
	if x.t, err = x.begin(ctx, p); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	x.stop = stop
	x.note()
	go func() {
		defer close(x.done)
		x.err = x.t.Run(running, x.take)
	}()
	return x, nil
}

// begin begins to trace.
func (x *tracing) begin(ctx context.Context, p *target.Process) (tracer, error) {
	if x.o.Methods == nil {
		o := exact.Options{Engine: x.o.Engine, Limit: x.o.Limit, Later: x.o.Later, Added: func([]exact.Function) {
			x.note()
			x.live.noted = time.Time{}
		}}
		if x.o.Live != nil {
			o.Reached = x.reached
		}
		t, err := exact.Start(p, x.o.Functions, o)
		return functions{t}, err
	}
	t, err := x.o.Methods()
	if err != nil {
		return nil, err
	}
	if err = t.Start(ctx); err != nil && ctx.Err() != nil {
		err = errors.New("ended before tracing had begun")
	}
	return javaMethods{t}, err
}

// take keeps calls until there are many or some time has passed.
func (x *tracing) take(cs []calls.Call) {
	if x.o.Live != nil && x.o.Methods == nil {
		x.live.ended = append(x.live.ended, cs...)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range cs {
		if cs[i].Duration() >= int64(x.o.Slower) {
			x.batch = append(x.batch, cs[i])
		}
	}
	if len(x.batch) >= noteCalls || time.Since(x.noted) >= noteEvery {
		x.flush()
	}
}

// flush writes what waits; mu is held.
func (x *tracing) flush() {
	x.noted = time.Now()
	if a := x.t.account(); x.o.Methods != nil && len(a.Functions) > x.known { // methods are found when they are called
		x.rec.Traced(a.traced(x.o.Slower))
		x.known = len(a.Functions)
	}
	if len(x.batch) > 0 {
		x.rec.Calls(x.batch)
		x.batch = x.batch[:0]
	}
}

// note writes the accounts.
func (x *tracing) note() { x.rec.Traced(x.t.account().traced(x.o.Slower)) }

// TracedOf describes, for a recording, the functions of t and the accounts so far. Calls shorter than
// slower are not in the recording.
func TracedOf(t *exact.Tracer, slower time.Duration) *trace.Traced {
	return functions{t}.account().traced(slower)
}

// traced describes the functions and the accounts for a recording.
func (c *Calls) traced(slower time.Duration) *trace.Traced {
	out := &trace.Traced{At: target.Now(), Began: c.began, Engine: c.Engine, Slower: int64(slower), Lost: c.Lost, Dropped: c.Dropped,
		LostBytes: c.LostBytes, Missing: int64(c.Missing), ClockError: int64(c.ClockError)}
	for i, f := range c.Functions {
		out.Functions = append(out.Functions, trace.TracedFunction{Name: f.Name, Module: f.Module, Kind: c.kind, File: f.File, Line: f.Line, Addr: f.Addr, Since: f.Since,
			Ranges: f.Ranges, Calls: c.Funcs[i].Calls, Left: c.Funcs[i].Left})
	}
	for _, h := range c.Hot {
		out.Functions[h.Fn].Hot, out.Functions[h.Fn].HotAt = h.Rate, h.At
	}
	return out
}

// end stops tracing and writes the remaining calls. It may be called again.
func (x *tracing) end() error {
	x.stop()
	<-x.done
	x.mu.Lock()
	x.flush()
	x.mu.Unlock()
	x.note()
	return x.err
}

func (x *tracing) account() *Calls { return x.t.account() }

func (x *tracing) close() {
	x.stop()
	<-x.done
	_ = x.t.Close()
}
