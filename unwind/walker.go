package unwind

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	// MaxDepth bounds the frames of one stack.
	MaxDepth = 65536
	// maxTurns bounds the switches to another stack in one walk (signal handlers, goroutines),
	// because the stack pointer need not rise there.
	maxTurns = 64
	// maxFrame bounds a frame that is found by its frame pointer alone.
	maxFrame = 256 << 10
	// maxSignalFrame bounds what the kernel puts on the stack for a signal: registers and vector state.
	maxSignalFrame = 32 << 10
	// numRegs is the number of tracked registers: those of stack.Regs.
	numRegs = 33
	// pacMask selects the address bits of a code pointer on arm64. The bits above hold the pointer
	// authentication signature and the tag. User addresses have 48 bits unless a program requests
	// more with a hint to mmap, which no loader does for code (Linux
	// Documentation/arch/arm64/memory.rst).
	pacMask = 1<<48 - 1
)

// A Walker turns copied registers and memory into frames. It has a cache of compiled rules and must
// be used by one goroutine.
type Walker struct {
	space      *Space
	arch       rule.Arch
	sp, fp, ra int

	snap  *snapshot
	with  *runtimes // taking part in the walk
	cache cache
	rules []slowRule
	tmp   slowRule

	meter  meter.Meter // the target's current memory, for runtimes' data
	spare  int         // bytes of meter.Budget to leave unread; tests set it
	frames []stack.Frame
	slots  slots // what languages keep
	th     *Thread
	addr   uint64 // of the stack's copy
	data   []byte // the stack's copy
	mem    *Copy
	leaf   *stack.Regs // registers at the start of the walk
	at     stack.Regs  // leaf of a thread in the trap of a probe: see trapped
	regs   [64]uint64  // the first numRegs are used; 64 makes every index valid
	known  uint64
	saved  [64]uint64

	parked  []byte // for WalkParked
	nobody  Thread // for WalkParked, whose stacks have no thread
	first   uint64 // stack pointer at the leaf
	ended   bool   // a runtime ended the stack earlier than machine code shows
	seen    uint8  // flags of all entries
	stale   bool   // see Replaced
	null    bool   // the walk ended at a return address of 0
	reach   uint64 // see Reach
	end     uint64 // StackEnd, if settle has moved the CFAs since; 0: use the CFAs
	crossed bool   // see Crossed
	turns   int    // number of switches to another stack
	turn    uint64 // stack pointer after the last switch
	buf     [8]byte
	bases   map[uint64]base // by pc; see frameBase

	marked    []*module // see replaced
	markSpans []stack.Span
	markOff   []int
	markBuf   []byte

	missing uint64 // address of the unreadable word
	wanted  uint64 // the same for a word of Needed; 0: none
}

// NewWalker returns a walker over a space.
func NewWalker(s *Space) *Walker {
	w := &Walker{space: s, snap: s.snap.Load(), with: &runtimes{}, arch: s.arch, sp: s.arch.SP(), fp: s.arch.FP(), ra: s.arch.RA()}
	w.frames = make([]stack.Frame, 0, 256)
	w.cache.reset()
	return w
}

// forget drops all cached rules.
func (w *Walker) forget() {
	w.cache.reset()
	clear(w.bases)
	clear(w.rules)
	w.rules = w.rules[:0]
}

// Walk returns th's stack, leaf first, from its registers and the copy of its memory. If the stack
// cannot be followed to the thread's first function, the last frame is a KindError frame with the
// reason as its PC. After ReasonUnmapped, re-read the mappings (Space.Update) and walk the same
// copy again: the target may have loaded code since.
//
// The frames are valid until the next call. With warm caches, Walk does not allocate.
func (w *Walker) Walk(th *Thread, regs *stack.Regs, mem *Copy) ([]stack.Frame, stack.Reason) {
	return w.walkFrom(th, regs, mem, true)
}

