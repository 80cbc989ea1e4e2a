package target

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Meter counts the CPU time of a process up to its end, also after its parent has waited for it: by then no file of /proc
// has it. It is an event of the kernel that counts and makes no samples, and costs each switch of the process some 0.3 µs.
// It is for one goroutine at a time.
type Meter struct {
	pid  int
	fds  []int // empty: Rest was called
	base int64 // CPU time in ns that these lack
}

// ErrNoMeter reports that the kernel has no such counter.
var ErrNoMeter = errors.New("the kernel counts no CPU time of processes with their threads")

// ErrThreads reports that a process cannot be counted, since it has too many threads or starts some.
var ErrThreads = errors.New("the process has many threads, or starts some")

// cpuClock is the clock of a process's CPU time, with its ended threads (CPUCLOCK_SCHED of linux/posix-timers.h).
func cpuClock(pid int) int32 { return ^int32(pid)<<3 | 2 }

// cpuTime returns the CPU time of a process in ns; ok is false once its parent has waited for it.
func cpuTime(pid int) (ns int64, ok bool) {
	var ts unix.Timespec
	if pid <= 0 || unix.ClockGettime(cpuClock(pid), &ts) != nil {
		return 0, false
	}
	return ts.Nano(), true
}

// inheritThread limits PerfBitInherit to threads (inherit_thread of linux/perf_event.h, since Linux 5.13).
const inheritThread = unix.CBitFieldMaskBit35

// meterWithin is the longest time, in ns, between the two readings of a counter from which its base follows, and
// meterTries how many pairs are read: other programs may have the CPU in between.
const (
	meterWithin = 50_000
	meterTries  = 3
)

// A process that has threads already has a counter for each. There are at most meterThreads of them, and the threads are
// listed up to meterTries times until their number stays the same.
const meterThreads = 32

// OpenMeter starts to count for a process that was made at a time. The error is ErrGone if it has ended, or if another one
// has its number, ErrThreads if it has too many threads or is just starting some, and ErrNoMeter if no process can be counted.
func OpenMeter(pid int, born stack.Time) (*Meter, error) {
	m := &Meter{pid: pid}
	tids := []int{pid}
	for range meterTries {
		err := m.open(tids)
		gone := errors.Is(err, ErrGone) // all of tids: perhaps the first thread alone
		if err == nil {
			err = m.begin(born, len(tids))
		}
		if err == nil {
			return m, nil
		}
		if m.Rest(); !gone && !errors.Is(err, ErrThreads) {
			return nil, err
		}
		if tids, err = threadsOf(pid, tids[:0]); err != nil || gone && len(tids) <= 1 {
			return nil, ErrGone
		}
		if len(tids) > meterThreads {
			break
		}
	}
	return nil, ErrThreads
}

// threadsOf appends the threads of a process to tids, at most one more than meterThreads.
func threadsOf(pid int, tids []int) ([]int, error) {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(meterThreads + 1)
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	if len(tids) > 0 {
		err = nil
	}
	return tids, err
}

// open opens a counter for each of these threads and all that it will start. One that ended is left out.
func (m *Meter) open(tids []int) error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_TASK_CLOCK,
		// This counter ignores both exclusions, which make it need less permission.
		Bits: unix.PerfBitInherit | inheritThread | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	for _, tid := range tids {
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		switch {
		case err == unix.ESRCH:
			continue
		case err == unix.EINVAL || err == unix.ENOSYS:
			return fmt.Errorf("%w: %w", ErrNoMeter, err)
		case err != nil:
			return fmt.Errorf("count the CPU time of process %d: %w", m.pid, err)
		}
		m.fds = append(m.fds, fd)
	}
	if len(m.fds) == 0 {
		return ErrGone
	}
	return nil
}

// begin sets the base, if these are all threads of the process.
func (m *Meter) begin(born stack.Time, threads int) error {
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(m.pid)+"/task", &st) != nil || st.Nlink <= noThreads {
		return ErrGone
	}
	if int(st.Nlink) != noThreads+threads {
		return ErrThreads
	}
	for try := 1; ; try++ {
		used, apart, err := m.adjust(meterWithin)
		switch {
		case err != nil:
			return err
		case used > int64(threads)*(int64(monotonic()-born)+clockSlack): // more than they can have used since then
			return ErrGone
		case apart <= meterWithin:
			return nil
		case try == meterTries:
			_, _, err := m.adjust(math.MaxInt64)
			return err
		}
	}
}

// Adjust corrects the count by the process's clock. On a virtual machine, the counter runs on while the host runs something
// else, and the clock does not.
func (m *Meter) Adjust() {
	if len(m.fds) > 0 {
		_, _, _ = m.adjust(meterWithin) // else the next one does
	}
}

// set sets the base from the process's clock and the counter at one moment.
func (m *Meter) set(used, counted int64) {
	least := used - counted
	m.base = min(max(m.base, least), least+behind)
}

// behind is how much, in ns, the clock of a running process may be behind: the kernel adds up its time at its own ticks
// (thread_group_cputime of kernel/sched/cputime.c).
const behind = 4_000_000

// adjust sets the base if the counter was read twice within a time, in ns. It returns the CPU time by the process's clock, and
// that between the two readings.
func (m *Meter) adjust(within int64) (used, apart int64, err error) {
	before, err := m.counted()
	if err != nil {
		return 0, 0, err
	}
	used, ok := cpuTime(m.pid)
	if !ok {
		return 0, 0, ErrGone
	}
	after, err := m.counted()
	if apart = after - before; err == nil && apart <= within {
		m.set(used, (before+after)/2)
	}
	return used, apart, err
}

// counted reads the events.
func (m *Meter) counted() (ns int64, err error) {
	var b [8]byte
	for _, fd := range m.fds {
		n, err := unix.Read(fd, b[:])
		if err == nil && n != len(b) {
			err = fmt.Errorf("%d bytes", n)
		}
		if err != nil {
			return 0, fmt.Errorf("read the CPU time of process %d: %w", m.pid, err)
		}
		ns += int64(binary.NativeEndian.Uint64(b[:]))
	}
	return ns, nil
}

// Used returns the CPU time in ns of the process's present and past threads since it was made, also after its end. ok is
// false if Rest was called and its parent has waited for it since. From Linux 6.16 on, the event does not count how the kernel
// frees the memory of a process that exits (perf_event_exit_task of kernel/exit.c), so Used is more exact before its
// parent has waited for it.
func (m *Meter) Used() (ns int64, ok bool) {
	if len(m.fds) > 0 {
		n, err := m.counted()
		if ns, ok = m.base+n, err == nil; !ok {
			return 0, false
		}
	}
	// A shorter time is of another process that has the number now.
	if now, there := cpuTime(m.pid); there && now >= ns && (len(m.fds) == 0 || now <= ns+exitMost) {
		return now, true
	}
	return ns, ok
}

// exitMost is more CPU time, in ns, than the exit of a process takes.
const exitMost = 1_000_000_000

// Rest ends the event, and so its cost for the process.
func (m *Meter) Rest() {
	for _, fd := range m.fds {
		unix.Close(fd)
	}
	m.fds = m.fds[:0]
}

// Close ends m.
func (m *Meter) Close() { m.Rest() }
