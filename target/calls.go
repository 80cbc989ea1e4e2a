package target

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// MaxCallCounters is how many addresses of one thread can be counted at once: the number of
// breakpoints that CPUs of both architectures have.
const MaxCallCounters = 4

// CallCounter counts how often a thread reaches an address, with a breakpoint of the CPU
// (perf_event_open(2), PERF_TYPE_BREAKPOINT). The thread is not stopped and its memory is not
// changed; each hit costs it some microseconds. It belongs to that one thread.
type CallCounter struct{ fd int }

// CountCalls starts counting. It requires the permissions of ptrace, and a perf_event_paranoid of
// 2 or less, or CAP_PERFMON. It returns ErrGone if the thread does not exist.
func (p *Process) CountCalls(tid stack.TID, addr uint64) (*CallCounter, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_BREAKPOINT, Size: unix.PERF_ATTR_SIZE_VER1, Bp_type: 4, // HW_BREAKPOINT_X
		Ext1: addr, Ext2: 8, // for an execution: sizeof(long)
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, int(tid), -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		if err = gone(err); err == ErrGone {
			return nil, err
		}
		return nil, fmt.Errorf("count calls of %#x in thread %d: %w", addr, tid, err)
	}
	return &CallCounter{fd}, nil
}

// Read returns the count so far.
func (c *CallCounter) Read() (uint64, error) {
	var b [8]byte
	n, err := unix.Read(c.fd, b[:])
	if err != nil {
		return 0, fmt.Errorf("read a count of calls: %w", err)
	}
	if n != len(b) {
		return 0, ErrGone
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// Close ends the counting.
func (c *CallCounter) Close() error { return unix.Close(c.fd) }
