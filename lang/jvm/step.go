package jvm

import "github.com/sliverprof/sliver/stack"

// DWARF numbers of amd64 registers.
const (
	rax, rdx, rbx, rbp, rsp, r12, r13, r14, r15 = 0, 1, 3, 6, 7, 12, 13, 14, 15
)

// Slots of an interpreted frame, in words from its frame pointer (x86 of 17, 21 and
// 25: src/hotspot/cpu/x86/frame_x86.hpp), and the registers that the call stub saves
// (src/hotspot/cpu/x86/stubGenerator_x86_64.cpp, System V).
const (
	slotReturn = 8
	slotSender = ^uint64(8) + 1
	slotMethod = ^uint64(24) + 1
	slotBCP    = ^uint64(64) + 1
	savedRBX   = ^uint64(56) + 1
	savedR12   = ^uint64(64) + 1
	savedR13   = ^uint64(72) + 1
	savedR14   = ^uint64(80) + 1
	savedR15   = ^uint64(88) + 1
)

const (
	// maxInterpreted bounds an interpreted frame, in bytes: a method has at most 65,535 locals and
	// as many operand words.
	maxInterpreted = 1 << 20
	// maxStubFrame bounds a stub's frame, in bytes. maxScan bounds the words that are searched for a
	// return address if nothing shows its place.
	maxStubFrame = 4 << 10
	maxScan      = 96
	// maxPushed bounds the registers that compiled code keeps on the stack temporarily.
	maxPushed = 4
	// The call stub's code extends around its return address, in bytes.
	stubBefore = 384
	stubAfter  = 160
)

// Words reads 8 bytes of the copied stack.
type Words interface {
	Word(addr uint64) (uint64, bool)
}

// State is the position of a walk: at first the thread's registers, then the known registers of
// each caller.
type State struct {
	PC    uint64
	Exact bool // PC is the next instruction, not a return address
	R     [64]uint64
	Known uint64 // bit i: R[i] is known
	Words Words
	// Native reports whether an address may be a return address outside of the code cache. nil means
	// never.
	Native func(uint64) bool
	// Missing is the address of the unreadable word after ReasonMemory.
	Missing uint64
	// Heap says that frames of a virtual thread are in the heap. A KindError frame replaces them.
	Heap bool
	// Chunks returns the copy of the frames that the thread's virtual thread has in the heap, innermost
	// chunk first, and why outer ones are missing. nil means that there is none.
	Chunks func() ([]Chunk, stack.Reason)

	// Compiled is called for each frame of a compiled method that has made a call, before its activations are
	// appended as those from index first on. nil: for none.
	Compiled func(p *place, pc, cfa uint64, first int)

	rebuilt bool // the next frame may not be filled yet
	used    []use
	seen    map[use]struct{} // for Dedup
	held    map[use]struct{} // of the walks in batch: see Dedup
	batch   uint64
	chain   []scope
	places  map[uint64]*place // key: twice the address, plus one if exact
}

// use is a blob or a method that a walk relied on.
type use struct {
	b *blob
	m *method
}

// Begin resets the state of the previous walk.
func (s *State) Begin() { s.used, s.Heap, s.rebuilt = s.used[:0], false, false }

func (s *State) has(r int) bool { return s.Known>>r&1 != 0 }

func (s *State) word(addr uint64) (uint64, bool) {
	v, ok := s.Words.Word(addr)
	if !ok {
		s.Missing = addr
	}
	return v, ok
}

// only marks all registers of the caller as unknown, except for these.
func (s *State) only(pc, sp uint64) {
	s.PC, s.Exact = pc, false
	s.R[rsp] = sp
	s.Known = s.Known&(1<<rbp) | 1<<rsp
}

// restore reads a register from memory.
func (s *State) restore(r int, addr uint64) bool {
	v, ok := s.word(addr)
	if ok {
		s.R[r] = v
		s.Known |= 1 << r
	}
	return ok
}

