package gopcln

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// maxRoom bounds the bytes that asmcgocall takes of the system stack, alignment included: 64 and 8
// up to 1.21.
const maxRoom = 80

// maxMcall bounds the code of arm64's mcall, in bytes.
const maxMcall = 256

// Step describes the state of the registers after Cross.
type Step uint8

// Steps.
const (
	Apply Step = iota // apply the rule to the registers as they are now
	Jump              // the registers are the caller's, the PC is a return address
	Exact             // the registers are the caller's, the PC is the instruction that it runs next
	Base              // the walk is complete here
	Lost              // the next position could not be read
)

func (s Step) String() string {
	return [...]string{"apply", "jump", "exact", "base", "lost"}[min(s, Lost)]
}

// Cross moves a walk to the stack where it continues, at a frame whose rule is GoSwitch,
// GoCgocallback or GoSigtramp. regs are the frame's registers. exact says that its PC is not a
// return address. SP may jump anywhere until the next frame. Begin must have been called for this
// sample.
func (t *Thread) Cross(r *rule.Rule, regs *stack.Regs, exact bool, mem rule.Words) Step {
	if r.Special == rule.GoSigtramp {
		return t.fromSignal(r, regs, mem)
	}
	k := t.rt.table.kinds.get(r.Func)
	switch k {
	case movedSP:
		at := regs.R[r.CFAReg&31]
		if _, stk, ok := t.current(mem); ok && stk.has(at) && !stk.has(regs.R[t.rt.table.arch.SP()]) {
			t.note(at, stk)
		}
		return Apply
	case plain, saves:
		return Apply
	case noctxt:
		return inMorestack(regs)
	case asmcgocall:
		if !exact {
			return t.fromAsmcgocall(regs, mem)
		}
	}
	g, stk, ok := t.current(mem)
	if !ok {
		return Lost
	}
	switch k {
	case cgocallback:
		if g == 0 || !stk.has(regs.R[t.rt.table.arch.SP()]) {
			return Apply // still, or again, on the C stack
		}
		return t.toC(regs, mem)
	case gogo:
		return t.fromGogo(r, g, stk, regs, mem)
	}
	return t.fromSystem(r, k, g, stk, regs, exact, mem)
}

