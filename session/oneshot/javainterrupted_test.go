package oneshot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
)

// agentDir returns a folder without "=" in its path, because "=" ends the name of an agent.
func agentDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// javaAgent compiles testdata/targets/java/agent against a version's own headers.
func javaAgent(t *testing.T, java string) string {
	t.Helper()
	java, err := filepath.EvalSymlinks(java)
	if err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(filepath.Dir(filepath.Dir(java)), "include")
	if _, err := os.Stat(filepath.Join(include, "jvmti.h")); err != nil {
		t.Skipf("it has no headers: %v", err)
	}
	dir := agentDir(t)
	out := filepath.Join(dir, "agent.so")
	source := filepath.Join(testprog.Root(t), "testdata", "targets", "java", "agent", "agent.c")
	cmd := exec.Command(testprog.Tool(t, "gcc"), "-O1", "-Wall", "-shared", "-fPIC", "-I", include, "-I", filepath.Join(include, "linux"),
		"-o", out, source, "-lpthread", "-ldl")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// method is a frame without its line.
func method(frame string) string { return frame[:strings.LastIndexByte(frame, ':')] }

// compiledAlike reports whether two stacks are equal from the innermost method on that
// is not inlined, at any line of it. frames are the source of a.
func compiledAlike(frames []stacks.Frame, a, b []string) bool {
	in := 0
	for _, f := range frames {
		if f.Kind == stack.KindJava {
			if !f.Inlined {
				break
			}
			in++
		}
	}
	if in == len(a) || len(b) < len(a)-in {
		return false
	}
	a, b = a[in:], b[len(b)-(len(a)-in):]
	return method(a[0]) == method(b[0]) && slices.Equal(a[1:], b[1:])
}

// TestJavaInterrupted: frames and lines of running threads that a signal interrupts anywhere must
// match those that the virtual machine itself finds from there. If it finds none (it gives up in
// prologues, in stubs and while it collects garbage) nothing is compared. It does not always know
// the location in the innermost method. In interpreted code it has the last stored location, where sliver
// has the register. In compiled code only some addresses have a location, and at a jump two are
// equally near. There only the methods must be equal, and sliver may have calls that the method
// makes.
func TestJavaInterrupted(t *testing.T) {
	testprog.Unraced(t, "its walks are in one goroutine")
	testprog.Need(t, "ptrace", "gcc")
	versions, ways, rounds := []string{"java21"}, [][]string{nil}, 5
	if os.Getenv("SLIVER_LONG") != "" {
		versions, ways, rounds = javas, append(ways, []string{"-Xint"}, []string{"-XX:TieredStopAtLevel=1"}), 40
	}
	for _, v := range versions {
		for _, flags := range ways {
			t.Run(v+strings.Join(flags, ""), func(t *testing.T) {
				fifo := filepath.Join(agentDir(t), "orders")
				if err := syscall.Mkfifo(fifo, 0o600); err != nil {
					t.Fatal(err)
				}
				agent := javaAgent(t, testprog.Tool(t, v))
				p := startJavaWith(t, v, "Work", "busy", append(slices.Clone(flags), "-agentpath:"+agent+"="+fifo))
				orders, err := os.OpenFile(fifo, os.O_RDWR, 0) // also when the reader is gone
				if err != nil {
					t.Fatal(err)
				}
				defer orders.Close()
				order := func(answer string) {
					t.Helper()
					if _, err := orders.WriteString("\n"); err != nil {
						t.Fatal(err)
					}
					p.Line(answer)
				}
				pr := open1(t, p.PID)
				all, whole, behind, differ, without := 0, 0, 0, 0, 0
				// The virtual machine finds a quarter of the stacks, and none while it collects garbage.
				const least = 5
				k := 0
				for ; k < rounds || whole+behind+differ < least && k < 12*rounds; k++ {
					worked(t, pr, 20*time.Millisecond)
					order(fmt.Sprintf("frozen %d:", k))
					s := until(t, Options{}, "five threads that stand in the handler", func(s []*stacks.Snapshot) bool {
						n := 0
						for i := range s[0].Threads {
							if th := &s[0].Threads[i]; slices.Contains(workThreads, th.OwnName) && th.State == stack.StateBlocked {
								n++
							}
						}
						return n == len(workThreads)
					}, pr)[0]
					order(fmt.Sprintf("told %d:", k))
					want := map[string]string{}
					for _, l := range p.Output() {
						if rest, ok := strings.CutPrefix(l, fmt.Sprintf("stack %d: ", k)); ok {
							name, frames, _ := strings.Cut(rest, " ")
							want[name] = frames
						}
					}
					for i := range s.Threads {
						th := &s.Threads[i]
						frames, ok := want[th.OwnName]
						if !ok {
							continue
						}
						all++
						if frames == "" {
							without++
							continue
						}
						w, got := strings.Split(strings.TrimSuffix(frames, ","), ","), likeJhsdb(th.Frames)
						// in: how many more inner frames sliver has.
						in := len(got) - len(w)
						switch {
						case slices.Equal(got, w):
							whole++
						case in >= 0 && slices.Equal(got[in+1:], w[1:]) && method(got[in]) == method(w[0]), compiledAlike(th.Frames, got, w):
							behind++
						default:
							t.Logf("%d %s\n  sliver %s\n  java   %s", th.TID, th.OwnName, strings.Join(got, " "), strings.Join(w, " "))
							differ++
						}
					}
				}
				t.Logf("of %d stacks %d are the same, of %d the virtual machine has the innermost method at another line or without a call that it makes, %d differ, %d it does not find",
					all, whole, behind, differ, without)
				if all != 5*k || whole+behind+differ < least {
					t.Errorf("of %d stacks %d are the same, of %d the virtual machine is behind", all, whole, behind)
				}
				if differ > 1+(whole+behind)/50 {
					t.Errorf("%d stacks of %d differ", differ, all-without)
				}
			})
		}
	}
}
