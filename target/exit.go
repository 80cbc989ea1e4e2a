package target

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ending is how a process ended.
type Ending struct {
	Signal syscall.Signal // the signal that killed it; 0: it exited on its own
	Core   bool           // the kernel wrote a core file, or piped it to a program
	Status int            // exit status if it exited
}

func (e Ending) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by %s", SignalName(e.Signal))
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// SignalName returns the signal's name with SIG, such as SIGSEGV.
func SignalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("signal %d", int(s))
}

// Crash reports whether the process ended because of a fault, and not on request.
func (e Ending) Crash() bool {
	switch e.Signal {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGABRT, syscall.SIGSYS, syscall.SIGTRAP,
		syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGKILL:
		return true // SIGKILL: the kernel's, on memory shortage, cannot be distinguished from others
	}
	return false
}

// Life is a descriptor of a process that can report how it ended. It is for use by one goroutine.
type Life struct {
	p  *Process
	fd int
}

// Life opens a Life. The process must be alive.
func (p *Process) Life() (*Life, error) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watch the end of process %d: %w", p.pid, err)
	}
	if !p.Alive() { // the number may belong to another process
		unix.Close(fd)
		return nil, ErrGone
	}
	return &Life{p: p, fd: fd}, nil
}

// Ended reports whether the whole process has ended. It does not wait.
func (l *Life) Ended() bool {
	fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Ending returns how the process ended. ok is false if it has not, or if the kernel does not
// report it: up to Linux 6.14, the status is gone once the parent has waited for it.
func (l *Life) Ending() (e Ending, ok bool) {
	// A zombie's stat contains the status (proc(5), field 52).
	shown := l.p.shown()
	if b, err := l.p.read("stat", 4096); err == nil && shown {
		if st, err := ParseStat(b); err == nil && st.State == 'Z' && st.Exit >= 0 {
			return ending(st.Exit), true
		}
	}
	// include/uapi/linux/pidfd.h: PIDFD_INFO_EXIT.
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(l.fd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return e, false
	}
	return ending(int(info.Exit_code)), true
}

// shown reports whether this program may see the status of p if it is a zombie: otherwise its stat contains 0 instead
// (do_task_stat of fs/proc/array.c). The link to its working directory, which it no longer has, needs the same right
// (proc_fd_access_allowed of fs/proc/base.c).
func (p *Process) shown() bool {
	var to [1]byte
	_, err := unix.Readlinkat(p.dir, "cwd", to[:])
	return !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM)
}

func ending(status int) Ending {
	return Ending{Signal: syscall.Signal(status & 0x7f), Core: status&0x80 != 0, Status: status >> 8 & 0xff}
}

// Close closes the descriptor.
func (l *Life) Close() error { return unix.Close(l.fd) }
