// Command timeline draws a piece of a recording as SVG, for the README: a row
// of calls for each thread, what the thread was doing above them, and each stop
// and gap below. The picture fits light and dark pages.
//
//	go run ./cmd/sliver demo -i 2ms -o demo.sliver
//	go run ./docs/img/testdata/timeline -from 700ms -for 80ms -skip runtime.goexit,runtime.main demo.sliver main worker-0 worker-1 > docs/img/timeline.svg
//
// The words after the file are the names of threads; without any, all are drawn.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// The picture, in pixels.
const (
	width  = 1180
	left   = 110 // of the calls
	right  = 12
	row    = 17
	head   = 52
	foot   = 30
	letter = 6.1 // of the 10 px font
)

func main() {
	log.SetFlags(0)
	from := flag.Duration("from", 0, "where to begin, from the first sample")
	span := flag.Duration("for", time.Second, "how much to draw")
	depth := flag.Int("depth", 10, "calls to draw of a stack, from the outermost")
	skip := flag.String("skip", "", "functions, with commas, that are left out where they are outermost")
	flag.Parse()
	if flag.NArg() == 0 || *span <= 0 || *depth <= 0 {
		log.Fatal("usage: timeline [FLAGS] FILE.sliver [THREAD…] > FILE.svg")
	}
	if err := draw(os.Stdout, flag.Arg(0), flag.Args()[1:], *from, *span, *depth, strings.Split(*skip, ",")); err != nil {
		log.Fatal(err)
	}
}

// box is a call, a state or a stop on a thread's row.
type box struct {
	from, to stack.Time
	depth    int
	name     string
	module   string
}

// lane is one thread.
type lane struct {
	rec    *trace.Recording
	names  *trace.Names
	label  string
	skip   []string
	open   []int // index in calls; -1: left out
	calls  []box
	states []box
	stops  []stack.Time
	gaps   []box
	deep   int
	last   stack.Time
}

func (l *lane) Begin(t stack.Time, depth int, s *trace.Slice) {
	f := l.names.Func(&s.Frame)
	d := 0
	for _, i := range l.open[:depth] {
		if i >= 0 {
			d++
		}
	}
	i := -1
	if d > 0 || !slices.Contains(l.skip, f.Name) {
		i = len(l.calls)
		b := box{from: t, depth: d, name: f.Name}
		if f.Module >= 0 {
			b.module = l.rec.Modules[f.Module].Path
		}
		l.calls = append(l.calls, b)
	}
	l.open = append(l.open[:depth], i)
}

func (l *lane) End(t stack.Time, depth int, _ *trace.Slice) {
	if i := l.open[depth]; i >= 0 {
		l.calls[i].to = t
	}
	l.open = l.open[:depth]
}

func (l *lane) Other(e event.Event) {
	l.last = max(l.last, e.Time)
	switch e.Kind() {
	case event.Pause:
		l.stops = append(l.stops, e.Time)
	case event.Gap:
		_, ns := event.GapFields(e.Payload())
		l.gaps = append(l.gaps, box{from: e.Time - stack.Time(ns), to: e.Time})
	case event.State:
		s, _ := event.StateFields(e.Payload())
		if n := len(l.states); n > 0 {
			if l.states[n-1].name == s.String() {
				return
			}
			l.states[n-1].to = e.Time
		}
		l.states = append(l.states, box{from: e.Time, name: s.String()})
	}
}

func draw(out io.Writer, file string, threads []string, from, span time.Duration, depth int, skip []string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	rec, err := trace.Open(f, fi.Size())
	if err != nil {
		return err
	}
	first, _ := rec.Span()
	begin := first + stack.Time(from)
	end := begin + stack.Time(span)
	names := trace.NewNames(rec)
	var lanes []*lane
	for i := range rec.Threads {
		th := &rec.Threads[i]
		label := th.Name
		if th.Main {
			label = "main"
		}
		if len(threads) > 0 && !slices.Contains(threads, label) {
			continue
		}
		l := &lane{rec: rec, names: names, label: label, skip: skip}
		rec.Replay(th.Seq, names, l)
		if n := len(l.states); n > 0 {
			l.states[n-1].to = l.last
		}
		for _, b := range l.calls {
			if b.to > begin && b.from < end && b.depth < depth {
				l.deep = max(l.deep, b.depth+1)
			}
		}
		lanes = append(lanes, l)
	}
	if len(lanes) == 0 {
		return errors.New("no such thread in the recording")
	}
	p := &picture{w: bufio.NewWriter(out), begin: begin, end: end, depth: depth, hues: map[string]int{}}
	p.all(rec, lanes, span)
	return p.w.Flush()
}

