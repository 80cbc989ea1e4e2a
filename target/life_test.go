package target

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// everyThread captures each thread of p once. It reports false when the
// process is gone.
func everyThread(t *testing.T, p *Process, tr *Tracer, w *Window, tids []stack.TID) ([]stack.TID, bool) {
	t.Helper()
	tids, err := p.Threads(tids)
	if err != nil {
		if err != ErrGone {
			t.Fatal(err)
		}
		return tids, p.Alive()
	}
	for _, tid := range tids {
		th, err := p.Thread(tid)
		if err == ErrGone {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Deadline = 0
		if err := tr.Capture(th, w); err != nil && err != ErrGone && err != ErrTimeout {
			t.Fatalf("thread %d: %v", tid, err)
		}
		th.Close()
		tr.Reap()
	}
	return tids, p.Alive()
}

func exitStatus(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return 0
}

// Threads that end in mid-stop, exec by a thread that is not the first, a
// first thread that ends before the others: the program never notices.
func TestComeAndGo(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{{[]string{"churn", "600"}, 7}, {[]string{"exec", "25"}, 42}} {
		t.Run(c.args[0], func(t *testing.T) {
			prog := start(t, build(t, "testdata/life.c"), c.args...)
			p := openProcess(t, prog.pid())
			tr := tracer(t)
			w := NewWindow(0)
			image, err := p.Image()
			if err != nil {
				t.Fatal(err)
			}
			images := 0
			before := fds(t)
			var tids []stack.TID
			for alive := true; alive; {
				tids, alive = everyThread(t, p, tr, w, tids)
				if i, err := p.Image(); err == nil && i != image {
					image = i
					images++
				}
			}
			if n := fds(t); n > before {
				t.Errorf("%d files open, %d before", n, before)
			}
			if got := exitStatus(prog.wait()); got != c.want {
				t.Errorf("exit status %d, want %d", got, c.want)
			}
			if c.args[0] == "exec" && images == 0 {
				t.Error("no exec seen")
			}
			eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 })
		})
	}
}

func TestLeaderEnds(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "leader")
	p := openProcess(t, prog.pid())
	tr := tracer(t)
	w := NewWindow(0)
	first := openThread(t, p, prog.pid())
	eventually(t, "the first thread's end", func() bool { return state(t, prog.pid(), prog.pid()) == 'Z' })
	if !p.Alive() {
		t.Error("not alive without its first thread")
	}
	if err := tr.Capture(first, w); err != ErrGone {
		t.Errorf("the first thread: %v", err)
	}
	tids, err := p.Threads(nil)
	if err != nil || len(tids) != 3 {
		t.Fatalf("threads %v %v", tids, err)
	}
	for _, tid := range tids[1:] {
		capture(t, tr, openThread(t, p, int(tid)), w)
	}
	prog.in.Close()
	if got := exitStatus(prog.wait()); got != 9 {
		t.Errorf("exit status %d", got)
	}
}

// A thread in vfork does not stop until its child lets it. It costs its own
// samples alone, and is let go as soon as it stops.
func TestLate(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "vfork")
	tid := atoi(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, tid)
	main := openThread(t, p, prog.pid())
	tr := tracer(t)
	w := NewWindow(0)
	eventually(t, "vfork", func() bool { s, err := th.State(); return err == nil && s == stack.StateDisk })
	w.Deadline = 2e6
	if err := tr.Capture(th, w); err != ErrTimeout || !th.Late() || tr.Late() != 1 {
		t.Fatalf("%v, late %v, %d late", err, th.Late(), tr.Late())
	}
	if err := tr.Capture(th, w); err != ErrTimeout || tr.Late() != 1 {
		t.Fatalf("again: %v", err)
	}
	tr.Reap()
	capture(t, tr, main, w)
	if !th.Late() {
		t.Error("no longer late, though still in vfork")
	}
	// Signals wait with it.
	tgkill(t, prog.pid(), tid, syscall.SIGCHLD)
	prog.tell("go")
	eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 })
	if th.Late() {
		t.Error("still late")
	}
	if s := prog.line(); s != "back" {
		t.Errorf("%q", s)
	}
	untraced(t, prog.pid())
	prog.in.Close()
	if err := prog.wait(); err != nil {
		t.Error(err)
	}
}

