package idle_test

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
	"github.com/sliverprof/sliver/wait/kind"
)

// frames parses a stack, leaf first: "name" in the program, "name@module", "j:name" of
// Java, "p:name@file" of Python, "g:name" of Go, "r:name" of Ruby.
func frames(s string) (out []idle.Frame) {
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		f := idle.Frame{Module: "/opt/app/server"}
		name, at, ok := strings.Cut(line, "@")
		switch {
		case strings.HasPrefix(name, "j:"):
			f.Kind, f.Name, f.Module = stack.KindJava, name[2:], ""
		case strings.HasPrefix(name, "p:"):
			f.Kind, f.Name, f.File, f.Module = stack.KindPython, name[2:], at, ""
		case strings.HasPrefix(name, "r:"):
			f.Kind, f.Name, f.Module = stack.KindRuby, name[2:], ""
		case strings.HasPrefix(name, "g:"):
			f.Kind, f.Name = stack.KindGo, name[2:]
		default:
			if f.Name = name; ok {
				f.Module = at
			}
		}
		out = append(out, f)
	}
	return out
}

const (
	libc = "@/usr/lib/libc.so.6\n"
	// of Python's multiprocessing
	mpread = "read" + libc + "p:Connection._recv@/lib/multiprocessing/connection.py\np:_ConnectionBase.recv_bytes@/lib/multiprocessing/connection.py\n"
	mpmain = "p:BaseProcess.run@/lib/multiprocessing/process.py\np:BaseProcess._bootstrap@/lib/multiprocessing/process.py\nPy_RunMain@/usr/bin/python3.12\n" + main_
	omp    = "libomp.so.5+0xb15c0@/usr/lib/libomp.so.5\nlibomp.so.5+0xb7630@/usr/lib/libomp.so.5\nlibomp.so.5+0x49080@/usr/lib/libomp.so.5\nlibomp.so.5+0x7ac40@/usr/lib/libomp.so.5\nlibomp.so.5+0x478c0@/usr/lib/libomp.so.5\n__kmp_launch_worker@/usr/lib/libomp.so.5\n"
	cond   = "__futex_abstimed_wait_common64" + libc + "__futex_abstimed_wait_common" + libc + "pthread_cond_wait" + libc
	begun  = "start_thread" + libc + "clone3" + libc
	main_  = "main\n__libc_start_call_main" + libc + "__libc_start_main" + libc + "_start\n"
	park   = "pthread_cond_wait" + libc + "Parker::park@/jvm/libjvm.so\nUnsafe_Park@/jvm/libjvm.so\nj:jdk.internal.misc.Unsafe.park\nj:java.util.concurrent.locks.LockSupport.park\n"
	await  = park + "j:java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionNode.block\nj:java.util.concurrent.ForkJoinPool.unmanagedBlock\n" +
		"j:java.util.concurrent.ForkJoinPool.managedBlock\nj:java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await\n"
	java   = "j:java.lang.Thread.runWith\nj:java.lang.Thread.run\nJavaCalls::call_helper@/jvm/libjvm.so\nthread_native_entry@/jvm/libjvm.so\n" + begun
	python = "p:Thread.run@/usr/lib/python3.12/threading.py\np:Thread._bootstrap_inner@/usr/lib/python3.12/threading.py\np:Thread._bootstrap@/usr/lib/python3.12/threading.py\n" +
		"thread_run@/usr/bin/python3.12\n" + begun
	pywait = "do_futex_wait" + libc + "PyThread_acquire_lock_timed@/usr/bin/python3.12\np:Condition.wait@/usr/lib/python3.12/threading.py\n"
)

