package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

type blocked struct {
	name string
	th   *Thread
}

func startCalls(t *testing.T) (*testTarget, *Process, []blocked) {
	prog := start(t, build(t, "../testdata/targets/c/calls.c", "-lrt"), "20")
	var names []string
	var tids []int
	for s := prog.line(); s != "end"; s = prog.line() {
		name, tid, _ := strings.Cut(s, " ")
		names = append(names, name)
		tids = append(tids, atoi(t, tid))
	}
	if len(names) < 30 {
		t.Fatalf("only %d calls: %v", len(names), names)
	}
	p := openProcess(t, prog.pid())
	var bs []blocked
	for i, name := range names {
		bs = append(bs, blocked{name, openThread(t, p, tids[i])})
	}
	return prog, p, bs
}

// endless reports whether the call has no timeout.
func endless(name string) bool {
	switch name {
	case "sigwaitinfo", "semop", "msgrcv", "inotify", "eventfd", "timerfd", "tty", "sem_wait", "io_uring_enter", "wait4", "flock",
		"pipe", "mutex_lock", "cond_wait", "mq_receive":
		return true
	}
	return strings.HasSuffix(name, "-forever")
}

// verdict ends the program and checks the results of its threads: at most allowed calls ended
// with EINTR in total, and none ended early.
func verdict(t *testing.T, prog *testTarget, allowed int, touched func(name string) bool) {
	t.Helper()
	interrupted := 0
	prog.in.Close()
	for s := prog.line(); s != "end"; s = prog.line() {
		var name string
		var n, eintr, early, late, most int
		if _, err := fmt.Sscan(s, &name, &n, &eintr, &early, &late, &most); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		t.Log(s)
		if interrupted += eintr; interrupted > allowed || early != 0 {
			t.Errorf("%s: of %d returns %d were EINTR and %d early", name, n, eintr, early)
		}
		if n == 0 && !endless(name) {
			t.Errorf("%s never returned", name)
		}
		if !touched(name) {
			t.Errorf("%s was never looked at", name)
		}
	}
	if err := prog.wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

// Every blocking call is interrupted repeatedly, and none may show it.
func TestStopUnseen(t *testing.T) {
	prog, _, bs := startCalls(t)
	tr := tracer(t)
	w := NewWindow(0)
	put := map[string]int{}
	stops := map[string]int{}
	for range 60 {
		for _, b := range bs {
			capture(t, tr, b.th, w)
			if w.Interrupt {
				t.Errorf("%s: interrupted in call %d", b.name, w.Call.Nr)
			}
			stops[b.name]++
			if w.Restarted {
				put[b.name]++
			}
		}
		tr.SleepUntil(monotonic() + 5e6)
	}
	untraced(t, prog.pid())
	verdict(t, prog, 0, func(name string) bool { return stops[name] > 0 })
	for _, name := range []string{"epoll_wait", "epoll_pwait", "epoll_pwait2", "recv", "read-socket", "accept", "sigtimedwait",
		"sigwaitinfo", "semtimedop", "semop", "io_uring_enter"} {
		if stops[name] > 0 && put[name] == 0 {
			t.Errorf("%s: %d stops, and the call was never put back: does this test still test it?", name, stops[name])
		}
	}
}

// Blocked threads are read without a stop, with the same result as by a stop.
func TestReadBlocked(t *testing.T) {
	prog, p, bs := startCalls(t)
	tr := tracer(t)
	w, s := NewWindow(0), NewWindow(0)
	reads := map[string]int{}
	for _, b := range bs {
		eventually(t, b.name+" read", func() bool {
			ok, err := b.th.ReadBlocked(w)
			if err != nil {
				t.Fatal(err)
			}
			return ok && w.Call.Nr >= 0 && len(w.Stack()) > 0
		})
		reads[b.name]++
		// A reading leaves out what only a thread needs that is found running.
		if b.th.known {
			t.Errorf("%s: its switches were read, and nothing asked for them", b.name)
		}
		if on, err := b.th.OnCPU(); on || err != nil {
			t.Errorf("%s: on a CPU: %v, %v", b.name, on, err)
		}
		eventually(t, b.name+" read again", func() bool {
			ok, err := b.th.ReadBlocked(w)
			if err != nil {
				t.Fatal(err)
			}
			return ok && w.Call.Nr >= 0 && len(w.Stack()) > 0
		})
		if !b.th.known {
			t.Errorf("%s: its switches are unknown after they were asked for", b.name)
		}
		if st, err := b.th.State(); err != nil || StateOf('S') != st && StateOf('R') != st {
			t.Errorf("%s: state %v, %v", b.name, st, err)
		}
		if !w.Regs.Has(nativeSP) || w.Regs.R[nativeSP]-w.StackAddr > redZone || w.Regs.Has(3) {
			t.Errorf("%s: SP %#x, known %#x", b.name, w.Regs.R[nativeSP], w.Regs.Known)
		}
		if !strings.Contains(b.name, "forever") {
			continue
		}
		// These never return: the stop must show the same.
		capture(t, tr, b.th, s)
		if s.Regs.PC != w.Regs.PC || s.StackAddr != w.StackAddr || s.Call != w.Call || string(s.Stack()) != string(w.Stack()) {
			t.Errorf("%s: read PC %#x SP %#x %v, stopped PC %#x SP %#x %v", b.name, w.Regs.PC, w.StackAddr, w.Call,
				s.Regs.PC, s.StackAddr, s.Call)
		}
		if StopRisk(&w.Call, w.Regs.R[nativeSP]) > RiskMaybe {
			t.Errorf("%s: risk %v", b.name, StopRisk(&w.Call, w.Regs.R[nativeSP]))
		}
	}
	// A thread that did not run in between has the same counters.
	for _, b := range bs {
		if b.name != "pipe" {
			continue
		}
		var before, after Counters
		if err := b.th.Counters(&before); err != nil {
			t.Fatal(err)
		}
		if ok, err := b.th.ReadBlocked(w); !ok || err != nil {
			t.Errorf("pipe: %v %v", ok, err)
		}
		if err := b.th.Counters(&after); err != nil || before != after || before.Switches == 0 {
			t.Errorf("counters %+v, then %+v, %v", before, after, err)
		}
	}
	ti, err := p.ThreadInfo(bs[0].th.TID())
	if err != nil || ti.Name != "calls" && !strings.HasPrefix(ti.Name, "calls") || ti.Start > monotonic() || ti.Start < monotonic()-600e9 {
		t.Errorf("%+v %v at %d", ti, err, monotonic())
	}
	verdict(t, prog, 0, func(name string) bool { return reads[name] > 0 })
}

// A call that was read after the counters is not read again with the stack while these are the same.
func TestReadBlockedReusesCall(t *testing.T) {
	_, _, bs := startCalls(t)
	b := bs[slices.IndexFunc(bs, func(b blocked) bool { return b.name == "pipe" })]
	w := NewWindow(4096)
	syscalls := b.th.syscall
	defer func() { b.th.syscall = syscalls }()
	var c Counters
	var call stack.Call
	for {
		if err := b.th.Counters(&c); err != nil {
			t.Fatal(err)
		}
		if running, _, _, err := b.th.Syscall(&call); err != nil {
			t.Fatal(err)
		} else if !running {
			break
		}
	}
	b.th.syscall = -1               // no read of it succeeds
	b.th.readAt = monotonic() + 1e9 // however slow this machine is
	if ok, err := b.th.ReadBlocked(w); !ok || err != nil || w.Call != call || w.Regs.PC == 0 || len(w.Stack()) == 0 {
		t.Errorf("%v, %v: %+v, want %+v", ok, err, w.Call, call)
	}
	b.th.readAt = monotonic() - callFreshFor
	if ok, err := b.th.ReadBlocked(w); !ok || err != nil || w.Call != call {
		t.Errorf("the counters are the same: %v, %v: %+v, want %+v", ok, err, w.Call, call)
	}
	b.th.readAt, b.th.again[0] = monotonic()-callFreshFor, 'x'
	if _, err := b.th.ReadBlocked(w); err == nil {
		t.Error("the call of other counters was used")
	}
	if err := b.th.Counters(&c); err != nil {
		t.Fatal(err)
	}
	if _, err := b.th.ReadBlocked(w); err == nil {
		t.Error("a call of before the counters was used")
	}
}
