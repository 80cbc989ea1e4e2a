package analysis

import (
	"slices"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Part is one process of a recording of several.
type Part struct {
	Rec     *trace.Recording
	Name    string            // of the process, with its PID
	Threads []int             // chosen ones, by Seq; nil: all
	Number  func(seq int) int // the number of a thread among those of all processes; -1: it is left out
	Process int               // its number
}

// OfSeveral adds up what o chooses of several processes, one after the other. of is how many there are.
// Functions of the same name, file and module are one function, whichever process called them. Tasks have the number of
// their process.
func OfSeveral(parts []Part, of int, base stack.Time, o Options) *Analysis {
	if len(parts) == 1 {
		p := &parts[0]
		o.Threads = p.Threads
		out := Of(p.Rec, base, o)
		out.move(p.Number)
		out.Process, out.Processes, out.Of = p.Name, 1, of
		if out.Tasks != nil {
			for i := range out.Tasks.List {
				out.Tasks.List[i].Process = p.Process
			}
		}
		return out
	}
	out := &Analysis{Threads: []Thread{}, Funcs: []Func{}, Processes: len(parts), Of: of}
	m := &merger{b: builder{a: out, o: o, locs: tally.NewTree(), calls: tally.NewTree()}, funcs: map[Func]int32{}}
	var reports []report.Merged
	for i := range parts {
		p := &parts[i]
		one := o
		one.Threads = p.Threads
		a := Of(p.Rec, base, one)
		a.move(p.Number)
		if i == 0 || a.From < out.From {
			out.From = a.From
		}
		out.To = max(out.To, a.To)
		out.Threads = append(out.Threads, a.Threads...)
		out.addTasks(a.Tasks, p)
		m.add(a)
		reports = append(reports, report.Merged{Report: a.Report, Process: p.Name, Begin: a.From})
	}
	out.Report = report.Merge(reports)
	m.b.at(0)
	m.b.columns()
	out.Tree.Folded += m.folded
	return out
}

// move renumbers the threads, and leaves out those without a number.
func (a *Analysis) move(number func(int) int) {
	for i := range a.Threads {
		a.Threads[i].Seq = number(a.Threads[i].Seq)
	}
	a.Threads = slices.DeleteFunc(a.Threads, func(t Thread) bool { return t.Seq < 0 })
	for i := range a.Funcs {
		if t := a.Funcs[i].Thread; t != nil {
			seq := number(*t)
			a.Funcs[i].Thread = &seq
		}
	}
	if a.Tasks != nil {
		a.Tasks.move(number)
	}
}

// addTasks adds the tasks of a process. Tasks of different kinds are called tasks.
func (a *Analysis) addTasks(t *Tasks, p *Part) {
	if t == nil {
		return
	}
	for i := range t.List {
		x := &t.List[i]
		x.Process, x.Name = p.Process, x.Name+" of "+p.Name
	}
	for i := range t.Funcs {
		t.Funcs[i].Process = p.Name
	}
	all := a.Tasks
	if all == nil {
		a.Tasks = t
		return
	}
	if all.What != t.What {
		all.What = "task"
	}
	all.Count, all.Idle, all.More = all.Count+t.Count, all.Idle+t.Idle, all.More+t.More
	all.List, all.Funcs = append(all.List, t.List...), append(all.Funcs, t.Funcs...)
	all.sort()
}

// merger merges the trees of analyses.
type merger struct {
	b      builder
	funcs  map[Func]int32 // index in the result's Funcs; threads are not in it
	folded int
}

func (m *merger) add(a *Analysis) {
	fn := make([]int32, len(a.Funcs))
	for i, f := range a.Funcs {
		if n, ok := m.funcs[f]; ok && f.Thread == nil {
			fn[i] = n
			continue
		}
		fn[i] = int32(len(m.b.a.Funcs))
		m.b.a.Funcs = append(m.b.a.Funcs, f)
		if f.Thread == nil {
			m.funcs[f] = fn[i]
		}
	}
	t := a.Tree
	node := make([]int32, len(t.Parent))
	for i := range t.Parent {
		if i > 0 {
			up := node[t.Parent[i]]
			if node[i] = m.b.calls.Child(up, fn[t.Func[i]]); node[i] == up {
				continue // too many nodes: the caller's values have it
			}
		}
		m.b.at(node[i]).add(&nodeValues{t.Samples[i], t.CPU[i], t.Wall[i], t.Wait[i], t.Lock[i], t.Idle[i]})
	}
	m.folded += t.Folded
}
