package target

import (
	"syscall"

	"github.com/sliverprof/sliver/stack"
)

// Limits and defaults of a Window.
const (
	MaxSpans     = 128       // small blocks per sample
	MaxSpanBytes = 256 << 10 // of all small blocks together
	leastSpans   = 16 << 10  // room for small blocks in a new window: native programs need a few hundred bytes
	MaxMoreBytes = 256 << 10 // of all blocks requested by More together
	MaxStack     = 8 << 20   // bytes of stack per sample

	DefaultSpin     = 40_000    // ns
	DefaultDeadline = 5_000_000 // ns
	DefaultStack    = 8 << 10   // bytes
)

// Window is the buffer for the input and output of one sample. It is made once by NewWindow and
// reused; each Capture or ReadBlocked overwrites it.
type Window struct {
	// The request.
	Spans        []stack.Span // read before the stack: at most MaxSpans, MaxSpanBytes in total. Maybe spans at the end are read after it, up to the first unreadable one
	StackHigh    uint64       // copy from a little below SP (see planStack) up to this address, limited to the window's maximum …
	StackLow     uint64       // … if SP is not below this (0: no condition) …
	StackDefault int          // … or this many bytes if StackHigh is not above SP; 0: DefaultStack
	SpinFor      int64        // ns to spin for the stop before sleeping; 0: DefaultSpin
	Deadline     int64        // ns after the request to give up; 0: DefaultDeadline
	// Later makes Capture return ErrLater at once if a stopper makes the stop; the sample comes
	// by Arrived. For a thread without a CPU this is the cheapest way.
	Later bool
	// Check makes Capture return ErrAsleep for a blocked thread, without a stop.
	Check bool
	// More, if not nil, returns further spans to copy, once registers, blocks and stack are
	// there. It is called until it returns none. It runs while the thread is stopped and is
	// ordinary code, which a garbage collection may park for its duration. So use it only for
	// targets whose stacks require it, and do not allocate in it.
	More func() []stack.Span
	// Registers, if not nil, reads all registers of a blocked thread from the kernel. It returns false if it cannot.
	Registers func(tid stack.TID, r *stack.Regs) bool

	// The result.
	Regs      stack.Regs
	Call      stack.Call // the call that the thread was in; Nr -1: none
	Counters  Counters   // right before the stop, or at the read
	Asked     stack.Time // before the stop request
	Halted    stack.Time // of a late stop: after the request; the thread has run nothing of its own since then
	Stopped   stack.Time // when the stop was seen: the registers and memory are of this time or earlier
	Resumed   stack.Time // after the thread was released
	Restarted bool       // a call that the stop interrupted was resumed
	Interrupt bool       // a call was interrupted and could not be resumed: the target sees EINTR
	Sig       int        // pending signal that was passed on; 0: none
	Found     Activity   // the thread's activity right before the request
	Group     bool       // the process was stopped by a signal, and still is
	StackAddr uint64     // start address of the stack copy
	Extra     []Extra    // blocks that More requested
	Reads     int        // number of process_vm_readv calls

	buf   []byte            // small blocks, and from the next page on the stack: see planStack
	max   int               // bytes of stack that fit
	spans int               // bytes of small blocks that fit
	most  int               // reset makes room for as many bytes of small blocks
	own   []stack.Span      // Spans of a planned stop: the caller may write to its own before the stop
	off   [MaxSpans + 1]int // start of each block in buf; the stack is the last one
	end   int               // of the small blocks in buf
	got   [MaxSpans + 1]int // bytes read of each block
	n     int               // small blocks of this sample
	maybe int               // number of these at the end that are read after the stack
	stack int               // bytes of stack requested
	want  int               // the same before the limit to max
	errno syscall.Errno     // of the memory read that returned least
	extra []byte            // memory of Extra
	raw   raw
}

// allRegisters replaces the PC and SP of a blocked thread by all of its registers, if Registers reads them, and they have these
// two. That it has not run is for the caller to know.
func (w *Window) allRegisters(tid stack.TID) {
	var all stack.Regs
	if w.Registers != nil && w.Registers(tid, &all) && all.PC == w.Regs.PC && all.R[nativeSP] == w.Regs.R[nativeSP] {
		w.Regs = all
	}
}

