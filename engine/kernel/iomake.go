package kernel

import (
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// makersOfBPF is a mask of the commands of bpf(2) that return a new descriptor (enum bpf_cmd,
// include/uapi/linux/bpf.h).
const makersOfBPF = 1<<unix.BPF_MAP_CREATE | 1<<unix.BPF_PROG_LOAD | 1<<unix.BPF_OBJ_GET | 1<<unix.BPF_PROG_GET_FD_BY_ID | 1<<unix.BPF_MAP_GET_FD_BY_ID |
	1<<unix.BPF_RAW_TRACEPOINT_OPEN | 1<<unix.BPF_BTF_LOAD | 1<<unix.BPF_BTF_GET_FD_BY_ID | 1<<unix.BPF_LINK_CREATE | 1<<unix.BPF_LINK_GET_FD_BY_ID |
	1<<unix.BPF_ENABLE_STATS | 1<<unix.BPF_ITER_CREATE | 1<<bpfTokenCreate

// bpfTokenCreate is BPF_TOKEN_CREATE, since Linux 6.9.
const bpfTokenCreate = 36

// some goes to "made" for calls of class classSome that have made a descriptor, with R8 as that, and to "out" for
// others.
func (a *assembler) some() {
	const (
		filterMode, newListener = 1, 8 // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
		pidfd                   = unix.CLONE_PIDFD
	)
	a.label("some")
	a.get(asm.R1, recNr, asm.Word)
	a.add(asm.JEq.Imm(asm.R1, unix.SYS_BPF, "bpf"), asm.JEq.Imm(asm.R1, unix.SYS_SECCOMP, "seccomp"), asm.JEq.Imm(asm.R1, unix.SYS_LANDLOCK_CREATE_RULESET, "landlock"),
		asm.JEq.Imm(asm.R1, unix.SYS_CLONE, "clone"), asm.JEq.Imm(asm.R1, unix.SYS_CLONE3, "clone3"))
	// signalfd: with a descriptor it changes that one.
	a.add(asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+int(regArgs[0])), asm.Word), asm.LSh.Imm(asm.R1, 32), asm.ArSh.Imm(asm.R1, 32), asm.JSLT.Imm(asm.R1, 0, "made"), asm.Ja.Label("out"))

	a.label("bpf")
	a.arg(asm.R1, 0)
	a.add(asm.JGE.Imm(asm.R1, 64, "out"), asm.LoadImm(asm.R2, makersOfBPF, asm.DWord), asm.RSh.Reg(asm.R2, asm.R1), asm.And.Imm(asm.R2, 1), asm.JNE.Imm(asm.R2, 0, "made"), asm.Ja.Label("out"))

	a.label("seccomp")
	a.arg(asm.R1, 0)
	a.arg(asm.R2, 1)
	a.add(asm.JNE.Imm(asm.R1, filterMode, "out"), asm.And.Imm(asm.R2, newListener), asm.JNE.Imm(asm.R2, 0, "made"), asm.Ja.Label("out"))

	a.label("landlock") // with flags, the result is a version
	a.arg(asm.R1, 2)
	a.add(asm.JEq.Imm(asm.R1, 0, "made"), asm.Ja.Label("out"))

	a.label("clone")
	a.arg(asm.R1, 0)
	a.arg(asm.R3, 2)
	a.add(asm.Ja.Label("pidfd"))
	a.label("clone3") // struct clone_args: flags, address of the descriptor
	a.arg(asm.R3, 0)
	a.probe(onUse, 16, 0)
	a.add(asm.JNE.Imm(asm.R0, 0, "out"), asm.LoadMem(asm.R1, asm.RFP, onUse, asm.DWord), asm.LoadMem(asm.R3, asm.RFP, onUse+8, asm.DWord))
	a.label("pidfd")
	a.add(asm.And.Imm(asm.R1, pidfd), asm.JEq.Imm(asm.R1, 0, "out"))
	a.probe(onTmp, 4, 0)
	a.add(asm.JNE.Imm(asm.R0, 0, "out"), asm.LoadMem(asm.R8, asm.RFP, onTmp, asm.Word))
	a.put(recRet, asm.R8, asm.DWord)
	a.add(asm.Ja.Label("made"))
}
