package target

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Stops that the keeper distinguishes: signal | event<<8, as wait(2) has them.
const (
	stopSyscall = sigTrap | 0x80                   // PTRACE_O_TRACESYSGOOD
	stopClone   = sigTrap | 3<<8                   // PTRACE_EVENT_CLONE: a clone whose exit signal is not SIGCHLD
	stopEvent   = sigTrap | eventStop<<8           // by PTRACE_INTERRUPT, or of a new thread
	optSysGood  = 1                                // PTRACE_O_TRACESYSGOOD
	optClone    = 1 << 3                           // PTRACE_O_TRACECLONE
	optExitKill = 1 << 20                          // PTRACE_O_EXITKILL
	optSeccomp  = 1 << 21                          // PTRACE_O_SUSPEND_SECCOMP, for CAP_SYS_ADMIN alone
	cloneShared = unix.CLONE_FILES | unix.CLONE_FS // and exit signal 0
	// syncMask are the signals that a thread's own instructions cause. They stay unblocked
	// while the thread works for the keeper: the kernel resets the handler of a blocked one
	// (kernel/signal.c, force_sig_info_to_task).
	syncMask = 1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) | 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGSYS-1)
	// noStack is the stack pointer of the child, which never runs. Should it be let go by
	// an accident, it dies at its next instruction that uses the stack.
	noStack = 16
)

// errAgain says that a snapshot failed for a reason that is over soon.
var errAgain = errors.New("disturbed by a signal or an exit")

// held is a thread that the keeper traces.
type held struct {
	tid     int
	before  callBefore
	regs    [regWords]uint64
	status  int // of its stop, as the constants have it
	stopped bool
	gone    bool
	known   bool // regs are those of the stop
	foreign bool // of another process, which got the number of a thread that ended
	late    bool // settle detaches it when it stops
}

// injector stops all threads of a process and makes one of them execute system calls. It
// belongs to one locked OS thread. Errors leave every thread traced that was; release lets
// all go.
type injector struct {
	p       *Process
	threads []*held
	byTID   map[int]*held
	others  map[int]int // stops of processes that are not of p: the child; -1: ended
	began   stack.Time  // when the first thread was asked to stop
	ended   stack.Time  // when the last one was let go
	gadget  uint64      // a system call instruction of the vDSO; 0: not found
	force   bool        // go on where a seccomp filter may kill the process
}

func newInjector(p *Process) *injector {
	return &injector{p: p, byTID: map[int]*held{}, others: map[int]int{}}
}

// findGadget looks for a system call instruction in the vDSO. Threads that are blocked have
// one of their own.
func (k *injector) findGadget() {
	maps, err := k.p.Maps()
	if err != nil {
		return
	}
	for _, m := range maps {
		if m.Path != "[vdso]" || m.End-m.Start > 1<<20 {
			continue
		}
		b := make([]byte, m.End-m.Start)
		n, _ := k.p.ReadAt(b, m.Start)
		if i := bytes.Index(b[:n], nativeGadget); i >= 0 {
			k.gadget = m.Start + uint64(i)
		}
	}
}

// attach seizes every thread that is not yet seized, and returns the new ones.
func (k *injector) attach() ([]*held, error) {
	tids, err := k.p.Threads(nil)
	if err != nil {
		return nil, err
	}
	var fresh []*held
	for _, t := range tids {
		tid := int(t)
		if h := k.byTID[tid]; h != nil && !h.gone {
			continue
		}
		h := &held{tid: tid, before: noCall}
		nativePrepare(k.p, t, &h.before)
		if errno := seize(tid); errno != 0 {
			if errno == unix.ESRCH {
				continue
			}
			st, status, err := k.p.status("task/" + strconv.Itoa(tid) + "/")
			switch {
			case err != nil, st.State == 'Z', st.State == 'X':
				continue // it has ended
			case status.TracerPid != 0:
				return fresh, ErrTraced
			case errno == unix.EPERM:
				return fresh, ErrDenied
			}
			return fresh, fmt.Errorf("attach to thread %d: %w", tid, errno)
		}
		k.threads = append(k.threads, h)
		k.byTID[tid] = h
		if k.isForeign(h) {
			continue
		}
		fresh = append(fresh, h)
	}
	return fresh, nil
}

