package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ahead is an Ahead in the form that a stopper reads, and its result. The rules of
// stopper_unsafe.go apply to its methods.
type ahead struct {
	n           int // ticks
	due, end    [MaxAhead]int64
	items       []aheadItem
	windows     []*Window
	threads     []*Thread   // the running ones, in order: for the Tracer
	runs        int         // their number
	poll        unix.PollFd // the Tracer's wake descriptor
	task        uintptr     // the process's task directory
	links       uint64      // the number of threads, as stat shows it
	process     uintptr     // the clock ID of its CPU time
	byClock     bool
	shared      *processTime // shared by the stoppers of this process
	cpu         int64        // the clock's value, in ns, at the time start
	start       int64
	fresh       int64 // ns for which another stopper's reading is recent enough
	stood       int64 // last time at which the clock still had that value
	pause, long int64
	slept       int64

	ticks int // completed
	item  int // the current one
	stops int
	tried bool // the current item was asked to stop
	begun bool // the current tick has started
	over  bool // no further item follows
	woken bool // the Tracer was woken
	at    [MaxAhead + 1]int64

	ts   [2]int64
	stat [32]uint64
	line [512]byte
}

// processTime is the CPU time of a process at a stopper's last reading. The stoppers write it
// without synchronization: a stopper that finds the two fields inconsistent reads the clock
// itself.
type processTime struct{ at, cpu int64 }

type aheadItem struct {
	tid, pid           uintptr
	schedstat, syscall uintptr
	runs               bool
	cpu, delay, at     int64    // of a running thread: its CPU time and delay in ns, and their time
	line               [64]byte // schedstat of a sleeping thread
	lineLen            int
}

// linksAt is the position of st_nlink among the words of struct stat. On arm64 it shares a word
// with st_mode, which is constant.
const linksAt = 2

// next advances to the next thread to be stopped and reports whether there is one; otherwise the
// run is over. stopperMain makes the stop itself, because such code may use little stack.
//
//go:nosplit
//go:norace
func (b *stopBlock) next() bool {
	a := &b.ahead
	for !a.over {
		if !a.begun {
			a.at[a.ticks] = 0
			if a.ticks >= a.n || !b.begin() {
				return false
			}
			a.begun = true
		}
		for a.item < len(a.items) {
			it := &a.items[a.item]
			if !a.asForeseen(it) {
				return false
			}
			if it.runs {
				b.tid, b.pid, b.schedstat, b.syscall, b.check = it.tid, it.pid, it.schedstat, it.syscall, true
				b.since = a.at[a.ticks]
				a.tried = true
				return true
			}
			a.item++
		}
		a.ends()
	}
	return false
}

// ends completes a tick.
//
//go:nosplit
//go:norace
func (a *ahead) ends() {
	a.item, a.begun = 0, false
	a.ticks++
	a.at[a.ticks] = 0
}

// took records a stop if it went as expected.
//
//go:nosplit
//go:norace
func (b *stopBlock) took(w *Window) {
	a := &b.ahead
	if b.end == endAsleep {
		a.tried = false // unexpected
	}
	if b.end != endDone {
		return
	}
	a.tried = false
	a.stops++
	took := int64(w.Resumed - w.Asked)
	a.pause -= took
	a.over = a.pause < 0 || took > a.long || w.Group || !w.whole()
	if a.item++; a.item == len(a.items) {
		a.ends()
	}
}

// whole reports whether the stack was at its expected place and copied to its end.
//
//go:nosplit
//go:norace
func (w *Window) whole() bool {
	sp := nativeStackPointer(&w.raw.regs)
	return w.StackHigh > sp && sp >= w.StackLow && w.stack == w.want && w.got[w.n] == w.stack
}

// begin sleeps until the next tick and reports whether it may start.
//
//go:nosplit
//go:norace
func (b *stopBlock) begin() bool {
	a := &b.ahead
	var now int64
	for {
		now = a.clock(1)
		left := a.due[a.ticks] - now
		if left <= 0 {
			break
		}
		a.ts[0], a.ts[1] = left/1e9, left%1e9
		n, errno := raw6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&a.poll)), 1, uintptr(unsafe.Pointer(&a.ts)), 0, 0, 0)
		if errno == 0 && n > 0 {
			a.woken = true
			return false
		}
	}
	if now >= a.end[a.ticks] || b.orphan() || !a.readLinks() || a.stat[linksAt] != a.links {
		return false
	}
	if a.byClock && !a.stands(now) {
		return false
	}
	a.at[a.ticks] = now
	return true
}

// Reports whether the process's clock has kept its value. One stopper reads it for all,
// because with many threads a reading takes the kernel some time.
//
//go:nosplit
//go:norace
func (a *ahead) stands(now int64) bool {
	x := a.shared
	if x.at < a.start || now-x.at > a.fresh || x.cpu != a.cpu {
		if !a.readClock() {
			return false
		}
		x.cpu = a.ts[0]*1e9 + a.ts[1]
		x.at = now
		if x.cpu != a.cpu {
			return false
		}
	}
	a.stood = x.at
	return true
}

// asForeseen reports whether a thread that should run does, or one that should sleep has not run.
//
//go:nosplit
//go:norace
func (a *ahead) asForeseen(it *aheadItem) bool {
	if it.runs { // the stop shows whether it runs
		return a.slept <= 0 || a.awake(it)
	}
	n, errno := raw6(syscall.SYS_PREAD64, it.schedstat, uintptr(unsafe.Pointer(&a.line)), uintptr(len(a.line)), 0, 0, 0)
	if errno != 0 || n == 0 {
		return false
	}
	if int(n) != it.lineLen {
		return false
	}
	for i := 0; i < it.lineLen; i++ {
		if a.line[i] != it.line[i] {
			return false
		}
	}
	return true
}

// awake reports whether a thread has slept for less than the limit since its last look. A thread
// that was woken by a call's timeout and still waits for a CPU must not be stopped.
//
//go:nosplit
//go:norace
func (a *ahead) awake(it *aheadItem) bool {
	n, errno := raw6(syscall.SYS_PREAD64, it.schedstat, uintptr(unsafe.Pointer(&a.line)), uintptr(len(a.line)-1), 0, 0, 0)
	if errno != 0 || n == 0 {
		return false
	}
	var v [2]int64
	at := 0
	for i := range v {
		for ; at < len(a.line)-1 && a.line[at]-'0' <= 9; at++ {
			v[i] = v[i]*10 + int64(a.line[at]-'0')
		}
		at++ // a space
	}
	now := a.clock(1)
	slept := now - it.at - (v[0] - it.cpu) - (v[1] - it.delay)
	it.cpu, it.delay, it.at = v[0], v[1], now
	return slept <= a.slept
}

// clock reads a clock of the kernel, in ns.
//
//go:nosplit
//go:norace
func (a *ahead) clock(id uintptr) int64 {
	raw6(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&a.ts)), 0, 0, 0, 0)
	return a.ts[0]*1e9 + a.ts[1]
}

//go:nosplit
//go:norace
func (a *ahead) readClock() bool {
	_, errno := raw6(syscall.SYS_CLOCK_GETTIME, a.process, uintptr(unsafe.Pointer(&a.ts)), 0, 0, 0, 0)
	return errno == 0
}

//go:nosplit
//go:norace
func (a *ahead) readLinks() bool {
	_, errno := raw6(syscall.SYS_FSTAT, a.task, uintptr(unsafe.Pointer(&a.stat)), 0, 0, 0, 0)
	return errno == 0
}
