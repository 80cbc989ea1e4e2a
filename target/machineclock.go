package target

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perffilter"
	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/stack"
)

// The kernel starts and ends the timer of a thread's clock at each switch of the thread, which
// takes longer than the switch itself. A thread that switches thousands of times a second is
// therefore sampled by a clock of each CPU (PERF_COUNT_SW_CPU_CLOCK), which copies whatever
// thread runs there. That needs permission to observe the whole machine (CAP_PERFMON, root, or
// perf_event_paranoid below 1), and costs each busy CPU one interrupt per period. All threads of all processes share
// one such clock. Of a thread's copies, those that its own period asks for are kept, by chance. With CAP_BPF, the kernel
// does not even make the others, nor those of other threads (package perffilter); without, they are discarded.

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
	// A new period of an event is drawn after drawAfter periods, and at most one a drawCPU ns: it interrupts the CPU.
	drawAfter, drawCPU = 8, 1_000_000
	// Each CPU has up to machineEvents events, and all CPUs up to mostEvents. The interrupt of a tick also lets timers of
	// threads expire whose slack has begun (50 us by default, prctl(2)), so a thread often wakes right after a tick. If
	// the next one came a period later, it would be met too seldom: 8 % at 0.6 ms. After a tick of one event of
	// several, those of the others come as soon as ever.
	machineEvents, mostEvents = 8, 128

	// CopyCost is what a copy is assumed to cost the thread, in ns, and TickCost what an interrupt without one does. On
	// a virtual machine of 2 CPUs with nothing else to do, they are 6 and 2.5 us; beside other work, a copy took 11 to 13.
	CopyCost, TickCost = 12_000, 3_000
)

// ErrClockPeriod: the clock of the machine runs with another period.
var ErrClockPeriod = errors.New("the clock of all CPUs has another period")

type machineClock struct {
	sharedClock
	period int64
	each   int                // events of a CPU
	filter *perffilter.Filter // nil: there is none
	kernel bool               // copies have the kernel's part of the stack
	// program is the BPF program that copies memory beside the stack; NoProgram: none. It is guarded by machine's lock.
	program int

	// Guarded by mu.
	events []machineEvent
	next   int   // of events to look at
	others int64 // copies of threads without a Clock, and those that were not kept
}

// machineEvent is an event of a CPU. Its copies go to the buffer of the CPU's first one.
type machineEvent struct {
	fd   int
	more bool // it is not the first one
	draw machineDraw
}

// machineDraw varies the period, so that no program, and no timer of the kernel, keeps in step with it. A new period
// begins at once, wherever in the one before: half a period is lost each time, in the mean. The mean of the periods is
// chosen for the number of ticks to be right all the same.
type machineDraw struct {
	at     stack.Time // of the last drawing
	period float64    // ns; the present one
	behind float64    // ticks too few so far
}

// next draws a period at time at, where mean is the mean time between ticks in ns.
func (d *machineDraw) next(at stack.Time, mean float64) float64 {
	since := float64(at - d.at)
	if d.period > 0 {
		d.behind += since/mean - math.Floor(since/d.period)
	} else {
		since = drawAfter * mean
	}
	ticks := max(since/mean+d.behind, 1) + .5 // if the next drawing is as far
	d.at, d.period = at, since/ticks*(.5+rand.Float64())
	d.period = min(max(d.period, mean/4), 2*mean)
	return d.period
}

// machine is the one clock of all CPUs, while it is in use.
var machine machineState

type machineState struct {
	sync.Mutex
	clock  *machineClock
	others int64 // of clocks that have ended
	filter *perffilter.Filter
	tried  bool // to load the filter
}

// loadFilter loads the filter, once, and reports whether there is one.
func (s *machineState) loadFilter() bool {
	if !s.tried {
		s.tried = true
		s.filter, _ = perffilter.New() // without one, copies are discarded
	}
	return s.filter != nil
}

