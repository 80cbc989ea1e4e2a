package kernel

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Places of the record on the program's stack, from the frame pointer down: seven words, time first.
const (
	atTime   = -56
	atThread = -48 // thread, of four bytes
	atLost   = -44 // how many records the ring had no room for so far, modulo 2^32
	atCookie = -40
	atSP     = -32
	atRet    = -24 // what SP points at, or the link register
	atTask   = -16 // Go: address of the g
	atEnd    = -8  // Go: end of its stack
)

// stackHi is where the end of a goroutine's stack is in its g: runtime.g begins with
// stack{lo, hi} (runtime/runtime2.go, Go 1.4 to 1.26).
const stackHi = 8

// noWakeup is BPF_RB_NO_WAKEUP (include/uapi/linux/bpf.h).
const noWakeup = 1

// begin fills in the thread, the losses and the time of a record, and leaves at once for other processes than pid.
func begin(pid uint32, lost int) asm.Instructions {
	return asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.RFP, atThread, asm.R0, asm.DWord),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(pid), "out"),
		asm.LoadMapValue(asm.R1, lost, 0),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.StoreMem(asm.RFP, atLost, asm.R1, asm.Word),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.RFP, atTime, asm.R0, asm.DWord),
	}
}

// program is run at each hit, with the thread's registers (struct pt_regs) as its argument. It leaves
// at once for other processes than pid, and counts records for which the ring has no room. A record
// has the count before it, so that the reader knows where in the order of records they are missing.
func program(pid uint32, ring, lost int) asm.Instructions {
	return slices.Concat(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, begin(pid, lost), asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnGetAttachCookie.Call(),
		asm.StoreMem(asm.RFP, atCookie, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMem(asm.R8, asm.R6, regSP, asm.DWord),
		asm.StoreMem(asm.RFP, atSP, asm.R8, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, atRet, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, atTask, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, atEnd, asm.R1, asm.DWord),

		// The return address, of an entry.
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.And.Imm(asm.R1, cookieWhere),
		asm.JNE.Imm(asm.R1, 0, "go"),
	}, returnAddress(), asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R7).WithSymbol("go"),
		asm.And.Imm(asm.R1, cookieGo),
		asm.JEq.Imm(asm.R1, 0, "send"),
		asm.LoadMem(asm.R9, asm.R6, regG, asm.DWord),
		asm.StoreMem(asm.RFP, atTask, asm.R9, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, atEnd),
		asm.Mov.Imm(asm.R2, 8),
		asm.Mov.Reg(asm.R3, asm.R9),
		asm.Add.Imm(asm.R3, stackHi),
		asm.FnProbeReadUser.Call(), // 0 if it cannot be read
	}, send(ring, lost))
}

// send writes the record to the ring, or counts it as lost, and ends the program.
func send(ring, lost int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, ring).WithSymbol("send"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, atTime),
		asm.Mov.Imm(asm.R3, recordSize),
		asm.Mov.Imm(asm.R4, noWakeup),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),

		asm.LoadMapValue(asm.R1, lost, 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),

		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}
