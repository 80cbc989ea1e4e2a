// Package view prepares a recording for export: it selects threads, clips them to the
// selected range, makes times non-decreasing, sanitizes text, and describes losses. It does
// not depend on a format.
//
// A View is for one goroutine; several may share a Recording.
package view

import (
	"fmt"
	"regexp"
	"sort"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/idle"
)

// Options select the part of a recording to export. The zero value selects everything.
type Options struct {
	// Threads are the threads to include, by Seq; nil includes all.
	Threads []int
	// Rest are the threads to include of each of the recording's Others, as in Threads; nil
	// includes all.
	Rest [][]int
	// Processes adds the process to each stack, in formats that otherwise add up the
	// processes of a recording.
	Processes bool
	// From and To limit the time, both inclusive; 0 leaves that side open. A slice that
	// crosses an edge is clipped.
	From, To stack.Time
	// Focus includes only the time in which a function whose name matches is on the stack;
	// nil includes all.
	Focus *regexp.Regexp
	// Side includes only time on the CPUs, or only time off them.
	Side Side
	// Kernel adds a frame such as "[kernel] futex" on top of the stack of a thread that is
	// blocked in a system call or a page fault.
	Kernel bool
	// Idle includes idle waits (see package wait/idle) in rankings.
	Idle bool
	// Lines adds file and line to the frames of folded stacks.
	Lines bool
	// Left, if not nil, is called with the idle waits that an export omitted.
	Left func(idle.Left)
}

// maxTime limits the times of hostile recordings, so that sums and differences fit in 64
// bits: 146 years.
const maxTime = stack.Time(1) << 62

// View is a recording with options applied.
type View struct {
	Rec     *trace.Recording
	Names   *trace.Names
	Threads []Thread // in display order: main first

	from, to stack.Time
	start    stack.Time // see Start; -1: not computed yet
	side     Side
	counted  bool // the recording has the scheduler's account of CPU time
	kernel   bool
	idle     bool
	lines    bool
	left     func(idle.Left)
	idles    map[idleKey]bool
	frames   []idle.Frame      // reused
	gaps     map[stack.Why]int // synthetic functions for gaps
	unseen   int               // 1 + the synthetic function for CPU time that was not sampled; 0: none yet
	focus    *matcher          // nil: no focus
	waits    waits
	tids     map[stack.TID]int    // threads by TID
	others   map[stack.TID]string // lock holders that are threads of other processes
	overs    map[string]int       // synthetic functions for waits
	placed   map[int][]uint64     // traced calls that are slices, by Seq: see Apart
}

// Thread is a thread with a name and numbers that every reader accepts.
type Thread struct {
	*trace.Thread
	Index int    // position in View.Threads
	Label string // its newest name, never empty, without control characters: see Names
	ID    int    // TID, or a number above all valid ones if the recording has no valid TID
}

// maxTID is the largest TID that Linux assigns, PID_MAX_LIMIT in include/linux/threads.h.
// Perfetto requires small ones.
const maxTID = 1 << 22

// New returns a view of rec with options o.
func New(rec *trace.Recording, o Options) *View {
	v := &View{Rec: rec, Names: trace.NewNames(rec), from: o.From, to: maxTime, start: -1, side: o.Side, counted: rec.Stats.Total().CPUNS > 0, kernel: o.Kernel, idle: o.Idle, lines: o.Lines, left: o.Left, idles: map[idleKey]bool{},
		gaps: map[stack.Why]int{}, waits: waits{byID: map[int]*trace.Wait{}}, overs: map[string]int{}, placed: map[int][]uint64{}}
	if o.To > 0 {
		v.to = min(o.To, maxTime)
	}
	if o.Focus != nil {
		v.focus = &matcher{re: o.Focus, names: v.Names}
	}
	take := map[int]bool{}
	for _, s := range o.Threads {
		take[s] = true
	}
	for i := range rec.Threads {
		t := &rec.Threads[i]
		v.counted = v.counted || t.Before > 0
		if o.Threads != nil && !take[t.Seq] {
			continue
		}
		th := Thread{Thread: t, Index: len(v.Threads), Label: label(t.Name), ID: int(t.TID)}
		if th.ID <= 0 || th.ID > maxTID {
			th.ID = maxTID + 1 + th.Index
		}
		v.Threads = append(v.Threads, th)
	}
	return v
}

const maxThreadName = 256

// PID returns the target's PID, or a number above all valid ones if the recording has no
// valid PID.
func (v *View) PID() int {
	if p := v.Rec.Process.PID; p > 0 && p <= maxTID {
		return p
	}
	return maxTID
}

