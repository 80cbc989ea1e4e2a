package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ahead is an Ahead as a stopper reads it, and what came of it. The rules of
// stopper_unsafe.go hold for its methods.
type ahead struct {
	n           int // ticks
	due, end    [MaxAhead]int64
	items       []aheadItem
	windows     []*Window
	threads     []*Thread   // that run, in their order: for the Tracer
	runs        int         // how many these are
	poll        unix.PollFd // somebody wakes the Tracer
	task        uintptr     // the process's list of threads
	links       uint64      // how many there are, as stat shows it
	process     uintptr     // the clock of its CPU time
	byClock     bool
	shared      *processTime // what stoppers know of it
	cpu         int64        // what it showed, in ns, at the time start
	start       int64
	fresh       int64 // ns for which what another stopper has read will do
	stood       int64 // when it was last seen to stand there
	pause, long int64
	slept       int64

	ticks int // that are done
	item  int // the one that is in turn
	stops int
	tried bool // the one in turn was asked to stop
	begun bool // the tick in turn was
	over  bool // no further one is to be
	woken bool // somebody has woken the Tracer
	at    [MaxAhead + 1]int64

	ts   [2]int64
	stat [32]uint64
	line [512]byte
}

// processTime is the CPU time of a process as one of the stoppers read it last. They
// write it as they please: who finds the two at odds reads the clock itself.
type processTime struct{ at, cpu int64 }

type aheadItem struct {
	tid, pid           uintptr
	schedstat, syscall uintptr
	runs               bool
	cpu, delay, at     int64    // of one that runs: what it had used and waited, in ns, and when that was
	line               [64]byte // what schedstat says of one that sleeps
	lineLen            int
}

// linksAt is where st_nlink is among the words of struct stat; on arm64 it shares
// that one with st_mode, which stays.
const linksAt = 2

// next goes on to the next thread that is to be stopped, and reports whether there is
// one; else it is over. The stop itself is called for by stopperMain, since there is
// little stack that such code may use.
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

// ends is the end of a tick.
//
//go:nosplit
//go:norace
func (a *ahead) ends() {
	a.item, a.begun = 0, false
	a.ticks++
	a.at[a.ticks] = 0
}

// took notes a stop that was as foreseen, if it was.
//
//go:nosplit
//go:norace
func (b *stopBlock) took(w *Window) {
	a := &b.ahead
	if b.end == endAsleep {
		a.tried = false // not as foreseen
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

// whole reports whether the stack was where it was foreseen, and copied to its end.
//
//go:nosplit
//go:norace
func (w *Window) whole() bool {
	sp := nativeStackPointer(&w.raw.regs)
	return w.StackHigh > sp && sp >= w.StackLow && w.stack == w.want && w.got[w.n] == w.stack
}

// begin sleeps until the next tick, and reports whether it is to be.
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

// stands reports whether the process's clock stands where it stood. One stopper
// reads it for all: with many threads it takes the kernel some time.
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

// asForeseen reports whether a thread runs that is to, or has not run since.
//
//go:nosplit
//go:norace
func (a *ahead) asForeseen(it *aheadItem) bool {
	if it.runs { // whether it does is seen at the stop
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

// awake reports whether a thread has slept for less than is allowed since it was looked
// at last: one that was woken by a call's timeout and waits for a CPU still must not be stopped.
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

// clock reads one of the kernel's clocks, in ns.
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
