package page

import (
	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/analysis"
)

// among has what only several processes have, as a server answers it to the queries arrows and path.
type among struct {
	Processes []process           `json:"processes"`
	Arrows    []analysis.Arrow    `json:"arrows"`
	Path      []analysis.PathStep `json:"path"`
}

type process struct {
	PID     int      `json:"pid"`
	Parent  int      `json:"ppid,omitempty"`
	Comm    string   `json:"comm"`
	Exe     string   `json:"exe,omitempty"`
	Cmdline []string `json:"cmdline,omitempty"`
	Exit    string   `json:"exit,omitempty"`
}

const (
	maxArrows    = 20_000  // those of the longest waits
	maxArguments = 1 << 10 // bytes of a command line
)

// among describes the processes and what they waited for, and returns them as parts of an analysis.
func (b *builder) among(rec *trace.Recording, views []*view.View) (parts []analysis.Part) {
	out := &among{Arrows: []analysis.Arrow{}, Path: []analysis.PathStep{}}
	next := 0
	for i, v := range views {
		b.numbers = append(b.numbers, next)
		part := analysis.Part{Rec: v.Rec, Name: v.Process(), Threads: []int{}, Process: i, Number: func(seq int) int { return b.numbers[i] + seq }}
		for k := range v.Threads {
			part.Threads = append(part.Threads, v.Threads[k].Seq)
		}
		for k := range v.Rec.Threads {
			next = max(next, b.numbers[i]+v.Rec.Threads[k].Seq+1)
		}
		parts = append(parts, part)
		out.Processes = append(out.Processes, processOf(v.Rec))
	}
	relations := between.Of(rec, views)
	number := func(view, thread int) int {
		return analysis.NumberIn(views[view], thread, func(seq int) int { return b.numbers[view] + seq })
	}
	arrows, _ := analysis.Longest(analysis.Crossings(relations, number), maxArrows)
	for i := range arrows {
		out.Arrows = append(out.Arrows, arrows[i].At(b.base))
	}
	path, _ := analysis.Path(rec, relations, views, number)
	for _, x := range path {
		out.Path = append(out.Path, x.At(b.base))
	}
	b.h.Among = out
	return parts
}

func processOf(rec *trace.Recording) process {
	p := &rec.Process
	out := process{PID: p.PID, Parent: p.Parent, Comm: view.Text(p.Comm, 256), Exe: view.Text(p.Exe, 1024)}
	if rec.End != nil {
		out.Exit = rec.End.Exit.String()
	}
	left := maxArguments
	for _, a := range p.Cmdline {
		if left -= len(a) + 1; left < 0 {
			out.Cmdline = append(out.Cmdline, "…")
			break
		}
		out.Cmdline = append(out.Cmdline, view.Text(a, maxArguments))
	}
	return out
}

// of makes the n-th view that of the threads that follow.
func (b *builder) of(views []*view.View, n int) {
	b.nth, b.v, b.funcs = n, views[n], map[int]int{}
	if len(views) > 1 {
		b.pid = b.v.PID()
	}
}

// number returns the number of a thread of the process at hand.
func (b *builder) number(seq int) int {
	if b.numbers == nil {
		return seq
	}
	return b.numbers[b.nth] + seq
}

// tasks adds the tasks of the process that has most, if any has some. Their threads are indexes in the header's Threads.
func (b *builder) tasks(views []*view.View) {
	var most *analysis.Tracks
	of, others := 0, 0
	for i, v := range views {
		all := analysis.TracksOf(v)
		if all == nil {
			continue
		}
		if others += len(all.List); most == nil || len(all.List) > len(most.List) {
			most, of = all, i
		}
	}
	if most == nil {
		return
	}
	if others -= len(most.List); others > 0 {
		b.h.Notes = append(b.h.Notes, leftTasks(others, most.What, views[of].Process()))
	}
	first := 0
	for _, v := range views[:of] {
		first += len(v.Threads)
	}
	b.putTasks(most, first)
}
