package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// The TestFidelity tests verify the rows of docs/fidelity.md: cases that users of profilers
// and debuggers reported, each with the correct result.

// folded returns the time (ns) of each stack of a recording, root first, separated by ";".
func folded(t *testing.T, dir, recording string, args ...string) map[string]int64 {
	t.Helper()
	out := filepath.Join(dir, "out.folded")
	args = append([]string{"export", recording, "-o", out}, args...)
	if r := sliver(t, dir, args...); r.status != 0 {
		t.Fatalf("%v: %+v", args, r)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := map[string]int64{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		i := strings.LastIndexByte(s.Text(), ' ')
		n, err := strconv.ParseInt(s.Text()[i+1:], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		sum[s.Text()[:i]] += n
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}

// recordFolded records a process until enough samples, least or more, show threads that ran.
func recordFolded(t *testing.T, p *testprog.Proc, least int, args ...string) map[string]int64 {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"-p", pidOf(p), "-i", "2ms", "-o", "x.sliver"}, args...)
	recordEnough(t, dir, least, time.Second, args...)
	return folded(t, dir, "x.sliver")
}

// has reports whether a function is on a stack.
func has(stack, function string) bool {
	return strings.Contains(";"+stack+";", ";"+function+";")
}

// timeOf sums the stacks that contain a function, and those that also contain a gap.
func timeOf(stacks map[string]int64, function string) (sum, gaps int64) {
	for s, n := range stacks {
		if has(s, function) {
			sum += n
			if strings.Contains(s, ";[") {
				gaps += n
			}
		}
	}
	return sum, gaps
}

// TestFidelityContexts: the work of a coroutine appears only on its own stack, and the end
// of a coroutine's stack is not a gap.
func TestFidelityContexts(t *testing.T) {
	testprog.Whole(t, "TestTruth of package session has fibers")
	testprog.Need(t, "ptrace")
	for _, c := range []struct{ variant, mode string }{
		{"O2", "mmap"}, {"O2", "heap"}, {"O2", "static"}, {"O2", "adjacent"}, {"O2", "thread"}, {"O2", "hand"}, {"O2", "zero"},
		{"static", "mmap"}, {"static", "adjacent"},
	} {
		t.Run(c.variant+"/"+c.mode, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "c/contexts", c.variant), c.mode)
			p.Ready()
			stacks := recordFolded(t, p, 50)
			for s := range stacks {
				n := 0
				for _, f := range []string{"burns", "naps", "rests"} {
					if has(s, f) {
						n++
					}
				}
				if n > 1 {
					t.Errorf("functions of several stacks on one: %s", s)
				}
			}
			for _, f := range []string{"burns", "naps", "rests"} {
				// A coroutine that is sampled before its thread's own stack may end in a
				// gap.
				if sum, gaps := timeOf(stacks, f); sum == 0 || gaps > sum/10 {
					t.Errorf("%s: %d ns, %d ns of it below a gap: %v", f, sum, gaps, stacks)
				}
			}
		})
	}
}

// TestFidelityReload: code has the name of the file that was mapped when it was sampled,
// even if another file is later mapped at the same addresses.
func TestFidelityReload(t *testing.T) {
	testprog.Whole(t, "TestAddressReuse of package session has files at the same addresses")
	testprog.Need(t, "ptrace")
	for _, id := range []string{"", "-noid"} {
		for _, mode := range []string{"swap", "rename", "overwrite"} {
			t.Run(mode+id, func(t *testing.T) {
				dir := t.TempDir()
				args := []string{mode}
				for _, v := range []string{"a", "b"} { // in one folder, where the program may write
					b, err := os.ReadFile(testprog.Build(t, "c/pluginlib", v+id))
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, v+".so"), b, 0o755); err != nil {
						t.Fatal(err)
					}
					args = append(args, filepath.Join(dir, v+".so"))
				}
				p := testprog.Start(t, testprog.Build(t, "c/reload", "O2"), args...)
				p.Ready()
				stacks := recordFolded(t, p, 200)
				a, _ := timeOf(stacks, "work_a")
				b, _ := timeOf(stacks, "work_b")
				var all int64
				for _, n := range stacks {
					all += n
				}
				// The two alternate every 60 ms, so over a second or more each has half of
				// the time to within a turn or two. The names of an overwritten file are
				// lost, unless they were read before.
				if max(a, b) > all*7/10 || mode != "overwrite" && min(a, b) < all*3/10 {
					t.Errorf("work_a %d ns, work_b %d ns: %v", a, b, stacks)
				}
				for s := range stacks {
					if has(s, "work_a") && has(s, "work_b") {
						t.Errorf("both on one stack: %s", s)
					}
				}
			})
		}
	}
}

