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
	ids  map[asyncKey]uint64
	list []AsyncTask
	dict map[uint64]*currentTasks // by interpreter
}

// asyncKey tells tasks apart. A task's memory is taken by another one after its end,
// which has another name, unless the program gives the same name to several.
type asyncKey struct {
	task, coro uint64
	name       string
}

// currentTasks is where an interpreter has the tasks that its event loops run.
type currentTasks struct {
	at    uint64
	found bool
	tries int // in vain
}

// AsyncTasks are all tasks of asyncio that walks met so far, by ID.
func (s *Space) AsyncTasks() []AsyncTask {
	in := s.python.Load()
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
	if code := p.stack.CodeOf(task); code != 0 {
		in.mu.Lock()
		if h := in.codes[code]; h != nil {
			name += " " + h.code.Name
		}
		in.mu.Unlock()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	a := &in.async
	key := asyncKey{task.Addr, task.Coro, name}
	id = a.ids[key]
	if id == 0 && len(a.list) < MaxAsyncTasks {
		if a.ids == nil {
			a.ids = map[asyncKey]uint64{}
		}
		id = uint64(len(a.list) + 1)
		a.ids[key] = id
		a.list = append(a.list, AsyncTask{ID: id, Name: name})
	}
	return id, id != 0
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
