// Package timeline draws a recording as a static picture for a document: for each thread a
// line of its states (running, blocked, …), the marks of sliver's stops, and below them
// its calls, outermost on top. WriteSVG and WritePNG draw the same picture.
//
// Threads that waited for one object all the time follow the others, with few rows. Nearly
// idle threads of a runtime come last, without calls. If a stack is deeper than the space
// for it, one line lists the outer calls that are always open, as the inner ones differ. Of several processes, the threads
// have the name of their process, and if not all have room, those with the most CPU time are drawn.
//
// Calls narrower than a pixel are merged, so memory grows with the picture and not with
// the recording. A line below the picture lists omitted parts and the recording's losses.
//
// Both functions may run for several recordings at once.
package timeline

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Dimensions in pixels of the SVG; the PNG has twice as many in each direction.
const (
	width   = 1200.0
	margin  = 10.0
	row     = 15.0
	letter  = 6.6 // width in the 11 px monospace font
	heading = 34.0
	axis    = 20.0
	above   = 26.0 // a thread's name and its line of states
	below   = 8.0
	strip   = 7.0 // height of the line of states
	// lineLetters is how many letters fit between the margins.
	lineLetters = 178

	// Adjacent calls narrower than this are merged.
	narrow = 0.7
	// maxRows limits the height of the picture; a PNG then has at most 2400 by 10000
	// pixels. Threads share the rows. No thread gets more than maxDepth or, if it has
	// calls, fewer than minDepth.
	maxRows  = 320
	maxDepth = 48
	minDepth = 12
	// stillRows is the limit for a thread that waited for one object all the time.
	stillRows = 6
	// maxRead limits the rows of a thread before it is cut to the available space.
	maxRead = 256
	// A call with at least this share of a thread's time counts as always open.
	steady = .95
	// stillShare is the highest CPU share of a thread that waited for one object.
	stillShare = .01
)

// box is a call, or several adjacent narrow ones.
type box struct {
	x0, x1 float64
	fn     int
	calls  int
	ns     int64
	longNS int64 // duration of the longest call, of function fn
}

// span is a state, or several merged ones; the longest sets the colour.
type span struct {
	x0, x1 float64
	state  stack.State
	nr     int32
	ns     int64
}

// lane is one thread's part of the picture.
type lane struct {
	v      *view.View
	th     *view.Thread
	rows   [][]box
	states []span
	pauses []float64
	idle   bool
	outer  []string // calls that were always open, outermost first, listed in one line
	deeper bool     // there are calls below those in rows
}

// height returns the height of its calls, in rows.
func (l *lane) height() int { return len(l.rows) + min(len(l.outer), 1) }

type picture struct {
	views      []*view.View
	begin, end stack.Time
	lanes      []*lane
	leftOut    int // threads omitted for lack of space
}

// canvas is the drawing target. Texts are already sanitized and shortened.
type canvas interface {
	begin(w, h float64, title, about string)
	// rect draws a box with an optional title.
	rect(x, y, w, h float64, c color.RGBA, title string)
	// text writes s with its baseline at y.
	text(x, y, size float64, c color.RGBA, s string)
	finish(w io.Writer) error
}

func drawOn(w io.Writer, rec *trace.Recording, o view.Options, c canvas) error {
	p := &picture{views: view.All(rec, o)}
	p.begin, p.end = view.Span(p.views)
	var by [3][]*lane
	for _, v := range p.views {
		for i := range v.Threads {
			l := &lane{v: v, th: &v.Threads[i]}
			w := p.work(l)
			by[w] = append(by[w], l)
		}
	}
	if len(p.views) > 1 {
		by[busy] = p.busiest(by[busy], maxRows/(minDepth+2))
	}
	rows, share := 0, min(maxDepth, max(minDepth, (maxRows-(stillRows+2)*len(by[still]))/max(len(by[busy]), 1)-2))
	all := slices.Concat(by[busy], by[still], by[idle])
	for i, l := range all {
		if rows+2 > maxRows {
			p.leftOut += len(all) - i
			break
		}
		most := share
		switch i -= len(by[busy]); {
		case i >= len(by[still]):
			l.idle = true
		case i >= 0:
			most = stillRows
		}
		p.read(l, min(most, maxRows-rows-2))
		rows += l.height() + 2
		p.lanes = append(p.lanes, l)
	}
	p.draw(c)
	if err := c.finish(w); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

// work classifies threads by activity, which sets their order.
type work int

const (
	busy  work = iota
	still      // it waited for one object all the time
	idle       // a nearly idle thread of a runtime
)

func (p *picture) work(l *lane) work {
	n, last, cpu := l.v.Sum(l.th)
	switch {
	case l.v.Idled(&last, cpu):
		return idle
	case n == 1 && last.Waits() && float64(cpu) < stillShare*float64(p.end-p.begin):
		return still
	}
	return busy
}

// busiest returns the n lanes with the most CPU time, in their order.
func (p *picture) busiest(all []*lane, n int) []*lane {
	if len(all) <= n {
		return all
	}
	cpu := map[*lane]int64{}
	for _, l := range all {
		_, _, ns := l.v.Sum(l.th)
		cpu[l] = int64(ns)
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *lane) int { return cmp.Compare(cpu[b], cpu[a]) })
	chosen := map[*lane]bool{}
	for _, l := range sorted[:n] {
		chosen[l] = true
	}
	p.leftOut += len(all) - n
	return slices.DeleteFunc(all, func(l *lane) bool { return !chosen[l] })
}

