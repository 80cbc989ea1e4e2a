package target

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// snapshotLoop copies a process again and again until it is killed.
func snapshotLoop(arg string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	pid, err := strconv.Atoi(arg)
	fail(err)
	p, err := Open(pid)
	fail(err)
	for round := 0; ; round++ {
		s, err := p.Snapshot(SnapshotOptions{StopFor: 10e9, GateFor: 30e9})
		fail(err)
		fail(s.Close())
		if round == 1 {
			fmt.Println("looping")
		}
	}
}

// keepers lists the keepers that run.
func keepers(t testing.TB) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && string(bytes.TrimRight(b, "\x00")) == KeeperName {
			pids = append(pids, atoi(t, strings.Split(n, "/")[2]))
		}
	}
	return pids
}

// TestSnapshotKilled kills a program that copies a process at random moments: afterwards
// no thread is stopped or traced, and neither the copy nor a zombie is left.
func TestSnapshotKilled(t *testing.T) {
	prog, _ := copied(t, "16")
	runtime.LockOSThread() // Pdeathsig is of the OS thread
	defer runtime.UnlockOSThread()
	n := rounds(8, 200)
	for i := range n {
		cmd := looper(t, "snapshot "+fmt.Sprint(prog.pid()))
		for end := monotonic() + stack.Time(rand.Int64N(60e6)); monotonic() < end; {
			runtime.Gosched()
		}
		cmd.Process.Kill()
		cmd.Wait()
		eventually(t, "the keeper has ended", func() bool {
			for _, k := range keepers(t) {
				if st := parent(k); st == 1 || st == 0 {
					return false
				}
			}
			return true
		})
		eventually(t, "no thread is traced", func() bool { return len(traced(t, prog.pid())) == 0 })
		for _, c := range children(t, prog.pid()) {
			if c.Comm == "copied" {
				// Its own children are so called until they run another program.
				eventually(t, fmt.Sprintf("round %d: process %d, a copy, is gone", i, c.PID), func() bool {
					_, err := os.Stat(fmt.Sprintf("/proc/%d", c.PID))
					return err != nil
				})
			}
		}
	}
	whole(t, prog)
}

// A copy dies with its keeper, and should it ever be let go, at its next use of the stack.
func TestSnapshotWithoutKeeper(t *testing.T) {
	prog, at := copied(t, "16")
	p := openProcess(t, prog.pid())
	s := snapshot(t, p, SnapshotOptions{})
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy ends", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
		if err != nil {
			return true
		}
		st, err := ParseStat(b)
		return err == nil && (st.State == 'Z' || st.State == 'X')
	})
	var buf [8]byte
	if _, err := s.ReadAt(buf[:], int64(at)); err == nil {
		t.Error("memory of a copy that has ended could be read")
	}
	if err := s.Close(); err == nil {
		t.Error("Close says nothing of a keeper that was killed")
	}
	untraced(t, prog.pid())
	whole(t, prog)
}

// Filters of seccomp: root suspends them, others are refused unless they insist.
func TestSnapshotSeccomp(t *testing.T) {
	if os.Geteuid() != 0 {
		need(t, "root", "changes its user")
	}
	for _, c := range []struct {
		filter string
		root   bool
		force  bool
		want   error // nil: a copy
		status int   // of the target's end
		left   bool  // a zombie stays
	}{
		{"allow", true, false, nil, 17, false},
		{"errno", true, false, nil, 17, false},
		{"trap", true, false, nil, 17, false},
		{"kill", true, false, nil, 17, false},
		{"wait", true, false, nil, 17, false},
		{"none", false, false, nil, 17, false},
		{"allow", false, false, ErrSeccomp, 17, false},
		{"kill", false, false, ErrSeccomp, 17, false},
		{"allow", false, true, nil, 17, false},
		{"errno", false, true, unix.EPERM, 17, false},
		{"trap", false, true, ErrSeccomp, 17, false},
		{"wait", false, true, nil, 17, true},
		{"kill", false, true, ErrGone, -1, false},
	} {
		t.Run(fmt.Sprintf("%s root=%v force=%v", c.filter, c.root, c.force), func(t *testing.T) {
			prog := startAs(t, c.root, build(t, "../testdata/targets/c/filtered.c"), c.filter)
			if s := prog.line(); s != "ready" {
				t.Fatal(s)
			}
			out, err := snapshotAs(t, c.root, prog.pid(), c.force)
			for range 3 {
				if c.status != 17 {
					break
				}
				prog.tell("")
				if s := prog.line(); s != "traps 0" {
					t.Errorf("%s: the program saw SIGSYS", s)
				}
			}
			switch {
			case c.want == nil && err != nil, c.want != nil && (err == nil || !strings.Contains(err.Error(), c.want.Error())):
				t.Errorf("%q, %v; want %v", out, err, c.want)
			}
			left := 0
			for _, ch := range children(t, prog.pid()) {
				if ch.State == 'Z' {
					left++
				} else {
					t.Errorf("a child is left: %+v", ch)
				}
			}
			if (left == 1) != c.left || c.left != strings.Contains(out, "zombie") {
				t.Errorf("%d zombies, said %q", left, out)
			}
			if c.status == 17 {
				untraced(t, prog.pid())
			}
			prog.in.Close()
			prog.wait()
			if code := prog.cmd.ProcessState.ExitCode(); code != c.status {
				t.Errorf("exit status %v, want %d", prog.cmd.ProcessState, c.status)
			}
		})
	}
}

const otherUser = 65534

// startAs starts a program as root or as user 65534.
func startAs(t *testing.T, root bool, bin string, args ...string) *testTarget {
	t.Helper()
	if root {
		return start(t, bin, args...)
	}
	open := filepath.Join(openDir(t), filepath.Base(bin))
	copyFile(t, bin, open)
	return start(t, "/usr/bin/setpriv", append([]string{"--reuid", fmt.Sprint(otherUser), "--regid", fmt.Sprint(otherUser), "--clear-groups", open}, args...)...)
}

// openDir is a folder that every user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sliver-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// snapshotAs makes one copy in a process of its own, as root or as user 65534, and returns
// its output.
func snapshotAs(t *testing.T, root bool, pid int, force bool) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{self}
	if !root {
		own := filepath.Join(openDir(t), "test")
		copyFile(t, self, own)
		args = []string{"/usr/bin/setpriv", "--reuid", fmt.Sprint(otherUser), "--regid", fmt.Sprint(otherUser), "--clear-groups", own}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=copy %d %v", loopVar, pid, force))
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), errors.New(string(out))
	}
	return string(out), nil
}

// copyOnce is what snapshotAs runs.
func copyOnce(pid, force string) {
	n, err := strconv.Atoi(pid)
	var p *Process
	if err == nil {
		p, err = Open(n)
	}
	var s *Snapshot
	if err == nil {
		s, err = p.Snapshot(SnapshotOptions{StopFor: 10e9, GateFor: 1e9, Force: force == "true"})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := s.Close(); err != nil {
		fmt.Println(err)
	}
	os.Exit(0)
}

func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	st, err := ParseStat(b)
	if err != nil {
		return -1
	}
	return st.PPID
}
