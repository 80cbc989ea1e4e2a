package idle

import (
	"path"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// language is the rules for the functions of one language. A nil rule, and a language without a row, mean
// the rules for machine code.
type language struct {
	starts func(f *Frame) bool // it is a thread's start routine
	waits  func(f *Frame) bool // it only forwards to a wait
	glue   func(f *Frame) bool // it only calls a function that was passed to it
	// conditions: the language builds its condition variables from locks, so the kind of lock proves
	// nothing, and waits decides.
	conditions bool
	// pooled decides alone about a stack from the language's innermost frame on; nil: the general rules do.
	pooled func(frames []Frame) bool
}

// languages are the rules, by kind. They name functions of the languages' own libraries.
var languages = [...]language{
	stack.KindJava: {
		starts: func(f *Frame) bool { return f.Name == "java.lang.Thread.run" || f.Name == "java.lang.Thread.runWith" },
		waits: func(f *Frame) bool {
			n := f.Name
			return hasPrefix(n, "java.util.concurrent.locks.", "jdk.internal.misc.Unsafe.", "sun.misc.Unsafe.", "java.lang.Object.wait") ||
				strings.HasPrefix(n, "java.util.concurrent.") && (strings.Contains(n, "ManagedBlock") || strings.Contains(n, "managedBlock")) ||
				strings.HasPrefix(n, "java.util.concurrent.") && (strings.Contains(n, "Queue") || strings.Contains(n, "Deque"))
		},
		glue: func(f *Frame) bool {
			n := f.Name
			return strings.Contains(n, "$$Lambda") || strings.Contains(n, ".lambda$") || hasPrefix(n, "java.util.concurrent.ThreadPoolExecutor$Worker.run", "java.util.concurrent.ThreadPoolExecutor.runWorker", "java.lang.VirtualThread.",
				"java.util.concurrent.ForkJoinWorkerThread.run", "java.util.concurrent.ForkJoinPool.runWorker", "java.util.concurrent.Executors$RunnableAdapter.call",
				"java.util.concurrent.FutureTask.run", "[")
		},
	},
	stack.KindPython: {
		starts: func(f *Frame) bool {
			b := base(f.Name)
			return path.Base(f.File) == "threading.py" && (b == "_bootstrap" || b == "_bootstrap_inner")
		},
		waits: func(f *Frame) bool {
			switch path.Base(f.File) {
			case "threading.py":
				b := base(f.Name)
				return b == "wait" || b == "wait_for"
			case "queue.py", "queues.py":
				return true
			case "thread.py":
				return base(f.Name) == "_worker"
			}
			return false
		},
		glue:       func(f *Frame) bool { return path.Base(f.File) == "threading.py" && base(f.Name) == "run" },
		conditions: true,
	},
	stack.KindRuby: {pooled: rubyPooled},
}

// languageOf returns the rules for a kind, read-only.
func languageOf(k stack.Kind) *language {
	if int(k) < len(languages) {
		return &languages[k]
	}
	return &languages[stack.KindNative] // no rules of its own
}
