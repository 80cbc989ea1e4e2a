package wait_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/graph"
	"github.com/sliverprof/sliver/wait/kind"
)

func TestDescriptors(t *testing.T) {
	dir := t.TempDir()
	p := testprog.Start(t, build(t, "gcc", "fds.c"), dir)
	var s struct {
		Child int
		Open  []struct {
			FD   int
			Want string
		}
		Threads []struct {
			Name string
			TID  stack.TID
			Want string
		}
	}
	say(t, p, &s)
	v := look(t, p.PID)
	kinds := map[string]kind.Wait{"pipe-read": kind.WaitPipe, "pipe-write": kind.WaitPipe, "pipe-self": kind.WaitPipe,
		"unix-client": kind.WaitSocket, "unix-pair": kind.WaitSocket, "accept": kind.WaitSocket, "tcp": kind.WaitSocket,
		"udp": kind.WaitSocket, "udp6": kind.WaitSocket, "eventfd": kind.WaitEvent, "timerfd": kind.WaitEvent, "signalfd": kind.WaitEvent,
		"epoll_wait": kind.WaitPoll, "poll": kind.WaitPoll, "select": kind.WaitPoll, "inotify": kind.WaitEvent,
		"waitid-pidfd": kind.WaitChild, "wait4": kind.WaitChild, "nanosleep": kind.WaitSleep, "sigwait": kind.WaitSignal,
		"msgrcv": kind.WaitIPC, "semop": kind.WaitIPC, "mq": kind.WaitIPC, "terminal": kind.WaitTerminal, "fifo": kind.WaitPipe, "open-fifo": kind.WaitFile}
	calls := map[string]string{"pipe-write": "write", "accept": "accept", "epoll_wait": "epoll_wait epoll_pwait", "poll": "poll ppoll", "select": "select pselect6",
		"waitid-pidfd": "waitid", "wait4": "wait4", "nanosleep": "nanosleep clock_nanosleep", "sigwait": "rt_sigtimedwait", "msgrcv": "msgrcv", "semop": "semop semtimedop", "mq": "mq_timedreceive", "open-fifo": "open openat"}
	if len(s.Threads) < 20 {
		t.Fatalf("only %d threads", len(s.Threads))
	}
	for _, th := range s.Threads {
		call := calls[th.Name]
		if call == "" {
			call = "read"
		}
		var state wait.Thread
		i := v.resolve(&state, th.TID, nil, strings.Fields(call)...)
		if !strings.Contains(i.Args, th.Want) {
			t.Errorf("%s: args %q lack %q (%s)", th.Name, i.Args, th.Want, i.Why)
		}
		if i.Kind == kind.WaitIPC && i.File != th.Want {
			t.Errorf("%s: waits for %q, want %q", th.Name, i.File, th.Want)
		}
		if want, ok := kinds[th.Name]; !ok || i.Kind != want {
			t.Errorf("%s: kind %q, want %q", th.Name, i.Kind, want)
		}
		if strings.Contains(th.Want, "PID") && i.PeerPID != s.Child {
			t.Errorf("%s: peer %d, want %d", th.Name, i.PeerPID, s.Child)
		}
		switch th.Name {
		case "epoll_wait", "nanosleep", "sigwait":
			if i.Timeout != time.Hour {
				t.Errorf("%s: timeout %v", th.Name, i.Timeout)
			}
		default:
			if i.Timeout != 0 {
				t.Errorf("%s: timeout %v", th.Name, i.Timeout)
			}
		}
		if (th.Name == "wait4" || th.Name == "waitid-pidfd") && i.Child != s.Child {
			t.Errorf("%s: child %d, want %d", th.Name, i.Child, s.Child)
		}
	}
	tab := files.New(files.Config{PID: p.PID, Proc: v.dir, Sys: v.sys, Now: func() int64 { return 1 }})
	for _, o := range s.Open {
		if d := tab.Describe(o.FD); d.Text != o.Want {
			t.Errorf("%+v, want %q", d, o.Want)
		}
	}
	if d := tab.Describe(1 << 20); d.Why == "" || d.Kind != files.Nothing {
		t.Errorf("a descriptor that is not open: %+v", d)
	}
}

func TestDeadlockOfThree(t *testing.T) {
	for _, how := range []string{"gcc", "musl-gcc"} {
		p := testprog.Start(t, build(t, how, "deadlock.c"))
		var s struct {
			Threads []stack.TID
			Locks   []string
		}
		say(t, p, &s)
		v := look(t, p.PID)
		all := []graph.Thread{{PID: p.PID, TID: stack.TID(p.PID)}}
		states := map[stack.TID]*wait.Thread{}
		still := map[stack.TID]func() bool{}
		for _, tid := range s.Threads {
			states[tid] = &wait.Thread{}
			l := v.blocked(tid, "futex")
			// The last thread to hold its lock may still be on its way through the barrier.
			for l.Call.Args[0]-hexa(t, s.Locks[0]) > 3*40 {
				l = v.blocked(tid, "futex")
			}
			still[tid] = l.Still
			i, _ := v.r.Resolve(states[tid], &l)
			all = append(all, graph.Thread{PID: p.PID, TID: tid, Info: i})
		}
		got := graph.Deadlocks(all, func(th *graph.Thread) bool {
			return still[th.TID]() && !v.r.Refresh(states[th.TID])
		})
		if len(got) != 1 || len(got[0].Threads) != 3 {
			t.Fatalf("%s: %+v", how, got)
		}
		for i, th := range got[0].Threads {
			at := -1
			for j, tid := range s.Threads {
				if tid == th.TID {
					at = j
				}
			}
			if at < 0 || th.Info.Lock.Addr != hexa(t, s.Locks[(at+1)%3]) || got[0].Threads[(i+1)%3].TID != s.Threads[(at+1)%3] {
				t.Errorf("%s: %d waits for %+v", how, th.TID, th.Info.Lock)
			}
		}
	}
}

