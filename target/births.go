package target

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/stack"
)

// BirthKind is the kind of a Birth.
type BirthKind uint8

// Kinds of Birth.
const (
	Born       BirthKind = iota // a process was made by fork, vfork or clone
	Execed                      // a process became another program
	Ended                       // the first thread of a process ended
	Threaded                    // a process started a thread
	Renamed                     // a thread of a process got a name, other than by an exec
	Unthreaded                  // another thread than the first one ended
)

// Birth is a change in the life of a process, as the kernel reports it.
type Birth struct {
	Kind   BirthKind
	PID    int
	Parent int // of Born: the process that made it
	At     stack.Time
	Comm   string // of Execed and Renamed: the new name
}

// Births reports processes as they are made, exec and end, and their threads as they begin and get names. It uses the records that the kernel
// writes for perf events (PERF_RECORD_FORK, _COMM and _EXIT of linux/perf_event.h). It stops and
// traces nothing. Next and Held are for one goroutine; the other methods may be called from any.
type Births struct {
	perfRings
	scope string
	lost  atomic.Uint64
	once  sync.Once
	found []Birth
	held  []Birth // returned by the next call of Next
}

// birthPages is the size of each CPU's ring: a record takes about 48 bytes, so 2700 fit.
const birthPages = 32

// commExec marks a PERF_RECORD_COMM that an exec caused (PERF_RECORD_MISC_COMM_EXEC).
const commExec = 1 << 13

// OpenBirths reports all processes of the machine, if this program may observe them (CAP_PERFMON,
// root, or kernel.perf_event_paranoid below 1). Otherwise it reports root and its descendants;
// root must have one thread and no children yet, like a Command before its Release. With root 0
// it then returns an error.
func OpenBirths(root int) (*Births, error) {
	b, err := openBirths(-1, 0, "all processes")
	if err != nil && root > 0 {
		b, err = openBirths(root, unix.PerfBitInherit, "descendants")
	}
	return b, err
}

func openBirths(pid int, inherit uint64, scope string) (*Births, error) {
	rings, err := openRings("observe new processes", func(cpu int) (*perfRing, error) { return openBirthRing(pid, cpu, inherit) })
	if err != nil {
		return nil, err
	}
	return &Births{perfRings: rings, scope: scope}, nil
}

