package unwind

import (
	"errors"
	"io"
	"path/filepath"
	"sync"

	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// hotspot is the Java virtual machine of a process with its known threads.
type hotspot struct {
	NoPart
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

	numbers [jvm.NumberSpan / 8]uint64 // see learnNumber
}

// maxTried bounds the backoff between two searches for a thread's JavaThread, in Plans.
const maxTried = 64

var (
	javaThreads Slot[javaThread]
	javaWalks   Slot[javaWalk]
)

// JVM shows the frames of HotSpot and puts their functions into the table. A *jvm.VersionError
// also covers OpenJ9 and GraalVM native images (the program itself, or code seen on a stack).
var JVM = &Language{
	Name:       "HotSpot",
	Properties: CoversCode,
	Find:       findJVM,
}

// FollowJVM follows HotSpot and returns it; nil: the process has none.
func (s *Space) FollowJVM(table *managed.Table) (*jvm.Runtime, error) {
	st, err := s.Follow(JVM, table)
	if h, ok := st.(*hotspot); ok {
		return h.rt, nil
	}
	return nil, err
}

func findJVM(s *Space, table *managed.Table) (Stepper, error) {
	var other error // another virtual machine than HotSpot
	for c := range s.Code() {
		if name := filepath.Base(c.Path); name != "libjvm.so" {
			if jvm.IsOpenJ9(name) {
				other = jvm.NoOpenJ9()
			} else if vm, ok := nativeImage(&c); ok && other == nil {
				other = jvm.NoNative(name, vm)
			}
			continue
		}
		h, err := newHotspot(s, &c, table)
		if errors.Is(err, jvm.ErrNotJVM) {
			// OpenJ9 also ships a libjvm.so, which loads the real one.
			if other == nil {
				other = &jvm.VersionError{Why: "this virtual machine does not describe itself as HotSpot does"}
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

// jvmImage is the HotSpot in a file.
var jvmImage = Fact[*jvm.Image]{Read: jvm.Load}

// newHotspot returns the HotSpot of one mapping of libjvm.so. It returns nil, nil if the mapping does
// not hold the file's code.
func newHotspot(s *Space, c *Code, table *managed.Table) (*hotspot, error) {
	bias, ok := c.Bias()
	if !ok {
		return nil, nil
	}
	img, err := jvmImage.Of(c)
	if err != nil {
		return nil, err
	}
	if s.Arch() != rule.AMD64 {
		return nil, &jvm.VersionError{Why: "on this machine they are not known"}
	}
	rt, err := jvm.New(img, bias, s.Memory(), table)
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

var nativeImages = Fact[native]{Read: func(r io.ReaderAt) (n native, err error) {
	f, err := cfi.OpenELF(r)
	if err == nil {
		n.vm, n.ok = jvm.NativeImage(f)
	}
	return n, err
}}

// nativeImage returns the virtual machine of a file that is a GraalVM native image. Searching every
// library would cost all programs time, so only the program's own file and files seen on a stack
// are searched.
func nativeImage(c *Code) (vm string, ok bool) {
	if !c.Own && !c.Opened() {
		return "", false
	}
	n, err := nativeImages.Of(c)
	return n.vm, n.ok && err == nil
}

// JVM returns the virtual machine whose frames walks show, or nil.
func (s *Space) JVM() *jvm.Runtime {
	if h, ok := s.Followed(JVM).(*hotspot); ok {
		return h.rt
	}
	return nil
}

// JavaThread returns the address of the JavaThread of a thread, or 0 if walks have found none. tid
// is the thread's number as the process itself sees it.
func (s *Space) JavaThread(tid stack.TID) uint64 {
	h, ok := s.Followed(JVM).(*hotspot)
	if !ok {
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

// Plan implements Stepper.
func (h *hotspot) Plan(th *Thread, out []rule.Span) []rule.Span {
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
	}
	return out
}

// Begin implements Stepper.
func (h *hotspot) Begin(w *Walker, _ *Thread, _ *stack.Regs) {
	j := javaWalks.In(w)
	j.begun, j.spent = false, false
}

// Covers reports whether pc is in the reserved range of the code cache.
func (h *hotspot) Covers(pc uint64) bool { return h.rt.Covers(pc) }

// Step implements Stepper.
func (h *hotspot) Step(w *Walker, pc uint64, exact bool) Step {
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
		return Stop(w.Missing(s.Missing))
	}
	if reason != stack.ReasonNone {
		return Stop(reason)
	}
	*regs, *known = s.R, s.Known
	return Step{PC: s.PC, Exact: s.Exact, Trust: stack.TrustTable}
}

// walk returns the walker's state for frames of h.
func (h *hotspot) walk(w *Walker) *javaWalk {
	j := javaWalks.In(w)
	if j.of != h {
		*j = javaWalk{of: h, rt: h.rt.On(w.Meter())}
		j.state.Native = w.IsCode
	}
	return j
}

// Holds validates Java's code and methods after a walk. Code that was discarded between two looks
// is read again; before the last try all code is. If a walk through Java reached the limit on
// reads, its frames are not shown.
func (h *hotspot) Holds(w *Walker, try int) Verdict {
	j := javaWalks.In(w)
	if j.of != h || !j.begun {
		return Valid
	}
	switch {
	case h.still(w, j):
		return Valid
	case j.spent:
		return Void
	case try == MaxAgain-1: // more code was discarded than one walk detects
		h.rt.Forget()
	}
	return Again
}

// still reports whether everything that the walk relied on is still in memory.
func (h *hotspot) still(w *Walker, j *javaWalk) bool {
	j.begun = false
	j.state.Dedup(w.Copied().Batch)
	if j.state.Held() && !w.Meter().Spent() {
		return true
	}
	j.spans = h.rt.Spans(&j.state, j.spans[:0])
	j.off, j.buf = ReadAll(w.Meter(), j.spans, j.off, j.buf)
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
func (h *hotspot) Resume(w *Walker, th *Thread, why stack.Reason) stack.Reason {
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
func (h *hotspot) Report(th *Thread) Report { return Report{Gap: javaThreads.Of(th).gap} }