// The exec of one thread waits for a late one to be reaped, and holds what
// attaching to a third one waits for.
func TestLateAndExec(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "stuck")
	tid := atoi(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, tid)
	main := openThread(t, p, prog.pid())
	tr := tracer(t)
	w := NewWindow(0)
	eventually(t, "vfork", func() bool { s, err := th.State(); return err == nil && s == stack.StateDisk })
	w.Deadline = 2e6
	if err := tr.Capture(th, w); err != ErrTimeout {
		t.Fatal(err)
	}
	prog.tell("exec")
	for done := false; !done; {
		// No Reap here: this goroutine may be the one that hangs.
		w.Deadline = 2e6
		err := tr.Capture(main, w)
		if err != nil && err != ErrGone && err != ErrTimeout {
			t.Fatal(err)
		}
		done = err == ErrGone || !p.Alive()
	}
	if s := prog.line(); s != "done" {
		t.Errorf("%q", s)
	}
	eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 })
	if err := prog.wait(); err != nil {
		t.Error(err)
	}
}

// loopVar tells a helper process what to do: "PID TID …" captures until it is
// killed, "seize TID" is another tracer until its input ends.
const loopVar = "SLIVER_TEST_CAPTURE_LOOP"

func TestMain(m *testing.M) {
	if s := os.Getenv(loopVar); s != "" {
		if tid, ok := strings.CutPrefix(s, "seize "); ok {
			hold(tid)
		}
		captureLoop(strings.Fields(s))
	}
	os.Exit(m.Run())
}

// hold traces a thread until the end of input.
func hold(arg string) {
	runtime.LockOSThread()
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	tid, err := strconv.Atoi(arg)
	fail(err)
	if errno := seize(tid); errno != 0 {
		fail(errno)
	}
	fmt.Println("attached")
	_, err = io.Copy(io.Discard, os.Stdin)
	fail(err)
	fail(unix.PtraceInterrupt(tid))
	var ws unix.WaitStatus
	_, err = unix.Wait4(tid, &ws, unix.WALL, nil)
	fail(err)
	fail(unix.PtraceDetach(tid))
	os.Exit(0)
}

// captureLoop samples at 1 kHz by the rule of every sampler: who is blocked is
// read, who runs is stopped.
func captureLoop(args []string) {
	runtime.LockOSThread()
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	pid, err := strconv.Atoi(args[0])
	fail(err)
	p, err := Open(pid)
	fail(err)
	tr, err := NewTracer()
	fail(err)
	var ths []*Thread
	for _, a := range args[1:] {
		tid, err := strconv.Atoi(a)
		fail(err)
		th, err := p.Thread(stack.TID(tid))
		fail(err)
		ths = append(ths, th)
	}
	w := NewWindow(0)
	w.Deadline = 1e9
	var call stack.Call
	for round := 0; ; round++ {
		tr.SleepUntil(monotonic() + 1e6)
		for _, th := range ths {
			if ok, err := th.ReadBlocked(w); ok || err != nil {
				fail(err)
				continue
			}
			if running, _, _, err := th.Syscall(&call); !running || err != nil {
				fail(err)
				continue
			}
			if err := tr.Capture(th, w); err != nil && err != ErrTimeout && err != ErrGone {
				fail(err)
			}
		}
		if round == 2 {
			fmt.Println("looping")
		}
	}
}

// Killed at any moment, a sampler leaves no thread stopped or traced. One
// thing cannot be helped: a running thread that blocks in the microseconds
// after the request to stop, in a call that has to be put back, sees EINTR if
// the sampler dies before it could do so. With 12 kills that may happen once.
func TestKilled(t *testing.T) {
	prog, p, bs := startCalls(t)
	spin := start(t, build(t, "testdata/spin.c"), "1")
	spinner := spin.line()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	calls := fmt.Sprint(prog.pid())
	for _, b := range bs {
		calls += fmt.Sprint(" ", b.th.TID())
	}
	for i := range 24 {
		args := calls
		if i%2 == 1 {
			args = fmt.Sprint(spin.pid(), " ", spinner)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), loopVar+"="+args)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		if n, err := out.Read(buf); string(buf[:n]) != "looping\n" {
			t.Errorf("helper: %q %v", buf[:n], err)
		}
		for range rand.IntN(2000) {
			runtime.Gosched()
		}
		cmd.Process.Kill()
		cmd.Wait()
		untraced(t, prog.pid())
		untraced(t, spin.pid())
		tid, _ := strconv.Atoi(spinner)
		if c := state(t, spin.pid(), tid); c != 'R' {
			t.Errorf("spinning thread in state %c", c)
		}
	}
	if !p.Alive() {
		t.Error("the target is gone")
	}
	verdict(t, prog, 1, func(string) bool { return true })
}
