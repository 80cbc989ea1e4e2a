package kernel

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/iowatch"
)

// Some calls are more than one operation on one descriptor: those that move bytes from one descriptor to
// another (sendfile, splice, tee, vmsplice, copy_file_range), and those with several messages (sendmmsg, recvmmsg).
// Programs of their own handle them, so that other calls pay nothing: the program at the end of a call hands such a
// call on by a tail call (bpf_tail_call, Linux 4.2), with its times in the thread's value.

// Positions in the map of these programs.
const (
	afterIn    = iota // the read of a move
	afterOut          // its write, called by the one before
	afterBatch        // several messages
	numAfter
)

// side is an operation of such a call: that of one descriptor of a move, or that of several messages. Its descriptor
// is at onOwn, and the requested bytes are at onWant.
type side struct {
	op   iowatch.Op // OpRead: bytes come from the descriptor; OpNone: of several messages
	next int        // program that handles the other side; 0: none
}

// moveArgs are the positions of a call's arguments.
type moveArgs struct{ in, out, want int }

// Positions of moves: vmsplice has one descriptor, and memory is the other side.
var (
	spliceArgs   = moveArgs{0, 2, 4} // also copy_file_range
	sendfileArgs = moveArgs{1, 0, 3}
	teeArgs      = moveArgs{0, 1, 2}
)

// maxMove is MAX_RW_COUNT (include/linux/fs.h): no call moves more.
const maxMove = 0x7ffff000

// maxBatch is UIO_MAXIOV (include/uapi/linux/uio.h): no call has more messages.
const maxBatch = 1024

// Offset of msg_len in struct mmsghdr (include/linux/socket.h).
const headLength = 56

// loadAfter loads the further programs.
func (e *IO) loadAfter(c *ioConfig, m ioMaps, l *layout) error {
	in, out := &side{iowatch.OpRead, afterOut}, &side{iowatch.OpWrite, 0}
	for i, code := range []asm.Instructions{afterIn: moved(c, m, l, in), afterOut: moved(c, m, l, out), afterBatch: batch(c, m, l)} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_after", Type: ebpf.RawTracepoint, License: "GPL", Instructions: code})
		if err != nil {
			return fmt.Errorf("load program sliver_after %d: %w", i, err)
		}
		e.progs = append(e.progs, p)
		if err := e.maps["io_after"].Put(uint32(i), p); err != nil {
			return fmt.Errorf("choose program sliver_after %d: %w", i, err)
		}
	}
	return nil
}

// movesBegin notes at the begin of a move how often the thread has waited so far. R7 is the class.
func (a *assembler) movesBegin(l *layout) {
	if l.cache == nil {
		return
	}
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, 0xff), asm.JNE.Imm(asm.R1, classMove, "begun"))
	a.switches(l.cache)
	a.add(asm.StoreMem(asm.R9, taskSwitches, asm.R1, asm.DWord))
	a.label("begun")
}

// hand gives the call to another program.
func (a *assembler) hand(m ioMaps) {
	a.label("batch")
	a.add(asm.Mov.Imm(asm.R8, afterBatch), asm.Ja.Label("hand"))
	a.label("move")
	a.add(asm.Mov.Imm(asm.R8, afterIn))
	a.label("hand")
	for _, x := range []struct {
		from int
		to   int16
	}{{recEnd, taskEnd}, {recBusy, taskBusy}, {recQueued, taskWaited}} {
		a.get(asm.R1, x.from, asm.DWord)
		a.add(asm.StoreMem(asm.R9, x.to, asm.R1, asm.DWord))
	}
	a.follow(m)
	a.add(asm.Ja.Label("out"))
}

// follow goes on with program R8. It returns if there is none.
func (a *assembler) follow(m ioMaps) {
	a.add(asm.LoadMem(asm.R1, asm.RFP, onSelf, asm.DWord), asm.LoadMapPtr(asm.R2, m.after), asm.Mov.Reg(asm.R3, asm.R8), asm.FnTailCall.Call())
}

// resume begins a program that another one gave the call.
func (a *assembler) resume(c *ioConfig, m ioMaps, l *layout) {
	a.add(asm.StoreMem(asm.RFP, onSelf, asm.R1, asm.DWord))
	a.own(c.pid, l)
	a.task(m, l, false)
	a.clear()
	for _, x := range []struct {
		from int16
		to   int
	}{{taskEnd, recEnd}, {taskBusy, recBusy}, {taskWaited, recQueued}} {
		a.add(asm.LoadMem(asm.R1, asm.R9, x.from, asm.DWord))
		a.put(x.to, asm.R1, asm.DWord)
	}
	a.begin(l)
	a.add(asm.LoadMem(asm.R7, asm.R9, taskClass, asm.DWord))
}

