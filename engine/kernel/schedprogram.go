package kernel

import (
	"github.com/cilium/ebpf/asm"
)

// Value of a thread. The first schedRecBytes bytes are the record.
const (
	swOut     = 0  // ns; 0: it is on a CPU, or unknown
	swWake    = 8  // ns; 0: not woken
	swIn      = 16 // ns
	swTID     = 24 // 32 bits
	swState   = 28 // 16 bits: SwitchState
	swBy      = 30 // 8 bits: byHard, bySoft
	swFlags   = 31 // 8 bits: swFull, swRate, swEnded
	swWaker   = 32 // 32 bits thread, 32 bits process
	swSkipped = 40
	swAsleep  = 48 // ns of those
	swQueued  = 56 // ns of those
	swComm    = 64 // 16 bytes

	swWindow = 80 // when the present window began, ns
	swCount  = 88 // 32 bits: records in it
)

const (
	swFull  = 1
	swRate  = 2
	swEnded = 4

	byHard  = 1
	bySoft  = 2
	byTimer = 4
)

// Value of a CPU.
const (
	cpuWindow     = 0
	cpuCount      = 8
	cpuFull       = 16
	cpuTasks      = 24
	cpuEnds       = 32
	cpuTimer      = 40 // 1: a timer's function runs
	cpuHard       = 48 // 1: a device's interrupt is handled
	cpuSoft       = 56 // number of the deferred work that runs, plus 1
	cpuStacks     = 64 // stacks of waits that were not recorded
	schedCPUBytes = 72
)

// Places on the stack of the programs.
const (
	schedKey  = -8
	schedZero = -16
	schedSlot = -24
	schedCopy = -32 // pointer to the value of sched_stack
)

// schedPrograms are the parameters of both programs.
type schedPrograms struct {
	pid               int32
	l                 *schedLayout
	tasks, cpu, ring  int
	perThread, perCPU int32
	stack             int   // map for a record with a stack
	after             int64 // ns; waits of at least that have their stacks. 0: none has
}

