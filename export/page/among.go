package page

import (
	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/analysis"
)

// among is the part of the header about several processes: what a server answers to the queries arrows and path.
type among struct {
	Processes []analysis.Process  `json:"processes"`
	Arrows    []analysis.Arrow    `json:"arrows"`
	Path      []analysis.PathStep `json:"path"`
}

// maxArrows limits the arrows to those of the longest waits.
const maxArrows = 20_000

// among describes the processes and what they waited for, and returns them as parts of an analysis.
func (b *builder) among(rec *trace.Recording, views []*view.View) (parts []analysis.Part) {
	out := &among{Arrows: []analysis.Arrow{}, Path: []analysis.PathStep{}}
	var all []*trace.Recording
	for _, v := range views {
		all = append(all, v.Rec)
	}
	b.numbers = analysis.Bases(all)
	for i, v := range views {
		part := analysis.Part{Rec: v.Rec, Name: v.Process(), Threads: []int{}, Process: i, Number: func(seq int) int { return b.numbers[i] + seq }}
		for k := range v.Threads {
			part.Threads = append(part.Threads, v.Threads[k].Seq)
		}
		parts = append(parts, part)
		out.Processes = append(out.Processes, analysis.Recorded(v.Rec))
	}
	related := analysis.Relate(rec, views, b.numbers)
	arrows, _ := analysis.Longest(related.Crossings, maxArrows)
	for i := range arrows {
		out.Arrows = append(out.Arrows, arrows[i].At(b.base))
	}
	for _, x := range related.Path {
		out.Path = append(out.Path, x.At(b.base))
	}
	b.h.Among = out
	return parts
}

// of makes the n-th view that of the threads that follow.
func (b *builder) of(views []*view.View, n int) {
	b.nth, b.v, b.funcs = n, views[n], map[int]int{}
	if len(views) > 1 {
		b.pid = b.v.PID()
	}
	b.waited = report.LockWaits(b.v)
}

// number returns the number of a thread of the process at hand.
func (b *builder) number(seq int) int {
	if b.numbers == nil {
		return seq
	}
	return b.numbers[b.nth] + seq
}
