package oneshot

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

var (
	jhsdbThread = regexp.MustCompile(`^-{5,} (\d+) -{5,}$`)
	jhsdbFrame  = regexp.MustCompile(`^0x([0-9a-f]{16})\t(.*)$`)
	jhsdbJava   = regexp.MustCompile(`^\* ([^ (]+)\(.* bci:-?\d+(?: line:(\d+))? \((.*) frame`)
)

// jhsdbStacks returns the stacks of a stopped process from the JDK's own debugger, by
// thread: frames of Java as "method:line", leaf first. It shows only some of the calls
// that were inlined, and cannot walk most threads that are in C.
func jhsdbStacks(t *testing.T, jhsdb string, pid int) map[stack.TID][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, jhsdb, "jstack", "--mixed", "--pid", strconv.Itoa(pid))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("jhsdb: %v\n%s", err, out)
	}
	all := map[stack.TID][]string{}
	tid := stack.TID(0)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if m := jhsdbThread.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			tid = stack.TID(n)
			continue
		}
		m := jhsdbFrame.FindStringSubmatch(line)
		if m == nil || tid == 0 {
			continue
		}
		if j := jhsdbJava.FindStringSubmatch(m[2]); j != nil {
			line := j[2]
			if line == "" {
				line = "-1"
			}
			all[tid] = append(all[tid], strings.Replace(j[1], "+0x", "/0x", 1)+":"+line) // of hidden classes
		}
	}
	return all
}

// likeJhsdb formats the frames of a stack like jhsdbStacks.
func likeJhsdb(frames []stacks.Frame) (out []string) {
	for _, f := range frames {
		if f.Kind == stack.KindJava {
			line := f.Line
			if line == 0 {
				line = -1
			}
			out = append(out, f.Func+":"+strconv.Itoa(line))
		}
	}
	return out
}

// common is the length of the longest common subsequence of both stacks' frames.
func common(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		last := 0
		for j := range b {
			was := row[j+1]
			if a[i] == b[j] {
				row[j+1] = last + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			last = was
		}
	}
	return row[len(b)]
}

// worked waits until a process has used span of CPU time, so that it is elsewhere.
func worked(t *testing.T, pr *target.Process, span time.Duration) {
	t.Helper()
	ran := int64(0)
	until(t, Options{}, fmt.Sprintf("%v of work", span), func(s []*stacks.Snapshot) bool {
		now := int64(0)
		for i := range s[0].Threads {
			now += max(s[0].Threads[i].CPU, 0)
		}
		if ran == 0 {
			ran = now
		}
		return now >= ran+int64(span)
	}, pr)
}

// workThreads are the threads of Work, each in the method of its name.
var workThreads = []string{"recursion", "sorting", "maps", "copying", "objects"}

// TestJavaFrozen: frames and lines of running threads that are frozen must match the JDK's own
// debugger at the same moment. Each thread is in the method that has its name: if the debugger's
// stack lacks that method, its differences are the debugger's errors.
func TestJavaFrozen(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("SLIVER_LONG is not set")
	}
	for _, v := range javas {
		for _, flags := range [][]string{nil, {"-Xint"}, {"-XX:TieredStopAtLevel=1"}} {
			t.Run(v+strings.Join(flags, ""), func(t *testing.T) {
				jhsdb := testprog.Tool(t, strings.Replace(v, "java", "jhsdb", 1))
				p := startJavaWith(t, v, "Work", "busy", flags)
				pr := open1(t, p.PID)
				all, same, whole, lost := 0, 0, 0, 0
				for round := 0; round < 5 || all < 200 && round < 80; round++ { // of compiled code jhsdb often shows a few frames a round
					worked(t, pr, 200*time.Millisecond)
					if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
						t.Fatal(err)
					}
					s := until(t, Options{}, "a process that stands still", func(s []*stacks.Snapshot) bool {
						for i := range s[0].Threads {
							if s[0].Threads[i].State != stack.StateStopped {
								return false
							}
						}
						return true
					}, pr)[0]
					want := jhsdbStacks(t, jhsdb, p.PID)
					if err := syscall.Kill(p.PID, syscall.SIGCONT); err != nil {
						t.Fatal(err)
					}
					for i := range s.Threads {
						th := &s.Threads[i]
						w, got := want[th.TID], likeJhsdb(th.Frames)
						if len(w) == 0 {
							continue
						}
						n := common(got, w)
						if own := "Work." + th.OwnName; slices.Contains(workThreads, th.OwnName) {
							runs := func(frame string) bool { return method(frame) == own }
							if !slices.ContainsFunc(got, runs) {
								t.Errorf("%d %s: its method is not in %s", th.TID, th.OwnName, strings.Join(got, " "))
							}
							if n < len(w) && !slices.ContainsFunc(w, runs) {
								t.Logf("%d %s: its method is not in what jhsdb shows: %s\n  sliver %s", th.TID, th.OwnName, strings.Join(w, " "), strings.Join(got, " "))
								lost++
								continue
							}
						}
						all, same = all+len(w), same+n
						if n == len(w) {
							whole++
						} else {
							t.Logf("%d %s: %d of %d\n  sliver %s\n  jhsdb  %s", th.TID, th.OwnName, n, len(w), strings.Join(got, " "), strings.Join(w, " "))
						}
					}
				}
				t.Logf("%d of %d frames; of %d stacks all; %d that jhsdb lost", same, all, whole, lost)
				if lost*20 > whole+lost {
					t.Errorf("jhsdb lost %d stacks", lost)
				}
				if all < 200 || (all-same)*200 > all {
					t.Errorf("%d of %d frames are the same", same, all)
				}
			})
		}
	}
}
