#include "textflag.h"

// The code that measure probes, at the first instruction of entered and at the RET of left: see places.

// entered is called by enter.
TEXT entered<>(SB), NOSPLIT|NOFRAME, $0-0
	STP.W (R29, R30), -16(RSP)
	LDP.P 16(RSP), (R29, R30)
	RET

// left is called by leave.
TEXT left<>(SB), NOSPLIT|NOFRAME, $0-0
	STP.W (R29, R30), -16(RSP)
	LDP.P 16(RSP), (R29, R30)
	RET

// func places() (enter, exit uint64)
TEXT ·places(SB), NOSPLIT, $0-16
	MOVD $entered<>(SB), R0
	MOVD R0, enter+0(FP)
	MOVD $left<>(SB), R0
	ADD  $8, R0
	MOVD R0, exit+8(FP)
	RET

// func enter(n int64)
TEXT ·enter(SB), NOSPLIT, $0-8
	MOVD n+0(FP), R2

again:
	CALL entered<>(SB)
	SUB  $1, R2
	CBNZ R2, again
	RET

// func leave(n int64)
TEXT ·leave(SB), NOSPLIT, $0-8
	MOVD n+0(FP), R2

again:
	CALL left<>(SB)
	SUB  $1, R2
	CBNZ R2, again
	RET
