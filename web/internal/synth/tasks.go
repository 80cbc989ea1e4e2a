package synth

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Functions of goroutines, as indices in funcs.
const (
	fnServe = 4
	fnTimer = 5
	fnQuery = 7
	fnMark  = 30 // of the runtime
)

var (
	taskReasons = []string{"", "chan receive", "IO wait", "sync.Mutex.Lock", "sleep", "GC worker (idle)"}
	taskFuncs   = []int{fnServe, fnTimer, fnQuery}
)

const runtimeTasks = 3 // the first ones

func taskWord(f int) event.Word {
	return event.WordOf(&stack.Frame{PC: addr(f) + 12, Exact: true})
}

// scan returns a scan of all goroutines, none of which has a thread.
func scan(at stack.Time, n int) *trace.Tasks {
	l := &trace.Tasks{At: at, What: "goroutine", Reasons: taskReasons}
	for i := range taskFuncs {
		l.Stacks = append(l.Stacks, []event.Word{taskWord(20), taskWord(taskFuncs[i])})
	}
	for i := range n {
		x := trace.Task{ID: uint64(i + 1), Parent: uint64(i / 10), State: stack.TaskWaiting, Reason: uint8(1 + i%4), Stack: i % 3, Func: taskWord(taskFuncs[i%3])}
		if i < runtimeTasks {
			x.Reason, x.Stack, x.Func = 5, -1, taskWord(fnMark)
		}
		l.List = append(l.List, x)
	}
	return l
}

// runner lets thread k run its goroutines in turn: in sample n it may leave one and take another. Every
// fourth turn it runs none.
func runner(k int, o Options, n int, at stack.Time, df *diff.Differ, es []event.Event) []event.Event {
	mine := (o.Tasks - k + o.Threads - 1) / o.Threads // k+1, k+1+threads, …
	turn, first := n/turnSamples, n%turnSamples == 0
	if !first || mine <= 0 {
		return es
	}
	id := func(turn int) uint64 {
		if turn < 0 || turn%4 == 3 {
			return 0
		}
		// The first tasks run most often.
		return uint64(k + 1 + turn*turn%mine*o.Threads)
	}
	if was := id(turn - 1); was != 0 && was != id(turn) {
		x := stack.Task{ID: was, State: stack.TaskWaiting, Reason: uint8(1 + (was-1)%4)}
		if turn%5 == 0 {
			x = stack.Task{ID: was, State: stack.TaskRunnable}
		}
		es = df.Event(at, event.Parked, event.TaskOf(x), es)
	}
	now := stack.Task{ID: id(turn), State: stack.TaskRunning}
	if now.ID == 0 {
		now.State = stack.TaskUnknown
	}
	return df.Event(at, event.Task, event.TaskOf(now), es)
}

const turnSamples = 7