// TestFidelityMovedText: code that a program copied to anonymous memory has the names of its
// file.
func TestFidelityMovedText(t *testing.T) {
	testprog.Whole(t, "programs of several builds")
	testprog.Need(t, "ptrace")
	for _, variant := range []string{"O2", "nopie", "onesegment"} {
		for _, mode := range []string{"all", "middle", "named", "late"} {
			t.Run(variant+"/"+mode, func(t *testing.T) {
				if variant != "O2" {
					testprog.Whole(t, "another build")
				}
				p := testprog.Start(t, testprog.Build(t, "c/moved", variant), mode)
				p.Ready()
				stacks := recordFolded(t, p, 150)
				var all int64
				for _, n := range stacks {
					all += n
				}
				whole := int64(0)
				for s, n := range stacks {
					if has(s, "_start") && strings.HasSuffix(s, ";main;outer_entry;middle_work;leaf_spin") {
						whole += n
					}
				}
				if whole < all*9/10 {
					t.Errorf("%d of %d ns are whole: %v", whole, all, stacks)
				}
			})
		}
	}
}

// TestFidelityGreenlets: Python functions appear below the greenlet that runs them. A frame
// marks the missing functions of the greenlet that started it.
func TestFidelityGreenlets(t *testing.T) {
	testprog.Whole(t, "each version of Python")
	testprog.Need(t, "ptrace")
	program := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "greenlets.py")
	for _, v := range []string{"3.8", "3.10", "3.11", "3.12"} {
		t.Run(v, func(t *testing.T) {
			if v == "3.10" || v == "3.11" {
				testprog.Whole(t, "two other versions")
			}
			module := testprog.Tool(t, "greenlet"+v)
			cmd := exec.Command(testprog.Tool(t, "python"+v), program)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Dir(filepath.Dir(module)))
			p := testprog.StartCmd(t, cmd)
			p.Ready()
			dir := t.TempDir()
			recordEnough(t, dir, 200, 2*time.Second, "-p", pidOf(p), "-i", "2ms", "-o", "x.sliver")
			stacks := folded(t, dir, "x.sliver", "--kinds", "python")
			var all, good int64
			for s, n := range stacks {
				all += n
				parts := strings.Split(s, ";")
				inner := parts[min(2, len(parts)):]
				if len(parts) < 3 || parts[1] != "[frames of the parent coroutine]" {
					continue
				}
				want := []string{"one", "crunch"}
				if inner[0] == "two" {
					want = []string{"two", "nested", "nested", "nested", "nested", "crunch"}
				}
				// Callers come first; the innermost one may just be entered or left.
				if len(inner) <= len(want) && slices.Equal(inner, want[:len(inner)]) {
					good += n
				}
			}
			one, _ := timeOf(stacks, "one")
			two, _ := timeOf(stacks, "two")
			// The two alternate every 20 ms. A sample of a frame under construction has a
			// gap.
			if good < all*95/100 || min(one, two) < all*3/10 {
				t.Errorf("%d of %d ns are right, one() has %d, two() %d: %v", good, all, one, two, stacks)
			}
		})
	}
}

// TestFidelityDeadMain: a process whose first thread has ended is sampled like any other.
func TestFidelityDeadMain(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, mode := range []string{"long", "short"} {
		t.Run(mode, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "c/deadmain", "O2"), mode)
			p.Ready()
			waitFor(t, func() bool {
				b, err := os.ReadFile("/proc/" + pidOf(p) + "/stat")
				return err == nil && strings.Contains(string(b), ") Z ")
			})
			if r := sliver(t, t.TempDir(), "stack", "-p", pidOf(p)); r.status != 0 || !strings.Contains(r.out, "outlives") || !strings.Contains(r.out, "pause") {
				t.Errorf("stack: %+v", r)
			}
			stacks := recordFolded(t, p, 150) // longer than the lifetime of the thread that ends
			if sum, gaps := timeOf(stacks, "outlives"); sum == 0 || gaps > sum/10 {
				t.Errorf("%v", stacks)
			}
		})
	}
}

