package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/heap/facts"
	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/leak"
	"github.com/sliverprof/sliver/heap/snapshot"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/target"
)

// isPID reports whether an argument of sliver heap means a process.
func isPID(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// openJava opens the process of an argument.
func openJava(s string) (*target.Process, error) {
	pid, err := parsePID(s)
	if err != nil {
		return nil, usagef("heap", "%v", err)
	}
	return target.Open(pid)
}

// take copies a process and walks its Java heap.
func (f *heapFlags) take(ctx context.Context, p *target.Process) (*snapshot.Java, error) {
	j, err := snapshot.Take(ctx, p, target.SnapshotOptions{Force: f.force})
	if err != nil {
		if errors.Is(err, target.ErrSeccomp) {
			return nil, fmt.Errorf("process %d: %w: use --force, or run as root", p.PID(), err)
		}
		return nil, fmt.Errorf("process %d: %w", p.PID(), err)
	}
	note := fmt.Sprintf("sliver: process %d: copied, stopped for %s", p.PID(), millis(j.Frozen))
	if j.Tries > 1 {
		note += fmt.Sprintf(" (try %d)", j.Tries)
	}
	note += fmt.Sprintf("; HotSpot %d, %s, %s in %.2f s", j.VM.Major, j.VM.Collector, plural.Of(j.Heap.Objects, "object"), j.Scan.Seconds())
	if j.Heap.Gaps > 0 {
		note += fmt.Sprintf(", %d bytes skipped at %s without an object", j.Heap.Skipped, plural.Of(j.Heap.Gaps, "place"))
	}
	f.notes = append(f.notes, note)
	if f.live {
		all := j.Heap.Objects
		if err := j.Live(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("process %d: %w", p.PID(), err), j.Close())
		}
		f.notes = append(f.notes, fmt.Sprintf("sliver: process %d: %d of %d objects are reachable, marked in %.2f s", p.PID(), j.Heap.Objects, all, j.Mark.Seconds()))
	}
	return j, nil
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

// heapProcess prints a histogram of a process.
func heapProcess(ctx context.Context, e *env, f *heapFlags, args []string) error {
	if !slices.Contains([]string{"", "class", "loader", "package"}, f.by) {
		return usagef("heap", "unknown --by %q; there are: class, loader, package", f.by)
	}
	p, err := openJava(args[0])
	if err != nil {
		return err
	}
	defer p.Close()
	if f.holders != "" {
		return heapHolders(ctx, e, f, p)
	}
	d, err := f.dumper(ctx, p)
	if errors.Is(err, snapshot.ErrNoJVM) && snapshot.IsPython(p) {
		return heapPython(ctx, e, f, p)
	}
	if err != nil {
		return err
	}
	if d.j == nil {
		return heapStreamed(ctx, e, f, d)
	}
	h := heapHistogram{p.PID(), float64(d.j.Frozen) / 1e6, d.j.Heap.Objects, d.j.Heap.Bytes, histogram(d.j.Heap, f.by)}
	if err := d.j.Close(); err != nil {
		f.notes = append(f.notes, fmt.Sprintf("sliver: process %d: %v", p.PID(), err))
	}
	return h.write(e, f, cmp.Or(f.by, "class"))
}

// heapStreamed prints a histogram of what HotSpot writes itself.
func heapStreamed(ctx context.Context, e *env, f *heapFlags, d *dumper) error {
	if f.level == "" && f.by != "loader" {
		f.level = "histogram"
	}
	g, err := f.openPipe(ctx, e, d, fmt.Sprintf("process %d", d.p.PID()))
	if err != nil {
		return err
	}
	defer g.Close()
	h := heapHistogram{PID: d.p.PID(), Frozen: float64(d.stood) / 1e6}
	counts := heapCounts{}
	for _, l := range g.Histogram() {
		name := l.Class.Name
		if f.by == "loader" {
			of := ""
			if o := g.Find(l.Class.Loader); o != 0 {
				of = g.Class(o).Name
			}
			name = loaderName(l.Class.Loader, of)
		}
		counts.add(f.by, name, l.Count, uint64(l.Bytes))
		h.Objects += l.Count
		h.Bytes += uint64(l.Bytes)
	}
	h.Lines = counts.sorted()
	return h.write(e, f, cmp.Or(f.by, "class"))
}

// heapPython prints a histogram of a CPython process.
func heapPython(ctx context.Context, e *env, f *heapFlags, p *target.Process) error {
	if f.by != "" && f.by != "class" {
		return usagef("heap", "process %d is CPython, whose objects are counted by class", p.PID())
	}
	if f.live {
		return usagef("heap", "process %d is CPython: --live is of Java", p.PID())
	}
	c, err := snapshot.TakePython(ctx, p, target.SnapshotOptions{Force: f.force})
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID(), err)
	}
	h := heapHistogram{p.PID(), float64(c.Frozen) / 1e6, c.Objects, c.Bytes, []heapCount{}}
	at := map[string]int{}
	for _, t := range c.Types {
		i, ok := at[t.Name]
		if !ok {
			i = len(h.Lines)
			at[t.Name] = i
			h.Lines = append(h.Lines, heapCount{Name: t.Name})
		}
		h.Lines[i].Objects += t.Count
		h.Lines[i].Bytes += t.Bytes
	}
	sortCounts(h.Lines)
	f.notes = append(f.notes, fmt.Sprintf("sliver: process %d: copied, stopped for %s; CPython, %s in %s, %.2f s; buffers outside of objects are not counted",
		p.PID(), millis(c.Frozen), plural.Of(c.Objects, "object"), size(int64(c.Scanned)), c.Scan.Seconds()))
	if c.Left != nil {
		f.notes = append(f.notes, fmt.Sprintf("sliver: process %d: %v", p.PID(), c.Left))
	}
	return h.write(e, f, "class")
}

