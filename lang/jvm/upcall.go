package jvm

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/sliverprof/sliver/stack"
)

// maxUpcallHead bounds the beginning of an upcall stub that is decoded, in bytes: it stores up to 14
// arguments and five registers.
const maxUpcallHead = 512

// upcall is the frame of a stub that C code calls and that calls a Java method (the Foreign Function
// and Memory API, 22 and later). HotSpot states no size for this frame, so it is decoded from the
// code. The stub pushes rbp, lowers the stack pointer once, and stores the registers that C code
// expects to be preserved (src/hotspot/cpu/x86/upcallLinker_x86_64.cpp of 22 and 25). Java
// overwrites these registers, so the walk takes them from there.
type upcall struct {
	body  uint64 // offset in the code from which the frame is complete
	size  uint64 // from the stack pointer up to the saved rbp, in bytes
	saved []savedAt
}

// savedAt says that the instruction before offset after in the code stored a register at the stack
// pointer plus off.
type savedAt struct {
	reg        int
	off, after uint64
}

// upcallName is the name of these blobs.
func upcallName(name string) bool { return strings.HasPrefix(name, "upcall_stub") }

// upcallOf decodes the frame of the upcall stub that begins with code. It returns nil if the stub
// begins in another way.
func upcallOf(code []byte) *upcall {
	regs := map[x86asm.Arg]int{x86asm.RBX: rbx, x86asm.R12: r12, x86asm.R13: r13, x86asm.R14: r14, x86asm.R15: r15}
	var u upcall
	for at, n := 0, 0; at < len(code); n++ {
		if k := vex(code[at:]); k > 0 {
			at += k
			continue
		}
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil || in.Len == 0 {
			break
		}
		at += in.Len
		switch {
		case n == 0 && (in.Op != x86asm.PUSH || in.Args[0] != x86asm.RBP),
			n == 1 && (in.Op != x86asm.MOV || in.Args[0] != x86asm.RBP || in.Args[1] != x86asm.RSP):
			return nil
		case n == 2:
			by, known := moves(&in)
			if in.Op != x86asm.SUB || !known || by >= 0 || by < -maxStubFrame {
				return nil
			}
			u.body, u.size = uint64(at), uint64(-by)
		case in.Op == x86asm.CALL:
			return &u
		case in.Op == x86asm.MOV:
			m, mem := in.Args[0].(x86asm.Mem)
			reg, ok := regs[in.Args[1]]
			if mem && ok && m.Base == x86asm.RSP && m.Index == 0 && m.Disp >= 0 && uint64(m.Disp) < u.size {
				u.saved = append(u.saved, savedAt{reg: reg, off: uint64(m.Disp), after: uint64(at)})
				delete(regs, in.Args[1]) // later stores are arguments
			}
		}
	}
	return nil
}

// step walks from an upcall stub to the C function that called it. If it fails, the registers are as
// before.
func (u *upcall) step(r *Runtime, s *State, b *blob, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	was := *s
	sp, at := s.R[rsp], s.PC-b.code
	returnAt := sp + u.size + slotReturn
	whole := true
	if s.Exact {
		var op [1]byte
		switch {
		case at == 0, read(r.mem, op[:], s.PC) == nil && op[0] == 0xc3: // ret
			returnAt, whole = sp, false
		case at < u.body: // rbp was pushed
			returnAt = sp + 8
		}
	}
	out = append(out, r.machine(s, b, returnAt+8))
	ra, ok := s.word(returnAt)
	if whole {
		ok = ok && s.restore(rbp, returnAt-8)
		for _, x := range u.saved {
			ok = ok && (s.Exact && at < x.after || s.restore(x.reg, sp+x.off))
		}
	}
	if !ok {
		missing := s.Missing
		*s = was
		s.Missing = missing
		return out, stack.ReasonMemory
	}
	const preserved = 1<<rbx | 1<<r12 | 1<<r13 | 1<<r14 | 1<<r15 | 1<<rbp
	s.PC, s.Exact = ra, false
	s.R[rsp] = returnAt + 8
	s.Known = s.Known&preserved | 1<<rsp
	return out, stack.ReasonNone
}
