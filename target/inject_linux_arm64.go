package target

import "github.com/sliverprof/sliver/stack"

// System calls that are injected, by include/uapi/asm-generic/unistd.h.
const (
	nativeClone = 220
	nativeWait4 = 260
)

// nativeGadget is the instruction that makes a system call.
var nativeGadget = []byte{0x01, 0x00, 0x00, 0xd4} // svc #0

func nativeInject(r *[regWords]uint64, gadget, nr uint64, args *[6]uint64) {
	injectARM64(r, gadget, nr, args)
}

func nativeBlocked(r *[regWords]uint64, before *callBefore) (stack.Call, uint64, bool) {
	return blockedARM64(r, before)
}

func nativeSuit(c *stack.Call) int { return suitARM64(c) }

// nativePutBack changes a copy of the registers as Window.putBack does the thread's own.
func nativePutBack(r *[regWords]uint64, before *callBefore) { rewindARM64(r, before) }

func nativeReturned(r *[regWords]uint64) int64 { return int64(r[0]) }

// nativeRegs translates a register block.
func nativeRegs(r *[regWords]uint64, to *stack.Regs) { RegsARM64(regBytes(r), to) }

// nativePrepare notes the call that the thread is blocked in, which the registers at the
// stop do not show.
func nativePrepare(p *Process, tid stack.TID, before *callBefore) {
	t, err := p.Thread(tid)
	if err != nil {
		return
	}
	defer t.Close()
	if _, pc, sp, err := t.Syscall(&before.call); err == nil {
		before.pc, before.sp = pc, sp
	} else {
		*before = noCall
	}
}
