package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a program that was started to be recorded. It stands at its very
// first instruction until Release, so that nothing of it is missed.
type Command struct {
	Process *Process

	cmd     *exec.Cmd
	release chan struct{}
	once    sync.Once
	let     chan error // result of letting it go
}

// Start runs argv with sliver's own standard streams, environment and process
// group, stopped at its first instruction. If sliver is killed before Release,
// the kernel lets it run.
func Start(argv []string) (*Command, error) {
	c := &Command{cmd: exec.Command(argv[0], argv[1:]...), release: make(chan struct{}), let: make(chan error, 1)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	started := make(chan error, 1)
	go c.hold(started)
	if err := <-started; err != nil {
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

// hold starts the command on an OS thread of its own: the kernel wants the one
// that traces to be the one that lets go.
func (c *Command) hold(started chan<- error) {
	runtime.LockOSThread() // the thread ends with this goroutine
	if err := c.cmd.Start(); err != nil {
		var pe *fs.PathError
		var ee *exec.Error
		if errors.As(err, &pe) {
			err = pe.Err
		} else if errors.As(err, &ee) {
			err = ee.Err
		}
		started <- fmt.Errorf("cannot start %s: %w", c.cmd.Args[0], err)
		return
	}
	pid := c.cmd.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || !ws.Stopped() {
		_ = unix.PtraceDetach(pid)
		started <- fmt.Errorf("start %s: it did not stop at its first instruction (%v, %#x)", c.cmd.Args[0], err, ws)
		return
	}
	started <- nil
	<-c.release
	c.let <- unix.PtraceDetach(pid)
}

// Release lets the command run. It may be called several times.
func (c *Command) Release() {
	c.once.Do(func() {
		close(c.release)
		<-c.let
	})
}

// Wait waits for the command's end and returns its exit status as a shell
// counts: 128 and the signal for one that was killed.
func (c *Command) Wait() (status int, err error) {
	// A plain wait would take the stops that the samplers wait for: so first
	// the end, through a descriptor of the process, then its status.
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

// ownThread reports whether tid is a thread of this program, the one that holds
// a Command, or a stopper of it.
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

// Kill ends the command.
func (c *Command) Kill() { _ = c.cmd.Process.Kill() }
