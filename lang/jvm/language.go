package jvm

import (
	"errors"
	"strings"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// Language is Java.
var Language = &lang.Language{
	Name:   "Java",
	Stacks: Stacks,
	Range:  managed.Of(stack.KindJava),
	Final: func(err error) bool {
		var version *VersionError
		return errors.As(err, &version)
	},
	Open: func(_ *unwind.Space, st unwind.Stepper) lang.Runtime {
		h := st.(*hotspot)
		return &process{h: h, vm: h.rt}
	},
}

// process is the HotSpot of a process beside its stacks.
type process struct {
	lang.None
	h  *hotspot
	vm *Runtime
}

// ThreadNames implements lang.Runtime.
func (x *process) ThreadNames() map[int32]string { return x.vm.NamesByTID() }

// Tasks implements lang.Runtime.
func (x *process) Tasks() (what string, tasks []lang.Task) { return "virtual thread", x.h.tasks() }

// Carries implements lang.Runtime.
func (x *process) Carries(tid stack.TID) string {
	if thread := x.h.thread(tid); thread != 0 {
		return x.vm.Mounted(thread)
	}
	return ""
}

// Monitor implements lang.Runtime.
func (x *process) Monitor(tid int32) (wait.Monitor, bool) {
	thread := x.h.thread(stack.TID(tid))
	if thread == 0 {
		return wait.Monitor{}, false
	}
	m, ok := x.vm.Wanted(thread, tid)
	w := wait.Monitor{Impl: "hotspot", Kind: sorts[m.Sort], Addr: m.Addr, Class: m.Class, Unknown: m.Unknown, Locked: m.Locked, Holder: m.Owner, Readers: m.Readers, Why: m.Why}
	switch {
	case w.Kind == kind.LockSleep:
		w.Text = "Thread.sleep"
	case w.Kind == kind.LockCond && (m.Class == referenceQueue || m.Class == nativeReferenceQueue):
		w.Kind, w.Text = kind.LockIdle, "idle: no Java objects to clean up"
	case w.Kind == kind.LockCond && !strings.HasSuffix(m.Class, "$ConditionObject"):
		w.Text = "Object.wait"
	}
	return w, ok
}

// Classes that threads wait on to clean up objects that the garbage collector found
// dead (java.lang.ref.ReferenceQueue.remove of 17 to 25; 21 has the second, and a lock
// of java.util.concurrent where Java itself makes the queue): Finalizer, Common-Cleaner
// and threads of libraries.
const referenceQueue, nativeReferenceQueue = "java.lang.ref.ReferenceQueue$Lock", "java.lang.ref.NativeReferenceQueue$Lock"

// sorts maps the waits of Java threads to kinds of locks.
var sorts = [...]kind.Lock{Entering: kind.LockMonitor, Waiting: kind.LockCond, Synchronizer: kind.LockSynchronizer, Semaphore: kind.LockSemaphore,
	Condition: kind.LockCond, Initialization: kind.LockClassInit, Parked: kind.LockPark, Sleeping: kind.LockSleep}

// MonitorOwner implements lang.Runtime.
func (x *process) MonitorOwner(addr uint64) (locked bool, holder int32) {
	return x.vm.MonitorOwner(addr)
}

// LockName implements lang.Runtime.
func (x *process) LockName(l *lock.Lock) string {
	if l.Impl != "glibc" && l.Impl != "musl" {
		return ""
	}
	switch l.Kind {
	case kind.LockMutex:
		return x.vm.MutexName(l.Addr)
	case kind.LockCond:
		return x.vm.CondName(l.Addr)
	}
	return ""
}