// find sets R9 to the value of the thread whose number is at schedKey. Its place in the array is one of two that
// its number gives; the first look finds nearly all. If both are taken by other threads, it goes to a label.
func (p *schedPrograms) find(a *assembler, fail string) {
	found, first, take := a.fresh("found"), a.fresh("first"), a.fresh("take")
	slot := func(way int) {
		a.add(asm.LoadMem(asm.R1, asm.RFP, schedKey, asm.DWord))
		if way == 1 {
			a.add(asm.Mul.Imm(asm.R1, schedHash), asm.RSh.Imm(asm.R1, schedHashShift))
		}
		a.add(asm.And.Imm(asm.R1, maxSchedTasks-1), asm.StoreMem(asm.RFP, schedSlot, asm.R1, asm.DWord))
		a.lookup(p.tasks, schedSlot)
		a.add(asm.JEq.Imm(asm.R0, 0, fail), asm.Mov.Reg(asm.R9, asm.R0), asm.LoadMem(asm.R1, asm.R9, swTID, asm.Word), asm.LoadMem(asm.R2, asm.RFP, schedKey, asm.DWord),
			asm.JEq.Reg(asm.R1, asm.R2, found))
	}
	slot(0)
	a.add(asm.StoreMem(asm.RFP, schedZero, asm.R1, asm.DWord))
	slot(1)
	// It has none yet.
	a.add(asm.LoadMem(asm.R3, asm.RFP, schedZero, asm.DWord), asm.JEq.Imm(asm.R3, 0, first), asm.JEq.Imm(asm.R1, 0, take))
	p.bump(a, cpuTasks)
	a.add(asm.Ja.Label(fail))
	a.label(first)
	slot(0)
	a.label(take)
	a.add(asm.LoadMem(asm.R2, asm.RFP, schedKey, asm.DWord))
	for off := int16(0); off < schedTaskBytes; off += 8 {
		a.add(storeWord(asm.R9, off, 0))
	}
	a.add(asm.StoreMem(asm.R9, swTID, asm.R2, asm.Word))
	a.label(found)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// Second place of a thread.
const (
	schedHash      = 0x61c88647 // of include/linux/hash.h
	schedHashShift = 16
)

// bump adds one to a counter of this CPU.
func (p *schedPrograms) bump(a *assembler, counter int16) {
	done := a.fresh("bumped")
	a.add(storeWord(asm.RFP, schedZero, 0))
	a.lookup(p.cpu, schedZero)
	a.add(asm.JEq.Imm(asm.R0, 0, done), asm.LoadMem(asm.R1, asm.R0, counter, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, counter, asm.R1, asm.DWord))
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// window counts a record in the window of the value at a register, at the offsets of its beginning and its
// count, and goes to a label if there are more than most. Now is R8. It changes R1 and R2.
func window(a *assembler, v asm.Register, began, count int16, size asm.Size, most int32, over string) {
	same := a.fresh("window")
	a.add(asm.LoadMem(asm.R1, v, began, asm.DWord), asm.Mov.Reg(asm.R2, asm.R8), asm.Sub.Reg(asm.R2, asm.R1),
		asm.JLT.Imm(asm.R2, int32(schedWindow), same), asm.StoreMem(v, began, asm.R8, asm.DWord), asm.StoreImm(v, count, 0, asm.Word))
	if size == asm.DWord {
		a.add(storeWord(v, count, 0))
	}
	a.label(same)
	a.add(asm.LoadMem(asm.R1, v, count, size), asm.JGE.Imm(asm.R1, most, over), asm.Add.Imm(asm.R1, 1), asm.StoreMem(v, count, asm.R1, size))
}

// waking is the program at the beginning of a wake-up, in the context of the thread that wakes. Its argument is
// the thread that is woken. A thread that sleeps is woken once; a wake-up that comes before a sleep is replaced
// by the one that ends it.
func (p *schedPrograms) waking() asm.Instructions {
	a := &assembler{}
	l := p.l
	a.add(asm.LoadMem(asm.R7, asm.R1, 0, asm.DWord), asm.LoadMem(asm.R1, asm.R7, int16(l.tgid), asm.Word), asm.JNE.Imm(asm.R1, p.pid, "out"),
		asm.LoadMem(asm.R1, asm.R7, int16(l.pid), asm.Word), asm.StoreMem(asm.RFP, schedKey, asm.R1, asm.DWord))
	p.find(a, "out")
	a.add(asm.LoadMem(asm.R1, asm.R9, swOut, asm.DWord), asm.LoadMem(asm.R2, asm.R9, swIn, asm.DWord), asm.Or.Reg(asm.R1, asm.R2), asm.JNE.Imm(asm.R1, 0, "known"),
		// It has slept since before the recording.
		asm.LoadMem(asm.R1, asm.R7, int16(l.state), asm.Word), asm.StoreMem(asm.R9, swState, asm.R1, asm.Half))
	a.label("known")
	a.add(asm.FnGetCurrentPidTgid.Call(), asm.StoreMem(asm.R9, swWaker, asm.R0, asm.Word), asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.R9, swWaker+4, asm.R0, asm.Word),
		asm.Mov.Imm(asm.R7, 0), asm.JEq.Imm(asm.R0, p.pid, "named"), // the recording has the names of these
		asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Imm(asm.R1, swComm), asm.Mov.Imm(asm.R2, 16), asm.FnGetCurrentComm.Call())
	a.label("named")
	a.add(storeWord(asm.RFP, schedZero, 0))
	a.lookup(p.cpu, schedZero)
	a.add(asm.JEq.Imm(asm.R0, 0, "store"), asm.LoadMem(asm.R7, asm.R0, cpuHard, asm.DWord), asm.LoadMem(asm.R1, asm.R0, cpuTimer, asm.DWord), asm.JEq.Imm(asm.R1, 0, "soft"),
		asm.Or.Imm(asm.R7, byHard|byTimer))
	a.label("soft")
	a.add(asm.LoadMem(asm.R1, asm.R0, cpuSoft, asm.DWord), asm.JEq.Imm(asm.R1, 0, "store"), asm.Or.Imm(asm.R7, bySoft),
		asm.JEq.Imm(asm.R1, softTimer+1, "timer"), asm.JNE.Imm(asm.R1, softHRTimer+1, "store"))
	a.label("timer")
	a.add(asm.Or.Imm(asm.R7, byTimer))
	a.label("store")
	a.add(asm.StoreMem(asm.R9, swBy, asm.R7, asm.Byte), asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.R9, swWake, asm.R0, asm.DWord))
	return a.end()
}

