package timeline

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// TestTracedCalls: the picture has a box of each traced call, at its time and below its caller, and all else as without
// tracing.
func TestTracedCalls(t *testing.T) {
	const px = (width - 2*margin) / (100.0 * ms)
	type mark struct {
		title   string
		x, y, w int
	}
	record := func(calls bool) map[mark]int {
		_, p := asSVG(t, exporttest.Traced(t, calls), view.Options{})
		got := map[mark]int{}
		for _, r := range p.Rects {
			w := r.Width
			if r.Height == row-1 && w > 2.5 {
				w += .5 // the space between boxes
			}
			got[mark{r.Title, int(math.Round(r.X)), int(math.Round(r.Y)), int(math.Round(w))}]++
		}
		return got
	}
	find := func(all map[mark]int, name string) (mark, bool) {
		for m := range all {
			if m.title == name {
				return m, true
			}
		}
		return mark{}, false
	}
	with, without := record(true), record(false)
	for i, root := range []string{"main 100ms", "start 100ms"} {
		at, ok := find(with, root)
		if !ok {
			t.Fatalf("no box %q: %v", root, with)
		}
		for _, c := range exporttest.TracedCalls() {
			if c.Thread != i {
				continue
			}
			m := mark{fmt.Sprintf("%s %s", c.Name, view.Short(c.End-c.Begin)), int(math.Round(margin + float64(c.Begin)*px)), at.y + c.Depth*row,
				int(math.Round(max(float64(c.End-c.Begin)*px, .3)))}
			if with[m] != 1 {
				t.Errorf("%d boxes %v: %v", with[m], m, with)
			}
			delete(with, m)
		}
	}
	sampled := 0
	for _, title := range []string{"handle 20ms", "libparse 10ms", "libget 51.25ms"} {
		if m, ok := find(without, title); ok {
			sampled += without[m]
			delete(without, m)
		}
	}
	if sampled != 3 || !maps.Equal(with, without) {
		t.Errorf("%d sampled calls; all else %v\nwithout calls %v", sampled, with, without)
	}
}
