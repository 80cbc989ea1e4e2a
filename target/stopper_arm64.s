#include "textflag.h"

// func cloneStopper(flags, stack, tls, main uintptr, b *stopBlock) (pid uintptr)
// The new process starts in main on its own stack, called like compiled Go:
// argument in R0, no goroutine in R28.
TEXT ·cloneStopper(SB),NOSPLIT,$0-48
	MOVD	flags+0(FP), R0
	MOVD	stack+8(FP), R1
	MOVD	tls+16(FP), R3
	MOVD	main+24(FP), R20
	MOVD	b+32(FP), R19
	MOVD	ZR, R2
	MOVD	ZR, R4
	MOVD	$220, R8	// clone
	SVC
	CBZ	R0, child
	MOVD	R0, pid+40(FP)
	RET
child:
	MOVD	ZR, g
	MOVD	ZR, R29
	MOVD	R19, R0
	CALL	(R20)
	MOVD	$0, R0
	MOVD	$93, R8	// exit
	SVC
	BRK

// func load32(p *uint32) uint32
TEXT ·load32(SB),NOSPLIT,$0-12
	MOVD	p+0(FP), R0
	LDARW	(R0), R1
	MOVW	R1, ret+8(FP)
	RET

// func store32(p *uint32, v uint32)
TEXT ·store32(SB),NOSPLIT,$0-12
	MOVD	p+0(FP), R0
	MOVW	v+8(FP), R1
	STLRW	R1, (R0)
	RET

// func herdCode() (handler, restorer uintptr)
TEXT ·herdCode(SB),NOSPLIT,$0-16
	MOVD	$herdSignal<>(SB), R0
	MOVD	R0, handler+0(FP)
	MOVD	$herdReturn<>(SB), R0
	MOVD	R0, restorer+8(FP)
	RET

// Signal handler on a herd's stack. The start of that stack holds the function to call and its
// argument. The frame has room for the spills of compiled Go.
TEXT herdSignal<>(SB),NOSPLIT,$48-0
	MOVD	RSP, R1
	AND	$~0xffff, R1, R1
	MOVD	ZR, g
	MOVD	0(R1), R0
	MOVD	8(R1), R2
	CALL	(R2)
	RET

TEXT herdReturn<>(SB),NOSPLIT|NOFRAME,$0
	MOVD	$139, R8	// rt_sigreturn
	SVC
	BRK
