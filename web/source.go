package web

import (
	"context"
	"runtime"
	"sync"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/store"
)

// Source supplies a server's timeline.
type Source interface {
	// Process returns the description of the recorded process.
	Process() trace.Process
	// Live reports whether more will come.
	Live() bool
	// Run feeds st until everything is in it or ctx ends. reason is why the timeline ended, "" if
	// unknown.
	Run(ctx context.Context, st *store.Store) (reason string, err error)
	// Wait returns the description of wait number id.
	Wait(id int) (trace.Wait, bool)
	// Notes describe the recording's damage and losses, one line each.
	Notes() []string
}

// batch is how many events are applied while a thread's lock is held.
const batch = 1024

// NewRecording returns a source for a finished recording, with all its processes.
func NewRecording(rec *trace.Recording) Source {
	if len(rec.Others) > 0 {
		return newSeveral(rec)
	}
	return &recording{rec}
}

type recording struct{ rec *trace.Recording }

// Process returns clocks at the start of the recording, from which the page counts its times. A
// recording reads its clocks before the first tick, a dump after the last one.
func (r *recording) Process() trace.Process {
	return at(r.rec.Process, r.rec.Begin())
}

// at returns p with its clocks at from; 0: unchanged.
func at(p trace.Process, from stack.Time) trace.Process {
	c := &p.Clocks
	if from > 0 {
		if since := int64(from - c.Monotonic); c.Monotonic > 0 {
			c.Boottime, c.Realtime = c.Boottime+since, c.Realtime+since
		}
		c.Monotonic = from
	}
	return p
}

func (r *recording) Live() bool { return false }
func (r *recording) Notes() []string {
	return analysis.Notes([]*view.View{view.New(r.rec, view.Options{})})
}

func (r *recording) Wait(id int) (trace.Wait, bool) {
	w, ok := r.rec.Waits[id]
	return w, ok
}

func (r *recording) Run(ctx context.Context, st *store.Store) (string, error) {
	return r.load(ctx, st, 0, 0, nil)
}

// load feeds st with the threads of process number process, whose numbers are their Seq and base. edit
// changes events other than calls; nil: none.
func (r *recording) load(ctx context.Context, st *store.Store, base, process int, edit func(event.Event) event.Event) (string, error) {
	threads := make([]*store.Thread, len(r.rec.Threads))
	for i := range r.rec.Threads {
		in := infoOf(&r.rec.Threads[i])
		in.Seq, in.Process = in.Seq+base, process
		threads[i] = st.Thread(in)
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), max(len(threads), 1)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			l := newLoader(r.rec, st)
			l.edit = edit
			for i := range work {
				l.load(ctx, i, threads[i])
			}
		}()
	}
	for i := range threads {
		select {
		case work <- i:
		case <-ctx.Done():
		}
	}
	close(work)
	wg.Wait()
	if r.rec.End != nil {
		return r.rec.End.Reason, ctx.Err()
	}
	return "", ctx.Err()
}

func infoOf(t *trace.Thread) store.Info {
	return store.Info{Seq: t.Seq, TID: t.TID, NSTID: t.NSTID, Name: t.Name, Main: t.Main, Born: t.Born}
}

// loader loads threads of a recording into a store; several run in parallel, each with its own
// names.
type loader struct {
	rec    *trace.Recording
	st     *store.Store
	names  *trace.Names
	places [][]placeAt // by location ID
	f      *store.Feed
	edit   func(event.Event) event.Event // of events other than calls; nil: none
}

// placeAt is the number of a function's place at a location; each function inlined there has its
// own place.
type placeAt struct {
	fn, line int
	id       uint32
}

func newLoader(rec *trace.Recording, st *store.Store) *loader {
	return &loader{rec: rec, st: st, names: trace.NewNames(rec)}
}

// load feeds t with thread i of the recording, with its traced calls.
func (l *loader) load(ctx context.Context, i int, t *store.Thread) {
	s := trace.NewSharp(l.rec, i, trace.NewSlices(l.names, l))
	buf := make([]event.Event, 0, batch)
	apply := func() {
		t.Feed(func(f *store.Feed) {
			l.f = f
			for _, e := range buf {
				s.Apply(e)
			}
		})
		buf = buf[:0]
		l.st.Trim()
	}
	for e := range l.rec.Fitted(l.rec.Threads[i].Seq) {
		if buf = append(buf, e); len(buf) == batch {
			if ctx.Err() != nil {
				return
			}
			apply()
		}
	}
	apply()
	t.Feed(func(f *store.Feed) {
		l.f = f
		s.Close()
		f.Close(f.Last())
	})
}

func (l *loader) place(s *trace.Slice) uint32 {
	for len(l.places) <= s.Loc.ID {
		l.places = append(l.places, nil)
	}
	here := l.places[s.Loc.ID]
	for i := range here {
		if p := &here[i]; p.fn == s.Frame.Func && p.line == s.Frame.Line {
			return p.id
		}
	}
	fn := l.names.Func(&s.Frame)
	kind := s.Loc.Word.Kind()
	inner := l.names.Func(&s.Loc.Frames[0]) // decides on what it is inlined into too, as in trace.Only
	id := l.st.Names.Add(store.Place{
		Func: l.st.Names.Func(store.Func{Name: fn.Name, File: fn.File, Line: fn.StartLine, Module: l.module(fn.Module), Kind: kindWord(kind)}),
		File: s.Frame.File, Line: s.Frame.Line, Addr: s.Loc.Addr, Inlined: s.Frame.Inlined, Kind: kind,
		Runtime: kind == stack.KindNative && stack.Interpreter(l.module(s.Loc.Key.Module), inner.Name, inner.File),
	})
	l.places[s.Loc.ID] = append(here, placeAt{s.Frame.Func, s.Frame.Line, id})
	return id
}

// kindWord returns the name of a kind for pages.
func kindWord(k stack.Kind) string {
	if k == stack.KindNative {
		return ""
	}
	return k.String()
}

func (l *loader) module(i int) string {
	if i < 0 || i >= len(l.rec.Modules) {
		return ""
	}
	return l.rec.Modules[i].Path
}

func (l *loader) Begin(t stack.Time, _ int, s *trace.Slice) { l.f.Begin(t, l.place(s)) }
func (l *loader) End(t stack.Time, _ int, s *trace.Slice)   { l.f.End(t, l.place(s)) }
func (l *loader) Other(e event.Event) {
	if l.edit != nil {
		e = l.edit(e)
	}
	l.f.Other(e)
}
