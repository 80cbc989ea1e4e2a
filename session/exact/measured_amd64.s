#include "textflag.h"

// The code that measure probes, at the first instruction of entered and at the RET of left: see places.

// entered is called by enter.
TEXT entered<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BP
	POPQ  BP
	RET

// left is called by leave.
TEXT left<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BP
	POPQ  BP
	RET

// func places() (enter, exit uint64)
TEXT ·places(SB), NOSPLIT, $0-16
	LEAQ entered<>(SB), AX
	MOVQ AX, enter+0(FP)
	LEAQ left<>(SB), AX
	ADDQ $2, AX
	MOVQ AX, exit+8(FP)
	RET

// func enter(n int64)
TEXT ·enter(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX

again:
	CALL entered<>(SB)
	DECQ CX
	JNZ  again
	RET

// func leave(n int64)
TEXT ·leave(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX

again:
	CALL left<>(SB)
	DECQ CX
	JNZ  again
	RET
