package kernel

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// The programs of IO run at the beginning and the end of every system call. At the beginning they
// note the time of calls that are watched, and at the end they add to sums and write records.

// Sorts of system calls: the low byte of a class.
const (
	classNone  = iota
	classRead  // descriptor, buffer, size if classSized
	classWrite // the same
	classSync
	classOpen // the result is a new descriptor
	classClose
	classPoll // an event loop waits
	classPair // two new descriptors
	classRange
	classConnect // descriptor, address, size of the address
	classMap     // code of a file may be mapped: Wait returns
	classExec    // as is that of another program
	classSends   // descriptor, messages (struct mmsghdr); the result is their number
	classGets    // the same, of messages that came
	classChdir   // as classCall, but each has a record: paths are relative to that folder
	classMove    // bytes go from one descriptor to another: see moveArgs
	classCall    // another call on a path or, without one, on a descriptor: only slow ones have a record
)

// Further bits of a class.
const (
	classSized = 1 << 8  // argument 2 is the number of bytes
	classPath0 = 1 << 9  // argument 0 is a path, argument 1 has flags
	classPath1 = 1 << 10 // argument 1 is a path, argument 2 has flags
	classFcntl = 1 << 11 // only F_DUPFD and F_DUPFD_CLOEXEC
	classPtr0  = 1 << 12 // argument 0 is the address of two descriptors
	classPtr3  = 1 << 13 // argument 3 is
	classMsg   = 1 << 14 // argument 1 is a message, which may have descriptors
	classHead  = 1 << 15 // argument 1 is a message (struct msghdr), with its buffers and its address
	classVec   = 1 << 16 // argument 1 is a list of buffers
	classAddr  = 1 << 17 // argument 4 is an address
	classSome  = 1 << 18 // only some of these calls make a descriptor: see makes
)

// Bounds of the program.
const (
	maxCalls    = 512     // numbers of system calls
	maxFDs      = 1 << 16 // descriptors
	maxUses     = 1 << 14 // pairs of thread and descriptor
	maxTasks    = 1 << 14 // threads
	stacksLimit = 100     // stacks of one thread in a second for opens, and as many for syncs
	opsLimit    = 20_000  // records of quick reads and writes of one thread in a second
	loopPolls   = 10      // polls that make a thread an event loop
	shallow     = 8       // pages of stack
	deep        = 32
	maxHoles    = 8   // pages of a stack that cannot be read, before the copy ends
	redZone     = 128 // bytes below the stack pointer that a function may use
	maxExtras   = 16  // other pages of memory
	maxListed   = 96  // elements of a list
	pathBytes   = 256
	pageBytes   = 4096
)

// Value of the map of threads.
const (
	taskStart  = 0 // ns; 0: not in a watched call
	taskClass  = 8
	taskNr     = 16 // 32 bits
	taskPolls  = 20 // 32 bits
	taskWindow = 24 // begin of the second that stacks are counted in
	taskStacks = 32 // 32 bits
	taskGen    = 36 // 32 bits: of the descriptor that is being closed
	taskSize   = 40
	taskMode   = 48  // 32 bits
	taskUsers  = 52  // 32 bits
	taskSyncs  = 56  // 32 bits: as taskStacks, of syncs
	taskOps    = 60  // 32 bits: records of reads and writes in that second
	taskMiss   = 64  // voluntary switches plus 1 when this read put a page into the cache; 0: it did not
	taskAddAt  = 72  // when the thread put a page into the cache last; 0: not since the last fault
	taskAddIno = 80  // of which file
	taskAddDev = 88  // 32 bits
	taskFaults = 92  // 32 bits: as taskStacks, of page faults
	taskMissed = 96  // 32 bits: as taskStacks, of reads that waited
	taskQueued = 104 // ns in which the thread had waited for a CPU when the call began
	taskAddQ   = 112 // the same, when it put a page into the cache last
	taskYoung  = 120 // 1: Wait was woken for its first stack
	taskMissOf = 128 // inode number of the page of taskMiss

	// Of a call that further programs handle: see hand.
	taskEnd      = 136
	taskBusy     = 144
	taskWaited   = 152 // ns in which it waited for a CPU
	taskSwitches = 160 // as taskMiss, when it began
	taskBytes    = 168
)

