package tally_test

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

const ms = exporttest.Ms

func TestTree(t *testing.T) {
	tree := tally.NewTree()
	a := tree.Child(0, 7)
	b := tree.Child(a, 8)
	if tree.Child(0, 7) != a || tree.Child(a, 8) != b || tree.Child(b, 7) == a || tree.Child(0, -1) == a {
		t.Error("a stack is not found again, or taken for another")
	}
	if got := fmt.Sprint(tree.Path(b, nil)); got != "[8 7]" {
		t.Errorf("path %s", got)
	}
}

// A full tree counts stacks for their callers.
func TestFull(t *testing.T) {
	tree := tally.NewTree()
	for i := range int32(tally.MaxNodes + 10) {
		tree.Child(0, i)
	}
	if tree.Len() != tally.MaxNodes || tree.Folded != 11 || tree.Child(5, 1) != 5 || tree.Child(0, 3) == 0 {
		t.Errorf("%d nodes, %d folded", tree.Len(), tree.Folded)
	}
}

// The sum of a thread's stacks equals the thread's observed times.
func TestTotal(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(50) {
		s := stack.StateRunning
		if i%5 == 4 {
			s = stack.StateBlocked
		}
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 8 * ms, State: s, Stack: fmt.Sprintf("main:%d f%d:1", 1+i%2, i%3)})
	}
	v := view.New(b.Finish(500*ms), view.Options{})
	x := tally.Of(v, &v.Threads[0], tally.NewTree()).Total()
	if want := (tally.Values{Samples: 50, CPU: 49 * 8 * ms, Wall: 490 * ms, Off: 98 * ms}); x != want {
		t.Errorf("%+v, want %+v", x, want)
	}
	for what, value := range map[string]struct {
		of   func(*tally.Values) int64
		want int64
	}{
		"samples": {func(v *tally.Values) int64 { return v.Samples }, x.Samples}, "cpu": {func(v *tally.Values) int64 { return v.CPU }, x.CPU},
		"wall": {func(v *tally.Values) int64 { return v.Wall }, x.Wall}, "off": {func(v *tally.Values) int64 { return v.Off }, x.Off},
	} {
		c := tally.ByCalls(v, false, value.of)
		sum := int64(0)
		for _, n := range c.Self {
			sum += n
		}
		if sum != value.want {
			t.Errorf("%s by calls %d, want %d", what, sum, value.want)
		}
	}
}
