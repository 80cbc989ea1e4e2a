package target

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Herd: threads without a CPU stop when they get one, and the group does not wait for them. One
// process asks all such threads of a round to stop and copies each when it stops. So a round
// wakes one process; one stopper per thread would be woken twice per thread, and waking is most
// of the cost of such a stop.
//
// Otherwise it is a stopper (stopper.go), except that it attaches to threads while it keeps
// others. A thread that calls exec blocks attaching to its process until all its other threads
// are reaped, so a kept thread that dies during that time is reaped by a signal handler: see
// herd_unsafe.go.
type herd struct {
	proc  int
	b     *herdBlock
	mem   []byte
	cpu   int64 // ns already counted by the Tracer
	fresh int   // threads not announced to it yet
	held  int   // threads that it has, including these
	alive stack.Time
	of    [maxHerd]*Thread
}

// maxHerd is the highest number of threads in a herd.
const maxHerd = 64

// askFor is the maximum age, in ns, of the look that found a thread running when it is asked to
// stop: a thread that fell asleep since has not slept for longer. A thread that was given no CPU
// since then has not slept either, regardless of the age.
const askFor = 5_000_000

func newHerd() (*herd, error) {
	mem, err := unix.Mmap(-1, 0, 2*stopperStack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory for a stopper: %w", err)
	}
	h := &herd{mem: mem, b: &herdBlock{}}
	h.b.init(uintptr(os.Getpid()))
	if h.proc, err = startStopper(h.b.stack(mem), herdEntry(), &h.b.stopBlock); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	h.alive = monotonic()
	return h, nil
}

// theHerd returns the Tracer's herd; nil: none can be started.
func (tr *Tracer) theHerd() *herd {
	if tr.herd == nil && !tr.noHerd {
		var err error
		tr.herd, err = newHerd()
		tr.noHerd = err != nil
	}
	return tr.herd
}

// herds leaves t to the herd, which Ask notifies. It returns false if the herd has no room.
func (tr *Tracer) herds(t *Thread, w *Window) bool {
	h := tr.theHerd()
	if h == nil || h.held == maxHerd || t.tid == stack.TID(t.pid) { // its number may become another thread's
		return false
	}
	i := 0
	for h.of[i] != nil {
		i++
	}
	x := tr.another(t, w)
	x.Deadline, x.SpinFor = 1, 1
	x.raw.wantTLS, x.raw.gotTLS = !t.hasTLS, false
	h.of[i] = t
	t.late.Store(true)
	s := &h.b.slots[i]
	*s = slot{tid: uintptr(t.tid), pid: uintptr(t.pid), schedstat: uintptr(t.schedstat), w: x, switches: t.switches, until: int64(monotonic()) + askFor}
	if h.held == 0 {
		h.alive = monotonic()
	}
	h.held++
	h.fresh++
	atomic.StoreUint32(&s.state, slotNew)
	return true
}

// Ask requests the stops that Capture has deferred (Window.Later) since the last call; their
// samples come by Arrived. SleepUntil calls it too.
func (tr *Tracer) Ask() {
	if h := tr.herd; h != nil && h.fresh > 0 {
		h.fresh = 0
		_ = unix.Tgkill(h.proc, h.proc, callSignal)
	}
}

// gather takes the herd's results.
func (tr *Tracer) gather() {
	h := tr.herd
	if h == nil || h.held == 0 {
		return
	}
	used := atomic.LoadInt64(&h.b.used)
	tr.cpu.Add(used - h.cpu)
	h.cpu = used
	came := false
	for i, t := range h.of {
		if t == nil || atomic.LoadUint32(&h.b.slots[i].state) != slotDone {
			continue
		}
		h.of[i], came = nil, true
		h.held--
		t.late.Store(false)
		tr.cameTo(t, &h.b.slots[i])
	}
	now := monotonic()
	if came {
		h.alive = now
	}
	if h.held == 0 || now-h.alive < awaitEach {
		return
	}
	h.alive = now
	if !reaped(h.proc) {
		return
	}
	for _, t := range h.of { // it was killed
		if t != nil {
			t.late.Store(false)
		}
	}
	h.b.free(h.mem)
	tr.herd = nil
}

// cameTo processes the result for a thread.
func (tr *Tracer) cameTo(t *Thread, s *slot) {
	w := s.w
	a := Arrival{Thread: t}
	switch s.end {
	case endDone:
		if a.Err = parseSchedstat(w.raw.line[:w.raw.lineLen], &w.Counters); a.Err == nil {
			tr.done(t, w)
			a.Window = w
		}
	case endRefused:
		a.Err = t.refused(s.errno)
	case endLate:
		a.Err = ErrStale
	default:
		a.Err = captureError(t, w, s.end)
	}
	if a.Window == nil {
		tr.used = append(tr.used, w)
	}
	tr.arrived = append(tr.arrived, a)
}

// close ends the herd at once, or as soon as it has released its threads.
func (h *herd) close() {
	atomic.StoreUint32(&h.b.quit, 1)
	_ = unix.Tgkill(h.proc, h.proc, callSignal)
	if h.held > 0 {
		go h.bury()
		return
	}
	h.bury()
}

// bury waits for the process's end and frees its stack.
func (h *herd) bury() {
	awaitEnd(h.proc)
	h.b.free(h.mem)
}

// stoppers are the processes of startStopper that may not have ended.
var stoppers sync.Map // of int, to nothing

// SharesFiles reports whether a process is one of the stoppers, of which each has all descriptors of this program.
func SharesFiles(pid int) bool {
	_, ok := stoppers.Load(pid)
	return ok
}

// awaitEnd waits until a process has ended and takes its status.
func awaitEnd(proc int) {
	stoppers.Delete(proc)
	for {
		if _, err := unix.Wait4(proc, nil, unix.WALL, nil); err != unix.EINTR {
			return
		}
	}
}

// reaped reports whether a process is gone, and takes its status.
func reaped(proc int) bool {
	pid, err := unix.Wait4(proc, nil, unix.WALL|unix.WNOHANG, nil)
	gone := pid == proc || err == unix.ECHILD
	if gone {
		stoppers.Delete(proc)
	}
	return gone
}

// startStopper starts a process that shares this one's memory and files, at main, an address of
// compiled code, with the given stack.
func startStopper(stack []byte, main uintptr, b *stopBlock) (int, error) {
	top, tls := stackTop(stack)
	old, err := setMask(^uint64(0))
	pid := 0
	if err == nil {
		proc := cloneStopper(unix.CLONE_VM|unix.CLONE_FILES|unix.CLONE_SETTLS, top, tls, main, b)
		_, err = setMask(old)
		if pid = int(proc); pid < 0 {
			err = syscall.Errno(-pid)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("start a stopper: %w", err)
	}
	stoppers.Store(pid, nil)
	// While it waits for a CPU, a thread of the target may be stopped. It never runs for long,
	// because its spin is bounded and a sleep follows.
	if setFIFO(pid) != nil {
		b.self = openWaited(fmt.Sprintf("/proc/%d/schedstat", pid))
	}
	return pid, nil
}

// openWaited opens the schedstat of a process or thread that makes stops; 0: it cannot.
func openWaited(name string) uintptr {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	return uintptr(fd)
}

// free frees the resources of an ended stopper.
func (b *stopBlock) free(mem []byte) {
	if b.self != 0 {
		unix.Close(int(b.self))
	}
	_ = unix.Munmap(mem)
}
