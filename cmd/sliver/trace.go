package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/session/methods"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// callFlags choose functions whose calls are traced.
type callFlags struct {
	engine  string
	limit   traceLimit
	methods bool        // Java methods can be traced, too
	limited func() bool // the limit was given

	patterns []calls.Pattern
}

func (c *callFlags) register(fs *pflag.FlagSet) {
	c.limited = func() bool { return fs.Changed("trace-limit") }
	engines, none := "", "0: none"
	if c.methods {
		engines, none = ", jfr (Java methods)", fmt.Sprintf("0: none; of Java methods %v unless given", methods.DefaultLimit)
	}
	fs.StringVar(&c.engine, "trace-engine", exact.Auto, "how calls are traced: auto, cpu (CPU breakpoints: few functions, no permissions needed), kernel (uprobes: many functions)"+engines)
	c.limit = traceLimit(exact.DefaultLimit)
	fs.Var(&c.limit, "trace-limit", "limit of the cost of tracing, as a share of a CPU (20%) or as entries and exits per second (20000);\nabove it, tracing of the costliest function stops ("+none+")")
}

// limitOf returns the limit for an engine.
func (c *callFlags) limitOf(engine string) exact.Limit {
	if engine == methods.Engine && !c.limited() {
		return methods.DefaultLimit
	}
	return exact.Limit(c.limit)
}

// parse reads the patterns, given by the flag name.
func (c *callFlags) parse(help, flag string, patterns []string) error {
	c.patterns = nil
	for _, s := range patterns {
		p, err := calls.ParsePattern(s)
		if err != nil {
			return usagef(help, "%s: %v", flag, err)
		}
		c.patterns = append(c.patterns, p)
	}
	switch {
	case c.engine == exact.Auto || c.engine == exact.CPU || c.engine == exact.Kernel || c.methods && c.engine == methods.Engine:
	case c.methods:
		return usagef(help, "trace-engine: invalid engine %q; use auto, cpu, kernel or jfr", c.engine)
	default:
		return usagef(help, "trace-engine: invalid engine %q; use auto, cpu or kernel", c.engine)
	}
	return nil
}

// of is find for a process that may be a command, which is held: it first runs to its entry, where its libraries are
// mapped. There may be no function yet.
func (c *callFlags) of(w io.Writer, p *target.Process, cmd *target.Command, debug []string) (*exact.Names, []exact.Function, error) {
	if cmd == nil {
		return c.find(w, p, debug, false)
	}
	if err := cmd.ToEntry(); err != nil {
		fmt.Fprintf(w, "sliver: %s; functions of libraries are traced only from shortly after they are loaded\n", oneLine(err))
	}
	names, fns, err := c.find(w, p, debug, true)
	if names != nil && err != nil {
		fmt.Fprintf(w, "sliver: %s; files that it loads later are looked through\n", oneLine(err))
		err = nil
	}
	return names, fns, err
}

// find returns the functions that can be traced. Others are reported on w. If there is none, names is not nil. later:
// there may be some later.
func (c *callFlags) find(w io.Writer, p *target.Process, debug []string, later bool) (names *exact.Names, good []exact.Function, err error) {
	if names, err = exact.Find(p, c.patterns, exact.FindOptions{Debug: debug}); err != nil {
		return nil, nil, err
	}
	var why string
	for _, f := range names.Functions {
		if f.Why == "" {
			good = append(good, f)
			continue
		}
		why = fmt.Sprintf("%s: %s", f.Name, f.Why)
		fmt.Fprintf(w, "sliver: not traced: %s\n", printable(why))
	}
	switch {
	case len(good) > 0:
		if c.methods && c.engine == exact.Auto && runtimeOf(p) == methods.Runtime {
			fmt.Fprintf(w, "sliver: tracing native functions; Java methods are traced with --trace-engine jfr\n")
		}
		return names, good, nil
	case why != "":
		return names, nil, fmt.Errorf("no function that matches can be traced")
	}
	if c.methods && c.engine == exact.Auto && runtimeOf(p) == methods.Runtime {
		return names, nil, errMethods
	}
	return names, nil, c.unmatched(p, debug, later)
}

// sampledOnly is the error of a pattern that may mean functions of a runtime that does not let them be traced.
type sampledOnly string

func (e sampledOnly) Error() string { return string(e) }

