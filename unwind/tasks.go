package unwind

import "github.com/sliverprof/sliver/stack"

// tasks records which task of a runtime a thread was seen to run, and what became of the previous one.
type tasks struct {
	known bool // some walk found out
	sure  bool // the last walk found out
	now   stack.Task
	left  stack.Task
}

// SetTask records the task that th ran when it was copied; the zero value: none. sure is false if this
// walk could not find out.
func (th *Thread) SetTask(now stack.Task, sure bool) {
	th.tasks.known, th.tasks.sure, th.tasks.now = true, sure, now
}

// SetLeft records the new state of the task that th ran before.
func (th *Thread) SetLeft(left stack.Task) { th.tasks.left = left }

// HasTasks reports whether any walk of th recorded a task.
func (th *Thread) HasTasks() bool { return th.tasks.known }

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
