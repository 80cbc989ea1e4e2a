package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// inKernel reports whether a kernel stack has a function with a text in its name.
func inKernel(rec *trace.Recording, s *trace.Switch, want string) bool {
	return s.Stack > 0 && slices.ContainsFunc(rec.KernelStacks[s.Stack-1], func(f string) bool { return strings.Contains(f, want) })
}

// TestKernelStacksTruth: each wait of 1 ms or more that the program logged has the kernel stack of its system call,
// and no shorter one has a stack.
func TestKernelStacksTruth(t *testing.T) {
	rec, l := recordWakes(t, SwitchOptions{}, 60, 5000)
	needNames(t, rec)
	calls := map[string]string{"pipe": "pipe_read", "event": "eventfd_read", "futex": "futex_wait", "child": "pipe_read", "nap": "nanosleep", "driver": "nanosleep"}
	for _, th := range l.Threads {
		found, waits := 0, 0
		all := openSwitched(t, rec, th.TID)
		for i := range all {
			s := &all[i]
			if s.Open || s.State != stack.StateBlocked && s.State != stack.StateDisk || s.Skipped > 0 {
				continue
			}
			if long := s.In-s.Out >= stack.Time(time.Millisecond); !long || s.Stack == 0 {
				if long || s.Stack != 0 {
					t.Errorf("%s: a wait of %v has stack %d", th.Name, time.Duration(s.In-s.Out), s.Stack)
				}
				continue
			}
			logged := slices.ContainsFunc(th.Waits, func(w [3]int64) bool { return s.Out >= stack.Time(w[1]) && s.In <= stack.Time(w[2]) })
			if !logged {
				continue
			}
			if waits++; inKernel(rec, s, calls[th.Name]) {
				found++
			} else if !inKernel(rec, s, "ptrace") && !inKernel(rec, s, "stop") { // of a sample
				// A sleep that a sample's stop has interrupted goes on in restart_syscall, which reaches the sleeping
				// function by tail calls.
				if t.Logf("%s: in %q, and not in %s: %+v", th.Name, rec.KernelStacks[s.Stack-1], calls[th.Name], *s); !inKernel(rec, s, "syscall") {
					t.Errorf("%s: it is in no system call", th.Name)
				}
			}
		}
		if found < len(th.Waits)/2 || found == 0 || found < waits*9/10 {
			t.Errorf("%s: %d of %d long waits have the stack of their call; the program logged %d", th.Name, found, waits, len(th.Waits))
		}
		// The states that outputs show have the same stacks.
		v := view.New(rec, view.Options{})
		x, ok := v.ByTID(th.TID)
		if !ok {
			t.Fatalf("%s is not in the view", th.Name)
		}
		shown := 0
		in := &view.Intervals{Yield: func(i *view.Interval) {
			s := v.KernelStack(i.Kernel)
			if state, _ := i.Waiting.State(); s != "" && (!i.Exact || state == stack.StateRunning || state == stack.StateRunnable) {
				t.Errorf("%s: %v with %s", th.Name, state, s)
			}
			if strings.Contains(s, calls[th.Name]) {
				shown++
			}
		}}
		in.Close(v.Slices(x, intervalsOf{in}))
		if shown < found/2 {
			t.Errorf("%s: %d intervals have the stack of its call, %d records", th.Name, shown, found)
		}
	}
}

// needNames skips the test if this user sees no names of the kernel's functions.
func needNames(t *testing.T, rec *trace.Recording) {
	t.Helper()
	for _, lost := range rec.Switches.Lost {
		if strings.Contains(lost, "waits have no kernel stacks") {
			testprog.Missing(t, "bpf", lost)
		}
	}
}

