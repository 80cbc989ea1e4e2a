package feed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/top"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
)

// fed is a feed at work on a program until the test ends.
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
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(proc, Options{Interval: 5 * time.Millisecond, Groups: 2, Window: window, Kinds: kinds})
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

// until waits for a table that satisfies.
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

// Threads that compute, one of which is main: names, CPU, stacks, the end.
func TestFeed(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "120", "--threads", "3", "--wait-go")
	p.Ready()
	x := feedOf(t, p, 500*time.Millisecond)
	p.Go()
	// It takes a while until the threads have begun: a whole window of spinning.
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
	// The new name of a thread comes too.
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

// A program that becomes another: names are those of the program of the time.
func TestFeedExec(t *testing.T) {
	testprog.Need(t, "ptrace")
	then := testprog.Build(t, "c/spin", "O0")
	p := testprog.Start(t, testprog.Build(t, "c/exec", "O0"), "--ms", "1500", "--then", then, "--wait-go", "--", "--seconds", "120")
	p.Ready()
	x := feedOf(t, p, 500*time.Millisecond)
	p.Go()
	x.until("the first program", func(tb *top.Table) bool { return find(tb, "exec_spin").Total.Wall > 0 })
	tb := x.until("the second program", func(tb *top.Table) bool { return find(tb, "spin_29").Total.Wall == int64(tb.Span) })
	if f := find(tb, "exec_spin"); f.Total.Wall != 0 || len(tb.Threads) != 1 || tb.Threads[0].Name != "spin" {
		t.Errorf("%+v, %+v", f, tb.Threads)
	}
}

// Code that the program made itself has the names of its perf map, also those
// that come later.
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
	r := resolver{p: x.proc, t: x.live, files: map[fileKey]*file{}}
	r.made = r.madeOf()
	r.made.Every = time.Nanosecond // and 20 times what it takes
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
	// What lies nowhere is asked again a few times.
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

// TestPython: functions of Python are in the table among those of C, or alone.
func TestPython(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Tool(t, "python3"), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py"), "objects")
	p.Ready()
	p.Go()
	p.Line("busy")
	there := func(tb *top.Table) bool {
		f := find(tb, "objects")
		return f.Module == managed.Python.Module && f.Total.Wall > int64(tb.Span)/2 && find(tb, "Shape.__hash__").Total.Wall > 0
	}
	tb := feedOf(t, p, 500*time.Millisecond).until("functions of both", func(tb *top.Table) bool {
		return there(tb) && find(tb, "_PyEval_EvalFrameDefault").Total.Wall > 0
	})
	if !slices.ContainsFunc(tb.Threads, func(r top.Row) bool { return r.Name == "objects" }) {
		t.Errorf("threads %+v", tb.Threads)
	}
	tb = feedKinds(t, p, 500*time.Millisecond, trace.AllKinds.Without(stack.KindNative)).until("functions of Python", there)
	for _, f := range tb.Funcs {
		if f.Module != managed.Python.Module && !strings.HasPrefix(f.Name, "[") && f.Name != trace.NotSampled { // neither is a function
			t.Errorf("%+v is not left out", f)
		}
	}
}
