package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/caps"
	"github.com/sliverprof/sliver/stack"
)

// While a thread executes a call for this program, its registers are not its own. If the
// tracer ended in between, the kernel would let the thread go on with them. So a snapshot
// is made by a process of its own, the keeper, which does not end with this program: it is
// this program's file, started under another name, in a session of its own. It has two pipes.
// It reads one request, answers, holds the copy until the pipe ends or says so, ends the
// copy, makes the process take its status, and ends. The copy ends with the keeper
// (PTRACE_O_EXITKILL).

// KeeperName is argv[0] and the name of a keeper.
const KeeperName = "sliver-keeper"

func init() {
	if len(os.Args) > 0 && os.Args[0] == KeeperName {
		runtime.LockOSThread() // ptrace is bound to a thread
		os.Exit(keeperMain())
	}
}

// keeperRequest is the first line that a keeper reads. Times are in ns.
type keeperRequest struct {
	PID     int
	Start   uint64 // clock ticks after boot: the process is this one
	Gate    uint64 // address of a byte that must be 0 at the stop; 0: none
	GateFor int64  // for how long to try
	StopFor int64  // how long all threads may take to stop
	Force   bool
}

// keeperReply is the answer, and the first line that it writes.
type keeperReply struct {
	Kind   int // of the error, an index of keeperErrors; -1: another one
	Text   string
	Errno  int // of a CloneError
	Child  int // the copy's number
	Tries  int
	Frozen int64 // ns from the first request to stop until the last thread went on

	Threads []keeperThread
}

// keeperThread is a thread as it was at the stop.
type keeperThread struct {
	TID  int
	Regs []uint64
}

// keeperErrors are the errors that keep their identity on the way.
var keeperErrors = []error{nil, ErrGone, ErrTimeout, ErrTraced, ErrDenied, ErrGroupStop, ErrSeccomp, ErrNoThread, ErrBusy, errAgain}

func (r *keeperReply) fail(err error) {
	r.Kind, r.Text = -1, err.Error()
	var c *CloneError
	if errno := unix.Errno(0); errors.As(err, &c) && errors.As(c.Err, &errno) {
		r.Errno = int(errno)
	}
	for i, e := range keeperErrors {
		if e != nil && errors.Is(err, e) {
			r.Kind = i
		}
	}
}

// error is the reply's error, nil if there is none.
func (r *keeperReply) error() error {
	switch {
	case r.Text == "":
		return nil
	case r.Errno != 0:
		return &CloneError{Err: unix.Errno(r.Errno)}
	case r.Kind > 0 && r.Kind < len(keeperErrors):
		if e := keeperErrors[r.Kind]; e.Error() == r.Text {
			return e
		}
		return &keptError{r.Text, keeperErrors[r.Kind]}
	}
	return errors.New(r.Text)
}

// keptError is an error of the keeper's with its identity.
type keptError struct {
	text string
	is   error
}

func (e *keptError) Error() string { return e.text }
func (e *keptError) Unwrap() error { return e.is }

// keeperMain is a keeper's life. It returns its exit status.
func keeperMain() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	debug.SetGCPercent(-1) // its garbage is a few hundred kilobytes, a stop would be longer
	_ = os.WriteFile("/proc/self/comm", []byte(KeeperName), 0)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var q keeperRequest
	if err := in.Decode(&q); err != nil {
		fmt.Fprintln(os.Stderr, KeeperName+": this is a helper of sliver: it cannot be started by itself")
		return 2
	}
	var r keeperReply
	if err := caps.Limit(caps.Targets); err != nil {
		r.fail(err)
		_ = out.Encode(&r)
		return 1
	}
	p, err := Open(q.PID)
	if err != nil {
		r.fail(err)
		_ = out.Encode(&r)
		return 1
	}
	defer p.Close()
	if p.facts.StartTicks != q.Start {
		r.fail(ErrGone)
		_ = out.Encode(&r)
		return 1
	}
	k := newInjector(p)
	k.force = q.Force
	inner, err := k.snapshot(&q, &r)
	if err != nil {
		r.fail(err)
	}
	_ = out.Encode(&r)
	// If the reply cannot be written, because this program's parent is dead, the copy is ended below.
	ended := make(chan struct{})
	go func() {
		var b [1]byte
		_, _ = os.Stdin.Read(b[:])
		close(ended)
	}()
	for waiting := err == nil; waiting || !k.settle(); {
		tick := 100 * time.Millisecond
		if len(k.threads) > 0 {
			tick = time.Millisecond
		}
		select {
		case <-ended:
			waiting, ended = false, nil
		case <-time.After(tick):
			k.settle()
		}
	}
	var end keeperReply
	if r.Child != 0 {
		if err := k.bury(r.Child, inner); err != nil {
			end.fail(err)
		}
	}
	_ = out.Encode(&end)
	for !k.settle() {
		time.Sleep(time.Millisecond)
	}
	return 0
}

// retryEach is how long the process runs between two tries, in ns.
const retryEach = 2_000_000

// snapshot makes the copy. It returns the number by which the process knows it.
func (k *injector) snapshot(q *keeperRequest, r *keeperReply) (inner int, err error) {
	k.findGadget()
	for begin := monotonic(); ; {
		r.Tries++
		var child int
		child, inner, err = k.once(q, r)
		r.Frozen = max(r.Frozen, int64(k.ended-k.began))
		if child != 0 && err == nil {
			if err = k.keep(child); err == nil {
				r.Frozen = int64(k.ended - k.began)
				r.Child = child
				return inner, nil
			}
		}
		if child != 0 { // restoring the thread failed, or the copy was killed
			return 0, errors.Join(err, k.bury(child, inner))
		}
		again := errors.Is(err, errAgain) || errors.Is(err, ErrBusy) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrNoThread) || errors.Is(err, ErrTraced)
		if !again || monotonic()-begin > stack.Time(q.GateFor) {
			if errors.Is(err, errAgain) {
				err = fmt.Errorf("%w: %w", ErrBusy, err)
			}
			return 0, err
		}
		for {
			ts := unix.Timespec{Nsec: retryEach}
			_ = unix.Nanosleep(&ts, nil)
			if k.settle() {
				break // a late thread keeps its stop until then
			}
			if monotonic()-begin > stack.Time(q.GateFor) {
				return 0, err
			}
		}
	}
}

// once stops all threads, makes the copy if the gate says so, and lets all go.
func (k *injector) once(q *keeperRequest, r *keeperReply) (child, inner int, err error) {
	k.began, k.ended = 0, 0
	_ = setFIFO(0) // where it may: all threads of the target wait for it
	defer setFair()
	defer k.release()
	if err := k.stopAll(q.StopFor); err != nil {
		return 0, 0, err
	}
	if q.Gate != 0 {
		var b [1]byte
		if _, err := k.p.ReadAt(b[:], q.Gate); err != nil {
			return 0, 0, err
		}
		if b[0] != 0 {
			return 0, 0, ErrBusy
		}
	}
	child, inner, err = k.makeChild()
	if err == nil {
		r.Threads = r.Threads[:0]
		for _, h := range k.threads {
			if !h.gone && !h.foreign {
				r.Threads = append(r.Threads, keeperThread{h.tid, append([]uint64(nil), h.regs[:]...)})
			}
		}
	}
	return child, inner, err
}
