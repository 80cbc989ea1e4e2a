package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// The tests called TestFidelity hold the rows of docs/fidelity.md: cases that users of
// profilers and debuggers have reported, each with the answer that is right.

// folded is the time (ns) of each stack of a recording, root first, separated by ";".
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

// recordFolded records a process until so many samples were taken by a stop.
func recordFolded(t *testing.T, p *testprog.Proc, stops int, args ...string) map[string]int64 {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"-p", pidOf(p), "-i", "5ms", "-o", "x.sliver"}, args...)
	recordEnough(t, dir, stops, time.Second, args...)
	return folded(t, dir, "x.sliver")
}

// has reports whether a function is on a stack.
func has(stack, function string) bool {
	return strings.Contains(";"+stack+";", ";"+function+";")
}

// timeOf adds up the stacks that have a function, and those that have it and a gap.
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

// TestFidelityContexts: what a coroutine does stands on its own stack and not on another
// one's, and where a coroutine's stack ends nothing is missing.
func TestFidelityContexts(t *testing.T) {
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
				// A coroutine that is met before its thread's own stack may end in a gap.
				if sum, gaps := timeOf(stacks, f); sum == 0 || gaps > sum/10 {
					t.Errorf("%s: %d ns, %d ns of it below a gap: %v", f, sum, gaps, stacks)
				}
			}
		})
	}
}