// TestFidelityCuts: a cut stack is marked with the reason, which the summary shows too.
func TestFidelityCuts(t *testing.T) {
	testprog.Whole(t, "TestTruth of package session has optimized code")
	testprog.Need(t, "ptrace")
	for _, c := range []struct{ mode, leaf, reason string }{
		{"hollow", "hollow", "return address is 0"},
		{"deep", "dive", "more than 65536 frames"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "c/cuts", "O1"), c.mode)
			p.Ready()
			dir := t.TempDir()
			var stacks map[string]int64
			for d := time.Second; d < 30*time.Second; d *= 2 {
				r := sliver(t, dir, "record", "-p", pidOf(p), "-d", d.String(), "-o", "x.sliver")
				if r.status != 0 {
					t.Fatalf("%+v", r)
				}
				if stacks = folded(t, dir, "x.sliver"); !strings.Contains(r.errors, "cut ") {
					continue
				}
				if !strings.Contains(r.errors, c.reason) {
					t.Errorf("the summary does not say why: %s", r.errors)
				}
				break
			}
			if r := sliver(t, dir, "stack", "-p", pidOf(p)); c.mode == "deep" && !strings.Contains(r.out, c.reason) {
				t.Errorf("stack: %.2000s", r.out)
			}
			for s := range stacks {
				if has(s, c.leaf) && strings.Contains(s, "["+c.reason+"]") {
					return
				}
			}
			t.Errorf("no stack of %s has a gap for that: %.2000v", c.leaf, stacks)
		})
	}
}

// TestFidelityDeep: deep recursions of runtimes are complete, or have a gap with the reason.
func TestFidelityDeep(t *testing.T) {
	testprog.Whole(t, "TestTruth of package session has deep recursion")
	testprog.Need(t, "ptrace")
	root := testprog.Root(t)
	for _, c := range []struct {
		tool, kind string
		args       []string
		n          int  // calls of dive()
		whole      bool // otherwise there is a gap
	}{
		{"node18", "js", []string{"--stack-size=7000", "node/deep.js", "9000"}, 9000, true},
		{"node22", "js", []string{"--stack-size=7000", "node/deep.js", "9000"}, 9000, true},
		{"node24", "js", []string{"--stack-size=7000", "node/deep.js", "9000"}, 9000, true},
		{"python3.8", "python", []string{"python/deep.py", "5000"}, 5000, false},
		{"python3.12", "python", []string{"python/deep.py", "5000"}, 5000, false},
		{"python3.12", "python", []string{"python/deep.py", "2500"}, 2500, true},
	} {
		t.Run(c.tool+"/"+strconv.Itoa(c.n), func(t *testing.T) {
			cmd := exec.Command(testprog.Tool(t, c.tool), c.args...)
			cmd.Dir = filepath.Join(root, "testdata", "targets")
			p := testprog.StartCmd(t, cmd)
			p.Ready()
			dir := t.TempDir()
			found, gap := 0, false
			for d := 2 * time.Second; d < 30*time.Second && found == 0; d *= 2 { // V8 may be found late
				if r := sliver(t, dir, "record", "-p", pidOf(p), "-t", "main", "-d", d.String(), "-o", "x.sliver"); r.status != 0 {
					t.Fatalf("%+v", r)
				}
				for s := range folded(t, dir, "x.sliver", "--kinds", c.kind) {
					if n := strings.Count(s, ";dive"); n > found {
						found, gap = n, strings.Contains(s, ";[more frames than are read of one stack]")
					}
				}
			}
			if c.whole && (found != c.n+1 || gap) || !c.whole && (found < 1000 || !gap) {
				t.Errorf("%d calls, gap %v", found, gap)
			}
		})
	}
}

