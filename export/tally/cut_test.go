package tally

import (
	"slices"
	"testing"
)

// Stacks are complete until the frame budget for deep ones is used up, then cut in the
// middle.
func TestCutter(t *testing.T) {
	tree := NewTree()
	c := tree.Cutter()
	const deep = 1 << 16
	var nodes []int32 // by depth - 1
	n := int32(0)
	for i := range int32(deep) {
		n = tree.Child(n, i)
		nodes = append(nodes, n)
		if i == 1000 {
			c.Path(n, nil) // the tree grows after this
		}
	}
	written, lost, whole, cut := 0, 0, 0, 0
	for depth := deep; depth > 0; depth -= 13 {
		path, inner, omitted := c.Path(nodes[depth-1], []int32{-7})
		if path[0] != -7 {
			t.Fatal("what dst had is gone")
		}
		path = path[1:]
		if len(path)+omitted != depth {
			t.Fatalf("depth %d: %d labels and %d omitted", depth, len(path), omitted)
		}
		written += len(path)
		if omitted == 0 {
			whole++
		} else {
			cut++
			lost += omitted
			if len(path) != CutDepth || inner != CutDepth/2 {
				t.Fatalf("depth %d: cut to %d, %d of them inner", depth, len(path), inner)
			}
		}
		for i, label := range slices.Backward(path) {
			want := int32(depth - 1 - i)
			if omitted > 0 && i >= inner {
				want -= int32(omitted)
			}
			if label != want {
				t.Fatalf("depth %d, %d from the leaf: %d, want %d", depth, i, label, want)
			}
		}
	}
	if most := WholeFrames + CutDepth*(whole+cut); written > most {
		t.Errorf("%d frames were written, more than %d", written, most)
	}
	if whole < WholeFrames/deep || cut == 0 || c.Stacks != cut || c.Frames != lost {
		t.Errorf("%d whole, %d cut, %d frames lost; counted %d and %d", whole, cut, lost, c.Stacks, c.Frames)
	}
}
