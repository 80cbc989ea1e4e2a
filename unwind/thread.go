package unwind

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	// MaxStack bounds the copied bytes of one stack.
	MaxStack = 4 << 20
	// firstGuess is the number of bytes to copy from a stack without history.
	firstGuess = 256 << 10
	// leastGuess is the minimum to copy from a stack with unknown end.
	leastGuess = 32 << 10
	// redZone is the size of the area below its stack pointer that a function may use (System V ABI
	// for amd64, section 3.2.2). Imprecise rules still find registers there that were just popped.
	redZone = 128
	// maxExtra bounds the other stacks that are copied with a thread's own.
	maxExtra = 4
	// otherStack is the first number of bytes to copy from another stack.
	otherStack = 16 << 10
)

// A Block is a copy of target memory.
type Block struct {
	Addr uint64
	Data []byte // shorter than requested if the read was incomplete
}

// Copy holds a copy of a thread's memory from a time when it could not change: the blocks of Plan,
// then the stack (StackSpan) as the last one.
type Copy struct {
	Blocks []Block
	// Live, if not nil, reads missing memory. Use it only for targets that are held stopped during
	// the walk.
	Live Memory
	// Batch is the same for copies that were all made before the first of them is walked; 0: no
	// batch. A check that passed after one of them is not repeated for the others.
	Batch uint64
	// Past: the kernel made the copy at an earlier moment. The target has run since, and no other copy of
	// that moment can be made.
	Past bool
}

// Read fills b from addr if the block has all of it.
func (k *Block) Read(b []byte, addr uint64) (int, bool) {
	if o := addr - k.Addr; o < uint64(len(k.Data)) && uint64(len(k.Data))-o >= uint64(len(b)) {
		return copy(b, k.Data[o:]), true
	}
	return 0, false
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

// A Thread holds what walks of one thread learn for the next walk. The zero value is ready to use.
type Thread struct {
	// TID is the thread's number in the target's own PID namespace (the last of NSpid), which
	// identifies the thread in Go's data; 0: unknown.
	TID stack.TID
	// Main: the process's first thread, whose stack the kernel made.
	Main bool

	base  uint64      // end of the stack: the outermost CFA seen; 0: unknown
	guess uint64      // bytes to copy if base does not help; 0: unknown
	homes []home      // where walks ended at a first function, latest last
	regs  stack.Regs  // TLS only
	spans []rule.Span // of Plan
	more  []rule.Span // of More
	other []rule.Span // stacks other than the C stack that the last walk needed
	wiser bool        // see Wiser

	slots  slots      // what languages keep
	with   Properties // of the runtimes of the last Plan or Walk
	tasks  tasks
	report Report // of the last walk, by all runtimes
}

// Peek reads th's data while it runs, for the Plan that follows, since pointers may have changed
// since the last sample. See Stepper.
func (w *Walker) Peek(th *Thread) {
	if w.space.mem == nil {
		return
	}
	for _, s := range w.space.runtimes.Load().steppers {
		s.Peek(th)
	}
}

// Plan returns the small blocks to copy from th in addition to its stack. The result is valid until
// the next call.
func (w *Walker) Plan(th *Thread) []rule.Span {
	th.spans = th.spans[:0]
	r := w.space.runtimes.Load()
	th.with |= r.all
	for _, s := range r.steppers {
		th.spans = s.Plan(th, th.spans)
	}
	// Other stacks go last: they come and go, and a failed span ends the read.
	th.spans = append(th.spans, th.other...)
	return th.spans
}

// Asks reports whether More must be called when th is stopped, because Plan could not predict
// everything. Call it after Plan. For a thread that is read without a stop, always call More.
func (w *Walker) Asks(th *Thread) bool {
	for _, s := range w.space.runtimes.Load().steppers {
		if s.Asks(th) {
			return true
		}
	}
	return false
}

// StackSuffices reports whether a copy of th's stack alone, taken at an unplanned moment, mostly shows
// all of its frames.
func (w *Walker) StackSuffices(th *Thread) bool {
	for _, x := range w.space.runtimes.Load().found {
		if x.s.Asks(th) || x.l.Properties.Has(Beside) && len(x.s.Plan(th, nil)) > 0 {
			return false
		}
	}
	return len(th.other) == 0
}

// Aside is memory beside a thread's stack that walks of its copies need. Its places are known before the copy,
// except for those that a pointer or a list leads to.
type Aside struct {
	Blocks []rule.Span
	// Pointer is the address of a pointer to Len bytes about the task that the thread runs; 0: none. Lo, Hi and SP
	// are the offsets of three words therein: the bounds of the task's stack, and the stack pointer with which
	// the thread left it. If the thread is on another stack, the task's is needed from there on.
	Pointer    uint64
	Len        int
	Lo, Hi, SP int
	List       stack.Links // for Asides without a Pointer; Head.Len is 0 if there is none
}

// Aside returns what must be copied together with th's stack so that a copy of an unplanned moment mostly shows
// all of its frames; ok is false if that is unknown. It is valid until the next call for th.
func (w *Walker) Aside(th *Thread) (x Aside, ok bool) {
	found := w.space.runtimes.Load().found
	if len(found) != 1 { // of several runtimes, each needs something
		return x, false
	}
	return found[0].s.Aside(th)
}

// Lacks reports whether the last walk lacks frames of a managed runtime whose memory the next copy
// will include. Another copy at once is worthwhile then.
func (th *Thread) Lacks() bool { return th.report.Lacks }

// Torn reports whether Lacks holds because the thread was switching between two frames. It has to
// run a little before another copy helps.
func (th *Thread) Torn() bool { return th.report.Torn }

// Code returns the memory of code objects that the last walk lacked. It does not move while a thread
// runs it.
func (th *Thread) Code() []rule.Span { return th.report.Code }

// Gaps reports whether the last walk lacks frames of a managed runtime. It has a KindError frame in
// their place.
func (th *Thread) Gaps() bool { return th.report.Gap }

// HoldsGIL reports whether the thread held its interpreter's global lock at the last walk.
func (th *Thread) HoldsGIL() bool { return th.report.Locked }

// Guesses reports whether a stop of th without More may lack something, which then requires another
// stop.
func (w *Walker) Guesses(*Thread) bool { return w.space.Properties().Has(Guesses) }

// Managed reports whether the process has a runtime whose stacks continue at places that registers
// and tables do not show. If so, call More.
func (s *Space) Managed() bool { return s.Properties().Has(Beside) }

// More returns further spans to copy, given regs and a mem that holds Plan's blocks and the stack.
// Add them to mem.Blocks before the stack, which must stay last. More is fast enough to be called
// during a stop. If called again, it returns more spans at most twice. The result is valid until
// the next call and does not invalidate Plan's. More may read the target's memory itself; reads is
// the number of reads.
func (w *Walker) More(th *Thread, regs *stack.Regs, mem *Copy) (spans []rule.Span, reads int) {
	th.more = th.more[:0]
	th.knowTLS(regs)
	for _, s := range w.space.runtimes.Load().steppers {
		var n int
		th.more, n = s.More(w, th, regs, mem, th.more)
		reads += n
		if len(th.more) > 0 {
			break // called again once these are copied
		}
	}
	return th.more, reads
}

// Regs returns the registers that th keeps for life: only TLS is set, if it is known.
func (th *Thread) Regs() *stack.Regs { return &th.regs }

// knowTLS adds the TLS base to registers that were taken without a stop and lack it. A thread keeps
// its TLS base for life.
func (th *Thread) knowTLS(regs *stack.Regs) {
	if regs.TLS != 0 {
		th.regs.TLS = regs.TLS
	} else if th.regs.TLS != 0 {
		regs.TLS = th.regs.TLS
	}
}

// Blind reports whether the thread's runtime data depends on a register that only a stop shows, and
// no stop has happened yet.
func (th *Thread) Blind() bool { return th.with.Has(TLS) && th.regs.TLS == 0 }

// StackSpan returns what to copy of th's stack, given its stack pointer. It is fast enough to be
// called during a stop.
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
	// Stacks of tasks are adjacent in one mapping, so the end of the last one says nothing about this
	// one.
	if th.base > sp && th.base <= end && (!w.space.Properties().Has(Tasks) || r == nil || r.main) {
		hi = th.base
	}
	if hi = min(hi, end); hi < lo {
		hi = end
	}
	return rule.Span{Addr: lo, Len: int(hi - lo)}
}

