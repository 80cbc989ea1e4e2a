package perfetto

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// maxTasks is how many tasks get a track: those that ran longest.
const maxTasks = 1000

// taskRun is a time in which a thread ran a task that has a track.
type taskRun struct {
	from, to stack.Time
	track    uint64
}

// taskTracks describes the track group of the runtime's tasks, one track per task, and
// determines which thread ran each when.
func (e *exporter) taskTracks() {
	if e.tasks = e.v.Tasks(); e.tasks == nil {
		return
	}
	e.taskRuns = make([][]taskRun, len(e.v.Threads))
	list := make([]*view.Task, len(e.tasks.List))
	for i := range list {
		list[i] = &e.tasks.List[i]
	}
	slices.SortStableFunc(list, func(a, b *view.Task) int { return cmp.Compare(b.Ran, a.Ran) })
	about := "Each " + e.tasks.What + " with its calls, on whichever thread it ran, and what it waited for in between."
	if n := len(list) - maxTasks; n > 0 {
		list = list[:maxTasks]
		about += fmt.Sprintf(" %d more ran less than these and have no track.", n)
	}
	if e.tasks.Lost > 0 {
		about += fmt.Sprintf(" %d times on a thread are left out.", e.tasks.Lost)
	}
	e.child(kindTasks, 0, e.uuid(kindProcess, 0), e.tasks.What+"s", "", about, len(e.v.Threads)+1, false)
	slices.SortFunc(list, func(a, b *view.Task) int { return cmp.Compare(a.ID, b.ID) })
	for i, t := range list {
		about := ""
		if t.Parent != 0 {
			about = fmt.Sprintf("Started by %s %d.", e.tasks.What, t.Parent)
		}
		e.child(kindTask, int(t.ID), e.uuid(kindTasks, 0), t.Label, "", about, i, false)
		for _, s := range t.Spans {
			if s.Thread >= 0 {
				e.taskRuns[s.Thread] = append(e.taskRuns[s.Thread], taskRun{s.From, s.To, e.uuid(kindTask, int(t.ID))})
			}
		}
	}
	for i := range e.taskRuns {
		slices.SortFunc(e.taskRuns[i], func(a, b taskRun) int { return cmp.Compare(a.from, b.from) })
	}
	e.taskShown = list
}

// taskWaits writes task states while no thread runs the task. The reader keeps file order
// for events with the same time; these events come after the calls. id is the first sequence ID to
// use; taskWaits returns the next one.
func (e *exporter) taskWaits(id uint64) uint64 {
	for _, t := range e.taskShown {
		s := &sequence{out: e.out, id: id, track: e.uuid(kindTask, int(t.ID)), base: e.base}
		in := newInterned(e.v)
		for i := range t.Spans {
			x := &t.Spans[i]
			end := x.To
			if i+1 < len(t.Spans) {
				end-- // the task's calls begin then
			}
			if x.Thread >= 0 || end <= x.From {
				continue
			}
			name := x.State.String()
			if x.Reason != "" {
				name += ": " + x.Reason
			}
			word := in.words(name)
			in.annotation() // the category
			at := s.begin(x.From, true)
			in.take(e.out)
			ev := e.out.open(packetTrackEvent)
			e.out.uint(eventCategory, categoryWait)
			e.out.uint(eventType, typeBegin)
			e.out.uint(eventName, uint64(word))
			e.out.end(ev)
			e.out.done(at)
			s.end(end)
		}
		if s.begun {
			id++
		}
	}
	return id
}

// taskSlices repeats the calls of a thread on the tracks of the tasks that it ran. The
// begin time decides which frames belong to a task: in the sample that shows the next
// task, the thread has left the frames of the previous one.
type taskSlices struct {
	runs []taskRun // of the thread, still to come
	on   taskRun   // the current one; track 0: none
	low  int       // frames below this depth do not belong to the task
	open int       // open slices of the task
}

// taskAdvance moves to t, when depth frames are open on the thread.
func (w *writer) taskAdvance(t stack.Time, depth int) {
	s := &w.tasks
	if s.on.track != 0 && t >= s.on.to {
		for ; s.open > 0; s.open-- {
			w.taskEnd(s.on.to)
		}
		s.on = taskRun{}
	}
	for len(s.runs) > 0 && s.runs[0].from <= t {
		if s.on = (taskRun{}); s.runs[0].to > t {
			s.on, s.low = s.runs[0], depth
		}
		s.runs = s.runs[1:]
	}
}

// taskBegin handles a slice that begins on the thread.
func (w *writer) taskBegin(t stack.Time, depth int, x *trace.Slice) {
	s := &w.tasks
	w.taskAdvance(t, depth)
	if s.on.track == 0 || s.open >= maxDepth {
		return
	}
	s.open++
	w.slice(t, x, s.on.track, false)
}

// taskLeave handles a slice that ends; depth is its own.
func (w *writer) taskLeave(t stack.Time, depth int) {
	s := &w.tasks
	w.taskAdvance(t, depth+1)
	switch {
	case depth < s.low:
		s.low = depth // frames of another task, or of the thread itself
	case s.open > 0 && depth-s.low < s.open:
		s.open--
		w.taskEnd(t)
	}
}

func (w *writer) taskEnd(t stack.Time) {
	o := w.e.out
	at := w.slices.begin(t, false)
	ev := o.open(packetTrackEvent)
	o.uint(eventType, typeEnd)
	o.uint(eventTrack, w.tasks.on.track)
	o.end(ev)
	o.done(at)
}