// heapHolders prints what holds the objects of a class of a CPython process.
func heapHolders(ctx context.Context, e *env, f *heapFlags, p *target.Process) error {
	if f.live || f.by != "" {
		return usagef("heap", "--holders has no --live and no --by")
	}
	if !snapshot.IsPython(p) {
		return usagef("heap", "process %d is not CPython: of Java, 'sliver heap leaks %d' shows what holds objects", p.PID(), p.PID())
	}
	begin := time.Now()
	h, frozen, err := snapshot.HoldersOf(ctx, p, f.holders, target.SnapshotOptions{Force: f.force})
	if h == nil {
		return fmt.Errorf("process %d: %w", p.PID(), err)
	}
	f.notes = append(f.notes, fmt.Sprintf("sliver: process %d: copied, stopped for %s; CPython, %.2f s; holders are conservative: any word that is the address of an object counts",
		p.PID(), millis(frozen), time.Since(begin).Seconds()))
	if err != nil {
		f.notes = append(f.notes, fmt.Sprintf("sliver: process %d: %v", p.PID(), err))
	}
	doc := heldBy{PID: p.PID(), Frozen: float64(frozen) / 1e6, Class: h.Name, Objects: h.Objects, Looked: h.Looked, Unheld: h.Unheld, Conservative: true, Paths: []heldPath{}}
	for _, path := range h.Paths {
		doc.Paths = append(doc.Paths, heldPath{path.Objects, path.Steps})
	}
	if f.json {
		return writeJSON(e, doc)
	}
	w := bufio.NewWriter(e.stdout)
	fmt.Fprintf(w, "%12s  %s is held by (nearest first; conservative)\n", "objects", printable(h.Name))
	for _, path := range doc.Paths[:min(f.top, len(doc.Paths))] {
		fmt.Fprintf(w, "%12d  %s\n", path.Objects, printable(strings.Join(path.Holders, " ← ")))
	}
	if h.Unheld > 0 {
		fmt.Fprintf(w, "%12d  no object: stacks and C alone, or dead\n", h.Unheld)
	}
	if h.Looked < h.Objects {
		fmt.Fprintf(w, "%12d  not looked at\n", h.Objects-h.Looked)
	}
	fmt.Fprintf(w, "%12d  all, %s\n", h.Objects, plural.Of(len(h.Paths), "way"))
	return w.Flush()
}

