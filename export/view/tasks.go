package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Tasks holds the tasks of the target's runtime (goroutines, for example) over the time
// of the view: which thread ran each task when, and its states in between.
type Tasks struct {
	What string // "goroutine", "asyncio task" or "virtual thread"
	List []Task // by ID
	Lost int    // stretches on a thread beyond MaxTaskSpans
}

// Task is one task.
type Task struct {
	ID, Parent uint64
	Label      string // "goroutine 17 main.worker", without control characters
	Func       string // entry function; "" if unknown
	Ran        int64  // ns on threads, without waits
	Spans      []TaskSpan
}

// OfRuntime reports whether the task is a goroutine of Go's runtime, by its entry function.
func (t *Task) OfRuntime() bool {
	return strings.HasPrefix(t.Func, "runtime.") && t.Func != "runtime.main"
}

// TaskSpan is a time in which a task was on one thread, or on none. The spans of a task
// are in order and do not overlap.
type TaskSpan struct {
	From, To stack.Time
	Thread   int // index in View.Threads; -1: no thread of the view ran it
	State    stack.TaskState
	Reason   string // why it waited, in the runtime's words; "": unknown
}

// SystemCall is the Reason of a task whose thread was blocked in a system call.
const SystemCall = "system call"

// Waits reports whether the task waited: in the runtime, or in a system call.
func (s *TaskSpan) Waits() bool {
	return s.State == stack.TaskWaiting || s.State == stack.TaskCall && s.Reason == SystemCall
}

// WaitOf returns why a task waits in a scan, as TaskSpan.Reason has it; ok is false if it does not.
func WaitOf(l *trace.Tasks, x *trace.Task) (reason string, ok bool) {
	switch x.State {
	case stack.TaskWaiting:
		return Text(l.Reason(x.Reason), MaxReason), true
	case stack.TaskCall:
		return SystemCall, true
	}
	return "", false
}

// MaxTaskSpans limits the stretches on threads that are kept, of 40 bytes each.
const MaxTaskSpans = 4 << 20

// MaxReason limits the reason of a wait, in bytes.
const MaxReason = 64

// Tasks combines the recording's task events; nil if it has none.
func (v *View) Tasks() *Tasks {
	if len(v.Rec.Tasks) == 0 {
		return nil
	}
	g := &taskGatherer{v: v, looks: v.Rec.Tasks, of: map[uint64]*taskParts{}, seen: map[uint64]stack.Time{}, end: v.End()}
	for i := range v.Threads {
		g.thread(&v.Threads[i])
	}
	for i := range g.looks {
		g.look(&g.looks[i])
	}
	g.firsts()
	out := &Tasks{What: Text(g.looks[0].What, 64), Lost: g.lost}
	if out.What == "asyncio" {
		out.What = "asyncio task"
	}
	ids := make([]uint64, 0, len(g.of))
	for id := range g.of {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if t := g.task(id, out.What); len(t.Spans) > 0 {
			out.List = append(out.List, t)
		}
	}
	return out
}

// taskParts holds the observations of a task: when threads ran it, and its state at some
// moments in between.
type taskParts struct {
	on     []TaskSpan
	facts  []taskFact
	parent uint64
	fn     string
}

type taskFact struct {
	at     stack.Time
	state  stack.TaskState
	reason string // see TaskSpan
	look   bool   // observed by a scan of all tasks
	thread int    // index in View.Threads of its thread, in a call; -1: none of the view's
}

type taskGatherer struct {
	v     *View
	looks []trace.Tasks
	of    map[uint64]*taskParts
	spans int
	lost  int
	end   stack.Time
	seen  map[uint64]stack.Time // when a task was last reported, also outside of the view
	whole stack.Time            // begin of the last complete scan
}

func (g *taskGatherer) parts(id uint64) *taskParts {
	p := g.of[id]
	if p == nil {
		p = &taskParts{}
		g.of[id] = p
	}
	return p
}

func (g *taskGatherer) reason(n uint8) string { return Text(g.looks[0].Reason(n), MaxReason) }

