package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// recordWhole records a process until during returns, and opens the recording.
func recordWhole(t *testing.T, pid int, o Options, during func(s *Session)) *trace.Recording {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	file := filepath.Join(t.TempDir(), "run.sliver")
	out, err := export.ParseOutput(file, "")
	if err != nil {
		t.Fatal(err)
	}
	o.Outputs = []export.Output{out}
	s, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	var reason string
	go func() {
		var err error
		reason, err = s.Run(ctx)
		ended <- err
	}()
	await(t, "first samples", func() bool { return s.Status().Total.Samples > 0 })
	during(s)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(reason); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	rec, err := openRecording(f)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// Signals from outside at 1 kHz, to the process and to threads; children by fork,
// vfork, clone3 and posix_spawn; children that are stopped and continued; breakpoints
// of its own; threads that come and go: all at once, sampled at 1 kHz, and each must
// behave as without sampling.
func TestAsWithout(t *testing.T) {
	testprog.Need(t, "ptrace")
	rounds := "500"
	if long() {
		rounds = "10000"
	}
	for _, policy := range []sampler.StopPolicy{sampler.StopAuto, sampler.StopAlways} {
		t.Run(policy.String(), func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "c/unusual", "O2"), rounds)
			prog.Line("ready")
			rec := recordWhole(t, prog.PID, Options{Interval: time.Millisecond, Jitter: .1, Groups: 5, Stop: policy}, func(*Session) {
				prog.Go()
				if st := prog.Wait(); !st.Success() {
					t.Errorf("ended with %v", st)
				}
			})
			lines := prog.Output()
			for _, line := range lines {
				var name string
				var want, got int
				if n, _ := fmt.Sscan(line, &name, &want, &got); n != 3 || want != got {
					t.Errorf("%q", line)
				}
			}
			if len(lines) != 17 {
				t.Errorf("%d lines: %q", len(lines), lines)
			}
			if total := rec.Stats.Total(); total.Stops < 50 {
				t.Errorf("only %d stops", total.Stops)
			}
		})
	}
}

// A recording must continue over an exec, of the first thread or another one, with a
// mark and with the new program's functions and command line.
func TestExecGoesOn(t *testing.T) {
	testprog.Need(t, "ptrace")
	const times = 3
	for _, thread := range []bool{false, true} {
		t.Run(fmt.Sprintf("thread=%v", thread), func(t *testing.T) {
			args := []string{"--times", fmt.Sprint(times), "--ms", "1000", "--wait-go"}
			if thread {
				args = append(args, "--from-thread")
			}
			prog := testprog.Start(t, testprog.Build(t, "c/exec", "O2"), args...)
			prog.Ready()
			rec := recordWhole(t, prog.PID, Options{Interval: time.Millisecond, Groups: 5}, func(*Session) {
				prog.Go()
				if st := prog.Wait(); !st.Success() {
					t.Errorf("ended with %v", st)
				}
			})
			var marks []stack.Time
			last, sampled := stack.Time(0), stack.Time(0)
			for i := range rec.Threads {
				for e := range rec.Events(rec.Threads[i].Seq) {
					last = max(last, e.Time)
					switch {
					case e.Kind() == event.Seen:
						sampled = max(sampled, e.Time)
					case e.Kind() == event.Mark && stack.Why(e.Payload()) == stack.WhyExec:
						marks = append(marks, e.Time)
					}
				}
			}
			if len(marks) < times-1 {
				t.Fatalf("%d marks for %d execs", len(marks), times)
			}
			slices.Sort(marks)
			if last-marks[0] < 1_000_000_000 {
				t.Errorf("the recording ends %v after the first exec", time.Duration(last-marks[0]))
			}
			if line := strings.Join(rec.Process.Cmdline, " "); !strings.Contains(line, " --times 0 ") {
				t.Errorf("it is said to be of %q, and not of the last program", line)
			}
			if sampled <= marks[len(marks)-1] {
				t.Error("no sample after the last exec")
			}
		})
	}
}

// A thread that sleeps uninterruptibly (the parent in a vfork), one that waits for a
// file system that does not answer, and one frozen by its control group must only lose
// their own samples. Another thread of the same group must continue in time, and each
// must be sampled again when possible.
func TestStuck(t *testing.T) {
	testprog.Need(t, "ptrace")
	testprog.Need(t, "root")
	t.Run("vfork", func(t *testing.T) { stuck(t, "vfork") })
	t.Run("fuse", func(t *testing.T) {
		if _, err := os.Stat("/dev/fuse"); err != nil {
			testprog.Lack(t, "fuse", err.Error())
		}
		stuck(t, "fuse", t.TempDir())
	})
}

