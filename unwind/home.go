package unwind

import "github.com/sliverprof/sliver/stack"

// A home is a mapping in which walks of a thread ended at a first function: the thread's
// own stack, or one that a coroutine has.
type home struct {
	lo, hi uint64
	base   uint64 // where the last such walk ended: its outermost CFA
	many   bool   // they ended at several places: there are several stacks in it
}

const (
	// maxHomes bounds the mappings that are remembered for a thread.
	maxHomes = 8
	// sameBase is how far apart two walks may end on one stack: a thread's first
	// function moves its stack pointer by some words.
	sameBase = 512
	// lastWords is how much is left of a coroutine's stack above its first frame: what
	// makes one puts a few words there, aligned.
	lastWords = 256
)

// homeAt returns the home in the mapping r; nil: no walk has ended in it.
func (th *Thread) homeAt(r *region) *home {
	for i := range th.homes {
		if h := &th.homes[i]; h.lo == r.start && h.hi == r.end {
			return h
		}
	}
	return nil
}

// settleAt learns that a walk came to a first function at base, in the mapping r.
func (th *Thread) settleAt(r *region, base uint64) {
	if h := th.homeAt(r); h != nil {
		h.many = h.many || base-h.base+sameBase > 2*sameBase
		h.base = base
		return
	}
	// Mappings grow, and others come to lie where one was.
	for i := 0; i < len(th.homes); i++ {
		if h := th.homes[i]; h.lo < r.end && r.start < h.hi {
			th.homes = append(th.homes[:i], th.homes[i+1:]...)
			i--
		}
	}
	if len(th.homes) == maxHomes {
		th.homes = append(th.homes[:0], th.homes[1:]...)
	}
	th.homes = append(th.homes, home{lo: r.start, hi: r.end, base: base})
}

// Reach is the end of the stack on which the last walk ended early: frames of earlier
// walks that lie below it are on the same stack. 0: that is not known.
func (w *Walker) Reach() uint64 { return w.reach }

// judge says what the end of a walk is. A coroutine's stack has no caller at its end, and
// what is there is made by hand: that it cannot be walked further is no loss. Where a
// thread's own stack is known to go on, a return address of 0 is one.
func (w *Walker) judge(th *Thread, reason stack.Reason) stack.Reason {
	w.reach = 0
	sp := w.regs[w.sp]
	if w.known>>w.sp&1 == 0 || len(w.frames) == 0 {
		return reason
	}
	r := w.snap.find(sp - 1)
	if r == nil {
		return reason
	}
	h := th.homeAt(r)
	if reason == stack.ReasonNone {
		if w.null && (r.main || h != nil && !h.many && sp-h.base+sameBase > 2*sameBase) {
			reason = stack.ReasonNull
		} else if !w.null {
			th.settleAt(r, sp)
		}
	} else if h == nil && !r.main && w.coroutineEnd(th, r, sp, reason) {
		return stack.ReasonNone
	}
	if reason != stack.ReasonNone && h != nil && !h.many && sp <= h.base {
		w.reach = h.base + sameBase
	}
	return reason
}

// coroutineEnd reports whether a walk that could not go on at sp, in the mapping r, is at
// the end of a stack that is not the thread's own.
func (w *Walker) coroutineEnd(th *Thread, r *region, sp uint64, reason stack.Reason) bool {
	if len(th.homes) == 0 && !th.Main || w.golang != nil {
		return false
	}
	last := &w.frames[len(w.frames)-1]
	switch reason {
	case stack.ReasonNoRule, stack.ReasonUnmapped, stack.ReasonMemory, stack.ReasonShort, stack.ReasonLoop, stack.ReasonRegister:
	default:
		return false
	}
	switch {
	case w.missing >= r.end && w.missing-r.end < lastWords: // the mapping ends here
	case r.end-sp <= lastWords && reason != stack.ReasonShort:
	case !last.Exact && !w.called(last.PC): // an address that no call has pushed
		last.Exact = true
	default:
		return false
	}
	return true
}

// startsAt reports whether a function begins at pc that no call returns to: the address
// was put on the stack by hand, as makecontext(3) does with what is to run when a context's
// function returns.
func (w *Walker) startsAt(m *module, bias, pc uint64) bool {
	if m.cfi == nil || m.golang != nil || m.mapping.Inode == 0 {
		return false
	}
	var next slowRule
	if m.cfi.Rule(pc-bias, &next.Rule) != nil || next.Func != pc-bias {
		return false
	}
	return !w.called(pc)
}
