package symbol

import (
	"bytes"
	"debug/elf"
)

// restorer is the name that libcs use for the code that a signal handler returns to. In
// a stripped file musl's code has no symbol, and glibc's is in no dynamic symbol table.
const restorer = "__restore_rt"

// The system call rt_sigreturn in the libcs: mov $15, %rax; syscall, and on arm64 mov
// x8, #139; svc #0.
var (
	sigreturnAMD64 = []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}
	sigreturnARM64 = []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4}
)

// trampolineAt returns the signal trampoline that contains vaddr, which is its first
// instruction or its system call.
func (m *image) trampolineAt(vaddr uint64) (start uint64, ok bool) {
	code, call := sigreturnAMD64, uint64(7)
	if m.f.Machine == elf.EM_AARCH64 {
		code, call = sigreturnARM64, 4
	}
	if !m.isText(vaddr) {
		return 0, false
	}
	var buf [9]byte
	for _, lo := range []uint64{vaddr, vaddr - call} {
		if b := buf[:len(code)]; m.code(b, lo) && bytes.Equal(b, code) {
			return lo, true
		}
	}
	return 0, false
}

// code reads the bytes at vaddr.
func (m *image) code(b []byte, vaddr uint64) bool {
	for _, p := range m.f.Progs {
		if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			n, _ := p.ReadAt(b, int64(vaddr-p.Vaddr))
			return n == len(b)
		}
	}
	return false
}
