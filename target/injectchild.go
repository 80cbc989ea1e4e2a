package target

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// makeChild makes a thread clone the process. It returns the child's number as the keeper
// sees it and as the process does.
func (k *injector) makeChild() (child, inner int, err error) {
	h, gadget := k.best()
	if h == nil {
		return 0, 0, ErrNoThread
	}
	result, child, err := k.call(h, gadget, nativeClone, [6]uint64{cloneShared, noStack})
	switch {
	case err != nil:
		return child, int(result), err
	case child != 0:
		return child, int(result), nil
	case result < 0 && result > -512:
		return 0, 0, &CloneError{Err: unix.Errno(-result)}
	}
	return 0, 0, errAgain
}

// keep waits for the child's first stop, which comes before its first instruction, and
// binds it to the keeper's life.
func (k *injector) keep(child int) error {
	switch st, ok := k.awaitChild(child, false, monotonic()+10e9); {
	case !ok:
		return ErrTimeout
	case st == -1:
		return ErrGone
	}
	if errno := traceCall(ptraceSetOptions, uintptr(child), 0, optExitKill); errno != 0 {
		return fmt.Errorf("bind the copy to its keeper: %w", errno)
	}
	// The kernel is to end the copy first when memory is short.
	_ = os.WriteFile("/proc/"+strconv.Itoa(child)+"/oom_score_adj", []byte("1000"), 0)
	return nil
}

// awaitChild waits for a report of the child, or until it has ended, and returns its stop; -1: it has ended. ok is false if
// that did not come by end.
func (k *injector) awaitChild(child int, ended bool, end stack.Time) (status int, ok bool) {
	for {
		k.drain()
		if st, ok := k.others[child]; ok && (st == -1 || !ended) {
			return st, true
		}
		if monotonic() > end {
			return 0, false
		}
		ts := unix.Timespec{Nsec: keeperSleep}
		_ = unix.Nanosleep(&ts, nil)
	}
}

const (
	// buryFor bounds how long the keeper tries to leave no zombie, in ns, waitStop how long one
	// thread may take to stop for that. Both are for machines without a free CPU.
	buryFor  = 30_000_000_000
	waitStop = 500_000_000
)

// bury ends the child, and makes the process take its status, so that no zombie is left.
func (k *injector) bury(child, inner int) error {
	if child == 0 {
		return nil
	}
	k.empty(child)
	_ = unix.Kill(child, unix.SIGKILL)
	end := monotonic() + buryFor
	if _, ok := k.awaitChild(child, true, end); !ok {
		return fmt.Errorf("the copy (process %d) did not end within %d s", child, int64(buryFor/1e9))
	}
	var last error
	for round := 0; monotonic() < end; round++ {
		tids, err := k.p.Threads(nil)
		if err != nil {
			return nil // the process has ended: its children are init's
		}
		for _, tid := range tids {
			done, err := k.waitBy(int(tid), inner, round > 0)
			if done {
				return nil
			}
			if last = err; errors.Is(err, ErrSeccomp) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
				return fmt.Errorf("the copy stays as zombie %d: %w", child, err)
			}
		}
		ts := unix.Timespec{Nsec: 1_000_000}
		_ = unix.Nanosleep(&ts, nil)
	}
	return fmt.Errorf("the copy stays as zombie %d: no thread of the process took its status: %w", child, last)
}

// waitBy makes one thread take the child's status. any: not only one that is blocked in a futex.
func (k *injector) waitBy(tid, inner int, any bool) (done bool, err error) {
	k.drain()
	if k.byTID[tid] != nil {
		return false, ErrTimeout
	}
	h := &held{tid: tid, before: noCall}
	nativePrepare(k.p, stack.TID(tid), &h.before)
	if seize(tid) != 0 {
		return false, ErrDenied
	}
	k.threads, k.byTID[tid] = append(k.threads, h), h
	defer k.release()
	if k.isForeign(h) {
		return false, ErrGone
	}
	traceCall(ptraceInterrupt, uintptr(tid), 0, 0)
	if !k.await(h, monotonic()+waitStop) {
		return false, ErrTimeout
	}
	if h.gone {
		return false, ErrGone
	}
	if errno := h.read(); errno != 0 {
		return false, errno
	}
	suit, gadget := k.suit(h)
	if suit == suitNone || suit < suitFutex && !any {
		return false, ErrNoThread
	}
	result, _, err := k.call(h, gadget, nativeWait4, [6]uint64{uint64(inner), 0, unix.WALL | unix.WNOHANG})
	if err != nil {
		return false, err
	}
	if result == int64(inner) || result == -int64(unix.ECHILD) {
		return true, nil
	}
	if result < 0 && result > -512 {
		return false, fmt.Errorf("wait4: %w", unix.Errno(-result))
	}
	return false, fmt.Errorf("wait4 returned %d", result)
}
