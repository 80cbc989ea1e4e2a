package gopcln

import (
	"encoding/binary"
	"io"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	maxStackSpan = 32 << 10 // bytes of a goroutine's stack to copy speculatively
	stackSlack   = 8 << 10  // how much deeper than last time it may be
	// crossesFor is the number of walks for which a second stack, a goroutine's, is copied after a
	// walk crossed over to it.
	crossesFor = 8
)

// peek is the result of Peek.
type peek struct {
	g     uint64 // the thread's goroutine; 0: that of the last sample, or unread
	stack span   // the part of the goroutine's stack that may be needed
	buf   [bufSP + 8]byte
}

// Peek reads the thread's current goroutine while it runs, for the next Plan. The goroutine may
// change between stops, and reading its data during the stop would take an extra read. Peek reads 8
// bytes, and 64 more if the goroutine has changed since the last sample or stacks were needed
// recently. The result may be outdated at the stop.
func (t *Thread) Peek(mem io.ReaderAt) {
	t.next.g, t.next.stack = 0, span{}
	if t.m == 0 {
		return
	}
	b := t.next.buf[:]
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	if n, _ := mem.ReadAt(b[:8], int64(t.m+t.layout.curg)); n < 8 {
		return
	}
	g := word(0)
	if !pointer(g) || g == t.curg && t.crosses == 0 {
		return
	}
	t.next.g = g
	if t.crosses == 0 {
		return
	}
	if n, _ := mem.ReadAt(b, int64(g)); n < len(b) {
		return
	}
	stk, sp := span{word(gStackLo), word(gStackHi)}, word(bufSP)
	if stk.lo < minPointer || stk.lo >= stk.hi || stk.hi > maxPointer || stk.hi-stk.lo > maxStack {
		return
	}
	if !stk.has(sp) {
		sp = stk.hi
	}
	if g == t.curg && t.parked.hi != 0 && stk.has(t.parked.lo) {
		sp = min(sp, t.parked.lo)
	}
	t.next.stack = about(sp, stk)
}

// about returns what to copy of a stack that is needed from about sp on. It returns all of a small
// stack.
func about(sp uint64, stk span) span {
	if stk.hi-stk.lo <= 2*stackSlack {
		return span{stk.lo &^ 7, stk.hi}
	}
	return span{(sp - min(sp-stk.lo, stackSlack)) &^ 7, min(stk.hi, sp+maxStackSpan)}
}

// Plan appends what to copy during the stop in addition to the stack from SP: the thread's g, its m
// and g0, the goroutine of the last sample (to see its new state), the goroutine that Peek found,
// and the stack of that one if such stacks were needed recently. From regs it uses the thread
// pointer (and R28 on arm64).
func (t *Thread) Plan(regs *stack.Regs, spans []rule.Span) []rule.Span {
	if at, ok := t.slot(regs); ok {
		spans = append(spans, rule.Span{Addr: at, Len: 8})
	}
	if t.m == 0 {
		return spans
	}
	spans = append(spans, rule.Span{Addr: t.m, Len: int(t.layout.curg + 8)},
		rule.Span{Addr: t.g0, Len: bufPC})
	if t.curg != 0 {
		spans = append(spans, rule.Span{Addr: t.curg, Len: t.layout.gLen()})
	}
	user := t.parked
	if g := t.next.g; g != 0 {
		if user = t.next.stack; g != t.curg {
			spans = append(spans, rule.Span{Addr: g, Len: t.layout.gLen()})
		}
	}
	for _, s := range [...]span{user, t.native} {
		if s.hi > s.lo {
			spans = append(spans, rule.Span{Addr: s.lo, Len: int(s.hi - s.lo)})
		}
	}
	return spans
}

