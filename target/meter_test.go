package target

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// A meter has the CPU time of a process that its parent has waited for: of one thread, after an exec, of threads that it
// started before and later, and without that of its own children, each to what the kernel does for a process after it has counted it.
func TestMeter(t *testing.T) {
	path := build(t, "../testdata/targets/c/cputimes.c")
	for kind, what := range []string{"one thread", "an exec", "threads", "a child", "threads before and after"} {
		prog := start(t, path, "kind", string(rune('0'+kind)))
		if kind == 4 {
			prog.line()
		}
		m, err := OpenMeter(prog.pid(), 1)
		if errors.Is(err, ErrNoMeter) {
			need(t, "perf", err.Error())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		first, ok := m.Used()
		if !ok {
			t.Fatalf("%s: unknown while it runs", what)
		}
		stolen := testprog.Stolen(t)
		prog.tell("go")
		below := int64(0)
		if what == "a child" {
			var pid, parent int
			if n, _ := fmt.Sscanf(prog.line(), "used %d %d %d", &pid, &below, &parent); n != 3 || parent != prog.pid() {
				t.Fatalf("%s: it is of another form", what)
			}
		}
		if err := prog.wait(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		used, ok := m.Used()
		stolen = testprog.Stolen(t) - stolen
		st := prog.cmd.ProcessState
		truth := int64(st.UserTime()+st.SystemTime()) - below
		t.Logf("%s: %d ns, the kernel's account %d, at the beginning %d", what, used, truth, first)
		if !ok || used < first || used < truth-3e6 || used > truth+12e6+stolen {
			t.Errorf("%s: %d ns, %v; the kernel's account is %d", what, used, ok, truth)
		}
		m.Rest()
		if _, ok := m.Used(); ok {
			t.Errorf("%s: known though nothing counts it", what)
		}
	}
}

// A meter counts a process whose first thread has ended.
func TestMeterHeadless(t *testing.T) {
	prog := start(t, build(t, "../testdata/targets/c/headless.c"), "goes")
	prog.line()
	eventually(t, "the first thread ends", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", prog.pid()))
		st, failed := ParseStat(b)
		return err == nil && failed == nil && st.State == 'Z'
	})
	m, err := OpenMeter(prog.pid(), 1)
	if errors.Is(err, ErrNoMeter) {
		need(t, "perf", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	first, ok := m.Used()
	prog.tell("end")
	if err := prog.wait(); err != nil {
		t.Fatal(err)
	}
	if used, there := m.Used(); !ok || !there || used <= first {
		t.Errorf("%d ns, %v, at the end, and %d, %v, before", used, there, first, ok)
	}
	if _, err := OpenMeter(prog.pid(), 1); !errors.Is(err, ErrGone) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

// A meter is of one process: its number must not be another one's, and many threads are not counted.
func TestMeterRefuses(t *testing.T) {
	prog := start(t, build(t, "../testdata/targets/c/calls.c", "-lrt"), "1")
	for prog.line() != "end" {
	}
	if m, err := OpenMeter(prog.pid(), 1); !errors.Is(err, ErrThreads) {
		if errors.Is(err, ErrNoMeter) {
			need(t, "perf", err.Error())
		}
		t.Errorf("a process with many threads: %v, %v", m, err)
	}
	one := start(t, build(t, "../testdata/targets/c/cputimes.c"), "kind", "4")
	one.line()
	if m, err := OpenMeter(one.pid(), monotonic()+1e9); !errors.Is(err, ErrGone) {
		t.Errorf("a process that has used more than its life: %v, %v", m, err)
	}
	m, err := OpenMeter(one.pid(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m.Rest()
	if ns, ok := m.Used(); !ok || ns < 0 {
		t.Errorf("a process that is alive: %d ns, %v", ns, ok)
	}
	m.Close()
}

// The clock of a process that runs is behind by up to a tick, so that its base may grow, and shrinks only if the counter has time
// that cannot be the process's.
func TestMeterBase(t *testing.T) {
	m := &Meter{}
	for _, c := range []struct{ used, counted, base int64 }{
		{5e6, 0, 5e6},                           // exact
		{6e6, 3e6, 5e6},                         // behind by 2 ms
		{10e6, 3e6, 7e6},                        // the first was behind by as much
		{20e6, 50e6, -30e6 + behind},            // 37 ms were stolen
		{30e6, 60e6 + behind, -30e6},            // behind again
		{40e6, 70e6 + 2*behind, -30e6 - behind}, // more was stolen
	} {
		if m.set(c.used, c.counted); m.base != c.base {
			t.Errorf("%d ns by the clock, %d counted: base %d, want %d", c.used, c.counted, m.base, c.base)
		}
	}
}
