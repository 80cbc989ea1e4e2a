package view

import (
	"math/bits"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// States is a thread's time by state, in ns. Where the recording has the thread's context switches, all
// are exact. In the rest of the observed time, Running and Runnable are the scheduler's account, and what
// remains is split in proportion to the time between samples that found the thread in each of the other
// states; if none did, and the thread was never switched in, it waited for a CPU. Running, Runnable, Blocked, Disk,
// Fault and Stopped add up to Observed.
type States struct {
	Observed int64 // from the first sample to the last, without times of lost events, and the CPU time before that
	Running  int64 // on a CPU
	Runnable int64 // waiting for a CPU
	Blocked  int64 // sleeping until something happens
	Disk     int64 // in uninterruptible sleep
	Fault    int64 // waiting for memory
	Stopped  int64 // stopped by a signal, or traced
	// Parts of Blocked.
	Locks    int64  // for a lock that another thread may hold: see trace.Wait.Excludes
	Switches uint64 // times that it was switched in
}

// States computes the time by state of th in the range, with the side and focus of v applied.
// All exports use these numbers.
func (v *View) States(th *Thread) States { return v.sum(th).states(v.side) }

// Waited returns the time between samples that found th waiting, in ns, in the range and focus of v. States
// has the scheduler's account of it.
func (v *View) Waited(th *Thread) int64 {
	s := v.sum(th)
	return s.seen.Observed - s.seen.Running
}

// sum sums the events of th in the range and focus of v.
func (v *View) sum(th *Thread) *stateSum {
	s := &stateSum{v: v}
	if v.focus != nil {
		w := *v
		w.side = BothSides
		w.Steps(th, s)
	} else {
		s.read(th.Seq)
	}
	return s
}

// stateSum sums the events of a thread.
type stateSum struct {
	v        *View
	now      diff.Waiting
	cpu      int64
	delay    int64
	switches uint64
	seen     States // from samples alone; Observed is their sum
	exact    States // the part of seen that context switches show
	before   int64  // CPU time before the first sample
}

// read reads all events of a thread.
func (s *stateSum) read(seq int) {
	var told seenAt
	var at stack.Time
	part, cpu, delay, switches := 0.0, 0.0, 0.0, 0.0
	_, s.before = s.v.before(seq)
	for e := range s.v.Rec.Fitted(seq) {
		if e.Kind() != event.Enter && e.Time > at { // the frames of a Sync were entered earlier
			t := min(e.Time, maxTime)
			s.spent(int64(max(min(t, s.v.to)-max(at, s.v.from), 0)))
			at = t
		}
		switch e.Kind() {
		case event.Seen:
			_, _, ns := event.SeenFields(e.Payload())
			part = told.part(e.Time, s.v)
			cpu += part * float64(ns)
		case event.Sched: // it follows its Seen
			n, ns := event.SchedFields(e.Payload())
			delay += part * float64(ns)
			switches += part * float64(n)
		default:
			told.note(e)
			s.apply(e)
		}
	}
	s.cpu, s.delay, s.switches = whole(cpu), whole(delay), uint64(whole(switches))
}

// whole rounds x, which is at least 0.
func whole(x float64) int64 { return int64(min(x, float64(maxTime)) + .5) }

// apply handles a change of the thread's state.
func (s *stateSum) apply(e event.Event) {
	s.now.Apply(e)
	if e.Kind() == event.Mark && stack.Why(e.Payload()) == stack.WhyGone {
		s.now = diff.Waiting{}
	}
}

// spent adds ns to the current state.
func (s *stateSum) spent(ns int64) {
	if s.v.side == HoldsGIL && !s.now.GIL() {
		return
	}
	s.add(&s.seen, ns)
	if s.now.Exact() {
		s.add(&s.exact, ns)
	}
}

// add adds ns to the current state in x.
func (s *stateSum) add(x *States, ns int64) {
	state, _ := s.now.State()
	switch state {
	case stack.StateUnknown, stack.StateDead:
		return
	case stack.StateRunning:
		x.Running += ns
	case stack.StateRunnable:
		x.Runnable += ns
	case stack.StateDisk:
		x.Disk += ns
	case stack.StateFault:
		x.Fault += ns
	case stack.StateStopped, stack.StateTraced:
		x.Stopped += ns
	default:
		x.Blocked += ns
		if s.v.ForLock(&s.now) {
			x.Locks += ns
		}
	}
	x.Observed += ns
}

// ForLock reports whether a wait is for a lock that another thread may hold.
func (v *View) ForLock(w *diff.Waiting) bool { return v.Wait(w).Excludes() && v.LockOf(w) != "" }

// Spent implements Steps, for a view with a focus.
func (s *stateSum) Spent(_ []diff.Frame, known bool, _ stack.Time, ns int64) {
	if known {
		s.spent(ns)
	}
}

// Changed implements Steps.
func (s *stateSum) Changed(int) {}

// Other implements Steps.
func (s *stateSum) Other(e event.Event, _ []diff.Frame, _ bool) {
	if e.Kind() == event.Sched {
		n, ns := event.SchedFields(e.Payload())
		s.delay = min(s.delay+ns, int64(maxTime))
		s.switches += n
	}
	s.apply(e)
}

// Ran implements Steps.
func (s *stateSum) Ran(_ []diff.Frame, _ bool, _ stack.Time, ns int64) { s.cpu += ns }

// Unseen implements Steps.
func (s *stateSum) Unseen(u Unsampled) {
	if u.Before {
		s.before += u.NS
		return
	}
	s.cpu += u.NS
}

// states splits the observed time by state.
func (s *stateSum) states(side Side) States {
	x := s.seen
	if side == HoldsGIL { // the scheduler does not know who held it
		return x
	}
	e := &s.exact
	x.less(e)
	x.Switches = s.switches
	if s.cpu == 0 && s.delay == 0 && s.switches == 0 && s.seen.Running > 0 && !s.v.counted {
		s.cpu, s.delay = s.seen.Running, s.seen.Runnable
	}
	x.Running = min(max(s.cpu-e.Running, 0), x.Observed)
	x.Runnable = min(max(s.delay-e.Runnable, 0), x.Observed-x.Running) // the kernel counts a wait for a CPU at its end, which may be in a later range
	if x.Blocked+x.Disk+x.Fault+x.Stopped == 0 && s.switches == 0 {    // the kernel has not counted a wait for a CPU that has not ended
		x.Runnable = x.Observed - x.Running
	} else if b := x.Blocked; b > 0 {
		split(x.Observed-x.Running-x.Runnable, &x.Blocked, &x.Disk, &x.Fault, &x.Stopped)
		x.Locks = share(x.Blocked, x.Locks, b)
	} else {
		split(x.Observed-x.Running-x.Runnable, &x.Blocked, &x.Disk, &x.Fault, &x.Stopped)
	}
	x.more(e)
	x.Observed += s.before
	x.Running += s.before
	switch side {
	case OnCPU:
		x = States{Observed: x.Running, Running: x.Running, Switches: x.Switches}
	case OffCPU:
		x.Observed -= x.Running
		x.Running = 0
	}
	return x
}

// less takes away the times of y.
func (x *States) less(y *States) { x.sum(y, -1) }

// more adds the times of y.
func (x *States) more(y *States) { x.sum(y, 1) }

func (x *States) sum(y *States, sign int64) {
	x.Observed += sign * y.Observed
	x.Running += sign * y.Running
	x.Runnable += sign * y.Runnable
	x.Blocked += sign * y.Blocked
	x.Disk += sign * y.Disk
	x.Fault += sign * y.Fault
	x.Stopped += sign * y.Stopped
	x.Locks += sign * y.Locks
}

// split divides whole among the parts in proportion to their values. The last nonzero part gets
// the rounding; the first one gets everything if all are 0.
func split(whole int64, parts ...*int64) {
	sum := int64(0)
	for _, p := range parts {
		sum += *p
	}
	if sum == 0 {
		*parts[0] = whole
		return
	}
	for _, p := range parts {
		if *p == 0 {
			continue
		}
		part := share(whole, *p, sum)
		sum -= *p
		whole -= part
		*p = part
	}
}

// share returns whole*part/sum, where part is at most sum and sum is positive.
func share(whole, part, sum int64) int64 {
	hi, lo := bits.Mul64(uint64(max(whole, 0)), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(sum))
	return int64(q)
}

var _ Steps = (*stateSum)(nil)
