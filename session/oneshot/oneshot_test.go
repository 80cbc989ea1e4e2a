package oneshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// said is the output of a program of testdata/targets/locks.
type said struct {
	Threads []stack.TID
	Locks   []string
	Lock    string
	Holder  stack.TID
	Waiters []stack.TID
}

func start(t testing.TB, program, variant string, args ...string) (*testprog.Proc, said) {
	t.Helper()
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, program, variant), args...)
	var s said
	if err := json.Unmarshal([]byte(p.Line("{")), &s); err != nil {
		t.Fatal(err)
	}
	return p, s
}

func open1(t testing.TB, pid int) *target.Process {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func take(t testing.TB, o Options, procs ...*target.Process) []*stacks.Snapshot {
	t.Helper()
	snaps, problems, err := Take(procs, o)
	if err != nil || len(snaps) != len(procs) {
		t.Fatalf("%d snapshots, %v", len(snaps), err)
	}
	for _, p := range problems {
		t.Log(p)
	}
	return snaps
}

// until samples until a result satisfies ok: a program reports that its threads are
// about to wait, not that they do.
func until(t testing.TB, o Options, what string, ok func([]*stacks.Snapshot) bool, procs ...*target.Process) []*stacks.Snapshot {
	t.Helper()
	var s []*stacks.Snapshot
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if s = take(t, o, procs...); ok(s) {
			return s
		}
	}
	var b strings.Builder
	for _, x := range s {
		_ = x.WriteText(&b)
	}
	t.Fatalf("%s does not come about; last:\n%s", what, b.String())
	return nil
}

func hexa(v uint64) string { return fmt.Sprintf("%#x", v) }

func unhex(t testing.TB, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// has checks that the functions are on the thread's stack, in that order, leaf first.
func has(t testing.TB, th *stacks.Thread, functions ...string) {
	t.Helper()
	var names []string
	for _, f := range th.Frames {
		names = append(names, f.Func)
	}
	i := 0
	for _, n := range names {
		if i < len(functions) && strings.Contains(n, functions[i]) {
			i++
		}
	}
	if i < len(functions) || th.Truncated != stack.ReasonNone {
		t.Errorf("thread %d: %v (%v), want %v on it", th.TID, names, th.Truncated, functions)
	}
}

func deadlocked(s []*stacks.Snapshot) bool {
	return !slices.ContainsFunc(s, func(s *stacks.Snapshot) bool { return len(s.Deadlocks) == 0 })
}

// Three threads in a cycle must be found, with any selection and any compiler flags;
// the locks must have names if there are symbols.
func TestDeadlock(t *testing.T) {
	for _, variant := range []string{"O2", "fp", "musl"} {
		for _, spec := range []string{"all", "main"} {
			t.Run(variant+"/"+spec, func(t *testing.T) {
				p, said := start(t, "locks/deadlock", variant)
				sel, err := sampler.ParseSelection(spec)
				if err != nil {
					t.Fatal(err)
				}
				s := until(t, Options{Selection: sel}, "a deadlock, and a main thread that waits for its input", func(s []*stacks.Snapshot) bool {
					main := s[0].Thread(stack.TID(p.PID))
					return deadlocked(s) && main.State == stack.StateBlocked && main.Wait != nil && main.Wait.Kind == kind.WaitPipe
				}, open1(t, p.PID))[0]
				if n := len(s.Threads); n != map[string]int{"all": 4, "main": 1}[spec] {
					t.Errorf("%d threads", n)
				}
				d := s.Deadlocks[0]
				if len(s.Deadlocks) != 1 || len(d.Threads) != 3 || d.Timed {
					t.Fatalf("%+v", s.Deadlocks)
				}
				for i, th := range d.Threads {
					me := slices.Index(said.Threads, th.TID)
					next := d.Threads[(i+1)%3].TID
					l := th.Info.Lock
					if me < 0 || said.Threads[(me+1)%3] != next || l.Holder.TID != next || hexa(l.Addr) != said.Locks[(me+1)%3] ||
						l.Kind != kind.LockMutex || l.Type != "errorcheck" {
						t.Errorf("%d waits for %+v", th.TID, l)
					}
					want := "ring"
					if off := l.Addr - unhex(t, said.Locks[0]); off != 0 {
						want += fmt.Sprintf("+%#x", off)
					}
					if variant == "O2" && l.Symbol != want {
						t.Errorf("lock %q, want %q", l.Symbol, want)
					}
					if th := s.Thread(th.TID); th != nil && variant == "O2" {
						has(t, th, "pthread_mutex_lock", "lock_next", "link_main")
					}
				}
			})
		}
	}
}

// A sleeping thread's frame pointers are not enough without a stop: it is stopped, goes
// back to sleep, and its wait must still be reported.
func TestConvoy(t *testing.T) {
	const waiters = 50
	for _, variant := range []string{"O2", "fp"} {
		t.Run(variant, func(t *testing.T) {
			p, said := start(t, "locks/pthread", variant, "normal", fmt.Sprint(waiters))
			s := until(t, Options{}, "a convoy", func(s []*stacks.Snapshot) bool {
				return len(s[0].Convoys) == 1 && len(s[0].Convoys[0].Waiters) == waiters
			}, open1(t, p.PID))[0]
			c := s.Convoys[0]
			if c.Lock.Holder.TID != said.Holder || c.Lock.Holder.By != event.KnownByWord || hexa(c.Lock.Addr) != said.Lock || len(s.Deadlocks) != 0 {
				t.Errorf("%+v, want %+v", c.Lock, said)
			}
			for _, tid := range said.Waiters {
				th := s.Thread(tid)
				if th == nil || th.State != stack.StateBlocked || th.Wait == nil || th.Wait.Lock == nil || th.Wait.Lock.Addr != c.Lock.Addr || th.CPU < 0 {
					t.Fatalf("thread %d: %+v", tid, th)
				}
			}
			if holder := s.Thread(said.Holder); variant == "O2" {
				has(t, holder, "sem_wait", "hold", "holder_main")
				if holder.Wait == nil || holder.Wait.Lock == nil || holder.Wait.Lock.Kind != kind.LockSemaphore {
					t.Errorf("the holder: %+v", holder.Wait)
				}
			}
			p.Go()
			if st := p.Wait(); !st.Success() { // no thread was disturbed
				t.Errorf("ended with %v", st)
			}
		})
	}
}

// A cycle over two processes must be found if both are sampled, and in neither alone.
func TestAcrossProcesses(t *testing.T) {
	_, said := start(t, "locks/shared", "O2")
	a, b := open1(t, int(said.Threads[0])), open1(t, int(said.Threads[1]))
	snaps := until(t, Options{}, "a deadlock", deadlocked, a, b)
	for i, s := range snaps {
		d := s.Deadlocks[0]
		if len(d.Threads) != 2 || len(s.Threads) != 1 || s.PID != int(said.Threads[i]) {
			t.Fatalf("%+v", d)
		}
		for _, th := range d.Threads {
			me := slices.Index(said.Threads, th.TID)
			if me < 0 || th.PID != int(th.TID) || th.Info.Lock.Holder.TID != said.Threads[1-me] || !th.Info.Lock.Shared || hexa(th.Info.Lock.Addr) != said.Locks[1-me] {
				t.Errorf("%+v %+v", th, th.Info.Lock)
			}
		}
	}
	alone := take(t, Options{}, a)[0]
	if len(alone.Deadlocks) != 0 || alone.Threads[0].Wait.Lock.Holder.TID != said.Threads[1] {
		t.Errorf("alone: %+v, %+v", alone.Deadlocks, alone.Threads[0].Wait.Lock)
	}
}

func TestRunning(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "600", "--wait-go")
	p.Ready()
	p.Go()
	s := until(t, Options{}, "a thread that runs", func(s []*stacks.Snapshot) bool {
		th := &s[0].Threads[0]
		return (th.State == stack.StateRunning || th.State == stack.StateRunnable) && len(th.Frames) > 2
	}, open1(t, p.PID))[0]
	th := &s.Threads[0]
	if th.Wait != nil || th.CPU < 0 {
		t.Errorf("%+v", th)
	}
	has(t, th, "main")
	for _, f := range th.Frames {
		if f.Func == "main" && (filepath.Base(f.File) != "spin.c" || f.Line == 0 || f.BuildID == "" || f.Offset == 0 || filepath.Base(f.Module) != "spin") {
			t.Errorf("%+v", f)
		}
	}
}

