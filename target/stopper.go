package target

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Stopper: a stop may have interrupted a system call, and the target must not continue until the
// tracer has resumed that call. If the tracer dies in between, the target does continue: the
// kernel releases the threads of a dead tracer at once. So stops are made by a process that does
// not die with this program: a stopper. It shares this program's memory and open files (clone
// with CLONE_VM and CLONE_FILES), but signals for this program do not reach it: neither a kill -9
// nor a Ctrl-Z. It completes the current stop, releases the thread and exits.
//
// It runs without the Go runtime: a sequence of raw system calls on its own stack, with all
// signals masked. So a garbage collection in this program cannot prolong a stop either.
//
// A stopper keeps a thread that does not stop in time, and releases it when it stops. Another
// stopper takes over its work. A stopper may wait for an exec, which waits for a kept thread to
// be reaped; as that thread has its own stopper, which is awake, the wait ends.
type stopper struct {
	proc   int
	b      *stopBlock
	mem    []byte       // its stack
	w      *Window      // the window that it writes to
	thread *Thread      // the thread that it keeps
	kept   *Window      // the window for that thread's sample
	spans  []stack.Span // w's own: the caller may write to its spans before a late sample arrives
	cpu    int64        // ns already counted by the Tracer
	asked  bool         // no caller waits for its current command
	since  stack.Time   // time at which its thread was left to it
}

const (
	stopperStack = 64 << 10
	// maxStoppers bounds how many threads that do not stop are kept at a time; at this number no
	// further thread is stopped.
	maxStoppers = 32
	// maxSpares is how many idle stoppers are kept.
	maxSpares   = 16
	stopperName = "sliver-stopper" // as ps shows it
)

// newStopper starts a stopper. It lives as long as the calling OS thread.
func newStopper() (*stopper, error) {
	mem, err := unix.Mmap(-1, 0, stopperStack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory for a stopper: %w", err)
	}
	s := &stopper{mem: mem, w: &Window{}, b: &stopBlock{spare: NewWindow(1), done: 1, parent: uintptr(os.Getpid())}}
	s.b.spare.reset()
	copy(s.b.name[:], stopperName)
	if s.proc, err = startStopper(mem, stopperEntry(), s.b); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return s, nil
}

// call makes the stopper execute a command.
func (s *stopper) call(cmd uint32) {
	atomic.StoreUint32(&s.b.done, 0)
	atomic.StoreUint32(&s.b.cmd, cmd)
	s.wake()
}

func (s *stopper) wake() { _ = unix.Tgkill(s.proc, s.proc, callSignal) }

// awaitEach is how often, in ns, to check that the stopper still lives.
const awaitEach = 200_000_000

// begin makes the stopper take one sample.
func (s *stopper) begin(t *Thread, w *Window) {
	b := s.b
	b.tid, b.pid, b.schedstat, b.syscall, b.w = uintptr(t.tid), uintptr(t.pid), uintptr(t.schedstat), uintptr(t.syscall), w
	b.check = w.Check
	b.spare.raw.before = noCall
	s.call(stopCapture)
}

// capture makes the stopper take one sample, after a spin of at most spin ns; ok is false if it
// was killed.
func (s *stopper) capture(t *Thread, w *Window, spin int64) (end int, ok bool) {
	b := s.b
	*s.w = *w
	s.spans = append(s.spans[:0], w.Spans...)
	s.w.Spans, s.w.SpinFor = s.spans, spin
	s.begin(t, s.w)
	for !b.await(awaitEach) {
		if s.ended() {
			return endError, false
		}
	}
	if b.end != endLate {
		spin = w.SpinFor
		*w = *s.w
		w.SpinFor = spin
	}
	return b.end, true
}

// keeps reports whether it still has a thread that did not stop.
func (s *stopper) keeps() bool { return atomic.LoadUint32(&s.b.late) == 1 }

// busy reports whether it keeps a thread, or is not far enough to know. It sets late before it
// marks a command as done.
func (s *stopper) busy() bool { return atomic.LoadUint32(&s.b.done) == 0 || s.keeps() }

// ended reports whether the process is gone, and takes its status.
func (s *stopper) ended() bool { return reaped(s.proc) }

// close ends the stopper at once, or as soon as it has released its thread.
func (s *stopper) close() {
	busy := s.busy()
	atomic.StoreUint32(&s.b.quit, 1)
	s.wake()
	if busy {
		go s.bury() // the OS thread may end before
		return
	}
	s.bury()
}

