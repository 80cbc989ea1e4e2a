package unwind

import "github.com/sliverprof/sliver/stack"

// A home is a mapping in which a thread's walks ended at a first function: the thread's own stack,
// or a coroutine's.
type home struct {
	lo, hi uint64
	base   uint64 // outermost CFA of the last such walk
	many   bool   // they ended at several places: the mapping holds several stacks
}

const (
	// maxHomes bounds the mappings recorded per thread.
	maxHomes = 8
	// sameBase is the maximum distance between the ends of two walks on one stack. A thread's first
	// function moves its stack pointer by a few words.
	sameBase = 512
	// lastWords bounds the bytes between a coroutine's first frame and the end of its stack.
	// Whatever creates the coroutine puts a few aligned words there.
	lastWords = 256
)

// homeAt returns the home in the mapping r, or nil if no walk has ended in it.
func (th *Thread) homeAt(r *region) *home {
	for i := range th.homes {
		if h := &th.homes[i]; h.lo == r.start && h.hi == r.end {
			return h
		}
	}
	return nil
}

// settleAt records that a walk reached a first function at base, in the mapping r.
func (th *Thread) settleAt(r *region, base uint64) {
	if h := th.homeAt(r); h != nil {
		h.many = h.many || base-h.base+sameBase > 2*sameBase
		h.base = base
		return
	}
	// Drop overlapping homes: mappings grow, and addresses are reused.
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

// Reach returns the end of the stack on which the last walk ended early. Frames of earlier walks
// below it are on the same stack. It returns 0 if the end is unknown.
func (w *Walker) Reach() uint64 { return w.reach }

// judge corrects the reason for which a walk ended. A coroutine's stack has no caller at its end,
// only words put there when it was created; ending there loses nothing. A return address of 0 is an
// error if the thread's own stack is known to continue.
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

// coroutineEnd reports whether a walk that could not continue at sp, in the mapping r, is at the
// end of a stack that is not the thread's own.
func (w *Walker) coroutineEnd(th *Thread, r *region, sp uint64, reason stack.Reason) bool {
	if len(th.homes) == 0 && !th.Main || w.with.all.Has(Tasks) {
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

// startsAt reports whether pc is the start of a function and not a call's return address. Such an
// address was written to the stack by hand: makecontext(3) does so for the function that runs when
// a context's function returns.
func (w *Walker) startsAt(m *module, bias, pc uint64) bool {
	if m.cfi == nil || m.own != nil || m.mapping.Inode == 0 {
		return false
	}
	var next slowRule
	if m.cfi.Rule(pc-bias, &next.Rule) != nil || next.Func != pc-bias {
		return false
	}
	return !w.called(pc)
}