// walkFrom is Walk. exact is false if the PC is a return address.
func (w *Walker) walkFrom(th *Thread, regs *stack.Regs, mem *Copy, exact bool) ([]stack.Frame, stack.Reason) {
	if s := w.space.snap.Load(); s != w.snap {
		if w.snap.epoch != s.epoch {
			w.forget()
		}
		w.snap = s
	}
	w.mem, w.addr, w.data = mem, 0, nil
	if n := len(mem.Blocks); n > 0 {
		w.addr, w.data = mem.Blocks[n-1].Addr, mem.Blocks[n-1].Data
	}
	w.beginReads()
	defer w.meter.End()
	th.knowTLS(regs)
	if exact && w.snap.probed && w.trapped(regs.PC) {
		w.at = *regs
		w.at.PC--
		regs = &w.at
	}
	w.leaf, w.th = regs, th
	w.begin(regs)
	w.with = w.space.runtimes.Load()
	th.with |= w.with.all
	for _, s := range w.with.steppers {
		s.Begin(w, th, regs)
	}
	reason := stack.ReasonEmpty
	if w.known>>w.sp&1 != 0 {
		reason = w.walkAll(th, regs, exact)
	}
	th.wiser = false
	if again := w.stale; w.seen&flagLoose != 0 {
		w.stale = w.replaced(again)
	} else {
		w.stale = false
	}
	if w.stale {
		w.forget() // the rules belong to another file
	}
	reason = w.judge(th, reason)
	w.learn(th, reason)
	w.end = 0
	for _, s := range w.with.steppers {
		s.Settle(w, th)
	}
	if reason != stack.ReasonNone {
		w.frames = append(w.frames, stack.Frame{PC: uint64(reason), Kind: stack.KindError})
	}
	frames := w.frames
	th.report, w.ended = Report{}, false
	for _, s := range w.with.steppers {
		frames = s.Merge(w, th, frames)
		th.report.add(s.Report(th))
	}
	if w.ended {
		reason = stack.ReasonNone
	}
	return frames, reason
}

// beginReads starts the budget for reads of the target's current memory.
func (w *Walker) beginReads() {
	w.meter.Begin(w.space.mem, &w.space.credit)
	_ = w.meter.Charge(w.spare)
}

// begin sets the walk to the thread's registers.
func (w *Walker) begin(regs *stack.Regs) {
	w.frames = w.frames[:0]
	copy(w.regs[:], regs.R[:])
	w.known = regs.Known & (1<<numRegs - 1)
	w.turns, w.turn, w.first, w.wanted, w.missing, w.null, w.seen, w.crossed = 0, 0, w.regs[w.sp], 0, 0, false, 0, false
}

// StackEnd returns the outermost CFA of the last walk on the stack where it started, or 0 if none
// is known.
func (w *Walker) StackEnd() uint64 {
	if w.end != 0 {
		return w.end
	}
	return w.stackEnd()
}

func (w *Walker) stackEnd() (end uint64) {
	for i := range w.frames {
		switch cfa := w.frames[i].CFA; {
		case cfa > end:
			end = cfa
		case cfa != 0 && cfa < end:
			return end
		}
	}
	return end
}

func (w *Walker) learn(th *Thread, reason stack.Reason) {
	if w.mem.Past && reason != stack.ReasonNone && (reason != stack.ReasonShort || w.turned()) {
		return // what to copy next time is not planned by th
	}
	switch reason {
	case stack.ReasonNone:
		for i := len(w.frames) - 1; i >= 0; i-- {
			// The CFA of start code without tables is unknown.
			if cfa := w.frames[i].CFA; cfa != 0 {
				th.complete(w.first, cfa, w.turns > 0)
				break
			}
		}
	case stack.ReasonMemory:
		if w.wanted != 0 {
			th.elsewhere(w.wanted, w.wanted, w.snap.find(w.wanted))
		}
	case stack.ReasonShort:
		if w.turned() {
			th.elsewhere(w.turn, w.missing, w.snap.find(w.missing))
			return
		}
		th.short(w.first, w.addr+uint64(len(w.data)), w.missing)
	}
}

