package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestVDSOOfSeveral: a recording of several processes shares the image of their vDSO, and each process has names for
// its functions, also where they are looked up later.
func TestVDSOOfSeveral(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	dir := t.TempDir()
	program := testprog.GCC(t, "ticks", `
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) void ticks(void) {
	struct timespec t;
	do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); while (t.tv_nsec < 5000000);
	for (int i = 0; i < 20000000; i++) clock_gettime(CLOCK_MONOTONIC, &t);
}
int main(void) {
	for (int i = 0; i < 2; i++) if (!fork()) { ticks(); _exit(0); }
	ticks();
	while (wait(0) > 0) ;
}
`, "-O1")
	if r := sliver(t, dir, "record", "-i", "2ms", "-o", "x.sliver", "--", program); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	path := filepath.Join(dir, "x.sliver")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A process that is taken up before the first one's maps are noted has an image of its own.
	if n := bytes.Count(b, []byte(`"what":"vdso"`)); n < 1 || n > 2 {
		t.Errorf("%d images of the vDSO", n)
	}
	rec := openSeveral(t, path)
	if n := len(rec.All()); n != 3 {
		t.Fatalf("%d processes", n)
	}
	for _, one := range rec.All() {
		functions := 0
		for _, f := range one.Symbols.Funcs {
			if f.Module >= 0 && one.Modules[f.Module].Path == "[vdso]" {
				functions++
				if !strings.Contains(f.Name, "clock_gettime") && !strings.Contains(f.Name, "vdso") {
					t.Errorf("process %d: function %+v", one.Process.PID, f)
				}
			}
		}
		if functions == 0 || len(one.Captured) != 1 {
			t.Errorf("process %d: %d functions of the vDSO, %d captured pieces", one.Process.PID, functions, len(one.Captured))
		}
	}
}
