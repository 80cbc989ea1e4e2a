package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/leak"
	"github.com/sliverprof/sliver/internal/caps"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/internal/plural"
)

// heapFlags are the common flags of all actions of sliver heap.
type heapFlags struct {
	memory, level, temp, output, format string
	json, html, partial, quiet          bool
	koom, top, dump                     int
	share                               string
	by, strip, way, holders             string
	force, live                         bool
	report                              bool // a report of leaks is made

	notes []string // summary lines for standard error
}

// heapAction is one subcommand of sliver heap.
type heapAction struct {
	name  string
	args  int
	takes string
	flags []string // in addition to the common ones
	run   func(ctx context.Context, e *env, f *heapFlags, args []string) error
}

func heapActions() []heapAction {
	return []heapAction{
		{"leaks", 1, "one dump or process", []string{"koom", "json", "html", "format", "output", "share", "way", "force"}, heapLeaks},
		{"dump", 1, "one process", []string{"output", "strip", "way", "force", "live"}, dumpProcess},
		{"histo", 1, "one dump", []string{"json", "rows"}, heapHisto},
		{"diff", 2, "an old and a new dump", []string{"json"}, heapDiff},
		{"show", 2, "a dump, and an object's ID or a class", []string{"json", "rows"}, heapShow},
		{"path", 2, "a dump, and an object's ID", []string{"json"}, heapPath},
	}
}

func heapNames() []string {
	var names []string
	for _, a := range heapActions() {
		names = append(names, a.name)
	}
	return names
}

// processAction is that of a process number without a word.
var processAction = heapAction{"PID", 1, "one process", []string{"json", "rows", "by", "force", "live", "holders", "way"}, heapProcess}

func heapCommand() *command {
	f := &heapFlags{}
	var set *pflag.FlagSet
	return &command{
		name: "heap", args: "PID | " + strings.Join(heapNames(), "|") + " FILE|PID …", short: "find what holds the memory of a Java process or heap dump",
		words: heapNames,
		flags: func(fs *pflag.FlagSet) {
			set = fs
			fs.StringVar(&f.memory, "max-memory", "", "memory limit of the analysis, such as 2GB; larger dumps use a file, or are analyzed for chosen objects or by class only (default: no limit)")
			retire(fs, "memory", "max-memory")
			fs.StringVar(&f.level, "level", "", "level of the analysis: full, mapped, paths or histogram (default: the best that --max-memory allows)")
			fs.StringVar(&f.temp, "temp", "", "directory for temporary files (default: the system's)")
			fs.BoolVar(&f.partial, "partial", false, "use the part of a damaged dump before the damage")
			fs.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress to standard error")
			fs.IntVar(&f.dump, "dump", 0, "number of the dump in a file of several, from 1 (default: the last one)")
			fs.BoolVar(&f.json, "json", false, "print JSON")
			fs.BoolVar(&f.html, "html", false, "of leaks: write one HTML file with a tree map, paths and a search")
			fs.StringVar(&f.format, "format", "", "of leaks: text, json, html or pprof")
			fs.StringVarP(&f.output, "output", "o", "", "of leaks: file for the report (default: standard output)")
			fs.IntVar(&f.koom, "koom", 0, "of leaks: KOOM's report of version 1 or 2, by KOOM's rules")
			fs.StringVar(&f.share, "share", "10%", "of leaks: smallest share of the heap of a suspect")
			fs.IntVarP(&f.top, "rows", "n", 30, "lines of histo and of a process, objects of show")
			retire(fs, "top", "rows")
			fs.StringVar(&f.by, "by", "", "of a process: add up by class, loader or package (default: class)")
			fs.StringVar(&f.holders, "holders", "", "of a CPython process: what holds the objects of this class, found conservatively")
			fs.StringVar(&f.strip, "strip", "", "of dump: remove contents by the rule shark, matrix or koom, see sliver hprof strip")
			fs.StringVar(&f.way, "way", "auto", "of a process: snapshot, fifo (HotSpot writes the dump; it stops for that time), or auto: a snapshot if possible, else fifo")
			fs.BoolVar(&f.live, "live", false, "of dump and of a process: only objects that are reachable, as jcmd GC.heap_dump without -all, but without a collection in the process")
			fs.BoolVar(&f.force, "force", false, "of a process: copy it even if a seccomp filter may kill it for that")
		},
		help: `
FILE is a heap dump in the HPROF format of HotSpot or Android, also compressed. PID is a
running HotSpot (17, 21 or 25 with G1, Serial or Parallel): it stops for some milliseconds
while the kernel copies its page tables, and the copy is read. Other collectors and
versions write a dump through a FIFO instead, and stop for that time.

  PID                      objects and bytes by class, also of CPython (3.8 to 3.14)
  dump PID -o FILE         write a heap dump (.hprof, .hprof.gz, .hprof.zst, .spack)
  leaks FILE|PID           suspects with the way from a root that holds them
  histo FILE               objects, bytes and retained bytes by class
  diff OLD NEW             what grew between two dumps, by class and by path
  show FILE OBJECT|CLASS   fields, elements, holders and retained size of an
                           object (0x…), or a class and its largest objects
  path FILE OBJECT         the shortest way from a root to an object

Examples:
  sliver heap 4711 --top 10
  sliver heap 4712 --holders Session
  sliver heap leaks 4711
  sliver heap dump 4711 -o app.spack --strip shark
  sliver heap leaks app.hprof
  sliver heap leaks app.hprof.gz --html -o report.html
  sliver heap leaks app.hprof --format pprof -o heap.pb.gz && go tool pprof -http : heap.pb.gz
  sliver heap leaks android.hprof --koom 2
  sliver heap show app.hprof com.example.Session`,
		run: func(ctx context.Context, e *env, args []string) error { return runHeap(ctx, e, f, set, args) },
	}
}

