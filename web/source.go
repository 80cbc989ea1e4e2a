package web

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
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
	notes := append([]string(nil), r.rec.Problems...)
	if l := r.rec.LostTasks().String(); l != "" {
		notes = append(notes, l)
	}
	if r.rec.End == nil {
		notes = append(notes, "the recording was cut off: its end is not in the file")
	}
	if r.rec.Symbols == nil {
		notes = append(notes, "the recording holds no names: functions are shown as module+offset")
	}
	return notes
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
				l.load(ctx, r.rec.Threads[i].Seq, threads[i])
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

func (l *loader) load(ctx context.Context, seq int, t *store.Thread) {
	s := trace.NewSlices(l.names, l)
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
	for e := range l.rec.Fitted(seq) {
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
		s.Close(0)
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

// LiveOptions configure a live source.
type LiveOptions struct {
	Namer Namer                           // nil: addresses only
	Wait  func(id int) (trace.Wait, bool) // describes event.Wait; nil: no descriptions
	// Window returns the recording so far, at least what says something of the time from from on, for
	// analyses; nil: none. The reader calls release at the end.
	Window func(from stack.Time) (rec *trace.Recording, release func(), err error)
	// Poll is the interval between reads of the rings; 0 is 20 ms. A ring must not be overwritten
	// between two reads.
	Poll time.Duration
}

// Live is the source of a recording in progress. Its methods may be called from any goroutine.
type Live struct {
	rec *trace.Recorder
	o   LiveOptions

	mu     sync.Mutex
	names  map[stack.TID]string // new names, not yet applied
	reason string
	ended  chan struct{}
	once   sync.Once
}

// NewLive returns a source that reads r's rings with its own cursors. It never slows r down: events
// overwritten before they were read appear as a gap.
func NewLive(r *trace.Recorder, o LiveOptions) *Live {
	if o.Poll <= 0 {
		o.Poll = 20 * time.Millisecond
	}
	return &Live{rec: r, o: o, names: map[stack.TID]string{}, ended: make(chan struct{})}
}

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
func (l *Live) Renamed(tid stack.TID, name string) {
	l.mu.Lock()
	l.names[tid] = name
	l.mu.Unlock()
}

// End reports that no more samples will come: the rings are read to their end and the page shows
// the reason. Sinks must be idle.
func (l *Live) End(reason string) {
	l.once.Do(func() {
		l.mu.Lock()
		l.reason = reason
		l.mu.Unlock()
		close(l.ended)
	})
}

// Run implements Source.
func (l *Live) Run(ctx context.Context, st *store.Store) (string, error) {
	r := &liveReader{l: l, st: st, asks: newAsks(l.o.Namer, st)}
	namer := make(chan struct{})
	nctx, stop := context.WithCancel(ctx)
	go func() {
		defer close(namer)
		r.asks.run(nctx)
	}()
	defer func() {
		stop()
		<-namer
	}()
	tick := time.NewTicker(l.o.Poll)
	defer tick.Stop()
	for {
		r.poll()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		case <-l.ended:
			r.poll()
			r.finish()
			l.mu.Lock()
			reason := l.reason
			l.mu.Unlock()
			st.End(reason)
			// Names of the last places are still being resolved.
			close(r.asks.closed)
			<-namer
			return reason, nil
		}
	}
}

// liveReader is the state of Run.
type liveReader struct {
	l       *Live
	st      *store.Store
	threads []*liveThread
	asks    *asks
	buf     [batch]ringbuf.Event
}

type liveThread struct {
	r      *liveReader
	info   store.Info
	t      *store.Thread
	cur    *ringbuf.Cursor
	replay diff.Replayer
	f      *store.Feed
	last   stack.Time
}

func (r *liveReader) poll() {
	for _, s := range r.l.rec.Sinks()[len(r.threads):] {
		in := infoOf(&s.Thread)
		r.threads = append(r.threads, &liveThread{r: r, info: in, t: r.st.Thread(in), cur: s.Ring().NewCursor()})
	}
	r.rename()
	for _, t := range r.threads {
		for {
			n, lost := t.cur.Read(r.buf[:])
			if n == 0 && lost == 0 {
				break
			}
			t.t.Feed(func(f *store.Feed) {
				t.f = f
				if lost > 0 && t.last != 0 {
					t.replay.Apply(event.Make(t.last, event.Gap, event.GapOf(stack.WhyLost, 0)), t)
				}
				for _, e := range r.buf[:n] {
					t.replay.Apply(event.Event{Time: stack.Time(e[0]), Value: e[1]}, t)
				}
				t.last = max(t.last, t.replay.Last())
			})
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
	_, end := r.st.Span()
	for _, t := range r.threads {
		t.t.Feed(func(f *store.Feed) {
			t.f = f
			t.replay.CloseAll(max(f.Last(), min(end, f.Last())), t)
			f.Close(f.Last())
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
	t.f.Other(e)
}
