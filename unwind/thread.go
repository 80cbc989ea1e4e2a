package unwind

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
	"github.com/sliverprof/sliver/unwind/v8"
)

const (
	// MaxStack is the most that is copied of one stack.
	MaxStack = 4 << 20
	// firstGuess is copied of a stack of which nothing is known.
	firstGuess = 256 << 10
	// leastGuess is the least that is copied of a stack whose end is not known.
	leastGuess = 32 << 10
	// redZone is what a function may use below its stack pointer (System V
	// ABI for amd64, section 3.2.2). Registers that were just popped are
	// still found there by rules that have not caught up.
	redZone = 128
	// maxExtra bounds the other stacks that are copied with a thread's own.
	maxExtra = 4
	// otherStack is how much is copied of another stack at first.
	otherStack = 16 << 10
)

// A Block is memory of a target, copied.
type Block struct {
	Addr uint64
	Data []byte // shorter than what was asked for where the read fell short
}

// Copy is what was copied of a thread's memory while it could not change: the
// blocks of Plan, and the stack (StackSpan) as the last one.
type Copy struct {
	Blocks []Block
	// Live, if not nil, reads what is missing. It is for targets that cannot
	// move during the walk: those that are held stopped.
	Live Memory
	// Batch is the same for copies that were all made before the first of them is walked;
	// 0: nothing is known. What was seen to hold after one of them holds for the others.
	Batch uint64
}

// Word reads 8 bytes. It implements rule.Words.
func (c *Copy) Word(addr uint64) (uint64, bool) {
	for i := len(c.Blocks) - 1; i >= 0; i-- {
		b := &c.Blocks[i]
		if o := addr - b.Addr; o < uint64(len(b.Data)) && uint64(len(b.Data))-o >= 8 {
			return binary.LittleEndian.Uint64(b.Data[o:]), true
		}
	}
	return 0, false
}

// A Thread is what walks learn about one thread for the next one. The zero
// value knows nothing.
type Thread struct {
	// TID is the thread's number as the target itself sees it (the last of
	// NSpid's), by which Go's data of a thread is proved; 0: unknown.
	TID stack.TID
	// Main: it is the process's first thread, whose own stack the kernel made.
	Main bool

	base  uint64      // end of the stack: the outermost CFA seen; 0: unknown
	guess uint64      // bytes to copy where base does not help; 0: unknown
	homes []home      // where walks ended that reached a first function, the latest last
	regs  stack.Regs  // TLS only
	spans []rule.Span // of Plan
	more  []rule.Span // of More
	other []rule.Span // stacks besides the C stack that the last walk wanted
	wiser bool        // see Wiser

	runtime *gopcln.Runtime // that golang belongs to
	golang  *gopcln.Thread
	guessed goGuess
	stack   goStack // of the goroutine it ran at the last walk that could tell
	tasks   tasks
	python  pyThread
	v8      v8.Known
	lostJS  bool // frames of it are missing in the last walk
	java    javaThread
	gap     bool // see Gaps
}

// Peek looks at th while it runs, for the Plan that follows: what it says then may lie
// elsewhere than at the last sample. It reads the target's memory twice at most, and
// only where that spares a read while th stands still.
func (w *Walker) Peek(th *Thread) {
	if p := w.space.runtimes.Load().golang; p != nil && w.space.mem != nil {
		p.thread(th).Peek(w.space.mem)
	}
}

// Plan gives the small blocks to copy from th besides its stack. The result
// is valid until the next call.
func (w *Walker) Plan(th *Thread) []rule.Span {
	th.spans = th.spans[:0]
	for _, s := range w.space.runtimes.Load().steppers {
		th.spans = s.plan(th, th.spans)
	}
	// Behind them: what cannot be read ends the read, and other stacks come and go.
	th.spans = append(th.spans, th.other...)
	return th.spans
}

// Asks reports whether More is to be called when th, for which Plan has just
// been asked, is stopped: what is wanted cannot be told ahead. For a thread that
// is read without a stop, it is in any case.
func (w *Walker) Asks(th *Thread) bool {
	for _, s := range w.space.runtimes.Load().steppers {
		if s.asks(th) {
			return true
		}
	}
	return false
}

// Lacks reports whether the last walk left frames of a managed runtime out for
// want of memory that the next copy will have: then another copy at once is worth
// it.
func (th *Thread) Lacks() bool { return th.python.plan.lacks || th.guessed.lacks }

// Torn reports whether that is because the thread was just going from one frame
// to the next: it has to run a little first.
func (th *Thread) Torn() bool {
	return th.python.plan.lacks && th.python.stack.Reason == stack.ReasonCorrupt
}

// Gaps reports whether frames of a managed runtime are missing in the last walk,
// which has a KindError frame in their place.
func (th *Thread) Gaps() bool { return th.gap }

