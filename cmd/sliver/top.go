package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/sliverprof/sliver/cmd/sliver/internal/tui"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/session/top/feed"
)

// topFlags are the flags of top.
type topFlags struct {
	threads     string
	window      time.Duration
	interval    time.Duration
	once        bool
	json        bool
	rows        int
	by          string
	sort        string
	filter      string
	idle        bool
	gil         bool
	stop        string
	engine      string
	maxOverhead percent
	maxCPU      cpuLimit
	names       nameFlags
	kinds       kindFlags
	set         setFlags
	most        int

	fs *pflag.FlagSet
}

// maxTopInterval ensures enough samples in a window.
const maxTopInterval = time.Second

// topGroups is the number of sampler goroutines in addition to the main thread's.
const topGroups = 5

func topCommand() *command {
	f := &topFlags{}
	return &command{
		name: "top", samples: true, args: "[FLAGS] PID...", short: "show a live table of functions and threads in the terminal",
		pids: true,
		flags: func(fs *pflag.FlagSet) {
			f.fs = fs
			fs.StringVarP(&f.threads, "threads", "t", "all", threadsUsage)
			fs.DurationVarP(&f.window, "duration", "d", 2*time.Second, "length of the window that the table covers")
			registerInterval(fs, &f.interval, 10*time.Millisecond)
			fs.BoolVar(&f.once, "once", false, "print one plain table after one window, and exit")
			fs.BoolVar(&f.json, "json", false, "print one table as JSON (docs/top-json.md)")
			fs.IntVarP(&f.rows, "rows", "n", 20, "with --once: at most this many functions and threads (0: all)")
			fs.StringVar(&f.by, "by", "wall", "measure of the functions: wall or cpu time")
			fs.StringVar(&f.sort, "sort", "self", "order of the functions: self, total or name")
			fs.StringVar(&f.filter, "filter", "", "only functions whose name contains this text or matches /regexp/")
			fs.BoolVar(&f.idle, "idle", false, "also show idle threads and idle waits: threads of pools, runtimes and event loops without work")
			fs.BoolVar(&f.gil, "gil", false, "only the time in which threads held the global lock of Python or Ruby")
			registerStop(fs, &f.stop)
			registerEngine(fs, &f.engine)
			f.maxOverhead = .01
			fs.Var(&f.maxOverhead, "max-overhead", "limit of the cost: time in stops, and CPU that sliver takes from the process; the interval grows to keep it (0: no limit)")
			f.maxCPU.register(fs)
			f.set.register(fs, "show", ", including ones started later")
			fs.IntVar(&f.most, "max-processes", procset.DefaultMax, "limit of the number of processes shown at once")
			f.kinds.register(fs)
			f.names.register(fs, "")
		},
		help: `
Functions with the time on top (SELF) and anywhere on the stack (TOTAL), threads
with state, CPU and what they wait for, redrawn each second. 100% is one thread,
or one CPU, all the time. Wall time includes sleeping threads; w changes to CPU
time. Idle threads are counted but not listed; --idle lists them. Of several
processes the threads have their process number, and --once sums up each process.

Keys: q quit, Tab other table, arrows move, Enter stack of the chosen thread,
s sort, w wall or CPU, / filter, Space pause, ? help.

Examples:
  sliver top 1234
  sliver top --by cpu -t 'worker-*' -d 5s $(pidof server)
  sliver top --children $(pidof -s postgres)  a server with its workers, also later ones
  sliver top --kinds no-native 1234           without frames of native code
  sliver top --once 1234                      one table, for scripts and logs
  sliver top --once --by cpu --sort total -n 5 1234
  sliver top --json -d 1s 1234 | jq -r '.threads[] | select(.waits_for) | .name + ": " + .waits_for'

NO_COLOR=1 leaves colours out; COLUMNS=120 cuts the lines of --once there, in pipes too.
Nothing is recorded: 'sliver record' does that.`,
		run: f.run,
	}
}

func (f *topFlags) run(_ context.Context, e *env, args []string) error {
	o, l, err := f.options()
	if err != nil {
		return err
	}
	procs, err := f.set.open("top", args, f.most)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range procs {
			p.Close()
		}
	}()
	once := f.once || f.json
	if !once && (!term.IsTerminal(int(e.stdin.Fd())) || !isTerminal(e.stdout)) {
		return usagef("top", "top needs a terminal; --once prints one table")
	}
	if !once && f.fs.Changed("rows") {
		return usagef("top", "--rows goes with --once")
	}
	told := e.stderr
	if !once {
		told = io.Discard // the screen is in use
	}
	more, err := f.names.sources("top", told)
	if err != nil {
		return err
	}
	o.Finder, o.Cache = more.finder, more.cache
	var scr tcell.Screen
	if !once {
		if scr, err = screen(); err != nil {
			return fmt.Errorf("cannot draw in this terminal (TERM=%s): %w; --once prints one table", os.Getenv("TERM"), err)
		}
	}
	_ = background.Lower(o.Groups + 1) // without permission, sliver runs at normal priority
	src, err := f.source(procs, o)
	procs = nil // src closes them
	if err != nil {
		return err
	}
	defer src.Close()
	end := &ender{stderr: e.stderr, hurry: more.hurry, leave: func() string {
		if scr != nil {
			scr.Fini()
		}
		return ""
	}}
	ctx, stop := end.context(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	if once {
		return f.print(ctx, e, src, l)
	}
	looking, done := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- src.Run(looking) }()
	err = tui.Run(ctx, scr, src, tui.Options{PID: src.PID(), Comm: src.Comm(), Window: f.window, By: l.By, Idle: f.idle, Funcs: l.Funcs,
		Filter: l.Filter, Losses: src.Losses, Suspend: suspend})
	done()
	return errors.Join(err, <-ran)
}

