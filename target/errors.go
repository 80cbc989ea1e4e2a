package target

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What a caller branches on.
var (
	ErrGone    = errors.New("the thread or process is gone")
	ErrTimeout = errors.New("the thread did not stop in time")
	// ErrLater is an ErrTimeout after which the sample is still to come: Arrived.
	ErrLater = fmt.Errorf("%w yet", ErrTimeout)
	// ErrStale says that a thread was not asked to stop, since it was a while ago that it
	// was seen to run.
	ErrStale = errors.New("the thread was to stop, and was not asked in time")
	// ErrAsleep: the thread was blocked and Window.Check was set.
	ErrAsleep = errors.New("the thread is blocked")
	// ErrLeft is ErrAsleep of a thread that was on a CPU a moment before.
	ErrLeft   = fmt.Errorf("%w, since a moment", ErrAsleep)
	ErrTraced = errors.New("another tracer holds the thread")
	ErrDenied = errors.New("the kernel refuses to trace the thread")
)

// Reason says why a process cannot be sampled.
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
	NoCapability                    // it has more rights than we
	NotDumpable                     // it forbids it (PR_SET_DUMPABLE), or its file is unreadable
	Filtered                        // a seccomp filter takes ptrace or process_vm_readv from us
	OtherPolicy                     // some other security module
	Itself                          // it is this very process
)

// Refusal is why a process cannot be sampled: one line, and one line of what
// to do about it.
type Refusal struct {
	PID    int
	Comm   string // "" if unknown
	Reason Reason
	What   string
	Advice string // "" where there is none
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

// Unwrap gives the kernel's error, or ErrGone.
func (e *MemoryError) Unwrap() error { return e.Err }

// gone turns the kernel's words for a thread or process that ended into ErrGone.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return ErrGone
	}
	return err
}