// moved is the program for one side of a move, as a read or a write of its descriptor.
func moved(c *ioConfig, m ioMaps, l *layout, s *side) asm.Instructions {
	a := &assembler{}
	a.resume(c, m, l)
	a.ends(s, l)
	// What the mark of many operations was, if it becomes one.
	a.set(recFD2, int64(s.op), asm.Byte)
	a.theirs(s, l)
	role := int32(classRead)
	if s.op == iowatch.OpWrite {
		role = classWrite
	}
	a.add(asm.Mov.Imm(asm.R6, role))
	a.use(m, l, s)
	a.transfer(c, m, l, s)
	a.emit(m, l)
	if c.each {
		a.plain(m)
	}
	a.label("out")
	if s.next != 0 {
		a.add(asm.Mov.Imm(asm.R8, int32(s.next)))
		a.follow(m)
	}
	a.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return a.code
}

// ends sets onOwn, onOther and onWant. A side without a descriptor is memory: as onOther it is -1, and as onOwn there
// is nothing to do.
func (a *assembler) ends(s *side, l *layout) {
	a.get(asm.R1, recNr, asm.Word)
	a.add(asm.JEq.Imm(asm.R1, unix.SYS_VMSPLICE, "memory"), asm.JEq.Imm(asm.R1, unix.SYS_SENDFILE, "sendfile"), asm.JEq.Imm(asm.R1, unix.SYS_TEE, "tee"))
	set := func(x moveArgs) {
		own, other := x.in, x.out
		if s.op == iowatch.OpWrite {
			own, other = other, own
		}
		a.arg(asm.R1, own)
		a.arg(asm.R2, other)
		a.arg(asm.R3, x.want)
		a.add(asm.Ja.Label("sides"))
	}
	set(spliceArgs)
	a.label("sendfile")
	set(sendfileArgs)
	a.label("tee")
	set(teeArgs)

	a.label("memory")
	const writes = 2 // FMODE_WRITE
	a.add(asm.LoadMem(asm.R8, asm.RFP, int16(onRegs+int(regArgs[0])), asm.Word))
	a.fileMode(l)
	a.add(asm.And.Imm(asm.R1, writes))
	if s.op == iowatch.OpWrite {
		a.add(asm.JEq.Imm(asm.R1, 0, "out"))
	} else {
		a.add(asm.JNE.Imm(asm.R1, 0, "out"))
	}
	a.arg(asm.R1, 0)
	a.add(asm.Mov.Imm(asm.R2, -1))
	a.get(asm.R3, recRet, asm.DWord) // its buffers are a list

	a.label("sides")
	a.add(asm.JLE.Imm(asm.R3, maxMove, "possible"), asm.Mov.Imm(asm.R3, maxMove))
	a.label("possible")
	a.add(asm.StoreMem(asm.RFP, onOwn, asm.R1, asm.DWord), asm.StoreMem(asm.RFP, onOther, asm.R2, asm.DWord), asm.StoreMem(asm.RFP, onWant, asm.R3, asm.DWord))
}

// fileMode sets R1 to how the file of descriptor R8 was opened (FMODE_…, include/linux/fs.h); 0 if that cannot be read.
func (a *assembler) fileMode(l *layout) {
	a.add(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(asm.R3, asm.R0))
	for _, off := range []uint32{l.files, l.fdt, l.fds} {
		a.kernelRead(onTmp, 8, int32(off))
		a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord))
	}
	a.add(asm.LSh.Imm(asm.R8, 3), asm.Add.Reg(asm.R3, asm.R8))
	a.kernelRead(onTmp, 8, 0)
	a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord))
	a.kernelRead(onTmp, 4, int32(l.opened))
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.Word))
}

// storage sets R1 to the type of file of the descriptor R8, and goes to a label if it is not one that waits for
// storage.
func (a *assembler) storage(l *layout, other string) {
	is := a.fresh("storage")
	a.inode(l)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord), asm.And.Imm(asm.R1, 0o170000), asm.JEq.Imm(asm.R1, 0o100000, is), asm.JNE.Imm(asm.R1, 0o060000, other))
	a.label(is)
}

