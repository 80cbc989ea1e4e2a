// Package engine is the folder of what looks at a process in ways other than a stop: CPU breakpoints
// (engine/breakpoint) and programs in the kernel (engine/kernel). An engine takes addresses or numbers and
// gives records. What they mean, and whom they concern, is left to calls, iowatch and session. Stops, reads of
// blocked threads and the kernel's clocks are still in target.
package engine
