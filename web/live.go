package web

import (
	"context"
	"sync"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/store"
)

// Word is a place of a live recording that needs a name.
type Word struct {
	Word event.Word
	At   stack.Time // a time at which it was on a stack
}

// NameFrame is one function at a place.
type NameFrame struct {
	Func    string // demangled
	File    string // of Line
	Line    int    // 0: unknown
	Module  string // path of the module
	Defined string // file that defines Func; "": unknown
	Start   int    // its first line there; 0: unknown
}

// Namer finds the names of a live recording's places.
type Namer interface {
	// Name is called with new places, by one goroutine of the server at a time. It calls answer
	// with the index of a word and its frames, innermost first, whenever it has a better result
	// (module+0xoffset at first, then the name), from any goroutine, until it returns. It stops
	// early when ctx ends. A word without an answer stays an address.
	Name(ctx context.Context, words []Word, answer func(i int, frames []NameFrame))
}

// Sharer is a Namer that knows which places several processes have in common.
type Sharer interface {
	// Shared returns an identity of the file that w is in and the address there. It fails for a place that is
	// in no file, or in one that no other process can have.
	Shared(w Word) (file any, vaddr uint64, ok bool)
}

// LiveOptions configure a live source.
type LiveOptions struct {
	Namer Namer                           // nil: addresses only
	Wait  func(id int) (trace.Wait, bool) // describes event.Wait; nil: no descriptions
	// Window returns the recording so far, at least what says something of the time from from on, for
	// analyses; nil: none. The reader calls release at the end.
	Window func(from stack.Time) (rec *trace.Recording, release func(), err error)
	// Traced announces calls of Calls: the timeline waits for the calls of the time that it shows.
	Traced bool
	// Poll is the interval between reads of the rings; 0 is 20 ms. A ring must not be overwritten
	// between two reads.
	Poll time.Duration
}

// Live is the source of a recording in progress. Its methods may be called from any goroutine.
type Live struct {
	o LiveOptions
	liveProcess
	ending
}

// liveProcess is a process whose rings are read.
type liveProcess struct {
	rec   *trace.Recorder
	every int // polls from one flush of fitted events to the next

	mu    sync.Mutex
	names map[stack.TID]string // new names, not yet applied
	calls liveCalls
}

// ending is the end of a live recording.
type ending struct {
	once   sync.Once
	reason string // set before ended is closed
	ended  chan struct{}
}

const (
	defaultPoll = 20 * time.Millisecond
	// fitted is the time whose changes of state get their times together, by the scheduler's account: it is how
	// much later than its sample an event is shown.
	fitted = 60 * time.Millisecond
)

// NewLive returns a source that reads r's rings with its own cursors. It never slows r down: events
// overwritten before they were read appear as a gap.
func NewLive(r *trace.Recorder, o LiveOptions) *Live {
	if o.Poll <= 0 {
		o.Poll = defaultPoll
	}
	return &Live{o: o, liveProcess: liveProcess{rec: r, every: flushes(o.Poll), names: map[stack.TID]string{}}, ending: ending{ended: make(chan struct{})}}
}

// flushes is the number of polls in the time of fitted.
func flushes(poll time.Duration) int { return max(1, int(fitted/poll)) }

// Process implements Source.
func (l *Live) Process() trace.Process { return l.rec.Process() }

// Live implements Source.
func (l *Live) Live() bool { return true }

// Notes implements Source.
func (l *Live) Notes() []string { return nil }

// Wait implements Source.
func (l *Live) Wait(id int) (trace.Wait, bool) {
	if l.o.Wait == nil {
		return trace.Wait{}, false
	}
	return l.o.Wait(id)
}

// Renamed sets the new name of a thread.
func (l *liveProcess) Renamed(tid stack.TID, name string) {
	l.mu.Lock()
	l.names[tid] = name
	l.mu.Unlock()
}

// End reports that no more samples will come: the rings are read to their end and the page shows
// the reason. Sinks must be idle.
func (e *ending) End(reason string) {
	e.once.Do(func() {
		e.reason = reason
		close(e.ended)
	})
}

// Run implements Source.
func (l *Live) Run(ctx context.Context, st *store.Store) (string, error) {
	q := newNameQueue(st)
	r := &liveReader{l: &l.liveProcess, st: st, asks: newAsks(l.o.Namer, st, q)}
	r.trace(&l.o)
	return l.read(ctx, st, q, l.o.Poll, r.poll, r.finish)
}

