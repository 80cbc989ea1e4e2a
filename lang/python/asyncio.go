package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Task is an asyncio task.
type Task struct {
	Addr uint64 // of the task object
	Coro uint64 // of the coroutine that it runs
	Name uint64 // of the object that names it
}

// Offsets in asyncio's own structures, which are not in any header: struct TaskObj in
// Modules/_asynciomodule.c of 3.11.7, 3.12.1, 3.13.0 and 3.14.8 (checked with the words of an
// instance: task_name follows task_coro), and gi_iframe in PyGenObject.
var (
	taskCoro = map[int]uint64{11: 136, 12: 136, 13: 120, 14: 128}
	genFrame = map[int]uint64{11: 80, 12: 72, 13: 72, 14: 72}
)

// runningTask is the offset of asyncio_running_task in _PyThreadStateImpl from the end of
// PyThreadState, from 3.14 on (Include/internal/pycore_tstate.h).
const runningTask = 40

// maxLoops bounds the entries of the dict of event loops, because it is read for each stack.
const maxLoops = 1 << 12

// ErrNoAsyncio says that a process has not imported asyncio.
var ErrNoAsyncio = errors.New("asyncio is not there")

// HasTasks reports whether the tasks of this version can be read: from 3.11 on.
func (r *Runtime) HasTasks() bool { return taskCoro[r.img.Minor] != 0 }

// CurrentTasks returns the address of the dict with the current task of each event loop of an
// interpreter. It returns 0 if each thread stores its task instead. The error is ErrNoAsyncio, or
// the error of a read.
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

// Task returns the task that the thread ran at the last Capture into s: among the current tasks of
// the event loops, the one with its coroutine's frame in s. current is the result of CurrentTasks.
// Task reads current memory. ok is false if there is none.
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
	return t.proved(mem, t.last, s) // the loop may have moved on to another task
}

// HasGenerators reports whether a generator or coroutine is on the stack.
func (s *Stack) HasGenerators() bool { return s.generators }

// CodeOf returns the code object of the coroutine of a task on the stack, or 0 if it is not on the
// stack.
func (s *Stack) CodeOf(task Task) uint64 {
	for i := range s.Frames {
		if f := &s.Frames[i]; f.gen && f.Addr > task.Coro && f.Addr-task.Coro <= maxGenHead {
			return f.Code
		}
	}
	return 0
}

// maxGenHead bounds the bytes before the frame in a generator.
const maxGenHead = 96

// proved returns the task at addr if its coroutine is on the stack. Memory is read after the stop,
// so the coroutine may have ended and another task's may have its place. proved therefore requires
// that it still runs the same code.
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

// SameStep reports whether the thread is still in the same step of a task as at the last Capture.
// If it ran a task then, that task still exists. A loop runs each step in its own context, and the
// interpreter counts how often a thread enters and leaves a context (Python/context.c). mem is
// current memory.
func (t *Thread) SameStep(mem io.ReaderAt) bool {
	l := &t.r.l
	if l.tsContext == none {
		return false
	}
	b := t.buf[:min(l.tsSize, maxThreadState)]
	return read(mem, b, t.state.Addr) == nil && le(b, l.tsContext) == t.steps && le(b, l.tsInterp) == t.state.Interp &&
		le(b, l.tsThread) == t.state.Ident && int32(le(b, l.tsNative)) == t.state.Native
}

// TaskName returns the name of a task: Task.get_name.
func (r *Runtime) TaskName(mem io.ReaderAt, task Task) (string, error) {
	s, err := r.text(mem, task.Name)
	if err != nil {
		var n uint64
		if n, err = r.integer(mem, task.Name); err != nil { // from 3.12 on, it becomes a str on first use
			return "", fmt.Errorf("name of the task at %#x: %w", task.Addr, err)
		}
		s = "Task-" + strconv.FormatUint(n, 10)
	}
	// A task that has ended since has freed its name, whose memory may hold other data.
	var b [16]byte
	if err := read(mem, b[:], task.Addr+taskCoro[r.img.Minor]); err != nil {
		return "", fmt.Errorf("the task at %#x: %w", task.Addr, err)
	}
	if binary.LittleEndian.Uint64(b[:]) != task.Coro || binary.LittleEndian.Uint64(b[8:]) != task.Name {
		return "", fmt.Errorf("the task at %#x: %w", task.Addr, errTaskGone)
	}
	return s, nil
}

// errTaskGone: the task's memory holds another task, or none.
var errTaskGone = errors.New("it has ended")
