package target

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Signals of all kinds reach a thread that is stopped all the time: each one, in order, with its
// value, and without an additional EINTR.
func TestSignals(t *testing.T) {
	const n = 2000
	var progs []*testTarget
	for range 40 { // before this thread's signals are masked, which they would inherit
		progs = append(progs, start(t, build(t, "testdata/sigs.c"), fmt.Sprint(n)))
	}
	tr := tracer(t)
	passed, restarted := 0, 0
	for begin, i := monotonic(), 0; i < len(progs); i++ { // on a busy machine, both do not happen each time
		p, r := signals(t, tr, progs[i], n)
		if passed, restarted = passed+p, restarted+r; passed > 0 && restarted > 0 || monotonic() > begin+60e9 {
			break
		}
	}
	t.Logf("%d stops at a signal, %d calls put back", passed, restarted)
	if passed == 0 || restarted == 0 {
		t.Errorf("%d stops at a signal, %d calls put back: this test no longer tests them", passed, restarted)
	}
}

// signals stops a program that gets n signals until its end. It returns how many stops were at a
// signal, and how many calls were restarted.
func signals(t *testing.T, tr *Tracer, prog *testTarget, n int) (passed, restarted int) {
	t.Helper()
	tid := atoi(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, tid)
	w := NewWindow(0)
	prog.tell("go")
	for {
		w.Deadline = 10e9
		err := tr.Capture(th, w)
		if err == ErrGone {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if w.Sig != 0 {
			passed++
		}
		if w.Restarted {
			restarted++
		}
	}
	var got, misordered, usr1, stray int
	if _, err := fmt.Sscanf(prog.line(), "done %d %d %d %d", &got, &misordered, &usr1, &stray); err != nil {
		t.Fatal(err)
	}
	if got != n || misordered != 0 || usr1 != (n+6)/7 || stray != 0 {
		t.Errorf("%d of %d queued signals, %d misordered, %d of %d plain ones, %d EINTR without a handler", got, n, misordered,
			usr1, (n+6)/7, stray)
	}
	return passed, restarted
}

// A process stopped by its user stays stopped, and its parent is notified of each stop once.
func TestGroupStop(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "2")
	tids := []int{atoi(t, prog.line()), atoi(t, prog.line())}
	p := openProcess(t, prog.pid())
	tr := tracer(t)
	w := NewWindow(0)
	for round := range 20 {
		if err := syscall.Kill(prog.pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		th := openThread(t, p, tids[round%2])
		capture(t, tr, th, w) // while it is stopping
		eventually(t, "stopped", func() bool {
			return state(t, prog.pid(), prog.pid()) == 'T' && state(t, prog.pid(), tids[0]) == 'T' && state(t, prog.pid(), tids[1]) == 'T'
		})
		for range 10 {
			capture(t, tr, th, w)
			if !w.Group || w.Restarted || w.Interrupt {
				t.Fatalf("group stop not seen: %+v", w.Sig)
			}
			eventually(t, "stopped again", func() bool { return state(t, prog.pid(), int(th.TID())) == 'T' })
		}
		untraced(t, prog.pid())
		var ws unix.WaitStatus
		for i := range 2 {
			pid, err := unix.Wait4(prog.pid(), &ws, unix.WUNTRACED|unix.WNOHANG|unix.WCONTINUED, nil)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && (pid != prog.pid() || !ws.Stopped() || ws.StopSignal() != unix.SIGSTOP) || i == 1 && pid != 0 {
				t.Fatalf("round %d: report %d to the parent: %d %#x", round, i+1, pid, ws)
			}
		}
		if err := syscall.Kill(prog.pid(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		eventually(t, "running", func() bool { return state(t, prog.pid(), tids[0]) == 'R' && state(t, prog.pid(), tids[1]) == 'R' })
		if pid, err := unix.Wait4(prog.pid(), &ws, unix.WCONTINUED|unix.WNOHANG, nil); err != nil || pid != prog.pid() || !ws.Continued() {
			t.Fatalf("round %d: continued: %d %#x %v", round, pid, ws, err)
		}
		capture(t, tr, th, w)
		if w.Group {
			t.Error("group stop after SIGCONT")
		}
	}
}

// Stops of tracees send no SIGCHLD to this process, and the ends of children still do.
func TestChildSignal(t *testing.T) {
	tr := tracer(t)
	_ = tr
	var sa sigaction
	readAction(t, syscall.SIGCHLD, &sa)
	if sa.flags&saNoCldStop == 0 || sa.handler == 0 || sa.flags&saRestart == 0 || sa.mask == 0 {
		t.Errorf("action of SIGCHLD: %+v", sa)
	}
	readAction(t, alarmSignal, &sa)
	if sa.handler == 0 || sa.flags&saRestart != 0 {
		t.Errorf("action of the alarm: %+v", sa)
	}
}

// A second tracer keeps the thread, and it can be sampled again once that tracer is gone.
func TestOtherTracer(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	tid := atoi(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, tid)
	tr := tracer(t)
	w := NewWindow(0)
	capture(t, tr, th, w)
	other := seizer(t, tid)
	if err := tr.Capture(th, w); err != ErrTraced {
		t.Errorf("capture of a thread that another one traces: %v", err)
	}
	other.in.Close()
	if err := other.wait(); err != nil {
		t.Fatal(err)
	}
	capture(t, tr, th, w)
	if tr.Late() != 0 {
		t.Error("late")
	}
}

func TestWake(t *testing.T) {
	before := fds(t)
	tr := tracer(t)
	go tr.Wake()
	if !tr.SleepUntil(monotonic() + 60e9) {
		t.Error("not woken")
	}
	tr.Wake()
	tr.Wake()
	if !tr.SleepUntil(monotonic()+60e9) || tr.SleepUntil(monotonic()+1e6) {
		t.Error("a wake-up before the sleep must end it, once")
	}
	at := monotonic() + 3e6
	if tr.SleepUntil(at) || monotonic() < at {
		t.Error("woke too early")
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if n := fds(t); n != before {
		t.Errorf("%d files open after Close, %d before there was a Tracer", n, before)
	}
	tr.Wake() // harmless
	if b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid())); err != nil || len(b) == 0 {
		t.Fatal(err)
	}
}
