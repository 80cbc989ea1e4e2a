package kernel

import (
	"github.com/cilium/ebpf/asm"

	"github.com/sliverprof/sliver/iowatch"
)

// arg loads an argument of the call from the copy of the registers.
func (a *assembler) arg(to asm.Register, n int) {
	a.add(asm.LoadMem(to, asm.RFP, int16(onRegs+int(regArgs[n])), asm.DWord))
}

// set stores a constant in the header.
func (a *assembler) set(off int, v int64, size asm.Size) {
	if size == asm.DWord {
		a.add(storeWord(asm.RFP, int16(onHeader+off), int32(v)))
		return
	}
	a.add(asm.StoreImm(asm.RFP, int16(onHeader+off), v, size))
}

// put stores a register in the header.
func (a *assembler) put(off int, r asm.Register, size asm.Size) {
	a.add(asm.StoreMem(asm.RFP, int16(onHeader+off), r, size))
}

// get loads from the header.
func (a *assembler) get(r asm.Register, off int, size asm.Size) {
	a.add(asm.LoadMem(r, asm.RFP, int16(onHeader+off), size))
}

// more adds a register to a word of the use, R8.
func (a *assembler) more(off int16, r asm.Register) { a.addTo(asm.R8, off, r, asm.DWord) }

// addTo adds a register other than R2 to memory. Threads that share their sums add atomically.
func (a *assembler) addTo(to asm.Register, off int16, r asm.Register, size asm.Size) {
	shared, done := a.fresh("shared"), a.fresh("sum")
	a.add(asm.LoadMem(asm.R2, asm.RFP, onMask, asm.DWord), asm.JEq.Imm(asm.R2, 0, shared),
		asm.LoadMem(asm.R2, to, off, size), asm.Add.Reg(asm.R2, r), asm.StoreMem(to, off, asm.R2, size), asm.Ja.Label(done))
	a.label(shared)
	a.add(asm.AddAtomic.Mem(to, r, size, off))
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// most raises a word of the use to a register. Of two threads that share their sums and raise it at
// once, the lesser may remain.
func (a *assembler) most(off int16, r asm.Register) {
	done := a.fresh("most")
	a.add(asm.LoadMem(asm.R2, asm.R8, off, asm.DWord), asm.JGE.Reg(asm.R2, r, done), asm.StoreMem(asm.R8, off, r, asm.DWord))
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// leave is the program at the end of a call.
func leave(c *ioConfig, m ioMaps, l *layout) asm.Instructions {
	a := &assembler{listed: true}
	a.own(c.pid, l)
	a.add(asm.StoreMem(asm.RFP, onSelf, asm.R6, asm.DWord)) // for hand
	a.task(m, l, false)
	a.clear()
	a.add(asm.LoadMem(asm.R7, asm.R9, taskStart, asm.DWord), asm.JEq.Imm(asm.R7, 0, "out"), storeWord(asm.R9, taskStart, 0),
		asm.FnKtimeGetNs.Call())
	a.put(recEnd, asm.R0, asm.DWord)
	a.add(asm.Sub.Reg(asm.R0, asm.R7))
	a.put(recBusy, asm.R0, asm.DWord)
	a.busy(l, taskQueued)
	a.begin(l)
	a.mapping(m)
	a.statistics(m)

	// Failed calls do not count, but a failed close closes too, except with EBADF.
	a.add(asm.LoadMem(asm.R7, asm.R9, taskClass, asm.DWord), asm.Mov.Reg(asm.R6, asm.R7), asm.And.Imm(asm.R6, 0xff))
	a.get(asm.R1, recRet, asm.DWord)
	a.add(asm.JEq.Imm(asm.R6, classClose, "close"), asm.JEq.Imm(asm.R6, classConnect, "connect"), asm.JEq.Imm(asm.R6, classCall, "call"), asm.JEq.Imm(asm.R6, classChdir, "call"), asm.JEq.Imm(asm.R1, -inProgress, "begins"), asm.JSLT.Imm(asm.R1, 0, "failed"),
		asm.JEq.Imm(asm.R6, classOpen, "open"), asm.JEq.Imm(asm.R6, classPair, "pair"), asm.JEq.Imm(asm.R6, classRange, "range"),
		asm.JEq.Imm(asm.R6, classSends, "batch"), asm.JEq.Imm(asm.R6, classGets, "batch"), asm.JEq.Imm(asm.R6, classMove, "move"))
	a.use(m, l, nil)
	a.transfer(c, m, l, nil)
	a.opened(m, l)
	a.some()
	a.connecting(m)
	a.closing(m)
	a.fastOpen(m)
	a.called(c, m, l)
	a.label("range")
	a.set(recOp, int64(iowatch.OpRange), asm.Byte)
	a.add(asm.Ja.Label("plain"))
	a.hand(m)
	a.emit(m, l)
	a.plain(m)
	return a.end()
}

// clear sets the header to zeros.
func (a *assembler) clear() {
	for off := 0; off < recBytes; off += 8 {
		a.set(off, 0, asm.DWord)
	}
}

// begin sets what the header has of each call, and copies the registers.
func (a *assembler) begin(l *layout) {
	a.add(asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord))
	a.put(recRet, asm.R1, asm.DWord)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTID, asm.Word))
	a.put(recTID, asm.R1, asm.Word)
	a.add(asm.LoadMem(asm.R1, asm.R9, taskNr, asm.Word))
	a.put(recNr, asm.R1, asm.Word)
	a.add(asm.LoadMem(asm.R1, asm.R9, taskPolls, asm.Word), asm.JLT.Imm(asm.R1, loopPolls, "registers"))
	a.set(recLoop, 1, asm.Byte)
	a.label("registers")
	a.add(asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord), asm.StoreMem(asm.RFP, onCtx, asm.R3, asm.DWord))
	a.callRegisters(l)
	a.add(asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+regSP), asm.DWord))
	a.put(recSP, asm.R1, asm.DWord)
}

