package rule

import "debug/elf"

// Arch is the architecture of the code to unwind. It is a parameter, and not the architecture that
// sliver runs on, so that recordings and fixtures of the other one can be walked too.
type Arch uint8

// The supported architectures.
const (
	AMD64 Arch = iota + 1
	ARM64
)

// DWARF numbers of the registers that every step uses, from the System V ABI for amd64 (figure
// 3.36) and DWARF for the Arm 64-bit architecture (section 4.1).
const (
	AMD64FP = 6
	AMD64SP = 7
	AMD64RA = 16 // column of the return address, which is also that of the PC
	ARM64FP = 29
	ARM64RA = 30 // link register
	ARM64SP = 31
)

// ArchOf returns the Arch of an ELF file's machine. ok is false for others.
func ArchOf(m elf.Machine) (a Arch, ok bool) {
	switch m {
	case elf.EM_X86_64:
		return AMD64, true
	case elf.EM_AARCH64:
		return ARM64, true
	}
	return 0, false
}

// Machine returns the ELF machine of a.
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

// SP returns the number of the stack pointer.
func (a Arch) SP() int {
	if a == ARM64 {
		return ARM64SP
	}
	return AMD64SP
}

// FP returns the number of the frame pointer.
func (a Arch) FP() int {
	if a == ARM64 {
		return ARM64FP
	}
	return AMD64FP
}

// RA returns the column of the return address.
func (a Arch) RA() int {
	if a == ARM64 {
		return ARM64RA
	}
	return AMD64RA
}