// Value of the map of choices.
const (
	maskThread = 0  // of the threads' numbers in keys: see IO.Share
	maskYoung  = 8  // 1: see IO.Announce
	maskEach   = 16 // how many stacks of threads without a plan wake Wait, each of them
	maskBytes  = 24
)

// Value of the map of descriptors.
const (
	fdGen   = 0 // 32 bits
	fdUsers = 4 // 32 bits: threads with sums
	fdNames = 8 // 32 bits: 1 if its peer is a name server
	fdBytes = 16
)

// Value of the map of uses: see iowatch.Sums.
const (
	useOps      = 0
	useWrites   = 8
	useSyncs    = 16
	useWant     = 24
	useGot      = 32
	useWritten  = 40
	useTime     = 48
	useSync     = 56
	useLongest  = 64
	useRun      = 72
	useRunMax   = 80
	useLast     = 88
	useBuffer   = 96
	useFirst    = 104 // 32 bits
	useMode     = 108 // 32 bits
	useSyncMax  = 112
	useHist     = 120            // 64 times 32 bits
	useTID      = useHist + 64*4 // 32 bits: the thread; 0: there were several
	useMisses   = useTID + 8     // reads that waited for storage
	useMissTime = useMisses + 8
	useBytes    = useMissTime + 8
)

// Offsets in a record's header of 13 words.
const (
	recEnd     = 0
	recBusy    = 8  // ns without recQueued
	recTID     = 16 // 32 bits
	recOp      = 20 // 8 bits: iowatch.Op
	recLoop    = 21 // 8 bits
	recForm    = 22 // 8 bits
	recMissed  = 23 // 8 bits: the read waited for storage
	recFD      = 24 // 32 bits
	recGen     = 28 // 32 bits
	recWant    = 32 // of a connect: the size of the address, which is at recPath
	recRet     = 40 // of a fault: the address
	recMode    = 48 // 32 bits
	recNr      = 52 // 32 bits
	recSize    = 56
	recSP      = 64
	recWritten = 72
	recIno     = recWritten // of an open or a fault
	recFD2     = 80         // 32 bits; of an open as recUsers of the descriptor that had the number
	recUsers   = 84         // 32 bits; of a pair: generation of FD2; of another OpMake: see recFD2
	recDev     = recUsers   // 32 bits: of an open or a fault, as recIno
	recDir     = 88         // 32 bits: of an open, the folder's descriptor; of a dup or accept, argument 0
	recQueued  = 96         // ns in which the thread waited for a CPU
	recBytes   = 104

	recPath     = recBytes
	recSums     = recBytes
	recTLS      = recPath + pathBytes
	recBase     = recTLS + 8  // address of the first page of stack
	recPages    = recBase + 8 // 32 bits: which pages of stack were read
	recRegs     = recPages + 8
	recStack    = recRegs + regBlock
	recExtras   = recStack + deep*pageBytes // addresses, then pages
	recExtra0   = recExtras + maxExtras*8
	bytesPlain  = recBytes
	bytesPath   = recPath + pathBytes
	bytesSums   = recSums + useBytes
	bytesSmall  = recStack + shallow*pageBytes
	recDeep     = recExtra0 + maxExtras*pageBytes // see lnHead
	recListed   = recStack + shallow*pageBytes    // the same
	bytesMiddle = recStack + deep*pageBytes
	bytesDeep   = recDeep + lnLinks + maxListed*listedBytes + lnRoom
	bytesListed = recListed + lnLinks + maxListed*listedBytes + lnRoom
)

// Forms of a record.
const (
	formPlain = iota
	formPath
	formSums
	formSmall  // with path, registers and stack
	formMiddle // the same, with more of the stack
	formDeep   // the same, with other pages and a list
	formListed // as formSmall, with a list
)

// Value of the map of plans.
const (
	planPages = 0             // maxExtras addresses
	planLeft  = maxExtras * 8 // of the guess: how many stacks may use it
	planWakes = planLeft + 8  // how many further stacks wake Wait
	planList  = planWakes + 8 // see listBytes
	planBytes = planList + listBytes
)

