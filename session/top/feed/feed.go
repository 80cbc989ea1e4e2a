// Package feed connects a live process to the model of package top. It runs samplers as a
// recording does, reads the recorder's rings with its own cursors, resolves names in a
// separate goroutine, and finds out what threads wait for. It does not draw. Methods of a
// Feed may be called from any goroutine, except Run and Close.
package feed

import (
	"context"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Options configure a Feed.
type Options struct {
	Selection    *sampler.Selection
	Interval     time.Duration
	Jitter       float64 // share of the interval
	Groups       int
	Stop         sampler.StopPolicy
	MaxOverhead  float64
	MaxCPU       sampler.Bounds // see session.Options
	Clock, NoBPF bool           // see session.Options
	Window       time.Duration
	Idle         bool // include idle waits and threads in tables: see top.Model.ShowIdle
	GIL          bool // only time with the GIL: see top.Model.OnlyGIL
	DebugDirs    []string
	FullNames    bool
	Kinds        trace.Kinds   // of frames to show; 0: all
	Finder       symbol.Finder // finds debug files that are not on disk; nil: none
	Cache        *cache.Dir    // of names; nil: none
	// Hosts, Limit and Shared are what the Feeds of several processes have in common; nil: nothing.
	Hosts  *sampler.Hosts
	Limit  *sampler.Limit
	Shared *live.Shared
}

const (
	// poll is the interval between reads of the rings; a ring holds much more than that.
	poll = 50 * time.Millisecond
	// batch is how many events are read at once.
	batch = 1024
	// fitted is the number of polls whose changes of state get their times together, by the scheduler's account.
	fitted = int(top.Late/poll) - 1
)

// Feed observes one process.
type Feed struct {
	proc     *target.Process
	live     *live.Target
	smp      *sampler.Sampler
	rec      *trace.Recorder
	vars     *live.Variables
	known    live.Descriptions
	kinds    trace.Kinds
	names    *names
	runtimes *live.Runtimes

	mu      sync.Mutex // guards the fields below
	model   *top.Model
	readers []*reader
	polls   int
	renamed map[stack.TID]string
	own     map[place]bool // see ofRuntime
	at      stack.Time     // end time of tables after Run has returned; 0 before
	ended   time.Time
}

// reader reads one thread's ring.
type reader struct {
	t     *top.Thread
	cur   *ringbuf.Cursor
	fit   *trace.Fitter // its events go to show
	sieve *trace.Sieve  // nil: all frames are shown
}

// show passes an event on.
func (r *reader) show(e event.Event) {
	if r.sieve == nil {
		r.t.Apply(e)
		return
	}
	r.sieve.Apply(e, func(e event.Event) bool { r.t.Apply(e); return true })
}

// New prepares to observe p: it reads the maps and unwind tables. It does not touch the
// target before Run. The caller must call Close.
func New(p *target.Process, o Options) (*Feed, error) {
	if o.Limit == nil {
		o.Limit = sampler.NewLimit(o.MaxCPU)
	}
	f := &Feed{proc: p, kinds: o.Kinds, model: top.New(o.Window), renamed: map[stack.TID]string{}}
	f.model.ShowIdle(o.Idle)
	f.model.OnlyGIL(o.GIL)
	if err := f.prepare(o); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Feed) prepare(o Options) (err error) {
	// The recording itself is discarded; only the rings are read.
	w, err := trace.NewWriter(io.Discard)
	if err != nil {
		return err
	}
	facts := f.proc.Facts()
	if f.rec, err = trace.NewRecorder(w, trace.Process{PID: facts.PID, Comm: facts.Comm, Arch: runtime.GOARCH}, 0, nil); err != nil {
		return err
	}
	attach, together := live.New, 0
	if o.Shared != nil {
		attach = o.Shared.New
	}
	if o.Hosts != nil {
		together = live.Together(o.Interval)
	}
	if f.live, err = attach(f.proc, nil); err != nil {
		return err
	}
	if o.NoBPF {
		f.live.WithoutPrograms()
	}
	f.vars = f.live.Variables(o.DebugDirs)
	f.runtimes = f.live.FollowRuntimes(nil)
	f.names = newNames(f.proc, f.live, f.runtimes, &o)
	f.known.Put = f.names.wait
	f.smp, err = sampler.New(f.live, sampler.Config{
		Interval: o.Interval, Jitter: o.Jitter, Groups: o.Groups, Hosts: o.Hosts, Together: together, Selection: o.Selection, Stop: o.Stop, Clock: o.Clock,
		MaxOverhead: o.MaxOverhead, OverheadOfCPU: o.Hosts != nil, Limit: o.Limit, Harmless: live.Harmless, Delays: live.Delays, Sleeps: target.Sleeps,
		Waits: func(wake func()) sampler.Waits { return f.live.Waits(&f.known, f.vars, wake) },
		Start: func(in stack.ThreadInfo) sampler.Sink {
			return f.rec.Thread(trace.Thread{TID: in.TID, NSTID: in.NSTID, Name: in.Name, Main: in.Main, Born: in.Born})
		},
		Renamed: func(in stack.ThreadInfo, _ stack.Time) {
			f.mu.Lock()
			f.renamed[in.TID] = in.Name
			f.mu.Unlock()
		},
	})
	if err != nil {
		return err
	}
	if err := f.smp.Check(); err != nil {
		return err
	}
	f.live.Preload()
	// A sampler that waits for a stop keeps its place (P) in the Go scheduler for some
	// 300 µs, so the other goroutines need additional places.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), o.Groups+3))
	return nil
}

// Run samples until ctx ends or the target does. No thread is stopped when it returns.
func (f *Feed) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- f.smp.Run(ctx) }()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.take(false)
		case err := <-done:
			f.take(true)
			f.mu.Lock()
			f.at = target.Now()
			if ctx.Err() == nil {
				f.at, f.ended = f.model.Last(), time.Now()
				f.model.End()
			}
			f.mu.Unlock()
			return err
		}
	}
}