// stuck runs a program with a thread that is stuck in the call of that name.
func stuck(t *testing.T, how string, args ...string) {
	prog := testprog.Start(t, testprog.Build(t, "c/stuck", "O2"), args...)
	tid := func(line string) string { return strings.Fields(line)[1] }
	slept, first := tid(prog.Line(how)), tid(prog.Line("spin"))
	var second string
	await(t, "the other thread", func() bool {
		for _, l := range prog.Output() {
			if s := strings.Fields(l); len(s) == 2 && s[0] == "spin" && s[1] != first {
				second = s[1]
			}
		}
		return second != ""
	})
	freeze := freezer(t)
	sel, err := sampler.ParseSelection(strings.Join([]string{slept, first, second}, ","))
	if err != nil {
		t.Fatal(err)
	}
	recordWhole(t, prog.PID, Options{Interval: 10 * time.Millisecond, Groups: 1, Selection: sel}, func(s *Session) {
		of := func(tid string) stack.ThreadStats {
			threads, _ := s.smp.Accounts()
			for _, th := range threads {
				if fmt.Sprint(th.TID) == tid {
					return th
				}
			}
			return stack.ThreadStats{}
		}
		await(t, "stops of both", func() bool { return of(first).Stops > 10 && of(second).Stops > 10 })
		freeze.add(t, first)
		freeze.set(t, "FROZEN")
		// The other one continues, in time.
		before, stuck := of(second), of(first)
		await(t, "a hundred more of the other", func() bool { return of(second).Stops >= before.Stops+100 })
		now := of(second)
		t.Logf("beside a frozen thread: %d stops, %d late, %d timed out; the frozen one: %d samples, %d timed out", now.Stops-before.Stops,
			now.Late-before.Late, now.TimedOut-before.TimedOut, of(first).Samples-stuck.Samples, of(first).TimedOut-stuck.TimedOut)
		if d := now.Late - before.Late; d > 200 {
			t.Errorf("%d ticks of the other thread were late", d)
		}
		freeze.set(t, "THAWED")
		stuck = of(first)
		await(t, "stops of the one that was frozen", func() bool { return of(first).Stops > stuck.Stops+10 })
		// It was read without a stop, or timed out; now it spins.
		asleep := of(slept)
		if asleep.Samples == 0 && asleep.TimedOut == 0 {
			t.Errorf("the thread in %s: %+v", how, asleep)
		}
		prog.Go()
		prog.Line("back " + slept)
		await(t, "stops of the one that was asleep", func() bool { return of(slept).Stops > asleep.Stops+10 })
	})
	for tid, tracer := range tracersOf(t, prog.PID) {
		if tracer != 0 {
			t.Errorf("thread %s is traced by %d", tid, tracer)
		}
	}
	prog.CloseInput()
	prog.Wait()
}

// frozen is a control group of version 1, which freezes single threads.
type frozen string

func freezer(t *testing.T) frozen {
	t.Helper()
	testprog.Need(t, "root")
	const root = "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		testprog.Lack(t, "freezer", "no freezer of control groups' first version at "+root)
	}
	dir, err := os.MkdirTemp(root, "sliver-test-")
	if err != nil {
		t.Fatal(err)
	}
	f := frozen(dir)
	t.Cleanup(func() {
		_ = os.WriteFile(dir+"/freezer.state", []byte("THAWED"), 0)
		// Its threads must leave before it can be removed.
		b, _ := os.ReadFile(dir + "/tasks")
		for _, tid := range strings.Fields(string(b)) {
			_ = os.WriteFile(root+"/tasks", []byte(tid), 0)
		}
		if err := os.Remove(dir); err != nil {
			t.Log(err)
		}
	})
	return f
}

func (f frozen) write(t *testing.T, file, what string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(f), file), []byte(what), 0); err != nil {
		t.Fatal(err)
	}
}

func (f frozen) add(t *testing.T, tid string) { f.write(t, "tasks", tid) }

func (f frozen) set(t *testing.T, state string) {
	f.write(t, "freezer.state", state)
	await(t, state, func() bool {
		b, _ := os.ReadFile(filepath.Join(string(f), "freezer.state"))
		return strings.TrimSpace(string(b)) == state
	})
}
