package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// choice holds the flags that select a part of a recording.
type choice struct {
	span          string
	process       string
	processFrames bool // see Processes of export.Options
	threads       string
	focus         string
	onCPU         bool
	offCPU        bool
	gil           bool
	partial       bool // accept that parts are lost
	kernel        bool
	idle          bool
	kinds         kindFlags

	whole *trace.Recording // with all chosen processes; openPart sets it

	from, to  *time.Duration // nil: open; negative: counted from the end
	selection *sampler.Selection
	re        *regexp.Regexp
	side      view.Side
}

func (c *choice) register(fs *pflag.FlagSet) {
	fs.StringVar(&c.span, "range", "", "only this time, from the beginning: 1.5s..3s, 2s.., ..500ms; -1s.. is the last second")
	fs.StringVar(&c.process, "process", "", processUsage)
	fs.StringVarP(&c.threads, "threads", "t", "", threadsUsage)
	fs.StringVar(&c.focus, "focus", "", "only the time while a function that matches is on the stack")
	c.kinds.register(fs)
	fs.BoolVar(&c.kernel, "kernel", false, "show [kernel] frames")
	retireAlone(fs, "kernel", "--kinds all")
	fs.BoolVar(&c.onCPU, "on-cpu", false, "only the time in which threads ran")
	fs.BoolVar(&c.offCPU, "off-cpu", false, "only the time in which threads waited, also for a CPU")
	fs.BoolVar(&c.gil, "gil", false, "only the time in which threads held the global lock of Python or Ruby")
	registerIdle(fs, &c.idle)
	fs.BoolVar(&c.partial, "partial", false, "exit status 0 also if parts of the recording are lost; they are reported in any case")
}

// registerLines adds --lines.
func registerLines(fs *pflag.FlagSet, lines *bool) {
	fs.BoolVar(lines, "lines", false, "in folded stacks, add file and line to each frame: handle (server.c:42)")
}

// checkLines refuses --lines if no output has folded stacks. help is the command.
func checkLines(lines bool, outs []export.Output, help string) error {
	if lines && !slices.ContainsFunc(outs, func(o export.Output) bool { return strings.HasPrefix(o.Format.Name, "collapsed") }) {
		return usagef(help, "--lines is for folded stacks; add -o FILE.folded, FILE.cpu.folded or FILE.off.folded")
	}
	return nil
}

// registerIdle adds --idle.
func registerIdle(fs *pflag.FlagSet, idle *bool) {
	fs.BoolVar(idle, "idle", false, "include idle waits in reports, flame graphs and folded stacks: threads of pools, runtimes and event loops without work")
}

// any reports whether a part is selected.
func (c *choice) any() bool {
	return c.kinds.any() || c.kernel || c.span != "" || c.threads != "" || c.focus != "" || c.onCPU || c.offCPU || c.gil
}

// parse parses the flags; help is the command that has them.
func (c *choice) parse(help string) (err error) {
	if c.span != "" {
		if c.from, c.to, err = parseRange(c.span); err != nil {
			return usagef(help, "%v", err)
		}
	}
	if c.threads != "" {
		if c.selection, err = sampler.ParseSelection(c.threads); err != nil {
			return usagef(help, "%v", err)
		}
	}
	if c.focus != "" {
		if c.re, err = regexp.Compile(c.focus); err != nil {
			return usagef(help, "focus: %v", err)
		}
	}
	if err := c.kinds.parse(help); err != nil {
		return err
	}
	if c.side, err = view.ParseSide(c.onCPU, c.offCPU, c.gil); err != nil {
		return usagef(help, "%v", err)
	}
	return nil
}

func parseRange(s string) (from, to *time.Duration, err error) {
	a, b, ok := strings.Cut(s, "..")
	if !ok || a == "" && b == "" {
		return nil, nil, fmt.Errorf("range: invalid range %q (examples: 1.5s..3s, 2s.., ..500ms)", s)
	}
	for _, side := range []struct {
		text string
		to   **time.Duration
	}{{a, &from}, {b, &to}} {
		if side.text == "" {
			continue
		}
		d, err := time.ParseDuration(side.text)
		if err != nil {
			return nil, nil, fmt.Errorf("range: invalid time %q (examples: 1.5s, 300ms)", side.text)
		}
		*side.to = &d
	}
	if from != nil && to != nil && (*from < 0) == (*to < 0) && *from > *to {
		return nil, nil, fmt.Errorf("range: %q ends before it begins", s)
	}
	return from, to, nil
}

// frames returns rec with only the selected kinds of frames.
func (c *choice) frames(rec *trace.Recording) *trace.Recording {
	return rec.Only(c.kinds.only)
}

// kindFlags holds the flags that select kinds of frames.
type kindFlags struct {
	kinds  string
	native string
	flag   *pflag.Flag // of native

	only trace.Kinds
}

func (k *kindFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&k.kinds, "kinds", "", "only frames of these kinds, comma-separated: "+strings.Join(trace.KindNames(), ", ")+"; no-runtime, the default, counts an interpreter's own code for the functions that it runs; all shows that, and [kernel] frames of blocked calls; no-native removes native code")
	fs.StringVar(&k.native, "native", "on", "on or off")
	retireAlone(fs, "native", "--kinds no-native")
	k.flag = fs.Lookup("native")
}