// suspend stops all processes of the terminal's job, as the terminal does at Ctrl-Z, until they are continued. The
// stoppers, which mask signals, end their stops. Where no shell could continue them, the kernel ignores the signal.
func suspend() {
	const ignored = 100 * time.Millisecond // after that, if the kernel ignores the signal
	on := make(chan os.Signal, 1)
	signal.Notify(on, syscall.SIGCONT)
	defer signal.Stop(on)
	if syscall.Kill(0, syscall.SIGTSTP) != nil {
		return
	}
	select {
	case <-on:
	case <-time.After(ignored):
	}
}

// screen opens the terminal on standard input and output.
func screen() (tcell.Screen, error) {
	tty, err := tcell.NewStdIoTty()
	if err != nil {
		return nil, err
	}
	return tcell.NewTerminfoScreenFromTty(tty)
}

func (f *topFlags) options() (o feed.Options, l *top.Layout, err error) {
	l = &top.Layout{Rows: f.rows}
	o = feed.Options{Interval: f.interval, Jitter: .5, Groups: topGroups, MaxOverhead: float64(f.maxOverhead), Window: f.window, Idle: f.idle, GIL: f.gil,
		DebugDirs: f.names.debugDirs, FullNames: f.names.fullNames}
	switch {
	case f.window < top.MinWindow || f.window > top.MaxWindow:
		return o, l, usagef("top", "duration: %v is out of range; use %v to %v", f.window, top.MinWindow, top.MaxWindow)
	case f.interval < sampler.MinInterval || f.interval > maxTopInterval:
		return o, l, usagef("top", "interval: %v is out of range; use %v to %v", f.interval, sampler.MinInterval, maxTopInterval)
	case f.most < 1:
		return o, l, usagef("top", "max-processes: %d is out of range; use 1 or more", f.most)
	case f.rows < 0:
		return o, l, usagef("top", "rows: %d is negative", f.rows)
	case f.maxOverhead < 0 || f.maxOverhead >= 1:
		return o, l, usagef("top", "max-overhead: %v is out of range; use 0%% (no bound) to 99%%", &f.maxOverhead)
	}
	if err := f.maxCPU.check("top"); err != nil {
		return o, l, err
	}
	o.MaxCPU = f.maxCPU.bounds(f.maxOverhead)
	if o.Selection, err = sampler.ParseSelection(f.threads); err != nil {
		return o, l, usagef("top", "%v", err)
	}
	if o.Stop, err = sampler.ParseStopPolicy(f.stop); err != nil {
		return o, l, usagef("top", "%v", err)
	}
	if err := checkEngine("top", f.engine); err != nil {
		return o, l, err
	}
	if err = f.kinds.parse("top"); err != nil {
		return o, l, err
	}
	o.Kinds = f.kinds.only
	if l.By, err = top.ParseBy(f.by); err != nil {
		return o, l, usagef("top", "%v", err)
	}
	if l.Funcs, err = top.ParseFuncOrder(f.sort); err != nil {
		return o, l, usagef("top", "%v", err)
	}
	if l.Filter, err = top.ParseFilter(f.filter); err != nil {
		return o, l, usagef("top", "%v", err)
	}
	o.Clock, o.NoBPF, err = engineFor(f.engine)
	return o, l, err
}

// Additional time for --once beyond its window: for a window that fills late on a busy
// machine, and for names.
const (
	fillPatience = 10 * time.Second
	namePatience = time.Minute
)

// print waits for one window and prints it.
func (f *topFlags) print(ctx context.Context, e *env, fd topSource, l *top.Layout) error {
	looking, done := context.WithTimeout(ctx, f.window+fillPatience)
	defer done()
	ran := make(chan error, 1)
	go func() { ran <- fd.Run(looking) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var err error
	for going := true; going; {
		select {
		case err = <-ran:
			going = false
		case <-tick.C:
			// Buckets are whole numbers of ns.
			if fd.Span() >= f.window-time.Microsecond {
				done()
			}
		}
	}
	if err != nil {
		return err
	}
	fd.Table() // requests the names
	naming, named := context.WithTimeout(ctx, namePatience)
	defer named()
	fd.Settle(naming)
	t, st := fd.Table(), fd.Stats()
	h := &top.Head{PID: fd.PID(), Comm: fd.Comm(), Ended: !fd.Ended().IsZero(), Losses: fd.Losses(&st), Samples: st.Samples}
	if f.json {
		return t.WriteJSON(e.stdout, h, l)
	}
	l.Width = columns(e.stdout)
	return t.WriteText(e.stdout, h, l)
}

// columns returns the maximum width of lines on w: COLUMNS if the user exports it (shells
// do not by default), otherwise the terminal's width. 0: no limit.
func columns(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if out, ok := w.(interface{ Fd() uintptr }); ok {
		if n, _, err := term.GetSize(int(out.Fd())); err == nil {
			return n
		}
	}
	return 0
}
