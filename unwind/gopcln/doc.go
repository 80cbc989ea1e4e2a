// Package gopcln unwinds, and names, machine code that the Go compiler made,
// from the tables that Go's own runtime uses: they are in every Go program,
// stripped or not. It follows Go 1.16 to 1.26 on amd64 and arm64.
//
// Table is one file: Rule gives the step from a frame to its caller, Func, Line
// and Inlines name it. Runtime is one process, Thread one thread of it: they
// know where Go keeps its goroutines, and take a walk from the stack of the
// scheduler (g0), of signals (gsignal) or of C to the stack it was left from.
// Reading the target, call frame information of C code, and executing rules
// are left to others. Tables and Runtimes may be used concurrently, a Thread
// by one goroutine at a time.
//
// # How a walker goes about it
//
// Per sample, while the thread is stopped: copy the spans of Plan, then the
// stack from SP, then what More asks for until it asks for nothing (MaxMore
// times at most). Call Begin with the registers and that copy; the first time,
// Begin proves what it finds by reading some words more, which should be had
// from live memory. Then, per frame:
//
//   - Look the rule up at PC, or at PC−1 where PC is a return address. It is
//     one after an ordinary step; after a rule with Signal, and after Cross
//     said Exact, it is not.
//   - An error that wraps rule.ErrNoRule: C code in the file, or none. Go on
//     with call frame information, else with the frame pointer.
//   - Special None: execute the rule. SP rises, except that on arm64 a frame
//     whose PC is exact, and whose rule has RA in a register, may leave it.
//   - Special End: the walk is complete. The CFA is not meaningful there.
//   - Any other: call Cross with the frame's own registers, whether its PC is
//     exact, and the copy. Apply: now execute the rule, with the registers as
//     Cross left them. Jump and Exact: the registers are the caller's already,
//     do not execute the rule. Base: the walk is complete: a thread of the
//     scheduler, without a goroutine. Lost: a word was missing, or not what it
//     should be. SP may have moved anywhere, up or down; bound the number of
//     such steps, not their direction. A frame's CFA is that of the registers
//     after Cross, by the rule.
//   - Without a Runtime, GoSwitch, GoCgocallback and GoSigtramp end the walk;
//     for GoSigtramp, SignalContext at the rule's CFA does what Cross does.
//
// What Special means:
//
//   - GoSwitch: systemstack, asmcgocall, mcall, morestack and gogo, and the
//     functions that call the vDSO on g0's stack. If the frame is on the
//     goroutine's own stack after all (the switch is not yet made, or undone),
//     Cross says Apply and changes nothing.
//   - GoCgocallback: C called Go. Below it lies C, on g0's stack, until
//     asmcgocall leads back; this alternates as deep as the calls nest.
//   - GoSigtramp: on amd64, the function that the handler returns to
//     (sigreturn__sigaction), at whose SP the kernel put the ucontext; on arm64,
//     where that function is in the vDSO and has no call frame information,
//     sigtramp itself. Programs with cgo have the C library's instead, which has.
//   - End: goexit, mstart, rt0_go and their like. Below mstart there may be C
//     that made the thread.
//
// Some rules of assembly functions say more than Go's tables do: where SP is
// kept in R12 or RBX (R20, R19) while C runs, where crosscall2 keeps the
// registers that C wants back, that asyncPreempt and sigpanic were called by a
// signal handler. They come from the functions' instructions.
package gopcln
