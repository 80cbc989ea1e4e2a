package testprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// GCC compiles a test's own program of that name in C, with the given flags, and returns its path.
func GCC(tb testing.TB, name, code string, flags ...string) string {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), name)
	source := program + ".c"
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command("gcc", append(flags, source, "-o", program)...).CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return program
}
