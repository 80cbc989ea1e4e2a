package target

import "github.com/sliverprof/sliver/stack"

// Restarting calls: a stop ends a blocking system call, and the kernel continues in one of two
// ways. Calls that end with an ERESTART code are restarted by the kernel itself once the tracer
// detaches. Others end with EINTR, which is not final: at the stop the result is still a register
// that the tracer may write. On amd64, -ERESTARTNOHAND in its place makes the kernel restart the
// call, unless a signal with a handler has arrived since; then the program gets the EINTR that it
// would have got without the stop (arch/x86/kernel/signal.c, arch_do_signal_or_restart and
// handle_signal). On arm64 the kernel has decided before the stop (arch/arm64/kernel/signal.c,
// do_signal), so the tracer has to move the PC back itself.
//
// The table shows how each call ends, from the kernel's source. TestStopUnseen checks each of
// them on the running kernel (6.18 when this was written):
//
//	epoll_wait, _pwait, _pwait2   EINTR             fs/eventpoll.c, ep_poll
//	semop, semtimedop             EINTR             ipc/sem.c, __do_semtimedop
//	rt_sigtimedwait               EINTR             kernel/signal.c, do_sigtimedwait
//	io_getevents                  EINTR             fs/aio.c
//	io_uring_enter                EINTR             io_uring/io_uring.c, io_cqring_wait
//	read on inotify               ERESTARTSYS       fs/notify/inotify/inotify_user.c (EINTR before 3.8, signal(7))
//	sockets with SO_*TIMEO        EINTR             include/net/sock.h, sock_intr_errno
//	sockets without               ERESTARTSYS       the same
//	pipes, eventfd, timerfd, tty  ERESTARTSYS       fs/pipe.c, fs/eventfd.c, fs/timerfd.c, drivers/tty/n_tty.c
//	nanosleep, clock_nanosleep,
//	poll, futex with a timeout    ERESTART_RESTARTBLOCK: continues to the same end
//	select, ppoll, pselect6       ERESTARTNOHAND, after the time left was written back;
//	                              EINTR if that memory is read-only (fs/select.c, poll_select_finish):
//	                              then the timeout restarts, unless it is on the stack
//	msgrcv, msgsnd, pause,
//	rt_sigsuspend, io_pgetevents  ERESTARTNOHAND    ipc/msg.c, kernel/signal.c, fs/aio.c
//	wait4, waitid, flock, fcntl,
//	open of a FIFO, mq_timed*     ERESTARTSYS       (mq's times are absolute)
//
// Relative timeouts of the first group restart in full: the remaining time is not visible outside
// the kernel, and a smaller value written into the argument's register would persist in a loop
// that keeps its timeout in that register.

// Risk is the possible effect of a stop on a thread that is blocked in a call, in ascending
// order.
type Risk uint8

// Risks of a stop.
const (
	RiskNone  Risk = iota // the call continues as if it had not been interrupted
	RiskMaybe             // the same, but a timeout restarts if it is a socket's, or in read-only memory
	RiskLate              // the call's timeout restarts: it may end late by the time it had already waited
	RiskShort             // the call may return early, with less done than requested
	RiskEINTR             // the call may fail with EINTR
)

// StopRisk returns the risk of a stop for a thread that is blocked in call with its stack pointer
// at sp (0: unknown), on the machine that this program was built for.
func StopRisk(call *stack.Call, sp uint64) Risk {
	k := nativeKind(call.Nr)
	if k == kindSelect {
		return selectRisk(call, sp, nativePollNr)
	}
	return stopRisk(k, call, nativeKeepsMask)
}

// selectRisk returns the risk of select, pselect6 and (number poll) ppoll. Their remaining
// timeout is written back, and the restarted call uses it, if it is in writable memory such as
// the stack, where libc keeps it.
func selectRisk(call *stack.Call, sp uint64, poll int32) Risk {
	t := call.Args[4]
	if call.Nr == poll {
		t = call.Args[2]
	}
	if t == 0 || sp != 0 && t >= sp && t-sp < MaxStack {
		return RiskNone
	}
	return RiskMaybe
}