type picture struct {
	w          *bufio.Writer
	begin, end stack.Time
	depth      int
	hues       map[string]int // of packages and modules, as they turn up
}

func (p *picture) x(t stack.Time) float64 {
	t = min(max(t, p.begin), p.end)
	return left + float64(t-p.begin)/float64(p.end-p.begin)*(width-left-right)
}

const style = `<style>
svg{--page:#fff;--text:#1f2328;--dim:#656d76;--line:#d8dee4;--lane:#f6f8fa;--stop:#cf222e;--light:78%;--ink:#14181d}
@media (prefers-color-scheme:dark){svg{--page:#0d1117;--text:#e6edf3;--dim:#8d96a0;--line:#30363d;--lane:#161b22;--stop:#ff7b72;--light:62%;--ink:#0d1117}}
text{font:10px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink)}
.t{font-size:14px;font-weight:600;fill:var(--text)}.l{font-size:12px;fill:var(--text)}.d{font-size:11px;fill:var(--dim)}
.g{stroke:var(--line)}.s{stroke:var(--stop)}.b{fill:var(--lane)}.n{stroke:var(--dim);stroke-dasharray:2 2}
.running{fill:#2da44e}.runnable{fill:#d4a72c}.blocked{fill:#afb8c1}.other{fill:#8250df}
</style>
`

func (p *picture) all(rec *trace.Recording, lanes []*lane, span time.Duration) {
	height := head + foot
	for _, l := range lanes {
		height += l.height()
	}
	title := fmt.Sprintf("%s of %s, sampled every %s", span, rec.Process.Comm, time.Duration(rec.Process.Interval))
	fmt.Fprintf(p.w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\" role=\"img\">\n", width, height)
	fmt.Fprintf(p.w, "<title>%s</title>\n%s", escape(title), style)
	fmt.Fprintf(p.w, "<rect width=\"%d\" height=\"%d\" rx=\"6\" style=\"fill:var(--page)\"/>\n", width, height)
	fmt.Fprintf(p.w, "<text class=\"t\" x=\"12\" y=\"22\">%s</text>\n", escape(title))
	p.legend()
	p.axis(span, height)
	y := head
	for _, l := range lanes {
		p.lane(l, y)
		y += l.height()
	}
	fmt.Fprintln(p.w, "</svg>")
}

func (p *picture) legend() {
	x := width - 575
	for _, e := range []struct{ class, what string }{
		{"running", "running"}, {"runnable", "waiting for a CPU"}, {"blocked", "blocked"},
	} {
		fmt.Fprintf(p.w, "<rect class=\"%s\" x=\"%d\" y=\"15\" width=\"14\" height=\"5\" rx=\"1\"/><text class=\"d\" x=\"%d\" y=\"22\">%s</text>\n",
			e.class, x, x+19, e.what)
		x += 40 + len(e.what)*7
	}
	fmt.Fprintf(p.w, "<path class=\"s\" d=\"M%d 14v8\"/><text class=\"d\" x=\"%d\" y=\"22\">stopped by sliver</text>\n", x, x+6)
	x += 130
	fmt.Fprintf(p.w, "<path class=\"n\" d=\"M%d 18h14\"/><text class=\"d\" x=\"%d\" y=\"22\">no sample</text>\n", x, x+19)
}