// theirs takes the time of a move out of recBusy if the descriptor is a file, the other one is not, and the thread
// slept: it waited for a peer. If the file's page cache lacked the data, it waited for the file.
func (a *assembler) theirs(s *side, l *layout) {
	if s.op == iowatch.OpWrite {
		a.add(storeWord(asm.R9, taskMiss, 0))
	}
	if l.cache != nil {
		a.switches(l.cache)
		a.add(asm.LoadMem(asm.R2, asm.R9, taskSwitches, asm.DWord), asm.Mov.Reg(asm.R6, asm.R1), asm.Sub.Reg(asm.R6, asm.R2)) // how often it waited
	}
	a.add(asm.LoadMem(asm.R8, asm.RFP, onOwn, asm.Word), asm.JGE.Imm(asm.R8, maxFDs, "other"))
	a.storage(l, "other")
	if l.cache != nil {
		a.add(asm.JEq.Imm(asm.R6, 0, "ours"))
		if s.op == iowatch.OpRead {
			// The page may be one of the file that is written.
			a.add(asm.LoadMem(asm.R1, asm.R9, taskMiss, asm.DWord), asm.JEq.Imm(asm.R1, 0, "cached"), asm.LoadMem(asm.R3, asm.RFP, onInode, asm.DWord), asm.JEq.Imm(asm.R3, 0, "cached"))
			a.kernelRead(onSize, 8, int32(l.cache.ino))
			a.add(asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord), asm.LoadMem(asm.R2, asm.R9, taskMissOf, asm.DWord), asm.JEq.Reg(asm.R1, asm.R2, "read"))
			a.label("cached")
			a.add(storeWord(asm.R9, taskMiss, 0), asm.Ja.Label("waits"))
			a.label("read")
			a.switches(l.cache)
			a.add(asm.LoadMem(asm.R2, asm.R9, taskMiss, asm.DWord), asm.JNE.Reg(asm.R1, asm.R2, "ours"))
			a.label("waits")
		}
	}
	a.add(asm.LoadMem(asm.R8, asm.RFP, onOther, asm.Word), asm.JGE.Imm(asm.R8, maxFDs, "peer"))
	a.storage(l, "peer")
	a.add(asm.Ja.Label("ours"))
	a.label("peer")
	a.get(asm.R1, recBusy, asm.DWord)
	a.get(asm.R2, recQueued, asm.DWord)
	a.add(asm.Add.Reg(asm.R2, asm.R1))
	a.put(recQueued, asm.R2, asm.DWord)
	a.set(recBusy, 0, asm.DWord)
	a.add(asm.Ja.Label("ours"))
	a.label("other")
	a.add(storeWord(asm.R9, taskMiss, 0))
	a.label("ours")
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// batch is the program for a call with several messages, as one read or write of all their bytes.
func batch(c *ioConfig, m ioMaps, l *layout) asm.Instructions {
	a := &assembler{}
	a.resume(c, m, l)
	a.get(asm.R8, recRet, asm.DWord)
	a.put(recFD2, asm.R8, asm.Word)
	a.add(asm.Mov.Reg(asm.R6, asm.R7), asm.Mov.Imm(asm.R7, 0))
	a.arg(asm.R1, 1)
	a.add(asm.StoreMem(asm.RFP, onWant, asm.R1, asm.DWord), asm.Mov.Imm(asm.R9, 0))
	a.label("next")
	a.add(asm.JGE.Reg(asm.R9, asm.R8, "summed"), asm.JGE.Imm(asm.R9, maxBatch, "summed"), storeWord(asm.RFP, onTmp, 0),
		asm.LoadMem(asm.R3, asm.RFP, onWant, asm.DWord))
	a.probe(onTmp, 4, headLength)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.DWord), asm.Add.Reg(asm.R7, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, onWant, asm.DWord), asm.Add.Imm(asm.R1, nextHead), asm.StoreMem(asm.RFP, onWant, asm.R1, asm.DWord),
		asm.Add.Imm(asm.R9, 1), asm.Ja.Label("next"))
	a.label("summed")
	a.put(recRet, asm.R7, asm.DWord)
	a.arg(asm.R1, 0)
	a.add(asm.StoreMem(asm.RFP, onOwn, asm.R1, asm.DWord), asm.StoreMem(asm.RFP, onWant, asm.R7, asm.DWord))
	a.add(asm.Mov.Reg(asm.R7, asm.R6), asm.And.Imm(asm.R6, 0xff), asm.Mov.Imm(asm.R1, classRead), asm.JEq.Imm(asm.R6, classGets, "role"), asm.Mov.Imm(asm.R1, classWrite))
	a.label("role")
	a.add(asm.Mov.Reg(asm.R6, asm.R1))
	a.task(m, l, false)
	s := &side{}
	a.use(m, l, s)
	a.transfer(c, m, l, s)
	a.emit(m, l)
	if c.each {
		a.plain(m)
	}
	return a.end()
}
