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

// hotspot is the Java virtual machine of a process, with the threads that it knows.
type hotspot struct {
	noPart
	rt *jvm.Runtime

	mu      sync.Mutex
	threads map[stack.TID]uint64
	virtual map[uint64]string // virtual threads that walks met, by number
}

// javaThread is what is known of one thread's Java.
type javaThread struct {
	of     *hotspot
	thread uint64 // its JavaThread; 0: not found
	tried  int    // Plans without one
	gap    bool   // see Thread.Gaps

	carrier carrier
}

// javaWalk is what a Walker needs for frames of Java.
type javaWalk struct {
	of    *hotspot
	rt    *jvm.Runtime // that of of, read through the walker's meter
	state jvm.State
	spans []rule.Span
	off   []int
	buf   []byte
	begun bool // state is about the walk that is under way
	spent bool // more would have been read than one may: what was found may be wrong
}

// FollowJVM has walks show the frames of HotSpot, if the process has it mapped, with
// their functions' places in table. It gives the virtual machine, nil if there is
// none. An error says why one that is there cannot be read, now or ever
// (*jvm.VersionError: also OpenJ9, and native images of GraalVM that are the program or
// were met on a stack); its stacks are those of machine code.
func (s *Space) FollowJVM(table *managed.Table) (*jvm.Runtime, error) {
	if s.mem == nil {
		return nil, nil
	}
	snap := s.snap.Load()
	var other error // what is there in place of HotSpot
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
			// OpenJ9 has a library of this name too, which loads its own.
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

// followJVM is FollowJVM for one mapping of libjvm.so; nil, nil: it is not of the file's code.
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

// nativeImage is what made a file that is a native image of GraalVM. To look into each
// library would be paid by every program: the program's own file counts, and those
// whose code was on a stack. region is the file's first.
func (m *module) nativeImage(region int) (vm string, ok bool) {
	if m.mapping.Inode == 0 || region >= firstFile && !m.loaded.Load() {
		return "", false
	}
	m.load()
	return m.native.vm, m.native.ok
}

// renew has walkers forget rules that they made before something was known.
func (s *Space) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.snap.Load()
	next.epoch++
	s.snap.Store(&next)
}

// JVM is the virtual machine whose frames walks show; nil: there is none.
func (s *Space) JVM() *jvm.Runtime {
	if h := s.runtimes.Load().jvm; h != nil {
		return h.rt
	}
	return nil
}

// ForgetJVM ends FollowJVM: the process became another program.
func (s *Space) ForgetJVM() { s.setRuntimes(func(r *runtimes) { r.jvm = nil }) }

// JavaThread is the JavaThread of the thread with this number, as the process itself
// sees it, as far as walks have found it; 0: there is none.
func (s *Space) JavaThread(tid stack.TID) uint64 {
	h := s.runtimes.Load().jvm
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.threads[tid]
}

// list reads which threads there are.
func (h *hotspot) list() {
	all, err := h.rt.Threads()
	if err != nil {
		return // the one before holds
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
		// A thread that is none of Java's must not have the list read each time.
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

// copiedWords is a Walker's memory: what was copied.
type copiedWords Walker

// Word implements jvm.Words.
func (c *copiedWords) Word(addr uint64) (uint64, bool) { return (*Walker)(c).word(addr) }

func (h *hotspot) begin(w *Walker, _ *Thread, _ *stack.Regs) {
	if w.java != nil {
		w.java.begun, w.java.spent = false, false
	}
}

// covers holds for all of the code cache, as far as it is reserved.
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

// javaOf is what the walker keeps for frames of h's.
func (w *Walker) javaOf(h *hotspot) *javaWalk {
	if w.java == nil || w.java.of != h {
		w.java = &javaWalk{of: h, rt: h.rt.On(&w.meter)}
		w.java.state.Native = w.isCode
	}
	return w.java
}

// holds is about Java's code and methods: code that was thrown away between two looks is read
// anew, before the last of them all code is. Where a walk that met Java would have read more
// than one may, what it found is not shown.
func (h *hotspot) holds(w *Walker, try int) verdict {
	if w.java == nil || w.java.of != h || !w.java.begun {
		return valid
	}
	switch {
	case h.still(w, w.java):
		return valid
	case w.java.spent:
		return void
	case try == maxAgain-1: // more was thrown away than one walk meets
		h.rt.Forget()
	}
	return again
}

// still reports whether all that the walk took for granted is there still.
func (h *hotspot) still(w *Walker, j *javaWalk) bool {
	j.begun = false
	j.state.Dedup(w.mem.Batch)
	if j.state.Held() && !w.meter.Spent() {
		return true
	}
	j.spans = h.rt.Spans(&j.state, j.spans[:0])
	j.off, j.buf = readAll(&w.meter, j.spans, j.off, j.buf)
	if j.spent = w.meter.Spent(); j.spent { // what is there may not have been read
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

// resume goes on where the thread left Java, after a walk that did not get so far
// in the code between. The frame that tells why stands for what is missing.
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
