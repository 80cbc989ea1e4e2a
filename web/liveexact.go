package web

import (
	"sync"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/store"
)

// Traced calls become known some time after the samples that show them: when the engine's buffers are read. So the
// events of a thread wait for that, and then get the edges of calls from a trace.LiveSharp.

// Limits of what waits.
const (
	// maxBatched is how many calls wait for the reader; it gets to know that later ones are missing.
	maxBatched = 1 << 18
	// maxEarly is how many calls wait for the first sample of their thread.
	maxEarly = 1 << 14
	// maxHeldEvents is how many events of a thread wait.
	maxHeldEvents = 1 << 14
	// heldFor is how long an event waits for the calls before it at most, namedFor how long for the names that say
	// which frames are the callers.
	heldFor  = 5 * time.Second
	namedFor = time.Second
)

// liveCalls are batches that the reader has not taken yet.
type liveCalls struct {
	mu      sync.Mutex
	batches []*trace.CallBatch
	n       int  // calls in them
	lost    bool // others are missing
}

// Calls reports traced calls, in the order of their batches. LiveOptions.Traced is set.
func (l *liveProcess) Calls(b *trace.CallBatch) {
	c := &l.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(b.Ended) + len(b.Open); c.n+n <= maxBatched {
		c.n += n
	} else {
		b, c.lost = &trace.CallBatch{Until: b.Until, Hold: b.Hold, Traced: b.Traced}, true
	}
	if n := len(c.batches); n > 0 && len(b.Ended)+len(b.Open) == 0 && b.Traced == nil { // nothing but its time is new
		c.batches[n-1].Until, c.batches[n-1].Hold = b.Until, b.Hold
		return
	}
	c.batches = append(c.batches, b)
}

// exactReader gives threads their traced calls.
type exactReader struct {
	from    *liveCalls
	asks    *asks
	st      *store.Store
	code    *trace.LiveCode
	threads map[stack.TID]*exactThread // the newest of each number
	early   []earlyCall
	until   stack.Time
	hold    map[stack.TID]stack.Time
	now     time.Time // of the present poll
	dropped bool      // calls of threads without samples are missing
}

// earlyCall is of a thread that has no sample yet.
type earlyCall struct {
	calls.Call
	open bool
}

// exactThread is the events of one thread that wait.
type exactThread struct {
	r      *exactReader
	tid    stack.TID
	sharp  *trace.LiveSharp
	events []heldEvent
	asked  int // the last request for a name of its frames and callers
}

type heldEvent struct {
	event.Event
	came  time.Time
	asked int // as exactThread has it
}

func newExactReader(from *liveCalls, a *asks, st *store.Store) *exactReader {
	a.answers()
	return &exactReader{from: from, asks: a, st: st, code: trace.NewLiveCode(&trace.Traced{}), threads: map[stack.TID]*exactThread{}}
}

// take takes the batches so far.
func (r *exactReader) take() {
	c := r.from
	c.mu.Lock()
	batches, lost := c.batches, c.lost
	c.batches, c.n, c.lost = nil, 0, false
	c.mu.Unlock()
	r.now = time.Now()
	for _, b := range batches {
		if b.Traced != nil {
			r.code = trace.NewLiveCode(b.Traced)
			for _, t := range r.threads {
				t.sharp.Code(r.code)
			}
		}
		for i := range b.Ended {
			r.give(&b.Ended[i], false)
		}
		for i := range b.Open {
			r.give(&b.Open[i], true)
		}
		r.until, r.hold = b.Until, b.Hold
	}
	if lost {
		r.dropped = true
		for _, t := range r.threads {
			t.sharp.Lose()
		}
	}
}

// give gives a call to its thread.
func (r *exactReader) give(c *calls.Call, open bool) {
	if t := r.threads[c.TID]; t != nil {
		t.take(c, open)
		return
	}
	if len(r.early) >= maxEarly {
		r.early = append(r.early[:0], r.early[maxEarly/2:]...)
		r.dropped = true
	}
	r.early = append(r.early, earlyCall{*c, open})
}

// thread returns the waiting events of a new thread, which show gets in the end.
func (r *exactReader) thread(tid stack.TID, show func(event.Event)) *exactThread {
	t := &exactThread{r: r, tid: tid}
	t.sharp = trace.NewLiveSharp(r.code, show, r.function)
	if r.threads[tid] = t; r.dropped {
		t.sharp.Lose()
	}
	rest := r.early[:0]
	for i := range r.early {
		if x := &r.early[i]; x.TID == tid {
			t.take(&x.Call, x.open)
		} else {
			rest = append(rest, *x)
		}
	}
	r.early = rest
	return t
}

// function identifies the function at a place, by its name.
func (r *exactReader) function(w event.Word, at stack.Time) (of int32, known bool) {
	id := r.asks.place(w, at)
	if r.asks.pending(id) > 0 {
		return -1, false
	}
	return int32(r.st.Names.Place(id).Func) + 1, true
}

// ask asks for the name of a place that says which frame is the caller's.
func (t *exactThread) ask(w event.Word, at stack.Time) {
	a := t.r.asks
	t.asked = max(t.asked, a.pending(a.place(w, at)))
}

func (t *exactThread) take(c *calls.Call, open bool) {
	if c.Task != 0 {
		return
	}
	if w, ok := t.r.code.Entry(c.Fn); ok {
		t.ask(w, c.Enter)
	}
	if c.Ret != 0 {
		t.ask(event.WordOf(&stack.Frame{Func: 1, PC: c.Ret}), c.Enter)
	}
	if open {
		t.sharp.Open(c)
	} else {
		t.sharp.Ended(c)
	}
}

// hold keeps an event until the calls of its time are known.
func (t *exactThread) hold(e event.Event) {
	if k := e.Kind(); k == event.Enter || k == event.Move {
		t.ask(event.Word(e.Payload()), e.Time)
	}
	if len(t.events) >= maxHeldEvents {
		t.sharp.Apply(t.events[0].Event)
		t.events = t.events[1:]
	}
	t.events = append(t.events, heldEvent{e, t.r.now, t.asked})
}

// ready reports whether release has events to pass on.
func (t *exactThread) ready() bool {
	if len(t.events) == 0 {
		return false
	}
	r, x := t.r, &t.events[0]
	until, ok := r.hold[t.tid]
	if !ok {
		until = r.until
	}
	waited := r.now.Sub(x.came)
	return (x.Time+trace.SharpSkew <= until || waited > heldFor) && (int64(x.asked) <= r.asks.answered.Load() || waited > namedFor)
}

// release passes on the events whose calls are known.
func (t *exactThread) release() {
	for t.ready() {
		t.sharp.Apply(t.events[0].Event)
		t.events = t.events[1:]
	}
	if len(t.events) == 0 {
		t.events = nil
	}
}

// finish passes on the rest.
func (t *exactThread) finish() {
	for i := range t.events {
		t.sharp.Apply(t.events[i].Event)
	}
	t.events = nil
	t.sharp.Close()
}
