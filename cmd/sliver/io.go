package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/session/canary"
	"github.com/sliverprof/sliver/session/oneshot"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

type ioFlags struct {
	fs       *pflag.FlagSet
	pid      onePID
	duration time.Duration
	rules    []string
	json     bool
	quiet    bool
	full     bool
	rows     int
	names    nameFlags

	config iowatch.Config
}

func ioCommand() *command {
	f := &ioFlags{}
	return &command{
		name: "io", args: "[FLAGS] -p PID | -- COMMAND ARGS...", short: "watch file I/O, and find slow and wasteful use of files",
		flags: func(fs *pflag.FlagSet) {
			f.fs = fs
			fs.VarP(&f.pid, "pid", "p", "watch this running process")
			fs.DurationVarP(&f.duration, "duration", "d", 0, "stop after this time (0: at Ctrl-C, or when the process ends)")
			fs.StringArrayVar(&f.rules, "rule", nil, "only these rules: names with commas, or one name with thresholds;\nrepeatable (default all)")
			fs.BoolVar(&f.json, "json", false, "print a JSON object with files, findings and losses")
			fs.BoolVarP(&f.quiet, "quiet", "q", false, "print the findings only")
			fs.IntVarP(&f.rows, "rows", "n", 20, "rows of the table of files (0: all)")
			fs.BoolVar(&f.full, "full", false, "show whole paths, and the frames of interpreters")
			f.names.register(fs, "")
		},
		help: `
A live table of files, then findings, each with what to change and with stacks.
Rules: main-io, small-buffer, repeat-read and leak of Matrix's IOCanary, and
loop-io, fsync, sync-write, small-write, repeat-open, dns, churn, cache-miss and
page-fault for servers.
docs/io.md has their thresholds. 'sliver record --io' puts the operations on a
timeline, and 'sliver watch --io' keeps the last seconds before a slow one.

It needs CAP_BPF and CAP_PERFMON (or root), and Linux 5.8 with type information.
Without them, sliver shows what /proc has: bytes, descriptors by kind, and calls
in which the main thread is blocked. A watched call costs the process some
hundred nanoseconds, and each system call of other processes up to a hundred.

Examples:
  sliver io -p 1234
  sliver io -p 1234 -d 60s --json
  sliver io -p 1234 --rule main-io,fsync -d 10s
  sliver io -p 1234 --rule 'main-io slow=5ms' --rule 'leak age=30s count=100'
  sliver io -- ./server --port 8080`,
		run: f.run,
	}
}

