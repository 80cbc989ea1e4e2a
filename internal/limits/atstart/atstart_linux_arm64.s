#include "textflag.h"

// func getrlimit(resource uintptr, l *[2]uint64) (errno uintptr)
TEXT ·getrlimit(SB),NOSPLIT,$0-24
	MOVD	$0, R0
	MOVD	resource+0(FP), R1
	MOVD	$0, R2
	MOVD	l+8(FP), R3
	MOVD	$261, R8	// prlimit64
	SVC
	MOVD	R0, errno+16(FP)
	RET
