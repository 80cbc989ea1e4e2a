package kernel

import (
	"errors"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// The programs of IO use what newer kernels have to be quicker. Where it is missing they do the same with
// calls of helpers, which take some 10 to 20 ns each:
//
//   - typed reads of task_struct (bpf_get_current_task_btf, Linux 5.11)
//   - the state of a thread beside the task (BPF_MAP_TYPE_TASK_STORAGE, for tracing programs 5.12), where
//     others look it up in a hash table
//   - reads of the kernel's structures by an instruction (bpf_rdonly_cast, Linux 6.2)

// abilities are the optional features of the kernel.
type abilities struct {
	typed   bool   // programs may read a task_struct without a call
	storage bool   // maps of tasks
	casts   *casts // nil: reads take a call
}

// casts are numbers in the type information of the running kernel: of the function bpf_rdonly_cast, and of
// structures.
type casts struct{ fn, task, regs, list, file btf.TypeID }

// kernelAbilities returns what the running kernel has.
func kernelAbilities() (s abilities) {
	has := func(f asm.BuiltinFunc) bool { return features.HaveProgramHelper(ebpf.RawTracepoint, f) == nil }
	s.typed = has(asm.FnGetCurrentTaskBtf)
	s.storage = s.typed && has(asm.FnTaskStorageGet) && features.HaveMapType(ebpf.TaskStorage) == nil
	if c, err := findCasts(); err == nil && s.typed {
		s.casts = c
	}
	return s
}

var errNoCast = errors.New("the kernel has no function bpf_rdonly_cast")

// findCasts finds the numbers.
func findCasts() (*casts, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	c := &casts{}
	var fn *btf.Func
	if err := spec.TypeByName("bpf_rdonly_cast", &fn); err != nil {
		return nil, errors.Join(errNoCast, err)
	}
	if c.fn, err = spec.TypeID(fn); err != nil {
		return nil, err
	}
	for name, to := range map[string]*btf.TypeID{"task_struct": &c.task, "pt_regs": &c.regs, "list_head": &c.list, "file": &c.file} {
		var s *btf.Struct
		if err := spec.TypeByName(name, &s); err != nil {
			return nil, err
		}
		if *to, err = spec.TypeID(s); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// taskMap is the map of threads. Its values go with their threads where the kernel keeps them beside the task.
func taskMap(s abilities) ebpf.MapSpec {
	if !s.storage {
		return ebpf.MapSpec{Name: "io_tasks", Type: ebpf.LRUHash, KeySize: 4, ValueSize: taskBytes, MaxEntries: maxTasks}
	}
	const noPrealloc = 1 // BPF_F_NO_PREALLOC, which this type requires, as it does type information
	word := &btf.Int{Name: "word", Size: 8}
	return ebpf.MapSpec{Name: "io_tasks", Type: ebpf.TaskStorage, KeySize: 4, ValueSize: taskBytes, Flags: noPrealloc,
		Key: &btf.Int{Name: "key", Size: 4}, Value: &btf.Struct{Name: "task", Size: taskBytes, Members: []btf.Member{{Name: "words", Type: &btf.Array{Index: word, Type: word, Nelems: taskBytes / 8}}}}}
}

// stored sets R9 to the value beside the task, which is made if make is set.
func (a *assembler) stored(m ioMaps, make bool) {
	flags := int32(0)
	if make {
		flags = 1 // BPF_LOCAL_STORAGE_GET_F_CREATE
	}
	a.add(asm.FnGetCurrentTaskBtf.Call(), asm.Mov.Reg(asm.R2, asm.R0), asm.LoadMapPtr(asm.R1, m.tasks), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, flags),
		asm.FnTaskStorageGet.Call())
	if !make {
		a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R9, asm.R0))
		return
	}
	a.add(asm.JNE.Imm(asm.R0, 0, "known"))
	a.count(m, lostTasks)
	a.add(asm.Ja.Label("out"))
	a.label("known")
	a.add(asm.Mov.Reg(asm.R9, asm.R0))
}

// cast sets R0 to the pointer in R1 as one to a structure. Reads from it give 0 where memory is missing. The
// kernel replaces the call by a move.
func (a *assembler) cast(l *layout, id btf.TypeID) {
	a.add(asm.Mov.Imm(asm.R2, int32(id)),
		asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: int64(l.casts.fn)})
}

// fits reports whether offsets can be in an instruction.
func fits(offs ...uint32) bool {
	for _, o := range offs {
		if o > math.MaxInt16 {
			return false
		}
	}
	return true
}

// inodeDirect is inode with reads by instructions.
func (a *assembler) inodeDirect(l *layout) {
	done := a.fresh("inode")
	load := func(to, from asm.Register, off uint32, size asm.Size) asm.Instruction {
		return asm.LoadMem(to, from, int16(off), size)
	}
	a.add(storeWord(asm.RFP, onMode, 0), storeWord(asm.RFP, onSize, 0), storeWord(asm.RFP, onInode, 0), asm.FnGetCurrentTask.Call(), asm.Mov.Reg(asm.R1, asm.R0))
	a.cast(l, l.casts.task)
	a.add(load(asm.R0, asm.R0, l.files, asm.DWord), load(asm.R0, asm.R0, l.fdt, asm.DWord), load(asm.R1, asm.R0, l.maxFDs, asm.Word), asm.JGE.Reg(asm.R8, asm.R1, done),
		load(asm.R1, asm.R0, l.fds, asm.DWord), asm.Mov.Reg(asm.R2, asm.R8), asm.LSh.Imm(asm.R2, 3), asm.Add.Reg(asm.R1, asm.R2))
	a.cast(l, l.casts.list) // its first member is a pointer
	a.add(load(asm.R1, asm.R0, 0, asm.DWord))
	a.cast(l, l.casts.file)
	a.add(load(asm.R0, asm.R0, l.inode, asm.DWord), asm.JEq.Imm(asm.R0, 0, done), asm.StoreMem(asm.RFP, onInode, asm.R0, asm.DWord),
		load(asm.R1, asm.R0, l.mode, asm.Half), asm.StoreMem(asm.RFP, onMode, asm.R1, asm.DWord),
		load(asm.R1, asm.R0, l.size, asm.DWord), asm.StoreMem(asm.RFP, onSize, asm.R1, asm.DWord),
		load(asm.R0, asm.R0, l.super, asm.DWord), load(asm.R0, asm.R0, l.magic, asm.DWord))
	a.anonymous(asm.R0, done)
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// callRegisters copies the registers of the call, whose address is at onCtx: with direct reads its arguments and
// its stack pointer only, the rest by allRegisters.
func (a *assembler) callRegisters(l *layout) {
	if l.casts == nil {
		a.allRegisters()
		return
	}
	a.add(asm.LoadMem(asm.R1, asm.RFP, onCtx, asm.DWord))
	a.cast(l, l.casts.regs)
	for _, off := range append(regArgs[:], regSP) {
		a.add(asm.LoadMem(asm.R1, asm.R0, int16(off), asm.DWord), asm.StoreMem(asm.RFP, int16(onRegs+off), asm.R1, asm.DWord))
	}
}

func (a *assembler) allRegisters() {
	a.add(asm.LoadMem(asm.R3, asm.RFP, onCtx, asm.DWord))
	a.kernelRead(onRegs, regBlock, 0)
}