// More gives what is to be copied besides, now that regs are known and mem
// holds what Plan asked for and the stack; it is to be added to mem.Blocks
// before the stack, which stays last. It is quick, and fit to be called while
// the thread is stopped; called again, it asks for more twice at most. The
// result is valid until the next call; that of Plan stays as it is. It may read the
// target's memory itself: so many times.
func (w *Walker) More(th *Thread, regs *stack.Regs, mem *Copy) (spans []rule.Span, reads int) {
	th.more = th.more[:0]
	th.knowTLS(regs)
	for _, s := range w.space.runtimes.Load().steppers {
		reads += s.more(w, th, regs, mem)
		if len(th.more) > 0 {
			break // it is called again when that is there
		}
	}
	return th.more, reads
}

// knowTLS completes registers that were had without a stop, which do not show
// the TLS base: a thread keeps its own for life.
func (th *Thread) knowTLS(regs *stack.Regs) {
	if regs.TLS != 0 {
		th.regs.TLS = regs.TLS
	} else if th.regs.TLS != 0 {
		regs.TLS = th.regs.TLS
	}
}

// Blind reports whether a runtime's data of the thread hangs on a register that
// only a stop shows, and no stop has shown it yet.
func (th *Thread) Blind() bool { return th.golang != nil && th.regs.TLS == 0 }

// StackSpan says what to copy of th's stack now that its stack pointer is
// known. It is quick, and fit to be called while the thread is stopped.
func (w *Walker) StackSpan(th *Thread, sp uint64) rule.Span {
	r := w.space.snap.Load().find(sp)
	lo, end := sp-redZone, sp+MaxStack
	if lo > sp {
		lo = 0
	}
	if end < sp {
		end = ^uint64(0)
	}
	if r != nil {
		lo, end = max(lo, r.start), min(end, r.end)
	}
	hi := sp + max(th.guess, leastGuess)
	if th.guess == 0 {
		hi = sp + firstGuess
	}
	// Goroutines' stacks lie side by side in one mapping: there the end of
	// the last one says nothing about this one.
	if th.base > sp && th.base <= end && (w.space.runtimes.Load().golang == nil || r == nil || r.main) {
		hi = th.base
	}
	if hi = min(hi, end); hi < lo {
		hi = end
	}
	return rule.Span{Addr: lo, Len: int(hi - lo)}
}

// complete learns from a walk that reached the thread's first function.
func (th *Thread) complete(sp, cfa uint64, switched bool) {
	if switched || cfa <= sp {
		return
	}
	th.base = cfa
	th.guess = min(MaxStack, max(leastGuess, 2*(cfa-sp), th.guess-th.guess/8))
}

// Wiser reports whether the last walk ended for want of memory that the next
// copy will have: then another copy at once may do.
func (th *Thread) Wiser() bool { return th.wiser }

// short learns from a walk that needed addr, which the copy did not reach.
func (th *Thread) short(sp, end, addr uint64) {
	guess, base := th.guess, th.base
	defer func() { th.wiser = th.guess > guess || th.base != base }()
	if addr >= th.base {
		th.base = 0 // it was not the end
	}
	th.guess = min(MaxStack, max(firstGuess, 2*(end-sp), addr-sp+leastGuess))
}

// elsewhere learns that a walk went on on another stack, at sp, and which
// address of it was missing; r is the mapping of that address, nil if unknown. A span that
// left its mapping would come back empty: the kernel reads all of it or none
// (process_vm_readv in Linux mm/process_vm_access.c).
func (th *Thread) elsewhere(sp, addr uint64, r *region) {
	if r == nil { // mapped since: of its page at least all is there
		page := addr &^ (smallPage - 1)
		r = &region{start: page, end: page + smallPage}
	}
	want := rule.Span{Addr: sp - min(sp, redZone), Len: otherStack}
	if addr-sp >= otherStack && addr-sp < MaxStack {
		want.Len = int(addr-sp)*2 + otherStack
	}
	// A signal stack's walk goes on on the thread's own, whose end is known. Of
	// a thread that runs goroutines, no stack is its own.
	if th.golang == nil && th.base > sp && th.base-sp < MaxStack {
		want.Len = int(th.base - want.Addr)
	}
	if want.Addr < r.start {
		want.Len -= int(r.start - want.Addr)
		want.Addr = r.start
	}
	if want.Addr >= r.end {
		return
	}
	want.Len = int(min(uint64(want.Len), r.end-want.Addr))
	for i := range th.other {
		if o := &th.other[i]; want.Addr-o.Addr < uint64(o.Len) || o.Addr-want.Addr < uint64(want.Len) {
			th.wiser = *o != want
			*o = want
			return
		}
	}
	th.wiser = true
	if len(th.other) == maxExtra {
		copy(th.other, th.other[1:])
		th.other = th.other[:maxExtra-1]
	}
	th.other = append(th.other, want)
}

// StackPlan is StackSpan for a thread whose stack pointer is not known yet:
// copy up to high if SP lies in [low, high), else n bytes.
func (w *Walker) StackPlan(th *Thread) (low, high uint64, n int) {
	n = int(max(th.guess, leastGuess))
	if th.guess == 0 {
		n = firstGuess
	}
	if th.base == 0 || w.space.runtimes.Load().golang != nil {
		return 0, 0, n
	}
	low = th.base
	if r := w.space.snap.Load().find(th.base - 8); r != nil {
		low = r.start
		if r.main { // it grows downwards
			low -= min(low, MaxStack)
		}
	}
	return low, th.base, n
}
