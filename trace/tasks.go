package trace

import (
	"encoding/json"
	"fmt"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Tasks are all tasks of a runtime (goroutines, asyncio's) at one moment, as far as
// they were looked at: those that no thread runs too.
type Tasks struct {
	At   stack.Time `json:"at"`
	Took int64      `json:"took_ns"` // the look; nobody was stopped for it
	What string     `json:"what"`    // "goroutine", "asyncio", "virtual thread"
	// Reasons are the runtime's words for what a task waits for, by the number
	// that Task and Parked events have. The first one is for "not known".
	Reasons []string `json:"reasons,omitempty"`
	// Stacks are those of List, each once, innermost frame first.
	Stacks [][]event.Word `json:"stacks"`
	List   []Task         `json:"tasks"`          // by ID
	Lost   int            `json:"lost,omitempty"` // tasks that were left out: there were more than MaxTasks, or they could not be read
}

// Task is one of them.
type Task struct {
	ID     uint64          `json:"id"` // as Task events have it
	Name   string          `json:"name,omitempty"`
	Parent uint64          `json:"parent,omitempty"` // that started it
	State  stack.TaskState `json:"state"`
	Reason uint8           `json:"reason,omitempty"` // why it waits
	Since  stack.Time      `json:"since,omitempty"`  // it waits since; 0: not known
	Locked bool            `json:"locked,omitempty"` // to its thread
	TID    stack.TID       `json:"tid,omitempty"`    // of the thread that runs it
	Stack  int             `json:"stack"`            // in Stacks; -1: a thread runs it, or it could not be read
	Cut    stack.Reason    `json:"cut,omitempty"`    // why the stack ends early
	Func   event.Word      `json:"func,omitempty"`   // its first function
	Born   event.Word      `json:"born,omitempty"`   // where it was started
}

const (
	// MaxTasks bounds one look.
	MaxTasks = 200_000
	// maxLooks bounds the looks of a recording that a reader keeps.
	maxLooks = 1 << 10
)

// Reason is the word for number n; "": there is none.
func (t *Tasks) Reason(n uint8) string {
	if n == 0 || int(n) >= len(t.Reasons) {
		return ""
	}
	return t.Reasons[n]
}

// LostTasks is what looks at all tasks left out. It is added up over looks: a task that none
// of them could read counts in each.
type LostTasks struct {
	What  string // as Tasks has it
	N     int
	In    int // looks that left some out
	Looks int
}

// LostTasks adds up what the recording's looks at all tasks left out.
func (r *Recording) LostTasks() LostTasks {
	var l LostTasks
	for i := range r.Tasks {
		l.Add(&r.Tasks[i])
	}
	return l
}

// Add counts a look.
func (l *LostTasks) Add(t *Tasks) {
	l.What = t.What
	l.Looks++
	if t.Lost > 0 {
		l.In++
		l.N += min(t.Lost, 1<<40) // so many looks, even of a hostile recording, do not overflow it
	}
}

// String is such as "3 goroutines missing in 1 of 2 looks at all of them"; "" if none are.
func (l LostTasks) String() string {
	if l.N == 0 {
		return ""
	}
	what, looks := "task", "looks"
	switch l.What { // a hostile recording has others
	case "goroutine", "virtual thread":
		what = l.What
	case "asyncio":
		what = "asyncio task"
	}
	if l.N != 1 {
		what += "s"
	}
	if l.Looks == 1 {
		looks = "look"
	}
	return fmt.Sprintf("%d %s missing in %d of %d %s at all of them", l.N, what, l.In, l.Looks, looks)
}

// Tasks adds a look at all tasks.
func (r *Recorder) Tasks(t *Tasks) { r.noteLocked(chunkTasks, t) }

// Tasks writes a look at all tasks.
func (w *Writer) Tasks(t *Tasks) error { return w.json(chunkTasks, t) }

// takeTasks reads one look; what points nowhere is an error.
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

// cutTasks writes the looks inside the part, and the one before it.
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

// eachTaskWord calls yield for the frames of tasks that were looked at.
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
