package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// The code that runs in a herd's process. The rules of stopper_unsafe.go apply to all of it.
//
// PTRACE_SEIZE waits for a thread of the same process that is in exec (cred_guard_mutex,
// kernel/ptrace.c). That thread waits until all other threads of its process are reaped
// (de_thread, fs/exec.c); traced ones are reaped by their tracer. So SIGCHLD is not masked while
// the herd attaches, and its handler reaps those of its threads that have died. The kernel's wait
// ends for a signal and continues after its handler (ERESTARTNOINTR). An earlier signal is
// delivered at the unmasking, so none is missed.

// herdBlock is the memory that a herd and its Tracer share. Of stopBlock it uses the fields that
// the common functions need.
type herdBlock struct {
	stopBlock
	slots  [maxHerd]slot
	used   int64 // atomic: ns of CPU time since the start
	held   int   // number of slots in slotHeld
	action sigaction
	all    bool // look at all slots one by one,
	at     int  // from this one on
}

// slot is one thread. It belongs to the Tracer in the states slotFree and slotDone, and otherwise
// to the herd.
type slot struct {
	state               uint32 // atomic
	tid, pid, schedstat uintptr
	w                   *Window
	switches            uint64 // the thread's switch count at its last look
	until               int64  // CLOCK_MONOTONIC, ns: after that, the thread is not asked to stop if it has been given a CPU since
	end                 int    // the result; endLate: it was not asked to stop
	errno               syscall.Errno
	over                bool // no sample will follow: only release the thread
}

// States of a slot.
const (
	slotFree = iota
	slotNew  // the thread must be asked to stop
	slotHeld // the thread is attached
	slotDone
)

// alignStack is the alignment and size of a herd's stack. With it, a signal handler finds the
// data at the start of the stack.
const alignStack = stopperStack

func (h *herdBlock) init(parent uintptr) {
	h.spare, h.done, h.parent = NewWindow(1), 1, parent
	h.spare.reset()
	h.spare.raw.before = noCall
	copy(h.name[:], stopperName)
	h.action.handler, h.action.restorer = herdCode()
	h.action.flags = saRestorer
	h.action.mask = ^uint64(0)
}

const saRestorer = 0x04000000

// stack returns the aligned half of mem, and stores the herd's address in it for the signal
// handler.
func (h *herdBlock) stack(mem []byte) []byte {
	at := uintptr(unsafe.Pointer(&mem[0]))
	off := (alignStack - at%alignStack) % alignStack
	mem = mem[off : off+alignStack]
	f := herdDead
	words := (*[2]uintptr)(unsafe.Pointer(&mem[0]))
	words[0], words[1] = uintptr(unsafe.Pointer(h)), **(**uintptr)(unsafe.Pointer(&f))
	return mem
}

// herdCode returns the addresses of a signal handler that calls herdDead, and of the code that it
// returns to.
func herdCode() (handler, restorer uintptr)

// herdEntry returns the address of herdMain.
func herdEntry() uintptr {
	f := herdMain
	return **(**uintptr)(unsafe.Pointer(&f))
}

// herdMain is the main loop of a herd. All signals are masked, except while it attaches.
//
//go:nosplit
//go:norace
func herdMain(b *stopBlock) {
	h := (*herdBlock)(unsafe.Pointer(b)) // its first field
	raw6(syscall.SYS_PRCTL, prSetPDeathSig, uintptr(deathSignal), 0, 0, 0, 0)
	raw6(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&h.name)), 0, 0, 0, 0)
	raw6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), uintptr(unsafe.Pointer(&h.action)), 0, 8, 0, 0)
	orphan := h.orphan()
	until := int64(0)
	for {
		// Dead threads are reaped before the herd attaches, because their signals were consumed.
		asked := false
		for ; ; asked = true {
			h.changes()
			if asked {
				h.halted()
			}
			if asked || !h.ask(orphan || load32(&h.quit) == 1) {
				break
			}
		}
		if asked || h.held == 0 {
			h.count()
		}
		ns := int64(0)
		if h.held > 0 {
			ns = holdEach
		} else if orphan || load32(&h.quit) == 1 {
			return
		}
		if orphan {
			now := h.spare.clock()
			if until == 0 {
				until = now + orphanFor
				raw6(unix.SYS_CLOSE_RANGE, 0, 1<<31-1, 0, 0, 0, 0) // see hold
			}
			if now > until {
				return
			}
		}
		switch h.rest(ns) {
		case uintptr(callSignal), uintptr(syscall.SIGCHLD):
		default: // timeout, or the program has ended
			orphan = orphan || h.orphan()
			h.all, h.at = true, 0
		}
	}
}

