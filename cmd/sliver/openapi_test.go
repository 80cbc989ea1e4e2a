package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// The page's API conforms to docs/openapi.yaml, for valid and invalid requests that
// schemathesis generates from it. The websocket is not covered.
func TestOpenAPI(t *testing.T) {
	testprog.Whole(t, "it sends thousands of requests")
	tool := testprog.Tool(t, "schemathesis")
	p := spin(t)
	dir := t.TempDir()
	if r := sliver(t, dir, "record", "-q", "-p", pidOf(p), "-d", "300ms", "-o", "r.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	const token = "a-token-for-the-test-0123456789"
	t.Setenv("SLIVER_WEB_TOKEN", token)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	view := slivercmd(t, dir, "view", "r.sliver")
	says, err := view.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		view.Process.Signal(syscall.SIGINT)
		view.Wait()
	}()
	url := ""
	for lines := bufio.NewScanner(says); url == "" && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "page: "); ok {
			url, _, _ = strings.Cut(rest, "/#")
		}
	}
	if b, err := os.ReadFile("/proc/" + pidOfCmd(view) + "/cmdline"); err != nil || strings.Contains(string(b), token) {
		t.Errorf("the token is in the list of processes: %q, %v", b, err)
	}
	cmd := exec.Command(tool, "run", filepath.Join(testprog.Root(t), "docs", "openapi.yaml"), "--url", url, "-H", "X-Sliver-Token: "+token,
		"--exclude-path", "/ws", "--max-examples", "15", "--seed", "1", "--no-color", "--generation-database", "none")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Dir(filepath.Dir(tool)), "HYPOTHESIS_STORAGE_DIRECTORY="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	if !strings.Contains(string(out), "Tested: 9") {
		t.Errorf("not all paths were tested:\n%s", out)
	}
}

func pidOfCmd(c *exec.Cmd) string { return pidOf(&testprog.Proc{PID: c.Process.Pid}) }