// Places on the program's stack, from the frame pointer down.
const (
	onHeader = -recBytes
	onTID    = onHeader - 8
	onKey    = onTID - 8
	onUse    = onKey - 16
	onTmp    = onUse - 8
	onMode   = onTmp - 8
	onSize   = onMode - 8
	onMask   = onSize - 8  // of the threads' numbers in keys: see IO.Share
	onInode  = onMask - 8  // address of the inode that inode found; 0: none
	onNames  = onInode - 8 // 1: the descriptor's peer is a name server
	onCtx    = onNames - 8 // address of the call's registers
	onRegs   = onCtx - regBlock
	onSelf   = onRegs - 8 // the program's context: see after
	onOwn    = onSelf - 8 // descriptor of this side of a move
	onOther  = onOwn - 8
	onWant   = onOther - 8
)

// layout has offsets in the kernel's structures, from its type information.
type layout struct {
	files, fdt, maxFDs, fds, inode, mode, size, super, magic uint32
	tls                                                      uint32 // in task_struct; 0: not read
	queued                                                   uint32 // in task_struct: ns in which the thread waited for a CPU; 0: not read
	tgid, pid                                                uint32 // in task_struct
	opened                                                   uint32 // f_mode of file: how it was opened
	abilities
	cache *cacheLayout // nil: the page cache is not watched
}

// ioMaps are the maps of the programs.
type ioMaps struct {
	classes, tasks, fds, uses, zero, mask, stats, lost, plans, objects, ring, news, requests, rings, after int

	crowded int32 // bytes in the ring, beyond which only slow operations have stacks
}

// Indexes in the map of losses.
const (
	lostRecords = iota
	lostUses    // pairs of thread and descriptor without sums
	lostFDs     // calls with a descriptor beyond maxFDs
	lostTasks
	lostOps    // reads and writes without a record, beyond opsLimit
	lostFaults // page faults, the same
	lostStacks // opens and syncs, since the ring was crowded
	numLost
)

// ioConfig is the thresholds that the programs know.
type ioConfig struct {
	pid      uint32
	slow     uint64 // ns
	gap      uint64 // ns
	smallOps uint64
	each     bool   // reads and writes have records
	slower   uint64 // ns: those that take at least this long
}

// assembler collects instructions.
type assembler struct {
	code asm.Instructions
	at   string // label for the next instruction
	n    int
	// listed: the program has records of formListed. The kernel checks each program for some 0.1 s longer with them.
	listed bool
}

func (a *assembler) add(in ...asm.Instruction) {
	for _, i := range in {
		if a.at != "" {
			i = i.WithSymbol(a.at)
			a.at = ""
		}
		a.code = append(a.code, i)
	}
}

// label names the next instruction.
func (a *assembler) label(name string) {
	if a.at != "" {
		a.add(asm.Mov.Imm(asm.R0, 0)) // an instruction has one name
	}
	a.at = name
}

// fresh returns a label of its own.
func (a *assembler) fresh(name string) string {
	a.n++
	return fmt.Sprintf("%s_%d", name, a.n)
}

// lookup sets R0 to the value for the key on the stack.
func (a *assembler) lookup(fd, key int) {
	a.add(asm.LoadMapPtr(asm.R1, fd), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(key)), asm.FnMapLookupElem.Call())
}

// kernelRead reads n bytes at R3 + off to a place on the stack. A failed read gives zeros.
func (a *assembler) kernelRead(to int, n, off int32) {
	a.add(asm.Add.Imm(asm.R3, off), asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(to)), asm.Mov.Imm(asm.R2, n), asm.FnProbeReadKernel.Call())
}