func TestOf(t *testing.T) {
	cv := &trace.Wait{Call: "futex", Kind: "lock", Lock: "condition variable"}
	sem := &trace.Wait{Call: "futex", Kind: "lock", Lock: "semaphore"}
	pipe := &trace.Wait{Call: "read", Kind: kind.WaitPipe}
	for _, c := range []struct {
		name  string
		w     *trace.Wait
		call  string
		stack string
		want  bool
	}{
		{"LLVM's OpenMP between parallel regions", cv, "", cond + omp + begun, true},
		{"oneTBB", nil, "futex", "syscall" + libc + "libtbb.so.12+0x18a0@/usr/lib/libtbb.so.12\nlibtbb.so.12+0x18f0@/usr/lib/libtbb.so.12\n" + begun, true},
		{"oneTBB in a task", nil, "futex", "syscall" + libc + "libtbb.so.12+0x18a0@/usr/lib/libtbb.so.12\nreduce\nlibtbb.so.12+0x18f0@/usr/lib/libtbb.so.12\n" + begun, false},
		{"LLVM's OpenMP, the program's own thread", cv, "", cond + "libomp.so.5+0xb15c0@/usr/lib/libomp.so.5\nGOMP_parallel@/usr/lib/libomp.so.5\nsolve\n" + main_, false},
		{"LLVM's OpenMP at a barrier", cv, "", cond + "libomp.so.5+0xb15c0@/usr/lib/libomp.so.5\n__kmpc_barrier@/usr/lib/libomp.so.5\nsolve\n" + omp + begun, false},
		{"Python's pool of processes, at its queue", pipe, "read", mpread + "p:SimpleQueue.get@/lib/multiprocessing/queues.py\np:worker@/lib/multiprocessing/pool.py\n" + mpmain, true},
		{"Python's pool of processes, for the queue's lock", sem, "", "do_futex_wait" + libc + "p:SemLock.__enter__@/lib/multiprocessing/synchronize.py\np:SimpleQueue.get@/lib/multiprocessing/queues.py\np:worker@/lib/multiprocessing/pool.py\n" + mpmain, true},
		{"Python's executor of processes", pipe, "read", mpread + "p:Queue.get@/lib/multiprocessing/queues.py\np:_process_worker@/lib/concurrent/futures/process.py\n" + mpmain, true},
		{"a pool's task that reads a pipe", pipe, "read", mpread + "p:fetch@/app/task.py\np:worker@/lib/multiprocessing/pool.py\n" + mpmain, false},
		{"a pool's result that is not taken", sem, "", "do_futex_wait" + libc + "p:SemLock.__enter__@/lib/multiprocessing/synchronize.py\np:SimpleQueue.put@/lib/multiprocessing/queues.py\np:worker@/lib/multiprocessing/pool.py\n" + mpmain, false},
		{"the program reads such a pipe", pipe, "read", mpread + "p:main@/app/main.py\n" + mpmain, false},
		{"redis bio", cv, "", cond + "bioProcessBackgroundJobs\n" + begun, true},
		{"jemalloc", cv, "", cond + "background_work_sleep\nbackground_thread_entry\n" + begun, true},
		{"jemalloc in redis", cv, "", cond + "je_background_thread_entry\n" + begun, true},
		{"getaddrinfo_a", cv, "", cond + "handle_requests" + libc + begun, true},
		{"getaddrinfo_a, stripped", cv, "", cond + "[libc.so.6+0x12345]" + libc + begun, true},
		{"jemalloc, stripped", cv, "", cond + "libjemalloc.so.2+0x39940@/usr/lib/libjemalloc.so.2\nlibjemalloc.so.2+0x39c30@/usr/lib/libjemalloc.so.2\n" + begun, true},
		{"deep in a stripped library", cv, "", cond + "libx.so+0x39940\nlibx.so+0x39c30\nlibx.so+0x30\n" + begun, false},
		{"libuv", cv, "", cond + "uv_cond_wait\nworker\n" + begun, true},
		{"a C pool", cv, "", cond + "work\n" + begun, true},
		{"a C pool with a queue", cv, "", cond + "queue_pop\nwork\n" + begun, true},
		{"a C++ pool", cv, "", cond + "std::condition_variable::wait(std::unique_lock<std::mutex>&)@/usr/lib/libstdc++.so.6\nThreadPool::run()::{lambda()#1}::operator()() const\n" +
			"std::__invoke_impl<void, X>\nstd::thread::_Invoker<X>::_M_invoke\nexecute_native_thread_routine@/usr/lib/libstdc++.so.6\n" + begun, true},
		{"a pool with semaphores", sem, "", "do_futex_wait" + libc + "sem_wait" + libc + "pool_get_job\nwork\n" + begun, true},
		{"a semaphore that is a lock", sem, "", "do_futex_wait" + libc + "sem_wait" + libc + "work\n" + begun, false},
		{"not yet known", nil, "futex", cond + "work\n" + begun, true},
		{"restarted, a pool", nil, "restart_syscall", cond + "work\n" + begun, true},
		{"restarted, Go's runtime", nil, "restart_syscall", "runtime.futex\nruntime.futexsleep\nruntime.notetsleep_internal\ng:runtime.notetsleep\ng:runtime.findRunnable\n", true},
		{"restarted, an event loop", nil, "restart_syscall", "poll" + libc + "g_main_loop_run@/usr/lib/libglib.so\n" + main_, true},
		{"restarted, the program's own wait", nil, "restart_syscall", "poll" + libc + "query\n" + main_, false},
		{"a mutex", &trace.Wait{Call: "futex", Lock: "mutex"}, "", "__lll_lock_wait" + libc + "pthread_mutex_lock" + libc + "work\n" + begun, false},
		{"the main thread's result", cv, "", cond + main_, false},
		{"a thread's answer", cv, "", cond + "call_server\nwork\n" + begun, false},
		{"stack cut off", cv, "", cond + "work\n", false},
		{"tokio", cv, "", "syscall" + libc + "tokio::runtime::scheduler::multi_thread::park::Inner::park_condvar\ntokio::runtime::scheduler::multi_thread::worker::Context::park_timeout\n", true},
		{"tokio's blocking pool", cv, "", "syscall" + libc + "std::sys::sync::condvar::futex::Condvar::wait_timeout\ntokio::runtime::blocking::pool::Inner::run\n" +
			"std::sys::backtrace::__rust_begin_short_backtrace\ncore::ops::function::FnOnce::call_once{{vtable.shim}}\nstd::sys::pal::unix::thread::Thread::new::thread_start\n" + begun, true},
		{"executor", cv, "", await + "j:java.util.concurrent.LinkedBlockingQueue.take\nj:java.util.concurrent.ThreadPoolExecutor.getTask\nj:java.util.concurrent.ThreadPoolExecutor.runWorker\n" +
			"j:java.util.concurrent.ThreadPoolExecutor$Worker.run\n" + java, true},
		{"scheduler", cv, "", await + "j:java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.take\n" + java, true},
		{"fork join", &trace.Wait{Call: "futex", Lock: "park"}, "", park + "j:java.util.concurrent.ForkJoinPool.awaitWork\nj:java.util.concurrent.ForkJoinPool.runWorker\n", true},
		{"fork join's timers", &trace.Wait{Call: "futex", Lock: "park"}, "", park + "j:java.util.concurrent.DelayScheduler.loop\nj:java.util.concurrent.DelayScheduler.run\n", true},
		{"own worker", cv, "", await + "j:java.util.concurrent.LinkedBlockingQueue.take\nj:app.Worker.run\n" + java, true},
		{"own worker of lambdas", cv, "", await + "j:java.util.concurrent.LinkedBlockingQueue.take\nj:app.Idle.lambda$main$4\nj:app.Idle$$Lambda/0x123.take\n" +
			"j:app.Idle.lambda$worker$5\nj:app.Idle$$Lambda/0x456.run\n" + java, true},
		{"a future", &trace.Wait{Call: "futex", Lock: "park"}, "", park + "j:java.util.concurrent.CompletableFuture$Signaller.block\nj:java.util.concurrent.CompletableFuture.get\n" +
			"j:app.Client.ask\nj:app.Worker.run\n" + java, false},
		{"a queue of answers", cv, "", await + "j:java.util.concurrent.LinkedBlockingQueue.take\nj:app.Client.ask\nj:app.Worker.run\n" + java, false},
		{"a Java lock", &trace.Wait{Call: "futex", Lock: "synchronizer"}, "", park + "j:java.util.concurrent.locks.ReentrantLock.lock\nj:app.Worker.run\n" + java, false},
		{"Python's executor", sem, "", "do_futex_wait" + libc + "p:_worker@/usr/lib/python3.12/concurrent/futures/thread.py\n" + python, true},
		{"Python's queue", sem, "", pywait + "p:Queue.get@/usr/lib/python3.12/queue.py\np:consume@/srv/app.py\n" + python, true},
		{"Python's answer", sem, "", pywait + "p:ask@/srv/app.py\np:consume@/srv/app.py\n" + python, false},
		{"a Python lock", sem, "", "do_futex_wait" + libc + "p:consume@/srv/app.py\n" + python, false},
		{"GIL", &trace.Wait{Call: "futex", Lock: "GIL"}, "", pywait + python, false},
		{"Ruby's worker", &trace.Wait{Call: "futex", Lock: "condition variable"}, "", cond + "native_sleep\nr:Thread::Queue#pop\nr:block (2 levels) in Pool#start\nr:Kernel#loop\nr:block in Pool#start\n" + begun, true},
		{"Ruby's worker of 3.1", &trace.Wait{Call: "ppoll", Kind: "lock", Lock: "condition variable"}, "", "ppoll" + libc + "r:pop\nr:block in next_job\nr:next_job\nr:block in start\n" + begun, true},
		{"Ruby's worker with a condition", &trace.Wait{Call: "futex", Lock: "condition variable"}, "", cond + "r:sleep\nr:wait\nr:block (2 levels) in spawn\nr:synchronize\nr:block in spawn\n" + begun, true},
		{"Ruby's main thread", &trace.Wait{Call: "futex", Lock: "condition variable"}, "", cond + "r:Thread::Queue#pop\nr:<main>\n" + main_, false},
		{"Ruby's result", &trace.Wait{Call: "futex", Lock: "condition variable"}, "", cond + "r:Thread::Queue#pop\nr:Client#ask\nr:block in Client#run\n" + begun, false},
		{"Ruby's room in a queue", &trace.Wait{Call: "futex", Lock: "condition variable"}, "", cond + "r:Thread::SizedQueue#push\nr:block in Pool#start\n" + begun, false},
		{"Ruby's sleep", &trace.Wait{Call: "futex", Kind: "sleep"}, "", cond + "r:sleep\nr:block in start\n" + begun, false},
		{"Ruby's timer thread", &trace.Wait{Call: "epoll_wait", Kind: "poll", Timeout: 10e6}, "", "epoll_wait" + libc + "timer_thread_func@/usr/lib/libruby-3.3.so.3.3\n" + begun, true},
		{"a P of Go's", &trace.Wait{Call: "futex", Lock: "go runtime"}, "", "g:runtime.futex\ng:runtime.mPark\ng:runtime.stopm\ng:runtime.findRunnable\ng:runtime.schedule\n", true},
		{"sysmon", &trace.Wait{Call: "nanosleep", Kind: "sleep"}, "", "g:runtime.usleep\ng:runtime.sysmon\ng:runtime.mstart1\n", true},
		{"Go's netpoll", &trace.Wait{Call: "epoll_pwait", Kind: "poll"}, "", "g:runtime.netpoll\ng:runtime.findRunnable\n", true},
		{"a goroutine's own thread", &trace.Wait{Call: "futex", Lock: "go runtime"}, "", "g:runtime.futex\ng:runtime.mPark\ng:runtime.stoplockedm\ng:runtime.schedule\n", false},
		{"event loop", &trace.Wait{Call: "epoll_wait", Kind: "poll"}, "", "epoll_wait" + libc + "aeApiPoll\naeProcessEvents\naeMain\n" + main_, true},
		{"PostgreSQL's lock", &trace.Wait{Call: "epoll_wait", Kind: "poll"}, "", "epoll_wait" + libc + "WaitEventSetWait\nWaitLatch\nProcSleep\nLockAcquireExtended\n" + main_, false},
		{"poll of one socket", &trace.Wait{Call: "poll", Kind: "poll", File: "tcp 10.0.0.5:5432 established"}, "", "poll" + libc + "pqWait\nquery\n" + main_, false},
		{"poll of a listening socket", &trace.Wait{Call: "poll", Kind: "poll", File: "tcp 0.0.0.0:80 listening"}, "", "poll" + libc + "serve\n" + main_, true},
		{"select of a listening socket and a pipe", &trace.Wait{Call: "pselect6", Kind: "poll", Args: "5 tcp 127.0.0.1:8000 listening, 7 pipe within the process, timeout 15s"}, "",
			"select" + libc + "p:SyncWorker.wait@/usr/lib/python3/dist-packages/gunicorn/workers/sync.py\n" + main_, true},
		{"a request that also polls a listening socket", &trace.Wait{Call: "poll", Kind: "poll", Args: "5 tcp 127.0.0.1:8000 listening, 7 tcp 10.0.0.5:443 established"}, "",
			"poll" + libc + "curl_multi_poll\ncurl_easy_perform\n" + main_, false},
		{"select of sockets of requests", &trace.Wait{Call: "pselect6", Kind: "poll", Args: "5 tcp 10.0.0.5:443 established, 7 pipe within the process"}, "",
			"select" + libc + "p:ask@/srv/app.py\n" + main_, false},
		{"a main loop", &trace.Wait{Call: "poll", Kind: "poll"}, "", "poll" + libc + "g_main_context_iterate\ng_main_loop_run\n" + main_, true},
		{"a main loop of its own", &trace.Wait{Call: "poll", Kind: "poll"}, "", "poll" + libc + "libxul.so+0x6f86db0\nlibglib-2.0.so.0+0x547a0\ng_main_context_iteration\nlibxul.so+0x6f87180\n" + main_, true},
		{"accept", &trace.Wait{Call: "accept4", Kind: "socket"}, "", "accept4" + libc + "serve\n" + main_, true},
		{"a signal", &trace.Wait{Call: "rt_sigtimedwait", Kind: "signal"}, "", begun, true},
		{"a sleep", &trace.Wait{Call: "clock_nanosleep", Kind: "sleep"}, "", "clock_nanosleep" + libc + "work\n" + begun, false},
		{"a read", &trace.Wait{Call: "read", Kind: "pipe"}, "", "read" + libc + "work\n" + begun, false},
		{"a child", &trace.Wait{Call: "wait4", Kind: "child"}, "", "wait4" + libc + "work\n" + begun, false},
		{"a join", &trace.Wait{Call: "futex", Lock: "join"}, "", "pthread_join" + libc + "work\n" + begun, false},
		{"HotSpot's own", &trace.Wait{Call: "futex", Kind: "idle"}, "", "", true},
		{"an eventfd", &trace.Wait{Call: "read", Kind: "event"}, "", "read" + libc + "work\n" + begun, true},
		{"OpenMP", &trace.Wait{Call: "futex", Lock: "futex"}, "", "gomp_team_barrier_wait_end\n", false},
	} {
		if got := idle.Of(c.w, c.call, frames(c.stack)); got != c.want {
			t.Errorf("%s: idle %v, want %v", c.name, got, c.want)
		}
		if c.want && !idle.May(c.w, c.call) {
			t.Errorf("%s: it may not be idle", c.name)
		}
	}
}

// FuzzOf checks that Of returns for any names.
func FuzzOf(f *testing.F) {
	f.Add("futex", "lock", "condition variable", cond+"work\n"+begun)
	f.Add("futex", "lock", "condition variable", "r:sleep\nr:wait\nr:block in start\n")
	f.Add("epoll_wait", "poll", "", "a::b::\n.\n:")
	f.Fuzz(func(t *testing.T, call, sort, lock, s string) {
		w := &trace.Wait{Call: call, Kind: kind.Wait(sort), Lock: kind.Lock(lock)}
		if idle.Of(w, "", frames(s)) && !idle.May(w, "") {
			t.Error("idle, but it may not be")
		}
	})
}
