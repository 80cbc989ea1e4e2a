// Package engine is the folder of the ways to look at a process: stops, and reads of blocked threads
// (engine/ptrace), CPU breakpoints (engine/breakpoint) and programs in the kernel (engine/kernel). An engine takes
// addresses or numbers and gives copies or records. What they mean, and whom they concern, is left to sampler,
// calls, iowatch and session. The calls of the kernel that stop a thread are in target.
package engine