func (f *ioFlags) run(ctx context.Context, e *env, args []string) error {
	if err := processOrCommand(ctx, "io", "", f.pid, args); err != nil {
		return err
	}
	switch {
	case f.duration < 0:
		return usagef("io", "duration: %v is negative", f.duration)
	case f.rows < 0:
		return usagef("io", "rows: %d is negative", f.rows)
	}
	var err error
	if f.config, err = iowatch.Parse(f.rules); err != nil {
		return usagef("io", "rule: %v", err)
	}
	sctx, stop := (&ender{stderr: e.stderr}).context(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if f.duration > 0 {
		var cancel context.CancelFunc
		sctx, cancel = context.WithTimeout(sctx, f.duration)
		defer cancel()
	}
	if len(args) > 0 {
		return f.command(sctx, e, args)
	}
	p, err := target.Open(int(f.pid))
	if err != nil {
		return explain(err)
	}
	defer p.Close()
	return f.watch(sctx, e, p, nil)
}

// command watches a command from its first instruction. Its exit status is the command's.
func (f *ioFlags) command(ctx context.Context, e *env, argv []string) error {
	c, err := target.Start(argv)
	if err != nil {
		return err
	}
	return released(c, f.watch(ctx, e, c.Process, c))
}

// watch watches a process. cmd is the command that it is, or nil: it goes on once every call is seen.
func (f *ioFlags) watch(ctx context.Context, e *env, p *target.Process, cmd *target.Command) error {
	src, err := f.names.sources("io", e.stderr)
	if err != nil {
		return err
	}
	c, err := canary.Open(p, canary.Options{Rules: f.config, Names: oneshot.Options{DebugDirs: f.names.debugDirs, FullNames: f.names.fullNames, Finder: src.finder, Cache: src.cache}})
	if err != nil {
		if !canary.Refused(err) {
			return err
		}
		fmt.Fprintf(e.stderr, "sliver: %s; shown is what /proc has\n", oneLine(err))
		if cmd != nil {
			cmd.Release()
		}
		return f.outside(ctx, e, p)
	}
	defer c.Close()
	if cmd != nil {
		// Where its libraries are mapped, its runtime is known. Without that, its first stacks may lack frames, which is counted.
		if cmd.ToEntry() == nil {
			c.Loaded()
		}
		cmd.Release()
	}
	live := isTerminal(e.stdout) && !f.json && !f.quiet
	if !f.json && !f.quiet {
		fmt.Fprintf(e.stderr, "watching I/O of process %d; Ctrl-C ends it\n", p.PID())
	}
	err = c.Run(ctx, func() {
		if live {
			w := bufio.NewWriter(e.stdout)
			fmt.Fprint(w, "\x1b[H\x1b[2J")
			f.table(w, c, func(iowatch.StackID) string { return "" }) // names can wait
			f.rings(w, c)
			fmt.Fprintf(w, "\n%s; Ctrl-C shows them\n", plural.Of(len(c.Engine.Findings()), "finding"))
			_ = w.Flush() // e.stdout keeps the error
		}
	})
	if err != nil {
		return err
	}
	w := bufio.NewWriter(e.stdout)
	if live {
		fmt.Fprint(w, "\x1b[H\x1b[2J")
	}
	if f.json {
		return errors.Join(f.writeJSON(w, c), w.Flush())
	}
	if !f.quiet {
		f.table(w, c, func(id iowatch.StackID) string { return opener(c, id) })
		f.rings(w, c)
		fmt.Fprintln(w)
	}
	f.findings(w, c)
	for _, l := range c.Losses() {
		fmt.Fprintf(w, "lost: %s\n", l)
	}
	return w.Flush()
}

// opener returns the function of the program itself in which a file was opened; "": unknown.
func opener(c *canary.Canary, id iowatch.StackID) string {
	frames, _ := c.Stacks.Frames(uint32(id))
	if len(frames) == 0 {
		return ""
	}
	hidden := stacks.Runtime(frames)
	frame := func(i int) iowatch.Frame {
		if hidden[i] || frames[i].Kind == stack.KindError {
			return iowatch.Frame{}
		}
		return iowatch.Frame{Func: frames[i].Func, File: frames[i].File, Module: frames[i].Module}
	}
	return frames[iowatch.Caller(len(frames), frame)].Func
}

// maxOpener is the width of the column of functions.
const maxOpener = 30

// table prints the files, those with the most time first, and files with alike names as one. opened returns the function that opened a file.
func (f *ioFlags) table(w io.Writer, c *canary.Canary, opened func(iowatch.StackID) string) {
	files := c.Engine.Files()
	all := len(files)
	if !f.full {
		files = iowatch.Fold(files)
	}
	shown := 0 // files in the rows so far
	names, width, waited := map[iowatch.StackID]string{}, 0, false
	for i := range files {
		if f.rows > 0 && i == f.rows {
			break
		}
		name := []rune(printable(opened(files[i].Stack)))
		if n := len(name) - maxOpener; n > 0 { // similar names differ at the end
			name = append([]rune("…"), name[n+1:]...)
		}
		names[files[i].Stack] = string(name)
		width = max(width, len(name))
		waited = waited || files[i].Misses+files[i].Faults > 0
	}
	waits := func(n, took string) string {
		if !waited {
			return ""
		}
		return fmt.Sprintf(" %7s %9s", n, took)
	}
	waitsOf := func(n, took uint64) string {
		if n == 0 {
			return waits("", "")
		}
		return waits(fmt.Sprint(n), callTime(int64(took)))
	}
	column := func(s string) string {
		if width == 0 {
			return ""
		}
		return fmt.Sprintf("  %-*s", max(width, len("opened in")), s)
	}
	fmt.Fprintf(w, "%6s %5s %9s %7s %9s %9s %9s %9s %9s %9s%s%s%s  %s\n", "opens", "open", "ops", "syncs", "read", "written", "time", "p50", "p99", "max", waits("misses", "time"), waits("faults", "time"), column("opened in"), "file")
	for i := range files {
		if f.rows > 0 && i == f.rows {
			fmt.Fprintf(w, "%s\n", plural.Of(all-shown, "more file"))
			break
		}
		x := &files[i]
		path := printable(x.Path)
		if x.Files > 0 {
			path = fmt.Sprintf("%s (%s)", path, plural.Of(x.Files, "file"))
		}
		shown += max(x.Files, 1)
		fmt.Fprintf(w, "%6d %5d %9d %7d %9s %9s %9s %9s %9s %9s%s%s%s  %s\n", x.Opens, x.Open, x.Ops, x.Syncs, report.Amount(x.Got-x.Written), report.Amount(x.Written),
			callTime(int64(x.Time)), callTime(iowatch.Percentile(&x.Hist, .5)), callTime(iowatch.Percentile(&x.Hist, .99)), callTime(int64(x.Longest)),
			waitsOf(x.Misses, x.Missed), waitsOf(x.Faults, x.Faulted), column(names[x.Stack]), path)
	}
}

// rings prints the files that io_uring used.
func (f *ioFlags) rings(w io.Writer, c *canary.Canary) {
	files := c.Rings()
	if len(files) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%9s %7s %7s %7s %9s %9s %9s %9s  through io_uring\n", "ops", "syncs", "others", "errors", "read", "written", "time", "max")
	for i := range files {
		if f.rows > 0 && i == f.rows {
			fmt.Fprintf(w, "%s\n", plural.Of(len(files)-i, "more file"))
			break
		}
		x := &files[i]
		fmt.Fprintf(w, "%9d %7d %7d %7d %9s %9s %9s %9s  %s\n", x.Ops, x.Syncs, x.Others, x.Errors, report.Amount(x.Read), report.Amount(x.Written),
			callTime(int64(x.Time)), callTime(int64(x.Longest)), printable(x.Path))
	}
}

func (f *ioFlags) findings(w io.Writer, c *canary.Canary) {
	all := c.Engine.Findings()
	if len(all) == 0 {
		fmt.Fprintf(w, "no findings (rules: %s)\n", strings.Join(ruleTexts(&f.config), ", "))
		return
	}
	for i, same := range iowatch.Places(all) {
		x := same[0]
		if i > 0 {
			fmt.Fprintln(w)
		}
		thread := c.Thread(x.TID)
		fmt.Fprintf(w, "%s  %s  thread %s (%d)\n  %s\n", x.Rule, printable(x.Path), printable(thread), x.TID, printable(x.Advice()))
		if x.Ops > 0 && x.Call == "" {
			fmt.Fprintf(w, "  %s, %s requested, at most %s at once, %s", plural.Of(x.Ops, "operation"), report.Amount(x.Bytes), report.Amount(x.Buffer), callTime(x.Cost))
			if x.Size >= 0 {
				fmt.Fprintf(w, "; the file has %s", report.Amount(uint64(x.Size)))
			}
			fmt.Fprintln(w)
		}
		for _, line := range alsoLines(same[1:]) {
			fmt.Fprintf(w, "  %s\n", printable(line))
		}
		f.stack(w, c, "opened at", x.Stack)
		if x.Where != x.Stack {
			f.stack(w, c, "operation at", x.Where)
		}
		if x.Stack == 0 && x.Where == 0 {
			fmt.Fprintln(w, "  no stack: it was open before, the thread opened too many files in that second, or no system call made it")
		}
	}
}

// maxAlso is how many files are named for which a rule fired at the same place.
const maxAlso = 10

// alsoLines names the files of further findings at a place.
func alsoLines(same []*iowatch.Finding) (lines []string) {
	for i, x := range same {
		if i == maxAlso {
			return append(lines, fmt.Sprintf("and of %d more", len(same)-i))
		}
		lines = append(lines, "the same of "+x.Path)
	}
	return lines
}

func (f *ioFlags) stack(w io.Writer, c *canary.Canary, title string, id iowatch.StackID) {
	lines := c.Stacks.Lines(uint32(id), f.full)
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "  %s\n", title)
	for _, l := range lines {
		fmt.Fprintf(w, "    %s\n", printable(l))
	}
}