// onThread is what a thread runs, as its events are read.
type onThread struct {
	task    stack.Task
	since   stack.Time
	blocked bool // the thread is
}

// inCall reports whether the task waits in a system call.
func (x *onThread) inCall() bool { return x.task.State == stack.TaskCall && x.blocked }

// waits is TaskSpan.Waits of the stretch so far.
func (x *onThread) waits() bool { return x.task.State == stack.TaskWaiting || x.inCall() }

// thread reads the tasks that a thread ran from its events.
func (g *taskGatherer) thread(th *Thread) {
	var now onThread
	var at stack.Time
	end := func(t stack.Time) {
		s := TaskSpan{From: max(now.since, g.v.from), To: min(t, g.v.to), Thread: th.Index, State: now.task.State}
		if now.task.ID == 0 || s.To <= s.From {
			return
		}
		if s.Reason = SystemCall; !now.inCall() {
			s.Reason = g.reason(now.task.Reason)
		}
		if g.spans++; g.spans > MaxTaskSpans {
			g.lost++
			return
		}
		p := g.parts(now.task.ID)
		p.on = append(p.on, s)
	}
	// become begins another stretch if the task changes, or begins or ends to wait.
	become := func(next onThread, t stack.Time) {
		if next.since = now.since; next.task.ID != now.task.ID || next.waits() != now.waits() {
			end(t)
			next.since = t
		}
		now = next
	}
	for e := range g.v.Rec.Fitted(th.Seq) {
		switch e.Kind() {
		case event.Enter, event.Sync: // the frames of a Sync have earlier times
			continue
		case event.State:
			next := now
			s, _ := event.StateFields(e.Payload())
			next.blocked = s == stack.StateBlocked || s == stack.StateDisk
			become(next, e.Time)
		case event.Task:
			next := now
			next.task = event.TaskFields(e.Payload())
			g.saw(next.task.ID, e.Time)
			if now.task.ID != next.task.ID {
				g.saw(now.task.ID, e.Time)
			}
			become(next, e.Time)
		case event.Parked:
			x := event.TaskFields(e.Payload())
			g.saw(x.ID, e.Time)
			if x.ID != 0 && e.Time >= g.v.from && e.Time <= g.v.to {
				p := g.parts(x.ID)
				p.facts = append(p.facts, taskFact{at: e.Time, state: x.State, reason: g.reason(x.Reason), thread: -1})
			}
		case event.Gap:
			if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
				end(at)
				now = onThread{}
			}
		case event.Mark:
			if why := stack.Why(e.Payload()); why == stack.WhyGone || why == stack.WhyExec {
				end(e.Time)
				now = onThread{}
			}
		}
		at = max(at, e.Time)
	}
	end(at)
}

func (g *taskGatherer) saw(id uint64, at stack.Time) {
	if id != 0 {
		g.seen[id] = max(g.seen[id], at)
	}
}

// look handles a scan of all tasks.
func (g *taskGatherer) look(l *trace.Tasks) {
	if l.What == "goroutine" && l.Lost == 0 { // for other kinds, only tasks on threads are scanned
		g.whole = max(g.whole, l.At-stack.Time(l.Took))
	}
	for i := range l.List {
		g.saw(l.List[i].ID, l.At)
	}
	inside := l.At >= g.v.from && l.At <= g.v.to
	for i := range l.List {
		x := &l.List[i]
		if !inside && g.of[x.ID] == nil {
			continue
		}
		p := g.parts(x.ID)
		if inside {
			f := taskFact{at: l.At, state: x.State, reason: g.reason(x.Reason), look: true, thread: -1}
			if x.State == stack.TaskCall {
				f.thread, f.reason = g.threadOf(x.TID, l.At), SystemCall
			}
			p.facts = append(p.facts, f)
		}
		// Scans outside of the view also name the tasks that its threads ran.
		p.parent = cmp.Or(p.parent, x.Parent)
		if p.fn == "" && x.Func != 0 {
			fs := g.v.Names.Resolve(x.Func, l.At).Frames
			p.fn = g.v.FuncName(fs[len(fs)-1].Func)
		}
		if p.fn == "" {
			p.fn = Text(x.Name, MaxName)
		}
	}
}

