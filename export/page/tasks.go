package page

import (
	"fmt"
	"math"
	"slices"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/analysis"
)

// Limits of a file, for the tasks of all processes together.
const (
	maxTasks      = 20_000
	maxTaskSpans  = 1 << 20
	maxTaskStacks = 10_000
)

// tasks are the goroutines, asyncio tasks or virtual threads of a process. Their spans are behind the columns of the
// threads, group by group in the order of the header's Tasks and of List, each with five varints: time since the end of
// the task's span before, length, value (state in the low 8 bits, class above), index of the thread plus 1, index of the
// reason plus 1.
type tasks struct {
	Process int                    `json:"process,omitempty"` // index in Among.Processes
	What    string                 `json:"what"`
	Idle    int                    `json:"idle"` // the runtime's own, left out
	Lost    int                    `json:"lost"` // as view.Tasks.Lost
	More    int                    `json:"more"` // tasks that are left out
	Reasons []string               `json:"reasons"`
	Stacks  [][]analysis.TaskFrame `json:"stacks"`
	Len     int                    `json:"len"` // bytes of all spans
	List    []task                 `json:"list"`
}

type task struct {
	ID     uint64     `json:"id"`
	Parent uint64     `json:"parent,omitempty"`
	Func   string     `json:"func,omitempty"`
	Ran    int64      `json:"ran"` // ns
	Ready  int64      `json:"ready"`
	Waited int64      `json:"waited"`
	Spans  int        `json:"spans"`
	Seen   [][3]int64 `json:"seen"` // where scans found it wait: time (ns), reason, stack
}

// taskGroup are the tasks of a process, those that ran longest first.
type taskGroup struct {
	process int // index of its view
	tracks  *analysis.Tracks
	more    int // tasks that were cut off
}

func (g *taskGroup) spans() (n int) {
	for i := range g.tracks.List {
		n += len(g.tracks.List[i].Spans)
	}
	return n
}

// cut keeps at most most tasks with together at most spans spans.
func (g *taskGroup) cut(most, spans int) {
	kept := make([]analysis.TaskTrack, 0, min(len(g.tracks.List), most)) // a list of its own: the others are freed
	for i := range g.tracks.List {
		t := &g.tracks.List[i]
		if len(kept) < most && len(t.Spans) <= spans {
			kept = append(kept, *t)
			spans -= len(t.Spans)
		}
	}
	g.more += len(g.tracks.List) - len(kept)
	g.tracks.List = kept
}

// share cuts the groups so that all together are within the limits. Those with fewer tasks and spans than an equal share
// keep them all, and leave the rest of it to the others. The share gets smaller with every further group, so it may be
// called after each.
func share(groups []taskGroup) {
	count := func(g *taskGroup) int { return len(g.tracks.List) }
	most := level(groups, maxTasks, count)
	for i := range groups {
		if g := &groups[i]; count(g) > most {
			g.cut(most, math.MaxInt)
		}
	}
	spans := level(groups, maxTaskSpans, (*taskGroup).spans)
	for i := range groups {
		if g := &groups[i]; g.spans() > spans {
			g.cut(most, spans)
		}
	}
}

// level returns how much each group may have, if all together may have all.
func level(groups []taskGroup, all int, of func(*taskGroup) int) int {
	wanted := make([]int, len(groups))
	for i := range groups {
		wanted[i] = of(&groups[i])
	}
	slices.Sort(wanted)
	for i, n := range wanted {
		if each := all / (len(wanted) - i); n > each {
			return each
		}
		all -= n
	}
	return math.MaxInt
}

// tasks adds the tasks of all processes that have some, in the order of a server's answer.
func (b *builder) tasks(views []*view.View) {
	var all []*trace.Recording
	first := make([]int, len(views)) // indexes of the first threads in the header's Threads
	for i, v := range views {
		all = append(all, v.Rec)
		if i > 0 {
			first[i] = first[i-1] + len(views[i-1].Threads)
		}
	}
	var groups []taskGroup
	for _, i := range analysis.WithTasks(all) {
		groups = append(groups, taskGroup{process: i, tracks: analysis.TracksOf(views[i])})
		share(groups)
	}
	left, lost := maxTaskStacks, 0
	for i := range groups {
		g := &groups[i]
		most := left / (len(groups) - i)
		n, without := b.putTasks(g, first[g.process], most)
		left -= n
		lost += without
	}
	if lost > 0 {
		b.h.Notes = append(b.h.Notes, fmt.Sprintf("tasks: %s of waits %s not in this file: it has at most %d", plural.Of(lost, "stack"), plural.Word(lost, "is", "are"), maxTaskStacks))
	}
}

// putTasks adds the tasks of a process with at most most stacks, and returns the number of these, and of those that
// are left out. first is the index of the process's first thread.
func (b *builder) putTasks(g *taskGroup, first, most int) (stacks, lost int) {
	all := g.tracks
	out := &tasks{Process: g.process, What: all.What, Idle: all.Idle, Lost: all.Lost, More: g.more, Stacks: [][]analysis.TaskFrame{}, Reasons: []string{}, List: []task{}}
	reasons := map[string]int{}
	reason := func(s string) int {
		if s == "" {
			return -1
		}
		return intern(reasons, &out.Reasons, s)
	}
	known := map[int]int{} // stacks of the file, by index in all.Stacks; -1: left out
	stackOf := func(n int) int {
		at, ok := known[n]
		switch {
		case ok:
		case len(out.Stacks) < most:
			at = len(out.Stacks)
			out.Stacks = append(out.Stacks, all.Stacks[n])
			known[n] = at
		default:
			at = -1
			lost++
			known[n] = at
		}
		return at
	}
	var col column
	for i := range all.List {
		t := &all.List[i]
		x := task{ID: t.ID, Parent: t.Parent, Func: t.Func, Ran: t.Times.Ran, Ready: t.Times.Ready, Waited: t.Times.Waited, Spans: len(t.Spans), Seen: [][3]int64{}}
		at := int64(0)
		for k := range t.Spans {
			s := &t.Spans[k]
			from, to := b.units(s.From), b.units(s.To)
			v := analysis.SpanValue(s)
			col.put(from - at)
			col.put(to - from)
			col.put(int64(v&0xff | v>>24<<8))
			thread := 0
			if s.Thread >= 0 {
				thread = first + s.Thread + 1
			}
			col.put(int64(thread))
			col.put(int64(reason(s.Reason) + 1))
			at = to
		}
		for _, w := range t.Seen {
			n := reason(w.Reason)
			if n < 0 {
				continue
			}
			if at := stackOf(w.Stack); at >= 0 {
				x.Seen = append(x.Seen, [3]int64{int64(max(w.At-b.base, stack.Time(0))), int64(n), int64(at)})
			}
		}
		out.List = append(out.List, x)
	}
	out.Len = col.Len()
	b.body.Write(col.Bytes())
	b.h.Tasks = append(b.h.Tasks, out)
	return len(out.Stacks), lost
}
