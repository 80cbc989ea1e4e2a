package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/internal/telemetry"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// recordFlags are the flags of record; demo has all but those of push.
type recordFlags struct {
	pids        somePIDs
	several     severalFlags
	threads     string
	interval    time.Duration
	jitter      percent
	groups      int
	duration    time.Duration
	outputs     []string
	idle        bool
	lines       bool
	format      string
	stop        string
	engine      string
	maxOverhead percent
	maxCPU      cpuLimit
	yield       bool
	kinds       kindFlags
	names       nameFlags
	quiet       bool
	json        bool
	metrics     string
	push        pushFlags
	trace       traceOfRecord
	io          ioOfRecord
	kernel      kernelOfRecord
	web         webFlags
	page        bool // serve a page, set by web
	ender       ender

	fs *pflag.FlagSet
}

func (f *recordFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	f.several.most = procset.DefaultMax
	fs.VarP(&f.pids, "pid", "p", "record these processes: numbers, comma-separated; repeatable")
	fs.StringVarP(&f.threads, "threads", "t", "all", threadsUsage)
	registerInterval(fs, &f.interval, 10*time.Millisecond)
	f.jitter = .5
	fs.Var(&f.jitter, "jitter", "random variation of the time between two samples, against aliasing with periodic work (50%: 0.5 to 1.5 intervals; 0: none)")
	registerSamplers(fs, &f.groups)
	fs.DurationVarP(&f.duration, "duration", "d", 0, "stop after this time (default: at Ctrl-C, or when the process ends)")
	fs.StringArrayVarP(&f.outputs, "output", "o", nil, "write to this file, in the format of its extension; - is standard output; repeatable")
	fs.StringVar(&f.format, "format", "", "format of the outputs, regardless of their extensions")
	registerIdle(fs, &f.idle)
	registerLines(fs, &f.lines)
	registerStop(fs, &f.stop)
	registerEngine(fs, &f.engine)
	f.maxOverhead = .01
	fs.Var(&f.maxOverhead, "max-overhead", "limit of the cost: time in stops, and CPU that sliver takes from the process; the interval grows to keep it (0: no limit)")
	f.maxCPU.register(fs)
	fs.BoolVar(&f.yield, "yield", false, "pause while a debugger is attached to the process")
	f.kinds.register(fs)
	f.names.register(fs, "")
	f.trace.register(fs)
	f.io.register(fs)
	f.kernel.register(fs)
	f.web.register(fs, true)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print no status line and no summary")
	fs.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics about sliver itself at this address (a port alone: on loopback)")
	fs.BoolVar(&f.json, "json", false, "print the summary as JSON to standard output")
}

const threadsUsage = "which threads: a comma-separated list of main, all, TIDs, positions, names, globs (worker-*) and /regexp/; ! in front excludes"

// registerSamplers adds --samplers.
func registerSamplers(fs *pflag.FlagSet, n *int) {
	fs.IntVar(n, "samplers", 5, "sampler goroutines for the threads other than main")
	retire(fs, "groups", "samplers")
}

// registerStop adds --stop-policy.
func registerStop(fs *pflag.FlagSet, policy *string) {
	fs.StringVar(policy, "stop-policy", "auto", "which threads may be stopped: auto (running ones, and blocked ones where a stop is needed and harmless), running, always (also where a stop restarts the timeout of a blocked call)")
	retire(fs, "stop", "stop-policy")
}