// threadOf returns the index of the thread that has the number at a time; -1: none of the view's.
func (g *taskGatherer) threadOf(tid stack.TID, at stack.Time) int {
	found := -1
	for i := range g.v.Threads {
		th := &g.v.Threads[i]
		if th.TID == tid && (found < 0 || th.Since <= at) { // a number may be used again
			found = i
		}
	}
	return found
}

// task builds a task's timeline.
func (g *taskGatherer) task(id uint64, what string) Task {
	p := g.of[id]
	t := Task{ID: id, Parent: p.parent, Func: p.fn, Label: strings.TrimSpace(fmt.Sprintf("%s %d %s", what, id, p.fn))}
	slices.SortStableFunc(p.on, func(a, b TaskSpan) int { return cmp.Compare(a.From, b.From) })
	slices.SortStableFunc(p.facts, func(a, b taskFact) int { return cmp.Compare(a.at, b.at) })
	// That a thread left a task shows only at the thread's next sample, which may be
	// after another thread runs it.
	for i := range p.on {
		if i+1 < len(p.on) {
			p.on[i].To = min(p.on[i].To, p.on[i+1].From)
		}
		if !p.on[i].Waits() {
			t.Ran += int64(p.on[i].To - p.on[i].From)
		}
	}
	p.on = slices.DeleteFunc(p.on, func(s TaskSpan) bool { return s.To <= s.From })
	x := timeline{t: &t, facts: p.facts, never: len(p.on) == 0}
	at := stack.Time(0)
	for _, s := range p.on {
		if at == 0 { // its state before a thread ran it is known from a scan on
			if len(x.facts) > 0 && x.facts[0].at < s.From {
				x.off(x.facts[0].at, s.From, false)
			}
		} else if s.From > at {
			x.off(at, s.From, false)
		}
		t.Spans = append(t.Spans, s)
		at = s.To
	}
	if n := len(x.facts); n > 0 {
		last := max(x.facts[n-1].at, at)
		// Its last state continues, unless a later complete scan did not find it: then it
		// has ended at an unknown time.
		if !x.facts[n-1].look && g.seen[id] >= g.whole {
			last = g.end
		}
		if at == 0 {
			at = x.facts[0].at
		}
		x.off(at, last, true)
	}
	return t
}

// timeline is a task's, as it is built.
type timeline struct {
	t     *Task
	facts []taskFact // not used yet
	never bool       // no thread was seen to run it
}

// shows reports whether a fact is about a time on no thread. A thread's samples show the calls of its tasks, but not one
// that lasts all the time: the thread is never stopped.
func (x *timeline) shows(f *taskFact) bool {
	switch f.state {
	case stack.TaskRunning, stack.TaskUnknown:
		return false
	case stack.TaskCall:
		return f.look && x.never
	}
	return true
}

// off adds the states of a time in which the task was on no thread. open: no thread ran it after that.
func (x *timeline) off(from, to stack.Time, open bool) {
	t := x.t
	var in []taskFact
	for len(x.facts) > 0 && x.facts[0].at <= to {
		if f := &x.facts[0]; f.at >= from && x.shows(f) {
			in = append(in, *f)
		}
		x.facts = x.facts[1:]
	}
	for i, f := range in {
		end := to
		if i+1 < len(in) {
			end = in[i+1].at
		} else if open && !f.look && len(t.Spans) > 0 && f.state == stack.TaskDone {
			return // it has ended
		}
		begin := f.at
		if i == 0 {
			begin = from
		}
		if n := len(t.Spans) - 1; n >= 0 && t.Spans[n].Thread == f.thread && t.Spans[n].To == begin && t.Spans[n].State == f.state && t.Spans[n].Reason == f.reason {
			t.Spans[n].To = end
		} else if end > begin && f.state != stack.TaskDone {
			t.Spans = append(t.Spans, TaskSpan{From: begin, To: end, Thread: f.thread, State: f.state, Reason: f.reason})
		}
	}
}
