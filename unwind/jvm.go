package unwind

import (
	"errors"
	"path/filepath"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/jvm"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// hotspot is the Java virtual machine of a process with its known threads.
type hotspot struct {
	noPart
	rt *jvm.Runtime

	mu      sync.Mutex
	threads map[stack.TID]uint64
	virtual map[uint64]string // virtual threads that walks found, by number
}

// javaThread holds the Java state of one thread.
type javaThread struct {
	of     *hotspot
	thread uint64 // its JavaThread; 0: not found
	tried  int    // Plans without a JavaThread
	gap    bool   // see Thread.Gaps

	carrier carrier
}

// javaWalk is a Walker's state for frames of Java.
type javaWalk struct {
	of    *hotspot
	rt    *jvm.Runtime // of's runtime, read through the walker's meter
	state jvm.State
	spans []rule.Span
	off   []int
	buf   []byte
	begun bool // state belongs to the current walk
	spent bool // the limit on reads was reached: the frames found may be wrong
}

// FollowJVM makes walks show the frames of HotSpot if the process has it mapped. It puts their
// functions into table. It returns the virtual machine, or nil if there is none. An error says why
// the virtual machine cannot be read, now or ever; its stacks then show machine code. A *jvm.VersionError
// also covers OpenJ9 and GraalVM native images (the program itself, or code seen on a stack).
func (s *Space) FollowJVM(table *managed.Table) (*jvm.Runtime, error) {
	if s.mem == nil {
		return nil, nil
	}
	snap := s.snap.Load()
	var other error // another virtual machine than HotSpot
	for i := range snap.regions {
		r := &snap.regions[i]
		if !r.exec || r.mod == nil {
			continue
		}
		if name := filepath.Base(r.mod.mapping.Path); name != "libjvm.so" {
			if jvm.IsOpenJ9(name) {
				other = jvm.NoOpenJ9()
			} else if vm, ok := r.mod.nativeImage(i); ok && other == nil {
				other = jvm.NoNative(name, vm)
			}
			continue
		}
		rt, err := s.followJVM(r, table)
		if errors.Is(err, jvm.ErrNotJVM) {
			// OpenJ9 also ships a libjvm.so, which loads the real one.
			if other == nil {
				other = &jvm.VersionError{Why: "this virtual machine does not describe itself as HotSpot does"}
			}
			continue
		}
		if rt != nil || err != nil {
			return rt, err
		}
	}
	return nil, other
}

// followJVM is FollowJVM for one mapping of libjvm.so. It returns nil, nil if the mapping does not
// hold the file's code.
func (s *Space) followJVM(r *region, table *managed.Table) (*jvm.Runtime, error) {
	r.mod.load()
	bias, ok := r.mod.bias(r)
	if !ok {
		return nil, nil
	}
	r.mod.jvm.once.Do(func() { r.mod.jvm.img, r.mod.jvm.err = jvm.Load(r.mod.file) })
	if err := r.mod.jvm.err; err != nil {
		return nil, err
	}
	if s.arch != rule.AMD64 {
		return nil, &jvm.VersionError{Why: "on this machine they are not known"}
	}
	rt, err := jvm.New(r.mod.jvm.img, bias, s.mem, table)
	if err != nil {
		return nil, err
	}
	h := &hotspot{rt: rt}
	h.list()
	s.setRuntimes(func(r *runtimes) { r.jvm = h })
	s.renew()
	s.shown.Add(1)
	return rt, nil
}

// nativeImage returns the virtual machine of a file that is a GraalVM native image. Searching every
// library would cost all programs time, so only the program's own file and files seen on a stack
// are searched. region is the file's first.
func (m *module) nativeImage(region int) (vm string, ok bool) {
	if m.mapping.Inode == 0 || region >= firstFile && !m.loaded.Load() {
		return "", false
	}
	m.load()
	return m.native.vm, m.native.ok
}

// renew makes walkers drop cached rules that predate newly found facts.
func (s *Space) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.snap.Load()
	next.epoch++
	s.snap.Store(&next)
}

// JVM returns the virtual machine whose frames walks show, or nil.
func (s *Space) JVM() *jvm.Runtime {
	if h := s.runtimes.Load().jvm; h != nil {
		return h.rt
	}
	return nil
}

// ForgetJVM undoes FollowJVM, for a process that has become another program.
func (s *Space) ForgetJVM() { s.setRuntimes(func(r *runtimes) { r.jvm = nil }) }

// JavaThread returns the address of the JavaThread of a thread, or 0 if walks have found none. tid
// is the thread's number as the process itself sees it.
func (s *Space) JavaThread(tid stack.TID) uint64 {
	h := s.runtimes.Load().jvm
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.threads[tid]
}