// More appends what Plan missed. copied must hold exactly the memory copied at this stop. Call it
// again after copying what it returned; it may return more at most MaxMore times (at a thread's
// first sample; later once, rarely twice). If it appends nothing, the walk needs no Go data that
// could change after the resume, as far as is known before the walk.
func (t *Thread) More(regs *stack.Regs, copied rule.Words, spans []rule.Span) []rule.Span {
	m := t.m
	if m == 0 {
		g, ok := uint64(0), false
		if at, has := t.slot(regs); has {
			g, ok = copied.Word(at)
		} else if t.rt.table.tls.none && regs.Has(goReg) {
			g, ok = regs.R[goReg], true
		}
		if !ok || !pointer(g) {
			return spans
		}
		if m, ok = copied.Word(g + gM); !ok {
			return append(spans, rule.Span{Addr: g, Len: t.layout.gLen()})
		}
	}
	if !pointer(m) {
		return spans
	}
	curg, ok := copied.Word(m + t.layout.curg)
	g0, ok0 := copied.Word(m + mG0)
	if !ok || !ok0 {
		return append(spans, rule.Span{Addr: m, Len: int(t.layout.curg + 8)})
	}
	if !pointer(g0) {
		return spans
	}
	if curg == 0 && t.m != 0 {
		curg, _ = t.locked(copied)
	}
	before := len(spans)
	system, ok0 := stackOf(g0, copied)
	if _, ok = copied.Word(g0 + bufSP); !ok {
		spans = append(spans, rule.Span{Addr: g0, Len: bufPC})
	}
	var user span
	var sched uint64
	if pointer(curg) {
		var ok1 bool
		user, _ = stackOf(curg, copied)
		if sched, ok1 = copied.Word(curg + bufSP); !ok1 {
			spans = append(spans, rule.Span{Addr: curg, Len: t.layout.gLen()})
		}
	}
	if len(spans) > before {
		return spans
	}
	arch := t.rt.table.arch
	sp := regs.R[arch.SP()]
	kept := [...]uint64{regs.R[keptSP(arch)[0]], regs.R[keptSP(arch)[1]]}
	if t.signal.has(sp) { // in a signal handler: also the interrupted stack
		at := t.signal.hi - t.context
		if v, ok := copied.Word(at); ok && t.context != 0 {
			sp = v
			for i, d := range keptContext(arch) {
				kept[i], _ = copied.Word(at - d)
			}
		} else {
			sp = user.hi - min(user.hi-user.lo, maxStackSpan)
			if at := system.hi - min(system.hi-system.lo, maxStackSpan); ok0 {
				spans = want(at, system, copied, spans)
			}
		}
		if user.has(sp) {
			spans = want(sp, user, copied, spans)
		} else if ok0 && system.has(sp) {
			spans = want(sp, system, copied, spans)
		}
	}
	if user.has(sp) {
		// C below a callback. Without a callback, g0's stack is always left at the same place, near
		// its end.
		if at, ok := copied.Word(g0 + bufSP); ok && ok0 && at < t.rest {
			spans = want(at, system, copied, spans)
		}
		return spans
	}
	for _, v := range kept {
		if user.has(v) {
			spans = want(v, user, copied, spans)
		}
	}
	if user.has(sched) {
		spans = want(sched, user, copied, spans)
	}
	return spans
}

// keptSP returns the registers in which functions that call the vDSO keep the SP of the goroutine's
// stack (see movedSP).
func keptSP(arch rule.Arch) [2]int {
	if arch == rule.ARM64 {
		return [2]int{20, 19}
	}
	return [2]int{12, 3}
}

// keptContext returns how far before SP they are in a signal's context.
func keptContext(arch rule.Arch) [2]uint64 {
	if arch == rule.ARM64 {
		return [2]uint64{11 * 8, 12 * 8}
	}
	return [2]uint64{11 * 8, 4 * 8}
}

// MaxMore bounds the calls of More at one stop that return spans.
const MaxMore = 4

// want appends the part of a stack above sp, unless it was copied.
func want(sp uint64, stk span, copied rule.Words, spans []rule.Span) []rule.Span {
	sp &^= 7
	end := min(sp+maxStackSpan, stk.hi&^7)
	_, ok1 := copied.Word(sp)
	_, ok2 := copied.Word(end - 8)
	if ok1 && ok2 || end < sp+8 {
		return spans
	}
	return append(spans, rule.Span{Addr: sp, Len: int(end - sp)})
}
