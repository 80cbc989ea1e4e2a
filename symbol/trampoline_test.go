package symbol

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestTrampoline: the code that a signal handler returns to must be named, even without
// a symbol, and no other code.
func TestTrampoline(t *testing.T) {
	for _, cc := range []string{"gcc", "musl-gcc"} {
		testprog.Need(t, cc)
		for _, flags := range [][]string{{"-static"}, {"-static", "-s"}} {
			dir := t.TempDir()
			src := filepath.Join(dir, "x.c")
			out := filepath.Join(dir, "x")
			if err := os.WriteFile(src, []byte("#include <signal.h>\nstatic void f(int n) { (void)n; }\nint main(void) { signal(SIGALRM, f); return 0; }\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if b, err := exec.Command(cc, append(flags, "-o", out, src)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			r, err := os.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			f, err := Open(r, Options{Path: out})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			found := 0
			for _, seg := range f.main.text {
				for a := seg.lo; a < seg.hi; a++ {
					if start, ok := f.main.trampolineAt(a); ok && start == a {
						found++
						for _, at := range []uint64{a, a + 7} {
							if fr := f.Frames(at, nil); len(fr) != 1 || fr[0].Func != restorer || fr[0].Start != a {
								t.Errorf("%s %v: %#x is %+v", cc, flags, at, fr)
							}
						}
						if fr := f.Frames(a-1, nil); len(fr) > 0 && fr[0].Func == restorer && fr[0].Start == a {
							t.Errorf("%s %v: what lies before it is %+v", cc, flags, fr)
						}
					}
				}
			}
			if found == 0 {
				t.Errorf("%s %v: no trampoline", cc, flags)
			}
		}
	}
}
