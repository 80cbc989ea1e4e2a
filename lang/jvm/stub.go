package jvm

import "github.com/sliverprof/sliver/stack"

// stub walks over code that is not a method.
func (r *Runtime) stub(s *State, p *place, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	b := p.b
	sp, fp := s.R[rsp], s.R[rbp]
	if s.Exact && b.kind == kindStub && s.PC-(r.callReturn-stubBefore) < stubBefore+stubAfter {
		return r.callStub(s, b, out)
	}
	if b.kind == kindVtable && s.Exact {
		if ra, ok := s.word(sp); ok { // it pushes nothing, and continues in the method
			s.only(ra, sp+8)
			return out, stack.ReasonNone
		}
		return out, stack.ReasonMemory
	}
	ret := func(at uint64) (uint64, bool) {
		v, ok := s.Words.Word(at)
		return v, ok && r.returns(s, v)
	}
	done := func(cfa, ra uint64, trust stack.Trust) ([]stack.Frame, stack.Reason) {
		// Java returns to continuation stubs if its callers were left in the heap. Functions of the
		// virtual machine return there while these frames are moved.
		heap := b.continuation && !s.Exact
		if n := len(out); !heap || n > 0 && out[n-1].Kind != stack.KindJava {
			f := r.machine(s, b, cfa)
			f.Trust = trust
			out = append(out, f)
		}
		if heap {
			s.Heap = true
			out = append(out, stack.Frame{PC: uint64(stack.ReasonHeap), Kind: stack.KindError})
		}
		s.only(ra, cfa)
		s.rebuilt = b.rebuilds
		return out, stack.ReasonNone
	}
	if b.exception {
		if cfa, ra, ok := r.exception(s, p); ok {
			return done(cfa, ra, stack.TrustTable)
		}
	}
	if s.Exact {
		if d, ok := p.depthBy(r.stubDepth, s.PC); ok {
			if ra, ok := s.Words.Word(sp + d); ok && r.came(s, ra) {
				if up, ok := s.Words.Word(sp + d - 8); ok && d >= 8 {
					s.R[rbp] = up
				}
				return done(sp+d+8, ra, stack.TrustTable)
			}
		}
	}
	if b.kind == kindAdapter && s.has(r13) && s.R[r13] >= sp && s.R[r13]-sp < maxStubFrame {
		// While the adapter patches the caller's call, r13 holds its stack pointer.
		if ra, ok := ret(s.R[r13]); ok {
			return done(s.R[r13]+8, ra, stack.TrustTable)
		}
	}
	if _, ok := ret(sp); !ok && s.Exact && b.kind == kindAdapter && s.has(rax) && r.returns(s, s.R[rax]) {
		// It has popped the return address to move arguments. If the caller's stack pointer differs,
		// it is in r13.
		cfa := sp
		if s.has(r13) && s.R[r13] >= sp && s.R[r13]-sp < maxStubFrame {
			cfa = s.R[r13]
		}
		return done(cfa, s.R[rax], stack.TrustTable)
	}
	if b.frame >= 16 {
		ra, ok := s.Words.Word(sp + b.frame - 8)
		// In a safepoint or deoptimization stub it is the interrupted PC, which no call precedes.
		if ok && (r.returns(s, ra) || (!s.Exact || b.rebuilds) && r.runs(s, ra)) {
			s.restore(rbp, sp+b.frame-16)
			return done(sp+b.frame, ra, stack.TrustTable)
		}
	}
	if b.kind == kindOther && b.frame == 0 {
		if d, ok := r.leads(p, s.PC); ok {
			if ra, ok := s.Words.Word(sp + d); ok && (r.returns(s, ra) || r.runs(s, ra)) {
				return done(sp+d+8, ra, stack.TrustTable)
			}
		}
	}
	if s.Exact && b.kind == kindStub {
		if ra, up, depth, ok := r.assembly(s); ok {
			s.R[rbp] = up
			return done(sp+depth, ra, stack.TrustFP)
		}
	}
	if s.has(rbp) && fp >= sp && fp-sp < maxStubFrame {
		at := fp + slotReturn
		if v, ok := s.Words.Word(at); ok && v == ^uint64(0) {
			at += 8 // the entry barrier of a method has one more slot
		}
		if ra, ok := ret(at); ok {
			// The caller is a stub without a frame.
			if near, ok := ret(sp); ok && s.Exact && fp != sp {
				return done(sp+8, near, stack.TrustScan)
			}
			s.restore(rbp, fp)
			return done(at+8, ra, stack.TrustFP)
		}
	}
	for i := range uint64(maxScan) {
		ra, ok := ret(sp + 8*i)
		if !ok {
			continue
		}
		return done(sp+8*i+8, ra, stack.TrustScan)
	}
	f := r.machine(s, b, 0)
	if _, ok := s.word(sp + 8*maxScan); !ok {
		return append(out, f), stack.ReasonMemory
	}
	return append(out, f), stack.ReasonNoRule
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
		if n, ok := pushed(code); ok {
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