// mapping wakes Wait if the call mapped code of a file.
func (a *assembler) mapping(m ioMaps) {
	const exec = 4 // PROT_EXEC
	a.get(asm.R1, recRet, asm.DWord)
	a.add(asm.LoadMem(asm.R2, asm.R9, taskClass, asm.DWord), asm.And.Imm(asm.R2, 0xff), asm.JEq.Imm(asm.R2, classExec, "program"), asm.JNE.Imm(asm.R2, classMap, "other"),
		asm.JSLT.Imm(asm.R1, 0, "out"), asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+int(regArgs[2])), asm.DWord), asm.And.Imm(asm.R1, exec), asm.JEq.Imm(asm.R1, 0, "out"),
		asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+int(regArgs[4])), asm.Word), asm.RSh.Imm(asm.R1, 31), asm.JNE.Imm(asm.R1, 0, "out"), // memory without a file
		asm.Ja.Label("wake"))
	a.label("program")
	a.add(asm.JNE.Imm(asm.R1, 0, "out"))
	a.label("wake")
	a.wake(m, newsMapped)
	a.label("other")
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// statistics counts the call by number.
func (a *assembler) statistics(m ioMaps) {
	a.get(asm.R1, recNr, asm.Word)
	a.add(asm.StoreMem(asm.RFP, onKey, asm.R1, asm.DWord))
	a.lookup(m.stats, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "counted"), asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord))
	a.get(asm.R2, recBusy, asm.DWord)
	a.add(asm.LoadMem(asm.R1, asm.R0, 16, asm.DWord), asm.Add.Reg(asm.R1, asm.R2), asm.StoreMem(asm.R0, 16, asm.R1, asm.DWord))
	a.get(asm.R2, recRet, asm.DWord)
	a.add(asm.JSGE.Imm(asm.R2, 0, "counted"), asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord))
	a.label("counted")
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// descriptor sets R8 and the header to argument 0, and onKey too, and R0 to its value.
func (a *assembler) descriptor(m ioMaps) {
	a.add(asm.LoadMem(asm.R8, asm.RFP, int16(onRegs+int(regArgs[0])), asm.Word))
	a.holds(m)
}

