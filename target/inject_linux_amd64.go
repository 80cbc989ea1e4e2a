package target

import "github.com/sliverprof/sliver/stack"

// System calls that are injected, by arch/x86/entry/syscalls/syscall_64.tbl.
const (
	nativeClone = 56
	nativeWait4 = 61
)

// nativeGadget is the instruction that makes a system call.
var nativeGadget = []byte{0x0f, 0x05} // syscall

func nativeInject(r *[regWords]uint64, gadget, nr uint64, args *[6]uint64) {
	injectAMD64(r, gadget, nr, args)
}

func nativeBlocked(r *[regWords]uint64, _ *callBefore) (stack.Call, uint64, bool) {
	return blockedAMD64(r)
}

func nativeSuit(c *stack.Call) int { return suitAMD64(c) }

// nativePutBack changes a copy of the registers as Window.putBack does the thread's own.
func nativePutBack(r *[regWords]uint64, _ *callBefore) {
	if k, cut := cutAMD64(r[amdRAX], r[amdOrigRAX]); cut && k.putBackable() {
		r[amdRAX] = minusERESTARTNOHAND
	}
}

func nativeReturned(r *[regWords]uint64) int64 { return int64(r[amdRAX]) }

// nativeRegs translates a register block.
func nativeRegs(r *[regWords]uint64, to *stack.Regs) {
	var c stack.Call
	RegsAMD64(regBytes(r), to, &c)
}

// nativePrepare needs nothing: the registers at the stop say which call it was.
func nativePrepare(*Process, stack.TID, *callBefore) {}
