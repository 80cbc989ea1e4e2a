package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// severalFlags choose the processes of a recording of several.
type severalFlags struct {
	setFlags
	noChildren bool
	most       int
}

func (f *severalFlags) register(fs *pflag.FlagSet) {
	f.setFlags.register(fs, "record", ", including ones started later")
	fs.Lookup("children").Usage = "also record all descendants, including ones started later (default for a command)"
	fs.BoolVar(&f.noChildren, "no-children", false, "record the command alone")
	fs.IntVar(&f.most, "max-processes", procset.DefaultMax, "limit of the number of processes recorded at once")
}

func (f *severalFlags) check() error {
	switch {
	case f.most < 1 || f.most > trace.MaxSections:
		return usagef("record", "max-processes: %d is out of range; use 1 to %d", f.most, trace.MaxSections)
	case f.children && f.noChildren:
		return usagef("record", "--children and --no-children contradict each other")
	}
	return nil
}

// matching returns a match of the processes that flags choose, and a description of such a process
// for each flag.
func matching(command string, names, units, cgroups []string) (match func(*target.Found) bool, what []string, err error) {
	var wanted []func(*target.Found) bool
	for _, name := range names {
		match, err := target.Named(name)
		if err != nil || name == "" {
			return nil, nil, usagef(command, "name: the pattern %q cannot be read", name)
		}
		wanted, what = append(wanted, match), append(what, "process named "+name)
	}
	for _, unit := range units {
		if unit == "" {
			return nil, nil, usagef(command, "unit: write the name of a systemd unit")
		}
		wanted, what = append(wanted, target.InUnit(unit)), append(what, "process of unit "+unit)
	}
	for _, dir := range cgroups {
		if dir == "" {
			return nil, nil, usagef(command, "cgroup: write the path of a control group")
		}
		wanted, what = append(wanted, target.InCgroup(dir)), append(what, "process of control group "+dir)
	}
	if len(units) > 0 && !target.HasUnits() {
		return nil, nil, usagef(command, "unit %s: systemd does not run here, and no process belongs to a unit; use --name, --cgroup or -p", units[0])
	}
	return func(f *target.Found) bool {
		return slices.ContainsFunc(wanted, func(is func(*target.Found) bool) bool { return is(f) })
	}, what, nil
}

// mostAlike bounds the names in a hint.
const mostAlike = 3

// others returns a hint for a match that no process of the user passes. It names those of other users that pass, or, if
// there are none, is that of alike.
func others(match func(*target.Found) bool, patterns []string) string {
	found, err := target.FindOthers(match)
	if err != nil || len(found) == 0 {
		return alike(patterns)
	}
	var names []string
	for i := range found[:min(len(found), mostAlike)] {
		names = append(names, fmt.Sprintf("%s (%d)", printable(found[i].Comm), found[i].PID))
	}
	more := ""
	if len(found) > mostAlike {
		more = " and others"
	}
	return fmt.Sprintf("; %s: %s%s; sudo gives access", plural.Either(len(found), "process of another user matches", "processes of other users match"),
		strings.Join(names, ", "), more)
}

