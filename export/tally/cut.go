package tally

import (
	"fmt"

	"github.com/sliverprof/sliver/internal/plural"
)

// Limits for formats that write every frame of every stack (collapsed stacks, pprof,
// OTLP). Their size is the sum of all depths: a call 65,536 frames deep, sampled at each
// depth, has 2 billion frames. Deep stacks are written in full up to WholeFrames frames
// per output, more than real recursions need. Later ones are cut to CutDepth, so that the
// output grows only with the recording.
const (
	// WholeFrames is the total number of frames that stacks deeper than CutDepth may
	// have.
	WholeFrames = 16 << 20
	// CutDepth is the depth of cut stacks: the outer half, which merges with other stacks
	// in a flame graph, and the inner half, where the time was spent.
	CutDepth = 512

	cutOuter = CutDepth / 2
)

// Cutter reads stacks of a tree for one output and cuts deep ones. The tree may grow
// while it is used.
type Cutter struct {
	// Stacks counts the stacks that were cut, Frames the frames left out.
	Stacks, Frames int

	tree  *Tree
	whole int     // remaining budget for frames of deep stacks
	depth []int32 // by node
	outer []int32 // by node: its ancestor at depth cutOuter
}

// Cutter returns a Cutter of the tree.
func (t *Tree) Cutter() *Cutter { return &Cutter{tree: t, whole: WholeFrames} }

// Path appends the labels of stack n to dst, innermost first. omitted is how many frames
// are left out after the first inner labels. Its run time depends only on the labels
// kept.
func (c *Cutter) Path(n int32, dst []int32) (path []int32, inner, omitted int) {
	for i := int32(len(c.depth)); int(i) < c.tree.Len(); i++ { // callers come before their callees
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

// Omitted returns the name of the frame that represents n omitted frames.
func Omitted(n int) string { return fmt.Sprintf("[%s left out]", plural.Of(n, "frame")) }

// Loss describes the stacks that were cut; "" if there are none.
func (c *Cutter) Loss() string {
	if c.Stacks == 0 {
		return ""
	}
	return fmt.Sprintf("%s deeper than %d frames %s cut: %s left out", plural.Of(c.Stacks, "stack"), CutDepth, plural.Word(c.Stacks, "is", "are"), plural.Of(c.Frames, "frame"))
}
