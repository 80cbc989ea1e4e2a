package python

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/sliverprof/sliver/stack"
)

const (
	// MaxDepth bounds the Python frames of one stack, and maxRead the bytes read of them. A frame
	// has 64 to 120 bytes, and a CFrame 24.
	MaxDepth = 3000
	maxRead  = 256<<10 - maxThreadState - maxEmpty*maxFrameSize - 8
	// maxEvals bounds the evaluations on one C stack.
	maxEvals = MaxDepth
	// maxEmpty bounds the CFrames without a frame yet.
	maxEmpty = 8
)

// Frame is one activation of a Python function.
type Frame struct {
	Addr uint64 // address of the interpreter's frame
	Code uint64 // address of the code object
	Off  uint64 // bytes into its bytecode; 0 also before it starts
	// Func is the function's address in a managed.Table; 0: only Code identifies the function.
	Func uint64
	// Lost: its code could not be read in time.
	Lost bool
	// Hidden: a shim of the interpreter, which is not shown; see Code.Shim.
	Hidden bool

	gen bool // part of a generator or coroutine, from 3.11 on
}

// Group is the frames that one evaluation, a C function, runs.
type Group struct {
	Anchor uint64 // an address in that function's C frame; 0: unknown
	N      int    // number of frames
}

// Stack holds the Python frames of a thread, innermost first. The next Capture reuses its memory.
type Stack struct {
	Frames []Frame
	Groups []Group
	Reason stack.Reason // why outer frames are missing; ReasonNone: none are

	anchors    []uint64
	generators bool // a frame belongs to a generator
	foreign    bool // see Runtime.Foreign; Merge then marks these evaluations as gaps
}

func (s *Stack) reset() {
	s.Frames, s.Groups, s.anchors, s.Reason = s.Frames[:0], s.Groups[:0], s.anchors[:0], stack.ReasonNone
	s.generators, s.foreign = false, false
}

// ErrMissing is the error of a Thread's memory if it is a copy and lacks the data.
var ErrMissing = errors.New("it was not copied")

// Thread finds one thread's frames.
type Thread struct {
	// Objects, if not nil, is memory from which Capture reads code objects. They are valid as long
	// as they are on the stack, and the other memory may be a copy without them.
	Objects io.ReaderAt

	r     *Runtime
	state State
	chunk uint64 // the data stack's newest chunk at the last Capture
	task  uint64 // asyncio's running task at the last Capture; 0: none, or not in this version
	last  uint64 // the last task that Task found
	steps uint64 // tsContext at the last Capture
	links int    // elements of the list of frames that the last Capture read
	buf   [maxThreadState]byte
}

// Thread returns a Thread for a State from Threads.
func (r *Runtime) Thread(s State) *Thread { return &Thread{r: r, state: s} }

// State returns the State from which the Thread was made.
func (t *Thread) State() State { return t.state }

// Capture reads the frames of the thread, which must not run during the call. ok is false if the
// State does not belong to the thread any more.
func (t *Thread) Capture(mem io.ReaderAt, s *Stack) (ok bool) {
	s.reset()
	l := &t.r.l
	b := t.buf[:min(l.tsSize, maxThreadState)]
	if read(mem, b, t.state.Addr) != nil || le(b, l.tsInterp) != t.state.Interp || le(b, l.tsThread) != t.state.Ident ||
		l.tsNative != none && int32(le(b, l.tsNative)) != t.state.Native {
		return false
	}
	if t.chunk = 0; l.tsChunk != none {
		t.chunk = le(b, l.tsChunk)
	}
	if t.task = 0; l.tsTask != none {
		t.task = le(b, l.tsTask)
	}
	if l.tsContext != none {
		t.steps = le(b, l.tsContext)
	}
	var at uint64
	if l.tsCFrame != none {
		at = t.cframes(mem, s, le(b, l.tsCFrame))
	}
	if l.tsFrame != none {
		at = le(b, l.tsFrame)
	}
	t.chain(mem, s, at)
	if t.r.img.Minor == 10 || t.r.img.Minor == 11 {
		// The innermost evaluation may not have its frame yet, so pair from the outermost on.
		if s.Reason == stack.ReasonNone {
			s.pair()
		}
	}
	return true
}

// pair assigns groups the CFrames of their evaluations, from the outermost on.
func (s *Stack) pair() {
	for i := range s.Groups {
		s.Groups[i].Anchor = 0
	}
	for i := 1; i <= min(len(s.Groups), len(s.anchors)); i++ {
		s.Groups[len(s.Groups)-i].Anchor = s.anchors[len(s.anchors)-i]
	}
}

