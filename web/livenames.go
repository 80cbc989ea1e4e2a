package web

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/store"
)

// asks assigns numbers to places at once and names later.
type asks struct {
	namer  Namer
	st     *store.Store
	places map[event.Word]uint32
	execAt stack.Time
	fresh  []Word
	ids    []uint32

	mu       sync.Mutex
	words    []Word // waiting for the namer
	waiting  []uint32
	runtimes map[uint64]bool // by address >> granule: has code of an interpreter
	wake     chan struct{}
	closed   chan struct{}
}

func newAsks(n Namer, st *store.Store) *asks {
	return &asks{namer: n, st: st, places: map[event.Word]uint32{}, runtimes: map[uint64]bool{}, wake: make(chan struct{}, 1), closed: make(chan struct{})}
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
	if ok {
		return id
	}
	name := fmt.Sprintf("%#x", w.Lookup())
	if w.Kind() == stack.KindError {
		name = fmt.Sprintf("[%s]", stack.Reason(w.Addr()))
	}
	a.mu.Lock()
	near := w.Kind() == stack.KindNative && a.runtimes[w.Addr()>>granule] // the name decides, but comes later
	a.mu.Unlock()
	id = a.st.Names.Add(store.Place{Func: a.st.Names.Func(store.Func{Name: name, Kind: kindWord(w.Kind())}), Addr: w.Addr(), Kind: w.Kind(), Runtime: near})
	a.places[w] = id
	if a.namer != nil && w.Kind() != stack.KindError {
		a.fresh = append(a.fresh, Word{w, at})
		a.ids = append(a.ids, id)
	}
	return id
}

// flush sends new words to the namer's goroutine.
func (a *asks) flush() {
	if len(a.fresh) == 0 {
		return
	}
	a.mu.Lock()
	a.words = append(a.words, a.fresh...)
	a.waiting = append(a.waiting, a.ids...)
	a.mu.Unlock()
	a.fresh, a.ids = a.fresh[:0], a.ids[:0]
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *asks) run(ctx context.Context) {
	for {
		last := false
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-a.closed:
			last = true
		}
		a.mu.Lock()
		words, ids := a.words, a.waiting
		a.words, a.waiting = nil, nil
		a.mu.Unlock()
		if len(words) > 0 {
			a.ask(ctx, words, ids)
		}
		if last {
			return
		}
	}
}

// renameEvery batches answers, as each change of names makes the server resend views.
const renameEvery = 100 * time.Millisecond

func (a *asks) ask(ctx context.Context, words []Word, ids []uint32) {
	var mu sync.Mutex
	var got []uint32
	var places []store.Place
	put := func() {
		mu.Lock()
		i, p := got, places
		got, places = nil, nil
		mu.Unlock()
		if len(i) > 0 {
			a.st.Names.Rename(i, p)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.namer.Name(ctx, words, func(i int, frames []NameFrame) {
			if i < 0 || i >= len(words) || len(frames) == 0 {
				return
			}
			p := a.placeOf(&words[i], frames)
			mu.Lock()
			got, places = append(got, ids[i]), append(places, p)
			mu.Unlock()
		})
	}()
	tick := time.NewTicker(renameEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			put()
			return
		case <-tick.C:
			put()
		}
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
