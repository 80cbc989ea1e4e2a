package lock

// Operations and flags of futex(2) (kernel: include/uapi/linux/futex.h,
// unchanged from 2.6.31 but for LOCK_PI2, 5.14).
const (
	opWait          = 0
	opLockPI        = 6
	opWaitBitset    = 9
	opWaitRequeuePI = 11
	opLockPI2       = 13
	opMask          = 127
	flagPrivate     = 128
	flagRealtime    = 256

	wordWaiters   = 0x80000000
	wordOwnerDied = 0x40000000
	wordTID       = 0x3fffffff

	// futex_waitv and futex_wait (kernel: same file, 5.16 and 6.7).
	flag2Private = 128
)

// maxTID is above every TID (kernel: PID_MAX_LIMIT, 4 Mi).
const maxTID = 1 << 22

// Clock is the clock of a timeout.
type Clock uint8

// Clocks. Relative means that the timeout is a duration.
const (
	Relative Clock = iota
	Realtime
	Monotonic
)

// Futex holds the decoded arguments of a futex call.
type Futex struct {
	Word    uint64 // address of the word
	Op      int    // without flags; -1: futex_waitv, futex_wait
	Val     uint32 // expected value of the word when the thread went to sleep (not for PI)
	Private bool   // used by this process only
	Timeout uint64 // address of a struct timespec; 0: none
	Clock   Clock  // of that timeout
	Words   int    // words waited for: 1, more for futex_waitv
}

// PI reports whether the kernel passes the lock to the next owner and keeps the owner's
// TID in the word.
func (f *Futex) PI() bool { return f.Op == opLockPI || f.Op == opLockPI2 }

// Wait reports whether the call sleeps on the word. Other operations wake threads and
// return at once.
func (f *Futex) Wait() bool {
	switch f.Op {
	case -1, opWait, opWaitBitset, opWaitRequeuePI, opLockPI, opLockPI2:
		return true
	}
	return false
}

// ParseFutex decodes the arguments of futex(2).
func ParseFutex(args *[6]uint64) Futex {
	op := int(uint32(args[1]))
	f := Futex{Word: args[0], Op: op & opMask, Val: uint32(args[2]), Private: op&flagPrivate != 0, Words: 1}
	switch f.Op {
	case opWait:
		f.Timeout = args[3] // a duration for every clock (kernel: kernel/futex/syscalls.c, futex_init_timeout)
	case opLockPI:
		f.Timeout, f.Clock = args[3], Realtime
	case opWaitBitset, opWaitRequeuePI, opLockPI2:
		f.Timeout, f.Clock = args[3], Monotonic
		if op&flagRealtime != 0 {
			f.Clock = Realtime
		}
	}
	return f
}

// ParseRestarted is ParseFutex for registers that may hold the arguments of a futex(2)
// that the kernel continues as restart_syscall: a wait with a timeout, which is not
// checked here. ok is false if they do not.
func ParseRestarted(args *[6]uint64) (f Futex, ok bool) {
	f = ParseFutex(args)
	return f, args[1]&^(opMask|flagPrivate|flagRealtime) == 0 && (f.Op == opWait || f.Op == opWaitBitset)
}

// ParseFutex2 decodes the arguments of futex_wait(2): word, value, mask, flags,
// timeout, clock.
func ParseFutex2(args *[6]uint64) Futex {
	return Futex{Word: args[0], Op: -1, Val: uint32(args[1]), Private: args[3]&flag2Private != 0, Timeout: args[4],
		Clock: clockOf(args[5]), Words: 1}
}

// waitvSize is the size of struct futex_waitv: u64 value, u64 address, u32 flags, u32 0.
const (
	waitvSize = 24
	maxWaitv  = 128 // FUTEX_WAITV_MAX
)

// ParseFutexWaitv decodes the arguments of futex_waitv(2) (waiters, count, flags,
// timeout, clock). The result is the first futex of the list.
func ParseFutexWaitv(mem Memory, args *[6]uint64) (Futex, error) {
	f := Futex{Op: -1, Timeout: args[3], Clock: clockOf(args[4]), Words: int(min(args[1], maxWaitv))}
	var b [waitvSize]byte
	m := memory{m: mem}
	if !m.read(b[:], args[0]) {
		return f, m.err
	}
	f.Val, f.Word, f.Private = uint32(u64(b[:])), u64(b[8:]), u32(b[16:])&flag2Private != 0
	return f, nil
}

// clockOf translates a clockid_t (0 is CLOCK_REALTIME).
func clockOf(id uint64) Clock {
	if id == 0 {
		return Realtime
	}
	return Monotonic
}