// axis draws about ten lines at round times.
func (p *picture) axis(span time.Duration, height int) {
	step := time.Millisecond
	for _, m := range []time.Duration{2, 5, 10, 20, 50, 100, 200, 500, 1000} {
		if span/step > 12 {
			step = m * time.Millisecond
		}
	}
	for t := time.Duration(0); t <= span; t += step {
		x := p.x(p.begin + stack.Time(t))
		fmt.Fprintf(p.w, "<path class=\"g\" d=\"M%.1f %dV%d\"/>", x, head-12, height-foot+8)
		anchor := "middle"
		if x > width-30 {
			anchor = "end"
		}
		fmt.Fprintf(p.w, "<text class=\"d\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, height-8, anchor, t)
	}
}

func (l *lane) height() int { return 8 + l.deep*row + 18 }

func (p *picture) lane(l *lane, y int) {
	fmt.Fprintf(p.w, "<rect class=\"b\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill-opacity=\".6\"/>\n", left, y, width-left-right, l.height()-6)
	fmt.Fprintf(p.w, "<text class=\"l\" x=\"12\" y=\"%d\">%s</text>\n", y+11, escape(l.label))
	for _, s := range l.states {
		if s.to <= p.begin || s.from >= p.end {
			continue
		}
		class := "other"
		switch s.name {
		case "running", "runnable", "blocked":
			class = s.name
		}
		fmt.Fprintf(p.w, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"5\"/>\n", class, p.x(s.from), y, max(p.x(s.to)-p.x(s.from), .3))
	}
	top := y + 8
	for _, b := range l.calls {
		if b.to <= p.begin || b.from >= p.end || b.depth >= p.depth {
			continue
		}
		x := p.x(b.from)
		wide := p.x(b.to) - x
		fmt.Fprintf(p.w, "<g><title>%s, %s</title><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"1\" style=\"fill:%s\"/>", escape(b.name),
			time.Duration(b.to-b.from).Round(10*time.Microsecond), x, top+b.depth*row, max(wide-.6, .4), row-1, p.color(b))
		if s := fit(short(b.name), int((wide-6)/letter)); s != "" {
			fmt.Fprintf(p.w, "<text x=\"%.1f\" y=\"%d\">%s</text>", x+3, top+b.depth*row+12, escape(s))
		}
		fmt.Fprintln(p.w, "</g>")
	}
	for _, b := range l.gaps {
		if b.to > p.begin && b.from < p.end {
			fmt.Fprintf(p.w, "<path class=\"n\" d=\"M%.1f %dH%.1f\"/>\n", p.x(b.from), top+l.deep*row+5, p.x(b.to))
		}
	}
	for _, t := range l.stops {
		if t >= p.begin && t < p.end {
			fmt.Fprintf(p.w, "<path class=\"s\" d=\"M%.1f %dv6\"/>\n", p.x(t), top+l.deep*row+2)
		}
	}
}

// color is the same for the functions of one package, a little stronger or
// weaker for each; grey for Go's runtime and for what has no file.
func (p *picture) color(b box) string {
	group := b.module
	if i := strings.IndexAny(b.name, ".:"); i > 0 {
		group = b.name[:strings.LastIndexByte(b.name[:i], '/')+1] + b.name[:i]
	}
	h := fnv.New32a()
	io.WriteString(h, b.name)
	shade := h.Sum32() % 20
	if b.module == "" || group == "runtime" || strings.HasPrefix(group, "internal/runtime/") {
		return fmt.Sprintf("hsl(215,%d%%,var(--light))", 10+shade/2)
	}
	hues := [...]int{150, 28, 265, 48, 190, 330, 90, 0, 300}
	hue, ok := p.hues[group]
	if !ok {
		hue = hues[len(p.hues)%len(hues)]
		p.hues[group] = hue
	}
	return fmt.Sprintf("hsl(%d,%d%%,var(--light))", hue, 34+2*shade)
}

// short leaves the folders of a package's path out.
func short(name string) string {
	if i := strings.IndexAny(name, "([<"); i > 0 {
		return path.Base(name[:i]) + name[i:]
	}
	return path.Base(name)
}

// fit is s in at most n characters, "" where that tells nothing.
func fit(s string, n int) string {
	r := []rune(s)
	switch {
	case len(r) <= n:
		return s
	case n < 4:
		return ""
	}
	return string(r[:n-1]) + "…"
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