// holds is descriptor for R8.
func (a *assembler) holds(m ioMaps) {
	a.put(recFD, asm.R8, asm.Word)
	a.entry(m)
}

// entry sets onKey to descriptor R8, and R0 to its value. Without one, the program ends.
func (a *assembler) entry(m ioMaps) {
	good := a.fresh("fd")
	a.add(asm.JLT.Imm(asm.R8, maxFDs, good))
	a.count(m, lostFDs)
	a.add(asm.Ja.Label("out"))
	a.label(good)
	a.add(asm.StoreMem(asm.RFP, onKey, asm.R8, asm.DWord))
	a.lookup(m.fds, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"))
}

// useKey stores the key of a use: thread, descriptor, generation. It sets onMask.
func (a *assembler) useKey(m ioMaps) {
	a.add(asm.LoadMapValue(asm.R2, m.mask, 0), asm.LoadMem(asm.R2, asm.R2, 0, asm.DWord), asm.StoreMem(asm.RFP, onMask, asm.R2, asm.DWord))
	for i, off := range []int{recTID, recFD, recGen} {
		a.get(asm.R1, off, asm.Word)
		if off == recTID {
			a.add(asm.And.Reg(asm.R1, asm.R2))
		}
		a.add(asm.StoreMem(asm.RFP, int16(onUse+4*i), asm.R1, asm.Word))
	}
	a.add(asm.StoreImm(asm.RFP, onUse+12, 0, asm.Word))
}

// use sets R8 to the sums of the thread on the descriptor of the call, or of side s of a move, which it makes if
// there are none.
func (a *assembler) use(m ioMaps, l *layout, s *side) {
	if s == nil {
		a.descriptor(m)
	} else {
		a.add(asm.LoadMem(asm.R8, asm.RFP, onOwn, asm.Word))
		a.holds(m)
	}
	a.add(asm.LoadMem(asm.R1, asm.R0, fdGen, asm.Word), asm.LoadMem(asm.R2, asm.R0, fdNames, asm.Word), asm.StoreMem(asm.RFP, onNames, asm.R2, asm.DWord))
	a.put(recGen, asm.R1, asm.Word)
	a.useKey(m)
	a.lookup(m.uses, onUse)
	a.add(asm.JNE.Imm(asm.R0, 0, "use"))
	a.inode(l)
	a.add(storeWord(asm.RFP, onKey, 0))
	a.lookup(m.zero, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R3, asm.R0), asm.LoadMapPtr(asm.R1, m.uses), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, onUse),
		asm.Mov.Imm(asm.R4, 1), asm.FnMapUpdateElem.Call(), asm.JEq.Imm(asm.R0, 0, "added"), asm.JEq.Imm(asm.R0, -17, "exists")) // BPF_NOEXIST, EEXIST
	a.count(m, lostUses)
	a.add(asm.Ja.Label("out"))
	a.label("exists") // another thread, which shares the sums, was first
	a.lookup(m.uses, onUse)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Ja.Label("use"))
	a.label("added")
	a.add(asm.StoreMem(asm.RFP, onKey, asm.R8, asm.DWord))
	a.lookup(m.fds, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.Word, fdUsers))
	a.lookup(m.uses, onUse)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord), asm.StoreMem(asm.R0, useMode, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, onTID, asm.Word), asm.StoreMem(asm.R0, useTID, asm.R1, asm.Word))
	a.label("use")
	a.add(asm.Mov.Reg(asm.R8, asm.R0), asm.LoadMem(asm.R1, asm.R8, useTID, asm.Word), asm.LoadMem(asm.R2, asm.RFP, onTID, asm.Word),
		asm.JEq.Reg(asm.R1, asm.R2, "alone"), asm.StoreImm(asm.R8, useTID, 0, asm.Word))
	a.label("alone")
	a.add(asm.LoadMem(asm.R1, asm.R8, useMode, asm.Word))
	a.put(recMode, asm.R1, asm.Word)
	a.set(recSize, -1, asm.DWord)
	a.histogram()
}