// read calls poll until the end, then finish. The places that poll finds are named at the same time.
func (e *ending) read(ctx context.Context, st *store.Store, q *nameQueue, every time.Duration, poll, finish func()) (string, error) {
	namer := make(chan struct{})
	nctx, stop := context.WithCancel(ctx)
	go func() {
		defer close(namer)
		q.run(nctx)
	}()
	defer func() {
		stop()
		<-namer
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		poll()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		case <-e.ended:
			poll()
			finish()
			st.End(e.reason)
			// Names of the last places are still being resolved.
			close(q.closed)
			<-namer
			return e.reason, nil
		}
	}
}

// liveReader reads the rings of one process into a store.
type liveReader struct {
	l       *liveProcess
	st      *store.Store
	threads []*liveThread
	asks    *asks
	buf     [batch]ringbuf.Event
	polls   int // so far
	// Of a recording of several processes: info changes the description of a thread, edit an event that is no
	// call; nil: they stay.
	info  func(*store.Info)
	edit  func(event.Event) event.Event
	exact *exactReader // nil: no calls are traced
}

// trace gives threads their traced calls, if there are any.
func (r *liveReader) trace(o *LiveOptions) {
	if o.Traced {
		r.exact = newExactReader(&r.l.calls, r.asks, r.st)
	}
}

type liveThread struct {
	r      *liveReader
	info   store.Info
	t      *store.Thread
	cur    *ringbuf.Cursor
	fit    *trace.Fitter // its events go to replay
	replay diff.Replayer
	f      *store.Feed
	last   stack.Time   // of the newest event read
	exact  *exactThread // nil: no calls are traced
}

func (r *liveReader) follow(s *trace.Sink) {
	in := infoOf(&s.Thread)
	if r.info != nil {
		r.info(&in)
	}
	t := &liveThread{r: r, info: in, t: r.st.Thread(in), cur: s.Ring().NewCursor()}
	shown := func(e event.Event) { t.replay.Apply(e, t) }
	if r.exact != nil {
		t.exact = r.exact.thread(in.TID, shown)
		shown = t.exact.hold
	}
	t.fit = trace.NewFitter(shown)
	r.threads = append(r.threads, t)
}

// feed runs f, in which events come to the thread.
func (t *liveThread) feed(f func()) {
	t.t.Feed(func(to *store.Feed) {
		t.f = to
		f()
	})
}

func (r *liveReader) poll() {
	for _, s := range r.l.rec.Sinks()[len(r.threads):] {
		r.follow(s)
	}
	r.rename()
	r.polls++
	if r.exact != nil {
		r.exact.take()
	}
	for _, t := range r.threads {
		for {
			n, lost := t.cur.Read(r.buf[:])
			if n == 0 && lost == 0 {
				break
			}
			t.feed(func() {
				if lost > 0 && t.last != 0 {
					t.fit.Apply(event.Make(t.last, event.Gap, event.GapOf(stack.WhyLost, 0)))
				}
				for _, e := range r.buf[:n] {
					t.last = max(t.last, stack.Time(e[0]))
					t.fit.Apply(event.Event{Time: stack.Time(e[0]), Value: e[1]})
				}
			})
		}
		if r.polls%r.l.every == 0 && t.fit.Waits() {
			t.feed(t.fit.Flush)
		}
		if t.exact != nil && t.exact.ready() {
			t.feed(t.exact.release)
		}
	}
	r.asks.flush()
	r.st.Trim()
}

func (r *liveReader) rename() {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	for tid, name := range r.l.names {
		for i := len(r.threads) - 1; i >= 0; i-- {
			if t := r.threads[i]; t.info.TID == tid {
				t.info.Name = name
				r.st.Thread(t.info)
				delete(r.l.names, tid)
				break
			}
		}
	}
}

func (r *liveReader) finish() {
	for _, t := range r.threads {
		t.feed(func() {
			t.fit.Flush()
			if t.exact != nil {
				t.exact.finish()
			}
			t.replay.CloseAll(t.f.Last(), t)
			t.f.Close(t.f.Last())
		})
	}
}

// Enter implements diff.Handler, as do the methods below.
func (t *liveThread) Enter(at stack.Time, _ int, f diff.Frame) {
	t.f.Begin(at, t.r.asks.place(f.Word, at))
}

func (t *liveThread) Exit(at stack.Time, _ int, _ diff.Frame) { t.f.End(at, t.f.Top()) }

func (t *liveThread) Move(at stack.Time, depth int, f diff.Frame) {
	t.f.Place(depth, t.r.asks.place(f.Word, at))
}

func (t *liveThread) Other(e event.Event) {
	if e.Kind() == event.Mark && stack.Why(e.Payload()) == stack.WhyExec {
		t.r.asks.exec(e.Time)
	}
	if t.r.edit != nil {
		e = t.r.edit(e)
	}
	t.f.Other(e)
}