// unmatched says why no function has a name that was asked for.
func (c *callFlags) unmatched(p *target.Process, debug []string, later bool) error {
	var asked []string
	for i := range c.patterns {
		asked = append(asked, c.patterns[i].String())
	}
	what := strings.Join(asked, ", ")
	names, err := exact.Find(p, c.patterns, exact.FindOptions{Debug: debug, Inlined: true})
	if err != nil {
		return err
	}
	for _, x := range names.Inlined {
		return fmt.Errorf("%s was inlined into %d places and has no code of its own to trace; trace a caller", x.Name, x.Places)
	}
	of := runtimeOf(p)
	if of == methods.Runtime {
		return fmt.Errorf("no native function of process %d matches %s; Java methods are sampled, and traced exactly with --trace-engine jfr (Java %d or later)",
			p.PID(), what, methods.MinJava)
	}
	if of != "" {
		return sampledOnly(fmt.Sprintf("no native function of process %d matches %s; functions in %s are sampled and cannot be traced", p.PID(), what, of))
	}
	if later {
		return fmt.Errorf("no function of %s matches %s so far", printable(p.Facts().Comm), what)
	}
	return fmt.Errorf("no function of process %d matches %s; 'sliver trace --list -p %d -f PATTERN' shows names, for example with -f '*'", p.PID(), what, p.PID())
}

// runtimeOf is the language whose functions a process runs by an interpreter or a virtual machine; "": there is none.
func runtimeOf(p *target.Process) string {
	maps, err := p.Maps()
	if err != nil {
		return ""
	}
	for i := range maps {
		for _, k := range stack.Kinds() {
			if maps[i].Exec && k.Managed() && k.RuntimeFile(maps[i].Path) {
				return k.Title()
			}
		}
	}
	return ""
}

type traceFlags struct {
	pid      onePID
	patterns []string
	duration time.Duration
	slower   time.Duration
	list     bool
	quiet    bool
	json     bool
	debug    []string
	calls    callFlags
}

func traceCommand() *command {
	f := &traceFlags{}
	f.calls.methods = true
	return &command{
		name: "trace", args: "[FLAGS] -f PATTERN (-p PID | -- COMMAND ARGS...)", short: "trace all calls of chosen functions, with exact times",
		flags: func(fs *pflag.FlagSet) {
			fs.VarP(&f.pid, "pid", "p", "trace this running process")
			fs.StringArrayVarP(&f.patterns, "function", "f", nil, "functions: a name, a glob, /regexp/ or file.c:function; repeatable")
			fs.DurationVarP(&f.duration, "duration", "d", 0, "stop after this time (0: at Ctrl-C, or when the process ends)")
			fs.DurationVar(&f.slower, "slower", 0, "print only calls that took at least this long")
			fs.BoolVar(&f.list, "list", false, "only list the functions that match")
			fs.BoolVarP(&f.quiet, "quiet", "q", false, "print only the table at the end")
			fs.BoolVar(&f.json, "json", false, "print a JSON object per call, and one with the table at the end")
			fs.StringArrayVar(&f.debug, "debug-dir", nil, "also look for separate debug files in this directory; repeatable")
			f.calls.register(fs)
		},
		help: `
Each call is printed when it ends: its time since tracing began, its duration,
its thread and function, and how it ended where that was not by a return. A
table at the end has counts and percentiles.

The kernel engine (CAP_BPF and CAP_PERFMON, Linux 6.6) traces any number of
functions. The cpu engine changes nothing in the process and needs no rights, but
has four breakpoints: a function with up to three exits, or two with one each.
Methods of Java 25 and later are traced by JFR: Class::method, package.Class.method,
Class::*, or a method's name alone. The virtual machine records them for sliver,
which shows them a few seconds later.

Examples:
  sliver trace -p 1234 -f handle_request
  sliver trace -p 1234 -f 'http::*' --slower 50ms -d 30s
  sliver trace -p 1234 -f server.c:parse -q -d 10s     percentiles only
  sliver trace -p 1234 -f '/^sql_/' --list
  sliver trace -f malloc -q -- sort /etc/passwd        of a command
  sliver trace -p 1234 -f 'shop.Cart::total' -d 30s    of Java
  sliver record -p 1234 --trace handle_request         on a timeline, with samples`,
		run: f.run,
	}
}