// read reads a lane, with at most most rows.
func (p *picture) read(l *lane, most int) {
	r := &reader{p: p, l: l}
	g := l.v.WithGaps(r)
	end := l.v.ExactSlices(l.th, g)
	g.Close(end)
	r.endState(end)
	if l.idle {
		l.rows = nil
	}
	// If the stack is too deep, calls that are always open are removed first.
	out := 0
	if len(l.rows) > most {
		for most > 1 && out < len(l.rows)-(most-1) && r.steady(l.rows[out]) {
			out++
		}
	}
	if out > 0 {
		for _, row := range l.rows[:out] {
			l.outer = append(l.outer, l.v.FuncName(longest(row).fn))
		}
		l.rows = l.rows[out:]
		most--
	}
	if len(l.rows) > most {
		l.rows, l.deeper = l.rows[:most:most], true
	}
}

// longest returns the longest call of a row.
func longest(row []box) *box {
	at := &row[0]
	for i := range row {
		if row[i].longNS > at.longNS {
			at = &row[i]
		}
	}
	return at
}

// x returns the horizontal position of t.
func (p *picture) x(t stack.Time) float64 {
	return margin + float64(t-p.begin)/float64(max(p.end-p.begin, 1))*(width-2*margin)
}

// reader receives the replay of one thread.
type reader struct {
	p       *picture
	l       *lane
	began   []stack.Time
	first   stack.Time // start of its outermost calls
	last    stack.Time
	ever    bool
	inState bool
	state   span
	stateAt stack.Time
}

// Begin implements trace.SliceHandler.
func (r *reader) Begin(t stack.Time, depth int, _ *trace.Slice) {
	r.began = append(r.began[:min(depth, len(r.began))], t)
}

// End implements trace.SliceHandler.
func (r *reader) End(t stack.Time, depth int, s *trace.Slice) {
	if depth >= len(r.began) {
		return
	}
	from := r.began[depth]
	r.began = r.began[:depth]
	if depth == 0 {
		if !r.ever {
			r.first, r.ever = from, true
		}
		r.last = t
	}
	if depth >= maxRead {
		r.l.deeper = true
		return
	}
	for len(r.l.rows) <= depth {
		r.l.rows = append(r.l.rows, nil)
	}
	b := box{x0: r.p.x(from), x1: r.p.x(t), fn: s.Frame.Func, calls: 1, ns: int64(t - from), longNS: int64(t - from)}
	boxes := r.l.rows[depth]
	if n := len(boxes) - 1; n >= 0 && b.x1-b.x0 < narrow {
		last := &boxes[n]
		if last.x1-last.x0 < narrow && b.x1-last.x0 < narrow {
			if b.longNS > last.longNS {
				last.fn, last.longNS = b.fn, b.longNS
			}
			last.calls++
			last.ns += b.ns
			last.x1 = b.x1
			return
		}
	}
	r.l.rows[depth] = append(boxes, b)
}

// steady reports whether a call of a row covers nearly all of the thread's time.
func (r *reader) steady(row []box) bool {
	return len(row) > 0 && float64(longest(row).longNS) >= steady*float64(r.last-r.first)
}

