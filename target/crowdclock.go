package target

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/stack"
)

// Without the right to observe the machine, threads of a pool, which run little each, get an event per thread and CPU. A
// buffer for each of them would take more memory than the kernel lets such a user lock (kernel.perf_event_mlock_kb,
// RLIMIT_MEMLOCK). Events of one CPU may share a buffer (PERF_EVENT_IOC_SET_OUTPUT), those of one thread on all CPUs may not.

const (
	// MaxCrowdClockStack is the most bytes of stack in a copy of that clock.
	MaxCrowdClockStack = 16 << 10
	// crowdRecords is how many such copies fit into a CPU's buffer; after crowdWakes copies it is emptied. With this number, the
	// buffers are within the default of kernel.perf_event_mlock_kb, which counts for each CPU.
	crowdRecords, crowdWakes = 14, 5
	// mostCrowdEvents limits the events of all threads, each of which takes a file descriptor.
	mostCrowdEvents = 4096
)

// crowdClock is the clock of all threads that share it.
type crowdClock struct {
	sharedClock
	cpus []int

	// Guarded by mu.
	events int
	cpu    int // index of the CPU whose buffer is being read
}

// crowdPart is a thread's event on one CPU. Its first period is random: a thread that runs for less than a period has a copy with
// a probability that is its share of one. The period stays until its first copy is read.
type crowdPart struct {
	fd    int
	first int64      // ns; that period
	part  float64    // of its later period in the thread's: see set
	begun bool       // a copy was read
	since stack.Time // since when it has its later period; 0: it has not
}

var crowd struct {
	sync.Mutex
	clock *crowdClock
}

// OpenCrowdClock is OpenClock for one of many threads that run little. Its copies have no Ran. It
// returns ErrClockFull if no more threads can have one.
func (t *Thread) OpenCrowdClock(period int64, stackBytes int) (*Clock, error) {
	if period <= 0 || stackBytes <= 0 || stackBytes > MaxCrowdClockStack {
		return nil, fmt.Errorf("clock: period %d ns, %d bytes of stack: out of range", period, stackBytes)
	}
	crowd.Lock()
	defer crowd.Unlock()
	m := crowd.clock
	if m == nil {
		var err error
		if m, err = newCrowdClock(); err != nil {
			return nil, err
		}
	}
	c := &Clock{crowd: m, thread: t}
	err := m.join(c, period, (stackBytes+7)&^7)
	if m.unused() {
		m.end()
		m = nil
	}
	crowd.clock = m
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ErrClockFull: as many threads share a clock as can.
var ErrClockFull = errors.New("no more threads can share the clock")

func newCrowdClock() (*crowdClock, error) {
	m := &crowdClock{sharedClock: newSharedClock()}
	var err error
	if m.perfRings, err = openRings("copy the threads of a pool", m.open); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClockDenied, err)
	}
	go m.follow(m.drain)
	return m, nil
}

// open maps the buffer of a CPU. It belongs to an event of this program's first thread that counts nothing.
func (m *crowdClock) open(cpu int) (*perfRing, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_DUMMY,
		Bits: unix.PerfBitUseClockID | unix.PerfBitExcludeKernel, Clockid: unix.CLOCK_MONOTONIC}
	fd, err := unix.PerfEventOpen(&attr, os.Getpid(), cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	r := &perfRing{fd: fd}
	if err = spare(fd); err == nil {
		r.ring, err = perfring.Map(fd, clockPages(crowdRecords, MaxCrowdClockStack))
	}
	if err != nil {
		r.close()
		return nil, err
	}
	m.cpus = append(m.cpus, cpu)
	return r, nil
}

