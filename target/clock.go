package target

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/stack"
)

// A clock of the kernel that runs while a thread is on a CPU can copy the thread's registers and
// stack (perf_event_open(2), PERF_COUNT_SW_TASK_CLOCK). That stops nothing, needs no switch to
// this program, and takes effect within a timer interrupt: a stop takes effect at the end of a
// system call or some µs later, so it is never seen within a short burst of work. It costs at each
// switch of the thread, as the kernel then starts or ends a timer.
//
// Copies within system calls are of the moment of the call. They need permission to profile the
// kernel (CAP_PERFMON, root, or perf_event_paranoid of 1 or less). Without it, but with perf_event_paranoid of 2, the
// kernel makes copies of the thread's own code alone: a period that ends in the kernel makes none (ClocksSeeCalls).

// MaxClockStack is the most bytes of stack in a copy: with the registers they fit into a record,
// whose size has 16 bits.
const MaxClockStack = 60 << 10

// clockRecords is how many copies fit into a clock's buffer.
const clockRecords = 12

// Clock copies a thread's state each time that it has run for a period. It belongs to the goroutine
// of the Thread.
type Clock struct {
	perfRing
	machine *machineClock // that makes the copies; nil: events of the thread
	crowd   *crowdClock   // whose buffers they are in; nil: a buffer of the thread's own
	thread  *Thread
	kernel  bool // the copies have the kernel's part of the stack
	copies  clockCopies
	taken   int // of these
	lost    uint64
	rec     perfCopy

	// Of a machineClock, guarded by its mu.
	pending clockCopies
	missed  uint64
	share   float64 // of the copies that are kept
	ticks   int64   // at which the thread ran

	// Of a crowdClock, guarded by its mu, as are pending and missed.
	parts  []crowdPart // in the order of its CPUs
	period int64
}

// clockCopies are copies whose memory is reused.
type clockCopies []ClockCopy

// add returns a new last element, with the memory of an earlier one.
func (c *clockCopies) add() *ClockCopy {
	if n := len(*c); n < cap(*c) {
		*c = (*c)[:n+1]
	} else {
		*c = append(*c, ClockCopy{})
	}
	return &(*c)[len(*c)-1]
}

// fill takes over what the kernel copied.
func (x *ClockCopy) fill(p *perfCopy) {
	x.At, x.Ran, x.Regs = p.at, int64(p.count), p.regs
	x.Stack = append(x.Stack[:0], p.stack...)
	x.Kernel = append(x.Kernel[:0], p.kernel...)
}

// ClockCopy is one copy.
type ClockCopy struct {
	At    stack.Time
	Ran   int64 // ns that the thread had run since the clock was opened; 0: unknown
	Regs  stack.Regs
	Stack []byte // from SP up
	// Kernel is the kernel's part of the stack: an address in the innermost function, then return addresses. It is empty
	// if the thread was in its own code, or the clock does not copy it.
	Kernel []uint64
}

// SP returns the stack pointer.
func (x *ClockCopy) SP() uint64 { return x.Regs.R[nativeSP] }

// ErrClockDenied: the kernel allows no such clock, here or to this user.
var ErrClockDenied = errors.New("the kernel refuses to copy running threads")

// ClocksSeeCalls reports whether the kernel lets this program's clocks copy threads that are in the kernel, too.
var ClocksSeeCalls = sync.OnceValue(func() bool {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitDisabled}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
})

// NoProgram is the program of a clock that has none.
const NoProgram = -1

// WithoutPrograms makes clocks of the machine that begin with this thread have no filter, which is a BPF program.
func (t *Thread) WithoutPrograms() { t.plain = true }

// TryClock starts a clock of a process's first thread, of the calling thread if pid is 0, and ends it. program is as for
// OpenClock. The error is ErrClockDenied if the kernel allows no clock.
func TryClock(pid, program int) error {
	clock, err := (&Thread{tid: stack.TID(pid), pid: pid}).OpenClock(1e9, 4096, program, false)
	if err == nil {
		clock.Close()
	}
	return err
}

