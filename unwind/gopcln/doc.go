// Package gopcln unwinds and names machine code from the Go compiler. It uses the tables of Go's
// own runtime, which are in every Go program, stripped or not. It supports Go 1.16 to 1.26 on amd64
// and arm64.
//
// A Table is one file: Rule returns the step from a frame to its caller; Func, Line and Inlines
// name the frame. A Runtime is one process and a Thread one thread of it. They know where Go keeps
// its goroutines, and move a walk from the stack of the scheduler (g0), of signals (gsignal) or of
// C to the stack from which it was entered. The package does not read the target, parse C code's
// call frame information, or execute rules. Tables and Runtimes may be used concurrently, a Thread
// by one goroutine at a time.
//
// # How to walk
//
// Per sample, while the thread is stopped: copy the spans of Plan, then the stack from SP, then the
// spans of More until it returns none (at most MaxMore times). Call Begin with the registers and
// that copy. On a thread's first sample, Begin validates its findings by reading a few more words,
// which should come from live memory. Then, per frame:
//
//   - Look up the rule at PC, or at PC−1 if PC is a return address. It is a
//     return address after an ordinary step, but not after a rule with Signal
//     or after Cross returned Exact.
//   - An error that wraps rule.ErrNoRule: C code in the file, or no code. Use
//     call frame information, or the frame pointer if there is none.
//   - Special None: execute the rule. SP rises, except that on arm64 a frame
//     with an exact PC and a rule with RA in a register may keep it.
//   - Special End: the walk is complete. The CFA is not meaningful there.
//   - Any other: call Cross with the frame's own registers, whether its PC is
//     exact, and the copy. Apply: execute the rule with the registers from
//     Cross. Jump and Exact: the registers are already the caller's; do not
//     execute the rule. Base: the walk is complete, on a thread of the
//     scheduler without a goroutine. Lost: a word was missing or implausible.
//     SP may have moved anywhere, up or down; bound the number of such steps,
//     not their direction. A frame's CFA is computed by the rule from the
//     registers after Cross.
//   - Without a Runtime, GoSwitch, GoCgocallback and GoSigtramp end the walk.
//     For GoSigtramp, SignalContext at the rule's CFA does the work of Cross.
//
// The values of Special:
//
//   - GoSwitch: systemstack, asmcgocall, mcall, morestack and gogo, and the
//     functions that call the vDSO on g0's stack. If the frame is still on the
//     goroutine's own stack (before the switch, or after it was undone), Cross
//     returns Apply and changes nothing.
//   - GoCgocallback: C called Go. Below it is C, on g0's stack, until
//     asmcgocall leads back. The two alternate as deep as the calls nest.
//   - GoSigtramp: on amd64, the function that the handler returns to
//     (sigreturn__sigaction); the kernel put the ucontext at its SP. On arm64,
//     sigtramp itself, because there the handler returns to the vDSO, which
//     lacks call frame information. Programs with cgo use the C library's
//     function instead, which has call frame information.
//   - End: goexit, mstart, rt0_go and similar functions. Below mstart there may
//     be C code that created the thread.
//
// Some rules of assembly functions say more than Go's tables: that SP is kept in R12 or RBX (R20,
// R19) while C runs, where crosscall2 saves the registers for C, that a signal handler called
// asyncPreempt and sigpanic. These rules are derived from the functions' instructions.
package gopcln
