package session

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Memory of a JIT compiler is a new module after each reuse, also in the generations
// recorded later.
func TestReuses(t *testing.T) {
	mods := []trace.Module{{Path: "/bin/js", Segments: []trace.Segment{{Size: 1}}}, {Path: "[anon]"}}
	maps := func(at stack.Time) trace.Maps {
		return trace.Maps{At: at, Mappings: []trace.Mapping{{Start: 1, End: 2, Module: 0}, {Start: 3, End: 4, Module: 1}}}
	}
	got := ""
	for _, r := range reuses([]trace.Maps{maps(0), maps(100), maps(300)}, mods, []int64{50, 150, 200, 400}) {
		got += fmt.Sprintf("%d:%d,%d+%d ", r.At, r.Mappings[0].Module, r.Mappings[1].Module, len(r.fresh))
	}
	if want := "50:0,2+1 100:0,2+0 150:0,3+1 200:0,4+1 300:0,4+0 400:0,5+1 "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r := reuses([]trace.Maps{maps(0)}, mods, nil); r != nil {
		t.Errorf("%v", r)
	}
}
