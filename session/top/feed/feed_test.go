package feed

//sliver:layer live

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind/managed"
)

// fed is a feed that observes a program until the test ends.
type fed struct {
	*Feed
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}
}

func feedOf(t *testing.T, p *testprog.Proc, window time.Duration) *fed {
	t.Helper()
	return feedKinds(t, p, window, 0)
}

func feedKinds(t *testing.T, p *testprog.Proc, window time.Duration, kinds trace.Kinds) *fed {
	t.Helper()
	return feedWith(t, p, Options{Interval: 5 * time.Millisecond, Groups: 2, Window: window, Kinds: kinds})
}

func feedWith(t *testing.T, p *testprog.Proc, o Options) *fed {
	t.Helper()
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(proc, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	x := &fed{f, t, stop, make(chan struct{})}
	go func() {
		defer close(x.done)
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-x.done
		f.Close()
		proc.Close()
	})
	return x
}

// until waits for a table that satisfies ok.
func (x *fed) until(what string, ok func(*top.Table) bool) *top.Table {
	x.t.Helper()
	limit, tick := time.After(2*time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		tb := x.Table()
		if ok(tb) {
			return tb
		}
		select {
		case <-tick.C:
		case <-limit:
			x.t.Fatalf("never %s: %+v", what, tb)
		}
	}
}

func find(tb *top.Table, name string) (f top.Func) {
	for _, f = range tb.Funcs {
		if f.Name == name {
			return f
		}
	}
	return top.Func{}
}

// Threads that compute, one of them the main thread: names, CPU, stacks, the end.
func TestFeed(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "120", "--threads", "3", "--wait-go")
	p.Ready()
	x := feedOf(t, p, 500*time.Millisecond)
	p.Go()
	// It takes a while until the threads have started: wait for a whole window of
	// spinning.
	tb := x.until("three threads that spin", func(tb *top.Table) bool {
		f := find(tb, "spin_0")
		return len(tb.Threads) == 3 && f.Total.Wall > int64(tb.Span)*29/10 && f.Total.CPU > 0
	})
	var cpu int64
	names := map[string]bool{}
	for _, r := range tb.Threads {
		cpu += r.CPU
		names[r.Name] = true
		if r.Wall > int64(tb.Span) || r.Main != (int(r.TID) == p.PID) {
			t.Errorf("%+v", r)
		}
	}
	f := find(tb, "spin_29")
	if f.Self.Wall > 0 || f.Total.CPU > cpu || !strings.HasSuffix(f.Module, "/spin") || !names["spin"] {
		t.Errorf("%+v, threads %+v", f, tb.Threads)
	}
	// A thread's new name appears too.
	x.until("the names that threads gave themselves", func(tb *top.Table) bool {
		names := map[string]bool{}
		for _, r := range tb.Threads {
			names[r.Name] = true
		}
		return names["spin"] && names["spin-1"] && names["spin-2"]
	})
	st, ok := x.Stack(tb.Threads[0].Seq)
	if !ok || len(st.Frames) < 30 || st.TID != tb.Threads[0].TID {
		t.Errorf("%+v", st)
	}
	for _, fr := range st.Frames {
		if fr.Func == "spin_29" && (!strings.HasSuffix(fr.File, "spin.c") || fr.Line == 0) {
			t.Errorf("%+v", fr)
		}
	}
	if s := x.Stats(); s.Samples == 0 || s.Stops == 0 || !x.Ended().IsZero() {
		t.Errorf("%+v", s)
	}
	p.Kill()
	<-x.done
	last := x.Table()
	if x.Ended().IsZero() || find(last, "spin_0").Total.Wall == 0 {
		t.Errorf("the last table: %+v", last)
	}
	for _, r := range last.Threads {
		if r.State != stack.StateDead {
			t.Errorf("%+v", r)
		}
	}
}

