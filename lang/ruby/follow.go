package ruby

import (
	"errors"
	"io"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
)

// Follower reads the stacks of a process's threads from copies of their memory, and keeps what it
// learned of the functions in them. It may be used by several goroutines at once.
type Follower struct {
	rt    *Runtime
	mem   io.ReaderAt
	table *managed.Table // assigns addresses to functions; nil: they keep those of their data

	mu     sync.Mutex // guards the fields below
	states map[int32]State
	funcs  map[place]*held
}

// place is where the data of a function are.
type place struct{ iseq, entry uint64 }

// held is a function that was read.
type held struct {
	code *Func
	addr uint64 // in the table
}

// maxFuncs bounds the functions that are kept. They are cleared when there are more.
const maxFuncs = 1 << 17

// Follow returns a Follower. It reads mem if a copy of a thread's memory lacks data.
func (r *Runtime) Follow(mem io.ReaderAt, table *managed.Table) *Follower {
	f := &Follower{rt: r, mem: mem, table: table, funcs: map[place]*held{}}
	f.list()
	return f
}

// list reads the list of threads. It uses whatever could be read.
func (f *Follower) list() {
	states, _ := f.rt.Threads(f.mem)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states = make(map[int32]State, len(states))
	for _, s := range states {
		if s.TID != 0 {
			f.states[s.TID] = s
		}
	}
}

// state returns the State of the thread tid.
func (f *Follower) state(tid int32) (s State, ok bool) {
	for try := 0; ; try++ {
		f.mu.Lock()
		s, ok = f.states[tid]
		f.mu.Unlock()
		if ok || try > 0 {
			return s, ok
		}
		f.list()
	}
}

// Track holds what the last walk of one thread found. The zero value is ready to use.
type Track struct {
	// Stack holds the frames of the last Read; Have: there are some.
	Stack Stack
	Have  bool
	// Lacks: the last copy lacked data that the next one will have. Torn: it was made between two
	// frames, so that the thread has to run before another one helps. Locked: the thread held its
	// Ractor's lock when the copy was made.
	Lacks, Torn, Locked bool
	// Gaps: functions of some frames could not be read.
	Gaps bool

	of     *Follower
	th     *Thread
	lock   stack.Span    // of its Ractor's lock: the holder
	tried  int           // Plans without a State
	missed int           // consecutive incomplete copies
	places []seen        // the different functions of the stack
	at     map[place]int // their indexes
	spans  []stack.Span
	buf    []byte
}

// seen is a function of a stack.
type seen struct {
	frame int   // index of a frame of it
	held  *held // nil: unknown
}

const (
	// Backoff between two searches for a thread's State, in Plans.
	maxTried  = 64
	soonTried = 8
	// After askAfter consecutive incomplete copies, the frames are read during the stop. After
	// maxMissed, the missing part counts as unreadable.
	askAfter  = 2
	maxMissed = 16
)

// find looks up the State of the thread tid.
func (f *Follower) find(t *Track, tid int32, unread bool) {
	if t.of != f {
		*t = Track{of: f, Stack: t.Stack, at: map[place]int{}}
	}
	t.Have = false
	if t.th != nil {
		return
	}
	if t.tried++; unread && t.tried <= soonTried || t.tried > 1 && t.tried&(t.tried-1) == 0 || t.tried%maxTried == 0 {
		f.list()
	}
	f.mu.Lock()
	s, ok := f.states[tid]
	f.mu.Unlock()
	if ok {
		t.tried = 0
		t.th = f.rt.Thread(s)
		t.lock = stack.Span{Addr: s.Ractor + f.rt.l.running, Len: 8}
	}
}

// Plan appends the memory to copy of the thread tid. unread: its last walk saw the interpreter run, but
// no State was known.
func (f *Follower) Plan(t *Track, tid int32, unread bool, out []stack.Span) []stack.Span {
	f.find(t, tid, unread)
	if t.th == nil {
		return out
	}
	t.th.Refresh(f.mem)
	return t.th.Spans(append(out, t.lock))
}

// Asks reports whether the thread's frames must be read with Read during the stop, because copies lack
// some again and again.
func (t *Track) Asks() bool {
	return t.th != nil && t.missed >= askAfter && t.missed <= maxMissed
}