// isForeign reports whether an attached thread is not one of the process. From the attaching
// on its number is held, so the answer stays. A foreign one is asked to stop, which is
// the only way to let it go: see release and settle.
func (k *injector) isForeign(h *held) bool {
	var st unix.Stat_t
	err := unix.Fstatat(k.p.task, strconv.Itoa(h.tid), &st, unix.AT_SYMLINK_NOFOLLOW)
	if h.foreign = err != nil; h.foreign {
		traceCall(ptraceInterrupt, uintptr(h.tid), 0, 0)
	}
	return h.foreign
}

// read reads the registers of the stopped thread.
func (h *held) read() unix.Errno {
	errno := getBlock(h.tid, &h.regs)
	h.known = errno == 0
	return errno
}

// stopAll stops all threads within limit ns. ErrTimeout: one of them does not stop.
func (k *injector) stopAll(limit int64) error {
	deadline := monotonic() + stack.Time(limit)
	// A listing during which a thread ends may lack another one, hence two.
	for clean := 0; clean < 2; {
		fresh, err := k.attach()
		if err != nil {
			return err
		}
		if len(fresh) == 0 {
			clean++
			continue
		}
		clean = 0
		if k.began == 0 {
			k.began = monotonic()
		}
		for _, h := range fresh {
			if traceCall(ptraceInterrupt, uintptr(h.tid), 0, 0) == unix.ESRCH {
				k.drain() // it ended, or exec has given it another number
			}
		}
		for _, h := range fresh {
			if !k.await(h, deadline) {
				return ErrTimeout
			}
		}
	}
	live := 0
	for _, h := range k.threads {
		if h.gone || h.foreign {
			continue
		}
		if errno := h.read(); errno == unix.ESRCH {
			h.gone = true
			continue
		} else if errno != 0 {
			return fmt.Errorf("read registers of thread %d: %w", h.tid, errno)
		}
		live++
		if h.status>>8 == eventStop && h.status&0x7f != sigTrap {
			return ErrGroupStop
		}
	}
	if live == 0 {
		return ErrGone
	}
	return nil
}

// Waiting: a thread that has not stopped after spinFor ns needs a CPU, perhaps this one.
const (
	keeperSpin  = 50_000
	keeperSleep = 20_000
)

// await waits until the thread has stopped or ended; false: not by deadline.
func (k *injector) await(h *held, deadline stack.Time) bool {
	begin := monotonic()
	for {
		k.drain()
		if h.stopped || h.gone {
			return true
		}
		now := monotonic()
		if now >= deadline {
			return false
		}
		if now-begin > keeperSpin {
			ts := unix.Timespec{Nsec: keeperSleep}
			_ = unix.Nanosleep(&ts, nil)
			if now-begin > 50*keeperSpin && !tracee(h.tid) {
				k.drain()
				h.gone = !h.stopped // exec moved it, or it was reaped elsewhere
				return true
			}
		}
	}
}

// tracee reports whether the thread is still traced by this OS thread. It takes nothing.
func tracee(tid int) bool {
	err := unix.Waitid(unix.P_PID, tid, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	return err != unix.ECHILD
}

// drain takes all reports that there are.
func (k *injector) drain() {
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || tid <= 0 {
			return
		}
		status := int(uint32(ws) >> 8)
		h := k.byTID[tid]
		switch {
		case h == nil && ws.Stopped():
			k.others[tid] = status
		case h == nil:
			k.others[tid] = -1
		case ws.Stopped():
			h.stopped, h.status = true, status
		default:
			h.stopped, h.gone = false, true
		}
	}
}

// release lets all threads go on. Those that have not stopped yet are let go by settle.
func (k *injector) release() {
	for _, h := range k.threads {
		switch {
		case h.gone:
		case h.stopped:
			k.detach(h)
		default:
			// One that was attached, and not yet asked to stop, cannot be let go otherwise.
			traceCall(ptraceInterrupt, uintptr(h.tid), 0, 0)
			h.late = true
		}
	}
	k.ended = monotonic()
	k.threads = slices.DeleteFunc(k.threads, func(h *held) bool {
		if !h.late {
			delete(k.byTID, h.tid)
		}
		return !h.late
	})
}

// detach lets one stopped thread go, its interrupted call restarted and its signal passed
// on: see Window.restore and Window.release.
func (k *injector) detach(h *held) {
	sig, event := h.status&0x7f, h.status>>8
	group := event == eventStop && sig != sigTrap
	stops := event == 0 && (sig == sigStop || sig == sigTstp || sig == sigTtin || sig == sigTtou)
	if !group && !stops && (h.known || h.read() == 0) {
		regs := h.regs
		if nativePutBack(&regs, &h.before); regs != h.regs {
			setBlock(h.tid, &regs)
		}
	}
	pass := uintptr(0)
	if event == 0 {
		pass = uintptr(sig)
	}
	traceCall(ptraceDetach, uintptr(h.tid), 0, pass)
	h.stopped = false
}

