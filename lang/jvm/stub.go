package jvm

import "github.com/sliverprof/sliver/stack"

// stub walks over code that is not a method.
func (r *Runtime) stub(s *State, p *place, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	b, sp := p.b, s.R[rsp]
	if s.Exact && b.kind == kindStub && s.PC-(r.callReturn-stubBefore) < stubBefore+stubAfter {
		return r.callStub(s, b, out)
	}
	if b.upcall != nil {
		return b.upcall.step(r, s, b, out)
	}
	if b.kind == kindVtable && s.Exact {
		if ra, ok := s.word(sp); ok { // it pushes nothing, and continues in the method
			s.only(ra, sp+8)
			return out, stack.ReasonNone
		}
		return out, stack.ReasonMemory
	}
	for _, find := range stubExits {
		if x, ok := find(r, s, p); ok {
			return r.leaveStub(s, b, x, out), stack.ReasonNone
		}
	}
	f := r.machine(s, b, 0)
	if _, ok := s.word(sp + 8*maxScan); !ok {
		return append(out, f), stack.ReasonMemory
	}
	return append(out, f), stack.ReasonNoRule
}

// An exit is where a stub returns to.
type exit struct {
	cfa   uint64 // the caller's stack pointer
	ra    uint64 // return address
	trust stack.Trust
}

// stubExits are the ways to find a stub's exit. The first that succeeds decides, so the order is part
// of the result: the frame pointer and the stack's words come last, because they may be wrong. A way
// that succeeds also sets rbp to the caller's, if it can. One that fails leaves the registers as they
// are.
var stubExits = [...]func(*Runtime, *State, *place) (exit, bool){
	(*Runtime).exitThrown,   // C2's exception stub: the place that threw is in rdx or pushed first
	(*Runtime).exitDepth,    // interrupted: the code shows what it has pushed so far
	(*Runtime).exitPatching, // an adapter that patches a call keeps the caller's stack pointer in r13
	(*Runtime).exitPopped,   // an adapter that has popped the return address keeps it in rax
	(*Runtime).exitFrame,    // HotSpot states the frame's size
	(*Runtime).exitAhead,    // without a frame size: the code up to the return shows the depth
	(*Runtime).exitAssembly, // interrupted copies and computations push rbp first, if anything
	(*Runtime).exitPointer,  // rbp points to a frame; the caller may be a stub without one
	(*Runtime).exitScanned,  // the first word of the stack that looks like a return address
}

// leaveStub appends the frame of the stub at s, which returns to x, and moves s there.
func (r *Runtime) leaveStub(s *State, b *blob, x exit, out []stack.Frame) []stack.Frame {
	// Java returns to continuation stubs if its callers were left in the heap. Functions of the
	// virtual machine return there while these frames are moved.
	heap := b.continuation && !s.Exact
	n := len(out)
	java := n > 0 && out[n-1].Kind == stack.KindJava
	if heap && java {
		var ok bool
		if out, ok = r.inHeap(s, s.R[rsp], out); ok {
			heap = false
		}
	} else if !heap || n > 0 {
		f := r.machine(s, b, x.cfa)
		f.Trust = x.trust
		out = append(out, f)
	}
	if heap {
		s.Heap = true
		out = append(out, stack.Frame{PC: uint64(stack.ReasonHeap), Kind: stack.KindError})
	}
	s.only(x.ra, x.cfa)
	s.rebuilt = b.rebuilds
	return out
}

func (r *Runtime) exitThrown(s *State, p *place) (exit, bool) {
	if !p.b.exception {
		return exit{}, false
	}
	cfa, ra, ok := r.exception(s, p)
	return exit{cfa, ra, stack.TrustTable}, ok
}

func (r *Runtime) exitDepth(s *State, p *place) (exit, bool) {
	if !s.Exact {
		return exit{}, false
	}
	d, ok := p.depthBy(r.stubDepth, s.PC)
	if !ok {
		return exit{}, false
	}
	at := s.R[rsp] + d
	ra, ok := s.Words.Word(at)
	if !ok || !r.came(s, ra) {
		return exit{}, false
	}
	if up, ok := s.Words.Word(at - 8); ok && d >= 8 {
		s.R[rbp] = up
	}
	return exit{at + 8, ra, stack.TrustTable}, true
}

