#include "textflag.h"

// func getrlimit(resource uintptr, l *[2]uint64) (errno uintptr)
TEXT ·getrlimit(SB),NOSPLIT,$0-24
	MOVQ	$0, DI
	MOVQ	resource+0(FP), SI
	MOVQ	$0, DX
	MOVQ	l+8(FP), R10
	MOVQ	$302, AX	// prlimit64
	SYSCALL
	MOVQ	AX, errno+16(FP)
	RET
