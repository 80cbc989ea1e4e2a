package unwind_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/lang/python"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

// failing is a core whose memory becomes unreadable after some reads.
type failing struct {
	*unwind.Core
	left  int // reads; below 0: no limit
	reads int
}

func (f *failing) ReadAt(b []byte, addr int64) (int, error) {
	f.reads++
	if f.left == 0 {
		return 0, errors.New("no more of it can be read")
	}
	f.left--
	return f.Core.ReadAt(b, addr)
}

// follows reports whether got is full with frames left out, each time with a gap instead.
func follows(full, got []stack.Frame) bool {
	same := func(a, b *stack.Frame) bool {
		return a.Kind == b.Kind && a.Func == b.Func && (a.Func != 0 || a.PC == b.PC)
	}
	gap := false
	for i := range got {
		g := &got[i]
		if g.Kind == stack.KindError {
			gap = true
			continue
		}
		k := slices.IndexFunc(full, func(f stack.Frame) bool { return same(&f, g) })
		if k < 0 && i+1 < len(got) && got[i+1].Kind == stack.KindError {
			continue // a position in the omitted frames
		}
		if k < 0 || k > 0 && !gap {
			return false
		}
		full, gap = full[k+1:], false
	}
	return len(full) == 0 || gap
}

// bare returns the stack without gap frames.
func bare(frames []stack.Frame) []stack.Frame {
	return slices.DeleteFunc(slices.Clone(frames), func(f stack.Frame) bool { return f.Kind == stack.KindError })
}

// shrink walks the threads of a core while reducing the readable memory, and then the read budget.
// Missing frames must be replaced by a gap and reported by Gaps or as the walk's reason. If order
// is false, a gap anywhere is enough. not returns why a thread cannot show a gap; shown is false if
// no thread does.
func shrink(t *testing.T, core *unwind.Core, kind stack.Kind, order bool, follow func(s *unwind.Space), not func(full []stack.Frame) string) (shown bool) {
	t.Helper()
	mem := &failing{Core: core, left: -1}
	s := unwind.NewSpace(rule.AMD64, unwind.HostFiles{}, mem)
	s.Update(core.Maps())
	tids, regs := core.Threads()
	if err := s.Preload(); err != nil {
		t.Fatal(err)
	}
	setup := func() *unwind.Walker { // a walker without cached runtime data
		mem.left = -1
		follow(s)
		return unwind.NewWalker(s)
	}
	lacking, walks := 0, 0
	seen := map[string]bool{}
	for i := range regs {
		w := setup()
		th := unwind.Thread{TID: stack.TID(tids[i])}
		var full []stack.Frame
		var reason stack.Reason
		for range 3 { // the first walks improve the plan
			full, reason = w.Walk(&th, &regs[i], core.CopyOf(w, &th, &regs[i]))
		}
		full = slices.Clone(full)
		if !slices.ContainsFunc(full, func(f stack.Frame) bool { return f.Kind == kind }) {
			continue
		}
		if reason != stack.ReasonNone || th.Gaps() {
			t.Logf("thread %d was between two calls: %v, gaps %v, where all can be read", tids[i], reason, th.Gaps())
			continue
		}
		var key string
		for _, f := range full {
			key += fmt.Sprintln(f.Kind, f.PC)
		}
		if seen[key] {
			continue // like any other waiting thread
		}
		seen[key] = true
		if why := not(full); why != "" {
			t.Logf("thread %d: %s", tids[i], why)
			continue
		}
		shown = true
		check := func(what string, n int, w *unwind.Walker, th *unwind.Thread) (whole bool) {
			var got []stack.Frame
			var reason stack.Reason
			got, reason = w.Walk(th, &regs[i], core.CopyOf(w, th, &regs[i]))
			walks++
			if len(bare(got)) == len(full) && !th.Gaps() && reason == stack.ReasonNone {
				return true
			}
			lacking++
			ok := follows(full, got)
			if !order {
				ok = len(bare(got)) < len(got)
			}
			if !ok || !th.Gaps() && reason == stack.ReasonNone {
				t.Fatalf("thread %d, %d %s: %v, gaps %v\n%v\nwhere all can be read:\n%v", tids[i], n, what, reason, th.Gaps(), got, full)
			}
			return false
		}
		for n := 0; ; n += 1 + n {
			w := setup()
			th := unwind.Thread{TID: stack.TID(tids[i])}
			whole := true
			for range 3 {
				mem.left = n
				whole = check("reads", n, w, &th) && whole
			}
			if whole {
				break
			}
		}
		for n := 0; n <= meter.Budget; n += meter.LeastRead + n {
			w := setup()
			w.LeaveUnread(meter.Budget - n)
			th := unwind.Thread{TID: stack.TID(tids[i])}
			whole := true
			for range 3 {
				whole = check("bytes", n, w, &th) && whole
			}
			if whole {
				break
			}
		}
	}
	if !shown {
		return false
	}
	if lacking == 0 || lacking == walks {
		t.Errorf("%d of %d walks lacked something: that shows nothing", lacking, walks)
	}
	t.Logf("%d of %d walks lacked something", lacking, walks)
	return true
}

