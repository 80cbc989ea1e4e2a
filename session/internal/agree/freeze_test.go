package agree

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/target"
)

// patience limits every wait of these tests: far more than needed, also on a busy
// machine.
const patience = 2 * time.Minute

// eventually repeats look until it returns true.
func eventually(t testing.TB, what string, look func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !look(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

// guard runs a shell command with PID as $0 when the returned function is called, or when
// this process ends in any way.
func guard(t testing.TB, pid int, command string) (release func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read _; "+command, strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not reached by Ctrl-C
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		in.Close()
		_ = cmd.Wait() // its process may be gone
	}
}

// freeze stops all threads of a process until thaw is called. ok is false if the process
// ended before it stopped.
func freeze(t testing.TB, pid int) (thaw func(), ok bool) {
	t.Helper()
	thaw = guard(t, pid, "kill -CONT $0")
	if syscall.Kill(pid, syscall.SIGSTOP) != nil {
		thaw()
		return nil, false
	}
	ok = true
	eventually(t, fmt.Sprintf("process %d is stopped", pid), func() bool {
		all := true
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, dir := range tasks {
			s, err := readStat(dir)
			if err != nil {
				continue // it ended
			}
			if s.State == 'Z' || s.State == 'X' {
				ok = filepath.Base(dir) != strconv.Itoa(pid)
			} else if s.State != 'T' {
				all = false
			}
		}
		ok = ok && len(tasks) > 0
		return all || !ok
	})
	if !ok {
		thaw()
		return nil, false
	}
	return thaw, true
}

func readStat(dir string) (target.Stat, error) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return target.Stat{}, err
	}
	return target.ParseStat(b)
}

// process is a process as find reads it.
type process struct {
	pid, parent, group int
	name               string
}

// find returns the first matching process.
func find(fits func(p process) bool) (pid int, ok bool) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		b, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		// PID (name) state parent group …: see proc(5).
		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if open < 1 || end < open {
			continue
		}
		f := strings.Fields(string(b[end+1:]))
		if len(f) < 3 || f[0] == "Z" {
			continue
		}
		p := process{name: string(b[open+1 : end])}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		p.parent, _ = strconv.Atoi(f[1])
		p.group, _ = strconv.Atoi(f[2])
		if fits(p) {
			return p.pid, true
		}
	}
	return 0, false
}

// worked returns the CPU time of a process in ns; 0 once it has ended.
func worked(pid int) (ns int64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if w := strings.Fields(string(b)); len(w) > 0 {
			n, _ := strconv.ParseInt(w[0], 10, 64)
			ns += n
		}
	}
	return ns
}
