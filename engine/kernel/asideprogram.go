package kernel

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/sliverprof/sliver/stack"
)

// Places on the stack of the program.
const (
	exKey  = -8
	exCPU  = -16
	exSP   = -24
	exPC   = -32
	exTask = -40
	exKept = -48 // of each regKept, from here down
)

// asideProgram is run at each overflow of a perf event, in the context of the thread that the event met. It
// returns 1, so that the kernel makes its sample. R6 is the thread's stack pointer, R7 its plan, R9 the record.
func asideProgram(maps map[string]*ebpf.Map, lists bool) asm.Instructions {
	a := &assembler{}
	fd := func(name string) int { return maps["aside_"+name].FD() }
	a.add(asm.FnGetCurrentPidTgid.Call(), storeWord(asm.RFP, exKey, 0), asm.StoreMem(asm.RFP, exKey, asm.R0, asm.Word))
	a.lookup(fd("plans"), exKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R7, asm.R0), asm.FnGetSmpProcessorId.Call(), asm.StoreMem(asm.RFP, exCPU, asm.R0, asm.Word))
	a.lookup(fd("record"), exCPU)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R9, asm.R0))

	// The registers with which the thread entered the kernel: those of the event may be the kernel's own.
	a.add(asm.FnGetCurrentTaskBtf.Call(), asm.Mov.Reg(asm.R1, asm.R0), asm.FnTaskPtRegs.Call(), asm.Mov.Reg(asm.R8, asm.R0))
	for _, x := range []struct {
		to  int
		off int32
	}{{exSP, regSP}, {exPC, regPC}, {exKept, regKept[0]}, {exKept - 8, regKept[1]}} {
		a.add(asm.Mov.Reg(asm.R3, asm.R8))
		a.kernelRead(x.to, 8, x.off)
	}
	a.add(asm.LoadMem(asm.R6, asm.RFP, exSP, asm.DWord), asm.StoreMem(asm.R9, xrSP, asm.R6, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, exPC, asm.DWord), asm.StoreMem(asm.R9, xrPC, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, exKey, asm.DWord), asm.StoreMem(asm.R9, xrTID, asm.R1, asm.DWord),
		asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.R9, xrTime, asm.R0, asm.DWord))
	for _, off := range []int16{xrRead, xrTask, xrAddr, xrLen} {
		a.add(storeWord(asm.R9, off, 0))
	}
	for i := range MaxAsideBlocks {
		a.add(asm.LoadMem(asm.R3, asm.R7, int16(xpBlocks+i*16), asm.DWord), asm.StoreMem(asm.R9, int16(xrPlan+i*16), asm.R3, asm.DWord),
			asm.LoadMem(asm.R2, asm.R7, int16(xpBlocks+i*16+8), asm.DWord), asm.StoreMem(asm.R9, int16(xrPlan+i*16+8), asm.R2, asm.DWord))
		a.readUser(xrBlocks+i*MaxAsideBlock, 1<<i, fmt.Sprintf("block_%d", i))
	}
	if lists {
		a.asideList(fd("objects"))
	} else {
		a.asideTask()
	}
	a.label("send")
	most := int32(MaxAsideStack)
	if lists {
		most = lnLinks + stack.MaxLinks*listedBytes
	}
	a.add(asm.LoadMem(asm.R3, asm.R9, xrLen, asm.DWord), asm.JGT.Imm(asm.R3, most, "out"), asm.Add.Imm(asm.R3, xrStack),
		asm.LoadMapPtr(asm.R1, fd("ring")), asm.Mov.Reg(asm.R2, asm.R9), asm.Mov.Imm(asm.R4, noWakeup), asm.FnRingbufOutput.Call())
	a.label("out")
	a.add(asm.Mov.Imm(asm.R0, 1), asm.Return())
	return a.code
}

