package profile_test

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/profile"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// The stacks of a recording of maximum depth have a bounded total number of frames. Cut
// stacks have a location that says so, and a comment counts them.
func TestDeep(t *testing.T) {
	const depth = 1 << 16
	p := profile.New(view.New(exporttest.Deep(t, depth), view.Options{Idle: true}), nil)
	frames, wall, stacks := 0, int64(0), 0
	var st []int
	at := map[int]int{} // locations at the place of the cut, and the number of stacks with each
	err := p.Samples(func(s *profile.Sample) error {
		st = p.Stack(s, st[:0])
		frames += len(st)
		wall += s.Values[profile.Wall]
		stacks++
		if len(st) == tally.CutDepth+1 {
			at[st[tally.CutDepth/2]]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if most := tally.WholeFrames + depth*(tally.CutDepth+1); frames > most {
		t.Errorf("%d frames, more than %d", frames, most)
	}
	if want := int64((depth - 1) * exporttest.DeepStep); wall != want || stacks != depth {
		t.Errorf("%d stacks with %d ns, want %d with %d ns", stacks, wall, depth, want)
	}
	omitted := map[int]bool{} // function numbers
	cut := 0
	fn := map[int]int{}
	_ = p.Locations(func(n int, l *profile.Location) error {
		fn[n] = l.Lines[0].Function
		return nil
	})
	_ = p.Functions(func(n int, f *profile.Function) error {
		omitted[n] = strings.HasSuffix(f.Name, " frames left out]")
		return nil
	})
	for location, n := range at {
		if omitted[fn[location]] {
			cut += n
		}
	}
	if cut < depth/2 {
		t.Errorf("%d stacks say that frames are left out", cut)
	}
	if c := strings.Join(p.Comments(), "\n"); !strings.Contains(c, "stacks deeper than 512 frames are cut") {
		t.Errorf("comments: %s", c)
	}
}
