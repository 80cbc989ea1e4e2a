package jvm

import "github.com/sliverprof/sliver/stack"

// stub walks over code that is no method's.
func (r *Runtime) stub(s *State, p *place, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	b := p.b
	sp, fp := s.R[rsp], s.R[rbp]
	if s.Exact && b.kind == kindStub && s.PC-(r.callReturn-stubBefore) < stubBefore+stubAfter {
		return r.callStub(s, b, out)
	}
	if b.kind == kindVtable && s.Exact {
		if ra, ok := s.word(sp); ok { // it pushes nothing, and goes on in the method
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
		// Java returns to the stubs of continuations where its callers were left in the
		// heap; functions of the virtual machine, while these are moved.
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
		// While it has the caller's call patched, it keeps its stack pointer there.
		if ra, ok := ret(s.R[r13]); ok {
			return done(s.R[r13]+8, ra, stack.TrustTable)
		}
	}
	if _, ok := ret(sp); !ok && s.Exact && b.kind == kindAdapter && s.has(rax) && r.returns(s, s.R[rax]) {
		// It has popped the return address to move arguments; the caller's stack
		// pointer is in r13 where that is to be another.
		cfa := sp
		if s.has(r13) && s.R[r13] >= sp && s.R[r13]-sp < maxStubFrame {
			cfa = s.R[r13]
		}
		return done(cfa, s.R[rax], stack.TrustTable)
	}
	if b.frame >= 16 {
		ra, ok := s.Words.Word(sp + b.frame - 8)
		// That of a safepoint or a deoptimization is where it happened, not a call.
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
			at += 8 // the barrier at a method's entry has a place of its own below
		}
		if ra, ok := ret(at); ok {
			// A stub without a frame stands above this one.
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

// assembly finds the caller of one of the stubs that copy, compare or compute, where it was
// interrupted. Java calls them, and the virtual machine too; they push rbp first, if they
// push anything.
func (r *Runtime) assembly(s *State) (ra, up, depth uint64, ok bool) {
	sp, fp := s.R[rsp], s.R[rbp]
	if !s.has(rbp) {
		return 0, 0, 0, false
	}
	came := func(at uint64) bool {
		ra, ok = s.Words.Word(at)
		return ok && r.came(s, ra)
	}
	// Where rbp is set, the top of the stack is the caller's, which may be any number.
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

// came reports whether addr is the return address of a call of Java, or of one outside of
// the code cache: the virtual machine itself calls some stubs.
func (r *Runtime) came(s *State, addr uint64) bool {
	if r.Covers(addr) {
		return r.returns(s, addr)
	}
	var code [8]byte
	return s.Native != nil && s.Native(addr) && read(r.mem, code[:], addr-8) == nil && afterCall(code[:])
}

// leads tells how far above the stack pointer the return address is in a stub that has no
// frame of a known size, by what its code does from pc on: it returns, or takes the address
// from the stack and jumps where that leads to.
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

// exception walks over the stub that C2's code jumps to with an exception, and with the
// place that threw it in rdx, which is pushed first (generate_exception_blob in
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