// The time in a thread's work and in its sleep agrees with the scheduler's account, although a small bound on the
// cost leaves out most samples of work: a stop costs, a look at a sleeper does not.
func TestFeedFits(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/duty", "O2"), "nanosleep", "4000", "6000", "120", "0")
	p.Line("ready")
	before := delayed(t, p)
	x := feedWith(t, p, Options{Interval: 5 * time.Millisecond, Groups: 1, Window: 8 * time.Second, MaxOverhead: 0.001})
	tb := x.until("a whole window", func(tb *top.Table) bool { return tb.Span == 8*time.Second && len(tb.Threads) == 1 })
	row := tb.Threads[0]
	nap := find(tb, "clock_nanosleep").Total.Wall
	// Between two waits it runs in what their stacks share, so the waits are compared. Of a gap between samples nothing
	// is known: shares are compared. A program that waits for a CPU does not sleep.
	share, seen := float64(nap)/float64(max(row.Wall, 1)), float64(tb.Span)
	chance := 4.5 * math.Sqrt(.25*5e6/seen) // standard deviations of a share of independent ticks: less than 1 of 100,000 runs
	most, least := 1-float64(row.CPU)/seen*.85+chance, 1-(float64(row.CPU)*1.15+float64(delayed(t, p)-before))/seen-chance
	t.Logf("asleep for %v of %v seen; of %v the scheduler counts %v, and %v of waiting for a CPU", time.Duration(nap), time.Duration(row.Wall), tb.Span, time.Duration(row.CPU), delayed(t, p)-before)
	if share < least || share > most || row.CPU == 0 {
		t.Errorf("sleep has %.2f of the time, by the scheduler %.2f to %.2f", share, least, most)
	}
}

// delayed returns how long the main thread has waited for a CPU.
func delayed(t *testing.T, p *testprog.Proc) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	var ran, waited int64
	if _, err := fmt.Sscan(string(b), &ran, &waited); err != nil {
		t.Fatal(err)
	}
	return time.Duration(waited)
}

// A program that executes another one: names are those of the program at that time.
func TestFeedExec(t *testing.T) {
	testprog.Need(t, "ptrace")
	then := testprog.Build(t, "c/spin", "O0")
	p := testprog.Start(t, testprog.Build(t, "c/exec", "O0"), "--times", "0", "--ms", "10", "--until-line", "--then", then, "--", "--seconds", "120")
	p.Line("{")
	x := feedOf(t, p, 500*time.Millisecond)
	x.until("the first program", func(tb *top.Table) bool { return find(tb, "exec_spin").Total.Wall > 0 })
	p.Go()
	// Its name is read with the list of threads, on a busy machine later than its first stacks.
	tb := x.until("the second program", func(tb *top.Table) bool {
		return find(tb, "spin_29").Total.Wall == int64(tb.Span) && len(tb.Threads) == 1 && tb.Threads[0].Name == "spin"
	})
	if f := find(tb, "exec_spin"); f.Total.Wall != 0 {
		t.Errorf("%+v, %+v", f, tb.Threads)
	}
}

