package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFidelityEvaluated: functions of evaluated texts have the file that a comment names, or the place of
// the evaluation.
func TestFidelityEvaluated(t *testing.T) {
	testprog.Whole(t, "TestNodeNames of package session has the names of files")
	testprog.Need(t, "ptrace")
	program := filepath.Join(testprog.Root(t), "testdata", "targets", "node", "evaluated.js")
	for _, tool := range []string{"node18", "node22", "node24"} {
		t.Run(tool, func(t *testing.T) {
			if tool != "node22" {
				testprog.Whole(t, "another version")
			}
			p := testprog.Start(t, testprog.Tool(t, tool), program)
			p.Ready()
			dir, out := t.TempDir(), result{}
			want := []string{"work|webpack:///./src/hot.ts", "|eval at compile (" + program + ":8)", "inner|eval at (eval) (eval at "}
			waitFor(t, func() bool {
				recordEnough(t, dir, 20, 4*time.Second, "-p", pidOf(p), "-t", "main", "-i", "20ms", "-o", "x.sliver")
				out = sliver(t, dir, "sql", "x.sliver", "--format", "csv", "select distinct function || '|' || file from profile")
				for _, w := range want {
					if !strings.Contains(out.out, w) {
						return false
					}
				}
				return true
			})
		})
	}
}