// heldBy is what holds objects, as JSON has it.
type heldBy struct {
	PID          int        `json:"pid"`
	Frozen       float64    `json:"frozenMillis"`
	Class        string     `json:"class"`
	Objects      uint64     `json:"objects"`
	Looked       uint64     `json:"looked"`
	Unheld       uint64     `json:"unheld"`
	Conservative bool       `json:"conservative"`
	Paths        []heldPath `json:"paths"`
}

// heldPath is one way: the nearest holder first.
type heldPath struct {
	Objects uint64   `json:"objects"`
	Holders []string `json:"holders"`
}

// heapHistogram is a histogram, as JSON has it.
type heapHistogram struct {
	PID     int         `json:"pid"`
	Frozen  float64     `json:"frozenMillis"`
	Objects uint64      `json:"objects"`
	Bytes   uint64      `json:"bytes"`
	Lines   []heapCount `json:"lines"`
}

func (h *heapHistogram) write(e *env, f *heapFlags, by string) error {
	if f.json {
		return writeJSON(e, h)
	}
	w := bufio.NewWriter(e.stdout)
	fmt.Fprintf(w, "%12s  %14s  %s\n", "objects", "bytes", by)
	for _, l := range h.Lines[:min(f.top, len(h.Lines))] {
		fmt.Fprintf(w, "%12d  %14d  %s\n", l.Objects, l.Bytes, printable(l.Name))
	}
	fmt.Fprintf(w, "%12d  %14d  all %d\n", h.Objects, h.Bytes, len(h.Lines))
	return w.Flush()
}

