package target

import (
	"syscall"

	"github.com/sliverprof/sliver/stack"
)

// Limits and defaults of a Window.
const (
	MaxSpans     = 128       // small blocks per sample
	MaxSpanBytes = 256 << 10 // of all small blocks together
	MaxMoreBytes = 256 << 10 // of what More asks for, together
	MaxStack     = 8 << 20   // bytes of stack per sample

	DefaultSpin     = 40_000    // ns
	DefaultDeadline = 5_000_000 // ns
	DefaultStack    = 8 << 10   // bytes
)

// Window is the block through which one sample goes in and out. It is made
// once and used again and again; everything in it is overwritten by the next
// Capture or ReadBlocked. It must come from NewWindow.
type Window struct {
	// What to do.
	Spans        []stack.Span // read ahead of the stack, at most MaxSpans and MaxSpanBytes in sum; what is above is not read. Those at the end that are Maybe there are read after it, up to the first that is not
	StackHigh    uint64       // copy up to here from a little below SP (see planStack), clipped to the window's maximum …
	StackLow     uint64       // … if SP is not below this (0: wherever it is) …
	StackDefault int          // … or this many bytes when StackHigh is not above SP; 0: DefaultStack
	SpinFor      int64        // ns to wait for the stop by spinning, sleeping after that; 0: DefaultSpin
	Deadline     int64        // ns after the request to give up; 0: DefaultDeadline
	// Later has Capture not wait at all, where a stopper makes the stop: it says
	// ErrLater, and the sample comes by Arrived. For a thread that has no CPU, it costs least.
	Later bool
	// Check makes Capture return ErrAsleep for a blocked thread, without a stop.
	Check bool
	// More, if not nil, says what else to copy now that registers, blocks and
	// stack are there; it is asked until it says nothing. It runs while the
	// thread stands still and is ordinary code, which a garbage collection may
	// park for its duration: only for targets whose stacks cannot be had
	// otherwise, and it must not allocate.
	More func() []stack.Span

	// What was found.
	Regs      stack.Regs
	Call      stack.Call // the call the thread was in; Nr -1: none
	Counters  Counters   // right before the stop, or at the read
	Asked     stack.Time // before the request to stop
	Halted    stack.Time // of a stop that was late: after the request; the thread ran nothing of its own from then on
	Stopped   stack.Time // when the stop was seen: the registers and memory are of this time or earlier
	Resumed   stack.Time // after the thread was let go
	Restarted bool       // a call that the stop had cut short was put back
	Interrupt bool       // a call was cut short and could not be put back: the target sees EINTR
	Sig       int        // signal that was on its way in and was passed on; 0: none
	Found     Activity   // what the thread did right before the request
	Group     bool       // the process was stopped by a signal, and still is
	StackAddr uint64     // where the copy of the stack begins
	Extra     []Extra    // what More asked for
	Reads     int        // calls of process_vm_readv that all this took

	buf   []byte            // small blocks, and from the next page on the stack: see planStack
	max   int               // bytes of stack that fit
	spans int               // of small blocks
	own   []stack.Span      // Spans of a stop that was foreseen: whose they were may write to theirs before it comes
	off   [MaxSpans + 1]int // where each block begins in buf, the stack being the last one
	end   int               // of the small blocks there
	got   [MaxSpans + 1]int // bytes of each block that were read
	n     int               // small blocks of this sample
	maybe int               // of these at the end, read after the stack
	stack int               // bytes of stack asked for
	want  int               // the same before it was clipped to max
	errno syscall.Errno     // of the memory read that brought least
	extra []byte            // behind Extra
	raw   raw
}

// Extra is a block that More asked for: shorter than that where memory ended.
type Extra struct {
	Addr uint64
	Data []byte
}

// redZone is what code may use below its stack pointer (System V ABI for
// amd64, section 3.2.2): registers that were just popped are still there.
const redZone = 128

// NewWindow makes a window that copies up to maxStack bytes of stack (bounded
// by MaxStack; 0: DefaultStack).
func NewWindow(maxStack int) *Window {
	if maxStack <= 0 {
		maxStack = DefaultStack
	}
	return newWindow(maxStack, MaxSpanBytes)
}

func newWindow(maxStack, spans int) *Window {
	w := &Window{max: min(maxStack, MaxStack), spans: spans}
	w.makeBuf()
	return w
}

// makeBuf makes room for the small blocks, and for the stack from any place in a page on.
func (w *Window) makeBuf() { w.buf = makeBuf(w.stackBase() + pageBytes + w.max) }

// makeBuf makes n bytes that begin with a page.
func makeBuf(n int) []byte { return make([]byte, max(n, leastBuf)) }

// leastBuf is more than what Go's allocator puts side by side in pages of its own.
const leastBuf = 40 << 10

// stackBase is where in buf, which begins with a page, the room for the stack does.
func (w *Window) stackBase() int { return pages(w.spans) }

// pages is n bytes, up to the end of the last one's page.
func pages(n int) int { return (n + pageBytes - 1) &^ (pageBytes - 1) }

const pageBytes = 4096 // of memory as caches see it, whatever the kernel's pages are

// Grow makes room for maxStack bytes of stack; what the window held is lost.
func (w *Window) Grow(maxStack int) {
	if maxStack = min(maxStack, MaxStack); maxStack > w.max {
		w.max = maxStack
		w.makeBuf()
		w.reset()
	}
}

