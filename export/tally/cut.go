package tally

import "fmt"

// Limits of formats that write every frame of every stack (collapsed stacks, pprof,
// OTLP). Their size is the sum of all depths: a call 65,536 frames deep that is sampled
// at each depth is 2 thousand million frames. Deep stacks are written in full up to
// WholeFrames frames for one output, which real recursions stay below; later ones are
// cut to CutDepth, so that the output grows with the recording only.
const (
	// WholeFrames is how many frames the stacks deeper than CutDepth may have together.
	WholeFrames = 16 << 20
	// CutDepth is the depth of stacks that are cut: the outer half, which joins them with
	// others in a flame graph, and the inner half, where the time went.
	CutDepth = 512

	cutOuter = CutDepth / 2
)

// Cutter reads stacks of a tree for one output, and cuts deep ones. The tree may grow
// while it is used.
type Cutter struct {
	// Stacks counts those that were cut, and Frames what they lost.
	Stacks, Frames int

	tree  *Tree
	whole int     // frames of deep stacks that may still be written
	depth []int32 // by node
	outer []int32 // by node: its caller at depth cutOuter
}

// Cutter of a tree.
func (t *Tree) Cutter() *Cutter { return &Cutter{tree: t, whole: WholeFrames} }

// Path appends the labels of stack n to dst, innermost first. If omitted is not 0, so
// many frames are left out between the first inner labels and the others. A cut stack
// takes time for the labels that it keeps only.
func (c *Cutter) Path(n int32, dst []int32) (path []int32, inner, omitted int) {
	for i := int32(len(c.depth)); int(i) < c.tree.Len(); i++ { // callers come before what they call
		if i == 0 {
			c.depth, c.outer = append(c.depth, 0), append(c.outer, 0)
			continue
		}
		parent, _ := c.tree.Node(i)
		d, o := c.depth[parent]+1, c.outer[parent]
		if d <= cutOuter {
			o = i
		}
		c.depth, c.outer = append(c.depth, d), append(c.outer, o)
	}
	depth := int(c.depth[n])
	if depth <= CutDepth {
		return c.tree.Path(n, dst), 0, 0
	}
	if depth <= c.whole {
		c.whole -= depth
		return c.tree.Path(n, dst), 0, 0
	}
	outer := c.outer[n]
	for inner = 0; inner < CutDepth-cutOuter; inner++ {
		parent, label := c.tree.Node(n)
		dst, n = append(dst, label), parent
	}
	c.Stacks++
	c.Frames += depth - CutDepth
	return c.tree.Path(outer, dst), inner, depth - CutDepth
}

// Omitted is the name of the frame that represents n omitted frames.
func Omitted(n int) string { return fmt.Sprintf("[%d frames left out]", n) }

// Loss reports the stacks that were cut, "" if there are none.
func (c *Cutter) Loss() string {
	if c.Stacks == 0 {
		return ""
	}
	return fmt.Sprintf("%d stacks deeper than %d frames are cut: %d frames left out", c.Stacks, CutDepth, c.Frames)
}