func openBirthRing(pid, cpu int, inherit uint64) (*perfRing, error) {
	// With the bit for a watermark, Wakeup is in bytes: each record wakes the reader. Without it
	// only samples do.
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_DUMMY, Sample_type: unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitTask | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitWatermark | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID |
			unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | inherit,
		Wakeup: 1, Clockid: unix.CLOCK_MONOTONIC}
	fd, err := unix.PerfEventOpen(&attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	r := &perfRing{fd: fd}
	if r.ring, err = perfring.Map(fd, birthPages); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// Scope says which processes are reported: "all processes" or "descendants".
func (b *Births) Scope() string { return b.scope }

// Lost returns how many records the kernel dropped because they were not read in time.
func (b *Births) Lost() uint64 { return b.lost.Load() }

// Wake makes the current or next call of Next return at once.
func (b *Births) Wake() { b.rouse() }

// clockSlack, in ns, is more than the kernel's clock of records may be behind that of this program
// (kernel/time/timekeeping.c, ktime_get_mono_fast_ns).
const clockSlack = 100_000

// gather is how long Next waits for more after the first report: a birth, an exec and an end often follow each other,
// and a wake-up costs more than their reports.
const gather = time.Millisecond

// Next waits until the kernel reports something, Wake is called or the time is over, and returns
// the reports by time. Reports are up to gather old. The slice is valid until the next call.
//
// Of all that is returned, everything that came before it has been returned. The rings of the CPUs are read one
// after another: a process may be started after the first was read, and start one itself on the CPU that is read next.
// The kernel writes the report of a birth before the process runs, so the reports up to the begin of the reading are
// complete. The others are held back for the next call.
func (b *Births) Next(wait time.Duration) []Birth {
	if len(b.held) > 0 {
		wait = min(wait, gather)
	}
	fds := b.pollFDs()
	if b.await(fds, wait) && fds[0].Revents == 0 && len(b.held) == 0 {
		b.await(fds[:1], gather)
	}
	if fds[0].Revents != 0 {
		var drain [8]byte
		_, _ = unix.Read(b.wake, drain[:])
	}
	complete := monotonic() - clockSlack
	b.found = append(b.found[:0], b.held...)
	for _, r := range b.rings {
		r.ring.Read(func(rec []byte) {
			x, lost, ok := parseBirth(rec)
			b.lost.Add(lost)
			if ok {
				b.found = append(b.found, x)
			}
		})
	}
	slices.SortStableFunc(b.found, func(x, y Birth) int { return int(x.At - y.At) })
	n := len(b.found)
	for n > 0 && b.found[n-1].At >= complete {
		n--
	}
	b.held = append(b.held[:0], b.found[n:]...)
	return b.found[:n]
}

// await waits until one of fds can be read, or the time is over. It reports whether one can.
func (b *Births) await(fds []unix.PollFd, wait time.Duration) (ready bool) {
	// A ring whose CPU or process is gone is always ready: it must not end the wait.
	deadline := time.Now().Add(wait)
	for {
		left := max(time.Until(deadline), 0)
		ts := [2]int64{int64(left / time.Second), int64(left % time.Second)}
		n, errno := sleep(&fds[0], len(fds), &ts)
		if errno == unix.EINTR {
			continue
		}
		for i := range fds {
			ready = ready || fds[i].Revents&unix.POLLIN != 0
		}
		forgetGone(fds)
		if ready || errno != 0 || n == 0 {
			return ready
		}
	}
}

// Held reports whether the last call of Next has held back reports.
func (b *Births) Held() bool { return len(b.held) > 0 }

// Close ends the reports. No call of Next may be under way.
func (b *Births) Close() {
	b.once.Do(b.release)
}

// parseBirth parses a record of perf_event_open(2), with PERF_SAMPLE_TIME at its end. It returns
// ok false for records of other kinds, and lost for PERF_RECORD_LOST.
func parseBirth(b []byte) (x Birth, lost uint64, ok bool) {
	const header, tail = 8, 8
	if len(b) < header+tail {
		return x, 0, false
	}
	typ, misc := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
	x.At = stack.Time(binary.NativeEndian.Uint64(b[len(b)-tail:]))
	body := b[header : len(b)-tail]
	word := func(i int) int { return int(int32(binary.NativeEndian.Uint32(body[4*i:]))) }
	switch typ {
	case unix.PERF_RECORD_LOST: // id, number
		if len(body) >= 16 {
			lost = binary.NativeEndian.Uint64(body[8:])
		}
		return x, lost, false
	case unix.PERF_RECORD_FORK, unix.PERF_RECORD_EXIT: // pid, ppid, tid, ptid, time
		if len(body) < 24 || word(0) <= 0 {
			return x, 0, false
		}
		first, born := word(0) == word(2), typ == unix.PERF_RECORD_FORK
		switch x.PID = word(0); {
		case born && first:
			x.Parent, x.Kind = word(1), Born
		case born:
			x.Kind = Threaded
		case first:
			x.Kind = Ended
		default:
			x.Kind = Unthreaded
		}
		return x, 0, true
	case unix.PERF_RECORD_COMM: // pid, tid, name
		if len(body) < 8 || word(0) <= 0 {
			return x, 0, false
		}
		if x.PID, x.Kind = word(0), Renamed; misc&commExec != 0 {
			x.Kind = Execed
		}
		name, _, _ := bytes.Cut(body[8:], []byte{0})
		x.Comm = string(name)
		return x, 0, true
	}
	return x, 0, false
}
