package target

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// perfCopy is a copy of a thread's registers and stack that the kernel made for a perf event.
type perfCopy struct {
	pid   int
	tid   stack.TID
	at    stack.Time
	count uint64 // of the event, if it was asked for
	regs  stack.Regs
	stack []byte // from SP up; memory of the record
	// kernel is the kernel's part of the stack, if it was asked for: an address in the innermost function, then
	// return addresses. It is empty for a thread in its own code.
	kernel []uint64
}

// What a record has beside perfSample.
const (
	perfCounted = 1 << iota // PERF_SAMPLE_READ
	perfKernel              // PERF_SAMPLE_CALLCHAIN without the addresses of the thread's own code
)

// maxKernelFrames limits the kernel's part of a stack. The kernel writes 127 by default (kernel.perf_event_max_stack).
const maxKernelFrames = 128

// perfContexts is the lowest number that is a mark in a call chain and not an address, and perfContextKernel the mark
// before addresses of the kernel (enum perf_callchain_context in linux/perf_event.h).
const (
	perfContexts      = ^uint64(0) - 4094
	perfContextKernel = ^uint64(0) - 127
)

// parse parses a record of perf_event_open(2): PERF_RECORD_SAMPLE with perfSample and what more says. ok is false for
// other records, and for 32-bit registers.
func (c *perfCopy) parse(b []byte, more uint8) (ok bool) {
	const header = 8
	if len(b) < header || binary.NativeEndian.Uint32(b) != unix.PERF_RECORD_SAMPLE {
		return false
	}
	b, ok = b[header:], true
	word := func() (v uint64) {
		if len(b) < 8 {
			ok = false
			return 0
		}
		v, b = binary.NativeEndian.Uint64(b), b[8:]
		return v
	}
	if len(b) < 8 {
		return false
	}
	c.pid, c.tid = int(int32(binary.NativeEndian.Uint32(b))), stack.TID(int32(binary.NativeEndian.Uint32(b[4:])))
	word()
	c.at = stack.Time(word())
	if more&perfCounted != 0 {
		c.count = word()
	}
	c.kernel = c.kernel[:0]
	if more&perfKernel != 0 {
		n := word()
		if n > uint64(len(b)/8) {
			return false
		}
		for in := false; n > 0; n-- {
			if a := word(); a >= perfContexts {
				in = a == perfContextKernel
			} else if in && len(c.kernel) < maxKernelFrames {
				c.kernel = append(c.kernel, a)
			}
		}
	}
	const abi64 = 2 // PERF_SAMPLE_REGS_ABI_64
	if abi := word(); !ok || abi != abi64 {
		return false
	}
	var regs [perfRegsLen]uint64
	for i := range regs {
		regs[i] = word()
	}
	size := word()
	if !ok || size > uint64(len(b)) {
		return false
	}
	copied, rest := b[:size], b[size:]
	if b = rest; size > 0 {
		copied = copied[:min(word(), size)]
	}
	c.regs = stack.Regs{}
	perfRegs(&regs, &c.regs)
	c.stack = copied
	return ok
}