// Step walks over the frame of code in the code cache at s. It appends the frame's activations,
// innermost first, and moves s to the caller. A frame of other code than a method (a stub) is of
// KindNative and also has an address in the table. If Step fails, s is unchanged, and the known
// part of the frame is appended anyway.
func (r *Runtime) Step(s *State, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	p, err := s.placeOf(r, s.PC, s.Exact)
	rebuilt := s.rebuilt
	s.rebuilt = false
	if err != nil {
		return append(out, stack.Frame{PC: s.PC, Exact: s.Exact}), stack.ReasonNoRule
	}
	b := p.b
	s.uses(b)
	if s.PC == r.callReturn && !s.Exact {
		return r.callStub(s, b, out)
	}
	switch b.kind {
	case kindInterpreter:
		return r.interpreted(s, b, rebuilt, out)
	case kindNmethod, kindNative:
		return r.compiled(s, p, out)
	}
	return r.stub(s, p, out)
}

// callStub walks from Java to the function of the virtual machine that called it.
func (r *Runtime) callStub(s *State, b *blob, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	fp := s.R[rbp]
	f := r.machine(s, b, fp+16)
	f.Func, f.PC = r.callStubFn, r.callStubFn
	f.Exact = true
	if !s.has(rbp) {
		f.CFA = 0
		return append(out, f), stack.ReasonRegister
	}
	out = append(out, f)
	was := *s
	ra, ok := s.word(fp + slotReturn)
	for _, x := range [...]struct {
		reg int
		off uint64
	}{{rbx, savedRBX}, {r12, savedR12}, {r13, savedR13}, {r14, savedR14}, {r15, savedR15}, {rbp, 0}} {
		ok = ok && s.restore(x.reg, fp+x.off)
	}
	if !ok {
		missing := s.Missing
		*s = was
		s.Missing = missing
		return out, stack.ReasonMemory
	}
	s.PC, s.Exact = ra, false
	s.R[rsp] = fp + 16
	s.Known = 1<<rbx | 1<<r12 | 1<<r13 | 1<<r14 | 1<<r15 | 1<<rbp | 1<<rsp
	return out, stack.ReasonNone
}

// machine returns the frame of code that is not a method.
func (r *Runtime) machine(s *State, b *blob, cfa uint64) stack.Frame {
	f := stack.Frame{Func: b.code, PC: s.PC, CFA: cfa, Trust: stack.TrustTable, Exact: s.Exact}
	if b.fn != 0 && s.PC-b.code < b.end-b.code {
		f.Func, f.PC = b.fn, b.fn+(s.PC-b.code)
	}
	return f
}

// java returns the frame of an activation of a method.
func java(m *method, bci int, cfa uint64, order int) stack.Frame {
	return stack.Frame{Func: m.fn, PC: m.place(bci), CFA: cfa, Kind: stack.KindJava, Trust: stack.TrustTable, Exact: true, Order: uint8(min(order, 255))}
}

// interpreted walks over an interpreted frame.
func (r *Runtime) interpreted(s *State, b *blob, rebuilt bool, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	fp, sp := s.R[rbp], s.R[rsp]
	if !s.has(rbp) || !s.has(rsp) {
		return append(out, r.machine(s, b, 0)), stack.ReasonRegister
	}
	if s.Exact {
		if o, done := r.entering(s, b, out); done {
			return o, stack.ReasonNone
		}
	}
	if fp < sp || fp-sp > maxInterpreted {
		if s.leave(r) {
			return out, stack.ReasonNone
		}
		return append(out, r.machine(s, b, 0)), stack.ReasonNoRule
	}
	m, bci, reason := r.slots(s, fp)
	if reason == stack.ReasonCorrupt && rebuilt {
		// Compiled frames are converted to interpreter frames, which are linked first and filled
		// later (src/hotspot/share/runtime/vframeArray.cpp).
		m, reason = nil, stack.ReasonNone
	}
	if reason != stack.ReasonNone {
		if s.leave(r) {
			return out, stack.ReasonNone
		}
		return append(out, r.machine(s, b, 0)), reason
	}
	ra, ok1 := s.word(fp + slotReturn)
	sender, ok2 := s.word(fp + slotSender)
	up, ok3 := s.word(fp)
	if m == nil {
		out = append(out, r.machine(s, b, fp+16))
	} else {
		out = append(out, java(m, bci, fp+16, 0))
	}
	if !ok1 || !ok2 || !ok3 {
		return out, stack.ReasonMemory
	}
	if sender <= fp || sender-fp > maxInterpreted {
		return out, stack.ReasonCorrupt
	}
	if m != nil {
		s.used = append(s.used, use{m: m})
	}
	s.rebuilt = rebuilt
	s.R[rbp] = up
	s.Known |= 1 << rbp
	s.only(ra, sender)
	return out, stack.ReasonNone
}

