package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// With too little address space sliver exits with an error before it touches anything. At
// the limit given in docs/security.md and above, the error is one line of sliver's. Below
// it, the Go runtime's own message comes first, as the program has not run any code yet.
func TestAddressSpace(t *testing.T) {
	testprog.Whole(t, "many limits, each with a process")
	p := spin(t)
	for _, c := range []struct {
		kb  int
		own bool // the line is sliver's
	}{{100_000, false}, {400_000, false}, {880_000, true}, {1_000_000, true}} {
		dir := t.TempDir()
		cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-d", "100ms", "-o", "a.sliver")
		sh := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, c.kb)}, cmd.Args...)...)
		sh.Dir, sh.Env = cmd.Dir, cmd.Env
		var errs bytes.Buffer
		sh.Stderr = &errs
		if err := sh.Run(); err == nil {
			t.Errorf("%d KB: it succeeded", c.kb)
		}
		own := strings.HasPrefix(errs.String(), "sliver: ulimit -v allows ") && strings.Count(errs.String(), "\n") == 1
		if c.own && !own || !own && !strings.Contains(errs.String(), "fatal error: ") {
			t.Errorf("%d KB: %q", c.kb, errs.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%d KB: %s has %v, %v", c.kb, filepath.Base(dir), left, err)
		}
	}
	free(t, p.PID)
}