// asideList copies the list of the plan.
func (a *assembler) asideList(objects int) {
	a.add(asm.Mov.Reg(asm.R6, asm.R9), asm.Mov.Reg(asm.R8, asm.R7))
	(&follower{assembler: a, objects: objects, base: xrStack, most: stack.MaxLinks, plan: xpList, tmp: exTask, key: exCPU}).follow()
	a.add(asm.LoadMem(asm.R1, asm.R9, xrStack+lnHead, asm.DWord), asm.JEq.Imm(asm.R1, 0, "send"),
		asm.LoadMem(asm.R1, asm.R9, xrStack+lnCount, asm.DWord), asm.Mul.Imm(asm.R1, listedBytes), asm.Add.Imm(asm.R1, lnLinks), asm.StoreMem(asm.R9, xrLen, asm.R1, asm.DWord))
}

// readUser reads R2 bytes of the thread's memory at R3 to a place in the record, and sets a bit if that worked.
func (a *assembler) readUser(to int, bit int32, skip string) {
	a.add(asm.JEq.Imm(asm.R2, 0, skip), asm.JGT.Imm(asm.R2, MaxAsideBlock, skip), asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Imm(asm.R1, int32(to)),
		asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, skip),
		asm.LoadMem(asm.R1, asm.R9, xrRead, asm.DWord), asm.Or.Imm(asm.R1, bit), asm.StoreMem(asm.R9, xrRead, asm.R1, asm.DWord))
	a.label(skip)
}

// asideTask reads the data of the thread's task, and the task's stack if the thread is on another one.
func (a *assembler) asideTask() {
	const read = 1 << MaxAsideBlocks
	a.add(asm.LoadMem(asm.R3, asm.R7, xpPointer, asm.DWord), asm.JEq.Imm(asm.R3, 0, "send"), asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, exTask),
		asm.Mov.Imm(asm.R2, 8), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, "send"), asm.LoadMem(asm.R3, asm.RFP, exTask, asm.DWord),
		asm.JEq.Imm(asm.R3, 0, "send"), asm.StoreMem(asm.R9, xrTask, asm.R3, asm.DWord),
		asm.LoadMem(asm.R2, asm.R7, xpLen, asm.DWord), asm.StoreMem(asm.R9, xrTaskLen, asm.R2, asm.DWord))
	a.readUser(xrData, read, "task_read")
	a.add(asm.LoadMem(asm.R1, asm.R9, xrRead, asm.DWord), asm.And.Imm(asm.R1, read), asm.JEq.Imm(asm.R1, 0, "send"))
	word := func(to asm.Register, off int16) {
		a.add(asm.LoadMem(asm.R1, asm.R7, off, asm.DWord), asm.And.Imm(asm.R1, MaxAsideBlock-8), asm.Mov.Reg(asm.R2, asm.R9), asm.Add.Reg(asm.R2, asm.R1),
			asm.LoadMem(to, asm.R2, xrData, asm.DWord))
	}
	word(asm.R3, xpSP)
	word(asm.R4, xpLo)
	word(asm.R8, xpHi)
	a.add(asm.JLT.Reg(asm.R6, asm.R4, "elsewhere"), asm.JLT.Reg(asm.R6, asm.R8, "send"))
	a.label("elsewhere")
	// R5 is the lowest place in the stack at which the walk may continue.
	a.add(asm.Mov.Reg(asm.R5, asm.R8))
	lower := func(r asm.Register, skip string) {
		a.add(asm.JLT.Reg(r, asm.R4, skip), asm.JGE.Reg(r, asm.R5, skip), asm.Mov.Reg(asm.R5, r))
		a.label(skip)
	}
	lower(asm.R3, "saved")
	for i := range regKept {
		a.add(asm.LoadMem(asm.R3, asm.RFP, int16(exKept-8*i), asm.DWord))
		lower(asm.R3, fmt.Sprintf("kept_%d", i))
	}
	a.add(asm.JGE.Reg(asm.R5, asm.R8, "send"), asm.Mov.Reg(asm.R3, asm.R5),
		asm.StoreMem(asm.R9, xrAddr, asm.R3, asm.DWord), asm.Sub.Reg(asm.R8, asm.R3), asm.JLE.Imm(asm.R8, MaxAsideStack, "short"), asm.Mov.Imm(asm.R8, MaxAsideStack))
	a.label("short")
	a.add(asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Imm(asm.R1, xrStack), asm.Mov.Reg(asm.R2, asm.R8), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, "send"),
		asm.StoreMem(asm.R9, xrLen, asm.R8, asm.DWord))
}
