package python

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// coldProgram has a function of the evaluation function's name. The compiler moves most of it elsewhere.
const coldProgram = `
extern int puts(const char *);
extern int atoi(const char *);
__attribute__((cold, noinline)) static int seldom(int n) { puts("seldom"); return n * 3; }
__attribute__((noinline)) int _PyEval_EvalFrameDefault(int n, char **v) {
	int a = atoi(v[0]), b = atoi(v[n - 1]);
	for (int i = 0; i < n; i++) {
		if (__builtin_expect(a == i, 0)) { a += seldom(b); b += seldom(a); }
		a += atoi(v[i]);
		if (__builtin_expect(b == a, 0)) { b ^= seldom(a) + atoi(v[1]); }
	}
	return a + b;
}
int main(int n, char **v) { return _PyEval_EvalFrameDefault(n, v); }
`

// TestCold: the part that the compiler moved elsewhere has the same address with symbols and without,
// and a function in one piece has no such part.
func TestCold(t *testing.T) {
	testprog.Need(t, "gcc", "strip")
	for _, c := range []struct {
		name, compiler, strip string
		flags                 []string
		none                  bool
	}{
		{"amd64", "gcc", "strip", nil, false},
		{"amd64-fp", "gcc", "strip", []string{"-fno-omit-frame-pointer"}, false},
		{"one-piece", "gcc", "strip", []string{"-fno-reorder-blocks-and-partition"}, true},
		{"arm64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-strip", []string{"-freorder-blocks-and-partition"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "arm64" {
				testprog.Need(t, "arm64-gcc")
			}
			dir := t.TempDir()
			run := func(name string, args ...string) {
				t.Helper()
				cmd := exec.Command(name, args...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", name, err, out)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte(coldProgram), 0o600); err != nil {
				t.Fatal(err)
			}
			run(c.compiler, append(c.flags, "-O2", "-rdynamic", "a.c", "-o", "full")...)
			run(c.strip, "-o", "bare", "full")
			full, bare := coldIn(t, filepath.Join(dir, "full")), coldIn(t, filepath.Join(dir, "bare"))
			if full != bare || (full == 0) != c.none {
				t.Errorf("%#x with symbols, %#x without", full, bare)
			}
		})
	}
}

func coldIn(t *testing.T, path string) uint64 {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := elf.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for i := range syms {
		if s := &syms[i]; s.Name == "_PyEval_EvalFrameDefault" {
			return cold(r, f, s.Value, s.Size)
		}
	}
	t.Fatal("no evaluation function")
	return 0
}
