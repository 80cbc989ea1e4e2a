package target

import (
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// herded opens threads of a program that is a child of the test. It is known that stoppers may
// trace them.
func herded(t *testing.T, tr *Tracer, p *Process, tids ...int) (ths []*Thread) {
	t.Helper()
	tr.proved = true
	for _, tid := range tids {
		ths = append(ths, openThread(t, p, tid))
	}
	return ths
}

// leave hands a thread to the herd.
func leave(t *testing.T, tr *Tracer, th *Thread, w *Window) {
	t.Helper()
	w.Later = true
	if err := tr.Capture(th, w); err != ErrLater || !th.Late() || tr.herd == nil || len(tr.keeping) > 0 {
		t.Fatalf("%v, late %v, herd %v, %d stoppers keep a thread", err, th.Late(), tr.herd != nil, len(tr.keeping))
	}
}

// Waits until the herd has attached to the thread.
func herdHolds(t *testing.T, tr *Tracer, th *Thread) {
	t.Helper()
	tr.Ask()
	eventually(t, "the herd", func() bool {
		for i, x := range tr.herd.of {
			if x == th && atomic.LoadUint32(&tr.herd.b.slots[i].state) == slotHeld {
				return true
			}
		}
		return false
	})
}

// Threads requested together all arrive, once each, with the same samples as separately.
func TestHerd(t *testing.T) {
	const n, rounds = 6, 150
	prog := start(t, build(t, "testdata/spin.c"), "6")
	tr := tracer(t)
	p := openProcess(t, prog.pid())
	var tids []int
	for range n {
		tids = append(tids, atoi(t, prog.line()))
	}
	ths := herded(t, tr, p, tids...)
	w := NewWindow(64 << 10)
	last := make(map[*Thread]stack.Time)
	for round := range rounds {
		for _, th := range ths {
			if th.tid == stack.TID(p.pid) {
				t.Fatal("the first thread spins")
			}
			leave(t, tr, th, w)
		}
		tr.Ask()
		came := map[*Thread]bool{}
		eventually(t, "all samples", func() bool {
			tr.Reap()
			for {
				a, ok := tr.Arrived()
				if !ok {
					return len(came) == n
				}
				x := a.Window
				if a.Err == ErrStale { // this test had no CPU for a while
					leave(t, tr, a.Thread, w)
					tr.Ask()
					continue
				}
				if a.Err != nil || came[a.Thread] || a.Thread.Late() {
					t.Fatalf("round %d: %+v, came already: %v", round, a, came[a.Thread])
				}
				came[a.Thread] = true
				if !(last[a.Thread] < x.Asked && x.Asked < x.Stopped && x.Stopped < x.Resumed) || x.Regs.PC == 0 || len(x.Stack()) < 64 || x.Reads != 1 {
					t.Fatalf("round %d: asked %d (before: %d), stopped %d, resumed %d, PC %#x, %d bytes of stack in %d reads", round, x.Asked,
						last[a.Thread], x.Stopped, x.Resumed, x.Regs.PC, len(x.Stack()), x.Reads)
				}
				last[a.Thread] = x.Resumed
			}
		})
	}
	if tr.Late() != 0 || len(tr.spares) > 0 {
		t.Errorf("%d late, %d spare stoppers", tr.Late(), len(tr.spares))
	}
	leave(t, tr, ths[0], w)
	arrival(t, tr)
	if tr.CPU() == 0 {
		t.Error("the herd's CPU time is not counted")
	}
	untraced(t, prog.pid())
}

// A thread that was last seen running a while ago, and was given a CPU since, may be asleep now
// and is not asked to stop.
func TestHerdStale(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	tr := tracer(t)
	th := herded(t, tr, openProcess(t, prog.pid()), atoi(t, prog.line()))[0]
	w := NewWindow(0)
	leave(t, tr, th, w) // a new herd asks at once
	if a := arrival(t, tr); a.Err != nil && a.Err != ErrStale {
		t.Fatal(a.Err)
	}
	th.switches = ^uint64(0) // differs from its count
	leave(t, tr, th, w)
	for end := monotonic() + askFor; monotonic() <= end; {
	}
	if a := arrival(t, tr); a.Thread != th || a.Err != ErrStale || a.Window != nil {
		t.Errorf("%+v", a)
	}
	leave(t, tr, th, w)
	if a := arrival(t, tr); a.Err != nil && a.Err != ErrStale {
		t.Error(a.Err)
	}
}

// A thread that has been given no CPU since its last look is stopped, regardless of the look's
// age.
func TestHerdStands(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	tr := tracer(t)
	th := herded(t, tr, openProcess(t, prog.pid()), atoi(t, prog.line()))[0]
	stopped := func(sig unix.Signal, want stack.State) {
		t.Helper()
		if err := unix.Kill(prog.pid(), sig); err != nil {
			t.Fatal(err)
		}
		eventually(t, sig.String(), func() bool {
			st, err := th.State()
			return err == nil && (st == want)
		})
	}
	stopped(unix.SIGSTOP, stack.StateStopped)
	t.Cleanup(func() { _ = unix.Kill(prog.pid(), unix.SIGCONT) })
	var c Counters
	if err := th.Counters(&c); err != nil {
		t.Fatal(err)
	}
	s := &slot{tid: uintptr(th.tid), schedstat: uintptr(th.schedstat), switches: th.switches, w: NewWindow(0)}
	if !s.stands() {
		t.Errorf("a thread that was stopped all the time has run: %+v, %q", c, s.w.raw.line[:32])
	}
	if s.switches++; s.stands() {
		t.Error("one that was given a CPU stands")
	}
	s.switches--
	stopped(unix.SIGCONT, stack.StateRunning)
	eventually(t, "it runs", func() bool { return !s.stands() })
	if s.schedstat = ^uintptr(0); s.stands() {
		t.Error("one of which nothing is known stands")
	}
}

// Windows of awaited threads are reused, and are as large as their expected content.
func TestLaterWindows(t *testing.T) {
	tr := tracer(t)
	w := NewWindow(MaxStack)
	seen := map[*byte]bool{}
	for round := range 20 {
		for i := range maxHerd {
			th := &Thread{want: 2000 * (i + 1)}
			if i == 7 {
				th.want = 0 // never seen: the size of its stack is unknown
			}
			w.Spans = []stack.Span{{Addr: 1, Len: 100 * i}, {Addr: 2, Len: 17}}
			x := tr.another(th, w)
			x.reset()
			if x.n != len(w.Spans) || x.spans < 100*i+17 || len(x.buf) < x.stackBase()+pageBytes+x.max {
				t.Fatalf("thread %d: %d blocks, room for %d bytes of them, stack of %d in %d", i, x.n, x.spans, x.max, len(x.buf))
			}
			if want := max(leastLater, 2*th.want); i == 7 && x.max != MaxStack || i != 7 && (x.max < want || x.max >= want+pageBytes) {
				t.Fatalf("thread %d: %d bytes of stack, after %d", i, x.max, th.want)
			}
			if i != 7 && round > 1 && !seen[&x.buf[0]] {
				t.Fatalf("round %d: thread %d has new memory", round, i)
			}
			seen[&x.buf[0]] = true
			tr.used = append(tr.used, x)
		}
		tr.settle()
		bytes := 0
		for _, x := range tr.windows {
			bytes += len(x.buf)
		}
		if bytes > maxWindowBytes || len(tr.windows) > maxWindows {
			t.Fatalf("%d windows with %d bytes are kept", len(tr.windows), bytes)
		}
	}
}

// A thread of a process that is in exec waits until the herd has reaped another one, and the herd
// waits until it may attach to the first.
func TestHerdAndExec(t *testing.T) {
	for range 3 {
		prog := start(t, build(t, "testdata/life.c"), "stuck")
		tid := atoi(t, prog.line())
		p := openProcess(t, prog.pid())
		tr := tracer(t)
		th := herded(t, tr, p, tid)[0]
		eventually(t, "vfork", func() bool { s, err := th.State(); return err == nil && s == stack.StateDisk })
		var tids []stack.TID
		eventually(t, "the one that calls exec", func() bool {
			var err error
			tids, err = p.Threads(tids)
			return err == nil && len(tids) == 3
		})
		var leaver *Thread
		for _, x := range tids {
			if int(x) != tid && int(x) != prog.pid() {
				leaver = openThread(t, p, int(x))
			}
		}
		w := NewWindow(0)
		leave(t, tr, th, w)
		herdHolds(t, tr, th)
		// While the herd cannot run, the exec kills the thread that it holds.
		if err := unix.Kill(tr.herd.proc, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		prog.tell("exec")
		eventually(t, "the thread's end", func() bool { return state(t, prog.pid(), tid) == 'Z' })
		leave(t, tr, leaver, w)
		tr.Ask()
		if err := unix.Kill(tr.herd.proc, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if s := prog.line(); s != "done" {
			t.Errorf("%q", s)
		}
		eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 })
		if err := prog.wait(); err != nil {
			t.Error(err)
		}
	}
}

// The same if the herd is about to attach when the other thread dies.
func TestHerdReapsAsItWaits(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "held", "25")
	p := openProcess(t, prog.pid())
	prog.tell("go")
	tr := tracer(t)
	tr.proved = true
	w := NewWindow(0)
	var tids []stack.TID
	open := map[*Thread]bool{}
	asked, died := 0, 0
	for p.Alive() {
		var err error
		if tids, err = p.Threads(tids); err != nil {
			break
		}
		for _, tid := range tids {
			if int(tid) == prog.pid() {
				continue
			}
			th, err := p.Thread(tid)
			if err != nil {
				continue
			}
			w.Later = true
			if err := tr.Capture(th, w); err != ErrLater {
				th.Close()
				continue
			}
			open[th] = true
			asked++
		}
		tr.Ask()
		tr.Reap()
		for {
			a, ok := tr.Arrived()
			if !ok {
				break
			}
			if a.Err == ErrGone {
				died++
			}
			delete(open, a.Thread)
			a.Thread.Close()
		}
	}
	if got := exitStatus(prog.wait()); got != 42 {
		t.Errorf("exit status %d", got)
	}
	eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 })
	for th := range open {
		th.Close()
	}
	t.Logf("%d asked, %d of them died meanwhile", asked, died)
	if asked == 0 {
		t.Error("nobody was asked")
	}
}

// If a herd is killed while it holds threads, they are free, and another herd takes them.
func TestHerdKilled(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "vfork")
	tr := tracer(t)
	th := herded(t, tr, openProcess(t, prog.pid()), atoi(t, prog.line()))[0]
	w := NewWindow(0)
	eventually(t, "vfork", func() bool { s, err := th.State(); return err == nil && s == stack.StateDisk })
	leave(t, tr, th, w)
	herdHolds(t, tr, th)
	killed := tr.herd
	if err := unix.Kill(killed.proc, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 && !th.Late() })
	leave(t, tr, th, w)
	herdHolds(t, tr, th)
	if tr.herd == killed {
		t.Error("the same herd")
	}
	prog.tell("go")
	eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 })
	if s := prog.line(); s != "back" {
		t.Errorf("%q", s)
	}
	untraced(t, prog.pid())
}