// MachineTickCost returns what a tick of that clock costs a thread that it does not copy, in ns.
func (t *Thread) MachineTickCost() int64 {
	if t.plain {
		return CopyCost
	}
	machine.Lock()
	defer machine.Unlock()
	if machine.loadFilter() {
		return TickCost
	}
	return CopyCost
}

// OpenMachineClock is OpenClock for a thread that switches often. Ticks are tick ns apart, and the thread's copies period
// ns of its CPU time, in the mean. The stack of a copy has MaxMachineClockStack bytes. It returns ErrClockPeriod while other
// threads use ticks of another distance, another program than this one, or copies without the kernel's part that it needs.
func (t *Thread) OpenMachineClock(tick, period int64, program int, kernel bool) (*Clock, error) {
	machine.Lock()
	defer machine.Unlock()
	m := machine.clock
	if m == nil {
		var err error
		if m, err = newMachineClock(tick, kernel, !t.plain); err != nil {
			return nil, err
		}
		machine.clock = m
	}
	if m.period != tick || kernel && !m.kernel {
		return nil, ErrClockPeriod
	}
	if err := m.run(program); err != nil {
		return nil, err
	}
	c := &Clock{machine: m, thread: t, kernel: kernel}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by[t.tid] != nil {
		return nil, fmt.Errorf("clock: thread %d has one", t.tid)
	}
	if err := m.keep(c, period); err != nil {
		return nil, err
	}
	m.by[t.tid] = c
	return c, nil
}

// Met returns the CPU time of the thread, in ns, that the ticks of the machine's clock have met, copied or not: a period
// for each.
func (c *Clock) Met() int64 {
	m := c.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.filter != nil {
		c.ticks = int64(m.filter.Ticks(int(c.thread.tid)))
	}
	return c.ticks * m.period
}

// keep copies c's thread after each period ns of CPU time, in the mean. The caller holds m.mu.
func (m *machineClock) keep(c *Clock, period int64) error {
	c.share = min(float64(m.period)/float64(max(period, 1)), 1)
	if m.filter == nil {
		return nil
	}
	return m.filter.Keep(int(c.thread.tid), c.share)
}

// MachineClockOthers returns the CPU time in ns that the clock of the machine is assumed to have taken from others than
// the threads at the copies that they were given.
func MachineClockOthers() int64 {
	machine.Lock()
	defer machine.Unlock()
	ns := machine.others * CopyCost
	if m := machine.clock; m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		ns += m.others * CopyCost
	}
	if machine.filter != nil {
		ns += machine.filter.Others() * TickCost
	}
	return ns
}

// newMachineClock starts the clock, with the filter if that is allowed. The caller holds machine.
func newMachineClock(period int64, kernel, filter bool) (*machineClock, error) {
	cpus, err := OnlineCPUs()
	if err != nil || len(cpus) > machineCPUs {
		return nil, fmt.Errorf("%w: a clock of all CPUs is for %d CPUs at most, and here are %d", ErrClockDenied, machineCPUs, len(cpus))
	}
	m := &machineClock{sharedClock: newSharedClock(), period: period, kernel: kernel, program: NoProgram, each: max(1, min(machineEvents, mostEvents/len(cpus)))}
	if filter && machine.loadFilter() {
		m.filter = machine.filter
	}
	if m.perfRings, err = openRings("copy the threads of all CPUs", m.open); err != nil {
		m.closeMore()
		return nil, fmt.Errorf("%w: %w", ErrClockDenied, err)
	}
	go m.follow(m.drain)
	return m, nil
}

// run sets the program of all events, after the filter. Threads that do not need it share the clock.
func (m *machineClock) run(program int) error {
	if program == NoProgram || program == m.program {
		return nil
	}
	if m.program != NoProgram {
		return ErrClockPeriod
	}
	if m.filter != nil {
		if err := m.filter.Then(program); err != nil {
			return err
		}
	} else {
		for _, e := range m.events {
			if err := setProgram(e.fd, program); err != nil {
				return err
			}
		}
	}
	m.program = program
	return nil
}

