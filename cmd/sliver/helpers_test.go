package main

//sliver:layer live unraced

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// build compiles sliver once for all tests, with the users' settings.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sliver-cmd-test-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "sliver")
	cmd := exec.Command("go", "build", "-ldflags", "-E sliver_entry", "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	bin, err := build() // before the first test starts a program, which may end while sliver is compiled
	code := m.Run()
	if err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// result is the result of one run of sliver.
type result struct {
	status      int
	out, errors string
}

func slivercmd(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(filepath.Dir(bin), "cache")) // not the user's own
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func sliver(t *testing.T, dir string, args ...string) result {
	t.Helper()
	return runCmd(t, slivercmd(t, dir, args...))
}

func runCmd(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// recordEnough records with args, for longer each time, until enough samples show threads that
// ran, by a stop or a clock: on a busy machine a short recording may have few, or none.
func recordEnough(t *testing.T, dir string, least int, d time.Duration, args ...string) result {
	t.Helper()
	return recordUntil(t, dir, d, func(r result) bool {
		var sum struct{ Stops, Clocked int }
		if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
			t.Fatalf("%v: %q", err, r.out)
		}
		return sum.Stops+sum.Clocked >= least
	}, args...)
}

// recordUntil records with args, for longer each time, until enough is satisfied.
func recordUntil(t *testing.T, dir string, d time.Duration, enough func(result) bool, args ...string) result {
	t.Helper()
	for begin := time.Now(); ; d *= 2 {
		r := sliver(t, dir, slices.Concat([]string{"record", "--json", "-d", d.String()}, args)...)
		if r.status != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
		if enough(r) {
			return r
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("too little in %v: %s", d, r.out)
		}
	}
}

// spin starts a program that computes until the test ends.
func spin(t *testing.T) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	if _, err := build(); err != nil { // before the program starts
		t.Fatal(err)
	}
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "3600", "--wait-go")
	p.Ready()
	p.Go()
	return p
}

func pidOf(p *testprog.Proc) string { return fmt.Sprint(p.PID) }

// free fails if a thread of the process is stopped or traced.
func free(t *testing.T, pid int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("process %d: no threads (%v)", pid, err)
	}
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it ended
		}
		s := string(b)
		if !strings.Contains(s, "TracerPid:\t0\n") || strings.Contains(s, "State:\tt") || strings.Contains(s, "State:\tT") {
			t.Errorf("%s: held:\n%s", f, s)
		}
	}
}

// copyFor copies the program to a place where every user may run it.
func copyFor(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sliver-pub-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	to := filepath.Join(dir, "sliver")
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("waited in vain")
		}
	}
}

// safeBuffer may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
