package target

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Thread is one thread of a process, with its files of /proc kept open. The files belong to that
// one thread: they return an error when it is gone, even if its number has been reused.
type Thread struct {
	tid   stack.TID
	pid   int
	child bool // of a child of this program: the exit status of its first thread is left to its waiter

	schedstat int
	syscall   int
	stat      int
	late      atomic.Bool // attached and not stopped yet: a Tracer will release it
	tls       uint64      // the thread pointer, if the register block lacks it: read only in the first window
	hasTLS    bool

	// For OnCPU: the excess of switches in over switches out while the thread is on no CPU, and
	// how often in a row it seemed to be on none.
	ahead  int64
	known  bool // ahead was measured
	asked  bool // OnCPU needed it
	slept  bool // the thread was read while it was blocked
	absent int
	plain  bool // see WithoutPrograms

	wakes    wakes    // see found
	file     lastFile // see TimesOut
	switches uint64   // of the last Counters
	want     int      // bytes of stack, of the last stop

	names threadNames

	line     [512]byte // for the files above
	again    [128]byte // schedstat as of readAt, of againLen bytes
	againLen int
	readAt   stack.Time
	blocked  blockedCall // read after that
}

// blockedCall is what Syscall found of a blocked thread. While the counters read before it hold, so does it.
type blockedCall struct {
	call   stack.Call
	pc, sp uint64
	ok     bool
}

// Counters are the scheduler's accounts of a thread.
type Counters struct {
	CPU      int64  // ns on CPUs; updated at ticks and switches, not at each read
	Delay    int64  // ns waiting for a CPU
	Switches uint64 // times it was given a CPU
}

// spareFiles is how many descriptors Thread leaves free for other uses: names, waits, outputs.
const spareFiles = 16

// Thread opens thread tid of the process. It returns ErrGone if there is none, and EMFILE if
// fewer than spareFiles descriptors are left.
func (p *Process) Thread(tid stack.TID) (*Thread, error) {
	t := &Thread{tid: tid, pid: p.pid, child: p.child, schedstat: -1, syscall: -1, stat: -1}
	sub := "task/" + strconv.Itoa(int(tid)) + "/"
	for _, f := range []struct {
		name string
		fd   *int
	}{{"schedstat", &t.schedstat}, {"stat", &t.stat}, {"syscall", &t.syscall}} {
		var err error
		if *f.fd, err = p.openat(sub+f.name, unix.O_RDONLY); err != nil {
			*f.fd = -1
			t.Close()
			if err = gone(err); err == ErrGone {
				return nil, err
			}
			return nil, fmt.Errorf("open %s of thread %d: %w", f.name, tid, err)
		}
	}
	if err := spare(t.syscall); err != nil {
		t.Close()
		return nil, fmt.Errorf("open thread %d: %w", tid, err)
	}
	return t, nil
}

// spare returns EMFILE if fewer than spareFiles descriptors are left beside fd, the last one opened.
func spare(fd int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(fd)+spareFiles >= limit.Cur {
		return unix.EMFILE
	}
	return nil
}

// TID returns the thread's number.
func (t *Thread) TID() stack.TID { return t.tid }

// Late reports whether the thread is still attached because it did not stop in time. Capture
// returns ErrTimeout for it until a Tracer's Reap releases it.
func (t *Thread) Late() bool { return t.late.Load() }

// Close closes the files. It does not release a late thread; the Tracer does.
func (t *Thread) Close() error {
	for _, fd := range []*int{&t.schedstat, &t.syscall, &t.stat} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	return nil
}

// pread reads a small file of /proc again, one that the kernel answers without waiting.
func pread(fd int, b []byte) ([]byte, error) {
	for {
		n, errno := preadNow(fd, b)
		if errno != unix.EINTR {
			return answer(b, n, errno)
		}
	}
}

// preadLocked is pread for a file for which the kernel may have to wait for an exec.
func preadLocked(fd int, b []byte) ([]byte, error) {
	for {
		n, err := unix.Pread(fd, b, 0)
		if errno, _ := err.(unix.Errno); errno != unix.EINTR {
			return answer(b, n, errno)
		}
	}
}

func answer(b []byte, n int, errno unix.Errno) ([]byte, error) {
	switch {
	case errno == unix.ESRCH || errno == 0 && n == 0:
		return nil, ErrGone
	case errno != 0:
		return nil, errno
	}
	return b[:n], nil
}

