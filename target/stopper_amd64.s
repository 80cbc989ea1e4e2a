#include "textflag.h"

// func cloneStopper(flags, stack, tls, main uintptr, b *stopBlock) (pid uintptr)
// The new process starts in main on its own stack, called like compiled Go:
// argument in AX, no goroutine in R14, zeroes in X15.
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

// func herdCode() (handler, restorer uintptr)
TEXT ·herdCode(SB),NOSPLIT,$0-16
	LEAQ	herdSignal<>(SB), AX
	MOVQ	AX, handler+0(FP)
	LEAQ	herdReturn<>(SB), AX
	MOVQ	AX, restorer+8(FP)
	RET

// Signal handler on a herd's stack. The start of that stack holds the function to call and its
// argument. Below the return address is room for the spills of compiled Go.
TEXT herdSignal<>(SB),NOSPLIT|NOFRAME,$0
	MOVQ	SP, CX
	ANDQ	$~0xffff, CX
	SUBQ	$40, SP
	MOVQ	$0, R14
	XORPS	X15, X15
	MOVQ	0(CX), AX
	MOVQ	8(CX), CX
	CALL	CX
	ADDQ	$40, SP
	RET

TEXT herdReturn<>(SB),NOSPLIT|NOFRAME,$0
	MOVQ	$15, AX	// rt_sigreturn
	SYSCALL
	INT	$3
