package main

import (
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestPageTraced looks at the tab of traced calls of a program whose slow calls wait.
func TestPageTraced(t *testing.T) {
	testprog.Whole(t, "TestTracedFunctions of package report has the numbers")
	testprog.Need(t, "gcc", "ptrace", "node", "chromium", "npm")
	dir := t.TempDir()
	program := testprog.GCC(t, "shop", shopCode, "-O1", "-g")
	p := testprog.Start(t, program)
	p.Ready()
	if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "4s", "--trace", "handle_request", "-o", "run.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	runPage(t, "traced.mjs", bin, filepath.Join(dir, "run.sliver"), "handle_request", pidOf(p), filepath.Join(dir, "live.sliver"))
}
