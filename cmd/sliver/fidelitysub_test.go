package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFidelitySubinterpreters: the functions that a thread runs in a subinterpreter are below those
// of the interpreter that called it, also if each subinterpreter lives for a moment only.
func TestFidelitySubinterpreters(t *testing.T) {
	testprog.Whole(t, "TestPythonTruth of package session has the usual interpreter")
	testprog.Need(t, "ptrace")
	program := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "subinterpreters.py")
	for _, tool := range []string{"python3.11", "python3.12", "python3.13", "python3.14"} {
		t.Run(tool, func(t *testing.T) {
			if tool == "python3.11" || tool == "python3.13" {
				testprog.Whole(t, "two other versions")
			}
			p := testprog.Start(t, testprog.Tool(t, tool), program)
			p.Ready()
			var r result
			waitFor(t, func() bool {
				r = sliver(t, t.TempDir(), "stack", "-t", "main", pidOf(p))
				return strings.Contains(r.out, "sub_leaf")
			})
			at := -1
			for _, f := range []string{"sub_leaf at ", "sub_outer at ", "<module> at ", "main_outer at ", "<module> at "} {
				i := strings.Index(r.out[at+1:], f)
				if i < 0 {
					t.Fatalf("no %sin its place:\n%s", f, r.out)
				}
				at += i + 1
			}
			dir := t.TempDir()
			recordEnough(t, dir, 60, 3*time.Second, "-p", pidOf(p), "-i", "20ms", "-o", "x.sliver")
			sums := folded(t, dir, "x.sliver", "--kinds", "python")
			// A turn computes for a second. Its interpreter takes some ms to create, and is found after one
			// sample in it.
			var inside, work, all int64
			for s, ns := range sums {
				switch {
				case strings.Contains(s, "turns;turn"):
					all += ns
					if strings.Contains(s, "turns;turn;<module>;sub_turn;sub_work") {
						work += ns
					}
				case strings.Contains(s, "main_outer;<module>;sub_outer;sub_leaf"):
					inside += ns
				}
			}
			if inside == 0 || work < all*2/3 {
				t.Errorf("%d ns in sub_leaf; of %d ns in turn, %d in sub_work: %v", inside, all, work, sums)
			}
		})
	}
}
