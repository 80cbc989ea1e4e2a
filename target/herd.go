package target

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Of threads that have no CPU, which stop when they get one, nobody waits for. All
// that are found in one round are asked to stop by one process, which copies each when
// it stops: a herd. So a round wakes one process, where a stopper for each thread would be
// woken twice for each: most of what such a stop costs is waking.
//
// It is a stopper in all else (stopper.go), but that it attaches to threads while it
// keeps others. A thread that calls exec keeps everybody from attaching to its process
// until all its other threads are reaped, so one that dies meanwhile is reaped by a
// signal's handler: see herd_unsafe.go.
type herd struct {
	proc  int
	b     *herdBlock
	mem   []byte
	cpu   int64 // ns, of what the Tracer has counted
	fresh int   // threads that it was not told of yet
	held  int   // with these
	alive stack.Time
	of    [maxHerd]*Thread
}

// maxHerd is how many threads it takes.
const maxHerd = 64

// askFor is how old, in ns, a look may be that found a thread running when it is asked to
// stop: one that fell asleep since has not slept for longer. Nor has one that was given no CPU
// since, however old the look is.
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

// theHerd is the one of this Tracer; nil: there is none to be had.
func (tr *Tracer) theHerd() *herd {
	if tr.herd == nil && !tr.noHerd {
		var err error
		tr.herd, err = newHerd()
		tr.noHerd = err != nil
	}
	return tr.herd
}

// herds leaves t to the herd, which is told of it by Ask; false: it has no room.
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

// Ask has the threads asked to stop that Capture has left to others (Window.Later) since
// the last time: their samples come by Arrived. SleepUntil does it, too.
func (tr *Tracer) Ask() {
	if h := tr.herd; h != nil && h.fresh > 0 {
		h.fresh = 0
		_ = unix.Tgkill(h.proc, h.proc, callSignal)
	}
}

// gather takes what has come to the herd.
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
	for _, t := range h.of { // somebody killed it
		if t != nil {
			t.late.Store(false)
		}
	}
	h.b.free(h.mem)
	tr.herd = nil
}

// cameTo has what became of a thread.
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

// close ends it: at once, or as soon as it has let its threads go.
func (h *herd) close() {
	atomic.StoreUint32(&h.b.quit, 1)
	_ = unix.Tgkill(h.proc, h.proc, callSignal)
	if h.held > 0 {
		go h.bury()
		return
	}
	h.bury()
}

// bury waits for the process's end and gives its stack back.
func (h *herd) bury() {
	awaitEnd(h.proc)
	h.b.free(h.mem)
}

// awaitEnd takes the status of a process when it has ended.
func awaitEnd(proc int) {
	for {
		if _, err := unix.Wait4(proc, nil, unix.WALL, nil); err != unix.EINTR {
			return
		}
	}
}

// reaped reports whether a process is gone, and takes its status.
func reaped(proc int) bool {
	pid, err := unix.Wait4(proc, nil, unix.WALL|unix.WNOHANG, nil)
	return pid == proc || err == unix.ECHILD
}

// startStopper starts a process that shares this one's memory and files in main, an
// address of compiled code, with a stack.
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
	// While it waits for a CPU, a thread of the target may be standing. It never
	// runs for long: the spin is bounded, and then it sleeps.
	if setFIFO(pid) != nil {
		b.self = openWaited(fmt.Sprintf("/proc/%d/schedstat", pid))
	}
	return pid, nil
}

// openWaited opens the schedstat of one that makes stops; 0: there is none.
func openWaited(name string) uintptr {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	return uintptr(fd)
}

// free gives back what a stopper had that has ended.
func (b *stopBlock) free(mem []byte) {
	if b.self != 0 {
		unix.Close(int(b.self))
	}
	_ = unix.Munmap(mem)
}