func recordCommand() *command {
	f := &recordFlags{}
	return &command{
		name: "record", samples: true, args: "[FLAGS] PID... | -- COMMAND ARGS...",
		short: "record a running process, or a command from its start",
		flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			f.several.register(fs)
			f.push.register(fs)
		},
		help: `
Formats by file name:
` + formatHelp() + `
Without -o the recording goes to NAME-PID-TIME.sliver; 'sliver export' turns a
.sliver file into any other format later, on any machine.

Examples:
  sliver record -p 1234 -d 10s -o run.pftrace        open in https://ui.perfetto.dev
  sliver record -p 1234 -t main,5 -o run.pb.gz       go tool pprof -http=: run.pb.gz
  sliver record -p 1234 -t 'worker-*,!worker-0' -i 1ms -d 5s
  sliver record -o run.sliver -o run.nanoscope.txt -- ./program --its-own flags
  sliver record -o build.sliver -- make -j2            with all processes that it starts
  sliver record -p 1234,1300 --children -d 10s       several processes in one recording
  sliver record --name nginx -d 10s -o nginx.pftrace
  sliver record -p 1234 --trace handle_request       its calls, exactly
  sliver record -p 1234 -d 10s --io                  its I/O operations too
  sliver record -p 1234 --web --open                 watch it live, in the browser
  sliver record -p 1234 --otlp http://localhost:4318 --service shop   feed a collector
  sliver record -p $(pidof redis-server) -d 5s --json -o /tmp/r.pftrace

Ctrl-C ends a recording properly, a second one at once. With a command, Ctrl-C
goes to the command, and sliver leaves with its exit status.

With --web the page stays after the end, with the whole recording: in a terminal
until Ctrl-C, else until no page is open any more.`,
		run: f.run,
	}
}

// outputsOf parses -o and --format.
func outputsOf(paths []string, format, help string) ([]export.Output, error) {
	var outs []export.Output
	stdout := 0
	for i, p := range paths {
		if p != "-" && slices.ContainsFunc(paths[:i], func(o string) bool { return filepath.Clean(o) == filepath.Clean(p) }) {
			return nil, usagef(help, "%s is given twice", p)
		}
		o, err := export.ParseOutput(p, format)
		if err != nil {
			return nil, usagef(help, "%v", err)
		}
		if p == "-" {
			stdout++
		}
		outs = append(outs, o)
	}
	if stdout > 1 {
		return nil, usagef(help, "standard output can take one format only")
	}
	return outs, nil
}

func (f *recordFlags) options() (o session.Options, err error) {
	o = session.Options{Version: versionString(), Interval: f.interval, Jitter: float64(f.jitter), Groups: f.groups,
		Duration: f.duration, DebugDirs: f.names.debugDirs, FullNames: f.names.fullNames, MaxOverhead: float64(f.maxOverhead), Yield: f.yield}
	if f.interval < sampler.MinInterval || f.interval > sampler.MaxInterval {
		return o, usagef("record", "interval: %v is out of range; use %v to %v", f.interval, sampler.MinInterval, sampler.MaxInterval)
	}
	if f.jitter < 0 || f.jitter > .5 {
		return o, usagef("record", "jitter: %v is out of range; use 0%% to 50%%", &f.jitter)
	}
	if f.groups < 1 || f.groups > 256 {
		return o, usagef("record", "samplers: %d is out of range; use 1 to 256", f.groups)
	}
	if f.maxOverhead < 0 || f.maxOverhead >= 1 {
		return o, usagef("record", "max-overhead: %v is out of range; use 0%% (no bound) to 99%%", &f.maxOverhead)
	}
	if err := f.maxCPU.check("record"); err != nil {
		return o, err
	}
	o.MaxCPU = f.maxCPU.bounds(f.maxOverhead)
	if f.duration < 0 {
		return o, usagef("record", "duration: %v is negative", f.duration)
	}
	if err := telemetry.Address(f.metrics); err != nil && f.fs.Changed("metrics") {
		return o, usagef("record", "metrics: %v", err)
	}
	if f.page, err = f.web.wanted("record"); err != nil {
		return o, err
	}
	if o.Selection, err = sampler.ParseSelection(f.threads); err != nil {
		return o, usagef("record", "%v", err)
	}
	if o.Stop, err = sampler.ParseStopPolicy(f.stop); err != nil {
		return o, usagef("record", "%v", err)
	}
	if err := checkEngine("record", f.engine); err != nil {
		return o, err
	}
	if o.Outputs, err = outputsOf(f.outputs, f.format, "record"); err != nil {
		return o, err
	}
	if err := f.kinds.parse("record"); err != nil {
		return o, err
	}
	if err := checkLines(f.lines, o.Outputs, "record"); err != nil {
		return o, err
	}
	o.Idle, o.Lines = f.idle, f.lines
	if o.Kinds, o.Kernel = f.kinds.only, f.kinds.names(stack.KindKernel); f.kinds.any() &&
		!slices.ContainsFunc(o.Outputs, func(x export.Output) bool { return !x.Format.Recording() }) {
		return o, usagef("record", "a recording has all kinds of frames; --kinds and --native are for outputs in the other formats")
	}
	if err := f.push.parse(f.fs); err != nil {
		return o, err
	}
	if err := f.trace.parse(); err != nil {
		return o, err
	}
	if err := f.io.parse(); err != nil {
		return o, err
	}
	o.IO = f.io.options()
	if o.Switches, err = f.kernel.options(); err != nil {
		return o, err
	}
	for _, out := range o.Outputs {
		if out.Path == "-" && f.json {
			return o, usagef("record", "--json and -o - both use standard output")
		}
	}
	o.Clock, o.NoBPF, err = engineFor(f.engine)
	return o, err
}