// slots reads the method of an interpreted frame and the position in it.
func (r *Runtime) slots(s *State, fp uint64) (m *method, bci int, why stack.Reason) {
	addr, ok := s.word(fp + slotMethod)
	if !ok {
		return nil, 0, stack.ReasonMemory
	}
	m, err := r.methodAt(addr)
	if err != nil {
		return nil, 0, stack.ReasonCorrupt
	}
	// While the method runs, the position is in a register that functions of the virtual machine
	// preserve.
	if s.has(r13) && s.R[r13]-m.code < m.size {
		return m, int(s.R[r13] - m.code), stack.ReasonNone
	}
	bcp, ok := s.word(fp + slotBCP)
	if !ok {
		return nil, 0, stack.ReasonMemory
	}
	if bcp-m.code < m.size {
		bci = int(bcp - m.code)
	}
	return m, bci, stack.ReasonNone
}

// entering walks over a method that is being entered. Its frame does not exist yet, rbx holds the
// method, and r13 the caller's stack pointer. done reports success.
func (r *Runtime) entering(s *State, b *blob, out []stack.Frame) ([]stack.Frame, bool) {
	fp, sp := s.R[rbp], s.R[rsp]
	sender := s.R[r13]
	if fp >= sp && fp-sp >= 8 && fp-sp < 24 { // the frame pointer was pushed, and r13 holds something else
		sender, _ = s.Words.Word(fp + slotSender)
	}
	if !s.has(r13) || !s.has(rbx) || !s.has(rax) || sender < sp || sender-sp > maxInterpreted || sender&7 != 0 {
		return out, false
	}
	var ra uint64
	up := fp
	top, ok := s.Words.Word(sp)
	if !ok {
		return out, false
	}
	second, _ := s.Words.Word(sp + 8)
	switch {
	case fp >= sp && fp-sp < 24: // the frame pointer was pushed and set
		v, ok1 := s.Words.Word(fp + slotReturn)
		u, ok2 := s.Words.Word(fp)
		if !ok1 || !ok2 {
			return out, false
		}
		ra, up = v, u
	case top == fp && r.returns(s, second): // the frame pointer was pushed
		ra = second
	case r.returns(s, top):
		ra = top
	case r.returns(s, s.R[rax]): // the return address was popped to make room for locals
		ra = s.R[rax]
	default:
		return out, false
	}
	if !r.returns(s, ra) {
		return out, false
	}
	m, err := r.methodAt(s.R[rbx])
	if err == nil {
		out = append(out, java(m, 0, sender, 0))
		s.used = append(s.used, use{m: m})
	}
	s.R[rbp] = up
	s.only(ra, max(sender, sp+8))
	return out, true
}

// leave walks over the end of an interpreted method. Its frame is gone. The return address is in
// r13 or at the top of the stack, and the caller's stack pointer is in rbx.
func (s *State) leave(r *Runtime) bool {
	sp := s.R[rsp]
	if ra, ok := s.Words.Word(sp); ok && s.has(rbx) && s.R[rbx] > sp && s.R[rbx]-sp < maxInterpreted && r.returns(s, ra) {
		s.only(ra, s.R[rbx])
		return true
	}
	if !s.Exact || !s.has(r13) || !r.returns(s, s.R[r13]) {
		return false
	}
	if s.has(rbx) && s.R[rbx] >= sp && s.R[rbx]-sp < maxInterpreted {
		sp = s.R[rbx]
	}
	s.only(s.R[r13], sp)
	return true
}

// returns reports whether addr is the return address of a call in the code cache.
func (r *Runtime) returns(s *State, addr uint64) bool {
	if !r.Covers(addr) {
		return false
	}
	if addr == r.callReturn {
		return true
	}
	p, err := s.placeOf(r, addr, false)
	if err != nil || addr-1 < p.b.code {
		return false
	}
	if p.known&knownCall == 0 {
		var code [8]byte
		p.call = p.b.kind == kindInterpreter || // it also gets returns to places that made no call
			read(r.mem, code[:], addr-8) == nil && afterCall(code[:])
		p.known |= knownCall
	}
	if p.call {
		s.uses(p.b)
	}
	return p.call
}

