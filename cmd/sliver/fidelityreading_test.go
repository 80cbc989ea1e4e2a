package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFidelityReading: the printed stack of a Python program with recursions has a few lines without
// addresses, and the flags bring back the omitted parts.
func TestFidelityReading(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, tool := range []string{"python3.8", "python3.11", "python3.12", "python3.13"} {
		t.Run(tool, func(t *testing.T) {
			cmd := exec.Command(testprog.Tool(t, tool), "targets/python/reading.py")
			cmd.Dir = filepath.Join(testprog.Root(t), "testdata")
			p := testprog.StartCmd(t, cmd)
			p.Ready()
			lines := func(args ...string) []string {
				r := sliver(t, t.TempDir(), append([]string{"stack", "-t", "main", pidOf(p)}, args...)...)
				var out []string
				for l := range strings.Lines(r.out) {
					if strings.HasPrefix(l, "      ") {
						out = append(out, strings.TrimSpace(l))
					}
				}
				return out
			}
			var short []string
			waitFor(t, func() bool {
				short = lines()
				return strings.Contains(strings.Join(short, "\n"), "wait at targets/python/reading.py:9 (Python)")
			})
			text := strings.Join(short, "\n")
			if len(short) > 20 || strings.Contains(text, "0x") || !strings.Contains(text, "… 149 more of down") ||
				!strings.Contains(text, " more of even, odd") || !strings.Contains(text, "native frames of the interpreter not shown (--full)") {
				t.Errorf("%d lines:\n%s", len(short), text)
			}
			full := lines("--full")
			text = strings.Join(full, "\n")
			if len(full) < 360 || strings.Count(text, "down at ") != 151 || strings.Contains(text, "0x") || strings.Contains(text, "… ") {
				t.Errorf("--full: %d lines:\n%s", len(full), text)
			}
			for _, flag := range []string{"--native=on", "--kinds=native,python"} {
				all := strings.Join(lines(flag), "\n")
				if strings.Contains(all, "not shown") || !strings.Contains(all, "… 149 more of down") && tool != "python3.8" {
					t.Errorf("%s:\n%s", flag, all)
				}
			}
			for _, l := range lines("--addresses") {
				if !strings.HasPrefix(l, "0x") && !strings.HasPrefix(l, "…") {
					t.Errorf("--addresses: %s", l)
				}
			}
		})
	}
}
