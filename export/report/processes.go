package report

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export/view"
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
}

// Step is a part of the critical path: a time in which a process was what the others waited for.
type Step struct {
	PID      int    `json:"pid"`
	Name     string `json:"name"`
	Command  string `json:"command"`
	Begin    int64  `json:"begin_ns"`
	Duration int64  `json:"duration_ns"`
}

// Limits of the tables of processes.
const (
	maxProcesses = 1 << 12
	maxSteps     = 1 << 12
)

// blur is the precision of a process's beginning, in ns: the kernel counts it in ticks of 10 ms.
const blur = 20_000_000

// exactBlur is that of the kernel's reports: a process reports its end before its parent sees it.
const exactBlur = 5_000_000

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
	exact := true // the kernel reported all lives
	for _, one := range rec.All() {
		p := &one.Process
		from, to := one.Span()
		if p.StartTime > begin && p.StartTime < from {
			from = p.StartTime
		}
		if one.End != nil && one.End.Gone > from {
			to = one.End.Gone
		} else if p.PID != rec.Process.PID {
			exact = false
		}
		row := Process{PID: p.PID, Parent: p.Parent, Name: view.Text(p.Comm, 256), Command: view.Command(p.Cmdline),
			Begin: int64(from - begin), End: int64(max(to, from) - begin), Threads: len(one.Threads)}
		for i := range one.Stats.Threads {
			row.CPU += one.Stats.Threads[i].CPUNS
			row.Samples += one.Stats.Threads[i].Samples
		}
		r.Processes = append(r.Processes, row)
	}
	slack := blur + 2*rec.Process.Interval
	if exact {
		slack = exactBlur
	}
	r.CriticalPath = criticalPath(append(slices.Clone(r.Processes), missed(rec.Left, begin)...), slack)
	r.OnPath = onPath(r.CriticalPath)
	r.between(rec)
	slices.SortStableFunc(r.Processes, func(a, b Process) int { return cmp.Compare(b.CPU, a.CPU) })
	if n := len(r.Processes); n > maxProcesses {
		r.More.Processes, r.Processes = n-maxProcesses, r.Processes[:maxProcesses]
	}
}

// missed returns the processes without a sample whose life the kernel reported.
func missed(l *trace.LeftOut, begin stack.Time) (out []Process) {
	if l == nil {
		return nil
	}
	for i := range l.Processes {
		if p := &l.Processes[i]; p.Born > 0 && p.Gone > p.Born {
			out = append(out, Process{PID: p.PID, Parent: p.Parent, Name: view.Text(p.Name, 256), Begin: int64(p.Born - begin), End: int64(p.Gone - begin)})
		}
	}
	return out
}

// OnPath is the part of the critical path that processes of one program have.
type OnPath struct {
	Name      string `json:"name"`
	Processes int    `json:"processes"`
	Total     int64  `json:"total_ns"`
}

// onPath adds up the steps of a critical path by program.
func onPath(steps []Step) (out []OnPath) {
	at := map[string]int{}
	met := map[int]bool{} // by PID
	for i := range steps {
		s := &steps[i]
		n, ok := at[s.Name]
		if !ok {
			n = len(out)
			at[s.Name], out = n, append(out, OnPath{Name: s.Name})
		}
		out[n].Total += s.Duration
		if !met[s.PID] {
			met[s.PID] = true
			out[n].Processes++
		}
	}
	slices.SortStableFunc(out, func(a, b OnPath) int { return cmp.Compare(b.Total, a.Total) })
	return out
}