// managedLanguages returns the languages that a runtime runs: "Java, Python and Ruby".
func managedLanguages() string {
	var all []string
	for _, k := range stack.Kinds() {
		if k.Managed() {
			all = append(all, k.Title())
		}
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " and " + all[last]
}

func (k *kindFlags) any() bool { return k.kinds != "" || k.native == "off" }

// given reports whether one of the flags was given, also with its default.
func (k *kindFlags) given() bool { return k.any() || k.flag.Changed }

// names reports whether --kinds lists x, or all kinds.
func (k *kindFlags) names(x stack.Kind) bool {
	return k.only.Has(x) && slices.ContainsFunc(strings.Split(k.kinds, ","), func(word string) bool {
		word = strings.TrimSpace(word)
		return word == "all" || word == x.String()
	})
}

// parse parses the flags; help is the command that has them.
func (k *kindFlags) parse(help string) (err error) {
	if k.only = trace.OwnKinds; k.kinds != "" {
		if k.only, err = trace.ParseKinds(k.kinds); err != nil {
			return usagef(help, "kinds: %v", err)
		}
	}
	switch k.native {
	case "on":
	case "off":
		k.only = k.only.Without(stack.KindNative)
	default:
		return usagef(help, "native: %q is neither on nor off", k.native)
	}
	return nil
}

// options converts the selection to export options. rec must have its names already.
func (c *choice) options(rec *trace.Recording) (o export.Options, err error) {
	o.Idle, o.Processes = c.idle, c.processFrames
	if !c.any() {
		return o, nil
	}
	o.Side = c.side
	o.Kernel = c.kernel || c.kinds.names(stack.KindKernel)
	begin, end := rec.WholeSpan()
	if len(rec.Others) == 0 {
		whole := view.New(rec, export.Options{})
		begin, end = whole.Begin(), whole.End()
	}
	at := func(d *time.Duration) stack.Time {
		if *d < 0 {
			return max(end+stack.Time(*d), begin, 1)
		}
		return max(begin+stack.Time(*d), 1)
	}
	if c.from != nil {
		if o.From = at(c.from); o.From > end {
			return o, fmt.Errorf("range: it begins at %v, but the recording has %v", *c.from, time.Duration(end-begin))
		}
	}
	if c.to != nil {
		if o.To = at(c.to); o.To < o.From {
			return o, fmt.Errorf("range: %s ends before it begins; the recording has %v", c.span, time.Duration(end-begin))
		}
	}
	if c.selection != nil {
		if !c.each(&o, rec, func(one *trace.Recording, _ []int) []int { return pick(c.selection, one) }) {
			return o, fmt.Errorf("no thread of the recording matches %q; there are: %s", c.threads, recordedThreads(rec))
		}
	}
	if c.re != nil {
		o.Focus = c.re
		found := o
		found.Rest = nil
		if !c.each(&o, rec, func(one *trace.Recording, threads []int) []int {
			found.Threads = threads
			return view.New(one, found).Found()
		}) {
			return o, fmt.Errorf("focus: no function on the selected stacks matches %q", c.focus)
		}
	}
	return o, nil
}

// each selects threads of each process of rec, from those that o has selected. It reports
// whether there are any.
func (c *choice) each(o *export.Options, rec *trace.Recording, threads func(one *trace.Recording, of []int) []int) (any bool) {
	rest := o.Rest
	o.Rest = nil
	for i, one := range rec.All() {
		if i == 0 {
			o.Threads = threads(one, o.Threads)
			any = len(o.Threads) > 0
			continue
		}
		var of []int
		if rest != nil {
			of = rest[i-1]
		}
		chosen := threads(one, of)
		if chosen == nil {
			chosen = []int{}
		}
		any = any || len(chosen) > 0
		o.Rest = append(o.Rest, chosen)
	}
	if any && o.Threads == nil {
		o.Threads = []int{}
	}
	return any
}

// pick returns the selected threads of rec, by Seq.
func pick(s *sampler.Selection, rec *trace.Recording) []int {
	type key struct {
		tid  stack.TID
		born stack.Time
	}
	var all []stack.ThreadInfo
	seq := map[key]int{}
	for i := range rec.Threads {
		t := &rec.Threads[i]
		all = append(all, stack.ThreadInfo{TID: t.TID, NSTID: t.NSTID, Name: t.Name, Main: t.Main, Born: t.Born})
		seq[key{t.TID, t.Born}] = t.Seq
	}
	var out []int
	for _, in := range s.Pick(all) {
		out = append(out, seq[key{in.TID, in.Born}])
	}
	return out
}

func recordedThreads(rec *trace.Recording) string {
	const most = 12
	var names []string
	for i := range rec.Threads {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(rec.Threads)-most))
			break
		}
		names = append(names, fmt.Sprintf("%d=%s (TID %d)", i+1, printable(rec.Threads[i].Name), rec.Threads[i].TID))
	}
	return strings.Join(names, ", ")
}