// Cap is how many bytes of stack the window can hold.
func (w *Window) Cap() int { return w.max }

// Block is what was read of Spans[i]: shorter than asked where memory ended.
// It is good until the window is used again.
func (w *Window) Block(i int) []byte {
	if i < 0 || i >= w.n {
		return nil
	}
	return w.buf[w.off[i] : w.off[i]+w.got[i] : w.off[i]+w.got[i]]
}

// Stack is the copy of the stack from StackAddr up, shorter than asked for
// where memory ended. It is good until the window is used again.
func (w *Window) Stack() []byte {
	o := w.off[w.n]
	return w.buf[o : o+w.got[w.n] : o+w.got[w.n]]
}

// StackWanted is how many bytes of stack the last sample would have asked for
// had the window been large enough.
func (w *Window) StackWanted() int { return w.want }

// StackAsked is how many bytes of stack were asked for.
func (w *Window) StackAsked() int { return w.stack }

// ReadErr is the error of a read that was short, nil where all was read.
func (w *Window) ReadErr() error {
	for i := range w.n + 1 {
		if w.got[i] == w.size(i) || i >= w.n-w.maybe && i < w.n {
			continue
		}
		a := w.StackAddr
		if i < w.n {
			a = w.Spans[i].Addr
		}
		errno := w.errno
		if errno == 0 {
			errno = syscall.EFAULT
		}
		return &MemoryError{Addr: a + uint64(w.got[i]), Err: errno}
	}
	return nil
}

// size is how many bytes were asked for of a block, the stack being the last one.
//
//go:nosplit
//go:norace
func (w *Window) size(i int) int {
	switch i {
	case w.n:
		return w.stack
	case w.n - 1:
		return w.end - w.off[i]
	}
	return w.off[i+1] - w.off[i]
}

// reset lays out the blocks and forgets the sample before.
func (w *Window) reset() {
	w.Regs.Known, w.Regs.PC, w.Regs.TLS = 0, 0, 0
	w.Call = stack.Call{Nr: -1}
	w.Counters = Counters{}
	w.Asked, w.Halted, w.Stopped, w.Resumed = 0, 0, 0, 0
	w.Found, w.raw.found.looks = ActivityUnknown, false
	w.Extra = w.Extra[:0]
	w.Restarted, w.Interrupt, w.Group, w.Sig, w.StackAddr = false, false, false, 0, 0
	w.n, w.stack, w.errno, w.Reads = 0, 0, 0, 0
	o := 0
	for i := range min(len(w.Spans), MaxSpans) {
		l := w.Spans[i].Len
		if l < 0 || l > w.spans-o {
			break
		}
		w.off[i], w.got[i] = o, 0
		o += l
		w.n++
	}
	w.end, w.off[w.n], w.got[w.n] = o, w.stackBase(), 0
	for w.maybe = 0; w.maybe < w.n && w.Spans[w.n-1-w.maybe].Maybe; w.maybe++ {
	}
	if w.SpinFor <= 0 {
		w.SpinFor = DefaultSpin
	}
	if w.Deadline <= 0 {
		w.Deadline = DefaultDeadline
	}
	if w.StackDefault <= 0 {
		w.StackDefault = DefaultStack
	}
}

// planStack decides how much of the stack to copy, now that SP is known: from
// so many bytes below it. The copy begins as far from the beginning of a page as the
// stack does: on some CPUs a copy to a place a few bytes further into a page than
// what is copied takes four times as long (AMD Zen 4: 64 KiB in 24 µs for 6).
//
//go:nosplit
//go:norace
func (w *Window) planStack(sp, below uint64) {
	n := uint64(w.StackDefault)
	if w.StackHigh > sp && sp >= w.StackLow {
		n = w.StackHigh - sp
	}
	low := sp - min(below, sp)
	n += sp - low
	if n > MaxStack {
		n = MaxStack
	}
	w.want = int(n)
	if n > uint64(w.max) {
		n = uint64(w.max)
	}
	w.StackAddr = low
	w.stack = int(n)
	w.off[w.n] = w.stackBase() + int(low%pageBytes)
}

// readMore copies what More asks for into memory of its own. The thread is
// stopped, or blocked under the sequence lock of ReadBlocked. Blocks that do
// not fit or cannot be read are left out.
func (w *Window) readMore(tid uintptr) {
	w.fill()
	w.moreBlocks(tid)
}

// maxRounds bounds how often More is asked.
const maxRounds = 16

func (w *Window) moreBlocks(tid uintptr) {
	if w.extra == nil {
		w.extra = make([]byte, MaxMoreBytes) // once, at the first sample
	}
	used := 0
	for range maxRounds {
		spans := w.More()
		if len(spans) == 0 {
			return
		}
		for _, s := range spans {
			if s.Len <= 0 || s.Len > len(w.extra)-used {
				w.Extra = append(w.Extra, Extra{Addr: s.Addr})
				continue
			}
			b := w.extra[used : used+s.Len : used+s.Len]
			used += s.Len
			w.Reads++
			n, errno := readRaw(tid, b, s.Addr)
			if errno != 0 {
				n = 0
			}
			w.Extra = append(w.Extra, Extra{Addr: s.Addr, Data: b[:n]})
		}
	}
}
