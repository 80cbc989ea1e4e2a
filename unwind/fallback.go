package unwind

import (
	"bytes"
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// Code of signal trampolines: the system call rt_sigreturn.
var (
	// mov $15, %rax (7 bytes; gas and musl) or mov $15, %eax (5; Go); syscall
	sigreturnAMD64   = []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}
	sigreturnAMD64Go = []byte{0xb8, 15, 0, 0, 0, 0x0f, 0x05}
	// mov x8, #139; svc #0
	sigreturnARM64 = []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4}
)

// trampoline reports whether pc is in a signal trampoline, at its first instruction or at the
// system call.
func (w *Walker) trampoline(m *module, bias, pc uint64) bool {
	var buf [9]byte
	is := func(want []byte, at uint64) bool {
		return bytes.Equal(w.code(buf[:len(want)], m, bias, at), want)
	}
	if w.arch == rule.ARM64 {
		return is(sigreturnARM64, pc) || is(sigreturnARM64, pc-4)
	}
	return is(sigreturnAMD64, pc) || is(sigreturnAMD64Go, pc) || is(sigreturnAMD64, pc-7) || is(sigreturnAMD64Go, pc-5)
}

// Offset of the saved registers from the stack pointer in a trampoline.
const (
	// struct rt_sigframe of Linux arch/x86/include/asm/sigframe.h with its first word popped. SP
	// points to ucontext. Its sigcontext is at offset 40 (include/uapi/asm-generic/ucontext.h) and
	// starts with the registers (struct sigcontext_64 of arch/x86/include/uapi/asm/sigcontext.h).
	contextAMD64 = 40
	// struct rt_sigframe of Linux arch/arm64/kernel/signal.c: siginfo (128 bytes), then ucontext.
	// Its sigcontext is at offset 176 and holds the fault address, x0 to x30, SP and PC
	// (arch/arm64/include/uapi/asm).
	contextARM64 = 128 + 176 + 8
)

// orderAMD64 lists the DWARF numbers of the registers in struct sigcontext_64.
var orderAMD64 = [17]uint8{8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16}

// bySignalFrame restores the interrupted registers from the kernel's frame.
func (w *Walker) bySignalFrame(f *stack.Frame) Step {
	sp := w.regs[w.sp]
	pcReg, at, n := rule.AMD64RA, sp+contextAMD64, uint64(len(orderAMD64))
	if w.arch == rule.ARM64 {
		pcReg, at, n = numRegs-1, sp+contextARM64, numRegs
	}
	for i := range n {
		v, ok := w.word(at + 8*i)
		if !ok {
			return Stop(w.lack(at + 8*i))
		}
		if w.arch == rule.ARM64 {
			w.saved[i] = v
		} else {
			w.saved[orderAMD64[i]] = v
		}
	}
	copy(w.regs[:numRegs], w.saved[:numRegs])
	w.known = 1<<n - 1
	w.known &^= 1 << pcReg
	// No call led to the trampoline. Its address is the handler's return target, not the end of a
	// call.
	f.CFA, f.Exact = w.regs[w.sp], true
	return Step{PC: w.regs[pcReg], Exact: true, Trust: stack.TrustCFI}
}

// byFramePointer steps over code without tables.
func (w *Walker) byFramePointer(f *stack.Frame, e *entry) Step {
	sp, fp := w.regs[w.sp], w.regs[w.fp]
	if f.Exact {
		if s, ok := w.byProbe(f, sp); ok {
			return s
		}
	}
	if e.flags&flagLast == 0 {
		step := w.byCode
		if !f.Exact {
			step = w.byEnd
		}
		if s, ok := step(f, sp); ok {
			return s
		}
	}
	if e.flags&flagLast != 0 {
		return Step{End: true}
	}
	if w.known>>w.fp&1 == 0 {
		return Stop(stack.ReasonRegister)
	}
	if fp == 0 && e.flags&flagFile != 0 && !f.Exact {
		// The ABI marks the outermost frame this way. Start code of libraries without tables (musl)
		// sets it.
		return Step{End: true}
	}
	if fp >= sp && fp-sp <= maxFrame && fp%8 == 0 {
		next, ok := w.word(fp)
		ra, ok2 := w.word(fp + 8)
		switch {
		case !ok || !ok2:
			if r := w.lack(fp + 8); r == stack.ReasonShort {
				return Stop(r)
			}
		case w.isCode(ra):
			f.CFA = fp + 16
			w.regs[w.fp], w.regs[w.sp] = next, fp+16
			// The function may have saved and changed any other register.
			w.known = 1<<w.fp | 1<<w.sp
			return Step{PC: ra, Trust: stack.TrustFP}
		case ra == 0 && next == 0:
			f.CFA, w.null = fp+16, true
			return Step{End: true}
		case w.mayBeMade(ra, next, fp):
			return Stop(stack.ReasonUnmapped) // in memory newer than the maps
		case !f.Exact && w.with.all.Has(Generates) && next > fp && next-fp <= maxFrame:
			// V8's transition from the interpreter to baseline code keeps a value between the return
			// address and its own frame (Generate_InterpreterOnStackReplacement_ToBaseline,
			// src/builtins/x64/builtins-x64.cc).
			if ra, ok := w.word(fp + 16); ok && w.isCode(ra) && w.called(ra) {
				f.CFA = fp + 24
				w.regs[w.fp], w.regs[w.sp] = next, fp+24
				w.known = 1<<w.fp | 1<<w.sp
				return Step{PC: ra, Trust: stack.TrustFP}
			}
		}
	}
	if f.Exact {
		return w.byScan(f, sp)
	}
	return Stop(stack.ReasonNoRule)
}