// criticalPath returns the processes that the duration of the first one depended on, in the order
// of time. It goes back from the end of a process: the time since its child that ended last is its
// own. Before that it waited for that child, or had no slot for the next one. The child's time is
// split in the same way, then the time before the child began. Beginnings and
// ends are known to slack ns: a child that seems to end a little later than the next one begins may
// have been waited for.
func criticalPath(ps []Process, slack int64) (steps []Step) {
	kids := map[int][]*Process{}
	for i := range ps {
		if p := &ps[i]; i > 0 && p.Parent != p.PID {
			kids[p.Parent] = append(kids[p.Parent], p)
		}
	}
	for _, all := range kids {
		slices.SortFunc(all, func(a, b *Process) int { return cmp.Or(cmp.Compare(b.End, a.End), cmp.Compare(a.Begin, b.Begin)) })
	}
	add := func(p *Process, from, to int64) {
		if to > from && len(steps) < maxSteps {
			steps = append(steps, Step{p.PID, p.Name, p.Command, from, to - from})
		}
	}
	// A PID may be used again: a process is walked once.
	met := map[*Process]bool{}
	var back func(p *Process, from, to int64)
	back = func(p *Process, from, to int64) {
		met[p] = true
		at := to
		for _, kid := range kids[p.PID] { // latest end first
			end, begin := min(kid.End, at), max(kid.Begin, from)
			if met[kid] || kid.End > at+slack || kid.Begin < from-slack || end <= begin || len(steps) >= maxSteps {
				continue
			}
			add(p, end, at)
			back(kid, begin, end)
			at = begin
		}
		add(p, from, at)
	}
	if len(ps) > 0 {
		back(&ps[0], ps[0].Begin, ps[0].End)
	}
	slices.Reverse(steps)
	return steps
}

// textProcesses prints the busiest processes and the longest steps of the critical path.
func (r *Report) textProcesses(b *bufio.Writer, top int) {
	if r.Processes == nil {
		return
	}
	shown := r.Processes[:min(len(r.Processes), top)]
	fmt.Fprintf(b, "\nProcesses%s\n", more(len(r.Processes)-len(shown)+r.More.Processes))
	t := newTable(b, "begin", "lived", "on CPU", "threads", "samples", "pid", "parent", "command")
	for _, p := range shown {
		t.row(duration(p.Begin), duration(p.End-p.Begin), duration(p.CPU), fmt.Sprint(p.Threads), fmt.Sprint(p.Samples), fmt.Sprint(p.PID), fmt.Sprint(p.Parent), command(p.Name, p.Command))
	}
	t.end()
	r.textBetween(b, top)
	if len(r.CriticalPath) < 2 {
		return
	}
	longest := slices.Clone(r.CriticalPath)
	slices.SortStableFunc(longest, func(a, b Step) int { return cmp.Compare(b.Duration, a.Duration) })
	var sum int64
	for i := range longest {
		sum += longest[i].Duration
	}
	left := len(longest) - min(len(longest), top)
	longest = longest[:len(longest)-left]
	slices.SortStableFunc(longest, func(a, b Step) int { return cmp.Compare(a.Begin, b.Begin) })
	fmt.Fprintf(b, "\nCritical path: what the end of the first process waited for, by time%s\n", more(left))
	t = newTable(b, "begin", "took", "share", "pid", "command")
	for _, s := range longest {
		t.row(duration(s.Begin), duration(s.Duration), fmt.Sprintf("%.1f%%", 100*float64(s.Duration)/float64(max(sum, 1))), fmt.Sprint(s.PID), command(s.Name, s.Command))
	}
	t.end()
	var parts []string
	for i, p := range r.OnPath {
		if i == maxOnPath {
			parts = append(parts, fmt.Sprintf("%d more programs", len(r.OnPath)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s in %s (%s)", duration(p.Total), cell(p.Name), processes(p.Processes)))
	}
	fmt.Fprintf(b, "on the path: %s\n", strings.Join(parts, ", "))
}

// maxOnPath bounds the programs in the line of sums.
const maxOnPath = 8

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// maxCommand bounds a command in a table, in characters.
const maxCommand = 70

// command returns a command line for a table: the program's name without its folder, and the
// arguments. If that is too long, options are left out, and then the middle: what a compiler works
// on is most often at the end.
func command(name, line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return cell(name)
	}
	words[0] = words[0][strings.LastIndexByte(words[0], '/')+1:]
	text := []rune(strings.Join(words, " "))
	if len(text) > maxCommand {
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") })
		text = []rune(strings.Join(words, " "))
	}
	if len(text) > maxCommand {
		half := maxCommand/2 - 1
		text = append(append(text[:half:half], '…'), text[len(text)-half:]...)
	}
	return cell(string(text))
}