// TestGapPython: a gap replaces Python frames that could not be read, in stacks from a copy and in
// stacks read from live memory.
func TestGapPython(t *testing.T) {
	const program = "import threading,sys\n" +
		"e=threading.Event()\n[threading.Thread(target=e.wait,daemon=True).start() for _ in range(1)]\n" +
		"def g(n):\n  yield from (g(n-1) if n else [sys.stdin.read()])\n" +
		"def f(n):\n  return f(n-1) if n else (print('ready',flush=True), sorted([1,2],key=lambda x: list(g(3))))\nf(5)"
	for _, version := range []string{"3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"} {
		t.Run(version, func(t *testing.T) {
			if version != "3.8" && version != "3.11" && version != "3.14" {
				testprog.Whole(t, "versions that differ most")
			}
			exe := testprog.Tool(t, "python"+version)
			core := unwind.DumpCore(t, exe, "-c", program)
			var rt *python.Runtime
			for _, table := range []*managed.Table{managed.NewTable(managed.Of(stack.KindPython), nil), nil} {
				order := version == "3.12" || version == "3.13" // older versions do not mark evaluations in their frames
				shown := shrink(t, core, stack.KindPython, order, func(s *unwind.Space) {
					var err error
					_, err = s.Follow(python.Stacks, table)
					if rt = python.Of(s); rt == nil || err != nil {
						t.Fatal("no Python is found in the core: ", err)
					}
				}, func(full []stack.Frame) string {
					if !slices.ContainsFunc(full, func(f stack.Frame) bool { return f.Func == rt.Eval() }) {
						return "of this build, a part of the function that evaluates is not known as such"
					}
					return ""
				})
				// In the 3.14 build used for tests, the second part of the evaluation function has a
				// symbol of its own, so a walk without a table shows no gap.
				if !shown && (table != nil || version != "3.14") {
					t.Error("no thread shows it")
				}
			}
		})
	}
}

// TestGapJava is TestGapPython for Java frames.
func TestGapJava(t *testing.T) {
	exe := testprog.Tool(t, "java17")
	dir := t.TempDir()
	src := filepath.Join(dir, "Main.java")
	const program = `public class Main {
  static int f(int n) throws Exception { return n > 0 ? f(n - 1) + 1 : System.in.read(); }
  public static void main(String[] a) throws Exception { System.out.println("ready"); System.out.println(f(30)); }
}`
	if err := os.WriteFile(src, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	core := unwind.DumpCore(t, exe, "-Xmx64m", "-XX:+UseSerialGC", src)
	if !shrink(t, core, stack.KindJava, true, func(s *unwind.Space) {
		if st, err := s.Follow(jvm.Stacks, managed.NewTable(managed.Of(stack.KindJava), nil)); st == nil || err != nil {
			t.Fatal("no Java is found in the core: ", err)
		}
	}, func([]stack.Frame) string { return "" }) {
		t.Error("no thread shows it")
	}
}