// switches is the program at a switch. Both threads may be of the process.
func (p *schedPrograms) switches() asm.Instructions {
	a := &assembler{}
	a.add(asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R8, 0), storeWord(asm.RFP, schedZero, 0))
	a.lookup(p.cpu, schedZero)
	a.add(asm.JEq.Imm(asm.R0, 0, "leaves"))
	// No interrupt is handled while threads are switched: the end of one may have been missed.
	for _, flag := range []int16{cpuTimer, cpuHard, cpuSoft} {
		a.add(storeWord(asm.R0, flag, 0))
	}
	a.label("leaves")
	p.leaves(a)
	p.enters(a)
	return a.end()
}

// leaves notes when and how the previous thread left.
func (p *schedPrograms) leaves(a *assembler) {
	l := p.l
	a.add(asm.LoadMem(asm.R7, asm.R6, l.prev, asm.DWord), asm.LoadMem(asm.R1, asm.R7, int16(l.tgid), asm.Word), asm.JNE.Imm(asm.R1, p.pid, "next"),
		asm.LoadMem(asm.R1, asm.R7, int16(l.pid), asm.Word), asm.StoreMem(asm.RFP, schedKey, asm.R1, asm.DWord))
	p.find(a, "next")
	a.add(asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R8, asm.R0), asm.StoreMem(asm.R9, swOut, asm.R0, asm.DWord))
	if l.prevState >= 0 {
		a.add(asm.LoadMem(asm.R1, asm.R6, l.prevState, asm.DWord))
	} else {
		a.add(asm.LoadMem(asm.R1, asm.R7, int16(l.state), asm.Word))
	}
	// A preempted thread keeps the state that it was about to sleep with.
	a.add(asm.LoadMem(asm.R2, asm.R6, 0, asm.DWord), asm.And.Imm(asm.R2, 0xff), asm.JEq.Imm(asm.R2, 0, "state"), asm.Mov.Imm(asm.R1, 0))
	a.label("state")
	a.add(asm.StoreMem(asm.R9, swState, asm.R1, asm.Half), asm.And.Imm(asm.R1, int32(switchDead)), asm.JEq.Imm(asm.R1, 0, "next"))
	// It has ended.
	a.add(asm.LoadMem(asm.R1, asm.R9, swFlags, asm.Byte), asm.Or.Imm(asm.R1, swEnded), asm.StoreMem(asm.R9, swFlags, asm.R1, asm.Byte))
	a.add(storeWord(asm.RFP, schedZero, 0))
	a.lookup(p.cpu, schedZero)
	a.add(asm.JEq.Imm(asm.R0, 0, "delete"))
	window(a, asm.R0, cpuWindow, cpuCount, asm.DWord, p.perCPU, "unsaid")
	p.output(a)
	a.add(asm.JEq.Imm(asm.R0, 0, "delete"))
	a.label("unsaid")
	p.bump(a, cpuEnds)
	a.label("delete")
	a.add(asm.StoreImm(asm.R9, swTID, 0, asm.Word)) // its place is free
}

// output writes the record at R9 into the ring; R0 is 0 if that worked.
func (p *schedPrograms) output(a *assembler) {
	a.add(asm.LoadMapPtr(asm.R1, p.ring), asm.Mov.Reg(asm.R2, asm.R9), asm.Mov.Imm(asm.R3, schedRecBytes), asm.Mov.Imm(asm.R4, noWakeup), asm.FnRingbufOutput.Call())
}

