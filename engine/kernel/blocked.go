package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/sliverprof/sliver/stack"
)

// Blocked reads the registers of threads that are blocked: those with which they entered the kernel, which /proc shows two
// of. It is a program that runs when it is called, and reads of one thread. It may be used by several goroutines.
type Blocked struct{ prog *ebpf.Program }

// BlockedRegs is a buffer for Read.
type BlockedRegs [bkBytes]byte

// Block is struct pt_regs, from its beginning, and TLS the thread's TLS base; 0: unknown.
func (b *BlockedRegs) Block() []byte { return b[bkRegs:] }
func (b *BlockedRegs) TLS() uint64   { return binary.NativeEndian.Uint64(b[bkTLS:]) }

// The program's argument, which has its result.
const (
	bkTID   = 0
	bkRead  = 8 // 1: the rest was read
	bkTLS   = 16
	bkRegs  = 24
	bkBytes = bkRegs + regBlock
)

// OpenBlocked loads the program. It takes CAP_BPF and CAP_PERFMON, and a kernel whose programs can look for a thread by its
// number (6.8).
func OpenBlocked() (*Blocked, error) {
	if err := errors.Join(rights(), initialSpace()); err != nil {
		return nil, err
	}
	types, err := kernelTypes()
	if err != nil {
		return nil, err
	}
	find, err := types.function("bpf_task_from_pid")
	if err != nil {
		return nil, err
	}
	release, err := types.function("bpf_task_release")
	if err != nil {
		return nil, err
	}
	tls := int32(0)
	if len(taskTLSPath) > 0 {
		off, err := types.offset("task_struct", taskTLSPath)
		if err != nil {
			return nil, err
		}
		tls = int32(off)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_blocked", Type: ebpf.Syscall, Flags: sleepable, License: "GPL", Instructions: blockedProgram(find, release, tls)})
	if err != nil {
		return nil, explain(fmt.Errorf("load program sliver_blocked: %w", err))
	}
	return &Blocked{prog}, nil
}

// sleepable is BPF_F_SLEEPABLE, which programs of this type must have.
const sleepable = 1 << 4

// kernelCall calls a function of the kernel by its number.
func kernelCall(id btf.TypeID) asm.Instruction {
	return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: int64(id)}
}

// blockedProgram fills in its argument, R6, of the thread R7.
func blockedProgram(find, release btf.TypeID, tls int32) asm.Instructions {
	const onRegs, onTLS = -regBlock, -regBlock - 8
	a := &assembler{}
	a.add(asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMem(asm.R1, asm.R6, bkTID, asm.Word), kernelCall(find), asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R7, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R0), asm.FnTaskPtRegs.Call(), asm.Mov.Reg(asm.R3, asm.R0))
	a.kernelRead(onRegs, regBlock, 0)
	a.add(asm.Mov.Reg(asm.R8, asm.R0), storeWord(asm.RFP, onTLS, 0))
	if tls != 0 {
		a.add(asm.Mov.Reg(asm.R3, asm.R7))
		a.kernelRead(onTLS, 8, tls)
	}
	a.add(asm.Mov.Reg(asm.R1, asm.R7), kernelCall(release), asm.JNE.Imm(asm.R8, 0, "out"), asm.LoadMem(asm.R1, asm.RFP, onTLS, asm.DWord), asm.StoreMem(asm.R6, bkTLS, asm.R1, asm.DWord))
	for off := 0; off < regBlock; off += 8 {
		a.add(asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+off), asm.DWord), asm.StoreMem(asm.R6, int16(bkRegs+off), asm.R1, asm.DWord))
	}
	a.add(asm.Mov.Imm(asm.R1, 1), asm.StoreMem(asm.R6, bkRead, asm.R1, asm.DWord))
	a.label("out")
	a.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return a.code
}

// Read reads the registers of a thread. It returns false if the thread is gone. Those of a thread that runs are of some moment
// in the past.
func (x *Blocked) Read(tid stack.TID, b *BlockedRegs) bool {
	*b = BlockedRegs{}
	binary.NativeEndian.PutUint32(b[bkTID:], uint32(tid))
	err := call(x.prog.FD(), b[:])
	runtime.KeepAlive(x)
	return err == nil && binary.NativeEndian.Uint64(b[bkRead:]) == 1
}

// Close removes the program.
func (x *Blocked) Close() error { return x.prog.Close() }