// Span returns the memory of the interpreter's thread state, which Capture reads first.
func (t *Thread) Span() stack.Span {
	return stack.Span{Addr: t.state.Addr, Len: int(min(t.r.l.tsSize, maxThreadState))}
}

// FrameSize is the number of bytes that Capture reads of a frame.
func (t *Thread) FrameSize() int { return int(t.r.l.fSize) }

// Chunk returns the address of the newest chunk of the thread's data stack at the last Capture, or
// 0 if it has none.
func (t *Thread) Chunk() uint64 { return t.chunk }

const (
	// maxChunks bounds the chunks of a data stack, mostly of 16 KiB. maxChunk bounds the bytes to
	// copy of one.
	maxChunks = 12
	maxChunk  = 64 << 10
)

// Chunks appends the current chunks of the thread's data stack, newest first. From 3.11 on, they
// hold the frames of functions other than generators.
func (t *Thread) Chunks(mem io.ReaderAt, out []stack.Span) []stack.Span {
	l := &t.r.l
	if l.tsChunk == none {
		return out
	}
	var b [chunkHead]byte
	at, err := word(mem, t.state.Addr+l.tsChunk)
	for n := 0; err == nil && at != 0 && n < maxChunks; n++ {
		if at&7 != 0 || read(mem, b[:], at) != nil {
			break
		}
		out = append(out, stack.Span{Addr: at, Len: int(min(le(b[:], 8), maxChunk))})
		at = le(b[:], 0)
	}
	return out
}

// cframes collects the evaluations of 3.10 to 3.12, whose CFrames are on the C stack. It returns
// the innermost frame (not in 3.10).
func (t *Thread) cframes(mem io.ReaderAt, s *Stack, at uint64) (frame uint64) {
	l := &t.r.l
	root := t.state.Addr + l.tsRootCFrame
	var b [24]byte
	empty := 0
	for at != 0 && at != root && len(s.anchors) < maxEvals {
		if read(mem, b[:], at) != nil {
			s.Reason = stack.ReasonMemory
			return frame
		}
		s.anchors = append(s.anchors, at)
		if l.cfCurrent != none && frame == 0 {
			is, err := t.isFrame(mem, le(b[:], l.cfCurrent))
			if errors.Is(err, ErrMissing) { // a generator's frame
				s.Reason = stack.ReasonMemory
				return 0
			}
			if is { // otherwise that CFrame was just pushed and is not filled yet
				frame = le(b[:], l.cfCurrent)
			} else if empty++; empty == maxEmpty {
				s.Reason = stack.ReasonCorrupt
				return 0
			}
		}
		if t.r.img.Minor >= 12 && frame != 0 {
			return frame // the frames themselves mark evaluations
		}
		next := le(b[:], l.cfPrevious)
		if next != root && next <= at { // the C stack grows down
			at = 0
			break
		}
		at = next
	}
	// The list ends at the thread's own root. A CFrame that was just pushed may not be linked yet;
	// then nothing in it is reliable.
	if at != root && len(s.anchors) > 0 && len(s.anchors) < maxEvals || l.cfCurrent != none && frame == 0 && len(s.anchors) > 1 {
		s.Reason = stack.ReasonCorrupt
	}
	return frame
}

// isFrame reports whether addr holds a frame that runs a code object or marks an evaluation. An
// error says that its memory cannot be read.
func (t *Thread) isFrame(mem io.ReaderAt, addr uint64) (bool, error) {
	l := &t.r.l
	var b [maxFrameSize]byte
	if addr&7 != 0 {
		return false, nil
	}
	if err := read(mem, b[:l.fSize], addr); err != nil {
		return false, err
	}
	if t.r.img.Minor >= 12 && b[l.fOwner] >= ownerC {
		back := le(b[:], l.fBack)
		return back == 0 || back&7 == 0 && back <= maxPointer, nil
	}
	return t.isCode(mem, le(b[:], l.fCode)&^7), nil
}

func (t *Thread) isCode(mem io.ReaderAt, addr uint64) bool {
	if t.Objects != nil {
		mem = t.Objects
	}
	return t.r.isCode(mem, addr)
}

func (r *Runtime) isCode(mem io.ReaderAt, addr uint64) bool {
	typ, err := word(mem, addr+obType)
	return err == nil && addr != 0 && typ == r.types.code
}