// histogram counts the duration: see iowatch.Bucket.
func (a *assembler) histogram() {
	a.get(asm.R1, recBusy, asm.DWord)
	a.add(asm.Mov.Imm(asm.R2, 0), asm.JLT.Imm(asm.R1, 2, "bucket"), asm.Mov.Reg(asm.R3, asm.R1), asm.RSh.Imm(asm.R3, 32), asm.JEq.Imm(asm.R3, 0, "log"),
		asm.Mov.Imm(asm.R2, iowatch.Buckets-1), asm.Ja.Label("bucket"))
	a.label("log")
	a.add(asm.Mov.Reg(asm.R3, asm.R1))
	for _, n := range []int32{16, 8, 4, 2, 1} {
		less := a.fresh("less")
		a.add(asm.JLT.Imm(asm.R3, 1<<n, less), asm.RSh.Imm(asm.R3, n), asm.Add.Imm(asm.R2, n))
		a.label(less)
		a.add(asm.Mov.Imm(asm.R0, 0))
	}
	a.add(asm.Mov.Reg(asm.R4, asm.R2), asm.Sub.Imm(asm.R4, 1), asm.And.Imm(asm.R4, 31), asm.RSh.Reg(asm.R1, asm.R4), asm.And.Imm(asm.R1, 1),
		asm.LSh.Imm(asm.R2, 1), asm.Add.Reg(asm.R2, asm.R1))
	a.label("bucket")
	a.add(asm.And.Imm(asm.R2, iowatch.Buckets-1), asm.LSh.Imm(asm.R2, 2), asm.Mov.Reg(asm.R3, asm.R8), asm.Add.Reg(asm.R3, asm.R2), asm.Mov.Imm(asm.R1, 1))
	a.addTo(asm.R3, useHist, asm.R1, asm.Word)
}