// ofRuntime is a trace.OfRuntime for the current program. Code of a runtime that is linked into another
// program's file is known by its names, as soon as there are some.
func (f *Feed) ofRuntime(w event.Word, _ stack.Time) bool {
	k := place{f.model.Program(), w}
	if own, ok := f.own[k]; ok {
		return own
	}
	if f.own == nil || len(f.own) >= maxPlaces {
		f.own = map[place]bool{}
	}
	maps := f.live.Maps()
	if i, ok := live.MappingAt(maps, w.Lookup()); ok && stack.Interpreter(maps[i].Path, "", "") {
		f.own[k] = true
		return true
	}
	frames := f.names.Frames(k.prog, w)
	if len(frames) == 0 {
		return false
	}
	f.own[k] = stack.Interpreter(frames[0].Module, frames[0].Func, frames[0].File)
	return f.own[k]
}

// take processes the new events of the rings; last says that no more will come.
func (f *Feed) take(last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls++
	for _, s := range f.rec.Sinks()[len(f.readers):] {
		t := f.model.Thread(stack.ThreadInfo{TID: s.Thread.TID, NSTID: s.Thread.NSTID, Name: s.Thread.Name, Main: s.Thread.Main})
		r := &reader{t: t, cur: s.Ring().NewCursor()}
		r.fit = trace.NewFitter(r.show)
		if f.kinds != 0 {
			r.sieve = trace.NewSieve(f.kinds, f.ofRuntime)
		}
		f.readers = append(f.readers, r)
	}
	for tid, name := range f.renamed {
		for i := len(f.readers) - 1; i >= 0; i-- {
			if t := f.readers[i].t; t != nil && t.TID() == tid {
				t.Rename(name)
				delete(f.renamed, tid)
				break
			}
		}
	}
	var buf [batch]ringbuf.Event
	for _, r := range f.readers {
		if r.t == nil {
			continue
		}
		for {
			n, lost := r.cur.Read(buf[:])
			if n == 0 && lost == 0 {
				break
			}
			if lost > 0 {
				r.fit.Lose()
				r.t.Lost(lost)
				if r.sieve != nil {
					r.sieve.Lose()
				}
			}
			for _, e := range buf[:n] {
				r.fit.Apply(event.Event{Time: stack.Time(e[0]), Value: e[1]})
			}
		}
		if last || f.polls%fitted == 0 {
			r.fit.Flush()
		}
		if r.t.Ended() {
			r.t, r.cur = nil, nil // no more events will come
		}
	}
	// Names requested now are mostly resolved when a table is drawn.
	f.model.Fresh(func(prog int, w event.Word) { f.names.Frames(prog, w) })
	f.names.flush()
}

// now returns the end time of tables.
func (f *Feed) now() stack.Time {
	if f.at != 0 {
		return f.at
	}
	return target.Now()
}

// Span returns how much of the window has passed so far.
func (f *Feed) Span() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, to := f.model.Window(f.now())
	return time.Duration(to - from)
}

// Table returns the last window. After Run has returned, it is the last window before the
// end.
func (f *Feed) Table() *top.Table {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.model.Table(f.now(), f.names)
	t.NoRuntime = f.kinds != 0 && f.kinds&trace.Runtime == 0 && f.kinds.Has(stack.KindNative)
	f.names.flush()
	return t
}

// ShowIdle includes idle waits and threads in later tables, or omits them.
func (f *Feed) ShowIdle(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.model.ShowIdle(on)
}

// Stack returns the stack of the thread with this Row.Seq; ok is false if the thread is
// gone.
func (f *Feed) Stack(seq int) (st top.Stack, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st, ok = f.model.Stack(seq, f.names)
	f.names.flush()
	return st, ok
}

// Ended returns when the target ended; the zero time while it runs.
func (f *Feed) Ended() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// Stats returns the statistics of all threads so far.
func (f *Feed) Stats() stack.ThreadStats {
	threads, _ := f.smp.Accounts()
	s := trace.Stats{Threads: threads}
	return s.Total()
}

// Unrecorded returns the threads that are not sampled, by reason.
func (f *Feed) Unrecorded() (out []trace.Unrecorded) {
	for _, r := range f.smp.Refused() {
		out = append(out, trace.Unrecorded{Threads: r.Threads, Why: r.Why})
	}
	return out
}

// Settle waits until the names requested so far are resolved, or ctx ends.
func (f *Feed) Settle(ctx context.Context) { f.names.settle(ctx) }

// Close releases all resources. Call it after Run has returned.
func (f *Feed) Close() {
	if f.rec != nil {
		_, _ = f.rec.Close(trace.Stats{}, trace.End{}) // the output is discarded
		f.rec = nil
	}
	if f.runtimes != nil {
		f.runtimes.Close()
		f.runtimes = nil
	}
	if f.names != nil {
		f.names.close()
		f.names = nil
	}
	if f.vars != nil {
		f.vars.Close()
		f.vars = nil
	}
	if f.live != nil {
		f.live.Release()
		f.live = nil
	}
}
