package jvm

import (
	"io"
	"runtime"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Activation is a call of a method on the stack of a thread that does not run.
type Activation struct {
	Place      uint64 // a number of the method and the bytecode in it
	Class      uint64 // address of the method's Klass
	Name, Type string // of the method, as the class file has them
	File       string // "": unknown
	Line       int    // 0: unknown
	Native     bool
	// Low and End bound the words that only this activation uses, with those of the methods that are
	// compiled into it. Both are 0 if they are unknown, or belong to an activation further in.
	Low, End uint64
	// Slots are the addresses of words, or of halves of words, in which compiled code has references of this
	// activation.
	Slots []uint64
	// Enters says that this is the call with which a carrier thread enters a virtual thread: the
	// activations after it are the carrier's own.
	Enters bool
}

const (
	// maxActivations bounds the activations of one thread.
	maxActivations = 1 << 16
	// slotWrapper is where the call stub keeps its JavaCallWrapper, and slotLocals where an interpreted
	// frame keeps the place of its locals, from 21 on as a distance in words (src/hotspot/cpu/x86/frame_x86.hpp).
	slotWrapper = ^uint64(48) + 1
	slotLocals  = ^uint64(56) + 1
	accNative   = 0x100
	// maxChain bounds the frames of the virtual machine between a thread's registers and Java.
	maxChain = 256
)

// Copy is a HotSpot in memory that does not change: the stacks of its threads are walked without
// checks that they are still there. It belongs to one goroutine at a time.
type Copy struct {
	r     *Runtime
	state State

	wrapperAnchor, access uint64 // JavaCallWrapper._anchor, Method._access_flags
	frameData, frameJFA   uint64 // UpcallStub._frame_data_offset, UpcallStub::FrameData.jfa; none: before 25
	inJava                uint32 // the state of a thread that runs Java; 0: unknown
	known                 map[uint64]Activation
	chunkBytes            []byte
	offsets               map[*place][][]uint64 // distances of references from the stack pointer, by call
	slots                 map[int][]uint64      // addresses of references by the index of a frame
	given                 int                   // how many of the stack
}

// OnCopy reads a HotSpot as New does.
func OnCopy(img *Image, bias uint64, mem io.ReaderAt) (*Copy, error) {
	if runtime.GOARCH != "amd64" {
		return nil, &VersionError{Why: "on this machine they are not known"}
	}
	table := managed.NewTable(managed.Of(stack.KindJava), nil)
	r, err := New(img, bias, mem, table)
	if err != nil {
		return nil, err
	}
	r.apart = true
	r.Forget() // what New has read already has no place of its own
	g := &lookup{s: r.s}
	c := &Copy{r: r, wrapperAnchor: g.field("JavaCallWrapper._anchor"), access: g.field("Method._access_flags"),
		frameData: g.maybe("UpcallStub._frame_data_offset"), frameJFA: g.maybe("UpcallStub::FrameData.jfa"),
		inJava: uint32(r.s.value["_thread_in_Java"]), known: map[uint64]Activation{},
		offsets: map[*place][][]uint64{}, slots: map[int][]uint64{}}
	if err := g.err(r.Major); err != nil {
		return nil, err
	}
	c.state.Words = memoryWords{mem}
	c.state.Compiled = c.slotsIn
	c.state.Native = func(addr uint64) bool { return !r.Covers(addr) }
	return c, nil
}

// memoryWords reads words of a stack from memory.
type memoryWords struct{ mem io.ReaderAt }

// Word implements Words.
func (m memoryWords) Word(addr uint64) (uint64, bool) {
	v, err := word(m.mem, addr)
	return v, err == nil
}

// Covers reports whether addr is in the reserved range of the code cache.
func (c *Copy) Covers(addr uint64) bool { return c.r.Covers(addr) }

// anchor is where a thread left Java.
type anchor struct{ pc, sp, fp uint64 }

// anchorAt reads a JavaFrameAnchor whose fields are where those of a JavaThread would be that begins at
// base. ok is false if it cannot be read.
func (c *Copy) anchorAt(base uint64) (a anchor, ok bool) {
	l, w := c.r.l, c.state.Words
	var ok1, ok2 bool
	a.sp, ok = w.Word(base + l.anchorSP)
	a.pc, ok1 = w.Word(base + l.anchorPC)
	a.fp, ok2 = w.Word(base + l.anchorFP)
	if ok = ok && ok1 && ok2; ok && a.sp != 0 && a.pc == 0 {
		a.pc, ok = w.Word(a.sp - 8) // stored right below its stack pointer
	}
	return a, ok
}

// from puts the walk at an anchor.
func (c *Copy) from(a anchor) {
	s := &c.state
	s.PC, s.Exact, s.R[rsp], s.Known = a.pc, false, a.sp, 1<<rsp
	if a.fp != 0 {
		s.R[rbp], s.Known = a.fp, 1<<rsp|1<<rbp
	}
}

// begin puts the walk at the innermost Java frame of a thread. in is false if it has none.
func (c *Copy) begin(thread uint64, regs *stack.Regs) (in bool, why stack.Reason) {
	r, s := c.r, &c.state
	if regs != nil && r.Covers(regs.PC) {
		s.PC, s.Exact, s.Known = regs.PC, true, regs.Known
		copy(s.R[:], regs.R[:])
		return true, stack.ReasonNone
	}
	base := thread
	a, ok := c.anchorAt(base)
	if !ok {
		return false, stack.ReasonMemory
	}
	if a.sp != 0 {
		c.from(a)
		return true, stack.ReasonNone
	}
	state, err := half(r.mem, thread+r.l.threadState)
	if err != nil {
		return false, stack.ReasonMemory
	}
	if c.inJava == 0 || state != c.inJava || regs == nil {
		return false, stack.ReasonNone
	}
	return c.called(regs)
}

// called finds the Java code that has called a function of the virtual machine without an anchor: for such
// calls no thread stops at a safepoint. The virtual machine keeps frame pointers.
func (c *Copy) called(regs *stack.Regs) (in bool, why stack.Reason) {
	s, r := &c.state, c.r
	fp, sp := regs.R[rbp], regs.R[rsp]
	for range maxChain {
		ra, ok1 := s.Words.Word(fp + slotReturn)
		up, ok2 := s.Words.Word(fp)
		if fp < sp || fp&7 != 0 || !ok1 || !ok2 {
			break
		}
		if r.Covers(ra) {
			c.from(anchor{ra, fp + 16, up})
			return true, stack.ReasonNone
		}
		if up <= fp {
			break
		}
		fp = up
	}
	// A function without a frame of its own.
	for at := sp; at < sp+8*maxScan; at += 8 {
		if ra, ok := r.returnAt(s, at); ok {
			c.from(anchor{ra, at + 8, regs.R[rbp]})
			return true, stack.ReasonNone
		}
	}
	return false, stack.ReasonNoRule
}

// Stack returns the activations of a thread, innermost first. regs are its registers, nil if they are
// unknown; high is the end of its stack. The reason says why some are missing.
func (c *Copy) Stack(thread uint64, regs *stack.Regs, high uint64) (all []Activation, why stack.Reason) {
	s, r := &c.state, c.r
	s.Begin()
	c.given = 0
	s.Chunks = c.mounted(thread)
	in, why := c.begin(thread, regs)
	if !in {
		return nil, why
	}
	var frames []stack.Frame
	low := s.R[rsp]
	for len(all) < maxActivations {
		p, err := s.placeOf(r, s.PC, s.Exact)
		if err != nil {
			return all, stack.ReasonNoRule
		}
		b, sp, fp, framed := p.b, s.R[rsp], s.R[rbp], s.has(rbp)
		n := len(frames)
		var stop stack.Reason
		frames, stop = r.Step(s, frames)
		end := s.R[rsp]
		if b.kind == kindInterpreter && framed && stop == stack.ReasonNone {
			end = c.localsEnd(s.Words, fp, end)
		}
		for k := n; k < len(frames); k++ {
			f := &frames[k]
			if f.Kind == stack.KindError && why == stack.ReasonNone {
				why = stack.Reason(f.PC)
			}
			if f.Kind != stack.KindJava {
				continue
			}
			a, ok := c.take(frames, k)
			if !ok {
				why = stack.ReasonCorrupt
				continue
			}
			if end > low && stop == stack.ReasonNone {
				a.Low, a.End, low = low, end, end
			}
			all = append(all, a)
		}
		clear(c.slots)
		if stop != stack.ReasonNone {
			return all, stop
		}
		if s.R[rsp] <= sp && len(all) > 0 || s.R[rsp] > high {
			return all, stack.ReasonCorrupt
		}
		if r.Covers(s.PC) {
			continue
		}
		a, ok := c.outer(b, sp, fp, framed)
		a, ok = c.entering(thread, b.upcall != nil && len(all) == 0, a, ok)
		if !ok {
			return all, stack.ReasonNoRule
		}
		if a.sp == 0 {
			return all, why
		}
		if a.sp < s.R[rsp] || a.sp > high || !r.Covers(a.pc) {
			return all, stack.ReasonCorrupt
		}
		c.from(a)
		low = a.sp
	}
	return all, stack.ReasonBound
}

// entering returns a, the anchor in a frame. Where that is of an upcall stub which has called no Java code, the thread's
// own comes first, if it has one. The frame has the anchor from the return of UpcallLinker::on_entry on, which then
// clears that of the thread, until on_exit sets it again.
func (c *Copy) entering(thread uint64, stub bool, a anchor, ok bool) (anchor, bool) {
	if !stub {
		return a, ok
	}
	if own, set := c.anchorAt(thread); set && own.sp != 0 {
		return own, true
	}
	return a, ok
}

// outer returns where the thread was in Java before it called the code from which the blob was entered. sp
// and fp are of the blob's frame.
func (c *Copy) outer(b *blob, sp, fp uint64, framed bool) (a anchor, ok bool) {
	r, l := c.r, c.r.l
	if b.upcall != nil {
		if c.frameData == none || c.frameJFA == none {
			return a, false
		}
		off, err := half(r.mem, b.addr+c.frameData)
		if err != nil || off > maxStubFrame {
			return a, false
		}
		return c.anchorIn(sp + uint64(off) + c.frameJFA)
	}
	if b.kind != kindStub || r.callReturn < b.code || r.callReturn > b.end || !framed {
		return a, false
	}
	wrapper, ok := c.state.Words.Word(fp + slotWrapper)
	if !ok || wrapper < sp || wrapper&7 != 0 || l.anchorSP == 0 {
		return a, false
	}
	return c.anchorIn(wrapper + c.wrapperAnchor)
}

// anchorIn reads the JavaFrameAnchor at addr.
func (c *Copy) anchorIn(addr uint64) (a anchor, ok bool) {
	return c.anchorAt(addr - c.r.l.anchor)
}

// localsEnd returns the end of the locals of the interpreted frame at fp, of which the parameters are above
// end among its caller's words.
func (c *Copy) localsEnd(words Words, fp, end uint64) uint64 {
	v, ok := words.Word(fp + slotLocals)
	if !ok {
		return end
	}
	if v < maxInterpreted {
		v = fp + 8*v
	}
	if v += 8; v&7 != 0 || v < end || v-end > maxInterpreted {
		return end
	}
	return v
}

// activation returns the activation of a frame, without its words.
func (c *Copy) activation(f *stack.Frame) (a Activation, ok bool) {
	r := c.r
	a, ok = c.known[f.PC]
	if ok {
		return a, true
	}
	r.mu.Lock()
	m := r.byFn[f.Func]
	r.mu.Unlock()
	fn := r.table.Find(f.Func)
	if m == nil || fn == nil {
		return a, false
	}
	a = Activation{Place: f.PC, Class: m.holder, Name: m.name[strings.LastIndexByte(m.name, '.')+1:], Type: m.sig, File: m.file, Line: fn.Line(f.PC)}
	var flags [2]byte
	if read(r.mem, flags[:], m.addr+c.access) == nil {
		a.Native = u16(flags[:], 0)&accNative != 0
	}
	a.Enters = m.name == "jdk.internal.vm.Continuation.enterSpecial"
	if len(c.known) >= maxKept {
		clear(c.known)
	}
	c.known[f.PC] = a
	return a, true
}

// mounted returns the function for State.Chunks of a thread; nil: it carries no virtual thread.
func (c *Copy) mounted(thread uint64) func() ([]Chunk, stack.Reason) {
	at, is, err := c.r.Carrier(thread)
	if err != nil || !is {
		return nil
	}
	own, ok1 := c.state.Words.Word(at.Own)
	now, ok2 := c.state.Words.Word(at.Mounted)
	if !ok1 || !ok2 || own == now {
		return nil
	}
	return func() ([]Chunk, stack.Reason) {
		if !c.r.HasChunks() && c.r.FindChunks(at) != nil {
			return nil, stack.ReasonHeap
		}
		var chunks []Chunk
		var why stack.Reason
		chunks, c.chunkBytes, why = c.r.Chunks(at, now, nil, c.chunkBytes[:0])
		return chunks, why
	}
}

// Mounted returns the virtual thread that a thread carries now, 0: none.
func (c *Copy) Mounted(thread uint64) uint64 {
	at, is, err := c.r.Carrier(thread)
	if err != nil || !is {
		return 0
	}
	v, err := c.r.look()
	if err != nil {
		return 0
	}
	own, now := v.decode(v.word(at.Own)), v.decode(v.word(at.Mounted))
	if v.err != nil || own == now {
		return 0
	}
	return now
}

// Parked returns the activations of a virtual thread that no thread carries, innermost first. Their words
// are in the heap.
func (c *Copy) Parked(thread uint64) (all []Activation, why stack.Reason) {
	r := c.r
	v, err := r.look()
	if err != nil {
		return nil, stack.ReasonMemory
	}
	if !r.HasChunks() && r.findChunks(v, thread) != nil {
		return nil, stack.ReasonNone // it has none
	}
	var chunks []Chunk
	if chunks, c.chunkBytes, why = r.chunksOf(v, thread, nil, c.chunkBytes[:0]); why == stack.ReasonHeap {
		return nil, why
	}
	words := c.state.Words
	c.given = 0
	defer func() { c.state.Words = words }()
	var frames []stack.Frame
	for i := range chunks {
		var stop stack.Reason
		frames, stop = r.inChunk(&c.state, &chunks[i], frames[:0])
		low := chunks[i].Addr + chunkHead
		for k := range frames {
			f := &frames[k]
			if f.Kind != stack.KindJava {
				continue
			}
			a, ok := c.take(frames, k)
			if !ok {
				stop = stack.ReasonCorrupt
				continue
			}
			end := f.CFA
			if _, compiled := c.slots[k]; !compiled {
				end = c.localsEnd(words, end-16, end)
			}
			if end > low {
				a.Low, a.End, low = low, end, end
			}
			all = append(all, a)
		}
		clear(c.slots)
		if stop != stack.ReasonNone {
			return all, stop
		}
	}
	return all, why
}
