package main

import (
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// underGroup runs sliver in a control group with a limit. The shell waits until it is in the group.
func underGroup(t *testing.T, value int64, limits []string, args ...string) (status int, errs string, err error) {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", `read go && exec "$0" "$@"`, bin}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out safeBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testprog.Group(t, cmd.Process.Pid, value, limits...)
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String(), err
}

// Where too few tasks may be started, one line names the limit, before a thread is sampled. Where they
// may not suffice, a warning does.
func TestTasksOfGroup(t *testing.T) {
	testprog.Need(t, "ptrace", "root")
	p := spin(t)
	args := []string{"record", "-q", "-p", pidOf(p), "-d", "200ms", "-o", "r.sliver"}
	for limit, want := range map[int64]string{8: "pids.max of the control group is 8", 24: "pids.max of the control group is 24", 30: "pids.max of the control group is 30"} {
		status, errs, _ := underGroup(t, limit, testprog.GroupTasks, args...)
		if status != 1 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%d tasks: status %d: %s", limit, status, errs)
		}
	}
	status, errs, _ := underGroup(t, 70, testprog.GroupTasks, args...)
	if status != 0 || !strings.Contains(errs, "sampling takes up to") {
		t.Errorf("70 tasks: status %d: %s", status, errs)
	}
	if status, errs, _ := underGroup(t, 400, testprog.GroupTasks, args...); status != 0 || errs != "" {
		t.Errorf("400 tasks: status %d: %s", status, errs)
	}
	if _, out, _ := underGroup(t, 70, testprog.GroupTasks, "doctor"); !strings.Contains(out, "pids.max of the control group is 70") {
		t.Errorf("doctor does not name the limit: %s", out)
	}
	free(t, p.PID)
}

// In a control group of 160 MiB, what a hostile process makes sliver keep is bounded by the group's limit,
// and the recording is finished.
func TestMemoryOfGroup(t *testing.T) {
	testprog.Whole(t, "package watch has the same bound")
	testprog.Need(t, "ptrace", "root")
	p, _ := nasty(t, "O2", "--perf-map", "lines")
	status, errs, err := underGroup(t, 160<<20, testprog.GroupMemory, "record", "-p", pidOf(p), "-d", "300ms", "-o", "r.sliver")
	if status != 0 || !strings.Contains(errs, " r.sliver (sliver") || !strings.Contains(errs, "bytes ignored") {
		t.Errorf("%v: %s", err, errs)
	}
	free(t, p.PID)
}