// TestKernelStacksFsync: waits for a disk have the kernel's functions of fsync. Any wait has a stack here, since a
// disk may be fast.
func TestKernelStacksFsync(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	if err := kernel.CheckSched(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	only, err := sampler.ParseSelection("all")
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.Start(t, testprog.Build(t, "c/fsyncs", "O2"), filepath.Join(t.TempDir(), "file"), "40")
	p.Ready()
	rec := recordWhole(t, p.PID, Options{Interval: 10 * time.Millisecond, Jitter: .5, Selection: only,
		Switches: &SwitchOptions{Need: true, Kernel: kernel.SchedOptions{Stacks: time.Nanosecond}}}, func(*Session) {
		p.Go()
		p.Line("done")
	})
	needNames(t, rec)
	synced, waited := 0, 0
	for _, s := range openSwitched(t, rec, stack.TID(p.PID)) {
		if s.State == stack.StateDisk {
			waited++
		}
		if inKernel(rec, &s, "fsync") {
			synced++
		}
	}
	if waited == 0 {
		t.Skip("no fsync waits for a disk here: the temporary folder is in memory")
	}
	if synced < waited*9/10 {
		t.Errorf("%d waits have fsync in their stack, %d were for a disk", synced, waited)
	}
}

// TestKernelStacksAtEnd: a wait that is open when the recording ends has its kernel stack, read from /proc, which
// names functions as the kernel's copies do.
func TestKernelStacksAtEnd(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	if err := kernel.CheckSched(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	only, err := sampler.ParseSelection("all")
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.Start(t, testprog.Build(t, "c/wakes", "O2"), "20", "2000")
	p.Ready()
	file := fmt.Sprintf("/proc/%d/task/%d/stack", p.PID, p.PID)
	if _, err := os.ReadFile(file); err != nil {
		testprog.Missing(t, "root", err.Error())
	}
	rec := recordWhole(t, p.PID, Options{Interval: 10 * time.Millisecond, Jitter: .5, Selection: only,
		Switches: &SwitchOptions{Need: true, Kernel: kernel.SchedOptions{Stacks: time.Nanosecond}}}, func(*Session) {
		p.Go()
		p.Line(`{"threads"`)
		// The main thread waits for its input, for some intervals.
		for from := time.Now(); time.Since(from) < 100*time.Millisecond; {
			if text, err := os.ReadFile(file); err == nil && !strings.Contains(string(text), "pipe_read") {
				from = time.Now()
			}
		}
	})
	needNames(t, rec)
	all := openSwitched(t, rec, stack.TID(p.PID))
	last := all[len(all)-1]
	if !last.Open || last.State != stack.StateBlocked || !inKernel(rec, &last, "pipe_read") {
		t.Fatalf("%+v", last)
	}
	v := view.New(rec, view.Options{})
	x, ok := v.ByTID(stack.TID(p.PID))
	if !ok {
		t.Fatal("the main thread is not in the view")
	}
	shown := "" // of the last interval
	in := &view.Intervals{Yield: func(i *view.Interval) { shown = v.KernelStack(i.Kernel) }}
	in.Close(v.Slices(x, intervalsOf{in}))
	if !strings.Contains(shown, "pipe_read") {
		t.Errorf("the last interval shows %q", shown)
	}
	// The same wait by the kernel's copy: that at the start of the program, if the recording saw its end.
	for i := range all[:len(all)-1] {
		if inKernel(rec, &all[i], "pipe_read") {
			for _, name := range rec.KernelStacks[last.Stack-1] {
				if !inKernel(rec, &all[i], name) {
					t.Errorf("%s is in %q alone", name, rec.KernelStacks[last.Stack-1])
				}
			}
			return
		}
	}
	t.Error("no record of the wait for its start")
}

func TestStackNames(t *testing.T) {
	const text = "[<0>] pipe_read+0x2d5/0x3b0\n[<0>] ext4_sync_file+0x1c/0x2a0 [ext4]\n[<ffffffff81000000>] do_syscall_64+0x1/0x2\n[<ffffffffffffffff>] 0xffffffffffffffff\n\nodd\n"
	want := []string{"pipe_read", "ext4_sync_file [ext4]", "do_syscall_64"}
	if got := stackNames(text); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestKernelStacksLost: stacks for which the buffer has no room are counted. Their waits have
// records without a stack, or are in the sums if the buffer has no room for records.
func TestKernelStacksLost(t *testing.T) {
	rec, l := recordWakes(t, SwitchOptions{Kernel: kernel.SchedOptions{Ring: os.Getpagesize(), Stacks: time.Nanosecond}}, 400, 300)
	needNames(t, rec)
	v := view.New(rec, view.Options{})
	if !slices.ContainsFunc(v.Losses(), func(s string) bool { return strings.Contains(s, "have no kernel stack: the kernel's buffer was full") }) {
		t.Errorf("the losses do not say it: %q", v.Losses())
	}
	with, without, summed := 0, 0, uint64(0)
	for _, th := range l.Threads {
		for _, s := range openSwitched(t, rec, th.TID) {
			summed += s.Skipped
			switch {
			case s.Open: // by another way: see atEnd
			case s.Stack > 0:
				with++
			case s.State == stack.StateBlocked:
				without++
			}
		}
	}
	if with == 0 || without == 0 && summed == 0 {
		t.Errorf("%d waits have a stack, %d have none, %d have no record", with, without, summed)
	}
}