// runs reports whether addr is in code of the code cache.
func (r *Runtime) runs(s *State, addr uint64) bool {
	p, err := s.placeOf(r, addr, true)
	return err == nil && addr >= p.b.code
}

// compiled walks over a frame of a compiled method, or of a native method's wrapper.
func (r *Runtime) compiled(s *State, p *place, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	sp := s.R[rsp]
	pc, exact := s.PC, s.Exact
	b := p.b
	depth := max(b.frame, 8) - 8 // of the return address; method handle linkers have no frame
	n := b.nm
	if !exact && n.deopt != 0 && (pc == n.deopt || pc == n.deoptMH) && n.origPC != 0 {
		if v, ok := s.word(sp + n.origPC); ok && v > b.code && v <= b.end {
			if q, err := s.placeOf(r, v, false); err == nil && q.b == b {
				p, pc = q, v
			}
		}
	}
	if exact {
		depth = r.entered(s, p, depth)
	} else {
		sp += r.arguments(p, pc)
	}
	r.active(s, p, pc, exact)
	cfa := sp + depth + 8
	if s.Compiled != nil && !exact {
		s.Compiled(p, pc, cfa, len(out))
	}
	out = p.frames(cfa, out)
	ra, ok := s.word(cfa - 8)
	if !ok {
		return out, stack.ReasonMemory
	}
	if depth >= 8 && !(exact && r.early(p, pc)) { // pushed right below the return address
		if !s.restore(rbp, cfa-16) {
			return out, stack.ReasonMemory
		}
	}
	s.only(ra, cfa)
	return out, stack.ReasonNone
}

// early reports whether a compiled method was interrupted before it stored its caller's rbp, though
// its frame may already exist.
func (r *Runtime) early(p *place, pc uint64) bool {
	entry := p.b.entry(pc)
	if entry == 0 {
		return false
	}
	if p.known&knownEarly == 0 {
		code := make([]byte, min(pc-entry, maxPrologue*maxInst))
		p.early = len(code) == 0 || read(r.mem, code, entry) == nil && !keeps(code)
		p.known |= knownEarly
	}
	return p.early
}

// entry returns the entry of the method before pc, if its frame may be incomplete there. A method that is
// entered in a loop (on-stack replacement) has a second one: with C1 behind the first, whose frame
// complete covers (C1's emit_osr_entry, src/hotspot/share/c1/c1_LIRAssembler.cpp: openjdk/jdk@07a9cb5).
func (b *blob) entry(pc uint64) uint64 {
	switch {
	case b.complete > 0 && pc < b.code+b.complete:
		return b.code
	case b.nm != nil && b.nm.osr > b.code && b.nm.osr < b.end && pc >= b.nm.osr && pc-b.nm.osr <= maxPrologue*maxInst:
		return b.nm.osr
	}
	return 0
}

// arguments returns the number of bytes that were pushed for the call that returns to pc, from the
// instructions there that pop them. C1 pushes arguments for a type test. C2, from 21 on, does so
// for out-of-line calls (barriers of the collector), which preserve the registers.
func (r *Runtime) arguments(p *place, pc uint64) uint64 {
	if p.known&knownArguments != 0 {
		return p.arguments
	}
	b := p.b
	code := make([]byte, min(maxRestored*maxInst, b.end-min(pc, b.end)))
	if len(code) == 0 || read(r.mem, code, pc) != nil {
		return 0
	}
	p.known |= knownArguments
	const pop, popRBP = 0x58, 0x5d // register in the lowest three bits
	for _, c := range code[:min(4, len(code))] {
		if c&^7 != pop || c == popRBP {
			break
		}
		p.arguments += 8
	}
	if p.arguments == 0 {
		p.arguments, p.back = b.slow(code, pc, false)
	}
	return p.arguments
}

// slow recognizes out-of-line code of a compiled method. It returns how far the stack pointer is
// below that of the main code, and where the main code continues. It returns 0 if the code is not
// out of line or not understood.
func (b *blob) slow(code []byte, pc uint64, through bool) (depth, back uint64) {
	w := follow(code, pc, maxRestored, through)
	if w.end != endsJump || w.target < b.code || w.target >= b.end || w.rise <= 0 || w.rise > maxStubFrame {
		return 0, 0
	}
	return uint64(w.rise), w.target
}

