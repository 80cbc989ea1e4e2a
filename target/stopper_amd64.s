#include "textflag.h"

// func cloneStopper(flags, stack, tls, main uintptr, b *stopBlock) (pid uintptr)
// The new process begins on a stack of its own in main, called as compiled Go
// calls: argument in AX, no goroutine in R14, zeroes in X15.
TEXT ·cloneStopper(SB),NOSPLIT,$0-48
	MOVQ	flags+0(FP), DI
	MOVQ	stack+8(FP), SI
	MOVQ	tls+16(FP), R8
	MOVQ	main+24(FP), R13
	MOVQ	b+32(FP), R12
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	$56, AX	// clone
	SYSCALL
	CMPQ	AX, $0
	JEQ	child
	MOVQ	AX, pid+40(FP)
	RET
child:
	MOVQ	$0, BP
	MOVQ	R12, AX
	MOVQ	$0, R14
	XORPS	X15, X15
	CALL	R13
	MOVQ	$0, DI
	MOVQ	$60, AX	// exit
	SYSCALL
	INT	$3

// func load32(p *uint32) uint32
TEXT ·load32(SB),NOSPLIT,$0-12
	MOVQ	p+0(FP), AX
	MOVL	(AX), AX
	MOVL	AX, ret+8(FP)
	RET

// func store32(p *uint32, v uint32)
TEXT ·store32(SB),NOSPLIT,$0-12
	MOVQ	p+0(FP), AX
	MOVL	v+8(FP), CX
	XCHGL	CX, (AX)
	RET
