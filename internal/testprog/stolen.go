package testprog

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Stolen returns the time, in ns and steps of 10 ms, for which the host of a virtual machine ran something else (proc(5),
// /proc/stat). The kernel does not count it as CPU time of a process, but its events do.
func Stolen(t testing.TB) (ns int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	if f := strings.Fields(string(b)); len(f) > 8 {
		_, _ = fmt.Sscan(f[8], &ns)
	}
	return ns * 1e7
}
