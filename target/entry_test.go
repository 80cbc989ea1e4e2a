package target

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// heldAt describes a held command: its program counter, and the libraries that are mapped.
func heldAt(t *testing.T, c *Command) (pc uint64, libraries int) {
	t.Helper()
	maps, err := c.Process.Maps()
	if err != nil {
		t.Fatal(err)
	}
	for i := range maps {
		if m := &maps[i]; m.Exec && strings.Contains(m.Path, ".so") {
			libraries++
		}
	}
	return pcOf(c.Process.PID()), libraries
}

// toEntry calls ToEntry. It skips the test on a machine without breakpoints.
func toEntry(t *testing.T, c *Command) {
	t.Helper()
	switch err := c.ToEntry(); {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOSPC):
		c.Release()
		_, _ = c.Wait()
		testprog.Missing(t, "perf", err.Error())
	case err != nil:
		t.Fatal(err)
	}
}

// A command is held at its entry, where its libraries are mapped, and then runs as if nothing had been.
func TestToEntry(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	script := t.TempDir() + "/script"
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		argv    []string
		dynamic bool
	}{
		{"O2", []string{testprog.Build(t, "c/exitcodes", "O2"), "--status", "7"}, true},
		{"nopie", []string{testprog.Build(t, "c/exitcodes", "nopie"), "--status", "7"}, true},
		{"musl", []string{testprog.Build(t, "c/exitcodes", "musl"), "--status", "7"}, true},
		{"static", []string{testprog.Build(t, "c/exitcodes", "static"), "--status", "7"}, false},
		{"static-pie", []string{testprog.Build(t, "c/exitcodes", "static-pie"), "--status", "7"}, false},
		{"script", []string{script}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, err := Start(c.argv)
			if err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Close()
			first, before := heldAt(t, cmd)
			toEntry(t, cmd)
			toEntry(t, cmd) // does nothing
			pc, libraries := heldAt(t, cmd)
			base, entry, err := auxiliary(cmd.Process.PID())
			if err != nil {
				t.Fatal(err)
			}
			if c.dynamic && (base == 0 || pc != entry || libraries == 0) {
				t.Errorf("held at %#x, its entry is %#x; %d libraries", pc, entry, libraries)
			}
			if !c.dynamic && (base != 0 || pc != first || libraries != before) {
				t.Errorf("a static program is held at %#x and not %#x", pc, first)
			}
			cmd.Release()
			if status, err := cmd.Wait(); status != 7 || err != nil {
				t.Errorf("status %d, %v", status, err)
			}
		})
	}
}

// entryChild in the environment makes this test program a process that starts a command, takes it to its entry, and
// is killed there.
const entryChild = "SLIVER_TEST_ENTRY"

func TestMainOfEntry(t *testing.T) {
	argv := strings.Fields(os.Getenv(entryChild))
	if len(argv) == 0 {
		t.Skip("it is a part of TestToEntryKilled")
	}
	cmd, err := Start(argv)
	if err != nil {
		t.Fatal(err)
	}
	toEntry(t, cmd)
	fmt.Printf("held %d\n", cmd.Process.PID())
	testprog.UntilKilled()
}

// If sliver is killed while it holds a command at its entry, the command goes on and ends as it would have.
func TestToEntryKilled(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	out := t.TempDir() + "/out"
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMainOfEntry$")
	cmd.Env = append(os.Environ(), entryChild+"=/bin/sh -c echo>"+out)
	p := testprog.StartCmd(t, cmd)
	var pid int
	if _, err := fmt.Sscanf(p.Line("held "), "held %d", &pid); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(fmt.Sprintf("/proc/%d", pid), syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil { // not its group, which the command belongs to
		t.Fatal(err)
	}
	<-p.Exited()
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(b, []byte(") Z ")) {
			break
		}
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "\n" {
		t.Errorf("what it wrote: %q, %v", b, err)
	}
}

// Signals that arrive on the way to the entry reach the command.
func TestToEntrySignals(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	cmd, err := Start([]string{testprog.Build(t, "c/exitcodes", "O2"), "--status", "7"})
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Close()
	if err := syscall.Kill(cmd.Process.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	toEntry(t, cmd)
	cmd.Release()
	if status, err := cmd.Wait(); status != 128+int(syscall.SIGTERM) || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
}

// A command that could not be stopped stays where it is, and runs.
func TestToEntryRefused(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	cmd, err := Start([]string{"/bin/sh", "-c", "exit 7"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Release()
	if err := cmd.ToEntry(); err == nil {
		t.Error("a command that was released is held")
	}
	if status, err := cmd.Wait(); status != 7 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	cmd.Process.Close()
}

// The CPU time of a command, and of those that it waited for, equals that in its wait status.
func TestCommandUsed(t *testing.T) {
	testprog.Need(t, "ptrace")
	burn := "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; "
	cmd, err := Start([]string{"/bin/sh", "-c", burn + "(" + burn + "); exit 7"})
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Close()
	if d := cmd.Used(); d != 0 {
		t.Errorf("%v before it ended", d)
	}
	cmd.Release()
	eventually(t, "its end", func() bool { return cmd.Used() > 0 })
	used := cmd.Used()
	if status, err := cmd.Wait(); status != 7 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	if want := cmd.cmd.ProcessState.UserTime() + cmd.cmd.ProcessState.SystemTime(); used != want {
		t.Errorf("%v, by its wait status %v", used, want)
	}
	if d := cmd.Used(); d != 0 {
		t.Errorf("%v after it was reaped", d)
	}
}