// count adds to a counter of losses.
func (a *assembler) count(m ioMaps, which int) {
	done := a.fresh("counted")
	a.add(asm.StoreImm(asm.RFP, onKey, int64(which), asm.Word))
	a.lookup(m.lost, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, done), asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord))
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// inode reads mode and size of the file of descriptor R8 to onMode and onSize; 0 if that fails.
func (a *assembler) inode(l *layout) {
	if l.casts != nil {
		a.inodeDirect(l)
		return
	}
	done := a.fresh("inode")
	a.add(storeWord(asm.RFP, onMode, 0), storeWord(asm.RFP, onSize, 0), storeWord(asm.RFP, onInode, 0), asm.FnGetCurrentTask.Call(), asm.Mov.Reg(asm.R3, asm.R0))
	follow := func(off uint32) {
		a.kernelRead(onTmp, 8, int32(off))
		a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord))
	}
	follow(l.files)
	follow(l.fdt)
	a.add(asm.StoreMem(asm.RFP, onSize, asm.R3, asm.DWord), storeWord(asm.RFP, onTmp, 0))
	a.kernelRead(onTmp, 4, int32(l.maxFDs))
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.DWord), asm.LoadMem(asm.R3, asm.RFP, onSize, asm.DWord), storeWord(asm.RFP, onSize, 0),
		asm.JGE.Reg(asm.R8, asm.R1, done))
	follow(l.fds)
	a.add(asm.Mov.Reg(asm.R1, asm.R8), asm.LSh.Imm(asm.R1, 3), asm.Add.Reg(asm.R3, asm.R1))
	follow(0)
	a.add(asm.JEq.Imm(asm.R3, 0, done))
	follow(l.inode)
	a.add(asm.StoreMem(asm.RFP, onInode, asm.R3, asm.DWord))
	a.kernelRead(onMode, 2, int32(l.mode))
	a.add(asm.LoadMem(asm.R3, asm.RFP, onInode, asm.DWord))
	a.kernelRead(onSize, 8, int32(l.size))
	// Anonymous inodes are regular files for the kernel itself since Linux 6.16.
	a.add(asm.LoadMem(asm.R3, asm.RFP, onInode, asm.DWord))
	follow(l.super)
	follow(l.magic)
	a.anonymous(asm.R3, done)
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// anonMagic is ANON_INODE_FS_MAGIC, and pidMagic PID_FS_MAGIC (include/uapi/linux/magic.h).
const anonMagic, pidMagic = 0x09041934, 0x50494446

// anonymous sets the mode to one without a type if the file system in a register is that of anonymous inodes or, since
// Linux 6.9, of pidfds. Else it goes to a label.
func (a *assembler) anonymous(magic asm.Register, other string) {
	is := a.fresh("anonymous")
	a.add(asm.JEq.Imm(magic, anonMagic, is), asm.JNE.Imm(magic, pidMagic, other))
	a.label(is)
	a.add(storeWord(asm.RFP, onMode, 0o600))
}

// own begins a program: R6 is the context. Other processes leave at once.
func (a *assembler) own(pid uint32, l *layout) {
	if l.typed {
		a.add(asm.Mov.Reg(asm.R6, asm.R1), asm.FnGetCurrentTaskBtf.Call(), asm.LoadMem(asm.R1, asm.R0, int16(l.tgid), asm.Word), asm.JNE.Imm(asm.R1, int32(pid), "out"),
			asm.LoadMem(asm.R1, asm.R0, int16(l.pid), asm.Word), asm.StoreMem(asm.RFP, onTID, asm.R1, asm.DWord))
		return
	}
	a.add(asm.Mov.Reg(asm.R6, asm.R1), asm.FnGetCurrentPidTgid.Call(), storeWord(asm.RFP, onTID, 0),
		asm.StoreMem(asm.RFP, onTID, asm.R0, asm.Word), asm.RSh.Imm(asm.R0, 32), asm.JNE.Imm(asm.R0, int32(pid), "out"))
}

// class sets R7 to the class of the call that begins. Without one, the program ends.
func (a *assembler) class(m ioMaps) {
	a.add(asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), asm.StoreMem(asm.RFP, onKey, asm.R1, asm.DWord), asm.JGE.Imm(asm.R1, maxCalls, "out"))
	a.lookup(m.classes, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord), asm.JEq.Imm(asm.R7, classNone, "out"))
}

// task sets R9 to the value of the thread, which is made if make is set.
func (a *assembler) task(m ioMaps, l *layout, make bool) {
	if l.storage {
		a.stored(m, make)
		return
	}
	a.lookup(m.tasks, onTID)
	if make {
		a.add(asm.JNE.Imm(asm.R0, 0, "known"), storeWord(asm.RFP, onKey, 0))
		a.lookup(m.zero, onKey)
		a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R3, asm.R0), asm.LoadMapPtr(asm.R1, m.tasks), asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, onTID), asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(), asm.JEq.Imm(asm.R0, 0, "made"))
		a.count(m, lostTasks)
		a.add(asm.Ja.Label("out"))
		a.label("made")
		a.lookup(m.tasks, onTID)
		a.add(asm.JEq.Imm(asm.R0, 0, "out"))
		a.label("known")
	} else {
		a.add(asm.JEq.Imm(asm.R0, 0, "out"))
	}
	a.add(asm.Mov.Reg(asm.R9, asm.R0))
}

func (a *assembler) end() asm.Instructions {
	a.label("out")
	a.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return a.code
}