// list reads the list of threads.
func (h *hotspot) list() {
	all, err := h.rt.Threads()
	if err != nil {
		return // the previous list stays valid
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.threads = make(map[stack.TID]uint64, len(all))
	for _, t := range all {
		h.threads[stack.TID(t.TID)] = t.Addr
	}
}

func (h *hotspot) plan(th *Thread, out []rule.Span) []rule.Span {
	j := &th.java
	if j.of != h {
		*j = javaThread{of: h}
	}
	if j.thread == 0 {
		// Back off: a thread outside of Java must not cause a read of the list each time.
		if j.tried++; j.tried > 1 && j.tried&(j.tried-1) == 0 || j.tried%maxTried == 0 {
			h.list()
		}
		h.mu.Lock()
		j.thread = h.threads[th.TID]
		h.mu.Unlock()
	}
	if j.thread != 0 {
		if addr, n := h.rt.AnchorSpan(j.thread); n > 0 {
			out = append(out, rule.Span{Addr: addr, Len: n})
		}
		out = j.carrier.spans(h.rt, j.thread, out)
	}
	return out
}

// copiedWords is a Walker's memory restricted to the copy.
type copiedWords Walker

// Word implements jvm.Words.
func (c *copiedWords) Word(addr uint64) (uint64, bool) { return (*Walker)(c).word(addr) }

func (h *hotspot) begin(w *Walker, _ *Thread, _ *stack.Regs) {
	if w.java != nil {
		w.java.begun, w.java.spent = false, false
	}
}

// covers reports whether pc is in the reserved range of the code cache.
func (h *hotspot) covers(pc uint64) bool { return h.rt.Covers(pc) }

func (h *hotspot) step(w *Walker, pc uint64, exact bool) step {
	j := w.javaOf(h)
	s := &j.state
	if !j.begun {
		s.Begin()
		j.begun = true
	}
	s.PC, s.Exact, s.R, s.Known, s.Words = pc, exact, w.regs, w.known, (*copiedWords)(w)
	var reason stack.Reason
	w.frames, reason = j.rt.Step(s, w.frames)
	if reason == stack.ReasonMemory {
		return stop(w.lack(s.Missing))
	}
	if reason != stack.ReasonNone {
		return stop(reason)
	}
	w.regs, w.known = s.R, s.Known
	return step{pc: s.PC, exact: s.Exact, trust: stack.TrustTable}
}

// javaOf returns the walker's state for frames of h.
func (w *Walker) javaOf(h *hotspot) *javaWalk {
	if w.java == nil || w.java.of != h {
		w.java = &javaWalk{of: h, rt: h.rt.On(&w.meter)}
		w.java.state.Native = w.isCode
	}
	return w.java
}

// holds validates Java's code and methods after a walk. Code that was discarded between two looks
// is read again; before the last try all code is. If a walk through Java reached the limit on
// reads, its frames are not shown.
func (h *hotspot) holds(w *Walker, try int) verdict {
	if w.java == nil || w.java.of != h || !w.java.begun {
		return valid
	}
	switch {
	case h.still(w, w.java):
		return valid
	case w.java.spent:
		return void
	case try == maxAgain-1: // more code was discarded than one walk detects
		h.rt.Forget()
	}
	return again
}

// still reports whether everything that the walk relied on is still in memory.
func (h *hotspot) still(w *Walker, j *javaWalk) bool {
	j.begun = false
	j.state.Dedup(w.mem.Batch)
	if j.state.Held() && !w.meter.Spent() {
		return true
	}
	j.spans = h.rt.Spans(&j.state, j.spans[:0])
	j.off, j.buf = readAll(&w.meter, j.spans, j.off, j.buf)
	if j.spent = w.meter.Spent(); j.spent { // spans may be unread although they exist
		j.state.Doubt()
		return false
	}
	return h.rt.Still(&j.state, func(i int) []byte {
		if j.off[i] < 0 {
			return nil
		}
		return j.buf[j.off[i] : j.off[i]+j.spans[i].Len]
	})
}

// resume continues a walk that stopped in machine code at the frame where the thread left Java. An
// error frame with the reason replaces the missing frames.
func (h *hotspot) resume(w *Walker, th *Thread, why stack.Reason) stack.Reason {
	th.java.gap = w.java != nil && w.java.begun && w.java.state.Heap
	switch why {
	case stack.ReasonNone, stack.ReasonShort, stack.ReasonUnmapped, stack.ReasonEmpty:
		return why
	}
	if th.java.of != h || th.java.thread == 0 {
		return why
	}
	pc, sp, fp, ok := h.rt.Anchor((*copiedWords)(w), th.java.thread)
	if !ok || w.known>>w.sp&1 != 0 && sp <= w.regs[w.sp] && len(w.frames) > 1 || sp <= w.first {
		return why
	}
	w.frames = append(w.frames, stack.Frame{PC: uint64(why), Kind: stack.KindError})
	th.java.gap = true
	w.regs[w.sp], w.known = sp, 1<<w.sp
	if fp != 0 {
		w.regs[w.fp] = fp
		w.known |= 1 << w.fp
	}
	return w.walk(pc, false)
}

func (h *hotspot) gap(th *Thread) bool { return th.java.gap }