// withStack writes the record at R9 with the kernel's part of the stack of the thread at R7, if its wait was long
// enough, and goes to the label sent. The thread has not run since it left, and is not on a CPU yet: its stack is the
// one that it waited with. So short waits cost nothing. Without a stack, or room for it, the program goes on.
func (p *schedPrograms) withStack(a *assembler) {
	if p.after <= 0 {
		return
	}
	a.add(asm.LoadMem(asm.R1, asm.R9, swState, asm.Half), asm.JEq.Imm(asm.R1, 0, "plain"), // preempted
		asm.LoadMem(asm.R1, asm.R9, swOut, asm.DWord), asm.Mov.Reg(asm.R2, asm.R8), asm.Sub.Reg(asm.R2, asm.R1),
		asm.LoadImm(asm.R1, p.after, asm.DWord), asm.JLT.Reg(asm.R2, asm.R1, "plain"), storeWord(asm.RFP, schedZero, 0))
	a.lookup(p.stack, schedZero)
	a.add(asm.JEq.Imm(asm.R0, 0, "plain"), asm.StoreMem(asm.RFP, schedCopy, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R7), asm.Mov.Reg(asm.R2, asm.R0), asm.Add.Imm(asm.R2, schedRecBytes), asm.Mov.Imm(asm.R3, maxKernelFrames*8), asm.Mov.Imm(asm.R4, 0),
		asm.FnGetTaskStack.Call(), asm.JSLE.Imm(asm.R0, 0, "unknown"), asm.JGT.Imm(asm.R0, maxKernelFrames*8, "unknown"),
		asm.Mov.Reg(asm.R3, asm.R0), asm.Add.Imm(asm.R3, schedRecBytes), asm.LoadMem(asm.R2, asm.RFP, schedCopy, asm.DWord))
	for off := int16(0); off < schedRecBytes; off += 8 {
		a.add(asm.LoadMem(asm.R1, asm.R9, off, asm.DWord), asm.StoreMem(asm.R2, off, asm.R1, asm.DWord))
	}
	a.add(asm.LoadMapPtr(asm.R1, p.ring), asm.Mov.Imm(asm.R4, noWakeup), asm.FnRingbufOutput.Call(), asm.JEq.Imm(asm.R0, 0, "sent"))
	a.label("unknown")
	p.bump(a, cpuStacks)
	a.label("plain")
}

