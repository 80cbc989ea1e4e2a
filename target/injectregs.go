package target

import "github.com/sliverprof/sliver/stack"

// A thread executes a system call for the keeper (keeper.go) at an instruction that makes
// system calls, with registers that the keeper sets. The functions here change or read
// register blocks, for both machines, so that tests of both run on either.

// injectAMD64 sets the registers for system call nr at the instruction at gadget. The call
// number of the interrupted call (orig_rax) becomes -1, so that the kernel does not restart
// that one first (arch/x86/kernel/signal.c, arch_do_signal_or_restart).
func injectAMD64(r *[amdWords]uint64, gadget, nr uint64, args *[6]uint64) {
	r[amdRAX], r[amdOrigRAX], r[amdRIP] = nr, ^uint64(0), gadget
	for i, w := range amdArgs {
		r[w] = args[i]
	}
}

// injectARM64 is injectAMD64 for arm64.
func injectARM64(r *[armWords]uint64, gadget, nr uint64, args *[6]uint64) {
	copy(r[:6], args[:])
	r[8], r[armPC] = nr, gadget
}

// blockedAMD64 returns the system call that the thread was in when it stopped, and where the
// instruction of that call is. ok is false if it was in none.
func blockedAMD64(r *[amdWords]uint64) (c stack.Call, gadget uint64, ok bool) {
	code := -r[amdRAX]
	if r[amdOrigRAX] > maxCall || r[amdRAX] != minusEINTR && (code < 512 || code > 516) {
		return stack.Call{Nr: -1}, 0, false
	}
	c.Nr = int32(r[amdOrigRAX])
	for i, w := range amdArgs {
		c.Args[i] = r[w]
	}
	return c, r[amdRIP] - 2, true
}

// blockedARM64 is blockedAMD64 for arm64, where the block does not say that there was a
// call: before is what /proc said right before the stop. The kernel has moved the PC back
// to the instruction by then (arch/arm64/kernel/signal.c, do_signal). If the PC still is
// there when the thread goes on, the kernel may put number 128 (restart_syscall) into x8.
// It does so for calls with a timeout alone.
func blockedARM64(r *[armWords]uint64, before *callBefore) (c stack.Call, gadget uint64, ok bool) {
	if before.call.Nr < 0 || uint64(before.call.Nr) != r[8] || before.sp != r[armSP] || before.pc != r[armPC]+4 {
		return stack.Call{Nr: -1}, 0, false
	}
	return before.call, r[armPC], true
}

// How well a thread is suited to execute a system call for the keeper.
const (
	suitNone  = iota
	suitRuns  // not blocked: a system call instruction of the vDSO, outside of rseq sections
	suitBlock // blocked in a call that goes on afterwards
	suitFutex // blocked in a futex: the call changes nothing outside of the thread
)

// suitAMD64 rates a blocked call. Calls with a signal mask of their own are left alone: the
// kernel would restore the thread's mask when it leaves the call for the injected one.
func suitAMD64(c *stack.Call) int {
	switch k := kindAMD64(c.Nr); {
	case c.Nr == 202:
		return suitFutex
	case c.Nr == 130 || c.Nr == 333 || masked(k, c): // rt_sigsuspend io_pgetevents
	case k == kindExact, k == kindRead, k == kindRecv, k == kindRecvMsg, k == kindSocket, k == kindSem, k == kindEpoll, k == kindEpoll2:
		return suitBlock
	}
	return suitNone
}

// suitARM64 rates a blocked call: a futex without a timeout alone, see blockedARM64.
func suitARM64(c *stack.Call) int {
	const futex = 98
	if c.Nr == futex && c.Args[3] == 0 {
		return suitFutex
	}
	return suitNone
}