func TestConvoyOfFifty(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "normal", "50")
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	var all []graph.Thread
	states := make([]wait.Thread, len(s.Waiters))
	for i, tid := range s.Waiters {
		all = append(all, graph.Thread{PID: p.PID, TID: tid, Info: v.resolve(&states[i], tid, nil, "futex")})
	}
	got := graph.Convoys(all, 50)
	if len(got) != 1 || len(got[0].Waiters) != 50 || got[0].Lock.Addr != hexa(t, s.Lock) || got[0].Lock.Holder.TID != s.Holder {
		t.Fatalf("%+v", got)
	}
	if d := graph.Deadlocks(all, nil); len(d) != 0 {
		t.Errorf("deadlocks %+v", d)
	}
}

// Two processes map one lock at two addresses: both must get the same key.
func TestSharedLockIsOne(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "shared-recursive", "3")
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	keys := map[wait.Key]bool{}
	for _, tid := range s.Waiters {
		var th wait.Thread
		i := v.resolve(&th, tid, nil, "futex")
		keys[i.Lock.Key] = true
		if i.Lock.Holder.TID != s.Holder || i.Lock.Holder.By != event.KnownByWord || s.Holder == stack.TID(p.PID) {
			t.Errorf("%+v", i.Lock)
		}
	}
	if len(keys) != 1 {
		t.Errorf("%v", keys)
	}
	for k := range keys {
		if k.PID != 0 || k.Inode == 0 {
			t.Errorf("%+v", k)
		}
	}
}

// An unchanged wait must not cause any read.
func TestUnchangedReadsNothing(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "recursive")
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	var th wait.Thread
	first := v.resolve(&th, s.Waiters[0], nil, "futex")
	l := v.blocked(s.Waiters[0], "futex")
	l.Still = func() bool { t.Error("asked"); return true }
	l.Names = func() []string { t.Error("names wanted"); return nil }
	if n := testing.AllocsPerRun(100, func() {
		if i, res := v.r.Resolve(&th, &l); res != wait.Unchanged || i != first {
			t.Fatalf("%v %+v", res, i)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if v.r.Refresh(&th) || first.Lock.Holder.TID != s.Holder {
		t.Errorf("refreshed: %+v", first.Lock.Holder)
	}
	l.Switches++
	l.Names = nil
	l.Still = func() bool { return false }
	if i, res := v.r.Resolve(&th, &l); res != wait.Torn || i.Lock != nil || i.Why == "" || th.Info() != nil {
		t.Errorf("%v %+v", res, i)
	}
}

// The holder changes while the waiters sleep on; Refresh must follow.
func TestHolderChanges(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "normal", "2")
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	var th wait.Thread
	i := v.resolve(&th, s.Waiters[0], nil, "futex")
	if i.Lock.Holder.TID != s.Holder {
		t.Fatalf("%+v", i.Lock)
	}
	p.Go()
	p.Wait()
	// The process is gone: this must give a reason, no error and no holder.
	if !v.r.Refresh(&th) || i.Lock.Holder.TID != 0 || i.Lock.Holder.Why == "" {
		t.Errorf("%+v", i.Lock.Holder)
	}
}

// Unreadable data must leave a reason.
func TestUnreadable(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "normal")
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	l := v.blocked(s.Waiters[0], "futex")
	for name, spoil := range map[string]func(*wait.Look){
		"lock word": func(l *wait.Look) { l.Call.Args[0] = 16 },
		"path":      func(l *wait.Look) { l.Call = stack.Call{Nr: number(t, "openat"), Args: [6]uint64{^uint64(99), 16}} },
		"timeout":   func(l *wait.Look) { l.Call = stack.Call{Nr: number(t, "nanosleep"), Args: [6]uint64{16}} },
		"pollfds":   func(l *wait.Look) { l.Call = stack.Call{Nr: number(t, "ppoll"), Args: [6]uint64{16, 3}} },
		"fd":        func(l *wait.Look) { l.Call = stack.Call{Nr: number(t, "read"), Args: [6]uint64{9999}} },
		"flock":     func(l *wait.Look) { l.Call = stack.Call{Nr: number(t, "fcntl"), Args: [6]uint64{0, 7, 16}} },
		"restart": func(l *wait.Look) {
			l.Call = stack.Call{Nr: number(t, "restart_syscall"), Args: [6]uint64{17, 77, 16, 16}}
		},
	} {
		bad := l
		spoil(&bad)
		var th wait.Thread
		i, res := v.r.Resolve(&th, &bad)
		if res != wait.Changed || i.Why == "" || i.Call == "" {
			t.Errorf("%s: %v %+v", name, res, i)
		}
		if i.Lock != nil && (i.Lock.Holder.TID != 0 || i.Lock.Holder.Why == "") {
			t.Errorf("%s: %+v", name, i.Lock)
		}
	}
	// A restarted call is recognized by the sample before it.
	var th wait.Thread
	if _, res := v.r.Resolve(&th, &l); res != wait.Changed {
		t.Fatal(res)
	}
	again := l
	again.Call.Nr = number(t, "restart_syscall")
	again.Switches++
	again.Still = nil
	if i, _ := v.r.Resolve(&th, &again); i.Call != "futex" || i.Lock == nil || i.Lock.Kind != kind.LockMutex {
		t.Errorf("%+v", i)
	}
	// A page fault is not in a call.
	fault := wait.Look{State: stack.StateFault, Call: stack.Call{Nr: -1}}
	if i, _ := v.r.Resolve(&th, &fault); i.Kind != kind.WaitMemory || i.Call != "" {
		t.Errorf("%+v", i)
	}
}
