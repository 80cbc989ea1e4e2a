package idle

import (
	"path"

	"github.com/sliverprof/sliver/stack"
)

// Python's pools of processes take work in the loops of multiprocessing/pool.py and concurrent/futures/process.py (3.8 to
// 3.14). A task runs within the same loop, so that a wait is for work only if no other function is above it than those
// of a queue's reading end.

// poolLoops are these loops, by the last component of their names.
var poolLoops = map[string]bool{
	"worker": true, "_handle_workers": true, "_handle_tasks": true, "_handle_results": true, "_wait_for_updates": true,
	"_process_worker": true, "wait_result_broken_or_wakeup": true, "_queue_management_worker": true,
}

// poolFiles are the files with them, by their last two components.
var poolFiles = map[string]bool{"multiprocessing/pool.py": true, "futures/process.py": true}

// queueFiles are the files of what a queue's reading end calls.
var queueFiles = map[string]bool{
	"multiprocessing/queues.py": true, "multiprocessing/connection.py": true, "multiprocessing/synchronize.py": true,
}

// writers are functions of those files that wait until another process reads.
var writers = map[string]bool{"put": true, "send": true, "send_bytes": true}

// pythonPool reports whether a stack waits for work of such a pool.
func pythonPool(frames []Frame) bool {
	for i := range frames {
		f := &frames[i]
		if f.Kind != stack.KindPython {
			continue
		}
		name, file := base(f.Name), path.Base(path.Dir(f.File))+"/"+path.Base(f.File)
		switch {
		case poolFiles[file] && poolLoops[name]:
			return true
		case path.Base(f.File) == "selectors.py", queueFiles[file] && !writers[name]:
		default:
			return false
		}
	}
	return false
}