// entry is the program at the beginning of a call.
func entry(c *ioConfig, m ioMaps, l *layout) asm.Instructions {
	a := &assembler{}
	a.own(c.pid, l)
	a.class(m)
	a.task(m, l, true)
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, 0xff), asm.JNE.Imm(asm.R1, classPoll, "timed"),
		asm.LoadMem(asm.R1, asm.R9, taskPolls, asm.Word), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R9, taskPolls, asm.R1, asm.Word), asm.Ja.Label("out"))
	a.label("timed")
	a.add(asm.StoreMem(asm.R9, taskClass, asm.R7, asm.DWord), asm.LoadMem(asm.R2, asm.R6, 8, asm.DWord), asm.StoreMem(asm.R9, taskNr, asm.R2, asm.Word),
		asm.JNE.Imm(asm.R1, classClose, "start"))
	// Before close, since another thread may have the number again before close has returned.
	a.add(asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord), asm.StoreMem(asm.RFP, onCtx, asm.R3, asm.DWord))
	a.callRegisters(l)
	a.add(asm.LoadMem(asm.R8, asm.RFP, int16(onRegs+int(regArgs[0])), asm.Word), asm.JGE.Imm(asm.R8, maxFDs, "start"), asm.StoreMem(asm.RFP, onKey, asm.R8, asm.DWord))
	a.lookup(m.fds, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "start"), asm.LoadMem(asm.R1, asm.R0, fdGen, asm.Word), asm.StoreMem(asm.R9, taskGen, asm.R1, asm.Word),
		asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, fdGen, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.R0, fdUsers, asm.Word), asm.StoreMem(asm.R9, taskUsers, asm.R1, asm.Word), asm.StoreImm(asm.R0, fdUsers, 0, asm.Word))
	a.inode(l)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord), asm.StoreMem(asm.R9, taskMode, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord), asm.StoreMem(asm.R9, taskSize, asm.R1, asm.DWord))
	a.label("start")
	a.add(storeWord(asm.R9, taskMiss, 0))
	a.movesBegin(l)
	a.queued(l)
	a.add(asm.StoreMem(asm.R9, taskQueued, asm.R0, asm.DWord), asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.R9, taskStart, asm.R0, asm.DWord))
	return a.end()
}

// queued sets R0 to the ns in which the thread has waited for a CPU so far, by the scheduler's account
// (sched_info.run_delay, include/linux/sched.h); 0 if the kernel has none.
func (a *assembler) queued(l *layout) {
	switch {
	case l.queued == 0:
		a.add(asm.Mov.Imm(asm.R0, 0))
	case l.typed:
		a.add(asm.FnGetCurrentTaskBtf.Call(), asm.LoadMem(asm.R0, asm.R0, int16(l.queued), asm.DWord))
	default:
		a.add(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(asm.R3, asm.R0), storeWord(asm.RFP, onTmp, 0))
		a.kernelRead(onTmp, 8, int32(l.queued))
		a.add(asm.LoadMem(asm.R0, asm.RFP, onTmp, asm.DWord))
	}
}

// busy takes the wait for a CPU since an earlier reading, which is in the thread's value, out of recBusy: a
// call is slow because of what it does.
func (a *assembler) busy(l *layout, since int16) {
	if l.queued == 0 {
		return
	}
	most := a.fresh("queued")
	a.queued(l)
	a.add(asm.LoadMem(asm.R1, asm.R9, since, asm.DWord), asm.Sub.Reg(asm.R0, asm.R1))
	a.get(asm.R1, recBusy, asm.DWord)
	a.add(asm.JLE.Reg(asm.R0, asm.R1, most), asm.Mov.Reg(asm.R0, asm.R1)) // two clocks
	a.label(most)
	a.put(recQueued, asm.R0, asm.DWord)
	a.add(asm.Sub.Reg(asm.R1, asm.R0))
	a.put(recBusy, asm.R1, asm.DWord)
}

// storeWord stores a constant of 64 bits. The library has no function for that, because a compiler
// would not make it; the instruction exists since the beginning (BPF_ST | BPF_MEM | BPF_DW).
func storeWord(to asm.Register, off int16, v int32) asm.Instruction {
	return asm.Instruction{OpCode: asm.StoreImmOp(asm.DWord), Dst: to, Offset: off, Constant: int64(v)}
}
