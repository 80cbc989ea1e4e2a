package unwind

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// AsyncTask is one of asyncio's tasks that a walk met.
type AsyncTask struct {
	ID   uint64 // as Thread.Task has it; tasks are numbered as they are met
	Name string // asyncio's own for it, and that of the function that it runs
}

// MaxAsyncTasks bounds the tasks that are told apart; those that come later are not
// told at all.
const MaxAsyncTasks = 200_000

// asyncTasks are the tasks of asyncio that walks met. The interpreter's lock guards
// them.
type asyncTasks struct {
	met  map[asyncKey]*metTask
	list []AsyncTask
	dict map[uint64]*currentTasks // by interpreter
}

// asyncKey tells tasks apart. A task's memory is taken by another one after its end,
// which has another name, unless the program gives the same name to several.
type asyncKey struct {
	task, coro uint64
	name       string
}

// metTask is a task that was read.
type metTask struct {
	id uint64 // 0: no copy was proved to be of it yet
	nr uint64 // it was the nr-th thing that was read first: see pyPlan.reads
}

// currentTasks is where an interpreter has the tasks that its event loops run.
type currentTasks struct {
	at    uint64
	found bool
	tries int // in vain
}

// AsyncTasks are all tasks of asyncio that walks met so far, by ID.
func (s *Space) AsyncTasks() []AsyncTask {
	in := s.runtimes.Load().python
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.async.list)
}

// lookTask notes which task of asyncio th ran at the copy that was just read.
func (in *interpreter) lookTask(th *Thread) {
	t, p := &th.tasks, &th.python
	id, sure := uint64(0), true
	if in.rt.HasTasks() {
		id, sure = in.taskID(p)
	}
	if id == 0 && !t.known {
		return
	}
	if t.known, t.sure = true, sure; !sure {
		return
	}
	t.now = stack.Task{}
	if id != 0 {
		t.now = stack.Task{ID: id, State: stack.TaskRunning}
	}
}

// taskID is the number of the task that p's last Capture has; 0: none. Not sure: there may
// have been one, which has ended since.
//
// A task is read after the stop, and what is read may be one that was made since, in the same
// memory, by the same function. So it counts if it was there before the copy was made as well,
// or if the thread is in the same step still.
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
		return 0, false
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
		a.list = append(a.list, AsyncTask{ID: x.id, Name: name})
	}
	return x.id, x.id != 0
}

// meet is what is known of a task that was just read; nil: too many were. The interpreter's
// lock is held.
func (in *interpreter) meet(key asyncKey) *metTask {
	a := &in.async
	x := a.met[key]
	if x == nil && len(a.met) < 2*MaxAsyncTasks {
		if a.met == nil {
			a.met = map[asyncKey]*metTask{}
		}
		in.reads++
		x = &metTask{nr: in.reads}
		a.met[key] = x
	}
	return x
}

// maxTaskTries bounds how rarely a program with generators and without asyncio is
// looked at for it, in samples that have generators.
const maxTaskTries = 1 << 10

// currentTasks is what python.Runtime.CurrentTasks gives; ok is false where asyncio is not
// there yet.
func (in *interpreter) currentTasks(mem Memory, interp uint64) (at uint64, ok bool) {
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