func runHeap(ctx context.Context, e *env, f *heapFlags, set *pflag.FlagSet, args []string) error {
	if len(args) == 0 {
		return usagef("heap", "say what to do: %s", strings.Join(heapNames(), ", "))
	}
	i := slices.IndexFunc(heapActions(), func(a heapAction) bool { return a.name == args[0] })
	if i < 0 && !isPID(args[0]) {
		return usagef("heap", "unknown action %q; use one of %s", args[0], strings.Join(heapNames(), ", "))
	}
	var a heapAction
	if i >= 0 {
		a = heapActions()[i]
	} else {
		a, args = processAction, append([]string{"PID"}, args...)
	}
	if len(args)-1 != a.args {
		return usagef("heap", "%s takes %s", a.name, a.takes)
	}
	var wrong error
	set.Visit(func(g *pflag.Flag) {
		if !slices.Contains([]string{"max-memory", "level", "temp", "partial", "dump", "quiet", "help"}, currentName(g)) && !slices.Contains(a.flags, currentName(g)) && wrong == nil {
			wrong = usagef("heap", "%s has no --%s", a.name, g.Name)
		}
	})
	if wrong != nil {
		return wrong
	}
	if f.top < 0 || f.dump < 0 {
		return usagef("heap", "--rows and --dump cannot be negative")
	}
	if !slices.ContainsFunc(args[1:], isPID) {
		if err := caps.Limit(caps.Files); err != nil { // it needs no process
			return err
		}
	}
	err := a.run(ctx, e, f, args[1:])
	for _, n := range f.notes {
		// Of a process they say why the first way was not taken, also if the second one failed.
		if !f.quiet && (err == nil || slices.ContainsFunc(args[1:], isPID)) {
			fmt.Fprintln(e.stderr, printable(n))
		}
	}
	return err
}

// parseBytes parses a size such as "2GB", "512MiB" or "1000000".
func parseBytes(s string) (int64, error) {
	number := strings.TrimRight(s, "kKmMgGtTiIbB")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v <= 0 || math.IsInf(v, 0) {
		return 0, fmt.Errorf("invalid size %q (example: 2GB)", s)
	}
	unit, ok := map[string]float64{"": 1, "b": 1, "k": 1e3, "kb": 1e3, "kib": 1 << 10, "m": 1e6, "mb": 1e6, "mib": 1 << 20,
		"g": 1e9, "gb": 1e9, "gib": 1 << 30, "t": 1e12, "tb": 1e12, "tib": 1 << 40}[strings.ToLower(s[len(number):])]
	if v *= unit; !ok || v > math.MaxInt64/2 {
		return 0, fmt.Errorf("invalid size %q (example: 2GB)", s)
	}
	return int64(v), nil
}

// runtimeBytes is the part of --memory reserved for Go's own heap.
const runtimeBytes = 64 << 20

// open opens a dump with the settings of the flags.
func (f *heapFlags) open(ctx context.Context, e *env, path string) (*graph.Graph, error) {
	return f.openBy(e, path, path, func(o graph.Options) (*graph.Graph, error) { return graph.Open(ctx, path, o) })
}