func (f *traceFlags) run(ctx context.Context, e *env, args []string) error {
	if err := processOrCommand(ctx, "trace", " -f PATTERN", f.pid, args); err != nil {
		return err
	}
	switch {
	case f.calls.engine == methods.Engine && len(args) > 0:
		return usagef("trace", "engine jfr is for a process: start the command, and give -p PID")
	case f.calls.engine == methods.Engine && f.list:
		return usagef("trace", "--list is for native functions: leave out --trace-engine jfr")
	case f.list && len(args) > 0:
		return usagef("trace", "--list is for a process: give -p PID")
	case len(f.patterns) == 0:
		return usagef("trace", "give a function: sliver trace -p PID -f PATTERN")
	case f.duration < 0:
		return usagef("trace", "duration: %v is negative", f.duration)
	case f.slower < 0:
		return usagef("trace", "slower: %v is negative", f.slower)
	}
	if err := f.calls.parse("trace", "function", f.patterns); err != nil {
		return err
	}
	if len(args) > 0 {
		c, err := target.Start(args)
		if err != nil {
			return err
		}
		defer c.Process.Close()
		return released(c, f.trace(e, c.Process, c))
	}
	p, err := target.Open(int(f.pid))
	if err != nil {
		return explain(err)
	}
	defer p.Close()
	if f.list {
		return f.showList(e, p)
	}
	return f.trace(e, p, nil)
}

