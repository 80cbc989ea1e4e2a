package target

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// aloneVar makes the loop stop threads itself, without stoppers:
//
//	SLIVER_LONG=1 SLIVER_TEST_ALONE=1 go test ./target -run TestKilled
//
// The test then fails, with some 300 calls, which shows the use of stoppers.
const aloneVar = "SLIVER_TEST_ALONE"

// captureLoop stops every thread repeatedly, including blocked ones, which a sampler does not do:
// so most of the time is spent in stops that interrupt a call.
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
	tr.alone = os.Getenv(aloneVar) != ""
	w := NewWindow(0)
	w.Deadline = 1e9
	for round := 0; ; round++ {
		w.Later = round%2 == 1
		tr.Reap()
		for _, th := range ths {
			if err := tr.Capture(th, w); err != nil && !errors.Is(err, ErrTimeout) && err != ErrGone {
				fail(err)
			}
		}
		tr.Ask()
		if round == 2 {
			fmt.Println("looping")
		}
	}
}

// looper starts a captureLoop and waits until it works.
func looper(t *testing.T, args string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), loopVar+"="+args)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
	return cmd
}

// rounds returns how often a randomized test is repeated.
func rounds(short, long int) int {
	if os.Getenv("SLIVER_LONG") != "" {
		return long
	}
	return short
}

// freeAgain waits until no thread of the process is traced: a stopper completes its current work
// after its program was killed.
func freeAgain(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "release", func() bool { return len(traced(t, pid)) == 0 })
}

// A sampler killed at any moment leaves no thread stopped or traced, and no call interrupted.
// SLIVER_LONG=1 kills a thousand times.
func TestKilled(t *testing.T) {
	prog, p, bs := startCalls(t)
	spin := start(t, build(t, "testdata/spin.c"), "1")
	spinner := spin.line()
	runtime.LockOSThread() // Pdeathsig is per OS thread
	defer runtime.UnlockOSThread()
	calls := fmt.Sprint(prog.pid())
	for _, b := range bs {
		calls += fmt.Sprint(" ", b.th.TID())
	}
	caught := 0
	for i := range rounds(40, 1000) {
		args, pid := calls, prog.pid()
		if i%8 == 7 {
			args, pid = fmt.Sprint(spin.pid(), " ", spinner), spin.pid()
		}
		cmd := looper(t, args)
		for end := monotonic() + stack.Time(rand.IntN(2_000_000)); monotonic() < end; {
		}
		cmd.Process.Kill()
		if len(traced(t, pid)) > 0 {
			caught++
		}
		cmd.Wait()
		freeAgain(t, prog.pid())
		freeAgain(t, spin.pid())
		tid := atoi(t, spinner)
		eventually(t, "the spinning thread runs", func() bool { return state(t, spin.pid(), tid) == 'R' })
	}
	if !p.Alive() {
		t.Error("the target is gone")
	}
	t.Logf("a stop was under way at %d kills at least", caught)
	verdict(t, prog, 0, func(string) bool { return true })
}

// If a stopper is killed, the thread continues, and another stopper makes the next stop.
func TestStopperKilled(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	p := openProcess(t, prog.pid())
	th := openThread(t, p, atoi(t, prog.line()))
	tr := tracer(t)
	w := NewWindow(0)
	for range 5 {
		capture(t, tr, th, w)
		first := tr.resting.proc
		if err := unix.Kill(first, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another stopper", func() bool {
			err := tr.Capture(th, w)
			if err != nil && !errors.Is(err, ErrTimeout) {
				t.Fatal(err)
			}
			return err == nil
		})
		if tr.resting.proc == first || tr.alone {
			t.Errorf("stopper %d, then %d, alone %v", first, tr.resting.proc, tr.alone)
		}
		if err := unix.Kill(first, 0); err != unix.ESRCH {
			t.Errorf("the killed stopper is there still: %v", err)
		}
	}
	if tr.CPU() <= 0 {
		t.Errorf("CPU time %d", tr.CPU())
	}
	last := tr.resting.proc
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(last, 0); err != unix.ESRCH {
		t.Errorf("the last stopper is there still: %v", err)
	}
	untraced(t, prog.pid())
}

// A program that stops itself (Ctrl-Z) or is stopped during a stop leaves no thread of the target
// stopped.
func TestSamplerStopped(t *testing.T) {
	spin := start(t, build(t, "testdata/spin.c"), "1")
	spinner := spin.line()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := looper(t, fmt.Sprint(spin.pid(), " ", spinner))
	for range rounds(20, 500) {
		for end := monotonic() + stack.Time(rand.IntN(1_000_000)); monotonic() < end; {
		}
		cmd.Process.Signal(syscall.SIGSTOP)
		eventually(t, "the sampler's stop", func() bool { return state(t, cmd.Process.Pid, cmd.Process.Pid) == 'T' })
		freeAgain(t, spin.pid())
		cmd.Process.Signal(syscall.SIGCONT)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// traced returns the threads of a process that are being traced.
func traced(t testing.TB, pid int) (tids []string) {
	t.Helper()
	ds, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ds {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, e.Name()))
		if err != nil {
			continue // it ended
		}
		s, err := ParseStatus(b)
		if err != nil {
			t.Fatal(err)
		}
		if s.TracerPid != 0 {
			tids = append(tids, e.Name())
		}
	}
	return slices.Clip(tids)
}