// OpenClock starts a clock that copies stackBytes of stack after each period, in ns of CPU time. program is the
// descriptor of a BPF program that runs before each copy, or NoProgram. The first copy may miss it. kernel makes the
// copies have the kernel's part of the stack, which takes no further permission.
func (t *Thread) OpenClock(period int64, stackBytes, program int, kernel bool) (*Clock, error) {
	if period <= 0 || stackBytes <= 0 || stackBytes > MaxClockStack {
		return nil, fmt.Errorf("clock: period %d ns, %d bytes of stack: out of range", period, stackBytes)
	}
	stackBytes = (stackBytes + 7) &^ 7
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Sample: uint64(period),
		Sample_type: perfSample | unix.PERF_SAMPLE_READ, Bits: unix.PerfBitUseClockID | unix.PerfBitComm | unix.PerfBitSampleIDAll, Wakeup: clockRecords,
		Sample_regs_user: perfRegsMask, Sample_stack_user: uint32(stackBytes), Clockid: unix.CLOCK_MONOTONIC}
	if !ClocksSeeCalls() {
		attr.Bits |= unix.PerfBitExcludeKernel
	}
	if kernel {
		copyKernel(&attr)
	}
	fd, err := unix.PerfEventOpen(&attr, int(t.tid), -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case err == unix.ESRCH:
		return nil, ErrGone
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrClockDenied, err)
	}
	c := &Clock{perfRing: perfRing{fd: fd}, thread: t, kernel: kernel}
	if err := errors.Join(spare(fd), setProgram(fd, program)); err != nil {
		c.Close()
		return nil, err
	}
	if c.ring, err = perfring.Map(fd, clockPages(clockRecords, stackBytes)); err != nil {
		c.Close()
		return nil, fmt.Errorf("%w: %w", ErrClockDenied, err)
	}
	return c, nil
}

// copyKernel makes an event copy the kernel's part of the stack.
func copyKernel(attr *unix.PerfEventAttr) {
	attr.Sample_type |= unix.PERF_SAMPLE_CALLCHAIN
	attr.Bits |= unix.PerfBitExcludeCallchainUser
}

// clockPages returns the size of a buffer in pages, a power of two, for some copies.
func clockPages(copies, stackBytes int) int {
	page := os.Getpagesize()
	return 1 << bits.Len(uint((copies*(stackBytes+512)+page-1)/page-1))
}

// SetPeriod starts a new period, of a new length in ns of CPU time. That of a clock of the machine is a mean. ran is how long the
// thread had run by then since its own clock was opened, in ns; 0: unknown. The scheduler's account is late by up to a tick for a thread that
// runs, the event's is not.
func (c *Clock) SetPeriod(period int64) (ran int64, err error) {
	if m := c.machine; m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		return 0, m.keep(c, period)
	}
	if c.crowd != nil {
		return 0, c.crowd.set(c, period)
	}
	if err := setPeriod(c.fd, uint64(period)); err != nil || ClocksSeeCalls() {
		return 0, err
	}
	var count [8]byte
	if n, err := unix.Read(c.fd, count[:]); err != nil || n < len(count) {
		return 0, fmt.Errorf("read a clock: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return int64(binary.NativeEndian.Uint64(count[:])), nil
}

// Take returns the oldest copy that was not taken yet; ok is false if there is none. The copy is
// valid until the next call. lost is how many the full buffer had no room for since the last call.
func (c *Clock) Take() (x *ClockCopy, lost uint64, ok bool) {
	if c.taken == len(c.copies) {
		c.copies, c.taken = c.copies[:0], 0
		switch {
		case c.machine != nil:
			c.machine.give(c, c.machine.drain)
		case c.crowd != nil:
			c.crowd.give(c, c.crowd.drain)
		default:
			c.ring.Read(c.read)
		}
	}
	lost, c.lost = c.lost, 0
	if c.taken == len(c.copies) {
		return nil, lost, false
	}
	x = &c.copies[c.taken]
	x.Regs.TLS = c.thread.tls
	c.taken++
	return x, lost, true
}

// read takes a record of the buffer.
func (c *Clock) read(b []byte) {
	if n := lostIn(b); n > 0 {
		c.lost += n
	} else if tid, name, at, ok := nameIn(b); ok {
		if tid == c.thread.tid {
			c.thread.names.saw(name, at)
		}
	} else if c.rec.parse(b, c.has()) && c.rec.tid == c.thread.tid {
		c.copies.add().fill(&c.rec)
	}
}

// has returns what a record of the thread's own clock has beside perfSample.
func (c *Clock) has() uint8 {
	if c.kernel {
		return perfCounted | perfKernel
	}
	return perfCounted
}

// setProgram sets the BPF program of an event; NoProgram: none.
func setProgram(fd, program int) error {
	if program == NoProgram {
		return nil
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program); err != nil {
		return fmt.Errorf("%w: set a program: %w", ErrClockDenied, err)
	}
	return nil
}

// lostIn returns how many records did not fit into the buffer, as the kernel's record says; 0: it
// is another record.
func lostIn(b []byte) uint64 {
	if len(b) < 24 || binary.NativeEndian.Uint32(b) != unix.PERF_RECORD_LOST {
		return 0
	}
	return binary.NativeEndian.Uint64(b[16:])
}

// Close ends the clock.
func (c *Clock) Close() {
	switch {
	case c.machine != nil:
		c.machine.leave(c)
	case c.crowd != nil:
		c.crowd.leave(c)
	default:
		c.close()
	}
}
