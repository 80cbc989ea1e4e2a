package report

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Process is one process of a recording of several. Times are in ns from the beginning of the
// recording.
type Process struct {
	PID     int    `json:"pid"`
	Parent  int    `json:"ppid"` // 0: not in the recording, or unknown
	Name    string `json:"name"`
	Command string `json:"command"`
	Begin   int64  `json:"begin_ns"` // it began, or the recording did
	End     int64  `json:"end_ns"`   // its last sample, at most one interval before its end
	CPU     int64  `json:"cpu_ns"`
	Threads int    `json:"threads"`
	Samples uint64 `json:"samples"`
	Exit           // how it ended
}

// Exit is how a process ended. Neither is known of one that did not, or that the kernel no longer reports.
type Exit struct {
	Status *int    `json:"exit_status"` // nil also if a signal killed it
	Signal *string `json:"exit_signal"` // the signal that killed it, such as "SIGKILL"
}

// exitOf returns how the process of a recording ended.
func exitOf(end *trace.End) (e Exit) {
	switch {
	case end == nil || end.Exit == nil:
	case end.Exit.Signal != "":
		s := view.Text(end.Exit.Signal, maxSignal)
		e.Signal = &s
	default:
		e.Status = &end.Exit.Status
	}
	return e
}

// maxSignal bounds the name of a signal.
const maxSignal = 32

// Ended returns the exit status, or the signal; "" if neither is known.
func (e Exit) Ended() string {
	switch {
	case e.Signal != nil:
		return *e.Signal
	case e.Status != nil:
		return fmt.Sprint(*e.Status)
	}
	return ""
}

// Step is a part of the critical path: a time in which a process was what the others waited for.
type Step struct {
	PID      int    `json:"pid"`
	Name     string `json:"name"`
	Command  string `json:"command"`
	Begin    int64  `json:"begin_ns"`
	Duration int64  `json:"duration_ns"`
	// Waiter is the process that waited for it, 0 and "" for the last step; How says how that is known.
	WaiterPID int    `json:"waiter_pid"`
	Waiter    string `json:"waiter"`
	How       string `json:"how"`
}

// maxProcesses limits the table of processes.
const maxProcesses = 1 << 12

// AddProcesses adds the processes of a recording of several, and the path of processes that its
// duration depends on. It does nothing for a recording of one process.
func (r *Report) AddProcesses(rec *trace.Recording) {
	if len(rec.Others) == 0 {
		return
	}
	begin := rec.Begin()
	for _, one := range rec.All() {
		begin = min(begin, one.Begin())
	}
	for _, one := range rec.All() {
		p := &one.Process
		from, to := one.Span()
		if p.StartTime > 0 { // in steps of 10 ms: it may be before the first event of its parent
			from = min(from, max(p.StartTime, begin))
		}
		if one.End != nil && one.End.Gone > from {
			to = one.End.Gone
		}
		row := Process{PID: p.PID, Parent: p.Parent, Name: view.Text(p.Comm, 256), Command: view.Command(p.Cmdline),
			Begin: int64(from - begin), End: int64(max(to, from) - begin), Threads: len(one.Threads), CPU: one.CPU(), Exit: exitOf(one.End)}
		for i := range one.Stats.Threads {
			row.Samples += one.Stats.Threads[i].Samples
		}
		r.Processes = append(r.Processes, row)
	}
	views := view.All(rec, view.Options{})
	b := between.Of(rec, views)
	r.path(b, begin, &r.Processes[0])
	r.between(b, views)
	slices.SortStableFunc(r.Processes, func(a, b Process) int { return cmp.Compare(b.CPU, a.CPU) })
	if n := len(r.Processes); n > maxProcesses {
		r.More.Processes, r.Processes = n-maxProcesses, r.Processes[:maxProcesses]
	}
}

// OnPath is the part of the critical path that processes of one program have.
type OnPath struct {
	Name      string `json:"name"`
	Processes int    `json:"processes"`
	Total     int64  `json:"total_ns"`
}

// path adds the critical path, from the beginning of the first process, in ns after begin, to its end.
func (r *Report) path(b *between.Between, begin stack.Time, first *Process) {
	steps, more, sums := b.Path(begin+stack.Time(first.Begin), begin+stack.Time(first.End))
	of := map[int]*Process{} // by index in b.Processes: they are in the order of r.Processes
	for i := range r.Processes {
		of[i] = &r.Processes[i]
	}
	for i := range steps {
		s := &steps[i]
		p := &b.Processes[s.Process]
		x := Step{PID: p.PID, Name: p.Name, Begin: int64(s.Begin - begin), Duration: int64(s.End - s.Begin), How: s.How}
		if row := of[s.Process]; row != nil {
			x.Command = row.Command
		}
		if s.Waiter >= 0 {
			x.WaiterPID, x.Waiter = b.Processes[s.Waiter].PID, b.Processes[s.Waiter].Name
		}
		r.CriticalPath = append(r.CriticalPath, x)
	}
	r.More.CriticalPath = more
	at := map[string]int{}
	for _, i := range slices.Sorted(maps.Keys(sums)) {
		name := b.Processes[i].Name
		n, ok := at[name]
		if !ok {
			n = len(r.OnPath)
			at[name], r.OnPath = n, append(r.OnPath, OnPath{Name: name})
		}
		r.OnPath[n].Total += int64(sums[i])
		r.OnPath[n].Processes++
	}
	slices.SortStableFunc(r.OnPath, func(a, b OnPath) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name)) })
}