// A thousand threads: no sleep may be cut short, and each stack must be complete.
func TestThousand(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/sleepers", "O2"), "--sleepers", "1000", "--seconds", "600", "--wait-go")
	p.Ready()
	p.Go()
	s := until(t, Options{}, "a thousand sleepers", func(s []*stacks.Snapshot) bool {
		asleep := 0
		for i := range s[0].Threads {
			if th := &s[0].Threads[i]; th.State == stack.StateBlocked && th.Wait != nil && th.Wait.Call != "" {
				asleep++
			}
		}
		return asleep >= 1000
	}, open1(t, p.PID))[0]
	for i := range s.Threads {
		if th := &s.Threads[i]; th.Truncated != stack.ReasonNone || len(th.Frames) == 0 || th.Frames[0].Func == "" {
			t.Errorf("thread %d: %d frames, %v", th.TID, len(th.Frames), th.Truncated)
		}
	}
	// The process is opened and its files are read again each time, as by sliver stack.
	best := time.Hour
	for try := 0; try < 5 && best > time.Second; try++ {
		proc := open1(t, p.PID)
		before := used(t)
		take(t, Options{}, proc)
		best = min(best, used(t)-before)
	}
	t.Logf("a thousand threads in %v of CPU", best)
	if best > time.Second {
		t.Errorf("a thousand threads take %v of CPU", best)
	}
}

// used returns the CPU time of this process: the cost of a sample, also on a busy machine.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestNoThreads(t *testing.T) {
	p, _ := start(t, "locks/deadlock", "O2")
	sel, err := sampler.ParseSelection("nosuch")
	if err != nil {
		t.Fatal(err)
	}
	var none *NoThreadsError
	if _, _, err := Take([]*target.Process{open1(t, p.PID)}, Options{Selection: sel}); !errors.As(err, &none) || none.Process.PID() != p.PID {
		t.Errorf("%v", err)
	}
	proc := open1(t, p.PID)
	p.Kill()
	if s, _, err := Take([]*target.Process{proc}, Options{}); err == nil {
		t.Errorf("a process that is gone: %+v", s[0])
	}
}

func BenchmarkTake(b *testing.B) {
	testprog.Need(b, "ptrace")
	p := testprog.Start(b, testprog.Build(b, "c/sleepers", "O2"), "--sleepers", "1000", "--seconds", "600", "--wait-go")
	p.Ready()
	p.Go()
	proc := open1(b, p.PID)
	for b.Loop() {
		if s := take(b, Options{}, proc)[0]; len(s.Threads) < 1000 {
			b.Fatalf("%d threads", len(s.Threads))
		}
	}
}
