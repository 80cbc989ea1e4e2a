package session

import (
	"context"
	"sync"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// TraceOptions choose functions whose calls are recorded exactly, beside the samples.
type TraceOptions struct {
	Functions []exact.Function // as exact.Find found them, all traceable
	Engine    string           // see exact.Options
	Limit     float64          // see exact.Options
	Slower    time.Duration    // shorter calls are only counted
	Later     *exact.Names     // see exact.Options
}

// Calls are the accounts of traced functions.
type Calls struct {
	Engine    string
	Functions []exact.Function
	exact.Stats
}

// tracing records the calls of chosen functions. Its methods but account are for the Session's
// goroutine.
type tracing struct {
	o   *TraceOptions
	t   *exact.Tracer
	rec *trace.Recorder

	stop context.CancelFunc
	done chan struct{}
	err  error // of Run, after done

	mu    sync.Mutex // guards batch
	batch []calls.Call
	noted time.Time
}

const (
	// noteEvery is how long calls wait before they are written: what a kill -9 costs.
	noteEvery = time.Second
	// noteCalls is how many calls wait at most.
	noteCalls = 1 << 14
)

// traceCalls begins to record calls.
func traceCalls(p *target.Process, o *TraceOptions, rec *trace.Recorder) (*tracing, error) {
	x := &tracing{o: o, rec: rec, done: make(chan struct{}), noted: time.Now()}
	var err error
	x.t, err = exact.Start(p, o.Functions, exact.Options{Engine: o.Engine, Limit: o.Limit, Later: o.Later, Added: func([]exact.Function) { x.note() }})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	x.note()
	go func() {
		defer close(x.done)
		x.err = x.t.Run(ctx, x.take)
	}()
	return x, nil
}

// take keeps calls until there are many or some time has passed.
func (x *tracing) take(cs []calls.Call) {
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
	if len(x.batch) > 0 {
		x.rec.Calls(x.batch)
		x.batch = x.batch[:0]
	}
}

// note writes the accounts.
func (x *tracing) note() { x.rec.Traced(x.traced()) }

func (x *tracing) traced() *trace.Traced { return TracedOf(x.t, x.o.Slower) }

// TracedOf describes, for a recording, the functions of t and the accounts so far. Calls shorter than
// slower are not in the recording.
func TracedOf(t *exact.Tracer, slower time.Duration) *trace.Traced {
	st := t.Stats()
	out := &trace.Traced{At: target.Now(), Began: t.Began, Engine: t.Engine, Slower: int64(slower), Lost: st.Lost, Dropped: st.Dropped}
	for i, f := range t.Known() {
		if i >= len(st.Funcs) {
			break // it came after the accounts were read
		}
		out.Functions = append(out.Functions, trace.TracedFunction{Name: f.Name, Module: f.Module, File: f.File, Line: f.Line, Addr: f.Addr, Since: f.Since,
			Ranges: f.Ranges, Calls: st.Funcs[i].Calls, Left: st.Funcs[i].Left})
	}
	for _, h := range st.Hot {
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

func (x *tracing) account() *Calls {
	return &Calls{Engine: x.t.Engine, Functions: x.t.Known(), Stats: x.t.Stats()}
}

func (x *tracing) close() {
	x.stop()
	<-x.done
	_ = x.t.Close()
}
