package view

import (
	"iter"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// The scheduler's account gives the exact CPU time of a thread, but not by call. Samples give the
// call, but only at some moments. An account combines the two: the CPU time of a window is shared
// equally among the samples that found the thread on a CPU in it. In survey sampling this is a ratio
// estimator with post-stratification; docs/notes/estimator.md derives its bias and variance. CPU time
// never goes to a call that sleeps, and the sum is the scheduler's.

// Limits of a window.
const (
	// windowRuns is the number of running samples that ends a window. Equal shares over a window cost
	// one part in windowRuns of the variance, and adapt to a program that loses more ticks in one
	// phase than in another, and to an interval that is stretched to hold the overhead bound.
	windowRuns = 16
	// leastRuns is the least number of running samples by stops and by clocks for which each have windows of their own: two stops would
	// share all CPU time of those that found the thread waiting for a CPU.
	leastRuns = windowRuns / 2
	// alikeBy is by which factor the CPU time of a running sample may differ from that of the window before, for a last
	// window with fewer samples to join it.
	alikeBy = 2
	// unseenTicks is the CPU time, in intervals of the thread at that time, after which a window without a running
	// sample counts as not sampled. By chance that happens less than once in 2,900 windows.
	unseenTicks = 8
	// unseenAfter is the shortest such window, in ns.
	unseenAfter = 10_000_000_000
)

// window is a stretch of a thread's samples that share its CPU time.
type window struct {
	end  int        // number of the first Seen event after it
	from stack.Time // time of its first Seen event
	last stack.Time // time of its last Seen event
	runs float64    // samples that found the thread running
	cpu  float64    // ns
	due  float64    // samples that should have found the thread running: CPU time in intervals
}

// account is the account of one thread within the range of a View.
type account struct {
	shares
	seen     int     // Seen events so far
	told     seenAt  // time of the next Seen's stack
	credited float64 // exact sum of shares, ns
	given    int64   // whole ns already credited
}

// shares are the windows of a thread's samples. If they are split, samples by stops and those by clocks have windows of their own. A clock
// leaves to stops the stacks that it cannot copy, such as deep ones of Python, and the overhead bound makes stops rarer
// than copies: common windows would give CPU time of deep stacks to others. CPU time before a sample of a running or
// runnable thread belongs to the samples that were taken in the same way, and CPU time before a sample of a sleep to those of the next
// such sample.
type shares struct {
	split bool
	by    [2]stratum
	none  []window // stretches without a sample of a running thread
}

// stratum is the samples that were taken in one way.
type stratum struct {
	windows []window
	at      int // current window
}

// of returns the number of the stratum of samples that were taken in way w.
func (s *shares) of(w stack.Way) int {
	if s.split && w == stack.WayClock {
		return 1
	}
	return 0
}

// account splits the events of a thread into windows.
func (v *View) account(seq int) *account {
	r := &accountant{v: v, every: float64(max(v.Rec.Process.Interval, 1))}
	r.apart.split = true
	if at, ns := v.before(seq); ns > 0 {
		before := window{from: at, last: at - 1, cpu: float64(ns)}
		r.joint.none, r.apart.none = []window{before}, []window{before}
	}
	for e := range v.sampled(seq) {
		if r.apply(e); e.Kind() == event.Seen && e.Time > v.to {
			break // last window that overlaps the range
		}
	}
	if min(r.apart.runs[0], r.apart.runs[1]) >= leastRuns {
		r.apart.close()
		return &account{shares: r.apart.shares}
	}
	r.joint.close()
	return &account{shares: r.joint.shares}
}

// sampled returns the events of a thread for its account. Changes of state keep the times of their samples if no sample
// is in the range for a part only: that takes a third of the time, and samples are in the state that they found either way.
func (v *View) sampled(seq int) iter.Seq[event.Event] {
	if t := v.Rec.Thread(seq); v.from > 0 || v.to < maxTime || t != nil && v.Rec.HasSwitches(t.TID) {
		return v.Rec.Fitted(seq)
	}
	return v.Rec.Events(seq)
}

// before returns when sampling of a thread began, and its CPU time before that (trace.Thread.Before), if the range has
// that moment.
func (v *View) before(seq int) (at stack.Time, ns int64) {
	if th := v.Rec.Thread(seq); th != nil && th.Since >= v.from && th.Since <= v.to {
		return th.Since, th.Before
	}
	return 0, 0
}

// accountant builds windows, split and not.
type accountant struct {
	v            *View
	now          diff.Waiting
	told         seenAt
	seen         int
	every        float64 // ns between samples, at present
	joint, apart sharer
}

func (r *accountant) apply(e event.Event) {
	if e.Kind() != event.Seen {
		if e.Kind() == event.Rate && e.Payload() > 0 {
			r.every = float64(e.Payload())
		}
		r.told.note(e)
		r.now.Apply(e)
		return
	}
	way, n, cpu := event.SeenFields(e.Payload())
	state, part := r.now.Sampled(), r.told.part(e.Time, r.v)
	r.seen++
	x := window{end: r.seen, from: e.Time, last: e.Time, cpu: float64(cpu) * part, due: float64(cpu) * part / r.every}
	if event.Ran(state, way) {
		x.runs = float64(n) * part
	}
	awake := x.runs > 0 || state == stack.StateRunnable
	r.joint.add(&x, way, awake)
	r.apart.add(&x, way, awake)
}

// sharer builds the windows of shares.
type sharer struct {
	shares
	rest window     // since the last sample that is of a stratum
	open [2]window  // of each stratum
	runs [2]float64 // samples of each that found the thread running
	last int        // stratum of the last one
}

// add adds a sample. awake: it found the thread running or waiting for a CPU.
func (r *sharer) add(x *window, way stack.Way, awake bool) {
	r.rest.join(x)
	w := &r.rest
	if awake {
		r.last = r.of(way)
		r.runs[r.last] += x.runs
		w = &r.open[r.last]
		w.join(&r.rest)
		r.rest = window{}
	}
	switch {
	case w.runs >= windowRuns:
		r.by[r.last].windows = append(r.by[r.last].windows, *w)
	case r.unseen(w) && x.last-w.from >= unseenAfter:
		r.none = append(r.none, *w)
	default:
		return
	}
	*w = window{}
}

// unseen reports whether w has no samples, though its CPU time makes some likely. While a window with samples
// is open, that one takes the time.
func (r *sharer) unseen(w *window) bool {
	return w.runs == 0 && r.open[r.last].runs == 0 && w.due >= unseenTicks
}

// join adds x.
func (w *window) join(x *window) {
	if w.from == 0 {
		w.from = x.from
	}
	w.end, w.last = max(w.end, x.end), max(w.last, x.last)
	w.runs, w.cpu, w.due = w.runs+x.runs, w.cpu+x.cpu, w.due+x.due
}

// alike reports whether the samples of two windows have about the same CPU time each.
func (w *window) alike(x *window) bool {
	each, other := w.cpu*x.runs, x.cpu*w.runs
	return each <= alikeBy*other && other <= alikeBy*each
}

// close ends the last windows. One with few samples is merged into the previous one of its stratum, unless that was sampled at
// another rate: its samples would get the CPU time of this one. One without samples is merged into any.
func (r *sharer) close() {
	unseen := r.unseen(&r.rest)
	for i := range r.by {
		s, w := &r.by[i], &r.open[i]
		if n := len(s.windows); w.runs > 0 && (n == 0 || !w.alike(&s.windows[n-1])) {
			s.windows = append(s.windows, *w)
		} else if n > 0 {
			s.windows[n-1].join(w)
		}
		if len(s.windows) > 0 {
			*w = window{}
		}
	}
	for i, w := range []window{r.open[0], r.open[1], r.rest} {
		s := &r.by[r.last]
		if len(s.windows) == 0 {
			s = &r.by[1-r.last]
		}
		if n := len(s.windows); n > 0 && (i < len(r.open) || !unseen) {
			s.windows[n-1].join(&w)
		} else {
			r.none = append(r.none, w)
		}
	}
}

// now advances to the first window that is not over, or to the last one, and returns it.
func (s *stratum) now(over func(*window) bool) *window {
	if len(s.windows) == 0 {
		return &window{}
	}
	for s.at < len(s.windows)-1 && over(&s.windows[s.at]) {
		s.at++
	}
	return &s.windows[s.at]
}

// credit returns the CPU time, in ns, of the samples of the next Seen event. Rounding carries over,
// so the sum is exact to the ns. s is the thread's state in these samples.
func (a *account) credit(e event.Event, s stack.State, v *View) int64 {
	way, n, _ := event.SeenFields(e.Payload())
	w := a.by[a.of(way)].now(func(w *window) bool { return a.seen >= w.end })
	a.seen++
	part := a.told.part(e.Time, v)
	if !event.Ran(s, way) || w.runs == 0 {
		return 0
	}
	a.credited += w.cpu * float64(n) * part / w.runs
	ns := int64(a.credited+.5) - a.given
	a.given += ns
	return ns
}

// Weights gives the CPU time of the samples of a thread, for handlers of its slices (trace.SliceHandler).
type Weights struct{ account *account }

// Weights computes the weights of the samples of th in the view's range.
func (v *View) Weights(th *Thread) *Weights { return &Weights{v.account(th.Seq)} }

// Of returns the CPU time, in ns, of the samples of a Seen event that found the thread in state s. Events
// must be in order of time.
func (w *Weights) Of(e event.Event, s stack.State) float64 {
	way, n, _ := event.SeenFields(e.Payload())
	a := w.account
	x := a.by[a.of(way)].now(func(w *window) bool { return e.Time > w.last })
	if event.Ran(s, way) && x.runs > 0 {
		return x.cpu * float64(n) / x.runs
	}
	return 0
}

// Total returns the thread's CPU time in ns; 0 if the recording has no account of it.
func (w *Weights) Total() (ns float64) {
	a := w.account
	for _, windows := range [][]window{a.by[0].windows, a.by[1].windows, a.none} {
		for i := range windows {
			ns += windows[i].cpu
		}
	}
	return ns
}

// Unseen returns the CPU time, in ns, without a sample.
func (w *Weights) Unseen() (ns int64) {
	for u := range w.account.unsampled() {
		ns += u.NS
	}
	return ns
}

// Unsampled is a stretch of a thread with CPU time, in ns, that no sample has.
type Unsampled struct {
	From, To stack.Time
	NS       int64
	Before   bool // it is the time before the first sample, at which From and To are
}

// unsampled yields the stretches without a sample of a running thread. They add up to the rounded sum.
func (a *account) unsampled() iter.Seq[Unsampled] {
	return func(yield func(Unsampled) bool) {
		sum, given := 0.0, int64(0)
		for i := range a.none {
			w := &a.none[i]
			sum += w.cpu
			ns := int64(sum+.5) - given
			given += ns
			if ns > 0 && !yield(Unsampled{w.from, max(w.from, w.last), ns, w.last < w.from}) {
				return
			}
		}
	}
}

// seenAt is when the stack of the next Seen was first observed, or the time of the last Seen of the
// same stack; 0: none.
type seenAt stack.Time

// note handles an event other than Seen.
func (s *seenAt) note(e event.Event) {
	switch e.Kind() {
	case event.Enter, event.Exit, event.Move, event.State: // the frames of a Sync were entered earlier
		*s = max(*s, seenAt(e.Time))
	}
}

// part advances to the next Seen and returns the fraction of its samples that is inside the range.
func (s *seenAt) part(t stack.Time, v *View) float64 {
	from := stack.Time(*s)
	*s = seenAt(max(from, t))
	if from == 0 || t <= from {
		if t < v.from || t > v.to {
			return 0
		}
		return 1
	}
	return float64(max(min(t, v.to)-max(from, v.from), 0)) / float64(t-from)
}
