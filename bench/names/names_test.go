package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// The short form: a small program, and the names and lines that all tools report for the
// same addresses. bench/names.sh measures times.
func TestSameNames(t *testing.T) {
	testprog.Whole(t, "TestAgainstAddr2line of package symbol has the same comparison")
	testprog.Need(t, "g++")
	dir := t.TempDir()
	program, err := build(dir, "testdata/unit.cc", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	sliver := filepath.Join(dir, "sliver")
	if out, err := exec.Command("go", "build", "-o", sliver, "../../cmd/sliver").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var b bytes.Buffer
	if err := run(&b, sliver, program, dir, 500, 1, 20*time.Second, false); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", b.String())
	shares := regexp.MustCompile(`([0-9.]+) % the same`).FindAllStringSubmatch(b.String(), -1)
	if len(shares) == 0 {
		t.Skip("neither addr2line nor llvm-symbolizer nor perf is installed")
	}
	for _, s := range shares {
		if v, err := strconv.ParseFloat(s[1], 64); err != nil || v < 97 {
			t.Errorf("%s per cent the same", s[1])
		}
	}
}