// fromSignal sets regs to those that a signal interrupted.
func (t *Thread) fromSignal(r *rule.Rule, regs *stack.Regs, mem rule.Words) Step {
	arch := t.rt.table.arch
	cfa := regs.R[r.CFAReg&31] + uint64(int64(r.CFAOff))
	if SignalContext(arch, cfa, mem, regs) {
		if at := regs.R[arch.SP()]; arch == rule.AMD64 {
			// The handler makes the function appear to have made a call. It has pushed the return
			// address, but not set the PC yet (src/runtime/signal_amd64.go, pushCall).
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

// fromAsmcgocall handles asmcgocall after its call of C. It calls gosave (gosave_systemstack_switch
// from 1.17 on) before it leaves the goroutine's stack.
func (t *Thread) fromAsmcgocall(regs *stack.Regs, mem rule.Words) Step {
	if g, stk, ok := t.current(mem); ok && g != 0 && stk.has(regs.R[t.rt.table.arch.SP()]) {
		return Apply
	}
	return t.fromC(regs, mem)
}

// fromGogo handles gogo, which resumes a goroutine. g and stk are the thread's.
func (t *Thread) fromGogo(r *rule.Rule, g uint64, stk span, regs *stack.Regs, mem rule.Words) Step {
	arch := t.rt.table.arch
	sp, lr := regs.R[arch.SP()], regs.R[rule.ARM64RA]
	if g == 0 || !stk.has(sp) {
		const most = 256 // bytes of gogo's code
		if arch == rule.ARM64 && lr-r.Func < most {
			return Base // it has called save_g: the origin is lost
		}
		return Apply
	}
	// The frame is gone: SP is the goroutine's.
	step := t.resume(g, stk, regs, mem)
	regs.Set(arch.SP(), sp)
	if arch == rule.ARM64 && step == Jump && lr != 0 {
		// gogo loads LR, and then clears the goroutine's saved registers, SP first.
		if left, ok := mem.Word(g + bufSP); ok && left == 0 {
			regs.Set(rule.ARM64RA, lr)
			return Exact
		}
	}
	return step
}

// fromSystem handles the functions that leave the goroutine's stack for g0's: systemstack,
// asmcgocall, mcall and morestack. Before and after that they are on the goroutine's stack.
func (t *Thread) fromSystem(r *rule.Rule, k kind, g uint64, stk span, regs *stack.Regs, exact bool, mem rule.Words) Step {
	arch := t.rt.table.arch
	sp := regs.R[arch.SP()]
	nested := k == systemstack || k == asmcgocall // they return to the goroutine's stack
	if exact && nested && !t.switched(sp, mem) {
		return Apply // called on g0's or a signal's stack: stays there
	}
	if g == 0 {
		return Base
	}
	if stk.has(sp) {
		if k == morestack && arch == rule.ARM64 {
			return inMorestack(regs)
		}
		// arm64's mcall calls save_g after saving the origin.
		if k != mcall || arch != rule.ARM64 || regs.R[rule.ARM64RA]-r.Func >= maxMcall {
			return Apply // the stack is not left yet, or already restored
		}
	} else if nested {
		return t.restore(g, stk, regs, mem)
	}
	step := t.resume(g, stk, regs, mem) // mcall, morestack
	if step == Jump && k == morestack {
		// The function restarts there, so on arm64 its return address is still in LR.
		return Exact
	}
	return step
}

// restore sets SP and FP of regs to those with which g was left.
func (t *Thread) restore(g uint64, stk span, regs *stack.Regs, mem rule.Words) Step {
	arch := t.rt.table.arch
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

// inMorestack handles arm64's morestack while it is still on the goroutine's stack. It sets regs to
// the function whose prologue called morestack; R3 holds that function's return address.
func inMorestack(regs *stack.Regs) Step {
	if !regs.Has(3) || !regs.Has(rule.ARM64RA) {
		return Lost
	}
	regs.PC = regs.R[rule.ARM64RA]
	regs.Set(rule.ARM64RA, regs.R[3])
	return Exact
}

// switched reports whether systemstack or asmcgocall, at SP, has reached g0's stack. There it
// starts at the SP with which g0 was left.
func (t *Thread) switched(sp uint64, mem rule.Words) bool {
	at, ok := mem.Word(t.g0 + bufSP)
	return ok && at-sp <= maxRoom
}

// resume sets regs to the position where g continues when it runs again.
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
		return Exact // a function that restarts after growing its stack: its return address is still in LR
	}
	var f fn
	if vaddr := pc - t.rt.bias; t.rt.table.find(vaddr, &f) == nil &&
		(vaddr == f.entry || f.deferred != 0 && vaddr == f.entry+uint64(f.deferred)) {
		// A goroutine that has not run yet, or one that has recovered from a panic and continues at
		// the function's call of deferreturn. No call led there, and the instruction before it
		// belongs to another path of the function (src/runtime/panic.go, recovery).
		return Exact
	}
	return Jump
}

// fromC sets regs of asmcgocall, called back by C on g0's stack, to its frame on the goroutine's
// stack. asmcgocall saved g and the depth of that frame (src/runtime/asm_amd64.s, asm_arm64.s). If
// it was called on g0, it saved no g, and the SP itself.
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

// savedBy does fromC's work with g and the depth at the given addresses.
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

// toC sets regs of cgocallback, called back by cgocallbackg on the goroutine's stack, to its frame
// on g0's stack, which has the same layout. cgocallback left that SP in g0.sched, and the SP of the
// enclosing callback in the frame (src/runtime/asm_amd64.s, asm_arm64.s).
func (t *Thread) toC(regs *stack.Regs, mem rule.Words) Step {
	arch := t.rt.table.arch
	at := t.base
	if at == 0 {
		var ok bool
		if at, ok = mem.Word(t.g0 + bufSP); !ok {
			return Lost
		}
	}
	// In a callback, g0's stack is left at another SP than usual.
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

// interrupted records that the kernel put a signal frame at cfa, which interrupted regs. The next
// signal frame will be at the same place.
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

// note records which part of a goroutine's stack the next sample should copy.
func (t *Thread) note(sp uint64, stk span) {
	if t.parked.hi == 0 {
		t.parked = span{(sp - min(sp-stk.lo, stackSlack)) &^ 7, min(stk.hi, sp+maxStackSpan)}
	}
	t.crosses = crossesFor
}
