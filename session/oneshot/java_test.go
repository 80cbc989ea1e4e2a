package oneshot

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

var javas = []string{"java17", "java21", "java25"}

func startJava(t *testing.T, version, program, ready string, flags ...string) *testprog.Proc {
	t.Helper()
	return startJavaWith(t, version, program, ready, flags)
}

// startJavaWith is startJava for a program with arguments.
func startJavaWith(t *testing.T, version, program, ready string, flags []string, more ...string) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	java := testprog.Tool(t, version)
	args := append(slices.Clone(flags), "-Xmx64m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, program), program)
	args = append(args, more...)
	cmd := exec.Command(java, args...)
	cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=")
	p := testprog.StartCmd(t, cmd)
	p.Line(ready)
	return p
}

// javaOf returns a stack's Java frames in the form that the program prints. It omits
// those that Java does not show, of code generated for method handles.
func javaOf(frames []stacks.Frame) string {
	var b strings.Builder
	for _, f := range frames {
		if f.Kind != stack.KindJava || strings.Contains(f.Func, "LambdaForm$") || strings.Contains(f.Func, "$Holder.") {
			continue
		}
		line := f.Line
		if line == 0 {
			line = -1
		}
		fmt.Fprintf(&b, "%s:%d,", f.Func, line)
	}
	return b.String()
}

// truth parses a program's lines "stack NAME FRAMES" into FRAMES by NAME; a native
// method has no line.
func truth(out []string) map[string]string {
	all := map[string]string{}
	for _, l := range out {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "stack" {
			all[f[1]] = strings.ReplaceAll(f[2], ":-2,", ":-1,")
		}
	}
	return all
}

// TestJavaStacks: of threads that block, each frame of Java and its line must match the
// program's own output, and no stack may have a gap.
func TestJavaStacks(t *testing.T) {
	ways := [][]string{nil, {"-Xint"}}
	if os.Getenv("SLIVER_LONG") != "" {
		ways = append(ways, []string{"-Xcomp"}, []string{"-XX:TieredStopAtLevel=1"}, []string{"-XX:-TieredCompilation"}, []string{"-XX:+UseSerialGC"},
			[]string{"-XX:+UseParallelGC"}, []string{"-XX:+UseZGC"}, []string{"-XX:-UseCompressedOops"}, []string{"-XX:-UseCompressedClassPointers"})
	}
	for _, v := range versions(javas) {
		for _, flags := range ways {
			t.Run(v+strings.Join(flags, ""), func(t *testing.T) {
				p := startJava(t, v, "Park", "parked", flags...)
				want := truth(p.Output())
				s := take(t, Options{}, open1(t, p.PID))[0]
				seen := 0
				for i := range s.Threads {
					th := &s.Threads[i]
					if th.Truncated != stack.ReasonNone {
						t.Errorf("%s: truncated: %v", th.Name, th.Truncated)
					}
					for _, f := range th.Frames {
						if f.Kind == stack.KindError {
							t.Errorf("%s: a gap: %s", th.Name, f.Func)
						}
					}
					// Java 21's Common-Cleaner waits on an ordinary lock.
					if n := th.OwnName; (n == "Finalizer" || n == "Common-Cleaner" && v != "java21") && (th.Wait == nil || th.Wait.Kind != kind.WaitIdle) {
						t.Errorf("%s is not idle: %+v", n, th.Wait)
					}
					w, ok := want[th.OwnName]
					if !ok || !strings.HasPrefix(th.OwnName, "cold-") && !strings.HasPrefix(th.OwnName, "warm-") {
						continue
					}
					seen++
					if strings.Contains(th.OwnName, "-enter-") {
						wantMain(t, s, th)
					}
					if got := javaOf(th.Frames); got != w {
						t.Errorf("%s:\n%s\nnot\n%s", th.Name, strings.ReplaceAll(got, ",", "\n"), strings.ReplaceAll(w, ",", "\n"))
					}
				}
				if seen < 8 {
					t.Errorf("%d of 8 threads", seen)
				}
			})
		}
	}
}

// wantMain checks that th waits for a monitor of class Object held by the thread main.
func wantMain(t *testing.T, s *stacks.Snapshot, th *stacks.Thread) {
	t.Helper()
	if th.Wait == nil || th.Wait.Lock == nil {
		t.Errorf("%s waits for no lock: %+v", th.OwnName, th.Wait)
		return
	}
	l := th.Wait.Lock
	if l.Kind != kind.LockMonitor || l.Type != "java.lang.Object" || l.Holder.By != event.KnownByRuntime {
		t.Errorf("%s waits for %v, holder %+v", th.OwnName, l, l.Holder)
	}
	for i := range s.Threads {
		if s.Threads[i].TID == l.Holder.TID {
			if s.Threads[i].OwnName != "main" {
				t.Errorf("%s: its lock is held by %q", th.OwnName, s.Threads[i].OwnName)
			}
			return
		}
	}
	t.Errorf("%s: its lock is held by no thread: %+v", th.OwnName, l.Holder)
}

// TestJavaDeadlock: two threads that wait for each other's monitor are a deadlock.
func TestJavaDeadlock(t *testing.T) {
	for _, v := range versions(javas) {
		t.Run(v, func(t *testing.T) {
			p := startJava(t, v, "Cross", "crossed")
			s := take(t, Options{}, open1(t, p.PID))[0]
			if len(s.Deadlocks) != 1 || len(s.Deadlocks[0].Threads) != 2 {
				t.Fatalf("deadlocks: %+v", s.Deadlocks)
			}
			for _, x := range s.Deadlocks[0].Threads {
				i := slices.IndexFunc(s.Threads, func(th stacks.Thread) bool { return th.TID == x.TID })
				if i < 0 || !strings.HasPrefix(s.Threads[i].OwnName, "crossing-") {
					t.Errorf("thread %d is in it", x.TID)
				}
			}
		})
	}
}
