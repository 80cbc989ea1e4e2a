package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// A recorder at 1 kHz is killed at random moments. The program, whose threads block in
// every way that a stop could interrupt, continues each time. No thread stays stopped or
// traced, and no call ends early or with EINTR. With SLIVER_LONG=1 the test kills a
// thousand times.
func TestKilledOften(t *testing.T) {
	testprog.Need(t, "ptrace")
	times := 12
	if os.Getenv("SLIVER_LONG") != "" {
		times = 1000
	}
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	spinning := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "3600")
	prog := testprog.Start(t, testprog.Build(t, "c/calls", "fp"), "20", "50")
	prog.Line("end")
	dir := t.TempDir()
	policies := []string{"auto", "running", "always"}
	for i := range times {
		pid := prog.PID
		if i%4 == 3 {
			pid = spinning.PID
		}
		cmd := slivercmd(t, dir, "record", "-p", fmt.Sprint(pid), "-i", "1ms", "--max-overhead", "0", "-q", "--stop", policies[i%3], "-o", "x.sliver")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Sampling has started when the recording has more than its header.
		waitFor(t, func() bool {
			m, _ := filepath.Glob(filepath.Join(dir, ".*.partial"))
			for _, f := range m {
				if fi, err := os.Stat(f); err == nil && fi.Size() > 4096 {
					return true
				}
			}
			return false
		})
		for end := time.Now().Add(time.Duration(rand.IntN(20_000_000))); time.Now().Before(end); {
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		waitFor(t, func() bool { return untouched(t, prog.PID) && untouched(t, spinning.PID) })
		m, _ := filepath.Glob(filepath.Join(dir, ".*.partial"))
		for _, f := range m {
			_ = os.Remove(f)
		}
	}
	prog.CloseInput()
	if st := prog.Wait(); !st.Success() {
		t.Errorf("the program ended with %v", st)
	}
	seen := 0
	for _, line := range prog.Output() {
		var name string
		var n, eintr, early, late, most int
		if k, _ := fmt.Sscan(line, &name, &n, &eintr, &early, &late, &most); k != 6 {
			continue
		}
		seen++
		if eintr != 0 || early != 0 {
			t.Errorf("%s: of %d returns %d with EINTR, %d early", name, n, eintr, early)
		}
	}
	if seen < 40 {
		t.Errorf("only %d calls: %q", seen, prog.Output())
	}
}

// untouched reports whether no thread of a process is traced or stopped.
func untouched(t *testing.T, pid int) bool {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if len(files) == 0 {
		t.Fatalf("process %d is gone", pid)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		st, err := target.ParseStatus(b)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(b); st.TracerPid != 0 || strings.Contains(s, "State:\tt") || strings.Contains(s, "State:\tT") {
			return false
		}
	}
	return true
}