// entered returns the distance from the stack pointer up to the return address where a compiled
// method was interrupted. whole is the distance in a complete frame.
func (r *Runtime) entered(s *State, p *place, whole uint64) uint64 {
	sp := s.R[rsp]
	returns := func(depth uint64) bool {
		v, ok := s.Words.Word(sp + depth)
		return !ok || r.returns(s, v) // outside of the copy, accept it
	}
	d, ok := p.depthBy(r.leafDepth, s.PC)
	if ok && returns(d) {
		return d
	}
	if returns(whole) {
		return whole
	}
	// Out of line, with registers kept on the stack.
	if b := p.b; b.complete > 0 && s.PC >= b.code+b.complete {
		code := make([]byte, min(maxRestored*maxInst, b.end-min(s.PC, b.end)))
		if len(code) > 0 && read(r.mem, code, s.PC) == nil {
			if d, back := b.slow(code, s.PC, true); d > 0 && returns(whole+d) {
				p.back = back
				return whole + d
			}
		}
	}
	// C2's array loops sometimes keep one or more registers on the stack.
	if b := p.b; b.complete > 0 && s.PC >= b.code+b.complete {
		for d := whole + 8; d <= whole+8*maxPushed; d += 8 {
			if returns(d) {
				return d
			}
		}
	}
	for _, d := range [...]uint64{0, 8} {
		if returns(d) {
			return d
		}
	}
	return whole
}

// leafDepth returns the distance from the stack pointer up to the return address where a compiled
// method stopped at pc. ok is false if its frame is complete.
func (r *Runtime) leafDepth(b *blob, pc uint64) (depth uint64, ok bool) {
	if entry := b.entry(pc); entry != 0 {
		if n := pc - entry; n <= maxPrologue*maxInst {
			code := make([]byte, n)
			if n == 0 {
				return 0, true
			}
			if read(r.mem, code, entry) == nil {
				if d, ok := pushed(code, entry == b.code); ok {
					return d, true
				}
			}
		}
	}
	return r.tail(b, pc)
}

// tail returns the distance from the stack pointer up to the return address if code at pc returns
// without a jump.
func (r *Runtime) tail(b *blob, pc uint64) (depth uint64, ok bool) {
	var code [maxAhead * 8]byte
	k := min(uint64(len(code)), b.end-pc)
	if read(r.mem, code[:k], pc) != nil {
		return 0, false
	}
	return popped(code[:k])
}

// stubDepth is leafDepth for code that is not a method.
func (r *Runtime) stubDepth(b *blob, pc uint64) (depth uint64, ok bool) {
	if d, ok := r.tail(b, pc); ok {
		return d, true
	}
	if n := pc - b.code; b.kind == kindOther && n < 1<<8 {
		code := make([]byte, n)
		if read(r.mem, code, b.code) == nil {
			return pushed(code, true)
		}
	}
	return 0, false
}

// active finds the active calls at a place. At a return address the result is exact. At most other
// places it uses the tables' next entry.
func (r *Runtime) active(s *State, p *place, pc uint64, exact bool) {
	if p.known&knownCalls != 0 {
		return
	}
	n := p.b.nm
	s.chain = s.chain[:0]
	if t, err := n.load(r); err == nil {
		at, same, ok := t.at(int32(pc - p.b.code))
		if !same && p.back != 0 { // out of line: use the place where it continues
			at, same, ok = t.at(int32(p.back - p.b.code))
			same = same || ok
		}
		if ok && (exact || same) {
			s.chain = t.chain(n.method, at, r.l.major < 20, s.chain)
		}
	}
	if len(s.chain) == 0 {
		s.chain = append(s.chain, scope{n.method, 0})
	}
	p.calls, p.known = p.calls[:0], p.known|knownCalls
	for i, x := range s.chain {
		c := active{bci: x.bci, order: len(s.chain) - 1 - i}
		if c.m, _ = n.resolve(r, x.method); c.m == nil {
			p.known &^= knownCalls // perhaps the next time
		}
		p.calls = append(p.calls, c)
	}
}