// settle lets go the threads that were late, and reports whether none is left.
func (k *injector) settle() bool {
	k.drain()
	k.threads = slices.DeleteFunc(k.threads, func(h *held) bool {
		switch {
		case h.gone:
		case !h.stopped && tracee(h.tid):
			return false
		case h.stopped:
			k.detach(h)
		}
		delete(k.byTID, h.tid)
		return true
	})
	return len(k.threads) == 0
}

// suit rates a stopped thread, and returns the instruction to execute the call at.
func (k *injector) suit(h *held) (suit int, gadget uint64) {
	if h.gone || h.foreign || !h.stopped || h.status != stopEvent {
		return suitNone, 0
	}
	c, own, blocked := nativeBlocked(&h.regs, &h.before)
	if blocked {
		b := make([]byte, len(nativeGadget))
		if n, _ := k.p.ReadAt(b, own); n != len(b) || !bytes.Equal(b, nativeGadget) {
			return suitNone, 0
		}
		return nativeSuit(&c), own
	}
	if k.gadget == 0 || nativeCut(&h.regs) {
		return suitNone, 0
	}
	// A detour through other code would keep the kernel from restarting an rseq section that
	// the thread is in (kernel/rseq.c).
	area, errno := rseqArea(h.tid)
	if errno != 0 {
		return suitNone, 0
	}
	if area != 0 {
		if inside, err := k.inSequence(area, &h.regs); inside || err != nil {
			return suitNone, 0
		}
	}
	return suitRuns, k.gadget
}

// inSequence reports whether the thread is in a restartable sequence, by its struct rseq and
// the struct rseq_cs that this refers to (linux/rseq.h).
func (k *injector) inSequence(area uint64, regs *[regWords]uint64) (bool, error) {
	var b [24]byte
	if _, err := k.p.ReadAt(b[:8], area+8); err != nil {
		return false, err
	}
	at := binary.NativeEndian.Uint64(b[:])
	if at == 0 {
		return false, nil
	}
	if _, err := k.p.ReadAt(b[:], at); err != nil {
		return false, err
	}
	var r stack.Regs
	nativeRegs(regs, &r)
	start, length := binary.NativeEndian.Uint64(b[8:]), binary.NativeEndian.Uint64(b[16:])
	return r.PC-start < length, nil
}

// best returns the stopped thread that is suited best, nil if none is.
func (k *injector) best() (best *held, gadget uint64) {
	most := suitNone
	for _, h := range k.threads {
		if s, at := k.suit(h); s > most {
			most, best, gadget = s, h, at
			if s == suitFutex {
				break
			}
		}
	}
	return best, gadget
}

// Filtered reports whether a seccomp filter restricts the calls of the process's first thread.
func (p *Process) Filtered() bool { return newInjector(p).seccomp(p.Directory()) }

// seccomp reports whether a filter restricts the thread's calls.
func (k *injector) seccomp(tid int) bool {
	b, err := k.p.read("task/"+strconv.Itoa(tid)+"/status", maxStatus)
	if err != nil {
		return true // unknown: as if it were
	}
	return restricted(b)
}

// restricted reports whether a status file says that a seccomp filter restricts the thread's calls.
func restricted(status []byte) bool {
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "Seccomp:"); ok {
			return strings.TrimSpace(v) != "0"
		}
	}
	return false // a kernel without seccomp
}