// join opens the thread's events.
func (m *crowdClock) join(c *Clock, period int64, stackBytes int) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by[c.thread.tid] != nil {
		return fmt.Errorf("clock: thread %d has one", c.thread.tid)
	}
	if m.events+len(m.cpus) > mostCrowdEvents {
		return ErrClockFull
	}
	c.period = period
	for i, cpu := range m.cpus {
		p := crowdPart{first: int64(float64(c.period) * (1./8 + 7./8*rand.Float64())), part: math.Log(3) * (.5 + rand.Float64())}
		if p.fd, err = c.openPart(cpu, p.first, stackBytes, m.rings[i].fd); err != nil {
			c.closeParts()
			return err
		}
		c.parts = append(c.parts, p)
	}
	m.events += len(c.parts)
	m.by[c.thread.tid] = c
	return nil
}

// openPart opens the thread's event on a CPU, whose copies go to the buffer of the event to.
func (c *Clock) openPart(cpu int, first int64, stackBytes, to int) (int, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Sample: uint64(first),
		Sample_type: perfSample, Bits: unix.PerfBitUseClockID, Wakeup: crowdWakes, Sample_regs_user: perfRegsMask,
		Sample_stack_user: uint32(stackBytes), Clockid: unix.CLOCK_MONOTONIC}
	if !ClocksSeeCalls() {
		attr.Bits |= unix.PerfBitExcludeKernel
	}
	fd, err := unix.PerfEventOpen(&attr, int(c.thread.tid), cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case err == unix.ESRCH:
		return -1, ErrGone
	case err == unix.EMFILE:
		return -1, ErrClockFull
	case err != nil:
		return -1, fmt.Errorf("%w: %w", ErrClockDenied, err)
	}
	if spare(fd) != nil {
		err = ErrClockFull
	} else if err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, to); err != nil {
		err = fmt.Errorf("%w: share a buffer: %w", ErrClockDenied, err)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (c *Clock) closeParts() {
	for _, p := range c.parts {
		unix.Close(p.fd)
	}
	c.parts = nil
}

// drain reads all buffers. The caller holds m.mu.
func (m *crowdClock) drain() {
	m.at = monotonic()
	for i, r := range m.rings {
		m.cpu = i
		r.ring.Read(m.read)
	}
}

// read takes a record of a CPU's buffer.
func (m *crowdClock) read(b []byte) {
	if m.lost(b) {
		return
	}
	if !m.rec.parse(b, 0) {
		return
	}
	c := m.by[m.rec.tid]
	if c == nil {
		return
	}
	if c.parts[m.cpu].takes(m.rec.at, c.period) {
		c.receive(&m.rec)
	}
}

// takes reports whether a copy is one of those that the period asks for. Of others, which were made before the period was set, as
// many count as the first period is part of it.
func (p *crowdPart) takes(at stack.Time, period int64) bool {
	begun := p.begun
	if p.begun = true; !begun && p.set(period) == nil {
		p.since = monotonic()
	}
	return !begun || p.since != 0 && at >= p.since || rand.Float64()*float64(period) < float64(p.first)
}

// set begins a new period. Those of a thread's events differ, by up to a half of their mean, and stay: a change would lose half a
// period on each CPU. The factor makes the mean rate of copies that of the thread's period, as log(3) is the mean of 1/x
// for x from 0.5 to 1.5.
func (p *crowdPart) set(period int64) error {
	return setPeriod(p.fd, uint64(float64(period)*p.part))
}

// set gives c's thread a new period.
func (m *crowdClock) set(c *Clock, period int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.period = period
	for i := range c.parts {
		if p := &c.parts[i]; p.begun {
			if err := p.set(period); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave ends the use of the clock by c, and the clock itself with its last user.
func (m *crowdClock) leave(c *Clock) {
	crowd.Lock()
	defer crowd.Unlock()
	m.mu.Lock()
	if m.by[c.thread.tid] == c {
		delete(m.by, c.thread.tid)
		m.events -= len(c.parts)
		c.closeParts()
	}
	m.mu.Unlock()
	if m.unused() && crowd.clock == m {
		crowd.clock = nil
		m.end()
	}
}

func (m *crowdClock) unused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.by) == 0
}

func (m *crowdClock) end() {
	m.rouse()
	<-m.done
	m.release()
}
