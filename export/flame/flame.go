// Package flame draws the elapsed time of a recording as a flame graph in SVG. It is
// meant for documents, so it is a static picture without a script. A tooltip on each box
// shows function, time and share. Threads with the same name are merged. Idle waits are
// omitted and counted unless the options keep them. A line below the graph lists the
// recording's losses.
//
// Write may run for several recordings at once.
package flame

import (
	"bufio"
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
)

// Dimensions in pixels.
const (
	width  = 1200
	row    = 17
	margin = 10
	top    = 34
	letter = 6.6 // width in the 11 px monospace font
	// A narrower box is invisible, as are its callees.
	narrow = 0.2
	// maxRows limits the height. Deeper frames are left out, and the picture says so.
	maxRows = 600
)

// box is a stack prefix with the total time of all stacks that begin with it.
type box struct {
	frame int32 // index in frames
	total int64
	child int32 // first callee; 0: none
	next  int32 // next callee of the same caller
}

// frame is what a box shows.
type frame struct{ name, color string }

// step leads from a box to a callee.
type step struct{ from, frame int32 }

// Write draws rec to w. Of several processes, the outermost boxes are the processes, those with the same name together.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	g := graphOf(rec, o)
	if g.boxes[0].total == 0 && g.left.Any() { // the picture would be empty
		o.Idle = true
		g = graphOf(rec, o)
	}
	g.views[0].Left(g.left)
	g.w = bufio.NewWriterSize(w, 1<<16)
	g.all = g.boxes[0].total
	g.rows = g.depth()
	g.draw()
	if err := g.w.Flush(); err != nil {
		return fmt.Errorf("write flame graph: %w", err)
	}
	return nil
}

type graph struct {
	views  []*view.View
	frames []frame
	number map[frame]int32 // of frames
	boxes  []box           // that of all stacks first, callers before their callees
	at     map[step]int32
	all    int64
	rows   int
	left   idle.Left
	folded int  // stacks that count for their callers
	cut    bool // some stack is deeper than maxRows
	w      *bufio.Writer
}

// graphOf sums up the stacks of all processes.
func graphOf(rec *trace.Recording, o view.Options) *graph {
	g := &graph{views: view.All(rec, o), number: map[frame]int32{}, boxes: make([]box, 1), at: map[step]int32{}}
	for _, v := range g.views {
		c := tally.ByCalls(v, false, func(x *tally.Values) int64 { return x.Wall })
		g.left.Join(&c.Left)
		g.folded += c.Folded
		of := make([]int32, c.Len()) // the boxes of c's nodes
		process := ""
		if len(g.views) > 1 {
			process = view.Text(v.Rec.Process.Comm, view.MaxName)
			of[0] = g.callee(0, g.frame(frame{process, plain}))
		}
		known := map[int32]int32{}     // frames by label
		for n := 1; n < len(of); n++ { // callers have lower numbers than their callees
			parent, label := c.Node(int32(n))
			f, ok := known[label]
			if !ok {
				f = g.frame(frame{nameOf(v, c, label), colorOf(v, label)})
				known[label] = f
			}
			if parent == 0 && g.frames[f].name == process { // the main thread's name says nothing more
				of[n] = of[0]
				continue
			}
			of[n] = g.callee(of[parent], f)
		}
		for n, ns := range c.Self {
			g.boxes[of[n]].total += ns
		}
	}
	for n := len(g.boxes) - 1; n >= 0; n-- {
		for s := g.boxes[n].child; s > 0; s = g.boxes[s].next {
			g.boxes[n].total += g.boxes[s].total
		}
	}
	return g
}

func (g *graph) frame(f frame) int32 {
	n, ok := g.number[f]
	if !ok {
		n = int32(len(g.frames))
		g.frames, g.number[f] = append(g.frames, f), n
	}
	return n
}

// callee returns a callee of the box from.
func (g *graph) callee(from, frame int32) int32 {
	n, ok := g.at[step{from, frame}]
	if !ok {
		n = int32(len(g.boxes))
		g.boxes = append(g.boxes, box{frame: frame, next: g.boxes[from].child})
		g.boxes[from].child, g.at[step{from, frame}] = n, n
	}
	return n
}

// scale returns the width in pixels of ns.
func (g *graph) scale(ns int64) float64 {
	return float64(ns) / float64(max(g.all, 1)) * (width - 2*margin)
}

// depth returns the number of visible rows of boxes.
func (g *graph) depth() int {
	deepest := 0
	g.walk(func(_ int32, depth int, _ int64) { deepest = max(deepest, depth+1) })
	return deepest
}

