package trace

import (
	"encoding/json"
	"fmt"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Tasks are all tasks of a runtime (goroutines, asyncio tasks) at one moment, as far as they
// were read, including those that no thread runs.
type Tasks struct {
	At   stack.Time `json:"at"`
	Took int64      `json:"took_ns"` // duration of the scan; no thread is stopped for it
	What string     `json:"what"`    // "goroutine", "asyncio", "virtual thread"
	// Reasons are the runtime's descriptions of waits, indexed by the reason of Task and
	// Parked events. The first one means unknown.
	Reasons []string `json:"reasons,omitempty"`
	// Stacks are the distinct stacks of List, innermost frame first.
	Stacks [][]event.Word `json:"stacks"`
	List   []Task         `json:"tasks"`          // by ID
	Lost   int            `json:"lost,omitempty"` // tasks left out: more than MaxTasks, or unreadable
}

// Task is one task.
type Task struct {
	ID     uint64          `json:"id"` // as in Task events
	Name   string          `json:"name,omitempty"`
	Parent uint64          `json:"parent,omitempty"` // the task that started it
	State  stack.TaskState `json:"state"`
	Reason uint8           `json:"reason,omitempty"` // why it waits
	Since  stack.Time      `json:"since,omitempty"`  // start of the wait; 0: unknown
	Locked bool            `json:"locked,omitempty"` // to its thread
	TID    stack.TID       `json:"tid,omitempty"`    // of the thread that runs it
	Stack  int             `json:"stack"`            // index in Stacks; -1: a thread runs it, or it was unreadable
	Cut    stack.Reason    `json:"cut,omitempty"`    // why the stack ends early
	Func   event.Word      `json:"func,omitempty"`   // its entry function
	Born   event.Word      `json:"born,omitempty"`   // where it was started
}

const (
	// MaxTasks limits one scan.
	MaxTasks = 200_000
	// maxLooks limits how many scans of a recording a reader keeps.
	maxLooks = 1 << 10
)

// Reason returns the description of reason n; "": there is none.
func (t *Tasks) Reason(n uint8) string {
	if n == 0 || int(n) >= len(t.Reasons) {
		return ""
	}
	return t.Reasons[n]
}

// LostTasks is the number of tasks left out of scans, summed over scans: a task that no scan
// could read counts in each.
type LostTasks struct {
	What  string // Tasks.What
	N     int
	In    int // scans that left some out
	Looks int
}

// LostTasks sums the tasks left out of the recording's scans.
func (r *Recording) LostTasks() LostTasks {
	var l LostTasks
	for i := range r.Tasks {
		l.Add(&r.Tasks[i])
	}
	return l
}

// Add counts a scan.
func (l *LostTasks) Add(t *Tasks) {
	l.What = t.What
	l.Looks++
	if t.Lost > 0 {
		l.In++
		l.N += min(t.Lost, 1<<40) // the sum of all scans cannot overflow, even in a hostile recording
	}
}

// String returns a text such as "3 goroutines missing in 1 of 2 looks at all of them"; "" if
// none are.
func (l LostTasks) String() string {
	if l.N == 0 {
		return ""
	}
	what := "task"
	switch l.What { // a hostile recording may have other values
	case "goroutine", "virtual thread":
		what = l.What
	case "asyncio":
		what = "asyncio task"
	}
	return fmt.Sprintf("%s missing in %d of %s at all of them", plural.Of(l.N, what), l.In, plural.Of(l.Looks, "look"))
}

// Tasks records a scan of all tasks.
func (r *Recorder) Tasks(t *Tasks) { r.noteLocked(chunkTasks, t) }

// Tasks writes a scan of all tasks.
func (w *Writer) Tasks(t *Tasks) error { return w.json(chunkTasks, t) }

// takeTasks reads one scan; an invalid index is an error.
func (rec *Recording) takeTasks(b []byte) error {
	var t Tasks
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	for i := range t.List {
		if s := t.List[i].Stack; s < -1 || s >= len(t.Stacks) {
			return fmt.Errorf("chunk %s: task %d has stack %d of %d", chunkTasks, t.List[i].ID, s, len(t.Stacks))
		}
	}
	if len(rec.Tasks) < maxLooks {
		rec.Tasks = append(rec.Tasks, t)
	}
	return nil
}

// cutTasks writes the scans inside the part, and the one before it.
func cutTasks(tw *Writer, rec *Recording, p Part) error {
	for i := range rec.Tasks {
		t := &rec.Tasks[i]
		if p.To != 0 && t.At > p.To || i+1 < len(rec.Tasks) && rec.Tasks[i+1].At <= p.From {
			continue
		}
		if err := tw.Tasks(t); err != nil {
			return err
		}
	}
	return nil
}

// eachTaskWord calls yield for the frames of all scanned tasks.
func (rec *Recording) eachTaskWord(yield func(w event.Word, at stack.Time)) {
	for i := range rec.Tasks {
		t := &rec.Tasks[i]
		for _, s := range t.Stacks {
			for _, w := range s {
				yield(w, t.At)
			}
		}
		for j := range t.List {
			for _, w := range [...]event.Word{t.List[j].Func, t.List[j].Born} {
				if w != 0 {
					yield(w, t.At)
				}
			}
		}
	}
}
