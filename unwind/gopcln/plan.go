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

// Aside appends Plan's blocks whose addresses are known before a copy, and returns the address of the pointer to
// the goroutine's g, of which n bytes are needed. The offsets of three words in g are StackLo, StackHi and SavedSP.
// ok is false if the thread's m is unknown.
func (t *Thread) Aside(regs *stack.Regs, spans []rule.Span) (_ []rule.Span, pointer uint64, n int, ok bool) {
	at, ok := t.slot(regs)
	if !ok || t.m == 0 {
		return spans, 0, 0, false
	}
	spans = append(spans, rule.Span{Addr: at, Len: 8}, rule.Span{Addr: t.m, Len: int(t.layout.curg + 8)}, rule.Span{Addr: t.g0, Len: bufPC})
	if t.curg != 0 {
		spans = append(spans, rule.Span{Addr: t.curg, Len: t.layout.gLen()})
	}
	return spans, t.m + t.layout.curg, t.layout.gLen(), true
}

// Offsets in a g: of the bounds of its stack, and of the stack pointer with which the stack was left.
const (
	StackLo = gStackLo
	StackHi = gStackHi
	SavedSP = bufSP
)

// More appends what Plan missed. copied must hold exactly the memory copied at this stop. Call it
// again after copying what it returned; it may return more at most MaxMore times (at a thread's
// first sample; later once, rarely twice). If it appends nothing, the walk needs no Go data that
// could change after the resume, as far as is known before the walk.
func (t *Thread) More(regs *stack.Regs, copied rule.Words, spans []rule.Span) []rule.Span {
	m := t.m
	if m == 0 {
		g, ok := t.ownG(regs, copied)
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
	n := needed{t: t, copied: copied, spans: spans}
	n.goroutines(g0, curg)
	if len(n.spans) == before {
		n.stacks(regs)
	}
	return n.spans
}

// ownG returns the thread's g by its slot or register.
func (t *Thread) ownG(regs *stack.Regs, copied rule.Words) (g uint64, ok bool) {
	if at, has := t.slot(regs); has {
		return copied.Word(at)
	}
	if t.rt.table.tls.none && regs.Has(goReg) {
		return regs.R[goReg], true
	}
	return 0, false
}

// needed collects for More what the walk needs of a thread whose goroutines are known.
type needed struct {
	t      *Thread
	copied rule.Words
	spans  []rule.Span

	system  span   // g0's stack
	hasSys  bool   // system was copied and is plausible
	left    uint64 // SP at which g0 was left
	hasLeft bool   // left was copied
	user    span   // the goroutine's stack; empty: none
	sched   uint64 // SP at which the goroutine continues
}

// goroutines reads g0 and the thread's goroutine curg, and appends those that were not copied.
func (n *needed) goroutines(g0, curg uint64) {
	n.system, n.hasSys = stackOf(g0, n.copied)
	if n.left, n.hasLeft = n.copied.Word(g0 + bufSP); !n.hasLeft {
		n.spans = append(n.spans, rule.Span{Addr: g0, Len: bufPC})
	}
	if !pointer(curg) {
		return
	}
	var ok bool
	n.user, _ = stackOf(curg, n.copied)
	if n.sched, ok = n.copied.Word(curg + bufSP); !ok {
		n.spans = append(n.spans, rule.Span{Addr: curg, Len: n.t.layout.gLen()})
	}
}

// stacks appends the parts of both stacks that were not copied.
func (n *needed) stacks(regs *stack.Regs) {
	arch := n.t.rt.table.arch
	sp := regs.R[arch.SP()]
	kept := [2]uint64{regs.R[keptSP(arch)[0]], regs.R[keptSP(arch)[1]]}
	if n.t.signal.has(sp) { // in a signal handler: also the interrupted stack
		sp = n.interrupted(&kept)
	}
	if n.user.has(sp) {
		// C below a callback. Without a callback, g0's stack is always left at the same place, near
		// its end.
		if n.hasLeft && n.hasSys && n.left < n.t.rest {
			n.want(n.left, n.system)
		}
		return
	}
	for _, v := range kept {
		if n.user.has(v) {
			n.want(v, n.user)
		}
	}
	if n.user.has(n.sched) {
		n.want(n.sched, n.user)
	}
}

// interrupted appends the stack that a signal interrupted. It returns the SP there, and sets kept to
// the interrupted registers. If the signal's context was not copied, the SP is unknown: then it
// appends the upper part of both stacks.
func (n *needed) interrupted(kept *[2]uint64) (sp uint64) {
	t := n.t
	at := t.signal.hi - t.context
	if v, ok := n.copied.Word(at); ok && t.context != 0 {
		sp = v
		for i, d := range keptContext(t.rt.table.arch) {
			kept[i], _ = n.copied.Word(at - d)
		}
	} else {
		sp = n.user.upper()
		if n.hasSys {
			n.want(n.system.upper(), n.system)
		}
	}
	if n.user.has(sp) {
		n.want(sp, n.user)
	} else if n.hasSys && n.system.has(sp) {
		n.want(sp, n.system)
	}
	return sp
}

func (n *needed) want(sp uint64, stk span) { n.spans = want(sp, stk, n.copied, n.spans) }

// upper returns the beginning of the upper part of a stack that is copied if its SP is unknown.
func (s span) upper() uint64 { return s.hi - min(s.hi-s.lo, maxStackSpan) }

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