// walk visits every visible box: its node, depth (0 for threads) and the ns to its left.
func (g *graph) walk(visit func(n int32, depth int, at int64)) {
	type item struct {
		n     int32
		depth int
		at    int64
	}
	stack := []item{{0, -1, 0}}
	var children []int32
	for len(stack) > 0 {
		it := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		b := &g.boxes[it.n]
		if it.n > 0 {
			visit(it.n, it.depth, it.at)
		}
		if it.depth+1 >= maxRows {
			g.cut = g.cut || b.child > 0
			continue
		}
		children = children[:0]
		for n := b.child; n > 0; n = g.boxes[n].next {
			children = append(children, n)
		}
		slices.SortFunc(children, func(i, j int32) int { return cmp.Or(strings.Compare(g.name(i), g.name(j)), cmp.Compare(i, j)) })
		at := it.at
		for _, n := range children {
			if g.scale(g.boxes[n].total) >= narrow {
				stack = append(stack, item{n, it.depth + 1, at})
			}
			at += g.boxes[n].total
		}
	}
}

func (g *graph) name(n int32) string { return g.frames[g.boxes[n].frame].name }

func nameOf(v *view.View, c *tally.Calls, label int32) string {
	if s, ok := c.Word(label); ok {
		return s
	}
	return v.FuncName(int(label))
}

func (g *graph) draw() {
	notes := view.FewLosses(g.views)
	if g.cut {
		notes = append(notes, fmt.Sprintf("calls deeper than %d are left out of the picture", maxRows))
	}
	if g.folded > 0 {
		notes = append(notes, fmt.Sprintf("%s %s counted for their callers", plural.Of(g.folded, "stack"), plural.Word(g.folded, "is", "are")))
	}
	bottom := top + g.rows*row
	height := bottom + margin + len(notes)*row
	n := -g.left.Threads
	for _, v := range g.views {
		n += len(v.Threads)
	}
	threads := plural.Of(n, "thread")
	if left := g.left.String(); left != "" {
		threads += ", without " + left
	}
	title := fmt.Sprintf("%s: %s elapsed in %s", view.Title(g.views), view.Short(g.all), threads)
	fmt.Fprintf(g.w, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="monospace" font-size="11">
<title>%s</title>
<desc>%s</desc>
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="%d" y="22" font-size="15" fill="#222">%[3]s</text>
`, width, height, escape(title), escape(g.facts()), margin)
	g.walk(func(n int32, depth int, at int64) {
		b := &g.boxes[n]
		x, wide := margin+g.scale(at), g.scale(b.total)
		y := bottom - (depth+1)*row
		name := g.name(n)
		fmt.Fprintf(g.w, "<g><title>%s %s %.2f%%</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>",
			escape(name), view.Short(b.total), 100*float64(b.total)/float64(g.all), x, y, wide-narrow/2, row-1, g.frames[b.frame].color)
		if s := view.Fit(name, int((wide-6)/letter)); s != "" {
			fmt.Fprintf(g.w, "<text x=\"%.2f\" y=\"%d\" fill=\"#111\">%s</text>", x+3, y+row-5, escape(s))
		}
		g.w.WriteString("</g>\n")
	})
	for i, s := range notes {
		fmt.Fprintf(g.w, "<text x=\"%d\" y=\"%d\" fill=\"#a00\">%s</text>\n", margin, bottom+margin+(i+1)*row-5, escape(view.Fit(s, (width-2*margin)*10/66)))
	}
	g.w.WriteString("</svg>\n")
}

func (g *graph) facts() string {
	var b strings.Builder
	for _, f := range g.views[0].Facts() {
		b.WriteString(f[0] + ": " + f[1] + ". ")
	}
	return b.String()
}

// plain is the colour of boxes that are not code.
const plain = "#c8d4e3"

// colorOf returns grey for code of no file, otherwise a warm colour by module, the same in every picture.
func colorOf(v *view.View, label int32) string {
	if label < 0 {
		return plain
	}
	f := &v.Names.Funcs[label]
	if f.Module < 0 || f.Module >= len(v.Rec.Modules) {
		return "#d0d0d0"
	}
	h := fnv.New32a()
	io.WriteString(h, v.Rec.Modules[f.Module].Path)
	x := h.Sum32()
	io.WriteString(h, f.Name)
	return fmt.Sprintf("hsl(%d,%d%%,%d%%)", 15+x%60, 70+x>>8%20, 62+h.Sum32()%12)
}

// escape escapes s for XML. The input went through view.Text, so it has no characters
// that XML forbids.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;").Replace(view.Text(s, 1<<16))
}