// Begin returns a time at or before the first event of the view, for formats that count from
// the beginning.
func (v *View) Begin() stack.Time { return max(v.Start(), v.from) }

// Start returns the start of the recording, whatever the range and the threads.
func (v *View) Start() stack.Time {
	if v.start < 0 {
		v.start = v.Rec.Begin()
		if len(v.Rec.Threads) == 0 {
			v.start = max(v.Rec.Process.Clocks.Monotonic, 0)
		}
		v.start = min(v.start, maxTime)
	}
	return v.start
}

// End returns the time of the last event of the view, or of the recording's end.
func (v *View) End() stack.Time {
	_, to := v.Rec.Span()
	return max(min(to, v.to), v.Begin())
}

// Stats returns the statistics of thread th; zero values if the recording has none.
func (v *View) Stats(th *Thread) trace.ThreadStats {
	for i := range v.Rec.Stats.Threads {
		if s := &v.Rec.Stats.Threads[i]; s.TID == th.TID {
			return *s
		}
	}
	return trace.ThreadStats{TID: th.TID}
}

// Whole reports whether the threads are shown in full: no range, side or focus is set.
func (v *View) Whole() bool {
	return v.side == BothSides && v.focus == nil && v.from <= 0 && v.to >= maxTime
}

// Steps receives a thread's time by stack of real frames.
type Steps interface {
	// Spent reports that from at on, for ns, the stack was real, outermost first. known is
	// false if the stack is unknown after a loss.
	Spent(real []diff.Frame, known bool, at stack.Time, ns int64)
	// Changed: real frames from depth on may differ from those seen before.
	Changed(depth int)
	// Other receives events that do not change the stack's shape. For Seen, real is the
	// stack that it confirms, if known.
	Other(e event.Event, real []diff.Frame, known bool)
	// Ran reports that the samples of the last Seen found the thread on a CPU; ns is their
	// share of its CPU time.
	Ran(real []diff.Frame, known bool, at stack.Time, ns int64)
	// Unseen reports CPU time that has no sample, after everything else.
	Unseen(Unsampled)
}

// Steps replays th into h as consecutive stacks: every nanosecond between the first and the
// last event inside the range goes to the stack that was current, in one call of Spent,
// except stacks out of focus. It returns the sum of ns reported.
func (v *View) Steps(th *Thread, h Steps) int64 {
	s := &steps{v: v, h: h, account: v.account(th.Seq)}
	var only *focusSteps
	if v.focus != nil {
		only = &focusSteps{h: h, m: v.focus}
		s.h = only
	}
	for e := range v.events(th.Seq) {
		s.apply(e)
	}
	s.flushHeld()
	if v.side != OffCPU && v.focus == nil {
		for u := range s.account.unsampled() {
			h.Unseen(u)
		}
	}
	if only != nil {
		return only.ns
	}
	return s.total
}

type steps struct {
	v     *View
	h     Steps
	r     diff.Replayer
	at    stack.Time // time accounted so far
	total int64
	ever  bool          // a stack was known at some time
	known bool          // the current stack is known
	sync  int           // remaining Enter events of a Sync
	held  []event.Event // Seen events whose stack is still to come
	last  diff.Waiting  // in effect before the range

	account *account
	credit  int64 // CPU time of the held events, in ns
}

func (s *steps) apply(e event.Event) {
	k := e.Kind()
	// Enter events of a Sync carry the times at which frames were entered.
	if s.sync > 0 && k == event.Enter {
		s.sync--
	} else {
		s.sync = 0
		s.flushHeld()
		s.advance(e.Time)
	}
	s.account.told.note(e)
	switch k {
	case event.Sync:
		s.sync = int(min(e.Payload(), diff.MaxDepth))
		s.r.Apply(e, s)
		s.known, s.ever = true, true
	case event.Seen:
		w := s.r.Waiting()
		ns := s.account.credit(e, w.Sampled(), s.v)
		if !s.ever {
			// The sampler's first Seen precedes its stack.
			s.held = append(s.held[:0], e)
			s.credit += ns
			return
		}
		s.r.Apply(e, s)
		s.ran(ns)
	case event.Gap:
		s.r.Apply(e, s)
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			s.known = false
		}
	default:
		s.r.Apply(e, s)
	}
}

func (s *steps) flushHeld() {
	if !s.known || s.sync > 0 {
		return
	}
	for _, e := range s.held {
		s.other(e)
	}
	s.held = s.held[:0]
	s.ran(s.credit)
	s.credit = 0
}