// Other implements trace.SliceHandler.
func (r *reader) Other(e event.Event) {
	switch e.Kind() {
	case event.State:
		r.endState(e.Time)
		s, nr := event.StateFields(e.Payload())
		r.inState, r.stateAt, r.state = s != stack.StateUnknown, e.Time, span{state: s, nr: nr}
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			r.endState(e.Time)
		}
	case event.Pause:
		x := r.p.x(e.Time)
		if n := len(r.l.pauses); n == 0 || x-r.l.pauses[n-1] >= 1 {
			r.l.pauses = append(r.l.pauses, x)
		}
	}
}

func (r *reader) endState(t stack.Time) {
	if !r.inState {
		return
	}
	r.inState = false
	s := r.state
	s.x0, s.x1, s.ns = r.p.x(r.stateAt), r.p.x(max(t, r.stateAt)), int64(t-r.stateAt)
	if n := len(r.l.states) - 1; n >= 0 {
		last := &r.l.states[n]
		if s.x1-last.x0 < narrow {
			if s.ns > last.ns {
				last.state, last.nr, last.ns = s.state, s.nr, s.ns
			}
			last.x1 = s.x1
			return
		}
	}
	r.l.states = append(r.l.states, s)
}

var (
	ink    = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint  = color.RGBA{0x66, 0x66, 0x66, 0xff}
	grid   = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	white  = color.RGBA{0xff, 0xff, 0xff, 0xff}
	alarm  = color.RGBA{0xaa, 0x00, 0x00, 0xff}
	noCode = color.RGBA{0xd0, 0xd0, 0xd0, 0xff}
)

// stateColor: green is running, orange runnable, blue blocked, red uninterruptible.
func stateColor(s stack.State) color.RGBA {
	switch s {
	case stack.StateRunning:
		return color.RGBA{0x43, 0xa0, 0x47, 0xff}
	case stack.StateRunnable:
		return color.RGBA{0xff, 0xa7, 0x26, 0xff}
	case stack.StateBlocked:
		return color.RGBA{0x90, 0xb4, 0xd8, 0xff}
	case stack.StateDisk, stack.StateFault:
		return color.RGBA{0xe5, 0x73, 0x73, 0xff}
	}
	return noCode
}

func (p *picture) notes() []string {
	notes := view.FewLosses(p.views)
	deeper := 0
	for _, l := range p.lanes {
		if l.deeper {
			deeper++
		}
	}
	if deeper > 0 {
		notes = append(notes, fmt.Sprintf("the deepest calls of %s are left out of the picture", plural.Of(deeper, "thread")))
	}
	if p.leftOut > 0 {
		notes = append(notes, fmt.Sprintf("%s %s left out of the picture (--threads chooses)", plural.Of(p.leftOut, "more thread"), plural.Word(p.leftOut, "is", "are")))
	}
	return notes
}

func (p *picture) draw(c canvas) {
	notes := p.notes()
	height := heading + axis + margin + float64(len(notes))*row
	for _, l := range p.lanes {
		height += above + below + float64(l.height())*row
	}
	title := fmt.Sprintf("%s: %s", view.Title(p.views), view.Short(int64(p.end-p.begin)))
	var about strings.Builder
	for _, f := range p.views[0].Facts() {
		about.WriteString(f[0] + ": " + f[1] + ". ")
	}
	c.begin(width, height, title, about.String())
	c.text(margin, 22, 15, ink, view.Fit(title, 100))
	p.legend(c)
	foot := height - margin - float64(len(notes))*row
	step := tick(int64(p.end - p.begin))
	start := p.views[0].Start() // times count from the start of the recording, whatever the range
	for _, v := range p.views {
		start = min(start, v.Start())
	}
	for t := (int64(p.begin-start) + step - 1) / step * step; t <= int64(p.end-start); t += step {
		x := p.x(start + stack.Time(t))
		c.rect(x, heading+axis-4, 1, foot-heading-axis+4, grid, "")
		label := clock(t)
		if x += 3; x+float64(len(label))*letter < width {
			c.text(x, heading+axis-6, 11, faint, label)
		}
	}
	y := heading + axis
	for _, l := range p.lanes {
		y = p.lane(c, l, y)
	}
	for i, s := range notes {
		c.text(margin, foot+float64(i+1)*row, 11, alarm, view.Fit(s, lineLetters))
	}
}

