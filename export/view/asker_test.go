package view_test

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// stackAt keeps the stack of a thread at its end.
type stackAt struct{ now []trace.Slice }

func (s *stackAt) Begin(_ stack.Time, _ int, x *trace.Slice) { s.now = append(s.now, *x) }
func (s *stackAt) End(stack.Time, int, *trace.Slice)         {}
func (s *stackAt) Other(event.Event)                         {}

// The asker of a wait is the caller of the locking code, in C, Go and Java. In Java it is
// neither the virtual machine nor java.util.concurrent.
func TestAsker(t *testing.T) {
	for _, c := range []struct{ stack, want string }{
		{"main serve pthread_mutex_lock __lll_lock_wait", "serve"},
		{"main serve", "serve"},
		{"main pool.(*P).take sync.(*Mutex).Lock sync.runtime_Semacquire", "pool.(*P).take"},
		{"thread_native_entry java.lang.Thread.run app.Shop.reserve [complete_monitor_locking] ObjectMonitor::enter os::PlatformEvent::park pthread_cond_wait", "app.Shop.reserve"},
		{"thread_native_entry java.lang.Thread.run app.Shop.book java.util.concurrent.locks.ReentrantLock.lock java.util.concurrent.locks.LockSupport.park Parker::park", "app.Shop.book"},
		{"thread_native_entry java.lang.Thread.run java.util.concurrent.LinkedBlockingQueue.take java.util.concurrent.locks.LockSupport.park Parker::park",
			"java.util.concurrent.LinkedBlockingQueue.take"},
		{"thread_native_entry java.lang.Thread.run java.util.concurrent.FutureTask.run app.Shop.ship java.util.concurrent.FutureTask.get java.util.concurrent.FutureTask.awaitDone java.util.concurrent.locks.LockSupport.park", "app.Shop.ship"},
		{"java.util.concurrent.ForkJoinTask.doExec app.Sum.compute java.util.concurrent.ForkJoinTask.join java.util.concurrent.ForkJoinTask.awaitDone java.util.concurrent.locks.LockSupport.park", "app.Sum.compute"},
		{"app.Shop.sum java.util.concurrent.ForkJoinPool.invoke java.util.concurrent.ForkJoinTask.awaitDone java.util.concurrent.locks.LockSupport.park", "app.Shop.sum"},
		{"app.Shop.meet java.util.concurrent.CyclicBarrier.await java.util.concurrent.CyclicBarrier.dowait java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await", "app.Shop.meet"},
		{"app.Shop.meet java.util.concurrent.Phaser.arriveAndAwaitAdvance java.util.concurrent.Phaser$QNode.block java.util.concurrent.locks.LockSupport.park", "app.Shop.meet"},
		{"app.Shop.swap java.util.concurrent.Exchanger.exchange java.util.concurrent.Exchanger.slotExchange java.util.concurrent.locks.LockSupport.park", "app.Shop.swap"},
		{"thread_native_entry GangWorker::loop PosixSemaphore::wait __new_sem_wait_slow64", "GangWorker::loop"},
		{"start_thread Pool#run Monitor#synchronize Thread::ConditionVariable#wait Thread::Mutex#sleep pthread_cond_wait", "Pool#run"},
		{"start_thread Pool#run Thread::Queue#pop pthread_cond_wait", "Thread::Queue#pop"},
		{"pthread_mutex_lock", ""},
	} {
		b := exporttest.New(t)
		b.Thread(7, "one").Look(exporttest.Look{At: 1e6, Stack: c.stack})
		v := view.New(b.Finish(2e6), view.Options{})
		s := &stackAt{}
		v.Replay(&v.Threads[0], s).Run()
		got := ""
		if i := v.Asker(s.now); i >= 0 {
			got = v.Names.Func(&s.now[i].Frame).Name
		}
		if got != c.want {
			t.Errorf("%s: %q asked, not %q", strings.ReplaceAll(c.stack, " ", " > "), got, c.want)
		}
	}
}
