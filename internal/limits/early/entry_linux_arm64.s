#include "textflag.h"

// sliver_entry is the program's entry point if it is linked with -E sliver_entry. It runs before the
// runtime reserves its address space, and exits with one line if "ulimit -v" is below 850 MiB: from
// 830 MiB on, the runtime starts and the package's init function reports the limit.
// Otherwise it continues at the runtime's entry point, with the stack as the kernel set it up.
TEXT sliver_entry(SB),NOSPLIT|NOFRAME,$0
	SUB	$16, RSP
	MOVD	$0, R0		// prlimit64(0, RLIMIT_AS, NULL, RSP)
	MOVD	$9, R1
	MOVD	$0, R2
	MOVD	RSP, R3
	MOVD	$261, R8
	SVC
	MOVD	0(RSP), R4	// rlim_cur
	ADD	$16, RSP
	CBNZ	R0, start
	MOVD	$(850<<20), R5
	CMP	R5, R4
	BHS	start
	MOVD	$2, R0		// write(2, entryText, its length)
	MOVD	$entryText<>(SB), R1
	MOVD	$107, R2
	MOVD	$64, R8
	SVC
	MOVD	$1, R0		// exit_group(1)
	MOVD	$94, R8
	SVC
start:
	JMP	_rt0_arm64_linux(SB)

DATA	entryText<>+0(SB)/8, $"sliver: "
DATA	entryText<>+8(SB)/8, $"ulimit -"
DATA	entryText<>+16(SB)/8, $"v allows"
DATA	entryText<>+24(SB)/8, $" less th"
DATA	entryText<>+32(SB)/8, $"an 850 M"
DATA	entryText<>+40(SB)/8, $"B of add"
DATA	entryText<>+48(SB)/8, $"ress spa"
DATA	entryText<>+56(SB)/8, $"ce; sliv"
DATA	entryText<>+64(SB)/8, $"er takes"
DATA	entryText<>+72(SB)/8, $" 1000 MB"
DATA	entryText<>+80(SB)/8, $", most o"
DATA	entryText<>+88(SB)/8, $"f it onl"
DATA	entryText<>+96(SB)/8, $"y reserv"
DATA	entryText<>+104(SB)/3, $"ed\n"
GLOBL	entryText<>(SB), RODATA, $107
