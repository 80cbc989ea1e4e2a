package target

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Errors that callers branch on.
var (
	ErrGone    = errors.New("the thread or process is gone")
	ErrTimeout = errors.New("the thread did not stop in time")
	// ErrLater is an ErrTimeout after which the sample is still pending: see Arrived.
	ErrLater = fmt.Errorf("%w yet", ErrTimeout)
	// ErrStale reports that a thread was not asked to stop, because the look that found it
	// running was too long ago.
	ErrStale = errors.New("the thread was to stop, and was not asked in time")
	// ErrAsleep: the thread was blocked and Window.Check was set.
	ErrAsleep = errors.New("the thread is blocked")
	// ErrLeft is ErrAsleep for a thread that was on a CPU right before.
	ErrLeft   = fmt.Errorf("%w, since a moment", ErrAsleep)
	ErrTraced = errors.New("another tracer holds the thread")
	ErrDenied = errors.New("the kernel refuses to trace the thread")

	// Why there is no Snapshot.
	ErrGroupStop = errors.New("the process is stopped (SIGSTOP)")
	ErrSeccomp   = errors.New("a seccomp filter may kill the process for a clone")
	ErrNoThread  = errors.New("no thread is blocked where it can make a system call")
	ErrBusy      = errors.New("the process is not in a state to be copied")
	ErrShort     = errors.New("the memory of the process's control group is short")
)

// CloneError is the kernel's refusal to copy a process: ENOMEM for overcommit_memory=2,
// EAGAIN for pids.max and ulimit -u, EPERM for a seccomp filter.
type CloneError struct{ Err error }

func (e *CloneError) Error() string {
	why := ""
	switch {
	case errors.Is(e.Err, unix.ENOMEM):
		why = " (vm.overcommit_memory is 2, or memory is short)"
	case errors.Is(e.Err, unix.EAGAIN):
		why = " (the limit of its control group, pids.max, or of its user, ulimit -u)"
	}
	return fmt.Sprintf("copy the process: %v%s", e.Err, why)
}

// Unwrap gives the kernel's error.
func (e *CloneError) Unwrap() error { return e.Err }

// Reason is why a process cannot be sampled.
type Reason uint8

// Reasons of a Refusal.
const (
	NoProcess     Reason = iota + 1 // no such process
	NotLeader                       // the number is a thread's
	KernelThread                    // it has no user code
	Zombie                          // it has ended
	Wrong32Bit                      // a 32-bit program
	AlreadyTraced                   // another process traces it
	OtherUser                       // it belongs to another user
	YamaScope                       // the Yama security module forbids it
	NoCapability                    // it has more permissions than this program
	NotDumpable                     // it forbids it (PR_SET_DUMPABLE), or its file is unreadable
	Filtered                        // a seccomp filter blocks ptrace or process_vm_readv
	OtherPolicy                     // another security module
	Itself                          // it is this program itself
)

// String describes r, such as "a 32-bit program".
func (r Reason) String() string {
	switch r {
	case NoProcess, Zombie:
		return "it has ended"
	case NotLeader:
		return "a thread"
	case KernelThread:
		return "a kernel thread"
	case Wrong32Bit:
		return "a 32-bit program"
	case AlreadyTraced:
		return "another program traces it"
	case OtherUser, YamaScope, NoCapability, NotDumpable, OtherPolicy:
		return "no permission"
	case Filtered:
		return "a seccomp filter blocks it"
	case Itself:
		return "sliver itself"
	}
	return "it cannot be sampled"
}

// Refusal is the error for a process that cannot be sampled: one line with the reason and one
// with advice.
type Refusal struct {
	PID    int
	Comm   string // "" if unknown
	Reason Reason
	What   string
	Advice string // "" if there is none
}

func (r *Refusal) Error() string { return r.What }

func refuse(pid int, comm string, why Reason, what, advice string) *Refusal {
	return &Refusal{PID: pid, Comm: comm, Reason: why, What: what, Advice: advice}
}

// MemoryError is a read of the target's memory that ended at Addr.
type MemoryError struct {
	Addr uint64
	Err  error
}

func (e *MemoryError) Error() string { return fmt.Sprintf("read memory at %#x: %v", e.Addr, e.Err) }

// Unwrap returns the kernel's error, or ErrGone.
func (e *MemoryError) Unwrap() error { return e.Err }

// gone converts the kernel's errors for an ended thread or process to ErrGone.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return ErrGone
	}
	return err
}