// Read reads the frames from mem, a copy of a thread's memory that returns ErrMissing for other
// addresses. live is the current memory. If the thread has not run since the copy, still is true, and
// live completes the copy. pc is the thread's instruction at that moment; 0: unknown.
func (f *Follower) Read(t *Track, mem io.ReaderAt, live *meter.Meter, pc uint64, still bool) {
	if t.of != f || t.th == nil {
		return
	}
	t.Lacks, t.Torn, t.Locked = false, false, false
	source := &source{mem: mem}
	if still {
		source.live = live
	}
	if !t.th.Capture(source, live, pc, &t.Stack) {
		t.Have = false
		if source.missed && t.missed <= maxMissed {
			t.Have, t.Stack.Reason = true, stack.ReasonMemory
			t.lack()
			return
		}
		f.lost(t)
		return
	}
	t.Have = true
	var b [8]byte
	if read(source, b[:], t.lock.Addr) == nil {
		t.Locked = le(b[:], 0) == t.th.state.Addr
	}
	f.known(t, live)
	t.Gaps = f.resolve(t, live)
	if !t.Gaps && !t.Stack.Cut && t.Stack.Reason == stack.ReasonNone || t.Stack.Reason == stack.ReasonBound {
		t.missed = 0
		return
	}
	if t.lack(); source.missed {
		f.foresee(t, live)
	} else {
		t.Torn = t.Stack.Reason == stack.ReasonCorrupt || t.Stack.Yields
	}
}

// lack counts an incomplete copy.
func (t *Track) lack() {
	t.missed++
	t.Lacks = t.missed <= maxMissed
}

// foresee predicts from the current memory what the next copy needs.
func (f *Follower) foresee(t *Track, live *meter.Meter) {
	var s Stack
	alone := t.th.alone
	_ = t.th.Capture(live, live, 0, &s) // only for the spans that it records
	t.th.alone = alone
}

// lost forgets a State that belongs to another thread by now.
func (f *Follower) lost(t *Track) {
	f.mu.Lock()
	if tid := t.th.state.TID; f.states[tid] == t.th.state {
		delete(f.states, tid)
	}
	f.mu.Unlock()
	t.th, t.missed = nil, 0
}

// source is a copy of memory, and the memory itself if the copy's moment lasts.
type source struct {
	mem    io.ReaderAt
	live   *meter.Meter // nil: none
	missed bool         // a read failed
}

// ReadAt implements io.ReaderAt.
func (s *source) ReadAt(b []byte, addr int64) (int, error) {
	n, err := s.mem.ReadAt(b, addr)
	if n == len(b) {
		return n, nil
	}
	if s.live != nil {
		return s.live.ReadAt(b, addr)
	}
	s.missed = s.missed || errors.Is(err, ErrMissing)
	return n, err
}

// known looks up the functions of the stack's frames, and compares the kept ones with memory.
func (f *Follower) known(t *Track, live *meter.Meter) {
	t.places, t.spans = t.places[:0], t.spans[:0]
	clear(t.at)
	f.mu.Lock()
	for i := range t.Stack.Frames {
		x := &t.Stack.Frames[i]
		p := place{x.ISeq, x.Entry}
		if _, ok := t.at[p]; ok {
			continue
		}
		s := seen{frame: i, held: f.funcs[p]}
		if s.held != nil {
			t.spans = s.held.code.Spans(x, t.spans)
		}
		t.at[p] = len(t.places)
		t.places = append(t.places, s)
	}
	f.mu.Unlock()
	size := 0
	for _, s := range t.spans {
		size += s.Len
	}
	t.buf = grow(t.buf, uint64(size))
	b := t.buf[:live.ReadSpans(t.spans, t.buf)]
	for i := range t.places {
		s := &t.places[i]
		if s.held == nil {
			continue
		}
		is, n := s.held.code.Is(b)
		if !is {
			s.held = nil
		}
		b = b[min(n, len(b)):]
	}
}

// resolve sets the functions of the stack's frames, and reads those that are not known. gaps reports
// whether some are missing.
func (f *Follower) resolve(t *Track, live *meter.Meter) (gaps bool) {
	for i := range t.places {
		if s := &t.places[i]; s.held == nil {
			s.held = f.read(&t.Stack.Frames[s.frame], live)
		}
	}
	of := func(i int) *held {
		x := &t.Stack.Frames[i]
		return t.places[t.at[place{x.ISeq, x.Entry}]].held
	}
	for i := range t.Stack.Frames {
		x, h := &t.Stack.Frames[i], of(i)
		ok := h != nil
		if ok {
			x.Func = h.addr
			// A frame's PC shows that its function is this one: both are of the copy's moment.
			x.Off, ok = h.code.Offset(x.PC)
		}
		if x.Lost = !ok; !ok {
			gaps = true
		}
	}
	f.rt.Hide(&t.Stack, func(i int) *Func {
		if h := of(i); h != nil {
			return h.code
		}
		return nil
	})
	return gaps
}

// read reads the function of a frame. It returns nil if that is not possible.
func (f *Follower) read(x *Frame, live *meter.Meter) *held {
	defer live.FirstLook()()
	code, err := f.rt.Func(live, x)
	if err != nil {
		return nil
	}
	h := &held{code: code, addr: max(x.ISeq, x.Entry)}
	if f.table != nil {
		h.addr, _ = code.In(f.table)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.funcs) >= maxFuncs {
		clear(f.funcs)
	}
	f.funcs[place{x.ISeq, x.Entry}] = h
	return h
}