// alike is a hint for patterns that no process matches: those that run and have a pattern in their name, as a pattern
// is for the whole name. It begins with "; ", and is "" where nothing would help.
func alike(patterns []string) string {
	for _, text := range patterns {
		if strings.ContainsAny(text, "*?[/\\") {
			continue
		}
		wanted, err := target.Named("*" + text + "*")
		if err != nil {
			continue
		}
		found, err := target.NewFinder(wanted).Find(nil)
		if err != nil || len(found) == 0 {
			continue
		}
		var names []string
		for i := range found {
			names = append(names, found[i].Comm)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		more := ""
		if len(names) > mostAlike {
			names, more = names[:mostAlike], " and others"
		}
		return fmt.Sprintf("; a pattern is for the whole name: --name '*%s*' matches %s%s", text, strings.Join(names, ", "), more)
	}
	return ""
}

// single returns what in the flags can hold one process only; "" if nothing does.
func (f *recordFlags) single() string {
	if len(f.trace.patterns) > 0 {
		return "--trace is for one process"
	}
	return ""
}

// follow makes a recording of a command one of its descendants too.
func (f *recordFlags) follow(o *session.Options, c *target.Command) error {
	if f.several.noChildren || f.io.on && !f.several.children { // programs in the kernel for each short command cost too much
		return nil
	}
	if why := f.single(); why != "" {
		if f.several.children {
			return usagef("record", "%s: use -o FILE.sliver, or leave out --children", why)
		}
		return nil
	}
	want := procset.Options{Children: true, Max: f.several.most, Command: c.Process.PID(), Grace: graceOf(o.Interval)}
	if o.Selection.All() {
		want.Used = c.Used
	}
	o.Set = procset.New(want)
	o.Set.Take(c.Process)
	return nil
}

// graceOf returns procset.Options.Grace for an interval: a process that lives for a shorter time
// would have less than one sample on average.
func graceOf(interval time.Duration) time.Duration { return min(interval/2, procset.MostGrace) }

// recordSeveral records the processes that the flags choose.
func (f *recordFlags) recordSeveral(e *env, o session.Options) error {
	if why := f.single(); why != "" {
		return usagef("record", "%s; give one PID, or -o FILE.sliver and export each process", why)
	}
	want := procset.Options{Children: f.several.children, Max: f.several.most, Grace: graceOf(o.Interval)}
	var what []string
	if f.several.matches() {
		var err error
		if want.Match, what, err = matching("record", f.several.names, f.several.units, f.several.cgroups); err != nil {
			return err
		}
	}
	if len(f.pids) > f.several.most {
		return usagef("record", "%d processes given; --max-processes is %d", len(f.pids), f.several.most)
	}
	var given []*target.Process
	defer func() {
		for _, p := range given {
			p.Close()
		}
	}()
	for _, pid := range f.pids {
		p, err := target.Open(pid)
		if err != nil {
			return explain(err)
		}
		given = append(given, p)
	}
	slices.SortStableFunc(given, func(a, b *target.Process) int { // the first one of a recording has no parent in it
		return cmp.Or(cmp.Compare(a.Facts().StartTicks, b.Facts().StartTicks), cmp.Compare(a.PID(), b.PID()))
	})
	o.Set = procset.New(want)
	defer o.Set.Close()
	first := o.Set.Take(given...)
	given = nil
	found, err := o.Set.Now()
	if err != nil {
		return err
	}
	if first = append(first, found...); len(first) == 0 {
		if !f.quiet {
			fmt.Fprintln(e.stderr, "sliver: "+awaited(o.Set, want.Match, what, f.several.names))
		}
		if first, err = awaitMember(o.Set); err != nil {
			return err
		}
	}
	p := first[0].Process
	defer p.Close()
	o.First = first[1:]
	return f.record(e, o, p, nil)
}

// awaited describes the process that a recording waits for. Processes that match and cannot be recorded come first.
func awaited(set *procset.Set, match func(*target.Found) bool, what, patterns []string) string {
	if left := set.Left(); left.Count > 0 {
		return strings.Join(left.Lines(), "; ") + "; waiting for another " + strings.Join(what, " or ")
	}
	return "waiting for a " + strings.Join(what, " or a ") + others(match, patterns)
}

// awaitMember waits until a process matches.
func awaitMember(set *procset.Set) (found []procset.Member, err error) {
	for len(found) == 0 && err == nil {
		time.Sleep(lookEvery)
		found, err = set.Now()
	}
	return found, err
}

// nextOf prepares the next recording, after that of p has ended for its size, and returns its first process. If none
// runs and later ones may match, it waits for one; otherwise it returns nil. A process other than p stays open until
// sliver ends.
func (f *recordFlags) nextOf(o *session.Options, p *target.Process) (*target.Process, error) {
	next := o.Set.Again(p)
	if len(next) == 0 && f.several.matches() {
		var err error
		if next, err = awaitMember(o.Set); err != nil {
			return nil, err
		}
	}
	if len(next) == 0 {
		return nil, nil
	}
	o.First = next[1:]
	return next[0].Process, nil
}

// othersAfter is how long after the end of a command its descendants may go on before a line
// says so.
const othersAfter = 3 * time.Second

// sayOthers prints a line if the command has ended and its descendants go on, until the
// returned function is called.
func sayOthers(w io.Writer, s *session.Session, p *target.Process) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(othersAfter / 3)
		defer tick.Stop()
		for left := 3; left > 0; {
			select {
			case <-done:
				return
			case <-tick.C:
				if !p.Alive() {
					left--
				}
			}
		}
		if n := s.Status().Processes; n > 0 {
			clear := ""
			if isTerminal(w) {
				clear = "\r\x1b[K" // the status line
			}
			fmt.Fprintf(w, "%ssliver: %s has ended; %s; Ctrl-C ends the recording\n", clear,
				printable(p.Facts().Comm), plural.Either(n, "process that it started still runs", "processes that it started still run"))
		}
	})
	return func() { close(done); wg.Wait() }
}

