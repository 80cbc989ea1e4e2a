package target

import (
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Limits of an Ahead.
const (
	MaxAhead      = 128 // ticks
	MaxAheadStops = 8   // of them all
	// maxAheadSpans bounds the bytes of small blocks of each of those.
	maxAheadSpans = 16 << 10
)

// Ahead is some ticks that a stopper goes through by itself, as long as all is
// as it was foreseen: the threads that ran run, and those that slept have not
// run. So this program wakes up once for several samples; its own waking is most
// of what a sample costs. What comes otherwise ends it, and is left to the caller.
type Ahead struct {
	Due     []stack.Time // when to look, rising
	End     []stack.Time // when each of these ticks is over
	Items   []AheadItem  // what to look at, in this order
	Process *Process
	// ByClock has the CPU time of the whole process looked at in place of Items: as
	// long as it stays, none of its threads has run, but perhaps one that began to
	// less than a scheduler's tick ago and runs still.
	ByClock bool
	Fresh   int64 // ns for which another one's look at it will do
	Pause   int64 // ns that all stops together may take
	Long    int64 // a stop that takes longer, in ns, is the last one
	Slept   int64 // ns that one that is to be stopped may have slept since it was looked at last; 0: any

	// What came of it.
	At    []stack.Time // when each tick was begun
	Ticks int          // that are done
	Done  int          // items of the next one that are done
	Stops int          // that were taken
	// Asleep: the next item should have been stopped, but was blocked.
	Asleep bool
	Left   bool       // a moment before, it was on a CPU
	Stood  stack.Time // when the clock was last seen not to have moved
	Err    error      // of the item after those: as Capture's; nil: it was not tried
}

// AheadItem is one thread of an Ahead.
type AheadItem struct {
	Thread   *Thread
	Runs     bool       // to be stopped
	Counters Counters   // of one that sleeps, or, for Slept, at the last look
	At       stack.Time // when that was

	// What to copy of one that runs: see Window.
	Spans               []stack.Span
	StackLow, StackHigh uint64
	StackDefault        int
	Deadline            int64
}

// Taken is the window of a stop, n being its number among those that came of
// the Ahead.
func (tr *Tracer) Taken(n int) *Window { return tr.taken[n] }

// GoAhead goes through the ticks of a, with room for so many bytes of stack in each
// stop. It reports whether it could be begun.
func (tr *Tracer) GoAhead(a *Ahead, window int) bool {
	a.At, a.Ticks, a.Done, a.Stops, a.Err, a.Asleep = a.At[:0], 0, 0, 0, nil, false
	tr.recall()
	if tr.Late() > 0 || tr.alone {
		return false
	}
	s := tr.stopper()
	if s == nil || !tr.foresee(s.b, a, window) {
		return false
	}
	x := &s.b.ahead
	s.call(stopAhead)
	for !s.b.await(awaitEach) {
		if s.ended() {
			tr.lost(s)
			return true
		}
	}
	for _, at := range x.at[:x.ticks+1] {
		a.At = append(a.At, stack.Time(at))
	}
	a.Ticks, a.Done, a.Stood = x.ticks, x.item, stack.Time(x.stood)
	for i := range x.stops {
		w := x.windows[i]
		if err := parseSchedstat(w.raw.line[:w.raw.lineLen], &w.Counters); err != nil {
			break
		}
		tr.done(x.threads[i%x.runs], w)
		tr.spins.spun = w.SpinFor > 1
		tr.spins.note(int64(w.Stopped-w.Asked), true)
		a.Stops++
	}
	if a.Asleep = s.b.end == endAsleep; a.Asleep {
		a.Left = x.windows[x.stops].raw.found.left
	}
	tr.taken = x.windows
	tr.ran(s)
	if x.woken {
		tr.woken()
	}
	if x.tried {
		it := &a.Items[x.item]
		if s.b.end == endLate {
			tr.spins.note(0, false)
		}
		w := x.windows[x.stops]
		if s.keeps() || s.b.end == endLate {
			tr.ahead = slices.Delete(slices.Clone(tr.ahead), x.stops, x.stops+1) // that window is to be written to
			tr.parted(s, it.Thread, w)
		}
		// Why it could not be attached is found out by trying again.
		if s.b.end != endRefused {
			a.Err = captureError(it.Thread, w, s.b.end)
		}
	}
	return true
}

// foresee writes down for the stopper what to do.
func (tr *Tracer) foresee(b *stopBlock, a *Ahead, window int) bool {
	x := &b.ahead
	x.n, x.ticks, x.item, x.stops, x.runs = min(len(a.Due), MaxAhead), 0, 0, 0, 0
	x.tried, x.woken, x.begun, x.over = false, false, false, false
	x.items, x.threads = x.items[:0], x.threads[:0]
	x.pause, x.long, x.slept = a.Pause, a.Long, a.Slept
	x.poll = unix.PollFd{Fd: int32(tr.wake), Events: unix.POLLIN}
	x.task, x.byClock, x.process = uintptr(a.Process.task), a.ByClock, processClock(a.Process.pid)
	for i := range x.n {
		x.due[i], x.end[i] = int64(a.Due[i]), int64(a.End[i])
	}
	for i := range a.Items {
		it := &a.Items[i]
		t := it.Thread
		y := aheadItem{tid: uintptr(t.tid), pid: uintptr(t.pid), schedstat: uintptr(t.schedstat), syscall: uintptr(t.syscall), runs: it.Runs,
			cpu: it.Counters.CPU, delay: it.Counters.Delay, at: int64(it.At)}
		if it.Runs {
			if t.late.Load() {
				return false
			}
			x.runs++
			x.threads = append(x.threads, t)
		} else {
			line := y.line[:0]
			line = append(strconv.AppendInt(line, it.Counters.CPU, 10), ' ')
			line = append(strconv.AppendInt(line, it.Counters.Delay, 10), ' ')
			line = append(strconv.AppendUint(line, it.Counters.Switches, 10), '\n')
			y.lineLen = copy(y.line[:], line)
		}
		x.items = append(x.items, y)
	}
	if x.runs > 0 {
		if x.n = min(x.n, MaxAheadStops/x.runs); x.n == 0 {
			return false
		}
		for n := 0; n < x.n*x.runs; {
			for i := range a.Items {
				if it := &a.Items[i]; it.Runs {
					w := tr.window(n, window)
					if w.SpinFor = tr.spins.next(DefaultSpin); !w.foresee(it) {
						return false
					}
					n++
				}
			}
		}
		x.windows = tr.ahead
		b.spare.raw.before = noCall
	}
	now := monotonic() // before the clock is read
	if x.n == 0 || !x.readLinks() || a.ByClock && !x.readClock() {
		return false
	}
	x.links, x.cpu = x.stat[linksAt], x.ts[0]*1e9+x.ts[1]
	x.shared, x.start, x.stood, x.fresh = &a.Process.time, int64(now), int64(now), a.Fresh
	return true
}

// window is the one for stop n, with room for so many bytes of stack.
func (tr *Tracer) window(n, stack int) *Window {
	if n == len(tr.ahead) {
		tr.ahead = append(tr.ahead, tr.renewed(stack, maxAheadSpans))
	}
	tr.ahead[n].Grow(stack)
	return tr.ahead[n]
}

// renewed is newWindow, in memory that is kept where there is some.
func (tr *Tracer) renewed(stack, spans int) *Window {
	x := Window{max: min(stack, MaxStack), spans: spans}
	w := tr.withRoom(x.stackBase() + pageBytes + x.max)
	x.buf = w.buf
	*w = x
	return w
}

// foresee plans a stop, and reports whether the window has room for it.
func (w *Window) foresee(it *AheadItem) bool {
	w.own = append(w.own[:0], it.Spans...)
	w.Spans, w.StackLow, w.StackHigh, w.StackDefault, w.Deadline = w.own, it.StackLow, it.StackHigh, it.StackDefault, it.Deadline
	w.reset()
	w.raw.before = noCall
	w.raw.wantTLS, w.raw.gotTLS = !it.Thread.hasTLS, false
	return w.n == len(it.Spans)
}

// processClock is the kernel's number for the CPU time of a process
// (include/linux/posix-timers.h, make_process_cpuclock, CPUCLOCK_SCHED).
func processClock(pid int) uintptr { return uintptr(uint32(int32(^pid)<<3 | 2)) }

// ran counts the CPU time of a stopper.
func (tr *Tracer) ran(s *stopper) {
	used := s.b.cpu[0]*1e9 + s.b.cpu[1]
	tr.cpu.Add(used - s.cpu)
	s.cpu = used
}

// lost forgets a stopper that somebody killed.
func (tr *Tracer) lost(s *stopper) {
	s.b.free(s.mem)
	if tr.resting == s {
		tr.resting = nil
	}
}

// parted notes that s keeps t, which has not stopped, and writes its sample to w when
// it does.
func (tr *Tracer) parted(s *stopper, t *Thread, w *Window) {
	t.late.Store(true)
	s.thread, s.kept, s.since, tr.resting = t, w, monotonic(), nil
	tr.keeping = append(tr.keeping, s)
}

// captureError says what the end of a stop that brought nothing means.
func captureError(t *Thread, w *Window, end int) error {
	switch end {
	case endLate:
		return ErrLater
	case endDead, endGone:
		return ErrGone
	}
	if w.raw.errno == unix.ESRCH {
		return ErrGone
	}
	return fmt.Errorf("sample thread %d: %w", t.tid, w.raw.errno)
}
