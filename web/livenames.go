package web

import (
	"context"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/store"
)

// asks assigns numbers to the places of a process at once and names later.
type asks struct {
	namer  Namer
	st     *store.Store
	queue  *nameQueue
	again  bool // ask again for words without an answer
	places map[event.Word]uint32
	execAt stack.Time
	fresh  []Word
	ids    []uint32
	// asked are the requests that places were in, by number of the place, if answers was called; sent is the number
	// of requests, answered the newest that was answered.
	asked    map[uint32]int
	sent     int
	answered atomic.Int64

	mu       sync.Mutex
	runtimes map[uint64]bool // by address >> granule: has code of an interpreter
}

// nameQueue is the places of all processes that wait for a name. One goroutine of it calls the namers.
type nameQueue struct {
	st     *store.Store
	shared map[sharedPlace]uint32 // numbers of places that processes have in common; for the reader of rings

	mu      sync.Mutex
	waiting []request
	wake    chan struct{}
	closed  chan struct{}
}

// sharedPlace identifies a place in a file that several processes use.
type sharedPlace struct {
	file  any
	vaddr uint64
	kind  stack.Kind
}

// request is words of one process to name.
type request struct {
	of    *asks
	words []Word
	ids   []uint32
	tries int // that were in vain
	n     int // see asks.sent
	due   time.Time
	done  func() // runs after the names of earlier requests; such a request has no words
}

// maxPlaces limits the places of a live view; further ones share one place for each kind.
const maxPlaces = 1 << 21