// legend draws the legend of states at the right.
func (p *picture) legend(c canvas) {
	x := width - margin
	for _, s := range []struct {
		c    color.RGBA
		what string
	}{{alarm, "stop by sliver"}, {stateColor(stack.StateDisk), "uninterruptible"}, {stateColor(stack.StateBlocked), "blocked"},
		{stateColor(stack.StateRunnable), "runnable"}, {stateColor(stack.StateRunning), "running"}} {
		x -= float64(len(s.what)) * letter
		c.text(x, 20, 11, faint, s.what)
		c.rect(x-12, 12, 8, 8, s.c, "")
		x -= 24
	}
}

func (p *picture) lane(c canvas, l *lane, y float64) float64 {
	name := fmt.Sprintf("%s (%d)", l.th.Label, l.th.ID)
	if process := l.v.Process(); len(p.views) > 1 && name != process {
		name = process + ": " + name
	}
	if l.idle {
		name += ": idle"
	}
	c.text(margin, y+12, 12, ink, view.Fit(name, 150))
	for _, s := range l.states {
		title := fmt.Sprintf("%s %s", l.v.StateName(s.state, s.nr), view.Short(s.ns))
		c.rect(s.x0, y+16, max(s.x1-s.x0, .3), strip, stateColor(s.state), title)
	}
	for _, x := range l.pauses {
		c.rect(x-.5, y+14, 1, strip+4, alarm, "")
	}
	y += above
	if n := len(l.outer); n > 0 {
		c.text(margin, y+row-4, 11, faint, within(n, l.outer))
		y += row
	}
	for d, boxes := range l.rows {
		for i := range boxes {
			p.box(c, l.v, &boxes[i], y+float64(d)*row)
		}
	}
	return y + float64(len(l.rows))*row + below
}

// within lists the calls that are always open, innermost ones if not all fit.
func within(n int, outer []string) string {
	text := fmt.Sprintf("always in %s: ", plural.Of(n, "call"))
	if n == 1 {
		text = "always in "
	}
	names := ""
	for i := n - 1; i >= 0; i-- {
		next := outer[i]
		if names != "" {
			next += " › " + names
		}
		if len([]rune(text+next)) > lineLetters-4 {
			if names == "" {
				return text + view.Fit(next, lineLetters-len(text))
			}
			return text + "… › " + names
		}
		names = next
	}
	return text + names
}

func (p *picture) box(c canvas, v *view.View, b *box, y float64) {
	name := v.FuncName(b.fn)
	wide := max(b.x1-b.x0, .3)
	title := fmt.Sprintf("%s %s", name, view.Short(b.ns))
	if b.calls > 1 {
		title = fmt.Sprintf("%s, %s; the longest: %s", plural.Of(b.calls, "call"), view.Short(b.ns), name)
	}
	gap := 0.0
	if wide > 3 {
		gap = .5
	}
	c.rect(b.x0, y, wide-gap, row-1, colorOf(v, b.fn), title)
	if s := view.Fit(name, int((wide-5)/letter)); s != "" {
		c.text(b.x0+3, y+row-4, 11, ink, s)
	}
}

// colorOf returns grey for boxes that are not code, otherwise a colour by function name, the
// same in every picture.
func colorOf(v *view.View, fn int) color.RGBA {
	f := &v.Names.Funcs[fn]
	if f.Module < 0 || f.Module >= len(v.Rec.Modules) {
		return noCode
	}
	h := fnv.New32a()
	io.WriteString(h, f.Name)
	x := h.Sum32()
	return hsl(float64(x%360), .5+float64(x>>9%20)/100, .74+float64(x>>16%8)/100)
}

// hsl converts hue (degrees), saturation and lightness (0 to 1).
func hsl(h, s, l float64) color.RGBA {
	c := (1 - math.Abs(2*l-1)) * s
	part := func(shift float64) uint8 {
		k := math.Mod(h/60+shift, 6)
		v := l - c/2 + c*max(0, min(1, math.Abs(k-3)-1))
		return uint8(math.Round(v * 255))
	}
	return color.RGBA{part(0), part(4), part(2), 0xff}
}

// tick returns a round number of ns between a twelfth and a fifth of span.
func tick(span int64) int64 {
	step := int64(1)
	for span/step > 12 {
		for _, m := range []int64{2, 5, 10} {
			if span/(step*m) <= 12 {
				return step * m
			}
		}
		step *= 10
	}
	return step
}

// clock formats ns for the time axis, without rounding.
func clock(ns int64) string {
	if ns == 0 {
		return "0"
	}
	return view.Duration(ns)
}
