package python

import (
	"slices"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// MaxAsyncTasks bounds the tasks with an ID. Tasks found after that are not reported.
const MaxAsyncTasks = 200_000

// asyncTasks holds the asyncio tasks that walks found. The interpreter's lock guards it.
type asyncTasks struct {
	met  map[asyncKey]*metTask
	list []lang.Task              // numbered in order of discovery; the name is asyncio's and that of its function
	dict map[uint64]*currentTasks // by interpreter
	of   map[uint64]uint64        // the task of a coroutine that was met last
}

// asyncKey identifies a task. After a task ends, another may reuse its memory; the name
// distinguishes them unless the program gives both the same name.
type asyncKey struct {
	task, coro uint64
	name       string
}

// metTask is a task that was read.
type metTask struct {
	id uint64 // 0: no copy was proved to belong to it yet
	nr uint64 // sequence number of the first read: see pyPlan.reads
}

// currentTasks locates the tasks that an interpreter's event loops run.
type currentTasks struct {
	at    uint64
	found bool
	tries int // failed attempts
}

// tasks returns all asyncio tasks that walks found so far, by ID.
func (in *interpreter) tasks() []lang.Task {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.async.list)
}

// lookTask records which asyncio task th ran in the copy that was just read.
func (in *interpreter) lookTask(th *unwind.Thread) {
	p := pyThreads.Of(th)
	id, sure := uint64(0), true
	if in.rt.HasTasks() {
		id, sure = in.taskID(p)
	}
	if id == 0 && !th.HasTasks() {
		return
	}
	now := stack.Task{}
	if sure && id != 0 {
		now = stack.Task{ID: id, State: stack.TaskRunning}
	}
	th.SetTask(now, sure)
}

// taskID returns the number of the task in p's last Capture, or 0 if there is none. If sure is
// false, there may have been a task that has ended since.
//
// A task is read after the stop. By then its memory may hold a newer task that runs the same
// function. The task is therefore accepted only if it was known before the copy was made, or if the
// thread is still in the same step.
func (in *interpreter) taskID(p *pyThread) (id uint64, sure bool) {
	if !p.stack.HasGenerators() {
		return 0, true
	}
	at, ok := in.currentTasks(p.live, p.th.State().Interp)
	if !ok {
		return 0, true
	}
	task, ok := p.th.Task(p.live, at, &p.stack)
	if !ok {
		if task, ok = in.metBefore(p); !ok {
			return 0, false
		}
	}
	name, err := in.rt.TaskName(p.live, task)
	if err != nil {
		return 0, false
	}
	in.mu.Lock()
	if h := in.codes[p.stack.CodeOf(task)]; h != nil {
		name += " " + h.code.Name
	}
	x := in.meet(asyncKey{task.Addr, task.Coro, name})
	sure = x != nil && x.id != 0 && x.nr <= p.plan.reads
	in.mu.Unlock()
	switch {
	case sure:
		return x.id, true
	case x == nil:
		return 0, false
	case x.nr > p.plan.reads && !p.th.SameStep(p.live):
		return 0, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if a := &in.async; x.id == 0 && len(a.list) < MaxAsyncTasks {
		x.id = uint64(len(a.list) + 1)
		a.list = append(a.list, lang.Task{ID: x.id, Name: name})
	}
	return x.id, x.id != 0
}

// metBefore returns the task of a coroutine on p's stack that was met before. By now, the thread may run another task: a copy
// of an unplanned moment is some ticks old.
func (in *interpreter) metBefore(p *pyThread) (task Task, ok bool) {
	for i := range p.stack.Frames {
		f := &p.stack.Frames[i]
		if !f.gen {
			continue
		}
		in.mu.Lock()
		addr := in.async.of[f.Addr-genFrame[in.rt.img.Minor]]
		in.mu.Unlock()
		if task, ok = p.th.proved(p.live, addr, &p.stack); ok {
			return task, true
		}
	}
	return task, false
}

// meet returns the entry of a task that was just read, or nil if there are too many tasks. The
// caller holds the interpreter's lock.
func (in *interpreter) meet(key asyncKey) *metTask {
	a := &in.async
	x := a.met[key]
	if x == nil && len(a.met) < 2*MaxAsyncTasks {
		if a.met == nil {
			a.met, a.of = map[asyncKey]*metTask{}, map[uint64]uint64{}
		}
		in.reads++
		x = &metTask{nr: in.reads}
		a.met[key] = x
	}
	if x != nil {
		a.of[key.coro] = key.task
	}
	return x
}

// maxTaskTries bounds the backoff of the search for asyncio in a program that has generators. It
// counts samples with generators.
const maxTaskTries = 1 << 10

// currentTasks returns the result of Runtime.CurrentTasks. ok is false if asyncio is not
// loaded yet.
func (in *interpreter) currentTasks(mem unwind.Memory, interp uint64) (at uint64, ok bool) {
	in.mu.Lock()
	a := &in.async
	if a.dict == nil {
		a.dict = map[uint64]*currentTasks{}
	}
	c := a.dict[interp]
	if c == nil {
		c = &currentTasks{}
		a.dict[interp] = c
	}
	at, ok = c.at, c.found
	if !ok {
		c.tries++
	}
	seek := !ok && (c.tries&(c.tries-1) == 0 || c.tries%maxTaskTries == 0)
	in.mu.Unlock()
	if !seek {
		return at, ok
	}
	at, err := in.rt.CurrentTasks(mem, interp)
	if err != nil {
		return 0, false
	}
	in.mu.Lock()
	c.at, c.found = at, true
	in.mu.Unlock()
	return at, true
}
