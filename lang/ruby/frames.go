package ruby

import (
	"errors"
	"io"
	"runtime"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

const (
	// MaxDepth bounds the Ruby frames of one stack. A control frame has 56 or 64 bytes.
	MaxDepth = 2000
	// maxValues bounds the values of a VM stack that are read at once, in bytes.
	maxValues = 64 << 10
	// maxFibers bounds the Fibers that resumed each other, of one stack.
	maxFibers = 8
	// maxEnvs bounds the environments around one block, and maxOwners those of all frames.
	maxEnvs   = 64
	maxOwners = 8192
)

// Flags of an environment: enum vm_frame_env_flags of vm_core.h.
const (
	magicMask  = 0x7fff0001
	magicCFunc = 0x55550001
	flagFinish = 0x20 // the C function that runs this frame returns with it
	flagLocal  = 0x02 // the environment of a method, not of a block in it
	envMask    = 3    // low bits of a reference to the environment around a block
)

// Frame is one activation of a method, block, class body or program.
type Frame struct {
	Addr  uint64 // address of the control frame
	ISeq  uint64 // address of the instruction sequence; 0: a method in C
	Entry uint64 // address of the method entry; 0: none, or not needed in this version
	PC    uint64 // address behind the current instruction
	// Func is the function's address in a managed.Table; 0: ISeq or Entry identifies it. Off is the
	// offset of the current instruction in it, in bytes.
	Func, Off uint64
	// Lost: its code could not be read in time.
	Lost bool
	// Hidden: Ruby does not show it either: see Stack.Hide.
	Hidden bool
}

// Group is the frames that one evaluation, a C function, runs, and the methods in C that it calls.
type Group struct {
	N    int  // number of frames
	Open bool // no evaluation runs the outermost frames, which are methods in C
}

// Stack holds the Ruby frames of a thread, innermost first. The next Capture reuses its memory.
type Stack struct {
	Frames []Frame
	Groups []Group
	Reason stack.Reason // why outer frames are missing; ReasonNone: none are
	// Fibers counts the Frames of the Fibers of which each resumed the previous one. These Frames follow
	// those of Groups, of the running Fiber. Cut: more of them could not be read.
	Fibers []int
	Cut    bool
	// Yields: the running Fiber is about to yield to the one that resumed it, and does not name it any more.
	// Cut is true as well.
	Yields bool

	fiber uint64 // address of the running Fiber
}

func (s *Stack) reset() {
	*s = Stack{Frames: s.Frames[:0], Groups: s.Groups[:0], Fibers: s.Fibers[:0]}
}

// Objects is memory from which the interpreter's objects are read: they stay where they are as long as
// a frame uses them, so it may be newer than the memory of the frames.
type Objects interface {
	io.ReaderAt
	meter.SpanReader
}

// Thread finds one thread's frames.
type Thread struct {
	r     *Runtime
	state State

	context           // at the last Refresh or Capture; its ec is 0: none
	others  []context // the last other one, and those of the Fibers that resumed the current one
	parent  *Thread   // to read those
	resumed Stack
	alone   alone // the running Fiber at the last Capture, if no other one had resumed it
	// envs are the environments of the last Capture that were not in the VM stack, innermost first:
	// a block or Binding keeps them.
	envs []stack.Span

	values, frames []byte // values is the memory at valuesAt
	valuesAt       uint64
	owners         []owner
	kinds          map[uint64][2]uint64 // first two words of objects that may be method entries
	spans          []stack.Span
	buf            []byte
}

// context is an execution context: that of a Fiber.
type context struct {
	ec     uint64
	fiber  uint64 // address of its Fiber
	low    uint64 // bounds of its VM stack
	top    uint64 // end of the environments of frames in it
	bottom uint64 // innermost control frame
	high   uint64
}

// alone is a Fiber that does not name the one that resumed it.
type alone struct {
	fiber, block uint64 // its address and what it runs; 0: none
	pc           uint64 // the thread's instruction at that Capture
	transferred  bool   // it was transferred to
}

// enter sets the current execution context.
func (t *Thread) enter(c context) {
	if t.context.ec != 0 && t.context.ec != c.ec {
		t.keep(t.context)
	}
	t.context = c
}

// keep puts a context before the other ones.
func (t *Thread) keep(c context) {
	t.others = slices.DeleteFunc(t.others, func(o context) bool { return o.ec == c.ec })
	t.others = slices.Insert(t.others, 0, c)
	t.others = t.others[:min(len(t.others), maxOthers)]
}

// maxOthers bounds the Fibers whose frames are copied beside those of the running one.
const maxOthers = 4

// owner is an object that may be the method entry of a frame.
type owner struct {
	frame int    // index
	v     uint64 // the object
	local bool   // of a method's own environment
}

// Thread returns a Thread for a State from Threads.
func (r *Runtime) Thread(s State) *Thread {
	return &Thread{r: r, state: s, kinds: map[uint64][2]uint64{}}
}

// Spans appends the memory that Capture reads of a thread that is as at the last Refresh or Capture, with
// room for some more frames and values. Spans that may be absent come last: those of other Fibers, to
// which the thread may have gone back, and environments.
func (t *Thread) Spans(out []stack.Span) []stack.Span {
	out = append(out, stack.Span{Addr: t.state.Addr, Len: threadHead})
	if t.context.ec == 0 {
		return out
	}
	out = t.context.spans(t.r.l, false, out)
	for i := range t.others {
		if t.others[i].ec != t.context.ec {
			out = t.others[i].spans(t.r.l, true, out)
		}
	}
	for _, e := range t.envs {
		e.Maybe = true
		out = append(out, e)
	}
	return out
}

func (c *context) spans(l *layout, maybe bool, out []stack.Span) []stack.Span {
	size := l.frameSize
	from := max(c.bottom-min(c.bottom-c.low, roomFrames*size), c.high-min(c.high-c.low, (MaxDepth+1)*size))
	out = append(out, stack.Span{Addr: c.ec, Len: ecHead, Maybe: maybe}, stack.Span{Addr: from, Len: int(c.high - from), Maybe: maybe})
	if end := min(c.top+roomValues, from); end > c.low {
		low := end - min(end-c.low, maxValues)
		out = append(out, stack.Span{Addr: low, Len: int(end - low), Maybe: maybe})
	}
	if l.fiberPrev != none && pointer(c.fiber) {
		out = append(out, stack.Span{Addr: c.fiber + l.fiberPrev - 8, Len: 16, Maybe: maybe})
	}
	return out
}

// Refresh reads where the thread's frames are now, for Spans. It makes three small reads of mem; a Fiber
// may have been resumed, and the frames change all the time.
func (t *Thread) Refresh(mem io.ReaderAt) {
	var b [ecHead]byte
	ec, err := word(mem, t.state.Addr+t.r.l.threadEC)
	if err != nil || !pointer(ec) || read(mem, b[:], ec) != nil || le(b[:], ecThread) != t.state.Addr {
		return // as before
	}
	low, size, at := le(b[:], ecStack), le(b[:], ecStackSize), le(b[:], ecFrame)
	if !t.r.plausible(low, size, at) {
		return
	}
	t.enter(context{ec: ec, fiber: le(b[:], ecFiber), low: low, top: low, bottom: at, high: low + 8*size})
	var f [frameEP + 8]byte
	if read(mem, f[:], at) == nil {
		if top := le(f[:], frameSP); top >= low && top < at {
			t.top = top
		}
	}
}

// plausible reports whether these may be the beginning, size in words and innermost control frame of a
// VM stack.
func (r *Runtime) plausible(low, size, at uint64) bool {
	high := low + 8*size
	return pointer(low) && size <= maxPointer/8 && at >= low && at&7 == 0 && at < high && (high-at)%r.l.frameSize == 0
}

const (
	// Room for frames and values that are pushed between Refresh and the copy.
	roomFrames = 64
	roomValues = 8192 // bytes
	// maxKept bounds the environments outside of the VM stack that Spans names.
	maxKept = 64
)

// ErrMissing is the error of a memory that is a copy and lacks the data.
var ErrMissing = errors.New("it was not copied")

// Capture reads the frames of the thread, which must not run during the call, or whose memory mem is a
// copy. objects has the interpreter's objects, and the environments that mem lacks (ErrMissing). pc is the
// thread's current instruction; 0: unknown. ok is false if the State does not belong to the thread any more.
func (t *Thread) Capture(mem io.ReaderAt, objects Objects, pc uint64, s *Stack) (ok bool) {
	s.reset()
	l := t.r.l
	var b [threadHead]byte
	if err := read(mem, b[:], t.state.Addr); err != nil || le(b[:], threadVM) != t.r.vm || le(b[:], threadRactor) != t.state.Ractor ||
		l.threadNT != none && le(b[:], l.threadNT) != t.state.native {
		return false
	}
	t.read(mem, objects, s, le(b[:], l.threadEC))
	if s.Reason == stack.ReasonNone && l.fiberPrev != none {
		t.resumers(mem, objects, pc, s)
	}
	return true
}

// resumers adds the frames of the Fibers that resumed the running one. These Fibers wait, so that their
// frames stay as they are until it ends or yields.
//
// A Fiber that yields first forgets the one that resumed it (return_fiber in cont.c), and switches to
// that one some 100 ns later. One that was transferred to names none all the time. Therefore a Fiber
// without another one counts as one that yields, until it was seen in a system call, or at two different
// instructions. That it was so before alone does not suffice: a thread may wait for a CPU there.
func (t *Thread) resumers(mem io.ReaderAt, objects Objects, pc uint64, s *Stack) {
	last := t.alone
	t.alone = alone{}
	if t.parent == nil {
		t.parent = t.r.Thread(t.state)
	}
	p := t.parent
	for fiber := s.fiber; len(s.Fibers) < maxFibers; {
		var b [16]byte
		err := read(mem, b[:], fiber+t.r.l.fiberPrev-8)
		block, prev := le(b[:], 0), le(b[:], 8) // block: what it runs; the thread's first one has none
		if err == nil && prev == 0 {
			if block != 0 && len(s.Fibers) == 0 {
				now := alone{fiber: fiber, block: block, pc: pc}
				again := last.fiber == fiber && last.block == block
				now.transferred = again && (last.transferred || pc != 0 && last.pc != 0 && pc != last.pc) || inCall(objects, pc)
				t.alone = now
				s.Yields = !now.transferred
				s.Cut = s.Yields
			}
			return
		}
		r := &t.resumed
		r.reset()
		if s.Cut = err != nil || !pointer(prev); !s.Cut {
			p.read(mem, objects, r, prev+fiberEC)
			s.Cut = r.Reason != stack.ReasonNone || r.fiber != prev || len(r.Frames)+len(s.Frames) > MaxDepth
		}
		if s.Cut {
			return
		}
		t.keep(p.context)
		for _, e := range p.envs {
			if len(t.envs) < maxKept {
				t.envs = append(t.envs, e)
			}
		}
		s.Frames = append(s.Frames, r.Frames...)
		s.Fibers = append(s.Fibers, len(r.Frames))
		fiber = prev
	}
	s.Cut = true
}

// inCall reports whether the instruction at pc, or the one before it, is a system call.
func inCall(mem io.ReaderAt, pc uint64) bool {
	var b [8]byte
	if pc < minPointer || read(mem, b[:], pc-4) != nil {
		return false
	}
	if runtime.GOARCH == "arm64" {
		return le(b[:], 0)&0xffffffff == svc || le(b[:], 0)>>32 == svc
	}
	return string(b[2:4]) == syscall || string(b[4:6]) == syscall
}

// Instructions that make a system call, of arm64 and amd64.
const (
	svc     = 0xd4000001
	syscall = "\x0f\x05"
)

// read reads the frames of an execution context.
func (t *Thread) read(mem io.ReaderAt, objects Objects, s *Stack, ec uint64) {
	l := t.r.l
	var b [ecHead]byte
	t.envs = t.envs[:0]
	if !pointer(ec) {
		s.Reason = stack.ReasonCorrupt
		return
	}
	if read(mem, b[:], ec) != nil {
		s.Reason = stack.ReasonMemory
		return
	}
	if le(b[:], ecThread) != t.state.Addr {
		s.Reason = stack.ReasonCorrupt
		return
	}
	s.fiber = le(b[:], ecFiber)
	low, size, at := le(b[:], ecStack), le(b[:], ecStackSize), le(b[:], ecFrame)
	if low == 0 && at == 0 { // its VM stack does not exist yet, or any more
		return
	}
	if !t.r.plausible(low, size, at) {
		s.Reason = stack.ReasonCorrupt
		return
	}
	high := low + 8*size
	t.enter(context{ec: ec, fiber: s.fiber, low: low, top: low, bottom: at, high: high})
	n := (high-at)/l.frameSize - 1 // without the outermost one, which is none
	if n > MaxDepth {
		n, s.Reason = MaxDepth, stack.ReasonBound
	}
	t.frames = grow(t.frames, n*l.frameSize)
	if n > 0 && read(mem, t.frames, at) != nil {
		s.Reason = stack.ReasonMemory
		return
	}
	t.readValues(mem)
	t.walk(mem, objects, s, n)
}

// readValues reads the part of the VM stack that holds the environments of the frames.
func (t *Thread) readValues(mem io.ReaderAt) {
	at := t.bottom
	for b := t.frames; len(b) > 0; b = b[t.r.l.frameSize:] {
		if ep := le(b, frameEP); ep >= t.low+16 && ep < t.bottom && ep&7 == 0 {
			t.top, at = max(t.top, ep+8), min(at, ep-16)
		}
	}
	at = max(min(at, t.top), t.top-min(t.top, maxValues))
	t.valuesAt, t.values = at, grow(t.values, t.top-at)
	if len(t.values) > 0 && read(mem, t.values, at) != nil {
		t.values = t.values[:0] // single reads may find some
	}
}

// env is what surrounds a block: a method entry or other object, the environment around it, the flags.
type env struct{ object, around, flags uint64 }

const envSize = 24

// env reads the environment that ends at ep.
func (t *Thread) env(mem, objects io.ReaderAt, ep uint64) (env, error) {
	if ep&7 != 0 || ep < minPointer {
		return env{}, errAstray
	}
	at := ep - 16
	if off := at - t.valuesAt; len(t.values) >= envSize && off <= uint64(len(t.values)-envSize) {
		b := t.values[off:]
		return env{le(b, 0), le(b, 8), le(b, 16)}, nil
	}
	var b [envSize]byte
	err := read(mem, b[:], at)
	if at < t.low || at >= t.high {
		if len(t.envs) < maxKept {
			t.envs = append(t.envs, stack.Span{Addr: at, Len: envSize})
		}
		if errors.Is(err, ErrMissing) {
			err = read(objects, b[:], at)
		}
	}
	if err == nil && le(b[:], 16)&1 == 0 { // a mark of flags, which no object has there
		err = errAstray
	}
	return env{le(b[:], 0), le(b[:], 8), le(b[:], 16)}, err
}

// walk turns the n innermost control frames into frames.
func (t *Thread) walk(mem io.ReaderAt, objects Objects, s *Stack, n uint64) {
	l := t.r.l
	t.owners = t.owners[:0]
	grouped, run := 0, false // frames of the group so far; whether one of them has instructions
	for i := range n {
		b := t.frames[i*l.frameSize:]
		pc, iseq := le(b, framePC), le(b, frameISeq)
		e, err := t.env(mem, objects, le(b, frameEP))
		if err != nil {
			if s.Reason = stack.ReasonMemory; errors.Is(err, errAstray) {
				s.Reason = stack.ReasonCorrupt
			}
			break
		}
		f := Frame{Addr: t.bottom + i*l.frameSize, ISeq: iseq, PC: pc}
		switch {
		case iseq != 0 && pc != 0:
			if t.r.img.Minor == 4 { // its labels name the method's owner
				t.findOwner(mem, objects, len(s.Frames), e)
			}
			s.Frames = append(s.Frames, f)
			grouped++
			run = true
		case iseq == 0 && e.flags&magicMask == magicCFunc:
			f.PC = 0
			t.findOwner(mem, objects, len(s.Frames), e)
			s.Frames = append(s.Frames, f)
			grouped++
		}
		if e.flags&flagFinish != 0 && grouped > 0 {
			s.Groups = append(s.Groups, Group{N: grouped})
			grouped, run = 0, false
		}
	}
	if grouped > 0 {
		s.Groups = append(s.Groups, Group{N: grouped, Open: !run && s.Reason == stack.ReasonNone})
	}
	t.setOwners(objects, s)
}

// findOwner records the objects of which one is the method entry of a frame with the environment e: it
// is in that or in one around it (rb_vm_frame_method_entry in vm_insnhelper.c).
func (t *Thread) findOwner(mem, objects io.ReaderAt, frame int, e env) {
	for range maxEnvs {
		local := e.flags&flagLocal != 0
		if len(t.owners) == maxOwners {
			return
		}
		if pointer(e.object) {
			t.owners = append(t.owners, owner{frame, e.object, local})
		}
		if local {
			return
		}
		var err error
		if e, err = t.env(mem, objects, e.around&^envMask); err != nil {
			return
		}
	}
}

// setOwners sets the method entries of the frames to the first of their objects that is one.
func (t *Thread) setOwners(objects Objects, s *Stack) {
	clear(t.kinds)
	t.spans = t.spans[:0]
	for _, o := range t.owners {
		if _, ok := t.kinds[o.v]; !ok {
			t.kinds[o.v] = [2]uint64{}
			t.spans = append(t.spans, stack.Span{Addr: o.v, Len: 16})
		}
	}
	t.buf = grow(t.buf, uint64(16*len(t.spans)))
	for i := 0; i < len(t.spans); i++ {
		for n := objects.ReadSpans(t.spans[i:], t.buf[16*i:]) / 16; n > 0; n-- {
			t.kinds[t.spans[i].Addr] = [2]uint64{le(t.buf, uint64(16*i)), le(t.buf, uint64(16*i+8))}
			i++
		}
	}
	for _, o := range t.owners {
		f := &s.Frames[o.frame]
		if f.Entry != 0 {
			continue
		}
		k := t.kinds[o.v]
		switch {
		case isImemo(k[0], imemoEntry):
			f.Entry = o.v
		case o.local && isImemo(k[0], imemoSvar): // special variables of a method, and its entry behind them
			if v, err := word(objects, k[1]); err == nil && isImemo(v, imemoEntry) {
				f.Entry = k[1]
			}
		}
	}
}

// isImemo reports whether flags are those of an internal object of a type.
func isImemo(flags, typ uint64) bool {
	return flags&typeMask == typeImemo && flags>>user&imemoMask == typ
}

func grow(b []byte, n uint64) []byte {
	if uint64(cap(b)) < n {
		return make([]byte, n, n+n/2)
	}
	return b[:n]
}