// kind classifies system calls by the effect of a stop.
type kind uint8

const (
	kindOther    kind = iota // unknown: never restarted
	kindExact                // restarted by the kernel
	kindSelect               // restarted by the kernel, with exceptions
	kindEpoll                // args: epfd events max timeout_ms sigmask
	kindEpoll2               // args: epfd events max *timespec sigmask
	kindSem                  // no timeout
	kindSemTimed             // args: id ops n *timespec
	kindSigWait              // args: set info *timespec
	kindEvents               // args: ctx min max events *timespec
	kindRing                 // args: fd submit complete flags arg size
	kindRead                 // a descriptor of any kind
	kindRecv                 // args: fd buf len flags
	kindRecvMsg              // args: fd msg flags
	kindSocket               // accept, connect
	kindWrite                // may be interrupted half done
	kindMove                 // the same, but never ends with EINTR
)

// putBackable reports whether a call of this kind that ended with EINTR at a stop may be
// restarted unchanged. close must never be (the descriptor is closed in any case), and for ioctl
// only the driver knows.
//
//go:nosplit
func (k kind) putBackable() bool { return k >= kindSelect && k <= kindWrite }

const (
	msgWaitAll      = 0x100 // MSG_WAITALL, linux/socket.h
	ringEnterExtArg = 8     // IORING_ENTER_EXT_ARG, linux/io_uring.h
)

// masked reports whether the call runs under its own signal mask.
func masked(k kind, call *stack.Call) bool {
	switch k {
	case kindEpoll, kindEpoll2, kindRing:
		return call.Args[4] != 0
	}
	return false
}

// stopRisk is StopRisk for one machine. keepsMask: calls with their own signal mask can be
// restarted there.
func stopRisk(k kind, call *stack.Call, keepsMask bool) Risk {
	if call.Nr < 0 {
		return RiskNone
	}
	if !keepsMask && masked(k, call) {
		return RiskEINTR
	}
	late := func(is bool) Risk {
		if is {
			return RiskLate
		}
		return RiskNone
	}
	a := &call.Args
	switch k {
	case kindExact, kindSelect, kindSem:
		return RiskNone
	case kindEpoll:
		return late(int32(a[3]) > 0)
	case kindEpoll2, kindSemTimed:
		return late(a[3] != 0)
	case kindSigWait:
		return late(a[2] != 0)
	case kindEvents:
		if int64(a[1]) > 1 {
			return RiskShort
		}
		return late(a[4] != 0)
	case kindRing:
		if uint32(a[1]) > 0 && uint32(a[2]) > 0 {
			return RiskShort
		}
		return late(a[3]&ringEnterExtArg != 0)
	case kindRead, kindSocket:
		return RiskMaybe
	case kindRecv:
		if a[3]&msgWaitAll != 0 {
			return RiskShort
		}
		return RiskMaybe
	case kindRecvMsg:
		if a[2]&msgWaitAll != 0 {
			return RiskShort
		}
		return RiskMaybe
	case kindWrite, kindMove:
		return RiskShort
	}
	return RiskEINTR
}

// kindAMD64 classifies by arch/x86/entry/syscalls/syscall_64.tbl.
//
//go:nosplit
//go:norace
func kindAMD64(nr int32) kind {
	switch nr {
	case 0, 17, 19, 295, 327: // read pread64 readv preadv preadv2
		return kindRead
	case 1, 18, 20, 296, 328, 44, 46, 307, 299: // write pwrite64 writev pwritev pwritev2 sendto sendmsg sendmmsg recvmmsg
		return kindWrite
	case 40, 275, 276, 278, 326: // sendfile splice tee vmsplice copy_file_range
		return kindMove
	case 45:
		return kindRecv
	case 47:
		return kindRecvMsg
	case 42, 43, 288: // connect accept accept4
		return kindSocket
	case 232, 281: // epoll_wait epoll_pwait
		return kindEpoll
	case 441:
		return kindEpoll2
	case 65:
		return kindSem
	case 220:
		return kindSemTimed
	case 128: // rt_sigtimedwait
		return kindSigWait
	case 208: // io_getevents
		return kindEvents
	case 426: // io_uring_enter
		return kindRing
	case 23, 270, 271: // select pselect6 ppoll
		return kindSelect
	case 2, 257, 437, // open openat openat2
		7, 34, 35, 61, 69, 70, 72, 73, // poll pause nanosleep wait4 msgsnd msgrcv fcntl flock
		130, 202, 219, 230, // rt_sigsuspend futex restart_syscall clock_nanosleep
		242, 243, 247, 318, 333, // mq_timedsend mq_timedreceive waitid getrandom io_pgetevents
		449, 455: // futex_waitv futex_wait
		return kindExact
	}
	return kindOther
}