// A position is a frame that a walk has reached and not appended yet.
type position struct {
	pc, sp uint64
	exact  bool // pc is not a return address
	trust  stack.Trust
}

// key is the address whose rule applies.
func (p *position) key() uint64 {
	if p.exact {
		return p.pc
	}
	return p.pc - 1
}

// walk appends frames until the stack ends (ReasonNone) or cannot be followed.
func (w *Walker) walk(pc uint64, exact bool) stack.Reason {
	p := position{pc: pc, sp: w.regs[w.sp&63], exact: exact, trust: stack.TrustRegs}
	for {
		e, reason, ended := w.walkFast(&p)
		if ended {
			return reason
		}
		if e == nil {
			if e, reason = w.compile(p.key(), p.pc); e == nil {
				// Keep a leaf's PC even if no code is known there.
				if reason != stack.ReasonUnmapped || len(w.frames) == 0 {
					w.frames = append(w.frames, stack.Frame{PC: p.pc, Trust: p.trust, Exact: p.exact})
				}
				return reason
			}
		}
		if e.op == opFast {
			continue // it was compiled just now
		}
		w.seen |= e.flags
		s := w.slow(e, p.pc, p.sp, p.exact, p.trust)
		if s.End || s.Reason != stack.ReasonNone {
			return s.Reason
		}
		p = position{s.PC, w.regs[w.sp&63], s.Exact, s.Trust}
	}
}

// walkFast appends frames as long as their entries are cached and fast. This is where the time of a
// walk goes, so it keeps the walker's fields in variables. ended reports that the walk is over, for
// the reason given. Otherwise p is the next frame, and next its entry, nil if none is cached.
func (w *Walker) walkFast(p *position) (next *entry, reason stack.Reason, ended bool) {
	var (
		pc     = p.pc
		sp     = p.sp
		exact  = p.exact
		trust  = p.trust
		frames = w.frames
		spReg  = w.sp & 63
		arm    = w.arch == rule.ARM64
		addr   = w.addr
		data   = w.data
	)
	if len(data) < 8 {
		data = nil
	}
	for len(frames) < MaxDepth {
		key := pc
		if !exact {
			key--
		}
		e := w.cache.find(key)
		if e == nil || e.op != opFast {
			*p, w.frames = position{pc, sp, exact, trust}, frames
			return e, stack.ReasonNone, false
		}
		cfa := w.regs[e.cfaReg&63] + uint64(int64(e.cfaOff))
		frames = append(frames, stack.Frame{Func: e.fn, PC: pc, CFA: cfa, Kind: e.kind(), Trust: trust, Exact: exact, Part: e.flags&flagPart != 0, Era: e.era})
		w.seen |= e.flags
		if w.known>>(e.cfaReg&63)&1 == 0 {
			fp, ok := w.frameBase(e, pc, sp)
			if !ok {
				frames[len(frames)-1].CFA = 0
				w.frames = frames
				return nil, stack.ReasonRegister, true
			}
			cfa = fp + uint64(int64(e.cfaOff))
			frames[len(frames)-1].CFA = cfa
		}
		if cfa <= sp && !(exact && cfa == sp && e.raOff == 0) {
			w.frames = frames
			return nil, stack.ReasonLoop, true
		}
		var ra uint64
		a := cfa - uint64(e.raOff)*8
		if o := a - addr; e.raOff != 0 && data != nil && o <= uint64(len(data)-8) {
			ra = binary.LittleEndian.Uint64(data[o : o+8])
		} else {
			v, lack := w.returnAddress(e, a)
			if lack != stack.ReasonNone {
				w.frames = frames
				return nil, lack, true
			}
			ra = v
		}
		for i := range min(e.n, maxFast) {
			a := cfa - uint64(e.off[i])*8
			reg := e.reg[i] & 63
			if o := a - addr; data != nil && o <= uint64(len(data)-8) {
				w.regs[reg] = binary.LittleEndian.Uint64(data[o : o+8])
				w.known |= 1 << reg
			} else {
				w.load(reg, a, sp)
			}
		}
		sp = cfa
		w.regs[spReg] = cfa
		w.known |= 1 << spReg
		if arm {
			w.regs[rule.ARM64RA] = ra
			w.known |= 1 << rule.ARM64RA
			ra &= pacMask
		}
		if ra == 0 {
			w.frames, w.null = frames, true
			return nil, stack.ReasonNone, true
		}
		if ra == pc && e.raOff == 0 && !exact {
			w.frames = frames
			return nil, stack.ReasonLoop, true // it would return to itself
		}
		pc, exact, trust = ra, false, e.trust()
	}
	w.frames = frames
	return nil, stack.ReasonDeep, true
}