// chain follows the frames from the innermost on.
func (t *Thread) chain(mem io.ReaderAt, s *Stack, at uint64) {
	l := &t.r.l
	b := t.buf[:l.fSize]
	n := 0 // frames of the group so far
	t.links = 0
	left := maxRead - 24*len(s.anchors)
	close := func(anchor uint64) {
		if n > 0 {
			s.Groups = append(s.Groups, Group{anchor, n})
		}
		n = 0
	}
	for ; at != 0; at = le(b, l.fBack) {
		if left -= len(b); left < 0 || len(s.Frames) == MaxDepth || len(s.Groups) == maxEvals {
			s.Reason = stack.ReasonBound
			break
		}
		if at&7 != 0 || read(mem, b, at) != nil {
			s.Reason = stack.ReasonMemory
			break
		}
		t.links++
		if t.r.img.Minor >= 12 && b[l.fOwner] >= ownerC {
			close(at)
			continue
		}
		code := le(b, l.fCode) &^ 7
		if len(s.Frames) == 0 && !t.isCode(mem, code) {
			s.Reason = stack.ReasonCorrupt
			break
		}
		gen := l.fOwner != none && b[l.fOwner] == ownerGen
		s.generators = s.generators || gen
		s.Frames = append(s.Frames, Frame{Addr: at, Code: code, Off: t.offset(b, code), gen: gen})
		n++
		if l.fEntry == none && t.r.img.Minor < 12 || l.fEntry != none && b[l.fEntry] != 0 {
			close(0)
		}
	}
	if t.r.img.Minor >= 11 && n > 0 && s.Reason == stack.ReasonNone {
		// A generator that is being entered or left is not linked for a moment. The outermost frame
		// always belongs to an evaluation.
		s.Reason = stack.ReasonCorrupt
	}
	close(0)
	if at := len(s.anchors); s.Reason == stack.ReasonNone && (t.r.img.Minor == 10 || t.r.img.Minor == 11) && at-len(s.Groups) > 1 {
		s.Reason = stack.ReasonCorrupt // one evaluation may lack its frame, not two
	}
}

// offset returns how far into its bytecode a frame is.
func (t *Thread) offset(b []byte, code uint64) uint64 {
	l := &t.r.l
	if l.coCode != none {
		start := code + l.coCode
		if at := le(b, l.fInstr); at >= start && at-start < maxBytecode {
			return at - start
		}
		return 0
	}
	last := int32(binary.LittleEndian.Uint32(b[l.fInstr:]))
	if last <= 0 {
		return 0
	}
	if t.r.img.Minor == 10 {
		return 2 * uint64(last) // in instructions of 2 bytes
	}
	return uint64(last)
}

// maxBytecode bounds one function's bytecode, in bytes.
const maxBytecode = 1 << 30

// Merge appends the C frames of a stack with their Python frames to out, innermost first, and
// returns it. sp is the stack pointer at the first C frame. Python frames come before the C
// function that evaluates them. If the C stack ends early and Python's continues, the last C frame
// (KindError) stays as the gap and is repeated at the end. Such a frame also replaces Python frames
// that could not be read, before each C function that runs some of them.
//
// With fold, an evaluating C function is shown at its beginning, whichever bytecode instruction it
// executes. Otherwise each of these PCs would be a separate caller of the Python functions.
func (r *Runtime) Merge(out, c []stack.Frame, sp uint64, s *Stack, fold bool) []stack.Frame {
	if !r.Anchored() {
		r.anchor(c, s)
	}
	var end []stack.Frame
	if n := len(c); n > 0 && c[n-1].Kind == stack.KindError {
		c, end = c[:n-1], c[n-1:]
	}
	lost := stack.Frame{PC: uint64(s.Reason), Kind: stack.KindError}
	g, next := 0, 0        // written groups and frames
	inner, gap := 0, false // end of the readable frames in out; whether an error frame was written for the others
	put := func() {
		for range s.Groups[g].N {
			if f := &s.Frames[next]; !f.Hidden {
				out = append(out, f.frame())
			}
			next++
		}
		g++
		inner = len(out)
	}
	low, inside := sp, false // inside: of an evaluation
	for i := range c {
		was, evals := g, r.evaluates(c[i].Func)
		if cfa := c[i].CFA; cfa > low {
			for last := r.last(s, g, low, cfa); g < last; {
				put()
			}
			low = cfa
		}
		if evals && g == was && r.cut(s, g) { // its frames were not read to the end
			put()
		}
		if s.Reason != stack.ReasonNone && g == len(s.Groups) && evals && (g == was || r.cut(s, g-1)) {
			gap = true
			out = append(out, lost)
		} else if s.foreign && evals && inside && g == was {
			out = append(out, stack.Frame{PC: uint64(stack.ReasonMemory), Kind: stack.KindError})
		}
		inside = inside || evals
		out = append(out, c[i])
		if fold && (g > was || evals && s.Reason != stack.ReasonNone) && c[i].Func != 0 {
			r.fold(&out[len(out)-1])
		}
	}
	if g < len(s.Groups) {
		between := stack.Frame{PC: uint64(stack.ReasonNoRule), Kind: stack.KindError}
		if len(end) > 0 {
			between = end[0]
		}
		out = append(out, between)
		for g < len(s.Groups) {
			put()
		}
	}
	if s.Reason != stack.ReasonNone && !gap {
		out = slices.Insert(out, inner, lost)
	}
	return append(out, end...)
}