// textProcesses prints the busiest processes and the longest steps of the critical path.
func (r *Report) textProcesses(b *bufio.Writer, top int) {
	if r.Processes == nil {
		return
	}
	shown := r.Processes[:min(len(r.Processes), top)]
	fmt.Fprintf(b, "\nProcesses%s\n", more(len(r.Processes)-len(shown)+r.More.Processes))
	t := newTable(b, "begin", "lived", "on CPU", "threads", "samples", "exit", "pid", "parent", "command")
	for _, p := range shown {
		t.row(duration(p.Begin), duration(p.Lived()), duration(p.CPU), fmt.Sprint(p.Threads), fmt.Sprint(p.Samples), cell(p.Ended()), fmt.Sprint(p.PID), fmt.Sprint(p.Parent), command(p.Name, p.Command))
	}
	t.end()
	r.textBetween(b, top)
	if len(r.CriticalPath) < 2 {
		return
	}
	longest := slices.Clone(r.CriticalPath)
	slices.SortStableFunc(longest, func(a, b Step) int { return cmp.Compare(b.Duration, a.Duration) })
	left := len(longest) - min(len(longest), top)
	longest = longest[:len(longest)-left]
	left += r.More.CriticalPath
	slices.SortStableFunc(longest, func(a, b Step) int { return cmp.Compare(a.Begin, b.Begin) })
	fmt.Fprintf(b, "\nCritical path: what the end of the first process waited for, by time%s\n", more(left))
	t = newTable(b, "begin", "took", "share", "pid", "command", "waited for by")
	for _, s := range longest {
		t.row(duration(s.Begin), duration(s.Duration), fmt.Sprintf("%.1f%%", 100*float64(s.Duration)/float64(max(r.PathTime(), 1))), fmt.Sprint(s.PID), command(s.Name, s.Command), s.waiter())
	}
	t.end()
	var parts []string
	for i, p := range r.OnPath {
		if i == maxOnPath {
			parts = append(parts, plural.Of(len(r.OnPath)-i, "more program"))
			break
		}
		parts = append(parts, fmt.Sprintf("%s in %s (%s)", duration(p.Total), cell(p.Name), processes(p.Processes)))
	}
	fmt.Fprintf(b, "on the path: %s\n", strings.Join(parts, ", "))
}

// Lived is how long a process was observed, in ns.
func (p *Process) Lived() int64 { return p.End - p.Begin }

// PathTime is the time of all steps of the critical path, in ns.
func (r *Report) PathTime() (ns int64) {
	for i := range r.OnPath {
		ns += r.OnPath[i].Total
	}
	return ns
}

// waiter describes which process waited for a step, and how that is known.
func (s *Step) waiter() string {
	if s.WaiterPID == 0 {
		return ""
	}
	return cell(fmt.Sprintf("%s (%d), %s", s.Waiter, s.WaiterPID, s.How))
}

// maxOnPath bounds the programs in the line of sums.
const maxOnPath = 8

func processes(n int) string {
	return plural.Of(n, "process")
}

// Beside counts the other processes of the recording, as words behind the name of the first one; "" if there are none.
func (x *Recording) Beside() string {
	switch x.Others {
	case 0:
		return ""
	}
	return " and " + plural.Of(x.Others, "other process")
}

// arguments splits a line of view.Command. A quoted argument, such as the script behind sh -c, is one.
func arguments(line string) []string {
	quoted, escaped := false, false
	return strings.FieldsFunc(line, func(r rune) bool {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = quoted
		case r == '"':
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
}

// maxCommand bounds a command in a table, in characters.
const maxCommand = 70

// command returns a command line for a table: the program's name without its folder, and the
// arguments. If that is too long, options are left out, with their values except for files, and then the middle: what a compiler
// works on is most often at the end.
func command(name, line string) string {
	words := arguments(line)
	if len(words) == 0 {
		return cell(name)
	}
	if words[0][0] != '"' {
		words[0] = words[0][strings.LastIndexByte(words[0], '/')+1:]
	}
	text := []rune(strings.Join(words, " "))
	if len(text) > maxCommand {
		words = withoutOptions(words)
		text = []rune(strings.Join(words, " "))
	}
	if len(text) > maxCommand {
		half := maxCommand/2 - 1
		text = append(append(text[:half:half], '…'), text[len(text)-half:]...)
	}
	return cell(string(text))
}

// withoutOptions drops options, their values except for files, and files after the first time.
func withoutOptions(words []string) (out []string) {
	takes := false // the option before has no value yet
	for i, w := range words {
		value, option := takes, i > 0 && strings.HasPrefix(w, "-")
		takes = option && !strings.ContainsAny(w, "0123456789={}[]:,./") // -P2, -I{} and -std=c11 have one
		file := strings.Contains(w, "/") || strings.LastIndexByte(w, '.') > 0
		switch {
		case option, file && slices.Contains(out, w):
		case value && !file && w[0] != '"': // a value of several words is more than a value
		default:
			out = append(out, w)
		}
	}
	return out
}