// returnAddress returns the return address of e that is not in the stack's copy: it is at addr, or in
// the link register.
func (w *Walker) returnAddress(e *entry, addr uint64) (uint64, stack.Reason) {
	if e.raOff == 0 {
		if w.known>>rule.ARM64RA&1 == 0 {
			return 0, stack.ReasonRegister
		}
		return w.regs[rule.ARM64RA], stack.ReasonNone
	}
	v, ok := w.word(addr)
	if !ok {
		return 0, w.lack(addr)
	}
	return v, stack.ReasonNone
}

// word reads 8 bytes of the copy.
func (w *Walker) word(addr uint64) (uint64, bool) {
	if o := addr - w.addr; o < uint64(len(w.data)) && uint64(len(w.data))-o >= 8 {
		return binary.LittleEndian.Uint64(w.data[o:]), true
	}
	if v, ok := w.mem.Word(addr); ok || w.mem.Live == nil {
		return v, ok
	}
	return readWord(w.mem.Live, w.buf[:8], addr)
}

func readWord(m Memory, b []byte, addr uint64) (uint64, bool) {
	if addr > 1<<63-8 {
		return 0, false
	}
	if n, _ := m.ReadAt(b, int64(addr)); n < 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

// load restores a register from memory, in a frame whose stack pointer is sp. If that fails, the register
// becomes unknown, which matters only if it is needed.
func (w *Walker) load(reg uint8, addr, sp uint64) {
	v, ok := w.word(addr)
	if !ok {
		if !popped(addr, sp) {
			w.known &^= 1 << (reg & 63)
		}
		return
	}
	w.regs[reg&63] = v
	w.known |= 1 << (reg & 63)
}

// popped reports whether a saved register is below its frame's stack pointer. The function is at its end and
// has restored the register, but the tables of GCC name the place until the return; the kernel copies no stack
// from there.
func popped(addr, sp uint64) bool { return addr < sp }

// lack returns why the word at addr is missing from the copy.
func (w *Walker) lack(addr uint64) stack.Reason {
	w.missing = addr
	if w.turned() {
		if addr-w.turn < MaxStack {
			return stack.ReasonShort
		}
		return stack.ReasonMemory
	}
	end := w.addr + uint64(len(w.data))
	if len(w.mem.Blocks) == 0 || addr+8 < addr || addr+8 <= end || addr-w.addr >= 2*MaxStack {
		return stack.ReasonMemory
	}
	// Memory above the copy is more of the stack if it is in the same mapping.
	if r := w.snap.find(w.addr); r != nil && addr >= r.end {
		return stack.ReasonMemory
	}
	return stack.ReasonShort
}

// turned reports whether the walk has left the stack that was copied as the thread's own.
func (w *Walker) turned() bool {
	return w.turns > 0 && w.turn-w.addr >= uint64(max(len(w.data), 1))
}