// transfer adds a read, write or sync to the sums, and decides whether it gets a record. The sums are
// those of iowatch.Sums.Add. The requested bytes of side s of a move are at onWant.
func (a *assembler) transfer(c *ioConfig, m ioMaps, l *layout, s *side) {
	a.get(asm.R1, recBusy, asm.DWord)
	a.add(asm.JNE.Imm(asm.R6, classSync, "bytes"))
	a.more(useSync, asm.R1)
	a.most(useSyncMax, asm.R1)
	a.add(asm.LoadImm(asm.R2, int64(c.slow), asm.DWord), asm.Mov.Imm(asm.R3, 0), asm.JLE.Reg(asm.R1, asm.R2, "quick"), asm.Mov.Imm(asm.R3, 1))
	a.label("quick")
	a.add(asm.StoreMem(asm.RFP, onTmp, asm.R3, asm.DWord))
	a.add(asm.Mov.Imm(asm.R1, 1))
	a.more(useSyncs, asm.R1)
	a.set(recOp, int64(iowatch.OpSync), asm.Byte)
	a.add(asm.LoadMem(asm.R1, asm.R8, useWritten, asm.DWord))
	a.put(recWritten, asm.R1, asm.DWord)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.DWord), asm.JNE.Imm(asm.R1, 0, "stack"), asm.Ja.Label("limited"))

	a.label("bytes")
	a.missed(l)
	a.get(asm.R1, recBusy, asm.DWord)
	a.more(useTime, asm.R1)
	a.most(useLongest, asm.R1)
	// The run.
	a.get(asm.R3, recEnd, asm.DWord)
	a.add(asm.LoadMem(asm.R4, asm.R8, useLast, asm.DWord), asm.StoreMem(asm.R8, useLast, asm.R3, asm.DWord), asm.JEq.Imm(asm.R4, 0, "run"), asm.Sub.Reg(asm.R3, asm.R4),
		asm.LoadImm(asm.R4, int64(c.gap), asm.DWord), asm.JGE.Reg(asm.R3, asm.R4, "run"), asm.LoadMem(asm.R2, asm.R8, useRun, asm.DWord), asm.Add.Reg(asm.R1, asm.R2))
	a.label("run")
	a.add(asm.StoreMem(asm.R8, useRun, asm.R1, asm.DWord))
	a.most(useRunMax, asm.R1)
	// Bytes.
	a.get(asm.R4, recRet, asm.DWord)
	a.more(useGot, asm.R4)
	if s != nil {
		a.add(asm.LoadMem(asm.R3, asm.RFP, onWant, asm.DWord))
	} else {
		a.add(asm.Mov.Reg(asm.R3, asm.R4), asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classSized), asm.JEq.Imm(asm.R1, 0, "want"))
		a.arg(asm.R3, 2)
	}
	a.label("want")
	a.put(recWant, asm.R3, asm.DWord)
	a.more(useWant, asm.R3)
	a.most(useBuffer, asm.R3)
	a.add(asm.Mov.Imm(asm.R5, int32(iowatch.OpRead)), asm.JEq.Imm(asm.R6, classRead, "first"))
	a.more(useWritten, asm.R4)
	a.add(asm.Mov.Imm(asm.R1, 1))
	a.more(useWrites, asm.R1)
	a.add(asm.Mov.Imm(asm.R5, int32(iowatch.OpWrite)))
	a.label("first")
	a.put(recOp, asm.R5, asm.Byte)
	a.add(asm.LoadMem(asm.R1, asm.R8, useFirst, asm.Word), asm.JNE.Imm(asm.R1, 0, "operations"), asm.StoreMem(asm.R8, useFirst, asm.R5, asm.Word))
	a.label("operations")
	a.add(asm.Mov.Imm(asm.R1, 1))
	a.more(useOps, asm.R1)
	a.add(asm.LoadMem(asm.R5, asm.R8, useOps, asm.DWord))

	// Only files wait for storage. Threads that wait for a peer are idle.
	a.add(asm.LoadMem(asm.R1, asm.R8, useMode, asm.Word), asm.And.Imm(asm.R1, 0o170000), asm.JEq.Imm(asm.R1, 0o100000, "file"), asm.JEq.Imm(asm.R1, 0o140000, "socket"), asm.JNE.Imm(asm.R1, 0o060000, "message"))
	a.label("file")
	a.get(asm.R1, recBusy, asm.DWord)
	a.add(asm.LoadImm(asm.R2, int64(c.slow), asm.DWord), asm.JGT.Reg(asm.R1, asm.R2, "stack"),
		asm.JNE.Imm(asm.R5, int32(c.smallOps)+1, "one"))
	a.set(recOp, int64(iowatch.OpMark), asm.Byte) // one for many operations
	a.add(asm.Ja.Label("stack"))
	a.label("one")
	a.missStack()
	if s == nil || s.op == iowatch.OpNone {
		a.names(m)
	} else {
		a.label("socket")
	}
	if s == nil {
		a.message()
	} else {
		a.label("message")
	}
	a.label("each")
	if !c.each {
		a.add(asm.Ja.Label("out"))
		return
	}
	a.each(c, m)
}

