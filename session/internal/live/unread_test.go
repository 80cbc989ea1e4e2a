package live

import (
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/ptrace"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// A thread that may have nothing to do must not be reported as waiting for a lock before the
// functions of its stack are known. Then its wait must be reported, if it still waits.
func TestUnread(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), "cond")
	p.Line("{")
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	tg, err := New(proc, nil)
	if err != nil {
		t.Fatal(err)
	}
	vars := tg.Variables(nil)
	defer vars.Close()
	var at uint64
	for _, m := range tg.Maps() {
		if !m.Exec || m.Inode == 0 {
			continue
		}
		if filepath.Base(m.Path) == "libc.so.6" {
			at = m.Start
		}
		vars.files[keyOf(&m)] = &variables{ready: make(chan struct{})}
	}
	known := map[int]trace.Wait{}
	d := &Descriptions{Put: func(w trace.Wait) bool { known[w.ID] = w; return true }}
	w := tg.Waits(d, vars, func() {}).(*waits)
	defer w.Close()
	w.idlers = func(file string) bool { return filepath.Base(file) == "libc.so.6" }
	th, in := waiter(t, proc, tg)
	defer th.Close()
	look := func() *told {
		sink := &told{}
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); runtime.Gosched() {
			g := &sampler.Glance{State: stack.StateBlocked, Sample: &stack.Sample{Time: target.Now(), Way: stack.WayRead},
				Frames: []stack.Frame{{PC: at + 0x1000, Kind: stack.KindNative, Exact: true}}}
			if th.Counters(&g.Counters) != nil {
				continue
			}
			if running, err := th.Call(&g.Call); err != nil || running || g.Call.Nr != syscall.SYS_FUTEX {
				continue
			}
			g.Sample.Switches, g.Sample.Call = g.Counters.Switches, g.Call
			w.Look(th, &in, g, sink)
			return sink
		}
		t.Fatal("it does not wait")
		return nil
	}
	locks := func(s *told) (n int, desc trace.Wait) {
		for _, e := range s.events {
			if e.Kind() == event.Lock && e.Payload() != 0 {
				n++
			}
			if e.Kind() == event.Wait {
				desc = known[int(e.Payload())]
			}
		}
		return n, desc
	}
	if n, desc := locks(look()); n != 0 || desc.Call != "futex" || desc.Kind != "" || desc.Lock != "" || desc.Why != unread {
		t.Errorf("before the names are known: %d locks, %+v", n, desc)
	}
	if !w.Busy() {
		t.Error("it is not asked again")
	}
	if s := look(); len(s.events) != 0 {
		t.Errorf("told again: %+v", s.events)
	}
	clear(vars.files)
	look() // starts to read them
	vars.Close()
	if n, desc := locks(look()); n != 1 || desc.Kind != "lock" || desc.Lock == "" || desc.Why != "" {
		t.Errorf("when they are: %d locks, %+v", n, desc)
	}
}

// waiter returns the thread of a program that sleeps on a futex.
func waiter(t *testing.T, proc *target.Process, tg *Target) (*ptrace.Thread, stack.ThreadInfo) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); runtime.Gosched() {
		tids, err := proc.Threads(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tid := range tids {
			th, err := proc.Thread(tid)
			if err != nil {
				continue
			}
			x := &ptrace.Thread{Thread: th}
			var call stack.Call
			if running, err := x.Call(&call); err == nil && !running && call.Nr == syscall.SYS_FUTEX && tid != stack.TID(proc.PID()) {
				return x, stack.ThreadInfo{TID: tid}
			}
			x.Close()
		}
	}
	t.Fatal("no thread waits")
	return nil, stack.ThreadInfo{}
}