// isCode reports whether a return address points into mapped code.
func (w *Walker) isCode(ra uint64) bool {
	if w.arch == rule.ARM64 {
		ra &= pacMask
	}
	if ra == 0 {
		return false
	}
	if w.cache.find(ra-1) != nil {
		return true
	}
	r := w.snap.find(ra - 1)
	return r != nil && (r.exec || r.made)
}

// byCode recognizes the instructions around an exact PC at which the frame pointer is still, or
// again, the caller's. Walking by frame pointer would skip the caller there. ok is false for other
// code.
func (w *Walker) byCode(f *stack.Frame, sp uint64) (s Step, ok bool) {
	var buf [16]byte
	code := w.code(buf[:], nil, 0, f.PC-8)
	if len(code) < len(buf) {
		return s, false
	}
	before, at := code[:8], code[8:]
	if w.arch == rule.ARM64 {
		i, j := binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(before[4:])
		const (
			ret      = 0xd65f03c0
			push     = 0xa9807bfd // stp x29, x30, [sp, #-N]!
			pushMask = 0xffc07fff
			setFP    = 0x910003fd // mov x29, sp
		)
		switch {
		case i == ret, i&pushMask == push:
			return w.byLink(f, sp, stack.TrustFP)
		case i == setFP && j&pushMask == push:
			// N is 8 times a signed 7-bit number.
			n := uint64(-(int64(j) << 42 >> 57) * 8)
			return w.top(f, sp, sp+8, sp+n)
		}
		return s, false
	}
	switch {
	case at[0] == 0xc3, at[0] == 0x55, // ret; push %rbp
		bytes.HasPrefix(at, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}): // endbr64; push %rbp
		return w.top(f, 0, sp, sp+8)
	case before[7] == 0x55 && (bytes.HasPrefix(at, []byte{0x48, 0x89, 0xe5}) || bytes.HasPrefix(at, []byte{0x48, 0x8b, 0xec})):
		// push %rbp; mov %rsp, %rbp
		return w.top(f, sp, sp+8, sp+16)
	}
	return s, false
}

// byEnd recognizes amd64 code that ends right after the call that it is in. The remaining
// instructions show where the return address is. CPython's trampolines for perf have this form and
// no frame pointer. ok is false for other code.
func (w *Walker) byEnd(f *stack.Frame, sp uint64) (s Step, ok bool) {
	var buf [5]byte
	if w.arch != rule.AMD64 {
		return s, false
	}
	code := w.code(buf[:], nil, 0, f.PC)
	switch {
	case len(code) < len(buf):
	case bytes.HasPrefix(code, []byte{0x48, 0x83, 0xc4}) && code[3] < 0x80 && code[4] == 0xc3: // add $n, %rsp; ret
		at := sp + uint64(code[3])
		return w.top(f, 0, at, at+8)
	case code[0] == 0x5d && code[1] == 0xc3: // pop %rbp; ret
		return w.top(f, sp, sp+8, sp+16)
	}
	return s, false
}

// top steps out of a function. Its return address is at raAt, and its caller's frame pointer at
// fpAt; fpAt 0 means that the frame pointer is unchanged.
func (w *Walker) top(f *stack.Frame, fpAt, raAt, cfa uint64) (Step, bool) {
	ra, ok := w.word(raAt)
	if !ok || !w.isCode(ra) {
		return Step{}, false
	}
	if fpAt != 0 {
		w.load(uint8(w.fp), fpAt, fpAt)
	}
	f.CFA = cfa
	w.regs[w.sp] = cfa
	return Step{PC: ra, Trust: stack.TrustFP}, true
}

// byLink steps out of a function that has not saved the link register.
func (w *Walker) byLink(f *stack.Frame, sp uint64, trust stack.Trust) (Step, bool) {
	ra := w.regs[rule.ARM64RA]
	if w.known>>rule.ARM64RA&1 == 0 || !w.isCode(ra) {
		return Step{}, false
	}
	f.CFA = sp
	return Step{PC: ra, Trust: trust}, true
}

// byScan handles a leaf whose frame pointer is not usable. It tries the only likely place of a
// return address: the top of the stack, or the link register.
func (w *Walker) byScan(f *stack.Frame, sp uint64) Step {
	if w.arch == rule.ARM64 {
		if s, ok := w.byLink(f, sp, stack.TrustScan); ok {
			return s
		}
		return Stop(stack.ReasonNoRule)
	}
	ra, ok := w.word(sp)
	if !ok {
		return Stop(w.lack(sp))
	}
	if !w.isCode(ra) || !w.called(ra) {
		return Stop(stack.ReasonNoRule)
	}
	f.CFA = sp + 8
	w.regs[w.sp] = sp + 8
	return Step{PC: ra, Trust: stack.TrustScan}
}

// called reports whether a call instruction ends at ra.
func (w *Walker) called(ra uint64) bool {
	r := w.snap.find(ra - 1)
	if r == nil {
		return false
	}
	var bias uint64
	if r.mod != nil {
		r.mod.load()
		bias, _ = r.mod.bias(r)
	}
	var buf [7]byte
	if w.arch == rule.ARM64 {
		c := w.code(buf[:4], r.mod, bias, ra-4)
		if len(c) < 4 {
			return false
		}
		i := binary.LittleEndian.Uint32(c)
		return i>>26 == 0x25 || i&0xfffff000 == 0xd63f0000 // bl; blr and its variants with pointer authentication
	}
	c := w.code(buf[:], r.mod, bias, ra-7)
	if len(c) < len(buf) {
		return false
	}
	if c[2] == 0xe8 { // call rel32
		return true
	}
	for _, i := range []int{0, 1, 3, 4, 5} { // call r/m64: ff /2, 2 to 7 bytes
		if c[i] == 0xff && c[i+1]>>3&7 == 2 {
			return true
		}
	}
	return false
}