// spareMemory is how much garbage, in bytes, may accumulate during a recording: most recordings end before a
// collection.
const spareMemory = 32 << 20

const neither = "nothing to record: give a process (sliver record PID) or a command (sliver record -- COMMAND ARGS...)"

func (f *recordFlags) run(ctx context.Context, e *env, args []string) error {
	args, d := f.web.takeAddress(args, dash(ctx))
	o, err := f.options()
	if err != nil {
		return err
	}
	if err := f.several.check(); err != nil {
		return err
	}
	if d < 0 { // sliver record 1234 1235, or record $(pidof nginx)
		for i, a := range args {
			switch err := f.pids.Set(a); {
			case err != nil && i == 0 && len(f.pids) == 0 && !f.several.matches():
				return usagef("record", "unexpected %q; give a PID, or a command after --", a)
			case err != nil:
				return usagef("record", "unexpected %q; a command goes after --", a)
			}
		}
		args = nil
	}
	cmd := args
	if d > 0 {
		return usagef("record", "unexpected %q before --", args[0])
	}
	if (len(f.pids) > 0 || f.several.matches()) && len(cmd) > 0 {
		return usagef("record", "both a process and a command given; choose one")
	}
	if f.several.noChildren && len(cmd) == 0 {
		return usagef("record", "--no-children is for a command; without it, only --children adds them")
	}
	if len(f.pids) == 0 && len(cmd) == 0 && !f.several.matches() {
		if !term.IsTerminal(int(e.stdin.Fd())) || !isTerminal(e.stderr) {
			return usagef("record", neither)
		}
		pid, err := pickProcess(e)
		if err != nil {
			return err
		}
		f.pids = somePIDs{pid}
	}
	switch {
	case len(cmd) > 0:
		return f.recordCommand(e, o, cmd)
	case len(f.pids) > 1 || f.several.children || f.several.matches():
		return f.recordSeveral(e, o)
	}
	p, err := target.Open(f.pids[0])
	if err != nil {
		return explain(err)
	}
	defer p.Close()
	return f.record(e, o, p, nil)
}

