package live

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/jvm"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/lock"
)

// seekJVM is the seeker for HotSpot.
func (t *Target) seekJVM(table *managed.Table) (found, again bool, err error) {
	if t.space.JVM() != nil {
		return true, false, nil
	}
	rt, err := t.space.FollowJVM(table)
	var version *jvm.VersionError
	return rt != nil, err != nil && !errors.As(err, &version), err
}

// Monitor implements wait.Config.Monitor.
func (t *Target) Monitor(nstid int32) (wait.Monitor, bool) {
	vm := t.space.JVM()
	if vm == nil {
		return wait.Monitor{}, false
	}
	thread := t.space.JavaThread(stack.TID(nstid))
	if thread == 0 {
		return wait.Monitor{}, false
	}
	m, ok := vm.Wanted(thread, nstid)
	return wait.Monitor{Kind: sorts[m.Sort], Addr: m.Addr, Class: m.Class, Unknown: m.Unknown, Locked: m.Locked, Holder: m.Owner, Readers: m.Readers, Why: m.Why}, ok
}

// sorts maps the waits of Java threads to kinds of locks.
var sorts = [...]lock.Kind{jvm.Entering: lock.Monitor, jvm.Waiting: lock.Cond, jvm.Synchronizer: lock.Synchronizer, jvm.Semaphore: lock.Semaphore,
	jvm.Condition: lock.Cond, jvm.Initialization: lock.ClassInit, jvm.Parked: lock.Park, jvm.Sleeping: lock.Sleep}

// MonitorOwner implements wait.Config.MonitorOwner.
func (t *Target) MonitorOwner(addr uint64) (locked bool, holder int32) {
	if vm := t.space.JVM(); vm != nil {
		return vm.MonitorOwner(addr)
	}
	return false, 0
}

// LockName implements wait.Config.LockName.
func (t *Target) LockName(l *lock.Lock) string {
	vm := t.space.JVM()
	if vm == nil || l.Impl != "glibc" && l.Impl != "musl" {
		return ""
	}
	switch l.Kind {
	case lock.Mutex:
		return vm.MutexName(l.Addr)
	case lock.Cond:
		return vm.CondName(l.Addr)
	}
	return ""
}
