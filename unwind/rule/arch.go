package rule

import "debug/elf"

// Arch names the machine whose code is unwound. It is a parameter and not the
// machine that sliver runs on, so that recordings and fixtures of the other
// one can be walked too.
type Arch uint8

// The machines that sliver knows.
const (
	AMD64 Arch = iota + 1
	ARM64
)

// DWARF register numbers with a role in every step, of the System V ABI for
// amd64 (figure 3.36) and of DWARF for the Arm 64-bit architecture (section 4.1).
const (
	AMD64FP = 6
	AMD64SP = 7
	AMD64RA = 16 // column of the return address, which is the PC's own
	ARM64FP = 29
	ARM64RA = 30 // link register
	ARM64SP = 31
)

// ArchOf gives the Arch of an ELF file's machine; ok is false for others.
func ArchOf(m elf.Machine) (a Arch, ok bool) {
	switch m {
	case elf.EM_X86_64:
		return AMD64, true
	case elf.EM_AARCH64:
		return ARM64, true
	}
	return 0, false
}

// Machine is the ELF machine of a.
func (a Arch) Machine() elf.Machine {
	switch a {
	case AMD64:
		return elf.EM_X86_64
	case ARM64:
		return elf.EM_AARCH64
	}
	return elf.EM_NONE
}

func (a Arch) String() string {
	switch a {
	case AMD64:
		return "amd64"
	case ARM64:
		return "arm64"
	}
	return "unknown machine"
}

// SP is the number of the stack pointer.
func (a Arch) SP() int {
	if a == ARM64 {
		return ARM64SP
	}
	return AMD64SP
}

// FP is the number of the frame pointer.
func (a Arch) FP() int {
	if a == ARM64 {
		return ARM64FP
	}
	return AMD64FP
}

// RA is the column of the return address.
func (a Arch) RA() int {
	if a == ARM64 {
		return ARM64RA
	}
	return AMD64RA
}