// message goes to "both" or "made" if a message came with descriptors (SCM_RIGHTS, unix(7)), and else to
// "each". Of more than two, the others are found in /proc.
func (a *assembler) message() {
	const control, length, head = 32, 40, 16 // offsets in struct msghdr (include/linux/socket.h), size of struct cmsghdr
	user := func(to int, n int32, from int16, off int32) {
		a.add(asm.LoadMem(asm.R3, asm.RFP, from, asm.DWord), asm.Add.Imm(asm.R3, off), asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(to)),
			asm.Mov.Imm(asm.R2, n), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, "each"))
	}
	message := int16(onRegs + int(regArgs[1]))
	a.label("message")
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classMsg), asm.JEq.Imm(asm.R1, 0, "each"))
	user(onSize, 8, message, control)
	user(onMode, 8, message, length)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord), asm.JLT.Imm(asm.R1, head+4, "each"))
	user(onUse, head, onSize, 0)                                                           // length, level, type
	a.add(asm.LoadMem(asm.R1, asm.RFP, onUse+8, asm.Word), asm.JNE.Imm(asm.R1, 1, "each"), // SOL_SOCKET
		asm.LoadMem(asm.R1, asm.RFP, onUse+12, asm.Word), asm.JNE.Imm(asm.R1, 1, "each")) // SCM_RIGHTS
	user(onTmp, 4, onSize, head)
	a.set(recOp, int64(iowatch.OpMake), asm.Byte)
	a.set(recWant, 0, asm.DWord)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onUse, asm.DWord), asm.LoadMem(asm.R8, asm.RFP, onTmp, asm.Word), asm.JLT.Imm(asm.R1, head+8, "made"))
	user(onTmp, 8, onSize, head)
	a.add(asm.Ja.Label("both"))
}

// each writes a record without a stack, unless the thread has had too many in this second.
func (a *assembler) each(c *ioConfig, m ioMaps) {
	a.get(asm.R1, recBusy, asm.DWord)
	a.add(asm.LoadImm(asm.R2, int64(c.slower), asm.DWord), asm.JLT.Reg(asm.R1, asm.R2, "out"))
	a.window()
	a.add(asm.LoadMem(asm.R1, asm.R9, taskOps, asm.Word), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R9, taskOps, asm.R1, asm.Word),
		asm.JLE.Imm(asm.R1, opsLimit, "plain"))
	a.count(m, lostOps)
	a.add(asm.Ja.Label("out"))
}

