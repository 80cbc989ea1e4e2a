package kernel

import (
	"github.com/cilium/ebpf/asm"

	"github.com/sliverprof/sliver/iowatch"
)

// emit writes the record whose header is complete: "limited" with a stack if the thread has not had
// too many in this second, "stack" with one in any case.
func (a *assembler) emit(m ioMaps, l *layout) {
	a.label("limited")
	const unread = 0 // BPF_RB_AVAIL_DATA
	a.add(asm.LoadMapPtr(asm.R1, m.ring), asm.Mov.Imm(asm.R2, unread), asm.FnRingbufQuery.Call(), asm.JGT.Imm(asm.R0, m.crowded, "crowded"))
	a.window()
	a.get(asm.R1, recOp, asm.Byte)
	a.add(asm.JEq.Imm(asm.R1, int32(iowatch.OpSync), "syncs"))
	a.limit(taskStacks)
	a.label("syncs")
	a.limit(taskSyncs)

	a.label("crowded")
	a.count(m, lostStacks)
	a.label("pathonly")
	a.set(recForm, formPath, asm.Byte)
	a.reserve(m, bytesPath)
	a.header()
	a.path()
	a.submit()
	a.add(asm.Ja.Label("out"))
	a.label("stack")
	if l.casts != nil { // so far there are those of the arguments
		a.allRegisters()
	}
	a.copies(m, l)
}

// copies writes the record whose header is complete, with a stack.
func (a *assembler) copies(m ioMaps, l *layout) {
	a.lookup(m.plans, onTID)
	a.add(asm.Mov.Reg(asm.R8, asm.R0), asm.JEq.Imm(asm.R8, 0, "guess"), storeWord(asm.R9, taskYoung, 1),
		asm.LoadMem(asm.R1, asm.R8, planWakes, asm.DWord), asm.JEq.Imm(asm.R1, 0, "deep"),
		asm.Sub.Imm(asm.R1, 1), asm.StoreMem(asm.R8, planWakes, asm.R1, asm.DWord), storeWord(asm.R9, taskYoung, 0), asm.Ja.Label("deep"))
	a.label("guess") // thread 0 has it
	a.add(asm.LoadMapValue(asm.R2, m.mask, 0), asm.LoadMem(asm.R1, asm.R2, maskEach, asm.DWord), asm.JEq.Imm(asm.R1, 0, "guessed"),
		asm.Sub.Imm(asm.R1, 1), asm.StoreMem(asm.R2, maskEach, asm.R1, asm.DWord), storeWord(asm.R9, taskYoung, 0))
	a.label("guessed")
	a.add(storeWord(asm.RFP, onKey, 0))
	a.lookup(m.plans, onKey)
	a.add(asm.Mov.Reg(asm.R8, asm.R0), asm.JEq.Imm(asm.R8, 0, "small"), asm.LoadMem(asm.R1, asm.R8, planLeft, asm.DWord), asm.JEq.Imm(asm.R1, 0, "small"),
		asm.Sub.Imm(asm.R1, 1), asm.StoreMem(asm.R8, planLeft, asm.R1, asm.DWord), asm.Ja.Label("deep"))
	// Of a process that may have a runtime, or has one, unless the stack ends there: native callers of a runtime have
	// large frames. Other threads have a plan after the first stack that was too short.
	a.label("small")
	a.add(asm.LoadMapValue(asm.R1, m.mask, 0), asm.LoadMem(asm.R1, asm.R1, maskYoung, asm.DWord), asm.JEq.Imm(asm.R1, 0, "short"),
		asm.LoadMem(asm.R3, asm.RFP, int16(onRegs+regSP), asm.DWord))
	a.beyond()
	a.add(asm.JEq.Imm(asm.R0, 0, "middle"))
	a.label("short")
	a.stack(m, l, formSmall, bytesSmall, shallow)
	a.add(asm.Ja.Label("young"))
	a.label("middle")
	a.stack(m, l, formMiddle, bytesMiddle, deep)
	a.add(asm.Ja.Label("young"))
	a.label("deep")
	if a.listed {
		// Most stacks of an interpreter's main thread need neither pages beside them nor a long copy, and many fit into the ring.
		a.add(asm.LoadMem(asm.R1, asm.R8, planPages, asm.DWord), asm.JNE.Imm(asm.R1, 0, "deeper"), asm.LoadMem(asm.R1, asm.R8, planList+listSize, asm.DWord), asm.JEq.Imm(asm.R1, 0, "deeper"),
			asm.LoadMem(asm.R3, asm.RFP, int16(onRegs+regSP), asm.DWord))
		a.beyond()
		a.add(asm.JEq.Imm(asm.R0, 0, "deeper"))
		a.stack(m, l, formListed, bytesListed, shallow)
		a.add(asm.Ja.Label("young"))
	}
	a.label("deeper")
	a.stack(m, l, formDeep, bytesDeep, deep)
	a.young(m)
}

