package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/background"
)

// Command is a program that was started to be recorded. It is held at its first instruction until
// Release, so that the recording is complete.
type Command struct {
	Process *Process

	cmd  *exec.Cmd
	once sync.Once
}

// StartError is a program that was not found, or that the kernel did not execute.
type StartError struct {
	Program string
	Err     error
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot start %s: %v", e.Program, e.Err) }

// Unwrap implements errors.Is.
func (e *StartError) Unwrap() error { return e.Err }

// Missing reports whether the program, or the interpreter that its first line names, does not exist.
func (e *StartError) Missing() bool {
	return errors.Is(e.Err, fs.ErrNotExist) || errors.Is(e.Err, exec.ErrNotFound)
}

// Start runs argv with sliver's own standard streams, environment and process group, stopped at
// its first instruction. If sliver is killed before Release, the kernel lets the program run.
func Start(argv []string) (*Command, error) {
	c := &Command{cmd: exec.Command(argv[0], argv[1:]...)}
	var err error
	if background.Do(func() { err = c.start() }); err != nil {
		return nil, err
	}
	p, err := Open(c.cmd.Process.Pid)
	if err != nil {
		c.Release()
		_, _ = c.Wait()
		return nil, err
	}
	c.Process = p
	return c, nil
}

// start starts the command and leaves it at its first instruction.
func (c *Command) start() error {
	pid, err := 0, c.cmd.Err
	if err == nil {
		pid, err = startTraced(c.cmd.Path, c.cmd.Args, c.cmd.Environ())
	}
	if err == nil {
		c.cmd.Process, err = os.FindProcess(pid) // it is there: nothing has waited for it
	}
	if err != nil {
		var pe *fs.PathError
		var ee *exec.Error
		if errors.As(err, &pe) {
			err = pe.Err
		} else if errors.As(err, &ee) {
			err = ee.Err
		}
		return &StartError{Program: c.cmd.Args[0], Err: err}
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || !ws.Stopped() {
		_ = unix.PtraceDetach(pid)
		return fmt.Errorf("start %s: it did not stop at its first instruction (%v, %#x)", c.cmd.Args[0], err, ws)
	}
	return nil
}

// Release lets the command run. It may be called several times.
func (c *Command) Release() {
	c.once.Do(func() {
		// The kernel requires that the tracing OS thread detaches.
		background.Do(func() { _ = unix.PtraceDetach(c.cmd.Process.Pid) })
	})
}

// Used returns the CPU time of the command, once it has ended, with that of its descendants whose
// parents waited for them; 0: it runs, or Wait was called.
func (c *Command) Used() time.Duration {
	var ru unix.Rusage
	if unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// Wait waits for the command's end and returns its exit status as a shell does: 128 plus the
// signal number for a killed program.
func (c *Command) Wait() (status int, err error) {
	// A plain wait would consume the stops that the samplers wait for. So wait first for the end,
	// through a descriptor of the process, then for its status.
	fd, err := unix.PidfdOpen(c.cmd.Process.Pid, 0)
	if err == nil {
		defer unix.Close(fd)
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, -1)
			if n > 0 || err != nil && err != unix.EINTR {
				break
			}
		}
	}
	err = c.cmd.Wait()
	st, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return 0, fmt.Errorf("wait for %s: %w", c.cmd.Args[0], err)
	case st.Signaled():
		return 128 + int(st.Signal()), nil
	}
	return st.ExitStatus(), nil
}

// ownThread reports whether tid is a thread of this program, including the one that holds a
// Command, or one of its stoppers.
func ownThread(tid int) bool {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err == nil {
		return true
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
	if err != nil {
		return false
	}
	st, err := ParseStat(b)
	return err == nil && st.PPID == os.Getpid() && st.Comm == stopperName
}

// Kill kills the command.
func (c *Command) Kill() { _ = c.cmd.Process.Kill() }