func (r *Runtime) exitPatching(s *State, p *place) (exit, bool) {
	if p.b.kind != kindAdapter || !s.above(r13) {
		return exit{}, false
	}
	ra, ok := r.returnAt(s, s.R[r13])
	return exit{s.R[r13] + 8, ra, stack.TrustTable}, ok
}

// exitPopped finds the exit of an adapter that has popped the return address to move arguments. If
// the caller's stack pointer differs, it is in r13.
func (r *Runtime) exitPopped(s *State, p *place) (exit, bool) {
	cfa := s.R[rsp]
	if _, ok := r.returnAt(s, cfa); ok || !s.Exact || p.b.kind != kindAdapter || !s.has(rax) || !r.returns(s, s.R[rax]) {
		return exit{}, false
	}
	if s.above(r13) {
		cfa = s.R[r13]
	}
	return exit{cfa, s.R[rax], stack.TrustTable}, true
}

func (r *Runtime) exitFrame(s *State, p *place) (exit, bool) {
	b, sp := p.b, s.R[rsp]
	if b.frame < 16 {
		return exit{}, false
	}
	ra, ok := s.Words.Word(sp + b.frame - 8)
	// In a safepoint or deoptimization stub it is the interrupted PC, which no call precedes.
	if !ok || !r.returns(s, ra) && (s.Exact && !b.rebuilds || !r.runs(s, ra)) {
		return exit{}, false
	}
	s.restore(rbp, sp+b.frame-16)
	return exit{sp + b.frame, ra, stack.TrustTable}, true
}

func (r *Runtime) exitAhead(s *State, p *place) (exit, bool) {
	if p.b.kind != kindOther || p.b.frame != 0 {
		return exit{}, false
	}
	d, ok := r.leads(p, s.PC)
	if !ok {
		return exit{}, false
	}
	at := s.R[rsp] + d
	ra, ok := s.Words.Word(at)
	return exit{at + 8, ra, stack.TrustTable}, ok && (r.returns(s, ra) || r.runs(s, ra))
}

func (r *Runtime) exitAssembly(s *State, p *place) (exit, bool) {
	if !s.Exact || p.b.kind != kindStub {
		return exit{}, false
	}
	ra, up, depth, ok := r.assembly(s)
	if ok {
		s.R[rbp] = up
	}
	return exit{s.R[rsp] + depth, ra, stack.TrustFP}, ok
}

func (r *Runtime) exitPointer(s *State, _ *place) (exit, bool) {
	if !s.above(rbp) {
		return exit{}, false
	}
	sp, fp := s.R[rsp], s.R[rbp]
	at := fp + slotReturn
	if v, ok := s.Words.Word(at); ok && v == ^uint64(0) {
		at += 8 // the entry barrier of a method has one more slot
	}
	ra, ok := r.returnAt(s, at)
	if !ok {
		return exit{}, false
	}
	// The caller is a stub without a frame.
	if near, ok := r.returnAt(s, sp); ok && s.Exact && fp != sp {
		return exit{sp + 8, near, stack.TrustScan}, true
	}
	s.restore(rbp, fp)
	return exit{at + 8, ra, stack.TrustFP}, true
}

func (r *Runtime) exitScanned(s *State, _ *place) (exit, bool) {
	for i := range uint64(maxScan) {
		at := s.R[rsp] + 8*i
		if ra, ok := r.returnAt(s, at); ok {
			return exit{at + 8, ra, stack.TrustScan}, true
		}
	}
	return exit{}, false
}

// returnAt returns the word at an address of the stack. ok reports whether it is the return address
// of a call from Java.
func (r *Runtime) returnAt(s *State, at uint64) (ra uint64, ok bool) {
	ra, ok = s.Words.Word(at)
	return ra, ok && r.returns(s, ra)
}

// above reports whether a register may be the stack pointer of a stub's caller, or point to a
// stub's frame.
func (s *State) above(reg int) bool {
	return s.has(reg) && s.R[reg] >= s.R[rsp] && s.R[reg]-s.R[rsp] < maxStubFrame
}