// TestFidelityTasksAtEnd: tasks are recorded even if the program ended before the recording.
func TestFidelityTasksAtEnd(t *testing.T) {
	testprog.Whole(t, "TestGoChild has the tasks of a program that ended")
	testprog.Need(t, "ptrace")
	program := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "ends.py")
	for _, v := range []string{"python3.11", "python3.12", "python3.13"} {
		t.Run(v, func(t *testing.T) {
			dir := t.TempDir()
			if r := sliver(t, dir, "record", "-o", "x.sliver", "--", testprog.Tool(t, v), program); r.status != 0 {
				t.Fatalf("%+v", r)
			}
			r := sliver(t, dir, "sql", "x.sliver", "select name from tasks")
			for _, name := range []string{"one worker", "two worker"} {
				if !strings.Contains(r.out, name) {
					t.Errorf("no task %q: %+v", name, r)
				}
			}
			// The kernel's clock may begin before the interpreter is known. Its copies lack what the interpreter keeps.
			var all, cut uint64
			for _, x := range openSeveral(t, filepath.Join(dir, "x.sliver")).Stats.Threads {
				all, cut = all+x.Samples, cut+x.Truncated
			}
			if cut > all/4 {
				t.Errorf("%d of %d stacks lack frames", cut, all)
			}
		})
	}
}

// TestFidelityPlainFork: a process that was forked without Python's fork hooks is still
// read, and the frame through which 3.13 calls __init__ is not shown.
func TestFidelityPlainFork(t *testing.T) {
	testprog.Whole(t, "each version of Python")
	testprog.Need(t, "ptrace")
	program := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "plainfork.py")
	for _, v := range []string{"python3.11", "python3.12", "python3.13"} {
		t.Run(v, func(t *testing.T) {
			p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, v), program))
			child := strings.TrimSpace(strings.TrimPrefix(p.Line("child "), "child "))
			dir := t.TempDir()
			var got string
			for d := time.Second; d < 20*time.Second && !strings.Contains(got, "leaf"); d *= 2 { // leaf() may come later
				if r := sliver(t, dir, "record", "-p", child, "-d", d.String(), "-o", "x.sliver"); r.status != 0 {
					t.Fatalf("%+v", r)
				}
				for s := range folded(t, dir, "x.sliver", "--kinds", "python") {
					got = s[strings.IndexByte(s, ';')+1:]
				}
			}
			if want := "<module>;handle;Conn.__init__;leaf"; got != want {
				t.Errorf("record: %s, want %s", got, want)
			}
			r := sliver(t, dir, "stack", "-p", child)
			if !strings.Contains(r.out, "leaf at ") || strings.Contains(r.out, "__init__ at __init__") {
				t.Errorf("stack: %+v", r)
			}
		})
	}
}

// TestFidelityLateNames: if no thread of a command matches the selection at first, sliver
// records the threads that match later, and reports it if none ever did.
func TestFidelityLateNames(t *testing.T) {
	testprog.Whole(t, "a wait for threads of a name")
	testprog.Need(t, "ptrace")
	bin := testprog.Build(t, "c/latenames", "O2")
	dir := t.TempDir()
	for _, spec := range []string{"io-*", "all,!latenames,!db-*", "/^io/"} {
		if r := sliver(t, dir, "record", "-t", spec, "-o", "x.sliver", "--", bin); r.status != 0 {
			t.Fatalf("%s: %+v", spec, r)
		}
		if sum, _ := timeOf(folded(t, dir, "x.sliver"), "work"); sum == 0 {
			t.Errorf("%s: nothing of work()", spec)
		}
	}
	if r := sliver(t, dir, "record", "-t", "nobody", "-o", "y.sliver", "--", bin); !strings.Contains(r.errors, "no thread matched nobody") {
		t.Errorf("%+v", r)
	}
}

// TestFidelityRenamed: the time of a thread that takes a new name for each kind of work is below the name that it
// had then. If names did not change, half of the time would be below another one.
func TestFidelityRenamed(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/renames", "O2"))
	p.Ready()
	var right, wrong int64
	for s, n := range recordFolded(t, p, 200) {
		for _, work := range []string{"encode", "scan"} {
			switch {
			case !has(s, work):
			case strings.HasPrefix(s, "pool: "+work+";"):
				right += n
			default:
				wrong += n
			}
		}
	}
	t.Logf("%d ns below the right name, %d below another", right, wrong)
	if right == 0 || wrong > right/50 {
		t.Errorf("%d ns below the right name, %d below another", right, wrong)
	}
}