// lookEvery is the time between two looks for the first process that matches.
const lookEvery = 100 * time.Millisecond

// maxProcessRows is how many processes the summary shows.
const maxProcessRows = 10

// writeProcesses prints the processes of a recording of several, those with the most CPU
// time first, and the processes that are missing. If there is one only, the lines above have its
// name, threads and samples: only an exit that failed is added.
func writeProcesses(w io.Writer, r *session.Result) {
	if r.Processes == nil {
		return
	}
	if len(r.Processes) == 1 && r.LeftOut.Count == 0 {
		if end := failedExit(&r.Processes[0]); end != "" {
			fmt.Fprintf(w, "  ended    %s\n", end)
		}
	} else {
		writeProcessRows(w, r)
	}
	for _, l := range r.LeftOut.Lines() {
		fmt.Fprintf(w, "  left out %s\n", printable(l))
	}
}

// failedExit describes how p ended; "" if it succeeded or that is not known.
func failedExit(p *session.Recorded) string {
	if x := p.Exit; x != nil && (x.Status != 0 || x.Signal != "") {
		return printable(x.String())
	}
	return ""
}

func writeProcessRows(w io.Writer, r *session.Result) {
	fmt.Fprintf(w, "  processes %d recorded, %d left out", len(r.Processes), r.LeftOut.Count)
	if d := delays(r.Processes); len(d) > 1 {
		fmt.Fprintf(w, "; first sample %s after they were found (median; longest %s)", moment(d[len(d)/2]), moment(d[len(d)-1]))
	}
	fmt.Fprintln(w)
	rows := slices.Clone(r.Processes)
	slices.SortStableFunc(rows, func(a, b session.Recorded) int { return int(min(max(b.CPU-a.CPU, -1), 1)) })
	for i := range rows {
		if i == maxProcessRows {
			fmt.Fprintf(w, "           and %d more\n", len(rows)-i)
			break
		}
		p := &rows[i]
		end := ""
		if x := failedExit(p); x != "" {
			end = ", " + x
		}
		fmt.Fprintf(w, "           %s (%d): %s of CPU, %s, %s%s\n", printable(p.Comm), p.PID, moment(p.CPU), plural.Of(p.Threads, "thread"), plural.Of(int(p.Stats.Samples), "sample"), end)
	}
}

// delays returns the times, in ns, from finding a process to its first sample, sorted.
func delays(ps []session.Recorded) (out []int64) {
	for i := range ps {
		if p := &ps[i]; p.First > p.Found && p.Found > 0 {
			out = append(out, int64(p.First-p.Found))
		}
	}
	slices.Sort(out)
	return out
}

// processJSON is a process in the summary as JSON.
type processJSON struct {
	PID     int        `json:"pid"`
	Parent  int        `json:"ppid"`
	Name    string     `json:"name"`
	Threads int        `json:"threads"`
	Samples uint64     `json:"samples"`
	CPUNS   int64      `json:"cpu_ns"`
	Found   stack.Time `json:"found_ns"`
	FirstNS int64      `json:"first_sample_ns"`
	// Of one that ended, as far as known: one of them.
	Status *int    `json:"exit_status"`
	Signal *string `json:"exit_signal"`
}

func processesJSON(r *session.Result) (out []processJSON) {
	for i := range r.Processes {
		p := &r.Processes[i]
		x := processJSON{PID: p.PID, Parent: p.Parent, Name: p.Comm, Threads: p.Threads, Samples: p.Stats.Samples, CPUNS: p.CPU, Found: p.Found, FirstNS: int64(max(p.First-p.Found, 0))}
		switch e := p.Exit; {
		case e == nil:
		case e.Signal != "":
			x.Signal = &e.Signal
		default:
			x.Status = &e.Status
		}
		out = append(out, x)
	}
	return out
}

// othersText counts the processes beside the first one.
func othersText(r *session.Result) string {
	if len(r.Processes) < 2 {
		return ""
	}
	return " and " + plural.Either(len(r.Processes)-1, "other process", "other processes")
}