func (f *recordFlags) recordCommand(e *env, o session.Options, argv []string) error {
	go safefile.Prepare() // its helper takes as long to start as all that is done before the command begins
	c, err := target.Start(argv)
	if err != nil {
		return err
	}
	// Whatever happens to the recording, the command runs to its end and determines the exit status.
	if err = f.follow(&o, c); err == nil {
		err = f.record(e, o, c.Process, c)
	}
	c.Release()
	if o.Set != nil {
		o.Set.Close()
	}
	if err != nil {
		var code exitStatus
		if !errors.As(err, &code) {
			fmt.Fprintf(e.stderr, "sliver: %s\n", oneLine(err))
		}
	}
	status, werr := c.Wait()
	if werr != nil {
		return werr
	}
	if status == 0 && err != nil {
		return exitStatus(exitFailed)
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// record runs one session to its end. c is the command that is the target, nil for an existing process.
func (f *recordFlags) record(e *env, o session.Options, p *target.Process, c *target.Command) error {
	var chosen export.Output // the name that sliver chooses
	if len(o.Outputs) == 0 && !f.push.any() {
		name := session.DefaultOutput(p.Facts().Comm, p.PID(), time.Now())
		out, err := export.ParseOutput(name, "")
		if err != nil {
			return err
		}
		chosen = out
		for n := 2; outfile.Taken(out.Path); n++ {
			out = numbered(chosen, n)
		}
		o.Outputs = []export.Output{out}
	}
	var view *liveView
	if f.page {
		view = newLiveView(e, &f.web, p, o.Outputs, o.Set != nil)
		defer view.close()
		defer func() { view.held.release() }()
		o.Live, o.Renamed = true, view.renamed
		if o.Set != nil {
			o.Follower = view
		}
	}
	if c != nil {
		o.Await = true
		if o.IO != nil {
			o.IO.ToEntry = c.ToEntry
		}
		o.Started = c.Release // the command is held at its first instruction, or at its entry, until then
	}
	if err := checkDescriptors(e, p); err != nil {
		return err
	}
	var err error
	if o.Trace, err = f.trace.options(e.stderr, p, c, f.names.debugDirs); err != nil {
		return err
	}
	view.trace(o.Trace)
	_ = background.Lower(o.Groups + 1) // without permission, sliver runs at normal priority
	background.CollectRarely(spareMemory)
	src, err := f.names.sources("record", e.stderr)
	if err != nil {
		return err
	}
	o.Finder, o.Cache = src.finder, src.cache
	f.ender.stderr, f.ender.hurry = e.stderr, src.hurry
	tel, err := f.newTelemetry(e)
	if err != nil {
		return err
	}
	defer tel.Close() // after the session's last span
	o.Tracer = tel.Tracer()
	var now current
	watch := func(s *session.Session) error {
		if now.s.Swap(s) != nil {
			return nil // already watched
		}
		return tel.Watch(&now)
	}
	pushed, err := f.push.open(e)
	if err != nil {
		return err
	}
	if pushed != nil {
		defer func() { pushed.close(f.quiet, f.ender.ended()) }()
	}
	first := o.Outputs
	for n := 2; ; n++ {
		again, err := f.recordOnce(e, o, p, c != nil, view, watch, pushed)
		if chosen.Path != "" && errors.Is(err, outfile.ErrTaken) && n < maxNumbers {
			first = []export.Output{numbered(chosen, n)} // another recording started at the same moment
			o.Outputs = first
			continue
		}
		if err != nil || !again {
			return err
		}
		o.Started, o.Outputs = nil, nil
		if o.Set != nil {
			if p, err = f.nextOf(&o, p); p == nil {
				return err
			}
		}
		for _, out := range first {
			o.Outputs = append(o.Outputs, numbered(out, n))
		}
	}
}

// maxNumbers limits how many names are tried.
const maxNumbers = 1000

// current is the session whose metrics are published.
type current struct {
	s atomic.Pointer[session.Session]
}

// Account implements telemetry.Source.
func (c *current) Account() session.Account { return c.s.Load().Account() }

// recordOnce runs one session to its end and reports whether the page requested another one.
func (f *recordFlags) recordOnce(e *env, o session.Options, p *target.Process, command bool, view *liveView, watch func(*session.Session) error, pushed *windows) (again bool, err error) {
	s, err := session.New(p, o)
	if errors.Is(err, sampler.ErrNoThreads) {
		return false, noThreads(f.threads, p)
	}
	if err != nil {
		return false, err
	}
	defer s.Close()
	if err := watch(s); err != nil {
		return false, err
	}
	if view != nil {
		if err := view.show(s); err != nil {
			return false, err
		}
		defer view.hide()
	}
	ctx, stop := f.signals(e, s, func() bool { return command && p.Alive() })
	defer stop()
	if view != nil && view.held.release() {
		return false, nil // after the previous recording, which is complete
	}
	bySignal := func() bool { return errors.Is(context.Cause(ctx), errSignal) }
	line := newStatusLine(e, s, f.quiet)
	var full func() // ends a recording without an output that has become large
	if pushed != nil && len(o.Outputs) == 0 && o.Duration == 0 {
		full = sync.OnceFunc(func() { again = true; s.Stop() })
	}
	rest := func() {}
	if pushed != nil {
		rest = pushed.follow(s, full)
	}
	if command && o.Set != nil && !f.quiet {
		over := rest
		said := sayOthers(e.stderr, s, p)
		rest = func() { over(); said() }
	}
	reason, runErr := s.Run(ctx)
	rest()
	line.close()
	ended := bySignal() // by a signal and not on the page
	again = again && !ended
	if view != nil {
		view.ended(reason)
	}
	res, err := s.Finish(reason)
	if err == nil {
		err = runErr
	}
	if err != nil {
		if res != nil && !f.quiet {
			for _, w := range res.Files {
				fmt.Fprintf(e.stderr, "wrote %s (%s, %s)\n", w.Path, w.Format, bytesText(w.Bytes))
			}
		}
		return false, recordedTo(err, res)
	}
	f.ender.wrote()
	if f.json {
		if err := writeSummaryJSON(e.stdout, res); err != nil {
			return false, err
		}
	} else if !f.quiet {
		writeSummary(e.stderr, res, s.Process())
		writeProcesses(e.stderr, res)
		writeCalls(e.stderr, res.Calls, &f.trace.calls)
		writeIO(e.stderr, "", res.IO)
		writeSwitches(e.stderr, "", res.Switches)
		for i := range res.Processes {
			if p := &res.Processes[i]; i > 0 { // the first one is that of res
				writeIO(e.stderr, fmt.Sprintf(" of %s (%d)", printable(p.Comm), p.PID), p.IO)
			}
		}
	}
	if view == nil {
		return again, nil
	}
	// From here on Ctrl-C takes the page down. So does an earlier one that arrived while the recording was
	// written and did not end it. No signal may be lost between the two handlers.
	view.held = hold()
	stop()
	f.ender.stay()
	if bySignal() && !ended {
		return false, nil
	}
	return view.stay(), nil
}

// errSignal is the cause of a context ended by a signal.
var errSignal = errors.New("ended by a signal")

// signals ends the recording at Ctrl-C, SIGTERM or SIGHUP, and the program at a second one; SIGUSR1 scans all
// goroutines. While a command of sliver runs, Ctrl-C is left to the command: the recording ends with it.
func (f *recordFlags) signals(e *env, s *session.Session, command func() bool) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	f.ender.atExit(func() string {
		var notes []string
		if path := s.Abandon(); path != "" {
			notes = append(notes, soFar(path))
		}
		if note := f.trace.abandon(); note != "" {
			notes = append(notes, note)
		}
		return strings.Join(notes, "; ")
	}, f.trace.leaves())
	if f.trace.java.Load() != nil {
		f.ender.stay() // for the virtual machine's answer to the end of tracing, whose time is bounded
	}
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sig := range ch {
			if sig == syscall.SIGUSR1 {
				if err := s.LookAtTasks(); err != nil && !f.quiet {
					fmt.Fprintf(e.stderr, "sliver: SIGUSR1: %s\n", oneLine(err))
				}
				continue
			}
			if command() && (sig == syscall.SIGINT || sig == syscall.SIGQUIT) {
				continue
			}
			if f.ender.signaled(sig) {
				cancel(errSignal)
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(ch) // no more signals are sent, and the pending ones are handled
		close(ch)
		<-done
		cancel(nil)
	})
}

// noThreads returns an error that lists the threads.
func noThreads(spec string, p *target.Process) error {
	ts, err := session.Threads(p)
	if err != nil {
		return err
	}
	var names []string
	const most = 12
	for i, t := range ts {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more ('sliver threads %d' lists all)", len(ts)-most, p.PID()))
			break
		}
		names = append(names, fmt.Sprintf("%d=%s (TID %d)", i+1, printable(t.Name), t.TID))
	}
	return fmt.Errorf("no thread of process %d matches %q; there are: %s", p.PID(), spec, strings.Join(names, ", "))
}
