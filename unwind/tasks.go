package unwind

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

// tasks records which goroutine a thread was seen to run, and what became of the previous one. The
// previous goroutine's data is in each copy, because plans expect it to run again.
type tasks struct {
	known bool   // some walk found out
	sure  bool   // the last walk found out
	g     uint64 // address of the goroutine's data; 0: the thread runs none
	now   stack.Task
	left  stack.Task
}

// look updates t from the thread's copy. Looking at the same copy again changes nothing.
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
		case left.ID != t.now.ID: // another goroutine uses its data by now
			t.left = stack.Task{ID: t.now.ID, State: stack.TaskDone}
		default:
			t.left = left
		}
	}
	t.known, t.g, t.now = true, g, now
}

// Task returns the task that th ran as of its last Walk; ID 0 means none or unknown. left is the
// new state of the task that it ran before, reported once; ID 0 means unknown. ok is false if no
// walk ever found a task: the program has none.
func (th *Thread) Task() (now, left stack.Task, ok bool) {
	t := &th.tasks
	now, left, ok = t.now, t.left, t.known
	t.left = stack.Task{}
	if !t.sure {
		now = stack.Task{}
	}
	return now, left, ok
}