// Counters reads the scheduler's accounts of the thread: one pread, no allocation. If Switches
// and CPU equal those of an earlier call, the thread has not run since then.
func (t *Thread) Counters(c *Counters) error {
	t.readAt, t.againLen, t.blocked.ok = monotonic(), 0, false
	b, err := pread(t.schedstat, t.line[:])
	if err != nil {
		return err
	}
	t.againLen = copy(t.again[:], b)
	err = parseSchedstat(b, c)
	t.switches = c.Switches
	return err
}

// Syscall reads the call that the thread is blocked in: one pread, no allocation. c.Nr is -1 if
// it is blocked outside a system call (a page fault). For a running thread all other results are
// zero and without meaning. For a dead thread that could no longer be stopped, the result is the
// place of its death while the kernel writes its core dump.
func (t *Thread) Syscall(c *stack.Call) (running bool, pc, sp uint64, err error) {
	b, err := preadLocked(t.syscall, t.line[:])
	if err != nil {
		*c = stack.Call{Nr: -1}
		return false, 0, 0, err
	}
	running, pc, sp, err = parseSyscall(b, c)
	if running && t.late.Load() {
		if at, top, ok := t.dumping(); ok {
			*c = stack.Call{Nr: -1}
			running, pc, sp, err = false, at, top, nil
		}
	}
	t.blocked = blockedCall{*c, pc, sp, err == nil && !running && sp != 0}
	return running, pc, sp, err
}

// absentMax is how often in a row a thread may seem to wait for a CPU before the accounts are
// considered wrong.
const absentMax = 20

// OnCPU reports whether a running thread is on a CPU, as opposed to waiting for one: it has been
// given a CPU once more often than it left one. The kernel's two accounts (sched_info_arrive and
// __schedule in kernel/sched) may differ by a small constant, which changes only in rare cases,
// so the next ReadBlocked measures it. That takes as long as all else of a reading, and most threads of a
// large process are never found running, so it happens only after an OnCPU. In doubt OnCPU returns true,
// except before that: a stop of a thread that waits for a CPU may restart a timeout.
func (t *Thread) OnCPU() (bool, error) {
	ahead, err := t.switchesAhead()
	if err != nil {
		return false, err
	}
	t.asked = true
	if ahead > t.ahead && (t.known || !t.slept) {
		t.absent = 0
		return true, nil
	}
	if t.absent++; t.absent < absentMax {
		return false, nil
	}
	t.absent, t.known, t.slept = 0, false, false
	return true, nil
}

// switchesAhead returns how often the thread was given a CPU minus how often it left one.
func (t *Thread) switchesAhead() (int64, error) {
	name := fmt.Sprintf("/proc/%d/task/%d/status", t.pid, t.tid)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, gone(err)
	}
	var buf [4096]byte
	b, err := preadLocked(fd, buf[:])
	unix.Close(fd)
	if err == nil && len(b) == len(buf) { // of a user with many groups
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return 0, gone(err)
	}
	out, err := parseSwitches(b)
	if err != nil {
		return 0, err
	}
	var c Counters
	if err := t.Counters(&c); err != nil {
		return 0, err
	}
	return int64(c.Switches) - out, nil
}

// State reads the thread's state: one pread. The kernel's "R" means running or waiting for a CPU,
// both StateRunning here; Counters distinguish the two.
func (t *Thread) State() (stack.State, error) {
	b, err := pread(t.stat, t.line[:])
	if err != nil {
		if err == ErrGone {
			return stack.StateDead, err
		}
		return stack.StateUnknown, err
	}
	c, ok := stateLetter(b)
	if !ok {
		return stack.StateUnknown, fmt.Errorf("stat of thread %d: no state", t.tid)
	}
	if name := b[bytes.IndexByte(b, '(')+1 : bytes.LastIndexByte(b, ')')]; !t.names.newest(name) {
		t.names.saw(name, monotonic())
	}
	s := StateOf(c)
	switch {
	case s == stack.StateTraced && t.heldHere():
		return stack.StateUnknown, ErrTimeout
	case (s == stack.StateDisk || s == stack.StateBlocked && t.blocked.call.Nr < 0) && t.frozen():
		return stack.StateStopped, nil
	}
	return s, nil
}

