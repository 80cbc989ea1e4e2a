package breakpoint

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// function finds a symbol's places in a running program by the file's own tables.
func function(t *testing.T, pid int, path, name string, fn int) ([]Probe, calls.Code) {
	t.Helper()
	f := testprog.Symbol(t, path, name)
	arch, _ := calls.ArchOf(runtime.GOARCH)
	c, err := calls.Scan(arch, []calls.Part{{Vaddr: f.Vaddr, Code: f.Code}}, false)
	if err != nil {
		t.Fatal(err)
	}
	bias := loadBias(t, pid, path)
	out := []Probe{{Addr: c.Entry + bias, Fn: fn, Where: calls.Enter}}
	for _, x := range c.Exits {
		out = append(out, Probe{Addr: x.Vaddr + bias, Fn: fn, Where: x.Where})
	}
	return out, c
}

func loadBias(t *testing.T, pid int, path string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Type == elf.ET_EXEC {
		return 0
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := target.ParseMaps(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		for _, p := range f.Progs {
			if m.Path == exe && m.Exec && p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && m.Off == p.Off&^0xfff {
				return m.Start - p.Vaddr&^0xfff
			}
		}
	}
	t.Fatal("no code mapped")
	return 0
}

// follower pairs what an engine reports.
type follower struct {
	p     calls.Pairer
	calls []calls.Call
	lost  uint64
}

func (f *follower) Hit(h *calls.Hit)                  { f.p.Hit(h) }
func (f *follower) Lost(n uint64)                     { f.lost += n; f.p.Lost() }
func (f *follower) Gone(tid stack.TID, at stack.Time) { f.p.Gone(tid, at) }

// open sets breakpoints in a running program, or skips where this machine has none.
func open(t *testing.T, pid int, probes []Probe) *Engine {
	t.Helper()
	cpus, err := target.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	e, err := Open(Options{PID: pid, CPUs: cpus, Probes: probes, Threads: func() ([]stack.TID, error) { return p.Threads(nil) }})
	if errors.Is(err, ErrNone) || errors.Is(err, ErrRights) {
		testprog.Missing(t, "perf", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// follow reads until the program has said that it is done, then the rest.
func follow(t *testing.T, e *Engine, p *testprog.Proc, loops bool) *follower {
	t.Helper()
	f := &follower{}
	f.p = calls.Pairer{Region: regionsOf(p.PID).Of, Began: target.Now(), Yield: func(c calls.Call) { f.calls = append(f.calls, c) }, Loops: func(int) bool { return loops }}
	done := make(chan struct{})
	go func() { defer close(done); p.Line("truth "); p.Done() }()
	p.Go()
	for on := true; on; {
		select {
		case <-done:
			on = false
		default:
			e.Wait(20 * time.Millisecond)
		}
		e.Read(target.Now(), f, false)
	}
	e.Read(target.Now(), f, true)
	f.p.Close(target.Now())
	return f
}

// TestCounts holds the engine against the account of programs that end their calls in every way.
func TestCounts(t *testing.T) {
	testprog.Need(t, "gcc", "g++", "ptrace")
	for _, c := range []struct {
		program, scenario, function string
		n                           int
		tail                        bool
	}{
		// 2,000 calls are 4,000 hits: a buffer holds them all, however late this test gets to read it.
		{"c/traced", "return", "probed", 2000, false},
		{"c/traced", "longjmp", "jumping", 2000, false},
		{"c/traced", "deep", "deep", 150, false},
		{"c/traced", "recursion", "recursing", 200, false},
		{"c/traced", "recursion", "recursing", 2000, false},
		{"c/traced", "tail", "tailing", 2000, true},
		{"c/traced", "signal", "interrupted", 1000, false},
		{"c/traced", "threads", "probed", 2000, false},
		{"c/traced", "fork", "probed", 2000, false},
		{"cpp/throwing", "", "_ZN4shop5order5totalEl", 2000, false},
	} {
		t.Run(c.scenario+" "+c.function, func(t *testing.T) {
			path := testprog.Build(t, c.program, "O2")
			args := []string{c.scenario, fmt.Sprint(c.n)}
			if c.scenario == "" {
				args = args[1:]
			}
			p := testprog.Start(t, path, args...)
			p.Ready()
			probes, code := function(t, p.PID, path, c.function, 0)
			if len(probes) > MaxProbes {
				t.Fatalf("%d places: %+v", len(probes), code)
			}
			e := open(t, p.PID, probes)
			f := follow(t, e, p, code.Loops)
			var all, returned, left int
			if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d %d", &all, &returned, &left); err != nil {
				t.Fatal(err)
			}
			if f.lost > 0 {
				t.Fatalf("%d hits were lost", f.lost)
			}
			got := map[calls.How]int{}
			for _, x := range f.calls {
				if x.Before || x.Exit < x.Enter || x.CFA == 0 || x.Ret == 0 || x.Unsure {
					t.Fatalf("%+v", x)
				}
				if x.How == calls.Open { // nothing came after it that showed its end
					x.How = calls.Left
				}
				got[x.How]++
			}
			ended := calls.Returned
			if c.tail {
				ended = calls.Jumped
			}
			if len(f.calls) != all || got[ended] != returned || got[calls.Left] != left {
				t.Errorf("%d calls, %d ended, %d left; the program counted %d, %d, %d (%v)", len(f.calls), got[ended], got[calls.Left], all, returned, left, got)
			}
		})
	}
}

// regionsOf numbers the stacks of a program's threads.
func regionsOf(pid int) *calls.Regions {
	return &calls.Regions{Now: target.Now, Maps: func() []stack.Mapping {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			return nil
		}
		maps, _ := target.ParseMaps(b)
		return maps
	}}
}

// TestEdges compares the times of calls with the program's own clock readings, which lie inside.
func TestEdges(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	path := testprog.Build(t, "c/traced", "O2")
	p := testprog.Start(t, path, "edges", "300")
	p.Ready()
	probes, code := function(t, p.PID, path, "timed", 0)
	f := follow(t, open(t, p.PID, probes), p, code.Loops)
	type edge struct{ enter, leave stack.Time }
	var truth []edge
	for _, line := range p.Output() {
		var x edge
		if n, _ := fmt.Sscanf(line, "call %d %d", &x.enter, &x.leave); n == 2 {
			truth = append(truth, x)
		}
	}
	if len(truth) != 300 || len(f.calls) != len(truth) {
		t.Fatalf("%d calls, the program made %d", len(f.calls), len(truth))
	}
	var before, after []int64
	for i, x := range truth {
		c := f.calls[i]
		if c.Enter > x.enter || c.Exit < x.leave || c.How != calls.Returned {
			t.Fatalf("call %d from %d to %d (%v), the program was in it from %d to %d", i, c.Enter, c.Exit, c.How, x.enter, x.leave)
		}
		before, after = append(before, int64(x.enter-c.Enter)), append(after, int64(c.Exit-x.leave))
	}
	// How close they are, TestEdgesOfBoth of session/exact compares with the cost of a hit.
	t.Logf("enter: median %v before the program's reading; exit: median %v after it", median(before), median(after))
}

func median(ns []int64) time.Duration {
	var h calls.Histogram
	for _, x := range ns {
		h.Add(x)
	}
	return time.Duration(h.Percentile(.5))
}

// TestNothingIsLeft kills a process that has breakpoints in another one: the registers are free and
// the code is as the file has it.
func TestNothingIsLeft(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	if pid := os.Getenv("SLIVER_BREAK_IN"); pid != "" {
		var n int
		fmt.Sscan(pid, &n)
		probes, _ := function(t, n, os.Getenv("SLIVER_BREAK_PATH"), "probed", 0)
		open(t, n, append(probes, Probe{Addr: probes[0].Addr + 1}, Probe{Addr: probes[0].Addr + 2})[:MaxProbes])
		fmt.Println("broken in")
		testprog.UntilKilled()
	}
	path := testprog.Build(t, "c/traced", "nopie")
	p := testprog.Start(t, path, "return", "1000")
	p.Ready()
	probes, _ := function(t, p.PID, path, "probed", 0)
	open(t, p.PID, probes).Close() // skips on a machine without breakpoints
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLIVER_BREAK_IN", fmt.Sprint(p.PID))
	t.Setenv("SLIVER_BREAK_PATH", path)
	killed := testprog.Start(t, self, "-test.run=^TestNothingIsLeft$")
	killed.Line("broken in")
	four := append(probes, Probe{Addr: probes[0].Addr + 1}, Probe{Addr: probes[0].Addr + 2})[:MaxProbes]
	cpus, _ := target.OnlineCPUs()
	threads := func() ([]stack.TID, error) { return []stack.TID{stack.TID(p.PID)}, nil }
	if e, err := Open(Options{PID: p.PID, CPUs: cpus, Probes: four, Threads: threads}); !errors.Is(err, ErrBusy) {
		if e != nil {
			e.Close()
		}
		t.Fatalf("while all registers are in use: %v", err)
	}
	unix.Kill(killed.PID, unix.SIGKILL)
	<-killed.Exited()
	e, err := Open(Options{PID: p.PID, CPUs: cpus, Probes: four, Threads: threads})
	if err != nil {
		t.Fatalf("after the kill: %v", err)
	}
	e.Close()
	sameText(t, p.PID, path)
	p.Go()
	p.Done()
}

// sameText compares the code in memory with the file's.
func sameText(t *testing.T, pid int, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	want, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	got := make([]byte, len(want))
	if _, err := mem.ReadAt(got, int64(text.Addr+loadBias(t, pid, path))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the code in memory is not the file's")
	}
}

func TestRefuses(t *testing.T) {
	for _, probes := range [][]Probe{nil, make([]Probe, MaxProbes+1)} {
		if e, err := Open(Options{PID: os.Getpid(), Probes: probes}); err == nil {
			e.Close()
			t.Errorf("%d probes are taken", len(probes))
		}
	}
}

// Torn records, and records of unknown events or other processes, yield no hit and no panic.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{9, 0, 0, 0, 2, 0, 72, 0, 1, 0, 0, 0, 0, 0, 0, 0}, true)
	f.Add([]byte{2, 0, 0, 0, 0, 0, 24, 0}, false)
	f.Fuzz(func(t *testing.T, b []byte, goCode bool) {
		e := &Engine{o: Options{PID: 1, Probes: []Probe{{Where: calls.Enter, Go: goCode}}}, probes: map[uint64]source{1: {0, 1}}, owner: map[place]stack.TID{}}
		e.take(b)
		for _, x := range e.pending {
			if !x.gone && x.lost == 0 && x.hit.Fn != 0 {
				t.Fatalf("%+v", x)
			}
		}
	})
}

// TestRemove frees the registers of one kind of places for others, while the rest goes on.
func TestRemove(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	path := testprog.Build(t, "c/traced", "O2")
	p := testprog.Start(t, path, "return", "1000")
	p.Ready()
	probes, _ := function(t, p.PID, path, "probed", 0)
	inside := probes[0]
	inside.Where = calls.Inside
	for i := len(probes); i < MaxProbes; i++ {
		inside.Addr++
		probes = append(probes, inside)
	}
	e := open(t, p.PID, probes)
	later, _ := function(t, p.PID, path, "finish", 1)
	if err := e.Add(later); err == nil {
		t.Fatalf("%d and %d places are set", len(probes), len(later))
	}
	e.Remove(calls.Inside)
	if err := e.Add(later[:1]); err != nil {
		t.Fatal(err)
	}
	f := follow(t, e, p, false)
	if len(f.calls) != 1000 {
		t.Errorf("%d calls, the program made 1000", len(f.calls))
	}
}
