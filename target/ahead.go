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
	MaxAhead      = 128 // ticks per Ahead
	MaxAheadStops = 8   // stops per Ahead
	// maxAheadSpans bounds the bytes of small blocks of one stop.
	maxAheadSpans = 16 << 10
)

// Ahead is a plan for several ticks that a stopper runs on its own while all threads keep their
// expected state: running ones run, and sleeping ones have not run. This program then wakes up
// once for several samples; waking it is most of the cost of a sample. Anything unexpected ends
// the run and is left to the caller.
type Ahead struct {
	Due     []stack.Time // when each tick is due, in ascending order
	End     []stack.Time // when each of these ticks ends
	Items   []AheadItem  // the threads to look at, in this order
	Process *Process
	// ByClock reads the CPU time of the whole process instead of visiting Items. While it does
	// not change, no thread has run, except possibly one that started to run less than a
	// scheduler tick ago and still runs.
	ByClock bool
	Fresh   int64 // ns for which another stopper's reading of that clock is recent enough
	Pause   int64 // ns that all stops together may take
	Long    int64 // ns; a stop that takes longer ends the run
	Slept   int64 // ns that a thread to be stopped may have slept since its last look; 0: no limit

	// The result.
	At    []stack.Time // when each tick started
	Ticks int          // completed
	Done  int          // completed items of the next tick
	Stops int          // number of stops made
	// Asleep: the next item should have been stopped, but was blocked.
	Asleep bool
	Left   bool       // it was on a CPU right before
	Stood  stack.Time // last time at which the clock had not advanced
	Err    error      // of the item after the completed ones, as Capture's; nil: not tried
}

// AheadItem is one thread of an Ahead.
type AheadItem struct {
	Thread   *Thread
	Runs     bool       // expected to run: stop it
	Counters Counters   // of a sleeping thread, or, for Slept, at the last look
	At       stack.Time // time of Counters

	// What to copy of a running thread: see Window.
	Spans               []stack.Span
	StackLow, StackHigh uint64
	StackDefault        int
	Deadline            int64
}

// Taken returns the window of the run's n-th stop, from 0.
func (tr *Tracer) Taken(n int) *Window { return tr.taken[n] }

// GoAhead runs the ticks of a, with room for window bytes of stack in each stop. It reports
// whether it could start.
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
			tr.ahead = slices.Delete(slices.Clone(tr.ahead), x.stops, x.stops+1) // that window will be written to
			tr.parted(s, it.Thread, w)
		}
		// A further try shows why it could not be attached.
		if s.b.end != endRefused {
			a.Err = captureError(it.Thread, w, s.b.end)
		}
	}
	return true
}

// foresee writes the plan into the stopper's block.
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

// window returns the window for stop n, with room for stack bytes of stack.
func (tr *Tracer) window(n, stack int) *Window {
	if n == len(tr.ahead) {
		tr.ahead = append(tr.ahead, tr.renewed(stack, maxAheadSpans))
	}
	tr.ahead[n].Grow(stack)
	return tr.ahead[n]
}

// renewed is NewWindow with reused memory, if there is some.
func (tr *Tracer) renewed(stack, spans int) *Window {
	x := Window{max: min(stack, MaxStack), spans: spans}
	w := tr.withRoom(x.stackBase() + pageBytes + x.max)
	x.buf = w.buf
	*w = x
	return w
}

// foresee plans a stop and reports whether the window has room for it.
func (w *Window) foresee(it *AheadItem) bool {
	w.own = append(w.own[:0], it.Spans...)
	w.Spans, w.StackLow, w.StackHigh, w.StackDefault, w.Deadline = w.own, it.StackLow, it.StackHigh, it.StackDefault, it.Deadline
	w.reset()
	w.raw.before = noCall
	w.raw.wantTLS, w.raw.gotTLS = !it.Thread.hasTLS, false
	return w.n == len(it.Spans)
}

// processClock returns the clock ID of a process's CPU time (include/linux/posix-timers.h,
// make_process_cpuclock, CPUCLOCK_SCHED).
func processClock(pid int) uintptr { return uintptr(uint32(int32(^pid)<<3 | 2)) }

// ran adds the CPU time of a stopper.
func (tr *Tracer) ran(s *stopper) {
	used := s.b.cpu[0]*1e9 + s.b.cpu[1]
	tr.cpu.Add(used - s.cpu)
	s.cpu = used
}

// lost drops a stopper that was killed.
func (tr *Tracer) lost(s *stopper) {
	s.b.free(s.mem)
	if tr.resting == s {
		tr.resting = nil
	}
}

// parted records that s keeps t, which has not stopped yet. When it stops, s writes its sample to
// w.
func (tr *Tracer) parted(s *stopper, t *Thread, w *Window) {
	t.late.Store(true)
	s.thread, s.kept, s.since, tr.resting = t, w, monotonic(), nil
	tr.keeping = append(tr.keeping, s)
}

// captureError returns the error for the end of a stop without a sample.
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