// call makes a stopped thread execute one system call and returns the result and, of a
// clone, the new process's number as the keeper sees it (0: there is none). Afterwards
// the thread is stopped as it was before. errAgain: a signal came first, and the thread has
// it still. ErrSeccomp: a filter may kill the process, so nothing was done.
func (k *injector) call(h *held, gadget, nr uint64, args [6]uint64) (result int64, child int, err error) {
	tid := uintptr(h.tid)
	options := uintptr(optSysGood | optClone)
	filtered := k.seccomp(h.tid)
	if filtered {
		if traceCall(ptraceSetOptions, tid, 0, options|optSeccomp) == 0 {
			options |= optSeccomp
		} else if !k.force {
			return 0, 0, ErrSeccomp
		}
	}
	if errno := traceCall(ptraceSetOptions, tid, 0, options); errno != 0 {
		return 0, 0, fmt.Errorf("set options of thread %d: %w", h.tid, errno)
	}
	mask, errno := getBlocked(h.tid)
	if errno == 0 {
		errno = setBlocked(h.tid, mask|^uint64(syncMask))
	}
	if errno != 0 {
		return 0, 0, fmt.Errorf("block signals of thread %d: %w", h.tid, errno)
	}
	back := h.regs // from here on every way out restores them
	nativePutBack(&back, &h.before)
	regs := h.regs
	nativeInject(&regs, gadget, nr, &args)
	if errno := setBlock(h.tid, &regs); errno != 0 {
		setBlock(h.tid, &back)
		setBlocked(h.tid, mask)
		return 0, 0, fmt.Errorf("set registers of thread %d: %w", h.tid, errno)
	}
	trapped := false
	for stops := 0; ; {
		k.resume(h, ptraceSyscall)
		if h.gone {
			return 0, child, ErrGone
		}
		switch h.status {
		case stopSyscall:
			stops++
		case stopClone:
			if msg, errno := eventMessage(h.tid); errno == 0 {
				child = int(msg)
			}
		case stopEvent:
		default:
			if h.status>>8 != 0 {
				continue // an event that is not of interest here
			}
			// A signal came before the call. Its stop is inside of the kernel's signal
			// handling, where the registers can be restored. One that the detour has caused
			// itself is not the target's.
			setBlock(h.tid, &back)
			setBlocked(h.tid, mask)
			if k.caused(h) {
				sig := h.status
				h.status = stopEvent // detach passes nothing on
				return 0, child, fmt.Errorf("make a call in thread %d: signal %d at %#x", h.tid, sig, gadget)
			}
			return 0, child, errAgain
		}
		if stops == 2 {
			break
		}
	}
	errno = getBlock(h.tid, &regs)
	result = nativeReturned(&regs)
	// A filter that traps puts the call's number back there, and sends SIGSYS. So may wait4 do, of a process with that
	// number.
	trapped = filtered && child == 0 && result == int64(nr) && options&optSeccomp == 0
	// At the end of a call the kernel looks at the result no more: a restart code, put back
	// there, would be seen by the program. In an event stop it does.
	traceCall(ptraceInterrupt, tid, 0, 0)
	k.resume(h, ptraceCont)
	if h.gone {
		return 0, child, ErrGone
	}
	e1, e2 := setBlock(h.tid, &back), setBlocked(h.tid, mask)
	if trapped {
		k.swallow(h)
	}
	switch {
	case h.gone:
		return 0, child, ErrGone
	case trapped:
		return 0, 0, fmt.Errorf("make a call in thread %d: %w: it trapped this one", h.tid, ErrSeccomp)
	}
	for _, e := range []unix.Errno{errno, e1, e2} {
		if e != 0 && e != unix.ESRCH { // ESRCH: it was killed
			return result, child, fmt.Errorf("restore thread %d: %w", h.tid, e)
		}
	}
	return result, child, nil
}

// caused reports whether the signal at which the thread has stopped came from an
// instruction of its own.
func (k *injector) caused(h *held) bool {
	return 1<<(h.status&0x7f-1)&uint64(syncMask) != 0 && signalCode(h.tid) > 0
}

// swallow takes the SIGSYS away that a filter has sent for the injected call.
func (k *injector) swallow(h *held) {
	h.stopped = false
	traceCall(ptraceCont, uintptr(h.tid), 0, 0)
	const limit = 50_000_000
	if !k.await(h, monotonic()+limit) {
		traceCall(ptraceInterrupt, uintptr(h.tid), 0, 0)
		k.await(h, monotonic()+limit)
	}
	if h.gone || !h.stopped {
		return
	}
	if h.status == int(unix.SIGSYS) {
		h.status = stopEvent
	}
	getBlock(h.tid, &h.regs)
}

// resume lets the thread go on to its next stop. It waits without a limit: a thread in the
// middle of an injected call cannot be left.
func (k *injector) resume(h *held, request uintptr) {
	h.stopped = false
	if errno := traceCall(request, uintptr(h.tid), 0, 0); errno != 0 {
		k.drain()
		if !h.stopped && !tracee(h.tid) {
			h.gone = true
			return
		}
	}
	for !k.await(h, monotonic()+1e9) {
		continue
	}
}