// window begins a new second of the thread's limits if the last one is over.
func (a *assembler) window() {
	same := a.fresh("window")
	a.get(asm.R1, recEnd, asm.DWord)
	a.add(asm.LoadMem(asm.R2, asm.R9, taskWindow, asm.DWord), asm.Mov.Reg(asm.R3, asm.R1), asm.Sub.Reg(asm.R3, asm.R2), asm.JLT.Imm(asm.R3, 1_000_000_000, same),
		asm.StoreMem(asm.R9, taskWindow, asm.R1, asm.DWord))
	for _, counter := range []int16{taskStacks, taskSyncs, taskOps, taskFaults, taskMissed} {
		a.add(asm.StoreImm(asm.R9, counter, 0, asm.Word))
	}
	a.label(same)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// opened handles new descriptors.
func (a *assembler) opened(m ioMaps, l *layout) {
	a.label("pair")
	a.set(recOp, int64(iowatch.OpMake), asm.Byte)
	a.arg(asm.R3, 0)
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classPtr3), asm.JEq.Imm(asm.R1, 0, "two"))
	a.arg(asm.R3, 3)
	a.label("two")
	a.add(asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, onTmp), asm.Mov.Imm(asm.R2, 8), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, "out"))
	a.label("both")
	a.add(asm.LoadMem(asm.R8, asm.RFP, onTmp+4, asm.Word))
	a.put(recFD2, asm.R8, asm.Word)
	a.generation(m)
	a.put(recUsers, asm.R1, asm.Word)
	a.add(asm.LoadMem(asm.R8, asm.RFP, onTmp, asm.Word), asm.Ja.Label("made"))

	a.label("open")
	a.add(asm.LoadMem(asm.R8, asm.RFP, onHeader+recRet, asm.Word))
	a.set(recOp, int64(iowatch.OpMake), asm.Byte)
	a.arg(asm.R1, 0)
	a.put(recDir, asm.R1, asm.Word)
	// fcntl: F_DUPFD is 0, F_DUPFD_CLOEXEC 1030.
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classFcntl), asm.JEq.Imm(asm.R1, 0, "path"))
	a.add(asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+int(regArgs[1])), asm.Word), asm.JEq.Imm(asm.R1, 0, "made"), asm.JEq.Imm(asm.R1, 1030, "made"),
		asm.JEq.Imm(asm.R1, lockWait, "call"), asm.JEq.Imm(asm.R1, lockWaitOFD, "call"), asm.Ja.Label("out"))
	a.label("path")
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classSome), asm.JNE.Imm(asm.R1, 0, "some"),
		asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classPath0|classPath1), asm.JEq.Imm(asm.R1, 0, "made"))
	a.set(recOp, int64(iowatch.OpOpen), asm.Byte)
	a.arg(asm.R2, 2)
	a.add(asm.JEq.Imm(asm.R1, classPath1, "flags"))
	a.set(recDir, atCwd, asm.Word)
	a.arg(asm.R2, 1)
	a.label("flags")
	a.put(recWant, asm.R2, asm.DWord)
	a.label("made")
	a.put(recFD, asm.R8, asm.Word)
	a.generation(m)
	a.put(recGen, asm.R1, asm.Word)
	a.get(asm.R1, recOp, asm.Byte)
	a.get(asm.R2, recFD2, asm.Word)
	a.add(asm.JEq.Imm(asm.R1, int32(iowatch.OpOpen), "opened"), asm.JNE.Imm(asm.R2, 0, "replaced"))
	a.put(recUsers, asm.R3, asm.Word)
	a.add(asm.Ja.Label("replaced"))
	a.label("opened")
	a.put(recFD2, asm.R3, asm.Word)
	a.label("replaced")
	a.inode(l)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord))
	a.put(recMode, asm.R1, asm.Word)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord))
	a.put(recSize, asm.R1, asm.DWord)
	if l.cache != nil { // by which a page fault's file is known
		a.get(asm.R1, recOp, asm.Byte)
		a.add(asm.JNE.Imm(asm.R1, int32(iowatch.OpOpen), "limited"), asm.LoadMem(asm.R3, asm.RFP, onInode, asm.DWord), asm.JEq.Imm(asm.R3, 0, "limited"))
		a.identity(l.cache)
		a.add(asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord))
		a.put(recIno, asm.R1, asm.DWord)
		a.add(asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord))
		a.put(recDev, asm.R1, asm.Word)
	}
	a.add(asm.Ja.Label("limited"))
}

// atCwd is AT_FDCWD (include/uapi/linux/fcntl.h).
const atCwd = -100

// generation begins a new generation of descriptor R8, and sets R1 to it and R3 to how many threads have sums of the
// one before, if that was not closed by a call.
func (a *assembler) generation(m ioMaps) {
	a.entry(m)
	a.add(asm.LoadMem(asm.R1, asm.R0, fdGen, asm.Word), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, fdGen, asm.R1, asm.Word),
		asm.LoadMem(asm.R3, asm.R0, fdUsers, asm.Word), asm.StoreImm(asm.R0, fdUsers, 0, asm.Word), asm.StoreImm(asm.R0, fdNames, 0, asm.Word))
}

// connecting handles connect. One that does not wait goes on after the call.
func (a *assembler) connecting(m ioMaps) {
	a.label("connect")
	a.add(asm.JEq.Imm(asm.R1, 0, "peer"), asm.JNE.Imm(asm.R1, -inProgress, "out"))
	a.label("peer")
	a.set(recOp, int64(iowatch.OpConnect), asm.Byte)
	a.arg(asm.R3, 1)
	a.nameServer()
	a.descriptor(m)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.DWord), asm.StoreMem(asm.R0, fdNames, asm.R1, asm.Word), asm.LoadMem(asm.R1, asm.R0, fdGen, asm.Word))
	a.put(recGen, asm.R1, asm.Word)
	a.arg(asm.R1, 2)
	a.add(asm.And.Imm(asm.R1, maxAddr))
	a.put(recWant, asm.R1, asm.DWord)
	a.add(asm.Ja.Label("limited"))
}

