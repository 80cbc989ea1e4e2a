// Package lang has the words in which a language's package describes itself to the programs that look at
// processes: how its runtime is found (unwind.Language), and what the runtime knows of threads, tasks and
// locks. A language is a folder below this one, a row in package session/internal/live,
// and the properties of its frames in package stack (kinds.go).
//
// It has no logic and knows no language. A Language is immutable, and any number of goroutines may use a
// Runtime at once.
package lang

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/lock"
)

// Language is one row of the list of languages.
type Language struct {
	Name string // of the language, in messages: "JavaScript"
	// Stacks is its runtime's part in walks. Its Name is that of the runtime: "V8".
	Stacks *unwind.Language
	// Range is the range of its functions' addresses. The zero value: they are machine code, and the
	// runtime is found without being followed.
	Range managed.Range
	// Direct: a single look at a process follows the runtime without a table. Runtime.Frames then names
	// the frames.
	Direct bool
	// Runs reports whether a file, by its path, is the interpreter, and every thread in its code runs functions
	// of the language: a stack in it without one has lost them. Nil: unknown.
	Runs func(file string) bool
	// Slow: the search takes longer than the first sample may be delayed, and the runtime knows nothing
	// of threads.
	Slow bool
	// Final reports whether an error of Stacks.Find says that the runtime can never be read. After other
	// errors it is looked for again soon.
	Final func(err error) bool
	// Open returns the Runtime of a Stepper that Stacks.Find returned for s.
	Open func(s *unwind.Space, st unwind.Stepper) Runtime
}

// A Runtime is the runtime of a language in one process. Thread numbers are those in the process's own PID
// namespace. A type embeds None for the calls that it does not implement.
type Runtime interface {
	// Problem returns why functions of the language are missing on the stacks of earlier samples; nil:
	// none is.
	Problem() error
	// ThreadNames returns the names that the runtime gives to threads; nil: it gives none.
	ThreadNames() map[int32]string
	// Tasks returns the tasks that threads were seen to run (unwind.Thread.Task), and what they are
	// called: "asyncio".
	Tasks() (what string, tasks []Task)
	// Carries names the task that a thread runs now; "": none, or unknown.
	Carries(thread stack.TID) string
	// GlobalLock returns the runtime's lock for which a thread sleeps on the futex word; ok is false if it
	// waits for another lock.
	GlobalLock(thread int32, word uint64) (g wait.GIL, ok bool)
	// Monitor returns the object of the language for which a thread sleeps on a futex; ok is false if it
	// waits for another lock.
	Monitor(thread int32) (m wait.Monitor, ok bool)
	// MonitorOwner returns the owner of the monitor at an address.
	MonitorOwner(addr uint64) (locked bool, holder int32)
	// LockName names one of the runtime's own locks; "": it is not one.
	LockName(l *lock.Lock) string
	// Frames drops the frames that the language does not show, and reads what names the others. It is
	// called right after a sample, only if the runtime is followed without a table.
	Frames(frames []stack.Frame) []stack.Frame
	// Function returns the function of a frame that Frames has seen, and the line in it; ok is false
	// if it is not known.
	Function(f *stack.Frame) (fn Function, ok bool)
}

// Task is one task of a runtime.
type Task struct {
	ID   uint64
	Name string // may be empty
}

// Function is a function at one line.
type Function struct {
	Name, File string
	Line       int // 0: unknown
}

// None is a Runtime that knows nothing.
type None struct{}

// The methods of Runtime.
func (None) Problem() error                                 { return nil }
func (None) ThreadNames() map[int32]string                  { return nil }
func (None) Tasks() (string, []Task)                        { return "", nil }
func (None) Carries(stack.TID) string                       { return "" }
func (None) GlobalLock(int32, uint64) (g wait.GIL, ok bool) { return g, false }
func (None) Monitor(int32) (m wait.Monitor, ok bool)        { return m, false }
func (None) MonitorOwner(uint64) (locked bool, holder int32) {
	return false, 0
}
func (None) LockName(*lock.Lock) string                   { return "" }
func (None) Frames(frames []stack.Frame) []stack.Frame    { return frames }
func (None) Function(*stack.Frame) (fn Function, ok bool) { return fn, false }