// Extra is a block that More requested. Data is shorter than requested if memory ended.
type Extra struct {
	Addr uint64
	Data []byte
}

// redZone is the size of the area below the stack pointer that code may use (System V ABI for
// amd64, section 3.2.2): registers that were just popped are still there.
const redZone = 128

// NewWindow returns a window that copies up to maxStack bytes of stack (bounded by MaxStack; 0:
// DefaultStack).
func NewWindow(maxStack int) *Window {
	if maxStack <= 0 {
		maxStack = DefaultStack
	}
	w := &Window{max: min(maxStack, MaxStack), spans: leastSpans, most: MaxSpanBytes}
	w.makeBuf()
	return w
}

// makeBuf allocates the small blocks, and the stack from any offset in a page on.
func (w *Window) makeBuf() { w.buf = makeBuf(w.stackBase() + pageBytes + w.max) }

// makeBuf returns n bytes that begin on a page boundary.
func makeBuf(n int) []byte { return make([]byte, max(n, leastBuf)) }

// leastBuf exceeds the largest size that Go's allocator packs together with other objects (32
// KiB).
const leastBuf = 40 << 10

// stackBase returns the offset in buf at which the area for the stack begins.
func (w *Window) stackBase() int { return pages(w.spans) }

// pages rounds n bytes up to whole pages.
func pages(n int) int { return (n + pageBytes - 1) &^ (pageBytes - 1) }

const pageBytes = 4096 // page size relevant for caches, regardless of the kernel's page size

// Grow makes room for maxStack bytes of stack; the window's content is lost.
func (w *Window) Grow(maxStack int) {
	if maxStack = min(maxStack, MaxStack); maxStack > w.max {
		w.max = maxStack
		w.makeBuf()
		w.reset()
	}
}

// Cap returns how many bytes of stack the window can hold.
func (w *Window) Cap() int { return w.max }

// Block returns the copy of Spans[i], shorter than requested if memory ended. It is valid until
// the window is used again.
func (w *Window) Block(i int) []byte {
	if i < 0 || i >= w.n {
		return nil
	}
	return w.buf[w.off[i] : w.off[i]+w.got[i] : w.off[i]+w.got[i]]
}

// Stack returns the copy of the stack from StackAddr up, shorter than requested if memory ended.
// It is valid until the window is used again.
func (w *Window) Stack() []byte {
	o := w.off[w.n]
	return w.buf[o : o+w.got[w.n] : o+w.got[w.n]]
}

// StackWanted returns how many bytes of stack the last sample would have requested with a
// sufficiently large window.
func (w *Window) StackWanted() int { return w.want }

// StackAsked returns how many bytes of stack were requested.
func (w *Window) StackAsked() int { return w.stack }

// ReadErr returns the error of a short read, or nil if everything was read.
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

// size returns how many bytes of a block were requested; the stack is the last one.
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

// room makes room for the requested small blocks, as far as the window may grow.
func (w *Window) room() {
	n := 0
	for i := range min(len(w.Spans), MaxSpans) {
		l := w.Spans[i].Len
		if l < 0 || l > w.most-n {
			break
		}
		n += l
	}
	if n > w.spans {
		w.spans = min(2*pages(n), w.most) // the next samples may need a little more
		w.makeBuf()
	}
}

// reset lays out the blocks and clears the previous sample.
func (w *Window) reset() {
	w.room()
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

// planStack determines how much of the stack to copy, given SP, starting below bytes below it.
// The copy has the same offset within a page as the stack: on some CPUs, a copy to an offset a
// few bytes larger than the source's takes four times as long (AMD Zen 4: 64 KiB in 24 instead of
// 6 µs).
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

// readMore copies the blocks that More requests into separate memory. The thread is stopped, or
// blocked under the sequence lock of ReadBlocked. Blocks that do not fit or cannot be read are
// left out.
func (w *Window) readMore(tid uintptr) {
	w.fill()
	w.moreBlocks(tid)
}

// maxRounds bounds how often More is called.
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
