package target

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ending is how a process ended.
type Ending struct {
	Signal syscall.Signal // that killed it; 0: it exited by itself
	Core   bool           // the kernel wrote its memory to a core file, or handed it to a program
	Status int            // exit status where it exited
}

func (e Ending) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by %s", SignalName(e.Signal))
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// SignalName is the name with SIG, such as SIGSEGV.
func SignalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("signal %d", int(s))
}

// Crash reports whether the process died of a fault of its own, and not
// because somebody asked it to end.
func (e Ending) Crash() bool {
	switch e.Signal {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGABRT, syscall.SIGSYS, syscall.SIGTRAP,
		syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGKILL:
		return true // SIGKILL: the kernel's, when memory runs out, looks like anyone's
	}
	return false
}

// Life is a descriptor of a process that tells how it ended. It is for one
// goroutine.
type Life struct {
	p  *Process
	fd int
}

// Life opens it. It holds for a process that is alive.
func (p *Process) Life() (*Life, error) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watch the end of process %d: %w", p.pid, err)
	}
	if !p.Alive() { // the number may have been another's
		unix.Close(fd)
		return nil, ErrGone
	}
	return &Life{p: p, fd: fd}, nil
}

// Ended reports whether all of the process is over. It does not wait.
func (l *Life) Ended() bool {
	fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Ending tells how the process ended; ok is false where it has not, or the
// kernel does not tell: a parent that is quick to wait takes the status with
// it, up to Linux 6.14.
func (l *Life) Ending() (e Ending, ok bool) {
	// While it is a zombie its stat has the status (proc(5), field 52).
	if b, err := l.p.read("stat", 4096); err == nil {
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

func ending(status int) Ending {
	return Ending{Signal: syscall.Signal(status & 0x7f), Core: status&0x80 != 0, Status: status >> 8 & 0xff}
}

// Close lets go of it.
func (l *Life) Close() error { return unix.Close(l.fd) }