// changes handles the changes of state of all threads.
//
//go:noinline
//go:nosplit
//go:norace
func (h *herdBlock) changes() {
	for {
		s, what := h.next()
		if s == nil {
			break
		}
		if !h.seen(s, what) && !h.all { // it would be found again
			h.all, h.at = true, 0
		}
	}
	h.all = false
}

// ask asks the new threads to stop, and reports whether there are any. no: give them back without
// a request.
//
//go:noinline
//go:nosplit
//go:norace
func (h *herdBlock) ask(no bool) (any bool) {
	for i := range h.slots {
		if load32(&h.slots[i].state) == slotNew {
			any = true
			break
		}
	}
	if !any {
		return false
	}
	h.set = 1 << (syscall.SIGCHLD - 1)
	h.mask(1) // SIG_UNBLOCK
	now := h.spare.clock()
	for i := range h.slots {
		s := &h.slots[i]
		if load32(&s.state) != slotNew {
			continue
		}
		if no || now > s.until && !s.stands() {
			s.ends(endLate)
			continue
		}
		h.attach(s)
	}
	h.set = 1 << (syscall.SIGCHLD - 1)
	h.mask(0) // SIG_BLOCK
	for i := range h.slots {
		s := &h.slots[i]
		if load32(&s.state) != slotHeld || s.w.Asked != 0 || s.over {
			continue
		}
		s.w.Asked = stack.Time(s.w.clock())
		// If it fails, the thread is dead or gone, which a later look shows.
		raw6(syscall.SYS_PTRACE, ptraceInterrupt, s.tid, 0, 0, 0, 0)
	}
	return true
}

// Reports whether the thread has been given no CPU since its last look.
//
//go:noinline
//go:nosplit
//go:norace
func (s *slot) stands() bool {
	line := &s.w.raw.line
	n, errno := raw6(syscall.SYS_PREAD64, s.schedstat, uintptr(unsafe.Pointer(line)), uintptr(len(line)), 0, 0, 0)
	if errno != 0 || n > uintptr(len(line)) {
		return false
	}
	i := int(n) - 1 // of the line's end
	v, unit := uint64(0), uint64(1)
	for i--; i >= 0 && line[i] != ' '; i-- {
		v += uint64(line[i]-'0') * unit
		unit *= 10
	}
	return i > 0 && v == s.switches
}

//go:noinline
//go:nosplit
//go:norace
func (h *herdBlock) mask(how uintptr) {
	raw6(syscall.SYS_RT_SIGPROCMASK, how, uintptr(unsafe.Pointer(&h.set)), 0, 8, 0, 0)
}

// ends returns the slot to the Tracer.
//
//go:nosplit
//go:norace
func (s *slot) ends(end int) {
	s.end = end
	store32(&s.state, slotDone)
}

// attach attaches to a thread.
//
//go:noinline
//go:nosplit
//go:norace
func (h *herdBlock) attach(s *slot) {
	w := s.w
	w.raw.lineLen, w.raw.self = 0, h.self
	w.raw.found.attached(s.schedstat, w.clock())
	if _, s.errno = raw6(syscall.SYS_PTRACE, ptraceSeize, s.tid, 0, 0, 0, 0); s.errno != 0 {
		s.ends(endRefused)
		return
	}
	h.held++
	// As in capture, the number is reserved only from now on.
	n, errno := raw6(syscall.SYS_PREAD64, s.schedstat, uintptr(unsafe.Pointer(&w.raw.line)), uintptr(len(w.raw.line)), 0, 0, 0)
	if errno != 0 || n == 0 {
		raw6(syscall.SYS_PTRACE, ptraceInterrupt, s.tid, 0, 0, 0, 0)
		s.end, s.over = endGone, true
	}
	w.raw.lineLen = int(n)
	store32(&s.state, slotHeld)
}

