package gopcln

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// maxRoom is how many bytes asmcgocall takes of the system stack at most, with
// what aligns it: 64 and 8 up to 1.21.
const maxRoom = 80

// maxMcall is more than arm64's mcall has of code, in bytes.
const maxMcall = 256

// Step says how Cross left the registers.
type Step uint8

// Steps.
const (
	Apply Step = iota // the rule holds for the registers as they are now: apply it
	Jump              // the registers are the caller's, the PC is a return address
	Exact             // the registers are the caller's, the PC is the instruction that it runs next
	Base              // the walk is complete here
	Lost              // the way on could not be read
)

func (s Step) String() string {
	return [...]string{"apply", "jump", "exact", "base", "lost"}[min(s, Lost)]
}

// Cross takes a walk over to the stack that goes on, at a frame whose rule is
// GoSwitch, GoCgocallback or GoSigtramp. regs are the frame's registers, exact
// says that its PC is not a return address. Until the next frame SP may have
// gone anywhere. Begin must have been called for this sample.
func (t *Thread) Cross(r *rule.Rule, regs *stack.Regs, exact bool, mem rule.Words) Step {
	arch := t.rt.table.arch
	if r.Special == rule.GoSigtramp {
		cfa := regs.R[r.CFAReg&31] + uint64(int64(r.CFAOff))
		if SignalContext(arch, cfa, mem, regs) {
			if at := regs.R[arch.SP()]; arch == rule.AMD64 {
				// The handler makes it look as if the function had made a call: it has
				// pushed the return address, and not set the PC yet
				// (src/runtime/signal_amd64.go, pushCall).
				if w, ok := mem.Word(at); ok && w == regs.PC {
					regs.Set(arch.SP(), at+8)
				}
			}
			t.interrupted(cfa, regs, mem)
			return Exact
		}
		if r.RA.Kind == rule.Undef {
			return Lost
		}
		return Apply
	}
	sp := regs.R[arch.SP()]
	k := t.rt.table.kinds.get(r.Func)
	switch k {
	case movedSP:
		if _, stk, ok := t.current(mem); ok && stk.has(regs.R[r.CFAReg&31]) && !stk.has(sp) {
			t.note(regs.R[r.CFAReg&31], stk)
		}
		return Apply
	case plain, saves:
		return Apply
	case noctxt:
		return inMorestack(regs)
	case asmcgocall:
		if !exact {
			// Before it leaves the goroutine's stack it calls gosave (gosave_systemstack_switch
			// from 1.17 on).
			if g, stk, ok := t.current(mem); ok && g != 0 && stk.has(sp) {
				return Apply
			}
			return t.fromC(regs, mem)
		}
	}
	g, stk, ok := t.current(mem)
	switch {
	case !ok:
		return Lost
	case k == cgocallback:
		if g == 0 || !stk.has(sp) {
			return Apply // still, or again, on the C stack
		}
		return t.toC(regs, mem)
	case k == gogo:
		if g == 0 || !stk.has(sp) {
			const most = 256 // bytes of gogo
			if arch == rule.ARM64 && regs.R[rule.ARM64RA]-r.Func < most {
				return Base // it has called save_g: nobody knows any more where it came from
			}
			return Apply
		}
		// The frame is gone: SP is the goroutine's.
		lr := regs.R[rule.ARM64RA]
		step := t.resume(g, stk, regs, mem)
		regs.Set(arch.SP(), sp)
		if arch == rule.ARM64 && step == Jump && lr != 0 {
			// It loads LR, and then forgets what the goroutine was left with, SP first.
			if left, ok := mem.Word(g + bufSP); ok && left == 0 {
				regs.Set(rule.ARM64RA, lr)
				return Exact
			}
		}
		return step
	case exact && (k == systemstack || k == asmcgocall) && !t.switched(sp, mem):
		return Apply // called on g0's stack, or a signal's: stays there
	case g == 0:
		return Base
	case stk.has(sp):
		if k == morestack && arch == rule.ARM64 {
			return inMorestack(regs)
		}
		if k == mcall && arch == rule.ARM64 && regs.R[rule.ARM64RA]-r.Func < maxMcall {
			break // it has called save_g, and before that saved where it came from
		}
		return Apply // not yet left it, or back again
	case k == systemstack || k == asmcgocall:
		sp, ok := mem.Word(g + bufSP)
		if !ok || !stk.has(sp) {
			return Lost
		}
		bp, ok := mem.Word(g + t.layout.bufBP)
		if !ok {
			return Lost
		}
		t.note(sp, stk)
		regs.Set(arch.SP(), sp)
		regs.Set(arch.FP(), bp)
		return Apply
	}
	step := t.resume(g, stk, regs, mem) // mcall, morestack
	if step == Jump && k == morestack {
		// The function begins again from there, so that on arm64 its
		// return address is still in LR.
		return Exact
	}
	return step
}

// inMorestack takes regs from arm64's morestack, on the goroutine's stack yet,
// to the function that called it from its prologue, whose own return address
// is in R3.
func inMorestack(regs *stack.Regs) Step {
	if !regs.Has(3) || !regs.Has(rule.ARM64RA) {
		return Lost
	}
	regs.PC = regs.R[rule.ARM64RA]
	regs.Set(rule.ARM64RA, regs.R[3])
	return Exact
}