// cut reports whether the i-th group is the last one and incomplete, in versions whose frames mark
// evaluations. Its frames belong to the next evaluation.
func (r *Runtime) cut(s *Stack, i int) bool {
	return i >= 0 && i == len(s.Groups)-1 && s.Groups[i].Anchor == 0 && s.Reason != stack.ReasonNone && r.img.Minor >= 12
}

func (r *Runtime) anyEvaluates(c []stack.Frame) bool {
	return slices.ContainsFunc(c, func(f stack.Frame) bool { return r.evaluates(f.Func) })
}

// fold moves an evaluating C function to its beginning.
func (r *Runtime) fold(f *stack.Frame) {
	if eval := r.Eval(); eval != 0 { // the compiler may have split it in two
		f.Func = eval
	}
	f.PC, f.Exact = f.Func, true
}

// Unread appends the C frames of a stack to out if none of its Python frames could be read, and
// returns it. A gap replaces the Python frames of each C function that evaluates. If there is none,
// Unread returns c. fold is as in Merge.
func (r *Runtime) Unread(out, c []stack.Frame, fold bool) (all []stack.Frame, gaps bool) {
	if !r.anyEvaluates(c) {
		return c, false
	}
	return r.Merge(out, c, 0, &Stack{Reason: stack.ReasonMemory}, fold), true
}

func (f *Frame) frame() stack.Frame {
	if f.Lost {
		return stack.Frame{PC: uint64(stack.ReasonMemory), CFA: f.Addr, Kind: stack.KindError}
	}
	fn := f.Code
	if f.Func != 0 {
		fn = f.Func
	}
	return stack.Frame{Func: fn, PC: fn + f.Off, CFA: f.Addr, Kind: stack.KindPython, Trust: stack.TrustTable, Exact: true}
}

// last returns the number of groups up to the last one, from g on, whose evaluation is the C frame
// in [lo, hi).
func (r *Runtime) last(s *Stack, g int, lo, hi uint64) int {
	for i := g; i < len(s.Groups); i++ {
		if a := s.Groups[i].Anchor; a >= lo && a < hi {
			return i + 1
		} else if a != 0 {
			break
		}
	}
	return g
}

// anchor pairs groups with evaluating C frames, from the outermost on.
func (r *Runtime) anchor(c []stack.Frame, s *Stack) {
	g := len(s.Groups)
	for i := range s.Groups {
		s.Groups[i].Anchor = 0
	}
	if s.Reason != stack.ReasonNone || len(c) > 0 && c[len(c)-1].Kind == stack.KindError {
		return // the outermost ones need not belong together
	}
	for i := len(c) - 1; i >= 0 && g > 0; i-- {
		if c[i].CFA != 0 && r.evaluates(c[i].Func) {
			g--
			s.Groups[g].Anchor = c[i].CFA - 1
		}
	}
}

// WithoutCFrame pairs groups and evaluations again if the outermost CFrame is in [lo, hi). In 3.10
// and 3.11, the greenlet module creates a CFrame for each greenlet that does not belong to an
// evaluation (g_initialstub, src/greenlet/TUserGreenlet.cpp of python-greenlet/greenlet 3.0).
func (r *Runtime) WithoutCFrame(s *Stack, lo, hi uint64) {
	n := len(s.anchors)
	if n == 0 || s.anchors[n-1] < lo || s.anchors[n-1] >= hi || r.img.Minor != 10 && r.img.Minor != 11 {
		return
	}
	s.anchors = s.anchors[:n-1]
	s.pair()
}

// Outermost reports whether all frames of s run inside of a C frame with the given cfa. evals is
// the number of evaluating C functions inside of it. If evaluations have anchors, Outermost
// compares these with cfa instead.
func (r *Runtime) Outermost(s *Stack, evals int, cfa uint64) bool {
	n := len(s.Groups)
	if n == 0 {
		return false
	}
	if r.Anchored() {
		return cfa != 0 && s.Groups[n-1].Anchor != 0 && s.Groups[n-1].Anchor < cfa
	}
	return evals == n || evals == n+1 // one is being entered
}

// Evaluates reports whether the function at fn runs Python code.
func (r *Runtime) Evaluates(fn uint64) bool { return r.evaluates(fn) }

// evaluates reports whether the function at fn runs Python code.
func (r *Runtime) evaluates(fn uint64) bool {
	return fn != 0 && (fn == r.Eval() || r.img.cold != 0 && fn == r.addr(r.img.cold))
}
