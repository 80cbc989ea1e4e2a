package testprog

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
)

// Prompt makes the test's goroutine and some threads of its program run before what else the machine does, such as other tests, if the
// user may: for tests that need them to be on CPUs at the same time. The goroutine keeps its OS thread, which ends with it.
func Prompt[T ~int | ~int32](t testing.TB, tids []T) {
	t.Helper()
	const nice = -10
	runtime.LockOSThread()
	for _, tid := range slices.Concat(tids, []T{0}) { // 0: the caller's own thread
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, int(tid), nice); err != nil {
			t.Logf("thread %d keeps its priority: %v", tid, err)
		}
	}
}