// openBy calls make with the settings of the flags, for the graph of a dump that messages call name.
func (f *heapFlags) openBy(e *env, path, name string, make func(graph.Options) (*graph.Graph, error)) (*graph.Graph, error) {
	o := graph.Options{Temp: f.temp, Dump: f.dump, Partial: f.partial, Report: f.report}
	if f.memory != "" {
		n, err := parseBytes(f.memory)
		if err != nil {
			return nil, usagef("heap", "--max-memory: %v", err)
		}
		if n < runtimeBytes*2 {
			return nil, usagef("heap", "--max-memory %s: at least 128MiB are needed", f.memory)
		}
		o.Memory = n - runtimeBytes
		debug.SetMemoryLimit(n)
	}
	levels := []string{"", "full", "mapped", "paths", "histogram"}
	i := slices.Index(levels, f.level)
	if i < 0 {
		return nil, usagef("heap", "unknown level %q; there are: %s", f.level, strings.Join(levels[1:], ", "))
	}
	o.Level = graph.Level(i)
	begin := time.Now()
	g, err := make(o)
	if err != nil {
		return nil, (&hprofInput{path: path, name: name}).explain(plainPath(err))
	}
	note := fmt.Sprintf("sliver: %s: %s, level %s; %.2f s", name, plural.Of(g.Len(), "object"), g.Level(), time.Since(begin).Seconds())
	if g.Len() >= 100_000 && g.PeakBytes() > 0 {
		note += fmt.Sprintf(", %d bytes an object", g.PeakBytes()/int64(g.Len()))
	}
	f.notes = append(f.notes, note)
	if g.Damage != nil {
		fmt.Fprintf(e.stderr, "sliver: %s: damaged, using only the part before the damage: %s\n", name, oneLine(g.Damage))
	}
	return g, nil
}

func heapLeaks(ctx context.Context, e *env, f *heapFlags, args []string) error {
	share, err := parseShare(f.share)
	if err != nil {
		return usagef("heap", "--share: %v", err)
	}
	if f.koom < 0 || f.koom > 2 {
		return usagef("heap", "--koom takes 1 or 2")
	}
	var formats []string // formats requested
	if f.format != "" {
		formats = append(formats, f.format)
	}
	if f.html {
		formats = append(formats, "html")
	}
	if f.koom != 0 {
		formats = append(formats, "koom") // KOOM's report is JSON too
	} else if f.json {
		formats = append(formats, "json")
	}
	formats = slices.Compact(formats)
	if len(formats) > 1 {
		return usagef("heap", "choose one of --json, --html, --koom and --format")
	}
	format := "text"
	if asJSON, asHTML := byName(f.output); len(formats) == 1 {
		format = formats[0]
	} else if asJSON {
		format = "json"
	} else if asHTML {
		format = "html"
	}
	if f.koom == 0 && !slices.Contains([]string{"text", "json", "html", "pprof"}, format) {
		return usagef("heap", "unknown format %q; there are: text, json, html, pprof", f.format)
	}
	if format == "pprof" && f.output == "" && isTerminal(e.stdout.File) {
		return usagef("heap", "a profile is not for a terminal: name a file with -o")
	}
	f.report = format != "koom" && format != "pprof"
	name := filepath.Base(args[0])
	var g *graph.Graph
	var of *leak.Running
	if isPID(args[0]) {
		if err := writable(f.output); err != nil {
			return err
		}
		name = "process " + args[0]
		var done func()
		if f.koom != 0 {
			of = koomRunning(args[0])
		}
		g, done, err = f.openProcess(ctx, e, args[0], name)
		if err != nil {
			return err
		}
		defer done()
	} else {
		if g, err = f.open(ctx, e, args[0]); err != nil {
			return err
		}
		defer g.Close()
	}
	var write func(io.Writer) error
	switch {
	case format == "koom":
		r, err := leak.FindKOOM(ctx, g, f.koom)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		r.Of(of)
		write = r.WriteJSON
	case format == "pprof":
		if !g.HasTree() {
			return fmt.Errorf("%s: a profile needs the dominator tree: more --max-memory, or --level mapped", args[0])
		}
		tree := leak.Tree(g)
		write = func(w io.Writer) error { return tree.WriteProfile(w, strings.HasSuffix(f.output, ".gz")) }
	default:
		r, err := leak.Find(ctx, g, name, leak.Options{Share: share, Tree: format == "html"})
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		write = map[string]func(io.Writer) error{"text": func(w io.Writer) error { return plainly(w, r.WriteText) }, "json": r.WriteJSON, "html": r.WriteHTML}[format]
	}
	return writeReport(e, f.output, write)
}

// writeReport writes to standard output, or to a file that gets its name only when it is
// complete.
func writeReport(e *env, path string, write func(io.Writer) error) (err error) {
	if toStdout(path) {
		return write(e.stdout)
	}
	out, err := hprof.Create(path)
	if err != nil {
		return cannotWrite(path, err)
	}
	if err = write(out); err != nil {
		out.Abort()
		return err
	}
	if err = out.Close(); err != nil {
		return cannotWrite(path, err)
	}
	return nil
}

func toStdout(path string) bool { return path == "" || path == "-" }

// writable checks that a report can be written, before a process is stopped for it.
func writable(path string) error {
	if toStdout(path) {
		return nil
	}
	if err := outfile.Check(path); err != nil {
		return cannotWrite(path, err)
	}
	return nil
}

func cannotWrite(path string, err error) error {
	if strings.HasPrefix(err.Error(), "cannot write") { // of package outfile
		return err
	}
	return fmt.Errorf("cannot write %s: %w", path, plainPath(err))
}

// parseShare parses "10%" or "0.1".
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return 0, fmt.Errorf("invalid part %q (example: 10%%)", s)
	}
	return v, nil
}
