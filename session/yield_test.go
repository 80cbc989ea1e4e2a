package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
)

// await waits for a condition that another program brings about.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); !cond(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// tracersOf returns the tracers of a process's threads, by thread.
func tracersOf(t *testing.T, pid int) map[string]int {
	t.Helper()
	out := map[string]int{}
	ds, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, d.Name()))
		if err != nil {
			continue
		}
		if st, err := target.ParseStatus(b); err == nil {
			out[d.Name()] = st.TracerPid
		}
	}
	return out
}

// A second tracer that attaches while threads are sampled at 1 kHz must succeed, except
// during a stop of ours. With Yield no other thread is stopped while it is attached. In
// both cases the trace has a mark, and the recording continues when it is gone.
func TestSecondTracer(t *testing.T) {
	testprog.Need(t, "ptrace")
	strace := testprog.Tool(t, "strace")
	for _, yield := range []bool{false, true} {
		t.Run(fmt.Sprintf("yield=%v", yield), func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "c/spin", "O2"), "--threads", "2", "--seconds", "100")
			p, err := target.Open(prog.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			file := filepath.Join(t.TempDir(), "run.sliver")
			out, err := export.ParseOutput(file, "")
			if err != nil {
				t.Fatal(err)
			}
			s, err := New(p, Options{Interval: time.Millisecond, Yield: yield, Groups: 5, Outputs: []export.Output{out}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() { _, err := s.Run(ctx); ended <- err }()
			stops := func() uint64 { return s.Status().Total.Stops }
			await(t, "stops", func() bool { return stops() > 20 })

			// Like any tracer it may find another one attached, and then retries.
			var other *exec.Cmd
			held := func() (n int) {
				for _, tracer := range tracersOf(t, prog.PID) {
					if tracer == other.Process.Pid {
						n++
					}
				}
				return n
			}
			for try := 1; ; try++ {
				other = exec.Command(strace, "-q", "-f", "-o", os.DevNull, "-p", fmt.Sprint(prog.PID))
				other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				if err := other.Start(); err != nil {
					t.Fatal(err)
				}
				gone := make(chan struct{})
				go func() { _ = other.Wait(); close(gone) }()
				got := false
				await(t, "strace attached, or refused", func() bool {
					select {
					case <-gone:
						return true
					default:
						got = held() > 0
						return got
					}
				})
				if got {
					t.Cleanup(func() { _ = other.Process.Kill(); <-gone })
					break
				}
				if try == 20 {
					t.Fatal("strace never got in")
				}
			}
			// From now on sliver is refused, or does not even try.
			await(t, "a refusal", func() bool { return s.Status().Total.Denied > 0 })
			n := held() // first: stops until then may have been of threads that it had not yet
			before := s.Status().Total
			await(t, "more of them", func() bool { return s.Status().Total.Denied > before.Denied+20 })
			if now := stops(); (yield || n == 2) && now > before.Stops+5 { // those under way
				t.Errorf("%d stops while another tracer has %d of 2 threads", now-before.Stops, n)
			}
			if now := held(); now < n {
				t.Errorf("the other tracer had %d threads, and now %d", n, now)
			}
			t.Logf("the other tracer got %d of 2 threads", n)
			_ = other.Process.Signal(syscall.SIGINT)
			before = s.Status().Total
			await(t, "stops again", func() bool { return stops() > before.Stops+20 })
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if _, err := s.Finish("test"); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			rec, err := openRecording(f)
			if err != nil {
				t.Fatal(err)
			}
			marks, gaps := 0, 0
			for i := range rec.Threads {
				for e := range rec.Events(rec.Threads[i].Seq) {
					why, _ := event.GapFields(e.Payload())
					switch {
					case e.Kind() == event.Mark && stack.Why(e.Payload()) == stack.WhyTraced:
						marks++
					case e.Kind() == event.Gap && why == stack.WhyTraced:
						gaps++
					}
				}
			}
			if marks == 0 || gaps == 0 {
				t.Errorf("%d marks and %d gaps for the other tracer", marks, gaps)
			}
		})
	}
}

// A debugger that attaches while threads are sampled must show all of them, as it does
// without sampling. The recording must have marks for it, and continue when it is gone.
func TestDebugger(t *testing.T) {
	testprog.Need(t, "ptrace")
	gdb := testprog.Tool(t, "gdb")
	prog := testprog.Start(t, testprog.Build(t, "c/spin", "O2"), "--threads", "2", "--seconds", "100")
	rec := recordWhole(t, prog.PID, Options{Interval: 10 * time.Millisecond, Groups: 5}, func(s *Session) {
		stops := func() uint64 { return s.Status().Total.Stops }
		await(t, "stops", func() bool { return stops() > 20 })
		for try := 1; ; try++ {
			out, err := exec.Command(gdb, "-nx", "-batch", "-ex", "thread apply all bt", "-p", fmt.Sprint(prog.PID)).CombinedOutput()
			if err != nil {
				t.Fatalf("gdb: %v: %s", err, out)
			}
			if n := bytes.Count(out, []byte("\n#0 ")); n == 2 {
				break
			}
			// It attached during a stop of ours, as it may during any other tracer's.
			if try == 20 || !bytes.Contains(out, []byte("Operation not permitted")) {
				t.Fatalf("gdb, try %d: %s", try, out)
			}
		}
		before := stops()
		await(t, "stops again", func() bool { return stops() > before+20 })
	})
	marks := 0
	for i := range rec.Threads {
		for e := range rec.Events(rec.Threads[i].Seq) {
			if e.Kind() == event.Mark && stack.Why(e.Payload()) == stack.WhyTraced {
				marks++
			}
		}
	}
	if marks == 0 {
		t.Error("no mark for the debugger")
	}
	for tid, tracer := range tracersOf(t, prog.PID) {
		if tracer != 0 {
			t.Errorf("thread %s is traced by %d", tid, tracer)
		}
	}
}
