package session

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// TestNamesOfTheVDSO: the code that the kernel maps into each program is in no file.
// Its functions must still have names, and callers.
func TestNamesOfTheVDSO(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	dir := t.TempDir()
	path, source := filepath.Join(dir, "ticks"), filepath.Join(dir, "ticks.c")
	const program = `
#include <stdio.h>
#include <time.h>
__attribute__((noinline)) void ticks(struct timespec *t) { for (;;) clock_gettime(CLOCK_MONOTONIC, t); }
int main(void) { struct timespec t; puts("ready"); fflush(stdout); ticks(&t); }
`
	compile(t, program, source, path)
	prog := testprog.StartCmd(t, exec.Command(path))
	prog.Line("ready")
	rec := recordWith(t, prog.PID, Options{Interval: 2 * time.Millisecond}, func(s stack.ThreadStats) bool { return s.Samples > 100 })
	vdso := 0
	for _, f := range rec.Symbols.Funcs {
		if f.Module >= 0 && rec.Modules[f.Module].Path == "[vdso]" {
			vdso++
			if !strings.Contains(f.Name, "clock_gettime") && !strings.Contains(f.Name, "vdso") {
				t.Errorf("function %+v", f)
			}
		}
	}
	if total := rec.Stats.Total(); vdso == 0 || len(callsOf(rec, "ticks")) == 0 || total.Truncated > 0 {
		t.Errorf("%d functions of the vDSO, %d of %d samples with gaps%s", vdso, total.Truncated, total.Samples, errorFrames(rec))
	}
}
