package analysis

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/kind"
)

// Tracks are the tasks of a view over time, with the spans of view.Tasks, those that ran longest first.
type Tracks struct {
	What   string // "goroutine", "asyncio task", "virtual thread"
	List   []TaskTrack
	Idle   int           // the runtime's own, left out
	Lost   int           // as view.Tasks.Lost
	Stacks [][]TaskFrame // of TaskTrack.Seen
}

// TaskTrack is one task.
type TaskTrack struct {
	view.Task
	Times TaskTimes
	Seen  []Sighting // by time
}

// TaskTimes says how long a task was in which state, in ns.
type TaskTimes struct {
	Ran    int64 // on threads
	Ready  int64 // ready to run, on no thread
	Waited int64
}

// Sighting is where a scan of all tasks found one that waited.
type Sighting struct {
	At     stack.Time
	Reason string
	Stack  int // index in Tracks.Stacks
}

// TaskFrame is a frame of a waiting task.
type TaskFrame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

const (
	maxSightings   = 16 // of a task, consecutive equal ones counted once
	maxTaskStacks  = 10_000
	maxTaskFrames  = 64
	maxSourcePaths = 512 // bytes
)

// WithTasks returns which of several processes have tasks: the one with the most CPU time first, then the others in their
// order.
func WithTasks(all []*trace.Recording) (out []int) {
	busiest := 0 // in out
	for i, one := range all {
		if len(one.Tasks) == 0 {
			continue
		}
		if out = append(out, i); one.CPU() > all[out[busiest]].CPU() {
			busiest = len(out) - 1
		}
	}
	if busiest > 0 {
		first := out[busiest]
		copy(out[1:busiest+1], out[:busiest])
		out[0] = first
	}
	return out
}

// TracksOf returns the tasks of v; nil if the recording has none.
func TracksOf(v *view.View) *Tracks {
	all := v.Tasks()
	if all == nil {
		return nil
	}
	out := &Tracks{What: all.What, Lost: all.Lost}
	for i := range all.List {
		t := &all.List[i]
		if t.OfRuntime() {
			out.Idle++
			continue
		}
		out.List = append(out.List, TaskTrack{Task: *t, Times: timesOf(t)})
	}
	slices.SortFunc(out.List, func(a, b TaskTrack) int {
		return cmp.Or(cmp.Compare(b.Times.Ran, a.Times.Ran), cmp.Compare(b.Times.Ready+b.Times.Waited, a.Times.Ready+a.Times.Waited), cmp.Compare(a.ID, b.ID))
	})
	out.sightings(v)
	return out
}

func timesOf(t *view.Task) (x TaskTimes) {
	for i := range t.Spans {
		s := &t.Spans[i]
		ns := int64(s.To - s.From)
		switch {
		case s.Thread >= 0 && !s.Waits():
			x.Ran += ns
		case s.State == stack.TaskRunnable:
			x.Ready += ns
		default:
			x.Waited += ns
		}
	}
	return x
}

// sightings adds where scans found the tasks.
func (k *Tracks) sightings(v *view.View) {
	at := make(map[uint64]int, len(k.List))
	for i := range k.List {
		at[k.List[i].ID] = i
	}
	known := map[string]int{}
	for i := range v.Rec.Tasks {
		l := &v.Rec.Tasks[i]
		stacks := make([]int, len(l.Stacks)) // 1 + index in k.Stacks; 0: not resolved yet
		for j := range l.List {
			x := &l.List[j]
			n, ok := at[x.ID]
			reason, waits := view.WaitOf(l, x)
			if !ok || x.Stack < 0 || !waits {
				continue
			}
			t := &k.List[n]
			s := Sighting{At: l.At, Reason: reason}
			if stacks[x.Stack] == 0 {
				stacks[x.Stack] = k.stack(v, l, x.Stack, known) + 1
			}
			if s.Stack = stacks[x.Stack] - 1; s.Stack < 0 {
				continue
			}
			if m := len(t.Seen); m > 0 && t.Seen[m-1].Stack == s.Stack && t.Seen[m-1].Reason == s.Reason || m >= maxSightings {
				continue
			}
			t.Seen = append(t.Seen, s)
		}
	}
}

// stack resolves stack n of a scan, and returns its index in k.Stacks; -1: there are too many.
func (k *Tracks) stack(v *view.View, l *trace.Tasks, n int, known map[string]int) int {
	words := l.Stacks[n]
	words = words[:min(len(words), maxTaskFrames)]
	var key []byte
	for _, w := range words {
		key = binary.LittleEndian.AppendUint64(key, uint64(w))
	}
	if i, ok := known[string(key)]; ok {
		return i
	}
	if len(k.Stacks) >= maxTaskStacks {
		return -1
	}
	out := []TaskFrame{}
	for _, w := range words {
		for _, f := range v.Names.Resolve(w, l.At).Frames {
			out = append(out, TaskFrame{Name: v.FuncName(f.Func), File: view.Text(f.File, maxSourcePaths), Line: f.Line})
		}
	}
	known[string(key)] = len(k.Stacks)
	k.Stacks = append(k.Stacks, out)
	return len(k.Stacks) - 1
}

// Where returns where the task waited during span i, as the nearest scan found it; nil if none saw it wait
// for that reason.
func (t *TaskTrack) Where(i int) *Sighting {
	s := &t.Spans[i]
	var best *Sighting
	far := stack.Time(0)
	for j := range t.Seen {
		x := &t.Seen[j]
		if !s.Waits() || x.Reason != s.Reason {
			continue
		}
		if d := max(s.From-x.At, x.At-s.To, 0); best == nil || d < far {
			best, far = x, d
		}
	}
	return best
}

// SpanValue encodes the state of a span as those of threads are on the wire: a stack.State in the low 8
// bits, a Class in the upper 8.
func SpanValue(s *view.TaskSpan) uint32 {
	switch {
	case s.State == stack.TaskCall:
		return uint32(stack.StateBlocked) | uint32(kind.ClassIO)<<24
	case s.State == stack.TaskWaiting:
		return uint32(stack.StateBlocked) | uint32(reasonClass(s.Reason))<<24
	case s.Thread >= 0:
		return uint32(stack.StateRunning)
	case s.State == stack.TaskRunnable, s.State == stack.TaskPreempted:
		return uint32(stack.StateRunnable)
	}
	return uint32(stack.StateUnknown)
}

// reasonClass returns the class of a wait of a task, by its reason in waitReasonStrings of Go's
// runtime/runtime2.go. Tasks of other runtimes have none.
func reasonClass(reason string) kind.Class {
	switch reason {
	case "IO wait":
		return kind.ClassIO
	case "sleep":
		return kind.ClassSleep
	case "semacquire":
		return kind.ClassLock
	case "finalizer wait", "cleanup wait", "GC worker (idle)", "force gc (idle)", "timer goroutine (idle)":
		return kind.ClassIdle
	}
	if strings.HasPrefix(reason, "sync.Mutex.") || strings.HasPrefix(reason, "sync.RWMutex.") {
		return kind.ClassLock
	}
	return kind.ClassOther
}
