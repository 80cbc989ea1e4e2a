package target

//sliver:layer live unraced

import (
	"errors"
	"fmt"
	"io"
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

// everyThread captures each thread of p once. It returns false if the process is gone.
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
		if err := tr.Capture(th, w); err != nil && err != ErrGone && !errors.Is(err, ErrTimeout) {
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

// Threads that end during a stop, exec by a thread other than the first, a first thread that ends
// before the others: the program never notices.
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
				if i, err := p.Image(); err == nil && i != 0 && i != image {
					image = i
					images++
				}
			}
			if n := fds(t); n > before+maxSpares { // a stopper may have its own
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
	if image, err := p.Image(); err != nil || image != 0 {
		t.Errorf("the image of a first thread without memory: %d %v, and not unknown", image, err)
	}
	prog.in.Close()
	if got := exitStatus(prog.wait()); got != 9 {
		t.Errorf("exit status %d", got)
	}
}

// While a thread other than the first one execs, the first one has ended for a moment. The deputy
// chosen then has no directory afterwards: that of the process must be used again.
func TestDeputyServes(t *testing.T) {
	sleeps := exec.Command("sleep", "60")
	if err := sleeps.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleeps.Process.Kill(); sleeps.Wait() }()
	p := openProcess(t, sleeps.Process.Pid)
	maps, err := p.Maps()
	if err != nil || len(maps) == 0 {
		t.Fatalf("%d mappings: %v", len(maps), err)
	}
	other := exec.Command("true")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	dir, err := unix.Open(fmt.Sprintf("/proc/%d", other.Process.Pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	ended := &deputy{tid: stack.TID(other.Process.Pid), dir: dir}
	for what, f := range map[string]func() error{
		"maps":    func() error { _, err := p.Maps(); return err },
		"cmdline": func() error { _, err := p.Cmdline(); return err },
		"exe":     func() error { _, err := p.Exe(); return err },
		"memory":  func() error { _, err := p.ReadAt(make([]byte, 8), maps[0].Start); return err },
	} {
		p.deputy.Store(ended)
		if err := f(); err != nil || p.Directory() != sleeps.Process.Pid {
			t.Errorf("%s: %v, by directory %d of process %d", what, err, p.Directory(), sleeps.Process.Pid)
		}
	}
}

// A thread in vfork does not stop until its child permits it. It costs only its own samples, and
// is released as soon as it stops.
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
	if err := tr.Capture(th, w); !errors.Is(err, ErrTimeout) || !th.Late() || tr.Late() != 1 {
		t.Fatalf("%v, late %v, %d late", err, th.Late(), tr.Late())
	}
	if err := tr.Capture(th, w); !errors.Is(err, ErrTimeout) || tr.Late() != 1 {
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

// A thread that stops right after its deadline is released and can be sampled again.
func TestLateByLittle(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	p := openProcess(t, prog.pid())
	th := openThread(t, p, atoi(t, prog.line()))
	tr := tracer(t)
	w := NewWindow(0)
	late := 0
	for range 300 {
		w.Deadline, w.SpinFor = 1, 1
		if err := tr.Capture(th, w); errors.Is(err, ErrTimeout) {
			late++
		} else if err != nil {
			t.Fatal(err)
		}
		eventually(t, "release", func() bool { tr.Reap(); return !th.Late() && tr.Late() == 0 })
	}
	if late == 0 {
		t.Error("no stop was late")
	}
	w.SpinFor = 0
	capture(t, tr, th, w)
}

// The exec of one thread waits for a late one to be reaped, and holds a lock that attaching to a
// third one waits for.
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
	if err := tr.Capture(th, w); !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	prog.tell("exec")
	for done := false; !done; {
		// No Reap here: this goroutine may be the one that hangs.
		w.Deadline = 2e6
		err := tr.Capture(main, w)
		if err != nil && err != ErrGone && !errors.Is(err, ErrTimeout) {
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

// loopVar selects a helper process: "PID TID …" captures until it is killed (see kill_test.go),
// "seize TID" is another tracer until its input ends, "filtered CALL PID" opens a process under a
// filter (refuse_test.go).
const loopVar = "SLIVER_TEST_CAPTURE_LOOP"

func TestMain(m *testing.M) {
	if s := os.Getenv(loopVar); s != "" {
		if tid, ok := strings.CutPrefix(s, "seize "); ok {
			hold(tid)
		}
		if f := strings.Fields(s); f[0] == "filtered" {
			filteredLook(f[1], f[2])
		}
		switch f := strings.Fields(s); f[0] {
		case "snapshot":
			snapshotLoop(f[1])
		case "copy":
			copyOnce(f[1], f[2])
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

// A thread that this program itself holds, after a stop that came late, is not in another tracer's hands.
func TestStateHeldHere(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "leader")
	p := openProcess(t, prog.pid())
	var tids []stack.TID
	eventually(t, "a second thread", func() bool {
		tids, _ = p.Threads(nil)
		return len(tids) > 1
	})
	tid := tids[len(tids)-1]
	th := openThread(t, p, int(tid))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceAttach(int(tid)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(int(tid), nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if s, err := th.State(); err != ErrTimeout {
		t.Errorf("held by this program: state %v, %v", s, err)
	}
	if err := unix.PtraceDetach(int(tid)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its own state", func() bool { s, err := th.State(); return err == nil && s != stack.StateTraced })
	prog.in.Close()
	prog.wait()
}
