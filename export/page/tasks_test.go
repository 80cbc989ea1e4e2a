package page

import (
	"math"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/web/analysis"
)

// group returns a group of n tasks with the given number of spans each.
func group(n, spans int) taskGroup {
	g := taskGroup{tracks: &analysis.Tracks{}}
	for i := range n {
		g.tracks.List = append(g.tracks.List, analysis.TaskTrack{Task: view.Task{ID: uint64(i), Spans: make([]view.TaskSpan, spans)}})
	}
	return g
}

// The tasks of all processes are within the limits after each one is added. A process with few keeps all, and those
// left out are counted.
func TestShare(t *testing.T) {
	type size struct{ tasks, spans int }
	for name, c := range map[string]struct {
		sizes []size
		want  []int
	}{
		"one":           {[]size{{5, 3}}, []int{5}},
		"one large":     {[]size{{maxTasks + 7, 1}}, []int{maxTasks}},
		"large, small":  {[]size{{maxTasks, 1}, {10, 1}}, []int{maxTasks - 10, 10}},
		"small, large":  {[]size{{10, 1}, {maxTasks, 1}}, []int{10, maxTasks - 10}},
		"three large":   {[]size{{maxTasks, 1}, {maxTasks, 1}, {maxTasks, 1}}, []int{maxTasks / 3, maxTasks / 3, maxTasks / 3}},
		"many spans":    {[]size{{10, maxTaskSpans / 10}, {10, maxTaskSpans / 10}}, []int{5, 5}},
		"spans, few":    {[]size{{10, maxTaskSpans / 10}, {2, maxTaskSpans / 10}}, []int{8, 2}},
		"a single huge": {[]size{{1, maxTaskSpans + 1}, {2, 1}}, []int{0, 2}},
		"none":          {[]size{{0, 0}, {2, 1}}, []int{0, 2}},
	} {
		var groups []taskGroup
		for _, s := range c.sizes {
			groups = append(groups, group(s.tasks, s.spans))
			share(groups)
			tasks, spans := 0, 0
			for i := range groups {
				tasks += len(groups[i].tracks.List)
				spans += groups[i].spans()
			}
			if tasks > maxTasks || spans > maxTaskSpans {
				t.Errorf("%s: %d tasks with %d spans", name, tasks, spans)
			}
		}
		for i, g := range groups {
			if n := len(g.tracks.List); n != c.want[i] || n+g.more != c.sizes[i].tasks {
				t.Errorf("%s: group %d has %d tasks and %d more, want %d of %d", name, i, n, g.more, c.want[i], c.sizes[i].tasks)
			}
			for k, x := range g.tracks.List {
				if x.ID != uint64(k) {
					t.Fatalf("%s: group %d has task %d at %d", name, i, x.ID, k)
				}
			}
		}
	}
	if n := level(nil, 10, (*taskGroup).spans); n != math.MaxInt {
		t.Errorf("%d", n)
	}
}

// A file has a bounded number of stacks, and counts those left out.
func TestTaskStacks(t *testing.T) {
	g := group(3, 1)
	g.tracks.Stacks = [][]analysis.TaskFrame{{{Name: "unused"}}, {{Name: "a"}}, {{Name: "b"}}, {{Name: "c"}}}
	for i := range g.tracks.List {
		g.tracks.List[i].Seen = []analysis.Sighting{{Reason: "sleep", Stack: 3 - i}, {Reason: "sleep", Stack: 3}}
	}
	b := &builder{}
	stacks, lost := b.putTasks(&g, 0, 2)
	out := b.h.Tasks[0]
	if stacks != 2 || lost != 1 || out.Stacks[0][0].Name != "c" || out.Stacks[1][0].Name != "b" {
		t.Errorf("%d stacks, %d left out: %v", stacks, lost, out.Stacks)
	}
	for i, want := range []int{2, 2, 1} {
		if n := len(out.List[i].Seen); n != want {
			t.Errorf("task %d has %d sightings, want %d", i, n, want)
		}
	}
}