// assembly finds the caller of an interrupted stub that copies, compares or computes. Java and the
// virtual machine call these stubs. If they push anything, they push rbp first.
func (r *Runtime) assembly(s *State) (ra, up, depth uint64, ok bool) {
	sp, fp := s.R[rsp], s.R[rbp]
	if !s.has(rbp) {
		return 0, 0, 0, false
	}
	came := func(at uint64) bool {
		ra, ok = s.Words.Word(at)
		return ok && r.came(s, ra)
	}
	// If rbp is set up, the top of the stack belongs to the caller and may be any number.
	if sp != fp && came(sp) {
		return ra, fp, 8, true
	}
	top, _ := s.Words.Word(sp)
	switch {
	case top == fp && came(sp+8): // pushed
		return ra, fp, 16, true
	case fp >= sp && fp-sp < maxStubFrame && came(fp+slotReturn): // and set
		if up, ok = s.Words.Word(fp); ok {
			return ra, up, fp - sp + 16, true
		}
	case sp == fp && came(sp):
		return ra, fp, 8, true
	}
	return 0, 0, 0, false
}

// came reports whether addr is the return address of a call from Java, or from outside of the code
// cache: the virtual machine itself calls some stubs.
func (r *Runtime) came(s *State, addr uint64) bool {
	if r.Covers(addr) {
		return r.returns(s, addr)
	}
	var code [8]byte
	return s.Native != nil && s.Native(addr) && read(r.mem, code[:], addr-8) == nil && afterCall(code[:])
}

// leads returns the distance from the stack pointer up to the return address in a stub without a
// known frame size. It follows the code from pc on until it returns, or pops the address and jumps
// to it.
func (r *Runtime) leads(p *place, pc uint64) (depth uint64, ok bool) {
	if p.known&knownOut == 0 {
		p.known |= knownOut
		p.out, p.leaves = 0, false
		code := make([]byte, min(maxRestored*maxInst, p.b.end-min(pc, p.b.end)))
		if len(code) > 0 && read(r.mem, code, pc) == nil {
			switch w := follow(code, pc, maxRestored, true); {
			case w.end == endsReturn && w.rise >= 0:
				p.out, p.leaves = uint64(w.rise), true
			case w.end == endsBranch && w.popped >= 0:
				p.out, p.leaves = uint64(w.popped), true
			}
		}
	}
	return p.out, p.leaves
}

// exception walks over the stub to which C2's code jumps with an exception. rdx holds the place
// that threw it, and the stub pushes it first (generate_exception_blob in
// src/hotspot/cpu/x86/runtime_x86_64.cpp of 17 and 21, opto/…/runtime_x86_64.cpp of 25).
func (r *Runtime) exception(s *State, p *place) (cfa, ra uint64, ok bool) {
	b, sp := p.b, s.R[rsp]
	d, kept := b.frame, true
	if s.Exact && s.PC >= b.code && s.PC < min(b.end, b.code+maxRestored*maxInst) {
		code := make([]byte, s.PC-b.code)
		if len(code) > 0 && read(r.mem, code, b.code) != nil {
			return 0, 0, false
		}
		if n, ok := pushed(code, true); ok {
			d, kept = n, keeps(code)
		} else {
			code = make([]byte, min(maxRestored*maxInst, b.end-s.PC))
			if read(r.mem, code, s.PC) != nil {
				return 0, 0, false
			}
			if w := follow(code, s.PC, maxRestored, false); w.end == endsBranch && w.rise >= 0 {
				d, kept = uint64(w.rise), w.rise >= 16
			}
		}
	}
	if d < 8 {
		if !s.has(rdx) || !r.runs(s, s.R[rdx]) {
			return 0, 0, false
		}
		return sp, s.R[rdx], true
	}
	ra, ok = s.word(sp + d - 8)
	if !ok || !r.runs(s, ra) {
		return 0, 0, false
	}
	if kept && d >= 16 {
		s.restore(rbp, sp+d-16)
	}
	return sp + d, ra, true
}