// Code generated by the program has the names of its perf map, including entries added
// later.
func TestMadeCode(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "120", "--wait-go")
	p.Ready()
	x := feedOf(t, p, 500*time.Millisecond)
	var heap *stack.Mapping
	maps := x.live.Maps()
	for i := range maps {
		if maps[i].Path == "[heap]" || maps[i].Path == "[stack]" {
			heap = &maps[i]
		}
	}
	if heap == nil {
		t.Fatal("no mapping that is no file")
	}
	perfMap := filepath.Join(os.TempDir(), fmt.Sprintf("perf-%d.map", p.PID))
	t.Cleanup(func() { os.Remove(perfMap) })
	write := func(lines string) {
		if err := os.WriteFile(perfMap, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf("%x 40 made::first\n", heap.Start))
	r := resolver{p: x.proc, t: x.live, mapped: live.NewMapped(x.proc)}
	r.begin()
	defer r.close()
	r.made.Every = time.Nanosecond // and 20 times the read's duration
	got := map[event.Word]string{}
	ask := func(offsets ...uint64) {
		var asked []place
		for _, o := range offsets {
			asked = append(asked, place{0, event.WordOf(&stack.Frame{PC: heap.Start + o, Func: 1, Exact: true})})
		}
		r.resolve(asked, func(p place, fs []top.Frame) { got[p.word] = fs[0].Func })
	}
	name := func(o uint64) string {
		return got[event.WordOf(&stack.Frame{PC: heap.Start + o, Func: 1, Exact: true})]
	}
	ask(0x10, 0x50)
	if name(0x10) != "made::first" || !strings.Contains(name(0x50), "+0x") {
		t.Errorf("%v", got)
	}
	write(fmt.Sprintf("%x 40 made::first\n%x 40 made::second\n%x 40 made::third\n", heap.Start, heap.Start+0x40, heap.Start+0x80))
	for begin := time.Now(); name(0x90) != "made::third" && time.Since(begin) < 20*time.Second; {
		ask(0x90)
	}
	if name(0x50) != "made::second" || name(0x90) != "made::third" || len(r.later) != 0 {
		t.Errorf("%v, later %v", got, r.later)
	}
	// An unmapped address is retried a few times.
	nowhere := place{0, event.WordOf(&stack.Frame{PC: 0x10, Func: 1, Exact: true})}
	for i := range tries {
		var fs []top.Frame
		r.resolve([]place{nowhere}, func(_ place, f []top.Frame) { fs = f })
		if (fs != nil) != (i == tries-1) {
			t.Errorf("try %d: %v", i, fs)
		}
	}
	r.close()
}

// TestExecInOneRequest: a request has places of the program before an exec and after it, of the same file.
func TestExecInOneRequest(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "120", "--wait-go")
	p.Ready()
	x := feedOf(t, p, 500*time.Millisecond)
	p.Go()
	var word event.Word
	x.until("a function of the program", func(*top.Table) bool {
		n := x.names
		n.mu.Lock()
		defer n.mu.Unlock()
		for p, fs := range n.places {
			if len(fs) > 0 && strings.HasPrefix(fs[0].Func, "spin_") {
				word = p.word
			}
		}
		return word != 0
	})
	r := resolver{p: x.proc, t: x.live, mapped: live.NewMapped(x.proc)}
	r.begin()
	defer r.close()
	for _, asked := range [][]place{{{1, word}, {0, word}}, {{0, word}}} {
		r.resolve(slices.Clone(asked), func(p place, fs []top.Frame) {
			if named := strings.HasPrefix(fs[0].Func, "spin_"); named != (len(asked) > 1) { // in the end, the first program is gone
				t.Errorf("%+v of %+v: %+v", p, asked, fs)
			}
		})
	}
}

// TestPython: Python functions are in the table among C functions, or alone.
func TestPython(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Tool(t, "python3"), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py"), "objects")
	p.Ready()
	p.Go()
	p.Line("busy")
	there := func(tb *top.Table) bool {
		f := find(tb, "objects")
		return f.Module == managed.Of(stack.KindPython).Module && f.Total.Wall > int64(tb.Span)/2 && find(tb, "Shape.__hash__").Total.Wall > 0
	}
	tb := feedOf(t, p, 500*time.Millisecond).until("functions of both", func(tb *top.Table) bool {
		return there(tb) && find(tb, "_PyEval_EvalFrameDefault").Total.Wall > 0
	})
	if !slices.ContainsFunc(tb.Threads, func(r top.Row) bool { return r.Name == "objects" }) {
		t.Errorf("threads %+v", tb.Threads)
	}
	tb = feedKinds(t, p, 500*time.Millisecond, trace.AllKinds.Without(stack.KindNative)).until("functions of Python", there)
	for _, f := range tb.Funcs {
		if f.Module != managed.Of(stack.KindPython).Module && !strings.HasPrefix(f.Name, "[") && f.Name != trace.NotSampled { // neither is a function
			t.Errorf("%+v is not left out", f)
		}
	}
}