// switched reports whether systemstack or asmcgocall, at SP, has come to g0's
// stack: it begins there at the SP that g0 was left with.
func (t *Thread) switched(sp uint64, mem rule.Words) bool {
	at, ok := mem.Word(t.g0 + bufSP)
	return ok && at-sp <= maxRoom
}

// resume sets regs to where g goes on when it runs again.
func (t *Thread) resume(g uint64, stk span, regs *stack.Regs, mem rule.Words) Step {
	arch := t.rt.table.arch
	pc, ok1 := mem.Word(g + bufPC)
	sp, ok2 := mem.Word(g + bufSP)
	bp, ok3 := mem.Word(g + t.layout.bufBP)
	lr, ok4 := mem.Word(g + t.layout.bufLR)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return Lost
	}
	if sp != 0 && !stk.has(sp) && sp != stk.hi {
		return Lost
	}
	if sp != 0 {
		t.note(sp, stk)
		regs.Set(arch.SP(), sp)
	}
	if bp != 0 || sp != 0 {
		regs.Set(arch.FP(), bp)
	}
	if arch == rule.ARM64 {
		regs.Set(rule.ARM64RA, lr)
	}
	regs.PC = pc
	if arch == rule.ARM64 && lr != 0 {
		return Exact // a function that begins again, its stack having grown: its return address is still in LR
	}
	var f fn
	if vaddr := pc - t.rt.bias; t.rt.table.find(vaddr, &f) == nil &&
		(vaddr == f.entry || f.deferred != 0 && vaddr == f.entry+uint64(f.deferred)) {
		// A goroutine that has not run yet, or one that has recovered from a panic
		// and leaves the function by its call of deferreturn: no call led there,
		// and what stands before it is the function's other end
		// (src/runtime/panic.go, recovery).
		return Exact
	}
	return Jump
}

// fromC takes regs of asmcgocall, called back by C on g0's stack, to its frame
// on the goroutine's stack: it saved g and the depth of that frame
// (src/runtime/asm_amd64.s, asm_arm64.s). Where it was called on g0 it saved
// no g, and the SP itself.
func (t *Thread) fromC(regs *stack.Regs, mem rule.Words) Step {
	sp := regs.R[t.rt.table.arch.SP()]
	switch v := t.rt.table.version; {
	case t.rt.table.arch == rule.ARM64:
		return t.savedBy(sp, sp+8, regs, mem)
	case v != 0 && v < 22:
		return t.savedBy(sp+48, sp+40, regs, mem)
	}
	step := t.savedBy(sp+8, sp, regs, mem)
	if step == Lost && t.rt.table.version == 0 {
		step = t.savedBy(sp+48, sp+40, regs, mem)
	}
	return step
}

// savedBy does fromC's work, with g and the depth at the addresses given.
func (t *Thread) savedBy(gAt, depthAt uint64, regs *stack.Regs, mem rule.Words) Step {
	sp := &regs.R[t.rt.table.arch.SP()]
	g, ok1 := mem.Word(gAt)
	depth, ok2 := mem.Word(depthAt)
	switch {
	case !ok1 || !ok2:
		return Lost
	case g == 0 && depth >= *sp && depth-*sp <= maxRoom:
		*sp = depth
		return Apply
	case !pointer(g):
		return Lost
	}
	stk, ok := stackOf(g, mem)
	if !ok || depth > stk.hi-stk.lo || depth%8 != 0 {
		return Lost
	}
	t.curg = g
	t.note(stk.hi-depth, stk)
	*sp = stk.hi - depth
	return Apply
}

// toC takes regs of cgocallback, called back by cgocallbackg on the
// goroutine's stack, to its frame on g0's stack, which has the same layout.
// It left that SP in g0.sched, and the one of the callback outside of it in
// the frame (src/runtime/asm_amd64.s, asm_arm64.s).
func (t *Thread) toC(regs *stack.Regs, mem rule.Words) Step {
	arch := t.rt.table.arch
	at := t.base
	if at == 0 {
		var ok bool
		if at, ok = mem.Word(t.g0 + bufSP); !ok {
			return Lost
		}
	}
	// This is not where g0's stack is left without a callback.
	t.rest = max(t.rest, at+1)
	saved := uint64(0)
	if arch == rule.ARM64 {
		saved = 16
	}
	outer, ok := mem.Word(at + saved)
	if !ok || at%8 != 0 || at < minPointer {
		return Lost
	}
	t.base = outer
	if stk, ok := stackOf(t.g0, mem); ok && stk.has(at) && t.native.hi == 0 {
		t.native = span{at, min(stk.hi, at+maxStackSpan)}
	}
	regs.Set(arch.SP(), at)
	return Apply
}

// interrupted remembers where the kernel put a signal's frame at cfa, which
// interrupted regs: the next one will lie at the same place.
func (t *Thread) interrupted(cfa uint64, regs *stack.Regs, mem rule.Words) {
	arch := t.rt.table.arch
	if !t.signal.has(cfa) {
		return
	}
	t.context = t.signal.hi - (cfa + contextSP(arch))
	if _, stk, ok := t.current(mem); ok && stk.has(regs.R[arch.SP()]) {
		t.note(regs.R[arch.SP()], stk)
	}
}

// note remembers what of a goroutine's stack the next sample should copy.
func (t *Thread) note(sp uint64, stk span) {
	if t.parked.hi == 0 {
		t.parked = span{(sp - min(sp-stk.lo, stackSlack)) &^ 7, min(stk.hi, sp+maxStackSpan)}
	}
	t.crosses = crossesFor
}
