package analysis

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
)

// Tasks are the goroutines, asyncio tasks or virtual threads of the range.
type Tasks struct {
	What  string     `json:"what"` // "goroutine", "asyncio task", "virtual thread"
	Count int        `json:"count"`
	Idle  int        `json:"idle"` // of the runtime's own, left out
	Funcs []TaskFunc `json:"funcs"`
	List  []Task     `json:"list"` // those that ran longest
	More  int        `json:"more"` // that are not in List
}

// TaskFunc are the tasks that began with one function.
type TaskFunc struct {
	Name    string `json:"name"`
	Tasks   int    `json:"tasks"`
	Ran     int64  `json:"ran"`               // on threads
	Ready   int64  `json:"ready"`             // ready to run, on no thread
	Waited  int64  `json:"waited"`            // for something
	Longest int64  `json:"longest"`           // one stretch on a thread
	At      int64  `json:"at"`                // where that began
	Seq     int    `json:"seq"`               // of the thread that ran it; -1: none of the range
	Process string `json:"process,omitempty"` // name and PID, of several processes
}

// Task is one of them.
type Task struct {
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Func    string `json:"func"`
	Ran     int64  `json:"ran"`
	Ready   int64  `json:"ready"`
	Waited  int64  `json:"waited"`
	Longest int64  `json:"longest"`
	At      int64  `json:"at"`
	Seq     int    `json:"seq"`
	Why     string `json:"why,omitempty"` // what it waited for longest
	Process int    `json:"process"`       // its number, of several processes
}

// move renumbers the threads.
func (t *Tasks) move(number func(int) int) {
	for i := range t.Funcs {
		if t.Funcs[i].Seq >= 0 {
			t.Funcs[i].Seq = number(t.Funcs[i].Seq)
		}
	}
	for i := range t.List {
		if t.List[i].Seq >= 0 {
			t.List[i].Seq = number(t.List[i].Seq)
		}
	}
}

// tasksOf adds up the tasks of v; nil where the recording has none.
func tasksOf(v *view.View, base stack.Time) *Tasks {
	all := v.Tasks()
	if all == nil {
		return nil
	}
	out := &Tasks{What: all.What, Funcs: []TaskFunc{}, List: []Task{}}
	funcs := map[string]*TaskFunc{}
	for i := range all.List {
		t := &all.List[i]
		if t.OfRuntime() {
			out.Idle++
			continue
		}
		out.Count++
		x := Task{ID: t.ID, Name: t.Label, Func: t.Func, Seq: -1}
		times := timesOf(t)
		x.Ran, x.Ready, x.Waited = times.Ran, times.Ready, times.Waited
		why := map[string]int64{}
		for _, s := range t.Spans {
			ns := int64(s.To - s.From)
			switch {
			case s.Thread >= 0 && !s.Waits():
				if ns > x.Longest {
					x.Longest, x.At, x.Seq = ns, int64(s.From-base), v.Threads[s.Thread].Seq
				}
			case s.State != stack.TaskRunnable:
				why[s.Reason] += ns
			}
		}
		best := int64(0)
		for reason, ns := range why {
			if ns > best || ns == best && reason < x.Why {
				x.Why, best = reason, ns
			}
		}
		f := funcs[t.Func]
		if f == nil {
			f = &TaskFunc{Name: t.Func, Seq: -1}
			funcs[t.Func] = f
		}
		f.Tasks++
		f.Ran += x.Ran
		f.Ready += x.Ready
		f.Waited += x.Waited
		if x.Longest > f.Longest {
			f.Longest, f.At, f.Seq = x.Longest, x.At, x.Seq
		}
		out.List = append(out.List, x)
	}
	for _, f := range funcs {
		out.Funcs = append(out.Funcs, *f)
	}
	out.sort()
	return out
}

// sort orders and cuts the lists.
func (t *Tasks) sort() {
	slices.SortFunc(t.Funcs, func(a, b TaskFunc) int {
		return cmp.Or(cmp.Compare(b.Ran, a.Ran), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Process, b.Process))
	})
	if len(t.Funcs) > rows {
		t.Funcs = t.Funcs[:rows]
	}
	slices.SortFunc(t.List, func(a, b Task) int {
		return cmp.Or(cmp.Compare(b.Ran, a.Ran), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Process, b.Process), cmp.Compare(a.ID, b.ID))
	})
	if len(t.List) > maxTasks {
		t.More += len(t.List) - maxTasks
		t.List = t.List[:maxTasks]
	}
}