// ran reports the CPU time of the current stack.
func (s *steps) ran(ns int64) {
	if ns == 0 || s.v.side == OffCPU {
		return
	}
	at := max(min(s.at, s.v.to), s.v.from)
	s.began(at)
	s.h.Ran(s.r.Stack, s.known, at, ns)
}

// advance accounts the time up to t.
func (s *steps) advance(t stack.Time) {
	t = max(min(t, maxTime), 0)
	if !s.ever { // nothing is known of the time before the first stack
		s.at = max(s.at, t)
		return
	}
	if t <= s.at {
		return
	}
	if a, b := max(s.at, s.v.from), min(t, s.v.to); b > a {
		s.began(a)
		if w := s.r.Waiting(); s.v.side.shows(&w) {
			s.total += int64(b - a)
			s.h.Spent(s.r.Stack, s.known, a, int64(b-a))
		}
	}
	s.at = t
}

// began emits the events in effect at the start of the range.
func (s *steps) began(t stack.Time) {
	if s.last == (diff.Waiting{}) {
		return
	}
	for _, e := range s.last.Append(nil, t) {
		s.h.Other(e, s.r.Stack, s.known)
	}
	s.last = diff.Waiting{}
}

func (s *steps) Enter(_ stack.Time, depth int, _ diff.Frame) { s.h.Changed(depth) }
func (s *steps) Exit(_ stack.Time, depth int, _ diff.Frame)  { s.h.Changed(depth) }
func (s *steps) Move(_ stack.Time, depth int, _ diff.Frame)  { s.h.Changed(depth) }
func (s *steps) Other(e event.Event)                         { s.other(e) }

func (s *steps) other(e event.Event) {
	if s.at < s.v.from {
		s.last.Apply(e)
		return
	}
	if s.at > s.v.to {
		return
	}
	s.began(s.at)
	e.Time = s.at
	if e.Kind() == event.Seen && s.v.side != BothSides {
		w := s.r.Waiting()
		e = s.v.side.seen(e, s.v.side.shows(&w))
	}
	s.h.Other(e, s.r.Stack, s.known)
}

// maxReasons limits the reasons for missing threads in a hostile recording.
const maxReasons = 20

// Facts returns the recording's circumstances as pairs of name and value, in a fixed order,
// for formats that have comments.
func (v *View) Facts() [][2]string {
	p, t := &v.Rec.Process, v.Rec.Stats.Total()
	var out [][2]string
	add := func(k, val string) {
		if val != "" && val != "0" {
			out = append(out, [2]string{k, Text(val, 4096)})
		}
	}
	add("command", Command(p.Cmdline))
	add("executable", p.Exe)
	add("host", p.Host)
	add("kernel", p.Kernel)
	add("arch", p.Arch)
	add("container", p.Container)
	add("sliver", p.Sliver)
	add("interval", Duration(p.Interval))
	add("jitter", Duration(p.Jitter))
	add("stop", p.Stop)
	add("threads", p.ThreadSpec)
	if v.focus != nil {
		add("focus", v.focus.re.String())
	}
	if v.from > 0 || v.to < maxTime {
		add("range", fmt.Sprintf("%v..%v", time.Duration(v.Begin()-v.Start()), time.Duration(v.End()-v.Start())))
	}
	add("shown", v.side.String())
	add("samples", count(t.Samples))
	add("stops", count(t.Stopped()))
	add("time stopped", Duration(t.PauseNS))
	add("pause mean", Duration(v.Rec.Stats.Pause.Mean))
	add("pause p99", Duration(v.Rec.Stats.Pause.P99))
	add("pause max", Duration(v.Rec.Stats.Pause.Max))
	add("late", count(t.Late))
	add("late for the file", count(t.Behind))
	add("rested", count(t.Rested))
	add("truncated", count(t.Truncated))
	add("timed out", count(t.TimedOut))
	add("denied", count(t.Denied))
	add("restarted", count(t.Restarted))
	add("stretched", count(t.Stretched))
	add("overwritten", count(t.Overwritten))
	add("tasks left out of looks", count(uint64(v.Rec.LostTasks().N)))
	if e := v.Rec.End; e != nil {
		add("ended", e.Reason)
	} else {
		add("ended", "cut off")
	}
	return out
}

// SortedModules returns the indexes of the recording's modules that contain code in its
// newest or any earlier maps, the target's own program first.
func (v *View) SortedModules() []int {
	out := make([]int, len(v.Rec.Modules))
	for i := range out {
		out[i] = i
	}
	main := func(i int) bool { return v.Rec.Modules[i].Path == v.Rec.Process.Exe && v.Rec.Process.Exe != "" }
	sort.SliceStable(out, func(a, b int) bool { return main(out[a]) && !main(out[b]) })
	return out
}