// enters writes the record of the next thread, or adds the time to its sums.
func (p *schedPrograms) enters(a *assembler) {
	l := p.l
	a.label("next")
	a.add(asm.LoadMem(asm.R7, asm.R6, l.next, asm.DWord), asm.LoadMem(asm.R1, asm.R7, int16(l.tgid), asm.Word), asm.JNE.Imm(asm.R1, p.pid, "out"),
		asm.LoadMem(asm.R1, asm.R7, int16(l.pid), asm.Word), asm.StoreMem(asm.RFP, schedKey, asm.R1, asm.DWord))
	p.find(a, "out")
	a.add(asm.JNE.Imm(asm.R8, 0, "timed"), asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R8, asm.R0))
	a.label("timed")
	a.add(asm.StoreMem(asm.R9, swIn, asm.R8, asm.DWord),
		asm.LoadMem(asm.R3, asm.R9, swOut, asm.DWord), asm.LoadMem(asm.R1, asm.R9, swWake, asm.DWord), asm.Or.Reg(asm.R1, asm.R3), asm.JEq.Imm(asm.R1, 0, "out"), // unknown
		asm.Mov.Reg(asm.R1, asm.R8), asm.Sub.Reg(asm.R1, asm.R3), asm.JGE.Imm(asm.R1, int32(schedLong), "long"))
	window(a, asm.R9, swWindow, swCount, asm.Word, p.perThread, "rate")
	a.label("long")
	a.add(storeWord(asm.RFP, schedZero, 0))
	a.lookup(p.cpu, schedZero)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"))
	window(a, asm.R0, cpuWindow, cpuCount, asm.DWord, p.perCPU, "rate")
	p.withStack(a)
	p.output(a)
	a.add(asm.JNE.Imm(asm.R0, 0, "full"))
	a.label("sent")
	a.add(storeWord(asm.R9, swSkipped, 0), storeWord(asm.R9, swAsleep, 0), storeWord(asm.R9, swQueued, 0),
		asm.StoreImm(asm.R9, swFlags, 0, asm.Byte), asm.Ja.Label("begin"))
	a.label("full")
	a.add(asm.Mov.Imm(asm.R7, swFull))
	p.bump(a, cpuFull)
	a.add(asm.Ja.Label("skip"))
	a.label("rate")
	a.add(asm.Mov.Imm(asm.R7, swRate))
	// R1 is when it became ready: of a preempted thread at once.
	a.label("skip")
	a.add(asm.LoadMem(asm.R2, asm.R9, swFlags, asm.Byte), asm.Or.Reg(asm.R2, asm.R7), asm.StoreMem(asm.R9, swFlags, asm.R2, asm.Byte),
		asm.LoadMem(asm.R2, asm.R9, swSkipped, asm.DWord), asm.Add.Imm(asm.R2, 1), asm.StoreMem(asm.R9, swSkipped, asm.R2, asm.DWord),
		asm.LoadMem(asm.R3, asm.R9, swOut, asm.DWord), asm.JEq.Imm(asm.R3, 0, "begin"), // the time before the recording is not known
		asm.Mov.Reg(asm.R1, asm.R3), asm.LoadMem(asm.R2, asm.R9, swState, asm.Half), asm.JEq.Imm(asm.R2, 0, "ready"),
		asm.LoadMem(asm.R2, asm.R9, swWake, asm.DWord), asm.JLE.Reg(asm.R2, asm.R3, "ready"), asm.JGT.Reg(asm.R2, asm.R8, "ready"), asm.Mov.Reg(asm.R1, asm.R2))
	a.label("ready")
	a.add(asm.Mov.Reg(asm.R2, asm.R1), asm.Sub.Reg(asm.R2, asm.R3), asm.LoadMem(asm.R4, asm.R9, swAsleep, asm.DWord), asm.Add.Reg(asm.R4, asm.R2), asm.StoreMem(asm.R9, swAsleep, asm.R4, asm.DWord),
		asm.Sub.Reg(asm.R8, asm.R1), asm.LoadMem(asm.R4, asm.R9, swQueued, asm.DWord), asm.Add.Reg(asm.R4, asm.R8), asm.StoreMem(asm.R9, swQueued, asm.R4, asm.DWord))
	a.label("begin")
	a.add(storeWord(asm.R9, swOut, 0), storeWord(asm.R9, swWake, 0))
}

// Deferred work of timers (enum in include/linux/interrupt.h).
const (
	softTimer   = 1
	softHRTimer = 8
)

// interrupts are the tracepoints between which a CPU is in an interrupt. Nothing else that is always there shows
// a program in which context it runs.
var interrupts = []struct {
	name string
	flag int16
	on   bool
}{
	{"hrtimer_expire_entry", cpuTimer, true}, {"hrtimer_expire_exit", cpuTimer, false},
	{"irq_handler_entry", cpuHard, true}, {"irq_handler_exit", cpuHard, false},
	{"softirq_entry", cpuSoft, true}, {"softirq_exit", cpuSoft, false},
}

// interrupt is the program at one of them.
func (p *schedPrograms) interrupt(flag int16, on bool) asm.Instructions {
	a := &assembler{}
	a.add(asm.Mov.Reg(asm.R6, asm.R1), storeWord(asm.RFP, schedZero, 0))
	a.lookup(p.cpu, schedZero)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Imm(asm.R1, 0))
	switch {
	case on && flag == cpuSoft:
		a.add(asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord), asm.And.Imm(asm.R1, 0xff), asm.Add.Imm(asm.R1, 1))
	case on:
		a.add(asm.Mov.Imm(asm.R1, 1))
	}
	a.add(asm.StoreMem(asm.R0, flag, asm.R1, asm.DWord))
	return a.end()
}
