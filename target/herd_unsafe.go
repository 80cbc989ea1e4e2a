package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// What runs in a herd's process. The rules of stopper_unsafe.go hold for all of it.
//
// PTRACE_SEIZE waits for a thread of the same process that is in exec (cred_guard_mutex,
// kernel/ptrace.c), which waits until all other threads of its process are reaped
// (de_thread, fs/exec.c); those that are traced, by their tracer. So while the herd
// attaches, SIGCHLD is not masked, and its handler reaps those of its threads that have
// died. The kernel's wait ends for a signal and goes on after its handler
// (ERESTARTNOINTR). A signal that came before is delivered when it is unmasked, so none is
// missed.

// herdBlock is what a herd and its Tracer share. Of stopBlock it uses what the calls
// that both make need.
type herdBlock struct {
	stopBlock
	slots  [maxHerd]slot
	used   int64 // atomic: ns of CPU time, of all its life
	held   int   // slots of slotHeld
	action sigaction
	all    bool // all are to be looked at, one by one,
	at     int  // from this one on
}

// slot is one thread. It is the Tracer's while its state is slotFree or slotDone, and
// the herd's else.
type slot struct {
	state               uint32 // atomic
	tid, pid, schedstat uintptr
	w                   *Window
	switches            uint64 // how often it had been given a CPU when it was looked at
	until               int64  // CLOCK_MONOTONIC, ns: after that it is not asked any more if it has been given one since
	end                 int    // how it ended; endLate: it was not asked
	errno               syscall.Errno
	over                bool // there is no sample to come: it is only to be let go of
}

// States of a slot.
const (
	slotFree = iota
	slotNew  // the thread is to be asked
	slotHeld // it is attached
	slotDone
)

// alignStack is what a herd's stack lies at a multiple of, and its size: so a handler
// finds what lies at its beginning.
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

// stack is the aligned half of mem, and tells a handler in it whose it is.
func (h *herdBlock) stack(mem []byte) []byte {
	at := uintptr(unsafe.Pointer(&mem[0]))
	off := (alignStack - at%alignStack) % alignStack
	mem = mem[off : off+alignStack]
	f := herdDead
	words := (*[2]uintptr)(unsafe.Pointer(&mem[0]))
	words[0], words[1] = uintptr(unsafe.Pointer(h)), **(**uintptr)(unsafe.Pointer(&f))
	return mem
}

// herdCode gives the addresses of a signal's handler, which calls herdDead, and of where
// it returns to.
func herdCode() (handler, restorer uintptr)

// herdEntry is the address of herdMain.
func herdEntry() uintptr {
	f := herdMain
	return **(**uintptr)(unsafe.Pointer(&f))
}

// herdMain is the life of a herd. All signals are masked, but where it attaches.
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
		// What has died by now is reaped before the herd attaches: its signal was taken.
		asked := false
		for ; ; asked = true {
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
		default: // the time is over, or the program
			orphan = orphan || h.orphan()
			h.all, h.at = true, 0
		}
	}
}

// ask asks the threads to stop that are new, and reports whether there are any. no: they are
// not to be asked.
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
		// Where it fails, the thread is dead or gone, which is seen later.
		raw6(syscall.SYS_PTRACE, ptraceInterrupt, s.tid, 0, 0, 0, 0)
	}
	return true
}

// stands reports whether the thread has been given no CPU since it was looked at.
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

// ends gives the slot back to the Tracer.
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
	// As in capture: only now is the number held.
	n, errno := raw6(syscall.SYS_PREAD64, s.schedstat, uintptr(unsafe.Pointer(&w.raw.line)), uintptr(len(w.raw.line)), 0, 0, 0)
	if errno != 0 || n == 0 {
		raw6(syscall.SYS_PTRACE, ptraceInterrupt, s.tid, 0, 0, 0, 0)
		s.end, s.over = endGone, true
	}
	w.raw.lineLen = int(n)
	store32(&s.state, slotHeld)
}

// halted notes when those were seen not to have stopped that were asked last.
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

// next finds a thread of which there may be something to see, and what that is; nil: no
// further one. It looks at all of them, one by one, where all is set.
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
				for k := range 4 { // what seen reads
					s.w.raw.info[k] = h.info[k]
				}
				return s, s.w.seen(0)
			}
		}
		// It goes by another number, or it is not known what has become of it.
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

// seen has what was seen of a thread, and reports whether that was the end of it.
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

// lets has a thread go by which there is nothing more to do.
//
//go:nosplit
//go:norace
func (h *herdBlock) lets(s *slot) bool {
	h.held--
	s.ends(s.end)
	return true
}

// herdDead reaps threads that have died, while the herd waits to attach to another one. It
// runs in a signal's handler.
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

// count writes down what CPU time this process has used.
//
//go:nosplit
//go:norace
func (h *herdBlock) count() {
	raw6(syscall.SYS_CLOCK_GETTIME, clockProcess, uintptr(unsafe.Pointer(&h.cpu)), 0, 0, 0, 0)
	h.used = h.cpu[0]*1e9 + h.cpu[1]
}