// kindARM64 classifies by include/uapi/asm-generic/unistd.h.
//
//go:nosplit
//go:norace
func kindARM64(nr int32) kind {
	switch nr {
	case 63, 65, 67, 69, 286: // read readv pread64 preadv preadv2
		return kindRead
	case 64, 66, 68, 70, 287, 206, 211, 269, 243: // write writev pwrite64 pwritev pwritev2 sendto sendmsg sendmmsg recvmmsg
		return kindWrite
	case 71, 75, 76, 77, 285: // sendfile vmsplice splice tee copy_file_range
		return kindMove
	case 207:
		return kindRecv
	case 212:
		return kindRecvMsg
	case 202, 203, 242: // accept connect accept4
		return kindSocket
	case 22: // epoll_pwait
		return kindEpoll
	case 441:
		return kindEpoll2
	case 193:
		return kindSem
	case 192:
		return kindSemTimed
	case 137: // rt_sigtimedwait
		return kindSigWait
	case 4: // io_getevents
		return kindEvents
	case 426: // io_uring_enter
		return kindRing
	case 72, 73: // pselect6 ppoll
		return kindSelect
	case 56, 437, // openat openat2
		25, 32, 95, 98, 101, 115, 128, 133, // fcntl flock waitid futex nanosleep clock_nanosleep restart_syscall rt_sigsuspend
		182, 183, 188, 189, 260, // mq_timedsend mq_timedreceive msgrcv msgsnd wait4
		278, 292, 449, 455: // getrandom io_pgetevents futex_waitv futex_wait
		return kindExact
	}
	return kindOther
}

// Results as registers hold them.
const (
	minusEINTR          = ^uint64(4 - 1)   // -4
	minusERESTARTNOHAND = ^uint64(514 - 1) // -514
)

// cutAMD64 reports whether the registers are those of a call that the stop interrupted, and its
// kind.
//
//go:nosplit
//go:norace
func cutAMD64(rax, orig uint64) (kind, bool) {
	if rax != minusEINTR || orig > maxCall {
		return kindOther, false
	}
	return kindAMD64(int32(orig)), true
}

// rewindARM64 changes a register block (x0 … x30, sp, pc, pstate) so that a call interrupted with
// EINTR is made again: it sets the PC back to the svc instruction and x0 to the first argument.
// The block no longer contains that argument. It is taken from the call in /proc before the stop,
// if that is the same call: number, other arguments, SP and PC agree. A call with its own signal
// mask is left alone, because a handler that runs before the call is made again would lose its
// EINTR.
//
//go:nosplit
//go:norace
func rewindARM64(r *[armWords]uint64, b *callBefore) int {
	if r[0] != minusEINTR {
		return putNothing
	}
	if r[8] > maxCall || b.call.Nr < 0 {
		// Possibly not a call at all: x0 may hold -4 in any program.
		return putNothing
	}
	if uint64(b.call.Nr) != r[8] || b.sp != r[armSP] || b.pc != r[armPC] {
		return putNothing
	}
	for i := 1; i < len(b.call.Args); i++ {
		if b.call.Args[i] != r[i] {
			return putNothing
		}
	}
	k := kindARM64(b.call.Nr)
	if !k.putBackable() {
		return putLost
	}
	switch k {
	case kindEpoll, kindEpoll2, kindRing:
		if b.call.Args[4] != 0 {
			return putLost
		}
	}
	r[0] = b.call.Args[0]
	r[armPC] -= 4
	return putDone
}