func newNameQueue(st *store.Store) *nameQueue {
	return &nameQueue{st: st, shared: map[sharedPlace]uint32{}, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func newAsks(n Namer, st *store.Store, q *nameQueue) *asks {
	return &asks{namer: n, st: st, queue: q, places: map[event.Word]uint32{}, runtimes: map[uint64]bool{}}
}

// exec discards the places: another program is at these addresses from now on. Every thread reports
// the same exec.
func (a *asks) exec(at stack.Time) {
	if at > a.execAt+stack.Time(time.Second) || a.execAt == 0 {
		a.execAt = at
		a.places = map[event.Word]uint32{}
		a.mu.Lock()
		clear(a.runtimes)
		a.mu.Unlock()
	}
}

// granule is the size of a stretch of memory, as a power of 2, of whose code a place without a name is
// taken to be.
const granule = 16

func (a *asks) place(w event.Word, at stack.Time) uint32 {
	id, ok := a.places[w]
	if !ok {
		id = a.number(w, at)
		a.places[w] = id
	}
	return id
}

// number returns the number of a place that this process has not used before.
func (a *asks) number(w event.Word, at stack.Time) uint32 {
	var common sharedPlace // of an error: its reason in each process
	var ok bool
	if w.Kind() == stack.KindError {
		common, ok = sharedPlace{vaddr: w.Addr(), kind: stack.KindError}, true
	} else if s, shares := a.namer.(Sharer); shares {
		common.kind = w.Kind()
		common.file, common.vaddr, ok = s.Shared(Word{w, at})
	}
	if !ok && a.st.Names.Places() >= maxPlaces {
		common, ok = sharedPlace{file: "too many places", kind: w.Kind()}, true
	}
	if id, known := a.queue.shared[common]; ok && known {
		return id
	}
	name := fmt.Sprintf("%#x", w.Lookup())
	switch {
	case w.Kind() == stack.KindError:
		name = fmt.Sprintf("[%s]", stack.Reason(w.Addr()))
	case common.file == "too many places":
		name = "[too many places]"
	}
	a.mu.Lock()
	near := w.Kind() == stack.KindNative && a.runtimes[w.Addr()>>granule] // the name decides, but comes later
	a.mu.Unlock()
	p := store.Place{Func: a.st.Names.Func(store.Func{Name: name, Kind: kindWord(w.Kind())}), Addr: w.Addr(), Kind: w.Kind(), Runtime: near}
	if ok && w.Kind() != stack.KindError {
		p.Addr = 0 // processes have it at different addresses
	}
	id := a.st.Names.Add(p)
	if ok {
		a.queue.shared[common] = id
	}
	if a.namer != nil && w.Kind() != stack.KindError && common.file != "too many places" {
		a.fresh = append(a.fresh, Word{w, at})
		a.ids = append(a.ids, id)
		if a.asked != nil {
			a.asked[id] = a.sent + 1
		}
	}
	return id
}

// answers lets pending work.
func (a *asks) answers() { a.asked = map[uint32]int{} }

// pending returns the number of the request that a place is in, if that was not answered yet; 0: its name is final.
func (a *asks) pending(id uint32) int {
	n := a.asked[id]
	if n > 0 && int64(n) <= a.answered.Load() {
		delete(a.asked, id)
		n = 0
	}
	return n
}

// flush sends new words to the queue.
func (a *asks) flush() {
	if len(a.fresh) == 0 {
		return
	}
	a.sent++
	a.queue.put(request{of: a, words: a.fresh, ids: a.ids, n: a.sent})
	a.fresh, a.ids = nil, nil
}

// then calls done when the words so far have been named, from the goroutine of the queue.
func (a *asks) then(done func()) { a.queue.put(request{of: a, done: done}) }

func (q *nameQueue) put(r request) {
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns the requests that are due, those of one process together, and when the next one is; 0: at the
// next put.
func (q *nameQueue) take(last bool) (due []request, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	at := map[*asks]int{} // index in due and one
	held := map[*asks]bool{}
	kept := q.waiting[:0]
	for _, r := range q.waiting {
		if wait := r.due.Sub(now); !last && (wait > 0 || r.done != nil && held[r.of]) {
			kept, held[r.of] = append(kept, r), true
			if wait > 0 && (next == 0 || wait < next) {
				next = wait
			}
			continue
		}
		if i := at[r.of]; i > 0 && r.done == nil && due[i-1].tries == r.tries {
			x := &due[i-1]
			x.words, x.ids = append(x.words, r.words...), append(x.ids, r.ids...)
			x.n = max(x.n, r.n)
			continue
		}
		due = append(due, r)
		if r.done == nil {
			at[r.of] = len(due)
		} else {
			delete(at, r.of)
		}
	}
	clear(q.waiting[len(kept):])
	q.waiting = kept
	return due, next
}

func (q *nameQueue) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for last := false; !last; {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		case <-timer.C:
		case <-q.closed:
			last = true
		}
		due, next := q.take(last)
		for i := range due {
			if due[i].done != nil {
				due[i].done()
				continue
			}
			q.ask(ctx, &due[i])
		}
		if next == 0 {
			next = time.Hour
		}
		timer.Reset(next)
	}
}

const (
	// renameEvery batches answers, as each change of names makes the server resend views.
	renameEvery = 100 * time.Millisecond
	// Words without an answer are asked for again: samples may come before the maps that explain them.
	maxTries   = 2
	retryAfter = 300 * time.Millisecond
)

func (q *nameQueue) ask(ctx context.Context, r *request) {
	var mu sync.Mutex
	var got []uint32
	var places []store.Place
	answered := make([]bool, len(r.words))
	put := func() {
		mu.Lock()
		i, p := got, places
		got, places = nil, nil
		mu.Unlock()
		if len(i) > 0 {
			q.st.Names.Rename(i, p)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.of.namer.Name(ctx, r.words, func(i int, frames []NameFrame) {
			if i < 0 || i >= len(r.words) || len(frames) == 0 {
				return
			}
			p := r.of.placeOf(&r.words[i], frames)
			if q.st.Names.Place(r.ids[i]).Addr == 0 {
				p.Addr = 0
			}
			mu.Lock()
			got, places = append(got, r.ids[i]), append(places, p)
			answered[i] = true
			mu.Unlock()
		})
	}()
	tick := time.NewTicker(renameEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			put()
			r.of.answered.Store(max(r.of.answered.Load(), int64(r.n))) // no other goroutine stores
			q.retry(r, answered)
			return
		case <-tick.C:
			put()
		}
	}
}

// retry asks for words without an answer once more, later.
func (q *nameQueue) retry(r *request, answered []bool) {
	if !r.of.again || r.tries >= maxTries {
		return
	}
	again := request{of: r.of, tries: r.tries + 1, due: time.Now().Add(retryAfter)}
	for i, ok := range answered {
		if !ok {
			again.words, again.ids = append(again.words, r.words[i]), append(again.ids, r.ids[i])
		}
	}
	if len(again.words) > 0 {
		q.put(again)
	}
}

// placeOf returns a place whose calls are those of the outermost function there: inlined functions
// have no separate slices in a live view.
func (a *asks) placeOf(w *Word, frames []NameFrame) store.Place {
	fn := func(f *NameFrame) uint32 {
		name := f.Func
		if name == "" {
			name = fmt.Sprintf("%s+%#x", path.Base(f.Module), w.Word.Lookup())
		}
		return a.st.Names.Func(store.Func{Name: name, File: f.Defined, Line: f.Start, Module: f.Module, Kind: kindWord(w.Word.Kind())})
	}
	out := &frames[len(frames)-1]
	p := store.Place{Func: fn(out), File: out.File, Line: out.Line, Addr: w.Word.Addr(), Kind: w.Word.Kind()}
	if p.Kind == stack.KindNative && stack.Interpreter(frames[0].Module, frames[0].Func, frames[0].Defined) {
		p.Runtime = true
		a.mu.Lock()
		a.runtimes[p.Addr>>granule] = true
		a.mu.Unlock()
	}
	for i := len(frames) - 2; i >= 0; i-- {
		p.Inner = append(p.Inner, fn(&frames[i]))
	}
	return p
}