// complete updates the guess from a walk that reached the thread's first function.
func (th *Thread) complete(sp, cfa uint64, switched bool) {
	if switched || cfa <= sp {
		return
	}
	th.base = cfa
	th.guess = min(MaxStack, max(leastGuess, 2*(cfa-sp), th.guess-th.guess/8))
}

// Wiser reports whether the last walk ended at memory that the next copy will include. Another copy
// at once may be complete then.
func (th *Thread) Wiser() bool { return th.wiser }

// short updates the guess from a walk that needed addr, outside of the copy.
func (th *Thread) short(sp, end, addr uint64) {
	guess, base := th.guess, th.base
	defer func() { th.wiser = th.guess > guess || th.base != base }()
	if addr >= th.base {
		th.base = 0 // not the end after all
	}
	th.guess = min(MaxStack, max(firstGuess, 2*(end-sp), addr-sp+leastGuess))
}

// elsewhere records that a walk continued on another stack at sp and lacked addr there. r is the
// mapping of addr, nil if unknown. The span is cut to the mapping, because the kernel reads all of
// a span or none of it (process_vm_readv in Linux mm/process_vm_access.c).
func (th *Thread) elsewhere(sp, addr uint64, r *region) {
	if r == nil { // mapped since: its page at least is readable
		page := addr &^ (smallPage - 1)
		r = &region{start: page, end: page + smallPage}
	}
	want := rule.Span{Addr: sp - min(sp, redZone), Len: otherStack}
	if addr-sp >= otherStack && addr-sp < MaxStack {
		// Four times as much: 336 KiB at the third copy, as a sample takes no more than four.
		want.Len = int(addr-sp)*4 + otherStack
	}
	// The walk of a signal stack continues on the thread's own stack, whose end is known. A thread
	// that runs goroutines has no stack of its own.
	if !th.with.Has(Tasks) && th.base > sp && th.base-sp < MaxStack {
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

// StackPlan is StackSpan for a thread with an unknown stack pointer: copy up to high if SP is in
// [low, high), and n bytes otherwise.
func (w *Walker) StackPlan(th *Thread) (low, high uint64, n int) {
	n = int(max(th.guess, leastGuess))
	if th.guess == 0 {
		n = firstGuess
	}
	if th.base == 0 || w.space.Properties().Has(Tasks) {
		return 0, 0, n
	}
	low = th.base
	if r := w.space.snap.Load().find(th.base - 8); r != nil {
		low = r.start
		if r.main { // grows downwards
			low -= min(low, MaxStack)
		}
	}
	return low, th.base, n
}