// frozen reports whether the freezer of a control group holds the thread. Its state is then that of a page fault, outside
// a call, or of a wait for a device: uninterruptible with version 1 of control groups, else asleep. In a call, version 2 is
// not seen, as State does not ask for threads that just sleep.
func (t *Thread) frozen() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/wchan", t.pid, t.tid))
	return err == nil && freezes(string(b))
}

// freezes reports whether a kernel function in which a thread sleeps, in a state other than stopped, is one of the freezer:
// __refrigerator of kernel/freezer.c, or do_freezer_trap of kernel/signal.c, which get_signal may contain.
func freezes(function string) bool {
	switch function {
	case "__refrigerator", "do_freezer_trap", "get_signal":
		return true
	}
	return false
}

// heldHere reports whether it is this program that holds the thread: a stop that came too late for its
// tick is not released yet.
func (t *Thread) heldHere() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", t.pid, t.tid))
	if err != nil {
		return false
	}
	st, err := ParseStatus(b)
	return err == nil && st.TracerPid != 0 && ownThread(st.TracerPid)
}

// StateOf converts the kernel's letter (fs/proc/array.c, task_state_array).
func StateOf(letter byte) stack.State {
	switch letter {
	case 'R':
		return stack.StateRunning
	case 'S', 'I', 'P':
		return stack.StateBlocked
	case 'D':
		return stack.StateDisk
	case 'T':
		return stack.StateStopped
	case 't':
		return stack.StateTraced
	case 'Z', 'X':
		return stack.StateDead
	}
	return stack.StateUnknown
}

// freshFor is for how long, in ns, counters are those before a reading: little longer than a reading of them takes. Hardly
// a thread runs in that time. If the call was read after them, too, they serve for callFreshFor: by then the state of the
// thread was read as well.
const freshFor, callFreshFor = 8_000, 20_000

// freshCounters reads the counters unless they were read a moment ago. If they are unchanged, so is the call read after them.
func (t *Thread) freshCounters(c *Counters) error {
	fresh := stack.Time(freshFor)
	if t.blocked.ok {
		fresh = callFreshFor
	}
	if monotonic()-t.readAt < fresh && t.againLen > 0 {
		return parseSchedstat(t.again[:t.againLen], c)
	}
	was, n, blocked := t.again, t.againLen, t.blocked
	if err := t.Counters(c); err != nil {
		return err
	}
	if n > 0 && bytes.Equal(was[:n], t.again[:t.againLen]) {
		t.blocked = blocked
	}
	return nil
}

// ReadBlocked reads a blocked thread without stopping it. The scheduler's counters, read before
// and after, act as a sequence lock: equal counters mean that the thread did not run in between,
// so call, registers and stack are consistent. Counters that were read up to freshFor ago count as read before, and so
// does a call that Syscall read after them while they stay the same.
// If the thread runs or ran, ok is false and w is invalid.
//
// w.Regs then has only PC and SP, or what w.Registers reads, and w.Call the call. Short spans are as in Capture.
func (t *Thread) ReadBlocked(w *Window) (ok bool, err error) {
	w.reset()
	if err := t.freshCounters(&w.Counters); err != nil {
		return false, err
	}
	w.Asked, w.Stopped = t.readAt, monotonic() // between the two readings of the counters
	if !t.blocked.ok {
		if _, _, _, err := t.Syscall(&w.Call); err != nil || !t.blocked.ok {
			w.Call.Nr = -1
			return false, err
		}
	}
	w.Call = t.blocked.call
	w.Regs.PC = t.blocked.pc
	w.Regs.Set(nativeSP, t.blocked.sp)
	nativeRA(&w.Regs, t.blocked.pc)
	w.allRegisters(stack.TID(t.tid))
	if errno := w.readBlocks(uintptr(t.tid), t.blocked.sp); errno != 0 && errno != unix.EFAULT {
		if errno == unix.ESRCH {
			return false, ErrGone
		}
		return false, fmt.Errorf("read memory of thread %d: %w", t.tid, errno)
	}
	if w.More != nil {
		w.moreBlocks(uintptr(t.tid))
	}
	after, err := pread(t.schedstat, t.line[:])
	if err != nil {
		return false, err
	}
	w.Resumed = monotonic()
	if !bytes.Equal(t.again[:t.againLen], after) {
		t.againLen = 0
		return false, nil
	}
	t.slept = true
	if !t.known && t.asked {
		if ahead, err := t.switchesAhead(); err == nil {
			t.ahead, t.known = ahead, true // if it woke since then, OnCPU detects it
		}
	}
	return true, nil
}