func ruleTexts(c *iowatch.Config) (names []string) {
	for _, r := range c.Enabled() {
		names = append(names, string(r))
	}
	return names
}

// fileLine is a file as JSON.
type fileLine struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	Opens   uint64 `json:"opens"`
	Open    int    `json:"open"`
	Ops     uint64 `json:"op"`
	Syncs   uint64 `json:"syncs"`
	Want    uint64 `json:"opSize"`
	Read    uint64 `json:"read_bytes"`
	Written uint64 `json:"written_bytes"`
	Time    uint64 `json:"cost_ns"`
	P50     int64  `json:"p50_ns"`
	P99     int64  `json:"p99_ns"`
	Max     uint64 `json:"max_ns"`
	Misses  uint64 `json:"misses"` // reads that waited, since the page cache did not have the data
	Missed  uint64 `json:"missed_ns"`
	Faults  uint64 `json:"faults"` // major page faults in the mapped file
	Faulted uint64 `json:"faulted_ns"`
	Func    string `json:"function,omitempty"` // the innermost one of the program itself in Stack
	Stack   string `json:"stack,omitempty"`    // of the last open
}

// ringLine is a file that io_uring used, as JSON.
type ringLine struct {
	Path    string `json:"path"`
	Ops     uint64 `json:"op"`
	Syncs   uint64 `json:"syncs"`
	Others  uint64 `json:"others"` // accepts, opens, polls …
	Errors  uint64 `json:"errors"`
	Read    uint64 `json:"read_bytes"`
	Written uint64 `json:"written_bytes"`
	Time    uint64 `json:"cost_ns"` // from submissions to completions
	Max     uint64 `json:"max_ns"`
}

