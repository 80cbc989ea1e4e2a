package target

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/stack"
)

// The kernel starts and ends the timer of a thread's clock at each switch of the thread, which
// takes longer than the switch itself. A thread that switches thousands of times a second is
// therefore sampled by a clock of each CPU (PERF_COUNT_SW_CPU_CLOCK), which copies whatever
// thread runs there. Copies of other threads are discarded. That needs permission to observe the
// whole machine (CAP_PERFMON, root, or perf_event_paranoid below 1), and costs each busy CPU one
// interrupt per period. All threads of all processes share one such clock.

const (
	// MaxMachineClockStack is the most bytes of stack in a copy of that clock: the same for all
	// threads.
	MaxMachineClockStack = 16 << 10
	// machineRecords is how many copies fit into a CPU's buffer; at machineWakes of them it is
	// emptied.
	machineRecords, machineWakes = 32, 24
	// machineCPUs is the most CPUs for it: each takes a buffer of 1 MiB.
	machineCPUs = 64
	// mostPending is how many copies of a thread are kept for it.
	mostPending = 64
	// machineFresh, in ns, is the least time between two readings of all buffers.
	machineFresh = 500_000
)

// ErrClockPeriod: the clock of the machine runs with another period.
var ErrClockPeriod = errors.New("the clock of all CPUs has another period")

type machineClock struct {
	perfRings
	period int64
	done   chan struct{}

	mu     sync.Mutex
	by     map[stack.TID]*Clock
	at     stack.Time // last reading of the buffers
	rec    perfCopy
	others int64 // copies of threads without a Clock
}

// machine is the one clock of all CPUs, while it is in use.
var machine struct {
	sync.Mutex
	clock  *machineClock
	others int64 // of clocks that have ended
}

// OpenMachineClock is OpenClock for a thread that switches often. The stack of a copy has
// MaxMachineClockStack bytes. It returns ErrClockPeriod while other threads use another period.
func (t *Thread) OpenMachineClock(period int64) (*Clock, error) {
	machine.Lock()
	defer machine.Unlock()
	m := machine.clock
	if m == nil {
		var err error
		if m, err = newMachineClock(period); err != nil {
			return nil, err
		}
		machine.clock = m
	}
	if m.period != period {
		return nil, ErrClockPeriod
	}
	c := &Clock{machine: m, thread: t}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by[t.tid] != nil {
		return nil, fmt.Errorf("clock: thread %d has one", t.tid)
	}
	m.by[t.tid] = c
	return c, nil
}

// MachineClockOthers returns how many copies of threads without a Clock the clock of the machine has
// made so far.
func MachineClockOthers() int64 {
	machine.Lock()
	defer machine.Unlock()
	n := machine.others
	if m := machine.clock; m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		n += m.others
	}
	return n
}

func newMachineClock(period int64) (*machineClock, error) {
	if cpus, err := OnlineCPUs(); err != nil || len(cpus) > machineCPUs {
		return nil, fmt.Errorf("%w: a clock of all CPUs is for %d CPUs at most, and here are %d", ErrClockDenied, machineCPUs, len(cpus))
	}
	m := &machineClock{period: period, by: map[stack.TID]*Clock{}, done: make(chan struct{})}
	var err error
	if m.perfRings, err = openRings("copy the threads of all CPUs", m.open); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClockDenied, err)
	}
	go m.follow()
	return m, nil
}

// open opens the event of a CPU.
func (m *machineClock) open(cpu int) (*perfRing, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(m.period),
		Sample_type: perfSample, Bits: unix.PerfBitUseClockID | unix.PerfBitExcludeIdle, Wakeup: machineWakes,
		Sample_regs_user: perfRegsMask, Sample_stack_user: MaxMachineClockStack, Clockid: unix.CLOCK_MONOTONIC}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	r := &perfRing{fd: fd}
	if err = spare(fd); err == nil {
		r.ring, err = perfring.Map(fd, clockPages(machineRecords, MaxMachineClockStack))
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// follow empties the buffers before they are full. It also draws a new period each time, so that
// no program, and no timer of the kernel, keeps in step with it.
func (m *machineClock) follow() {
	defer close(m.done)
	fds := m.pollFDs()
	for {
		n, err := unix.Poll(fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) || n > 0 && fds[0].Revents != 0 {
			return
		}
		forgetGone(fds)
		m.mu.Lock()
		m.drain()
		m.mu.Unlock()
		for _, r := range m.rings {
			_ = setPeriod(r.fd, uint64(float64(m.period)*(.75+rand.Float64()/2))) // else it stays
		}
	}
}

// drain reads all buffers. The caller holds m.mu.
func (m *machineClock) drain() {
	m.at = monotonic()
	for _, r := range m.rings {
		r.ring.Read(m.read)
	}
}

// read takes a record of a CPU's buffer.
func (m *machineClock) read(b []byte) {
	if n := lostIn(b); n > 0 {
		for _, c := range m.by { // of which threads is unknown
			c.missed += n
		}
		return
	}
	if len(b) < 16 {
		return
	}
	c := m.by[stack.TID(int32(binary.NativeEndian.Uint32(b[12:])))]
	switch {
	case c == nil:
		m.others++
	case len(c.pending) >= mostPending:
		c.missed++
	case m.rec.parse(b, false) && m.rec.tid == c.thread.tid:
		x := c.pending.add()
		x.fill(&m.rec)
		x.Ran = 0
		// The buffers are read one after the other, and the thread may have changed its CPU.
		for i := len(c.pending) - 1; i > 0 && c.pending[i].At < c.pending[i-1].At; i-- {
			c.pending[i], c.pending[i-1] = c.pending[i-1], c.pending[i]
		}
	}
}

// give hands over the copies of c's thread.
func (m *machineClock) give(c *Clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if monotonic()-m.at >= machineFresh {
		m.drain()
	}
	c.copies, c.pending = c.pending, c.copies[:0]
	c.lost += c.missed
	c.missed = 0
}

// leave ends the use of the clock by c, and the clock itself with its last user.
func (m *machineClock) leave(c *Clock) {
	machine.Lock()
	defer machine.Unlock()
	m.mu.Lock()
	if m.by[c.thread.tid] == c {
		delete(m.by, c.thread.tid)
	}
	left := len(m.by)
	m.mu.Unlock()
	if left > 0 || machine.clock != m {
		return
	}
	machine.clock = nil
	m.rouse()
	<-m.done
	m.release()
	machine.others += m.others
}
