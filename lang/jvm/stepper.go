package jvm

import (
	"errors"
	"io"
	"path/filepath"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// hotspot is the Java virtual machine of a process with its known threads.
type hotspot struct {
	unwind.NoPart
	rt *Runtime

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
	heap    heapCopy
}

// javaWalk is a Walker's state for frames of Java.
type javaWalk struct {
	of    *hotspot
	rt    *Runtime // of's runtime, read through the walker's meter
	state State
	spans []rule.Span
	off   []int
	buf   []byte
	begun bool // state belongs to the current walk
	spent bool // the limit on reads was reached: the frames found may be wrong

	numbers [NumberSpan / 8]uint64 // see learnNumber
	thread  *javaThread            // of the walk
	pc, sp  uint64                 // where the walk began
}

// maxTried bounds the backoff between two searches for a thread's JavaThread, in Plans.
const maxTried = 64

var (
	javaThreads unwind.Slot[javaThread]
	javaWalks   unwind.Slot[javaWalk]
)

// Stacks shows the frames of HotSpot and puts their functions into the table. A *VersionError
// also covers OpenJ9 and GraalVM native images (the program itself, or code seen on a stack).
var Stacks = &unwind.Language{
	Name:       "HotSpot",
	Properties: unwind.CoversCode,
	Find:       find,
}

func find(s *unwind.Space, table *managed.Table) (unwind.Stepper, error) {
	var other error // another virtual machine than HotSpot
	for c := range s.Code() {
		if name := filepath.Base(c.Path); name != "libjvm.so" {
			if IsOpenJ9(name) {
				other = NoOpenJ9()
			} else if vm, ok := nativeImage(&c); ok && other == nil {
				other = NoNative(name, vm)
			}
			continue
		}
		h, err := newHotspot(s, &c, table)
		if errors.Is(err, ErrNotJVM) {
			// OpenJ9 also ships a libjvm.so, which loads the real one.
			if other == nil {
				other = &VersionError{Why: "this virtual machine does not describe itself as HotSpot does"}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if h != nil {
			return h, nil
		}
	}
	return nil, other
}

// hotspotImage is the HotSpot in a file.
var hotspotImage = unwind.Fact[*Image]{Read: Load}

// newHotspot returns the HotSpot of one mapping of libjvm.so. It returns nil, nil if the mapping does
// not hold the file's code.
func newHotspot(s *unwind.Space, c *unwind.Code, table *managed.Table) (*hotspot, error) {
	bias, ok := c.Bias()
	if !ok {
		return nil, nil
	}
	img, err := hotspotImage.Of(c)
	if err != nil {
		return nil, err
	}
	if s.Arch() != rule.AMD64 {
		return nil, &VersionError{Why: "on this machine they are not known"}
	}
	rt, err := New(img, bias, s.Memory(), table)
	if err != nil {
		return nil, err
	}
	h := &hotspot{rt: rt}
	h.list()
	return h, nil
}

// native is the GraalVM native image in a file: the version of its virtual machine.
type native struct {
	vm string
	ok bool
}

var nativeImages = unwind.Fact[native]{Read: func(r io.ReaderAt) (n native, err error) {
	f, err := cfi.OpenELF(r)
	if err == nil {
		n.vm, n.ok = NativeImage(f)
	}
	return n, err
}}

// nativeImage returns the virtual machine of a file that is a GraalVM native image. Searching every
// library would cost all programs time, so only the program's own file and files seen on a stack
// are searched.
func nativeImage(c *unwind.Code) (vm string, ok bool) {
	if !c.Own && !c.Opened() {
		return "", false
	}
	n, err := nativeImages.Of(c)
	return n.vm, n.ok && err == nil
}

// Of returns the virtual machine whose frames walks show, or nil.
func Of(s *unwind.Space) *Runtime {
	if h, ok := s.Followed(Stacks).(*hotspot); ok {
		return h.rt
	}
	return nil
}

// thread returns the address of the JavaThread of a thread, or 0 if walks have found none. tid
// is the thread's number as the process itself sees it.
func (h *hotspot) thread(tid stack.TID) uint64 {
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

// Plan implements Stepper.
func (h *hotspot) Plan(th *unwind.Thread, out []rule.Span) []rule.Span {
	j := javaThreads.Of(th)
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
		j.heap.plan(h.rt, &j.carrier)
	}
	return out
}

// Begin implements Stepper.
func (h *hotspot) Begin(w *unwind.Walker, th *unwind.Thread, regs *stack.Regs) {
	j := h.walk(w)
	j.begun, j.spent = false, false
	j.thread, j.pc, j.sp = javaThreads.Of(th), regs.PC, regs.R[rsp]
}

// Covers reports whether pc is in the reserved range of the code cache.
func (h *hotspot) Covers(pc uint64) bool { return h.rt.Covers(pc) }

// Step implements Stepper.
func (h *hotspot) Step(w *unwind.Walker, pc uint64, exact bool) unwind.Step {
	j := h.walk(w)
	s := &j.state
	if !j.begun {
		s.Begin()
		j.begun = true
	}
	regs, known := w.Registers()
	s.PC, s.Exact, s.R, s.Known, s.Words = pc, exact, *regs, *known, w
	frames, reason := j.rt.Step(s, w.Frames())
	w.SetFrames(frames)
	if reason == stack.ReasonMemory {
		return unwind.Stop(w.Missing(s.Missing))
	}
	if reason != stack.ReasonNone {
		return unwind.Stop(reason)
	}
	*regs, *known = s.R, s.Known
	return unwind.Step{PC: s.PC, Exact: s.Exact, Trust: stack.TrustTable}
}

// walk returns the walker's state for frames of h.
func (h *hotspot) walk(w *unwind.Walker) *javaWalk {
	j := javaWalks.In(w)
	if j.of != h {
		*j = javaWalk{of: h, rt: h.rt.On(w.Meter())}
		j.state.Native, j.state.Chunks = w.IsCode, j.inHeap
	}
	return j
}

// Holds validates Java's code and methods after a walk. Code that was discarded between two looks
// is read again; before the last try all code is. If a walk through Java reached the limit on
// reads, its frames are not shown.
func (h *hotspot) Holds(w *unwind.Walker, try int) unwind.Verdict {
	j := javaWalks.In(w)
	if j.of != h || !j.begun {
		return unwind.Valid
	}
	switch {
	case h.still(w, j):
		return unwind.Valid
	case j.spent:
		return unwind.Void
	case try == unwind.MaxAgain-1: // more code was discarded than one walk detects
		h.rt.Forget()
	}
	return unwind.Again
}

// still reports whether everything that the walk relied on is still in memory.
func (h *hotspot) still(w *unwind.Walker, j *javaWalk) bool {
	j.begun = false
	j.state.Dedup(w.Copied().Batch)
	if j.state.Held() && !w.Meter().Spent() {
		return true
	}
	j.spans = h.rt.Spans(&j.state, j.spans[:0])
	j.off, j.buf = unwind.ReadAll(w.Meter(), j.spans, j.off, j.buf)
	if j.spent = w.Meter().Spent(); j.spent { // spans may be unread although they exist
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

// Resume continues a walk that stopped in machine code at the frame where the thread left Java. An
// error frame with the reason replaces the missing frames.
func (h *hotspot) Resume(w *unwind.Walker, th *unwind.Thread, why stack.Reason) stack.Reason {
	t, j := javaThreads.Of(th), javaWalks.In(w)
	t.gap = j.begun && j.state.Heap
	switch why {
	case stack.ReasonNone, stack.ReasonShort, stack.ReasonUnmapped, stack.ReasonEmpty:
		return why
	}
	if t.of != h || t.thread == 0 {
		return why
	}
	pc, sp, fp, ok := h.rt.Anchor(w, t.thread)
	regs, known := w.Registers()
	_, first := w.Start()
	spReg, fpReg := w.Arch().SP(), w.Arch().FP()
	if !ok || *known>>spReg&1 != 0 && sp <= regs[spReg] && len(w.Frames()) > 1 || sp <= first {
		return why
	}
	w.SetFrames(append(w.Frames(), stack.Frame{PC: uint64(why), Kind: stack.KindError}))
	t.gap = true
	regs[spReg], *known = sp, 1<<spReg
	if fp != 0 {
		regs[fpReg] = fp
		*known |= 1 << fpReg
	}
	return w.Continue(pc, false)
}

// Report implements Stepper.
func (h *hotspot) Report(th *unwind.Thread) unwind.Report {
	return unwind.Report{Gap: javaThreads.Of(th).gap}
}