// callCount is a system call as JSON.
type callCount struct {
	Call   string `json:"call"`
	Calls  uint64 `json:"calls"`
	Errors uint64 `json:"errors"`
	Time   uint64 `json:"time_ns"`
}

// ioReport is the output of --json.
type ioReport struct {
	PID      int             `json:"pid"`
	Span     int64           `json:"span_ns"`
	Files    []fileLine      `json:"files"`
	Rings    []ringLine      `json:"uring"`
	Calls    []callCount     `json:"calls"`
	Findings []iowatch.Issue `json:"findings"`
	Lost     []string        `json:"lost"`
}

func (f *ioFlags) writeJSON(w io.Writer, c *canary.Canary) error {
	text := func(id iowatch.StackID) string { return strings.Join(c.Stacks.Lines(uint32(id), true), "\n") }
	r := ioReport{PID: c.PID(), Span: int64(time.Since(c.Began())), Files: []fileLine{}, Rings: []ringLine{}, Calls: []callCount{}, Findings: []iowatch.Issue{}, Lost: append([]string{}, c.Losses()...)}
	files := c.Engine.Files()
	for i := range files {
		x := &files[i]
		r.Files = append(r.Files, fileLine{Path: x.Path, Kind: x.Kind.String(), Opens: x.Opens, Open: x.Open, Ops: x.Ops, Syncs: x.Syncs, Want: x.Want, Read: x.Got - x.Written,
			Written: x.Written, Time: x.Time, P50: iowatch.Percentile(&x.Hist, .5), P99: iowatch.Percentile(&x.Hist, .99), Max: x.Longest,
			Misses: x.Misses, Missed: x.Missed, Faults: x.Faults, Faulted: x.Faulted, Func: opener(c, x.Stack), Stack: text(x.Stack)})
	}
	for _, x := range c.Rings() {
		r.Rings = append(r.Rings, ringLine{x.Path, x.Ops, x.Syncs, x.Others, x.Errors, x.Read, x.Written, x.Time, x.Longest})
	}
	for _, x := range c.Counts() {
		r.Calls = append(r.Calls, callCount{x.Name, x.Calls, x.Errors, x.Time})
	}
	for _, x := range c.Engine.Findings() {
		r.Findings = append(r.Findings, x.Issue(c.Thread(x.TID), text(x.Stack), text(x.Where)))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(&r)
}

// outside prints what remains without the right to load programs.
func (f *ioFlags) outside(ctx context.Context, e *env, p *target.Process) error {
	r, err := canary.Outside(ctx, p, f.config.Slow)
	if err != nil {
		return explain(err)
	}
	w := bufio.NewWriter(e.stdout)
	if f.json {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return errors.Join(enc.Encode(r), w.Flush())
	}
	if r.Read >= 0 {
		fmt.Fprintf(w, "in %v: %s read by %s, %s written by %d; storage: %s in, %s out\n", r.Span.Round(time.Millisecond), report.Amount(uint64(r.Read)), plural.Of(r.ReadCalls, "call"),
			report.Amount(uint64(r.Written)), r.WriteCalls, report.Amount(uint64(max(r.Disk, 0))), report.Amount(uint64(max(r.DiskOut, 0))))
	}
	for _, k := range slices.Sorted(maps.Keys(r.After)) {
		if n := r.After[k] - r.Before[k]; n > 0 {
			fmt.Fprintf(w, "%s of kind %s %s open than before (%d)\n", plural.Of(n, "more descriptor"), printable(k), plural.Word(n, "is", "are"), r.After[k])
		}
	}
	for _, b := range r.Blocked {
		fmt.Fprintf(w, "the main thread was blocked for at least %v in %s of %s\n", b.Long.Round(time.Millisecond), b.Call, printable(b.Path))
	}
	if r.BlockedDropped > 0 {
		fmt.Fprintf(w, "lost: %d more blocked calls\n", r.BlockedDropped)
	}
	return w.Flush()
}
