package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestPageOfRealPrograms drives the page in Chromium as a user would, with sliver's own
// recordings of a program, live and finished: see web/page/test/real.mjs. SLIVER_PICTURES
// names a folder for screenshots. SLIVER_LONG=1 runs all cases.
func TestPageOfRealPrograms(t *testing.T) {
	testprog.Whole(t, "TestPageFirstScreen has a page of a real program")
	testprog.Need(t, "ptrace", "node", "chromium", "npm", "java17")
	page, err := filepath.Abs(filepath.Join("..", "..", "web", "page"))
	if err != nil {
		t.Fatal(err)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.Start(t, testprog.Build(t, "locks/kitchen", "O2"), "--seconds", "600", "--wait-go")
	p.Ready()
	p.Go()
	java := exec.Command(testprog.Tool(t, "java17"), "-Xmx64m", "-cp", testprog.JavaClasses(t, "Convoy"), "Convoy", "600")
	java.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=")
	convoy := testprog.StartCmd(t, java)
	pictures := os.Getenv("SLIVER_PICTURES")
	if pictures == "" {
		pictures = "-"
	}
	args := []string{filepath.Join("test", "real.mjs"), bin, testprog.Tool(t, "chromium"), pictures, t.TempDir(), pidOf(p)}
	if os.Getenv("SLIVER_LONG") == "" {
		args = append(args, "live, light", "nothing to do", "Java", "control reaches", "flight recorders")
	}
	cmd := exec.CommandContext(t.Context(), testprog.Tool(t, "node"), args...)
	cmd.Dir = page
	cmd.Env = append(os.Environ(), "SLIVER_CONVOY="+pidOf(convoy),
		"XDG_RUNTIME_DIR="+t.TempDir()) // only its own recorders
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("ok   ")) {
		t.Fatalf("the page's tests: %v", err)
	}
	free(t, p.PID)
	free(t, convoy.PID)
}