// halted records the time at which the latest requested threads were seen not to have stopped.
//
//go:noinline
//go:nosplit
//go:norace
func (h *herdBlock) halted() {
	now := int64(0)
	for i := range h.slots {
		s := &h.slots[i]
		if load32(&s.state) == slotHeld && s.w.Halted == 0 {
			if now == 0 {
				now = h.spare.clock()
			}
			s.w.Halted = stack.Time(now)
		}
	}
}

// next finds a thread with a possible change of state, and that change; nil: no further one. It
// looks at all threads one by one if all is set.
//
//go:noinline
//go:nosplit
//go:norace
func (h *herdBlock) next() (s *slot, what int) {
	if h.held == 0 {
		return nil, 0
	}
	if !h.all {
		h.info = [16]uint64{}
		_, errno := raw6(syscall.SYS_WAITID, pAll, 0, uintptr(unsafe.Pointer(&h.info)), waitFlags|wNoHang, 0, 0)
		if errno == 0 && int32(h.info[0]) == 0 {
			return nil, 0
		}
		tid := uintptr(uint32(h.info[2])) // si_pid
		for i := range h.slots {
			s := &h.slots[i]
			if errno == 0 && load32(&s.state) == slotHeld && s.tid == tid {
				for k := range 4 { // the words that seen reads
					s.w.raw.info[k] = h.info[k]
				}
				return s, s.w.seen(0)
			}
		}
		// It has another number, or its state is unknown.
		h.all, h.at = true, 0
	}
	for ; h.at < maxHerd; h.at++ {
		if s := &h.slots[h.at]; load32(&s.state) == slotHeld {
			h.at++
			return s, s.w.look(s.tid)
		}
	}
	return nil, 0
}

const pAll = 0 // P_ALL

// seen handles a thread's change of state, and reports whether that was its end.
//
//go:noinline
//go:nosplit
//go:norace
func (h *herdBlock) seen(s *slot, what int) bool {
	h.tid, h.pid = s.tid, s.pid
	switch what {
	case lookNothing:
		if h.attached() {
			return false
		}
	case lookStopped:
		if !s.over {
			s.end = s.w.finish(s.tid)
			if s.end == endDone || s.end == endError {
				return h.lets(s)
			}
		}
	}
	if !s.over {
		s.over, s.end = true, endGone
	}
	h.spare.raw.before = s.w.raw.before
	if !h.step() {
		s.tid = h.tid
		return false
	}
	return h.lets(s)
}

// lets releases the slot of a finished thread.
//
//go:nosplit
//go:norace
func (h *herdBlock) lets(s *slot) bool {
	h.held--
	s.ends(s.end)
	return true
}

// herdDead reaps threads that have died while the herd waits to attach to another one. It runs in
// a signal handler.
//
//go:nosplit
//go:norace
func herdDead(b *stopBlock) {
	h := (*herdBlock)(unsafe.Pointer(b))
	for i := range h.slots {
		s := &h.slots[i]
		if load32(&s.state) != slotHeld {
			continue
		}
		h.tid = s.tid
		if h.bury() {
			h.all, h.at = true, 0
		}
	}
}

// count stores the CPU time that this process has used.
//
//go:nosplit
//go:norace
func (h *herdBlock) count() {
	raw6(syscall.SYS_CLOCK_GETTIME, clockProcess, uintptr(unsafe.Pointer(&h.cpu)), 0, 0, 0, 0)
	h.used = h.cpu[0]*1e9 + h.cpu[1]
}