// list copies the list of the plan, R8, to a place in the record.
func (a *assembler) list(m ioMaps, base int) {
	(&follower{assembler: a, objects: m.objects, base: base, most: maxListed, plan: planList, tmp: onTmp, key: onKey, tls: recTLS}).follow()
}

// beyond reads the first word behind a shallow copy of the stack, whose pointer is R3, onto the program's stack. R0 is 0 if
// the stack goes on there.
func (a *assembler) beyond() {
	a.add(asm.Sub.Imm(asm.R3, redZone), asm.RSh.Imm(asm.R3, 12), asm.LSh.Imm(asm.R3, 12), asm.Add.Imm(asm.R3, shallow*pageBytes))
	a.probe(onTmp, 8, 0)
}

// plain writes the record whose header is complete, at "plain", without a stack.
func (a *assembler) plain(m ioMaps) {
	a.label("plain")
	a.reserve(m, bytesPlain)
	a.header()
	a.submit()
}

// limit goes to "stack" as long as a counter of the thread is below the limit, and else to "pathonly".
func (a *assembler) limit(counter int16) {
	a.add(asm.LoadMem(asm.R1, asm.R9, counter, asm.Word), asm.JGE.Imm(asm.R1, stacksLimit, "pathonly"), asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, counter, asm.R1, asm.Word), asm.Ja.Label("stack"))
}

// stack writes a record with registers and stack, and if it is formDeep the pages of the plan, R8.
func (a *assembler) stack(m ioMaps, l *layout, form int64, size int32, pages int) {
	a.set(recForm, form, asm.Byte)
	a.reserve(m, size)
	a.header()
	a.path()
	for off := 0; off < regBlock; off += 8 {
		a.add(asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+off), asm.DWord), asm.StoreMem(asm.R6, int16(recRegs+off), asm.R1, asm.DWord))
	}
	a.add(storeWord(asm.R6, recTLS, 0))
	if l.tls != 0 {
		a.add(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(asm.R3, asm.R0), asm.Add.Imm(asm.R3, int32(l.tls)), asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, recTLS),
			asm.Mov.Imm(asm.R2, 8), asm.FnProbeReadKernel.Call())
	}
	if form == formDeep {
		for i := range maxExtras {
			next := a.fresh("extra")
			at := int32(recExtras + 8*i)
			// Offsets beyond 16 bits take an addition.
			a.add(asm.Mov.Reg(asm.R7, asm.R6), asm.Add.Imm(asm.R7, at), storeWord(asm.R7, 0, 0),
				asm.LoadMem(asm.R3, asm.R8, int16(planPages+8*i), asm.DWord), asm.JEq.Imm(asm.R3, 0, next),
				asm.StoreMem(asm.RFP, onTmp, asm.R3, asm.DWord), asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, int32(recExtra0+i*pageBytes)), asm.Mov.Imm(asm.R2, pageBytes),
				asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, next), asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord), asm.StoreMem(asm.R7, 0, asm.R3, asm.DWord))
			a.label(next)
			a.add(asm.Mov.Imm(asm.R0, 0))
		}
	}
	switch form {
	case formDeep:
		a.list(m, recDeep)
	case formListed:
		a.list(m, recListed)
	}
	// From the page of the red zone up. Pages that were never used cannot be read, as in a large array of a function.
	a.add(asm.LoadMem(asm.R7, asm.RFP, int16(onRegs+regSP), asm.DWord), asm.Sub.Imm(asm.R7, redZone), asm.RSh.Imm(asm.R7, 12), asm.LSh.Imm(asm.R7, 12),
		asm.StoreMem(asm.R6, recBase, asm.R7, asm.DWord), asm.Mov.Imm(asm.R8, 0))
	a.add(storeWord(asm.RFP, onTmp, maxHoles))
	done := a.fresh("copied")
	for i := range pages {
		read, next := a.fresh("read"), a.fresh("page")
		a.add(asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, int32(recStack+i*pageBytes)), asm.Mov.Imm(asm.R2, pageBytes), asm.Mov.Reg(asm.R3, asm.R7),
			asm.FnProbeReadUser.Call(), asm.JEq.Imm(asm.R0, 0, read),
			asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.DWord), asm.JEq.Imm(asm.R1, 0, done), asm.Sub.Imm(asm.R1, 1), asm.StoreMem(asm.RFP, onTmp, asm.R1, asm.DWord), asm.Ja.Label(next))
		a.label(read)
		a.add(asm.Or.Imm(asm.R8, int32(uint32(1)<<i)))
		a.label(next)
		a.add(asm.Add.Imm(asm.R7, pageBytes))
	}
	a.label(done)
	a.add(asm.StoreMem(asm.R6, recPages, asm.R8, asm.DWord))
	a.submit()
}
