package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Task is one of asyncio's tasks.
type Task struct {
	Addr uint64 // of the task object
	Coro uint64 // of the coroutine that it runs
	Name uint64 // of the object that names it
}

// What asyncio's own structures, which no header tells of, have where: struct TaskObj in
// Modules/_asynciomodule.c of 3.11.7, 3.12.1, 3.13.0 and 3.14.8 (an instance's words tell:
// task_name follows task_coro), and gi_iframe in PyGenObject.
var (
	taskCoro = map[int]uint64{11: 136, 12: 136, 13: 120, 14: 128}
	genFrame = map[int]uint64{11: 80, 12: 72, 13: 72, 14: 72}
)

// runningTask is how far behind the end of PyThreadState asyncio_running_task stands
// in _PyThreadStateImpl, from 3.14 on (Include/internal/pycore_tstate.h).
const runningTask = 40

// maxLoops bounds the entries of the dict that has an entry for each event loop: it is
// read for each stack.
const maxLoops = 1 << 12

// ErrNoAsyncio says that a process has not imported asyncio.
var ErrNoAsyncio = errors.New("asyncio is not there")

// HasTasks reports whether this version's tasks can be told: they cannot up to 3.10.
func (r *Runtime) HasTasks() bool { return taskCoro[r.img.Minor] != 0 }

// CurrentTasks is the address of the dict in which asyncio has the task that each
// event loop of an interpreter runs; 0 where there is none: each thread has it then.
// The error is ErrNoAsyncio, or what kept it from reading.
func (r *Runtime) CurrentTasks(mem io.ReaderAt, interp uint64) (uint64, error) {
	if r.l.tsTask != none {
		return 0, nil
	}
	modules, err := word(mem, interp+r.l.interpModules)
	if err != nil {
		return 0, err
	}
	module, err := r.item(mem, modules, "_asyncio")
	if errors.Is(err, errNoEntry) {
		return 0, ErrNoAsyncio
	}
	if err != nil {
		return 0, err
	}
	dict, err := word(mem, module+moduleDict)
	if err != nil {
		return 0, err
	}
	return r.item(mem, dict, "_current_tasks")
}

// Task tells which task the thread ran at the last Capture into s: of those that
// event loops run, the one whose coroutine has its frame there. current is what
// CurrentTasks gave. It reads memory as it is now; ok is false where there is none.
func (t *Thread) Task(mem io.ReaderAt, current uint64, s *Stack) (task Task, ok bool) {
	if !s.generators {
		return task, false
	}
	if t.r.l.tsTask != none {
		return t.proved(mem, t.task, s)
	}
	d, err := t.r.dictUpTo(mem, current, maxLoops)
	if err != nil {
		return task, false
	}
	for i := range d.n {
		if key, value := d.entry(i); key != 0 && value != 0 {
			if task, ok = t.proved(mem, value, s); ok {
				t.last = value
				return task, true
			}
		}
	}
	return t.proved(mem, t.last, s) // the loop has gone on to another one since
}

// HasGenerators reports whether a generator or coroutine is on the stack.
func (s *Stack) HasGenerators() bool { return s.generators }

// CodeOf is the code object of the coroutine that a task of the stack runs; 0: it is not there.
func (s *Stack) CodeOf(task Task) uint64 {
	for i := range s.Frames {
		if f := &s.Frames[i]; f.gen && f.Addr > task.Coro && f.Addr-task.Coro <= maxGenHead {
			return f.Code
		}
	}
	return 0
}

// maxGenHead is more than what stands before the frame in a generator.
const maxGenHead = 96

// proved is the task at addr, if its coroutine is on the stack. As memory is read after the
// stop, the coroutine that was on the stack may have ended, and another task's have its place:
// so it has to run the same code still.
func (t *Thread) proved(mem io.ReaderAt, addr uint64, s *Stack) (task Task, ok bool) {
	var b [16]byte
	if addr == 0 || addr&7 != 0 || read(mem, b[:], addr+taskCoro[t.r.img.Minor]) != nil {
		return task, false
	}
	task = Task{Addr: addr, Coro: binary.LittleEndian.Uint64(b[:]), Name: binary.LittleEndian.Uint64(b[8:])}
	frame := task.Coro + genFrame[t.r.img.Minor]
	for i := range s.Frames {
		if f := &s.Frames[i]; f.gen && f.Addr == frame {
			code, err := word(mem, frame+t.r.l.fCode)
			return task, err == nil && code&^7 == f.Code
		}
	}
	return task, false
}

// SameStep reports whether the thread is in the same step of a task now as it was at the last
// Capture: the task that it ran then is there still, if it ran one. A loop runs each step in a
// context of its own, and the interpreter counts how often a thread enters and leaves one
// (Python/context.c). mem is memory as it is now.
func (t *Thread) SameStep(mem io.ReaderAt) bool {
	l := &t.r.l
	if l.tsContext == none {
		return false
	}
	b := t.buf[:min(l.tsSize, maxThreadState)]
	return read(mem, b, t.state.Addr) == nil && le(b, l.tsContext) == t.steps && le(b, l.tsInterp) == t.state.Interp &&
		le(b, l.tsThread) == t.state.Ident && int32(le(b, l.tsNative)) == t.state.Native
}

// TaskName is what asyncio calls a task: Task.get_name.
func (r *Runtime) TaskName(mem io.ReaderAt, task Task) (string, error) {
	s, err := r.text(mem, task.Name)
	if err != nil {
		var n uint64
		if n, err = r.integer(mem, task.Name); err != nil { // it becomes a str when it is asked for, from 3.12 on
			return "", fmt.Errorf("name of the task at %#x: %w", task.Addr, err)
		}
		s = "Task-" + strconv.FormatUint(n, 10)
	}
	// A task that ended meanwhile has let go of its name, whose memory says something else then.
	var b [16]byte
	if err := read(mem, b[:], task.Addr+taskCoro[r.img.Minor]); err != nil {
		return "", fmt.Errorf("the task at %#x: %w", task.Addr, err)
	}
	if binary.LittleEndian.Uint64(b[:]) != task.Coro || binary.LittleEndian.Uint64(b[8:]) != task.Name {
		return "", fmt.Errorf("the task at %#x: %w", task.Addr, errTaskGone)
	}
	return s, nil
}

// errTaskGone: another task has the place of the one that was looked at, or none.
var errTaskGone = errors.New("it has ended")
