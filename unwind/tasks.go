package unwind

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

// tasks is which goroutine a thread was seen to run, and what became of the one
// before: its data is copied at each stop, because it is the one that is expected.
type tasks struct {
	known bool   // some walk could tell
	sure  bool   // the last one could
	g     uint64 // address of the goroutine's data; 0: the thread runs none
	now   stack.Task
	left  stack.Task
}

// look takes in what was copied of the thread. Seen again, a copy says no more.
func (t *tasks) look(th *gopcln.Thread, mem rule.Words) {
	t.sure = false
	g, ok := th.Current(mem)
	if !ok {
		return
	}
	now := stack.Task{}
	if g != 0 {
		if now, ok = th.Task(g, mem); !ok {
			return
		}
	}
	t.sure = true
	if t.known && t.g != 0 && (g != t.g || now.ID != t.now.ID) {
		switch left, ok := th.Task(t.g, mem); {
		case !ok:
			t.left = stack.Task{ID: t.now.ID}
		case left.ID != t.now.ID: // its data is another goroutine's by now
			t.left = stack.Task{ID: t.now.ID, State: stack.TaskDone}
		default:
			t.left = left
		}
	}
	t.known, t.g, t.now = true, g, now
}

// Task is the task that th ran as of its last Walk (ID 0: none, or it could not be
// told), and what has become of the one that it ran before, once (ID 0: nothing is
// known). ok is false where no walk could ever tell: the program has no tasks.
func (th *Thread) Task() (now, left stack.Task, ok bool) {
	t := &th.tasks
	now, left, ok = t.now, t.left, t.known
	t.left = stack.Task{}
	if !t.sure {
		now = stack.Task{}
	}
	return now, left, ok
}