// inProgress is EINPROGRESS (include/uapi/asm-generic/errno.h).
const inProgress = 115

// maxAddr is the largest size of a peer's address that is copied, and a mask.
const maxAddr = 127

// closing handles close. The sums of its thread go with the record.
func (a *assembler) closing(m ioMaps) {
	a.label("close")
	a.add(asm.JEq.Imm(asm.R1, -9, "out")) // EBADF
	a.set(recOp, int64(iowatch.OpClose), asm.Byte)
	a.descriptor(m)
	for _, x := range []struct {
		from int16
		to   int
		size asm.Size
	}{{taskGen, recGen, asm.Word}, {taskMode, recMode, asm.Word}, {taskSize, recSize, asm.DWord}, {taskUsers, recUsers, asm.Word}} {
		a.add(asm.LoadMem(asm.R1, asm.R9, x.from, x.size))
		a.put(x.to, asm.R1, x.size)
	}
	a.useKey(m)
	a.lookup(m.uses, onUse)
	a.add(asm.JEq.Imm(asm.R0, 0, "plain"), asm.Mov.Reg(asm.R8, asm.R0))
	a.set(recForm, formSums, asm.Byte)
	a.reserve(m, bytesSums)
	a.header()
	a.add(asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, recSums), asm.Mov.Imm(asm.R2, useBytes), asm.Mov.Reg(asm.R3, asm.R8), asm.FnProbeReadKernel.Call())
	a.submit()
	a.add(asm.LoadMapPtr(asm.R1, m.uses), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, onUse), asm.FnMapDeleteElem.Call(), asm.Ja.Label("out"))
}

// reserve sets R6 to room for a record.
func (a *assembler) reserve(m ioMaps, n int32) {
	good := a.fresh("room")
	a.add(asm.LoadMapPtr(asm.R1, m.ring), asm.Mov.Imm(asm.R2, n), asm.Mov.Imm(asm.R3, 0), asm.FnRingbufReserve.Call(), asm.JNE.Imm(asm.R0, 0, good))
	a.count(m, lostRecords)
	a.add(asm.Ja.Label("out"))
	a.label(good)
	a.add(asm.Mov.Reg(asm.R6, asm.R0))
}

// header copies the header to the record.
func (a *assembler) header() {
	for off := 0; off < recBytes; off += 8 {
		a.get(asm.R1, off, asm.DWord)
		a.add(asm.StoreMem(asm.R6, int16(off), asm.R1, asm.DWord))
	}
}

func (a *assembler) submit() {
	a.add(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, noWakeup), asm.FnRingbufSubmit.Call())
}

// path copies the path of an open into the record.
func (a *assembler) path() {
	done := a.fresh("path")
	a.add(storeWord(asm.R6, recPath, 0))
	a.get(asm.R1, recOp, asm.Byte)
	open := a.fresh("open")
	a.copyMessages(done)
	a.add(asm.JEq.Imm(asm.R1, int32(iowatch.OpOpen), open), asm.JEq.Imm(asm.R1, int32(iowatch.OpCall), open), asm.JNE.Imm(asm.R1, int32(iowatch.OpConnect), done))
	a.arg(asm.R3, 1)
	a.get(asm.R2, recWant, asm.DWord)
	a.add(asm.And.Imm(asm.R2, maxAddr), asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, recPath), asm.FnProbeReadUser.Call(), asm.Ja.Label(done))
	a.label(open)
	a.arg(asm.R3, 1)
	second := a.fresh("second")
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classPath1), asm.JNE.Imm(asm.R1, 0, second),
		asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classPath0), asm.JEq.Imm(asm.R1, 0, done))
	a.arg(asm.R3, 0)
	a.label(second)
	a.add(asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, recPath), asm.Mov.Imm(asm.R2, pathBytes), asm.FnProbeReadUserStr.Call())
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}