// open opens the events of a CPU.
func (m *machineClock) open(cpu int) (*perfRing, error) {
	first, err := m.openEvent(cpu, -1)
	if err != nil {
		return nil, err
	}
	r := &perfRing{fd: first}
	if r.ring, err = perfring.Map(first, clockPages(machineRecords, MaxMachineClockStack)); err != nil {
		r.close()
		return nil, err
	}
	for range m.each - 1 {
		if _, err := m.openEvent(cpu, first); errors.Is(err, unix.EMFILE) { // fewer will do
			break
		} else if err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// openEvent opens an event of a CPU, whose copies go to another event's buffer, unless that is -1.
func (m *machineClock) openEvent(cpu, to int) (int, error) {
	e := machineEvent{more: to >= 0}
	period := e.draw.next(monotonic(), float64(m.period)*float64(m.each))
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(period),
		Sample_type: perfSample, Bits: unix.PerfBitUseClockID | unix.PerfBitExcludeIdle, Wakeup: machineWakes,
		Sample_regs_user: perfRegsMask, Sample_stack_user: MaxMachineClockStack, Clockid: unix.CLOCK_MONOTONIC}
	if m.kernel {
		copyKernel(&attr)
	}
	var err error
	if e.fd, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC); err != nil {
		return -1, err
	}
	if err = spare(e.fd); err == nil && m.filter != nil {
		err = unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_SET_BPF, m.filter.FD())
	}
	if err == nil && to >= 0 {
		err = unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_SET_OUTPUT, to)
	}
	if err != nil {
		unix.Close(e.fd)
		return -1, err
	}
	m.events = append(m.events, e)
	return e.fd, nil
}

// closeMore closes the events that are not a CPU's first.
func (m *machineClock) closeMore() {
	for _, e := range m.events {
		if e.more {
			unix.Close(e.fd)
		}
	}
	m.events = nil
}

// drain reads all buffers, and draws new periods where it is time. The caller holds m.mu.
func (m *machineClock) drain() {
	m.at = monotonic()
	for _, r := range m.rings {
		r.ring.Read(m.read)
	}
	n := int64(m.each)
	for range m.rings { // not all events of a CPU at once: their phases are to differ
		e := &m.events[m.next%len(m.events)]
		m.next++
		if m.at-e.draw.at >= stack.Time(max(drawAfter*n*m.period, n*int64(len(m.rings))*drawCPU)) {
			_ = setPeriod(e.fd, uint64(e.draw.next(m.at, float64(n*m.period)))) // else it stays
		}
	}
}

// read takes a record of a CPU's buffer.
func (m *machineClock) read(b []byte) {
	if m.lost(b) {
		return
	}
	if len(b) < 16 {
		return
	}
	c := m.by[stack.TID(int32(binary.NativeEndian.Uint32(b[12:])))]
	if c != nil && m.filter == nil {
		c.ticks++
	}
	switch {
	case c == nil || m.filter == nil && rand.Float64() >= c.share:
		m.others++
	case m.rec.parse(b, m.has()) && m.rec.tid == c.thread.tid:
		if !c.kernel {
			m.rec.kernel = m.rec.kernel[:0]
		}
		c.receive(&m.rec)
	}
}

// has returns what a record has beside perfSample.
func (m *machineClock) has() uint8 {
	if m.kernel {
		return perfKernel
	}
	return 0
}

// leave ends the use of the clock by c, and the clock itself with its last user.
func (m *machineClock) leave(c *Clock) {
	machine.Lock()
	defer machine.Unlock()
	m.mu.Lock()
	if m.by[c.thread.tid] == c {
		delete(m.by, c.thread.tid)
		if m.filter != nil {
			m.filter.Forget(int(c.thread.tid))
		}
	}
	left := len(m.by)
	m.mu.Unlock()
	if left > 0 || machine.clock != m {
		return
	}
	machine.clock = nil
	m.rouse()
	<-m.done
	m.closeMore()
	m.release()
	machine.others += m.others
}