// trace traces a process to its end, a signal or the end of the time. cmd is the command that it is, or nil.
func (f *traceFlags) trace(e *env, p *target.Process, cmd *target.Command) error {
	if f.calls.engine == methods.Engine && cmd == nil {
		return f.traceMethods(e, p)
	}
	names, fns, err := f.calls.of(e.stderr, p, cmd, f.debug)
	if errors.Is(err, errMethods) && cmd == nil {
		return f.traceMethods(e, p)
	}
	if err != nil {
		return err
	}
	added := func(fns []exact.Function) {
		if !f.quiet {
			fmt.Fprintf(e.stderr, "tracing %s more, of %s\n", fnCount(len(fns)), printable(fns[0].Module))
		}
	}
	t, err := exact.Start(p, fns, exact.Options{Engine: f.calls.engine, Limit: exact.Limit(f.calls.limit), Later: names, Added: added})
	if err != nil {
		return err
	}
	defer t.Close()
	ctx, stop := (&ender{stderr: e.stderr}).context(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	if !f.quiet {
		engine := ""
		if len(fns) > 0 {
			engine = fmt.Sprintf(" (engine %s)", t.Engine)
		}
		fmt.Fprintf(e.stderr, "tracing %s of process %d%s; Ctrl-C ends it\n", fnCount(len(fns)), p.PID(), engine)
	}
	if cmd != nil {
		cmd.Release()
	}
	out := &callPrinter{f: f, w: bufio.NewWriter(e.stdout), limit: exact.Limit(f.calls.limit), traced: &nativeCalls{t, p, map[stack.TID]string{}}}
	if err := t.Run(ctx, out.calls); err != nil {
		return err
	}
	if out.err != nil {
		return out.err
	}
	return out.end()
}

func fnCount(n int) string {
	return plural.Of(n, "function")
}

// listed is a function of --list as JSON.
type listed struct {
	Name   string `json:"name"`
	Module string `json:"module"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Addr   string `json:"addr,omitempty"`
	Places int    `json:"places"` // entry and exits; 0: none to trace
	Blind  int    `json:"blind_exits,omitempty"`
	Inline int    `json:"inlined_into,omitempty"`
	Why    string `json:"not_traceable,omitempty"`
}

func (f *traceFlags) showList(e *env, p *target.Process) error {
	names, err := exact.Find(p, f.calls.patterns, exact.FindOptions{Debug: f.debug, Inlined: true})
	if err != nil {
		return err
	}
	inlined := map[string]int{}
	for _, x := range names.Inlined {
		inlined[x.Name] = x.Places
	}
	var all []listed
	for i := range names.Functions {
		x := &names.Functions[i]
		l := listed{Name: x.Name, Module: x.Module, File: x.File, Line: x.Line, Blind: x.Code.Blind, Inline: inlined[x.Name], Why: x.Why}
		if x.Why == "" {
			l.Addr, l.Places = fmt.Sprintf("%#x", x.Addr), x.Places()
		}
		delete(inlined, x.Name)
		all = append(all, l)
	}
	for _, x := range names.Inlined {
		if n, ok := inlined[x.Name]; ok {
			all = append(all, listed{Name: x.Name, Inline: n, Why: "inlined everywhere: no code of its own"})
		}
	}
	w := bufio.NewWriter(e.stdout)
	for i := range all {
		x := &all[i]
		if f.json {
			b, err := json.Marshal(x)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\n", b)
			continue
		}
		fmt.Fprintf(w, "%s", printable(x.Name))
		if x.Module != "" {
			fmt.Fprintf(w, "  %s", printable(x.Module))
		}
		if x.File != "" {
			fmt.Fprintf(w, "  %s:%d", printable(x.File), x.Line)
		}
		if x.Places > 0 {
			fmt.Fprintf(w, "  %s", plural.Of(x.Places, "place"))
		}
		if x.Blind > 0 {
			fmt.Fprintf(w, "  %s that cannot be probed", plural.Of(x.Blind, "exit"))
		}
		if x.Inline > 0 {
			fmt.Fprintf(w, "  inlined into %s", plural.Of(x.Inline, "place"))
		}
		if x.Why != "" {
			fmt.Fprintf(w, "  not traceable: %s", printable(x.Why))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(all) == 0 {
		return f.calls.unmatched(p, f.debug, false)
	}
	return nil
}

// callPrinter prints calls as they end.
type callPrinter struct {
	f      *traceFlags
	w      *bufio.Writer
	limit  exact.Limit
	traced tracedCalls
	err    error
}

// callLine is a call as JSON.
type callLine struct {
	Function string `json:"function"`
	TID      int32  `json:"tid"`
	Thread   string `json:"thread"`
	Task     string `json:"task,omitempty"`
	Enter    int64  `json:"enter_ns"` // CLOCK_MONOTONIC
	Duration int64  `json:"duration_ns"`
	How      string `json:"how"`
	Before   bool   `json:"began_before,omitempty"`
	Unsure   bool   `json:"unsure,omitempty"`
}

func (c *callPrinter) calls(all []calls.Call) {
	if c.f.quiet || c.err != nil {
		return
	}
	for i := range all {
		x := &all[i]
		if x.Duration() < int64(c.f.slower) {
			continue
		}
		fn := c.traced.function(x.Fn)
		if c.f.json {
			l := callLine{Function: fn.Name, TID: int32(x.TID), Thread: c.traced.thread(x), Enter: int64(x.Enter), Duration: x.Duration(),
				How: c.traced.how(x), Before: x.Before, Unsure: x.Unsure}
			if x.Task != 0 {
				l.Task = fmt.Sprintf("%#x", x.Task)
			}
			b, err := json.Marshal(&l)
			if err != nil {
				c.err = err
				return
			}
			fmt.Fprintf(c.w, "%s\n", b)
			continue
		}
		note := ""
		switch {
		case x.Before:
			note = "  (began before tracing)"
		case x.How != calls.Returned && x.How != calls.Ended:
			note = "  (" + x.How.String() + ")"
		}
		if x.Unsure {
			note += "  (hits were lost)"
		}
		fmt.Fprintf(c.w, "%12.6f  %10s  %-24s %s%s\n", float64(x.Enter-c.traced.began())/1e9, callTime(x.Duration()),
			fmt.Sprintf("%s (%s)", c.traced.thread(x), threadNumber(x)), printable(fn.Name), note)
	}
	c.err = c.w.Flush()
}

// threadNumber is the number of a call's thread, or of its virtual thread.
func threadNumber(c *calls.Call) string {
	switch {
	case c.TID != 0:
		return fmt.Sprint(c.TID)
	case c.Task != 0:
		return fmt.Sprintf("virtual %d", c.Task)
	}
	return "ended"
}

// knownTime is callTime of a figure over n calls, "-" if there are none.
func knownTime(n uint64, ns int64) string {
	if n == 0 {
		return "-"
	}
	return callTime(ns)
}

// callTime is a duration of a call with four digits at most.
func callTime(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d < 10*time.Microsecond:
		return d.String()
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Nanosecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// functionLine is a function of the table as JSON.
type functionLine struct {
	Function string  `json:"function"`
	Module   string  `json:"module"`
	Calls    uint64  `json:"calls"`
	Returned uint64  `json:"returned"`
	Tail     uint64  `json:"tail_calls"`
	Left     *uint64 `json:"left"` // null: not known
	Open     uint64  `json:"open"`
	Before   uint64  `json:"began_before"`
	Total    int64   `json:"total_ns"`
	Mean     int64   `json:"mean_ns"`
	P50      int64   `json:"p50_ns"`
	P90      int64   `json:"p90_ns"`
	P99      int64   `json:"p99_ns"`
	P999     int64   `json:"p999_ns"`
	Max      int64   `json:"max_ns"`
	Cost     int64   `json:"cost_ns"`
	TooHot   float64 `json:"detached_at_hits_per_s,omitempty"`
	HotCalls float64 `json:"detached_at_calls_per_s,omitempty"`
	HotShare float64 `json:"detached_at_cpu_share,omitempty"`

	known uint64 // calls with a known begin and end
}

type traceSummary struct {
	Engine    string         `json:"engine"`
	Functions []functionLine `json:"functions"`
	Lost      uint64         `json:"lost_hits"`
	Dropped   uint64         `json:"dropped_calls"`
	Tracing   *tracingJSON   `json:"tracing"`
	Losses    []string       `json:"notes,omitempty"` // of Java methods: why calls are missing
}

func (c *callPrinter) end() error {
	st := c.traced.stats()
	hot := map[int]exact.Hot{}
	for _, h := range st.Hot {
		hot[h.Fn] = h
	}
	sum := traceSummary{Engine: c.traced.engine(), Tracing: tracingOf(c.traced.engine(), &st), Lost: st.Lost, Dropped: st.Dropped, Functions: []functionLine{}}
	for _, i := range st.Busiest() {
		s, fn := &st.Funcs[i], c.traced.function(i)
		h := &s.Times
		sum.Functions = append(sum.Functions, functionLine{Function: fn.Name, Module: fn.Module, Calls: s.Calls, Returned: s.Returned, Tail: s.Jumped,
			Open: s.Open, Before: s.Before, Total: h.Sum, Mean: h.Mean(), P50: h.Percentile(.5), P90: h.Percentile(.9),
			P99: h.Percentile(.99), P999: h.Percentile(.999), Max: h.Max, Cost: int64(s.Cost), TooHot: hot[i].Rate, HotCalls: hot[i].Calls, HotShare: hot[i].Share, known: h.N})
		if c.traced.ends() {
			sum.Functions[len(sum.Functions)-1].Left = &s.Left
		}
	}
	sum.Losses = c.traced.losses()
	if c.f.json {
		enc := json.NewEncoder(c.w)
		if err := enc.Encode(&sum); err != nil {
			return err
		}
		return c.w.Flush()
	}
	fmt.Fprintf(c.w, "\n%10s %9s %9s %9s %9s %9s %9s  %s\n", "calls", "p50", "p90", "p99", "max", "total", "left", "function")
	quiet := 0
	names := tracedNames(len(sum.Functions), func(i int) (string, string) { return sum.Functions[i].Function, sum.Functions[i].Module })
	for i := range sum.Functions {
		x := &sum.Functions[i]
		if x.Calls == 0 && len(sum.Functions) > 20 {
			quiet++
			continue
		}
		left := "-"
		if x.Left != nil {
			left = fmt.Sprint(*x.Left)
		}
		known := x.known
		fmt.Fprintf(c.w, "%10d %9s %9s %9s %9s %9s %9s  %s\n", x.Calls, knownTime(known, x.P50), knownTime(known, x.P90), knownTime(known, x.P99), knownTime(known, x.Max),
			knownTime(known, x.Total), left, names[i])
	}
	if quiet > 0 {
		fmt.Fprintf(c.w, "%s %s not called\n", plural.Of(quiet, "more function"), plural.Word(quiet, "was", "were"))
	}
	for i := range st.Hot {
		h := &st.Hot[i]
		fmt.Fprintln(c.w, hotLine(c.traced.function(h.Fn).Name, h, c.limit, "and only samples show it from then on (sliver record --trace)"))
	}
	if line := costLine(&st); line != "" {
		fmt.Fprintln(c.w, line)
	}
	writeLater(c.w, c.traced.functions(), st.Untraced)
	for _, loss := range sum.Losses {
		fmt.Fprintln(c.w, loss)
	}
	if st.Lost > 0 {
		fmt.Fprintf(c.w, "%s lost: calls are missing, and some ends are wrong\n", plural.Either(st.Lost, "entry or exit was", "entries and exits were"))
	}
	if st.Dropped > 0 {
		fmt.Fprintf(c.w, "%s in a recursion deeper than %d %s missing\n", plural.Of(st.Dropped, "call"), calls.MaxOpen, plural.Word(st.Dropped, "is", "are"))
	}
	return errors.Join(c.err, c.w.Flush())
}