// bury waits for the process's end and frees its stack.
func (s *stopper) bury() {
	awaitEnd(s.proc)
	s.b.free(s.mem)
}

// stopper returns an idle stopper; nil: none is available.
func (tr *Tracer) stopper() *stopper {
	if n := len(tr.spares); tr.resting == nil && n > 0 {
		tr.resting, tr.spares = tr.spares[n-1], tr.spares[:n-1]
	}
	if tr.resting == nil && !tr.alone && len(tr.keeping) < maxStoppers {
		var err error
		if tr.resting, err = newStopper(); err != nil {
			tr.resting, tr.alone = nil, true
		}
	}
	return tr.resting
}

// captureBy is Capture by a stopper. If ok is false, the caller must make the stop itself.
func (tr *Tracer) captureBy(s *stopper, t *Thread, w *Window) (err error, ok bool) {
	w.raw.wantTLS, w.raw.gotTLS = !t.hasTLS, false
	for try := 1; ; try++ {
		end, lives := s.capture(t, w, tr.spins.next(w.SpinFor))
		if !lives {
			tr.lost(s)
			return ErrTimeout, true
		}
		tr.ran(s)
		if end == endDone || end == endLate {
			tr.spins.note(int64(w.Stopped-w.Asked), end == endDone)
		}
		if s.keeps() || end == endLate { // it may have stopped since then
			if end == endLate {
				w.buf = tr.withRoom(len(w.buf)).buf // the previous one will be written to
			}
			tr.parted(s, t, s.w)
		}
		switch end {
		case endRefused:
			if s.b.errno == unix.EPERM && t.child {
				// The Yama module may allow only parents to trace. That holds for every thread of
				// the child.
				tr.alone = true
				tr.resting.close()
				tr.resting = nil
				return nil, false
			}
			if err := t.refused(s.b.errno); err != ErrDenied || try == seizeTries {
				return err, true
			}
			continue
		case endAsleep:
			return w.asleep(), true
		case endDone:
			if err := parseSchedstat(w.raw.line[:w.raw.lineLen], &w.Counters); err != nil {
				return err, true
			}
			tr.done(t, w)
			tr.proved = true
			return nil, true
		}
		return captureError(t, w, end), true
	}
}

// captureLater is Capture by a stopper that the Tracer does not wait for. The stopper looks once
// and then waits for the thread as for any late one.
func (tr *Tracer) captureLater(s *stopper, t *Thread, w *Window) {
	x := tr.another(t, w)
	x.Deadline, x.SpinFor, x.Check = 1, 1, false
	x.raw.wantTLS, x.raw.gotTLS = !t.hasTLS, false
	s.asked = true
	s.begin(t, x)
	tr.parted(s, t, x)
}

// came processes the result for the thread that s kept.
func (tr *Tracer) came(s *stopper) {
	t, b := s.thread, s.b
	t.late.Store(false)
	if s.asked {
		tr.ran(s)
	}
	shown := false
	switch {
	case b.arrived || s.asked && b.end == endDone:
		shown = tr.arrive(s)
	case s.asked && b.end == endRefused:
		tr.arrived = append(tr.arrived, Arrival{Thread: t, Err: t.refused(b.errno)})
	case s.asked && b.end != endLate:
		tr.arrived = append(tr.arrived, Arrival{Thread: t, Err: captureError(t, s.kept, b.end)})
	}
	if !shown && s.kept != s.w {
		tr.used = append(tr.used, s.kept)
	}
	s.thread, s.kept, s.asked, b.arrived = nil, nil, false, false
}

// recall takes back the stoppers whose threads have stopped.
func (tr *Tracer) recall() {
	tr.gather()
	for i := 0; i < len(tr.keeping); {
		s := tr.keeping[i]
		busy := s.busy()
		if busy && (monotonic()-s.since < awaitEach || !s.ended()) {
			i++
			continue
		}
		last := len(tr.keeping) - 1
		tr.keeping[i], tr.keeping[last] = tr.keeping[last], nil
		tr.keeping = tr.keeping[:last]
		if busy { // it was killed
			s.thread.late.Store(false)
			tr.lost(s)
			continue
		}
		tr.came(s)
		switch {
		case tr.resting == nil:
			tr.resting = s
		case len(tr.spares) < maxSpares:
			tr.spares = append(tr.spares, s)
		default:
			s.close()
		}
	}
}
