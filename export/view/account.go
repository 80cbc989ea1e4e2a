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
	windows  []window
	at       int     // current window
	seen     int     // Seen events so far
	told     seenAt  // time of the next Seen's stack
	credited float64 // exact sum of shares, ns
	given    int64   // whole ns already credited
}

// account splits the events of a thread into windows.
func (v *View) account(seq int) *account {
	r := &accountant{v: v, every: float64(max(v.Rec.Process.Interval, 1))}
	for e := range v.sampled(seq) {
		if r.apply(e); e.Kind() == event.Seen && e.Time > v.to {
			break // last window that overlaps the range
		}
	}
	windows := r.close()
	if at, ns := v.before(seq); ns > 0 {
		// It ends before the first Seen event, whose samples have no part in it.
		windows = append([]window{{from: at, last: at - 1, cpu: float64(ns)}}, windows...)
	}
	return &account{windows: windows}
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

// accountant builds windows.
type accountant struct {
	v       *View
	now     diff.Waiting
	told    seenAt
	seen    int
	window  window
	every   float64 // ns between samples, at present
	windows []window
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
	w := &r.window
	way, n, cpu := event.SeenFields(e.Payload())
	part := r.told.part(e.Time, r.v)
	if event.Ran(r.now.Sampled(), way) {
		w.runs += float64(n) * part
	}
	w.cpu += float64(cpu) * part
	w.due += float64(cpu) * part / r.every
	r.seen++
	w.end, w.last = r.seen, e.Time
	if w.from == 0 {
		w.from = e.Time
	}
	if w.runs >= windowRuns || r.unseen() && e.Time-w.from >= unseenAfter {
		r.windows = append(r.windows, *w)
		*w = window{}
	}
}

// unseen reports whether the window has enough CPU time that at least one sample should have found
// it.
func (r *accountant) unseen() bool { return r.window.runs == 0 && r.window.due >= unseenTicks }

// alike reports whether the samples of two windows have about the same CPU time each.
func (w *window) alike(x *window) bool {
	each, other := w.cpu*x.runs, x.cpu*w.runs
	return each <= alikeBy*other && other <= alikeBy*each
}

// close ends the last window. One with few samples is merged into the previous one, unless that was sampled at another rate: its
// samples would get the CPU time of this one.
func (r *accountant) close() []window {
	r.window.end = r.seen
	if n := len(r.windows); n > 0 && !r.unseen() && (r.window.runs == 0 || r.window.alike(&r.windows[n-1])) {
		last := &r.windows[n-1]
		last.runs += r.window.runs
		last.cpu += r.window.cpu
		last.end, last.last = r.seen, max(last.last, r.window.last)
	} else {
		r.windows = append(r.windows, r.window)
	}
	return r.windows
}

// credit returns the CPU time, in ns, of the samples of the next Seen event. Rounding carries over,
// so the sum is exact to the ns. s is the thread's state in these samples.
func (a *account) credit(e event.Event, s stack.State, v *View) int64 {
	for a.at < len(a.windows)-1 && a.seen >= a.windows[a.at].end {
		a.at++
	}
	a.seen++
	way, n, _ := event.SeenFields(e.Payload())
	part := a.told.part(e.Time, v)
	w := &a.windows[a.at]
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
	a := w.account
	for a.at < len(a.windows)-1 && e.Time > a.windows[a.at].last {
		a.at++
	}
	way, n, _ := event.SeenFields(e.Payload())
	if x := &a.windows[a.at]; event.Ran(s, way) && x.runs > 0 {
		return x.cpu * float64(n) / x.runs
	}
	return 0
}

// Total returns the thread's CPU time in ns; 0 if the recording has no account of it.
func (w *Weights) Total() (ns float64) {
	for i := range w.account.windows {
		ns += w.account.windows[i].cpu
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
		for i := range a.windows {
			w := &a.windows[i]
			if w.runs != 0 {
				continue
			}
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
