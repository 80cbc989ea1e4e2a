package live

import (
	"errors"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/lock"
)

var java = &lang.Language{
	Name:   "Java",
	Stacks: unwind.JVM,
	Range:  managed.Java,
	Final: func(err error) bool {
		var version *jvm.VersionError
		return errors.As(err, &version)
	},
	Open: func(s *unwind.Space, _ unwind.Stepper) lang.Runtime { return &jvmRuntime{space: s, vm: s.JVM()} },
}

// jvmRuntime is the HotSpot of a process.
type jvmRuntime struct {
	lang.None
	space *unwind.Space
	vm    *jvm.Runtime
}

// ThreadNames implements lang.Runtime.
func (x *jvmRuntime) ThreadNames() map[int32]string { return x.vm.NamesByTID() }

// Tasks implements lang.Runtime.
func (x *jvmRuntime) Tasks() (what string, tasks []lang.Task) {
	for _, v := range x.space.VirtualThreads() {
		tasks = append(tasks, lang.Task(v))
	}
	return "virtual thread", tasks
}

// Carries implements lang.Runtime.
func (x *jvmRuntime) Carries(tid stack.TID) string {
	if thread := x.space.JavaThread(tid); thread != 0 {
		return x.vm.Mounted(thread)
	}
	return ""
}

// Monitor implements lang.Runtime.
func (x *jvmRuntime) Monitor(tid int32) (wait.Monitor, bool) {
	thread := x.space.JavaThread(stack.TID(tid))
	if thread == 0 {
		return wait.Monitor{}, false
	}
	m, ok := x.vm.Wanted(thread, tid)
	return wait.Monitor{Kind: sorts[m.Sort], Addr: m.Addr, Class: m.Class, Unknown: m.Unknown, Locked: m.Locked, Holder: m.Owner, Readers: m.Readers, Why: m.Why}, ok
}

// sorts maps the waits of Java threads to kinds of locks.
var sorts = [...]lock.Kind{jvm.Entering: lock.Monitor, jvm.Waiting: lock.Cond, jvm.Synchronizer: lock.Synchronizer, jvm.Semaphore: lock.Semaphore,
	jvm.Condition: lock.Cond, jvm.Initialization: lock.ClassInit, jvm.Parked: lock.Park, jvm.Sleeping: lock.Sleep}

// MonitorOwner implements lang.Runtime.
func (x *jvmRuntime) MonitorOwner(addr uint64) (locked bool, holder int32) {
	return x.vm.MonitorOwner(addr)
}

// LockName implements lang.Runtime.
func (x *jvmRuntime) LockName(l *lock.Lock) string {
	if l.Impl != "glibc" && l.Impl != "musl" {
		return ""
	}
	switch l.Kind {
	case lock.Mutex:
		return x.vm.MutexName(l.Addr)
	case lock.Cond:
		return x.vm.CondName(l.Addr)
	}
	return ""
}