// heapCount is a line of a histogram.
type heapCount struct {
	Name    string `json:"name"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
}

// heapCounts are the lines of a histogram by name.
type heapCounts map[string]*heapCount

// add adds objects of a class or of a class loader, or by package those of a class.
func (c heapCounts) add(by, name string, objects, bytes uint64) {
	if by == "package" {
		name = strings.TrimRight(name, "[]")
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			name = name[:i]
		} else {
			name = "(none)"
		}
	}
	l := c[name]
	if l == nil {
		l = &heapCount{Name: name}
		c[name] = l
	}
	l.Objects += objects
	l.Bytes += bytes
}

// sorted returns the lines, the largest first.
func (c heapCounts) sorted() []heapCount {
	lines := []heapCount{}
	for _, l := range c {
		lines = append(lines, *l)
	}
	sortCounts(lines)
	return lines
}

// histogram adds up objects by class, class loader or package, the largest first.
func histogram(h *hotspot.Heap, by string) []heapCount {
	counts := heapCounts{}
	for _, c := range h.Classes {
		if c.Count == 0 {
			continue
		}
		name := snapshot.JavaName(c.Name)
		if by == "loader" {
			of := ""
			if k := h.ClassAt(c.Loader); k != nil {
				of = snapshot.JavaName(k.Name)
			}
			name = loaderName(c.Loader, of)
		}
		counts.add(by, name, c.Count, c.Bytes)
	}
	return counts.sorted()
}

func sortCounts(lines []heapCount) {
	slices.SortFunc(lines, func(a, b heapCount) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
}

// loaderName returns what a class loader is called, by its address and its class; "": that is not known.
func loaderName(loader uint64, class string) string {
	switch {
	case loader == 0:
		return "(boot loader)"
	case class == "":
		return fmt.Sprintf("0x%x", loader)
	}
	return fmt.Sprintf("%s 0x%x", class, loader)
}

// dumpProcess writes a dump of a process.
func dumpProcess(ctx context.Context, e *env, f *heapFlags, args []string) (err error) {
	if f.output == "" {
		return usagef("heap", "dump needs a file: -o app.hprof, .hprof.gz, .hprof.zst or .spack")
	}
	if f.strip != "" && !slices.Contains([]string{"shark", "matrix", "koom"}, f.strip) {
		return usagef("heap", "unknown --strip %q; there are: shark, matrix, koom", f.strip)
	}
	if err := writable(f.output); err != nil {
		return err
	}
	p, err := openJava(args[0])
	if err != nil {
		return err
	}
	defer p.Close()
	begin := time.Now()
	d, err := f.dumper(ctx, p)
	if err != nil {
		return err
	}
	defer d.close()
	write := d.write
	if f.strip != "" {
		rule, plain := hprof.Rule(f.strip), write
		write = through(plain, func(w io.Writer, r io.Reader) error {
			return hprof.Strip(w, r, hprof.StripOptions{Rule: rule, Temp: f.temp})
		})
	}
	if strings.HasSuffix(f.output, ".spack") {
		write = through(write, hprof.Pack)
	}
	if err := writeReport(e, f.output, write); err != nil {
		return err
	}
	note := fmt.Sprintf("sliver: %s: %s in %.2f s", f.output, size(d.bytes), time.Since(begin).Seconds())
	if f.strip != "" || strings.HasSuffix(f.output, ".spack") || strings.HasSuffix(f.output, ".gz") || strings.HasSuffix(f.output, ".zst") {
		note += " (before it was made smaller)"
	}
	f.notes = append(f.notes, note)
	return nil
}

// dumper writes the dump of a process once.
type dumper struct {
	f      *heapFlags
	p      *target.Process
	j      *snapshot.Java // nil: HotSpot writes it itself
	closed bool
	ctx    context.Context
	bytes  int64
	stood  time.Duration // that HotSpot stopped the process for
}

// dumper chooses how the dump of a process is made, and makes the copy.
func (f *heapFlags) dumper(ctx context.Context, p *target.Process) (*dumper, error) {
	if !slices.Contains([]string{"auto", "snapshot", "fifo"}, f.way) {
		return nil, usagef("heap", "unknown --way %q; there are: auto, snapshot, fifo", f.way)
	}
	d := &dumper{f: f, p: p, ctx: ctx}
	if f.way == "fifo" {
		return d, nil
	}
	j, err := f.take(ctx, p)
	if err == nil {
		d.j = j
		return d, nil
	}
	if f.way == "snapshot" || !snapshot.Fallback(err) {
		return nil, err
	}
	f.notes = append(f.notes, fmt.Sprintf("sliver: %v: dumped through its attach socket", err))
	return d, nil
}

// close ends the copy, if there is one.
func (d *dumper) close() {
	if d.j == nil || d.closed {
		return
	}
	d.closed = true
	if n, err := d.j.Copied(); err == nil {
		d.f.notes = append(d.f.notes, fmt.Sprintf("sliver: process %d: wrote to %s of its pages during the read, which the kernel copied", d.p.PID(), size(n)))
	}
	if err := d.j.Close(); err != nil {
		d.f.notes = append(d.f.notes, fmt.Sprintf("sliver: process %d: %v", d.p.PID(), err))
	}
}

// write writes the dump, and ends the copy.
func (d *dumper) write(w io.Writer) error {
	if d.j == nil {
		return d.stream(w)
	}
	n, err := d.j.Dump(d.ctx)
	if err == nil {
		err = n.Write(d.ctx, w)
	}
	d.close()
	if err != nil {
		return fmt.Errorf("process %d: %w", d.p.PID(), err)
	}
	d.bytes = n.Bytes
	d.say(n)
	return nil
}

// stream writes what HotSpot writes, and counts its objects on the way.
func (d *dumper) stream(w io.Writer) error {
	r, count := io.Pipe()
	var objects, classes int64
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		infos, _ := hprof.ReadInfo(r)
		_, _ = io.Copy(io.Discard, r) // the reader of w reports damage
		for _, i := range infos {
			objects += i.Objects().Count
			classes += i.Subs[hprof.SubClass].Count
		}
	}()
	err := d.fifo(io.MultiWriter(w, count))
	count.Close()
	if <-counted; err == nil {
		d.streamed(objects, classes)
	}
	return err
}

// fifo writes what HotSpot writes.
func (d *dumper) fifo(w io.Writer) error {
	s, err := snapshot.Stream(d.ctx, d.p, w, d.f.live)
	if err != nil {
		return fmt.Errorf("process %d: %w", d.p.PID(), err)
	}
	d.bytes, d.stood = s.Bytes, s.Stood
	return nil
}

// streamed adds a line about what HotSpot has written.
func (d *dumper) streamed(objects, classes int64) {
	d.f.notes = append(d.f.notes, fmt.Sprintf("sliver: process %d: written by HotSpot itself, stopped for %s; %s, %s", d.p.PID(), millis(d.stood), plural.Of(objects, "object"), plural.Of(classes, "class")))
}

// say adds a line about what the dump of a copy has.
func (d *dumper) say(n *hotspot.Dump) {
	note := fmt.Sprintf("sliver: process %d: dumped %s, %s, %s (%d of stacks, conservative)", d.p.PID(), plural.Of(n.Objects, "object"), plural.Of(n.Classes, "class"), plural.Of(n.Roots, "root"), n.Frames)
	if lost := n.Nulled(); lost > 0 {
		note += fmt.Sprintf("; %s to no object written as null", plural.Of(lost, "reference"))
	}
	if k, why := n.Untraced(); k > 0 {
		note += fmt.Sprintf("; stacks of %d threads incomplete (%s)", k, why)
	}
	if b := fillers(d.j.Heap); b > 0 {
		note += fmt.Sprintf("; %s fill gaps, written as int[]", size(int64(b)))
	}
	if n.Truncated > 0 {
		note += fmt.Sprintf("; %s of more than 4 GB truncated", plural.Of(n.Truncated, "array"))
	}
	d.f.notes = append(d.f.notes, note)
}

// fillers is how many bytes HotSpot has filled between objects, with arrays that no object holds: also behind each large
// object of G1, up to the end of its region. Those of version
// 17 are plain int[] and not counted.
func fillers(h *hotspot.Heap) (sum uint64) {
	for _, c := range h.Classes {
		if c.Name == "[Ljdk/internal/vm/FillerElement;" || c.Name == "jdk/internal/vm/FillerObject" {
			sum += c.Bytes
		}
	}
	return sum
}

func size(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// through returns a function that writes what change makes of what write writes.
func through(write func(io.Writer) error, change func(io.Writer, io.Reader) error) func(io.Writer) error {
	return func(w io.Writer) error {
		r, in := io.Pipe()
		done := make(chan error, 1)
		go func() {
			err := write(in)
			in.CloseWithError(err)
			done <- err
		}()
		err := change(w, r)
		r.CloseWithError(err)
		return cmp.Or(<-done, err)
	}
}

// openProcess opens the heap of a process as a graph: from a copy without a file, or through a pipe what HotSpot
// writes. done closes the graph and ends the copy.
func (f *heapFlags) openProcess(ctx context.Context, e *env, pid, name string) (g *graph.Graph, done func(), err error) {
	p, err := openJava(pid)
	if err != nil {
		return nil, nil, err
	}
	d, err := f.dumper(ctx, p)
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	if d.j == nil {
		g, err = f.openPipe(ctx, e, d, name)
	} else {
		g, err = f.openBy(e, "", name, func(o graph.Options) (*graph.Graph, error) {
			h, err := d.j.Dump(ctx)
			if err != nil {
				return nil, err
			}
			g, err := graph.New(ctx, h, h.Size(), o)
			d.say(h)
			return g, err
		})
	}
	if err != nil {
		d.close()
		p.Close()
		return nil, nil, err
	}
	return g, func() {
		g.Close()
		d.close()
		p.Close()
	}, nil
}

// koomRunning is what KOOM's report says of a process; nil: it cannot be read.
func koomRunning(pid string) *leak.Running {
	p, err := openJava(pid)
	if err != nil {
		return nil // the copy will say why
	}
	defer p.Close()
	return facts.Of(p, leak.ReasonManual)
}

// openPipe is openProcess for a dump that HotSpot writes.
func (f *heapFlags) openPipe(ctx context.Context, e *env, d *dumper, name string) (*graph.Graph, error) {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := d.fifo(w)
		w.CloseWithError(err)
		wrote <- err
	}()
	k, err := hprof.Keep(r, f.temp)
	r.CloseWithError(err)
	if e := <-wrote; e != nil && (err == nil || errors.Is(err, e)) { // why the dump is not whole
		if err == nil {
			k.File.Close()
		}
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: cannot keep the dump for the analysis (--temp chooses a folder): %w", d.p.PID(), err)
	}
	defer k.File.Close()
	d.streamed(k.Objects, k.Classes)
	path := fmt.Sprintf("/proc/self/fd/%d", k.File.Fd())
	return f.openBy(e, path, name, func(o graph.Options) (*graph.Graph, error) { return graph.Open(ctx, path, o) })
}
