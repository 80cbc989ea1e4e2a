// Package stack defines the types that all other packages share: threads, times, registers,
// frames and samples. It has no logic except printing and the properties of kinds, imports only the
// standard library, and its values are plain data without synchronization: the owner of a value controls access to it.
package stack

import "fmt"

// TID is a thread's number in the PID namespace of the sliver process (the numbers under /proc).
type TID int32

// Time is in nanoseconds of CLOCK_MONOTONIC.
type Time int64

// Kind is the kind of code that a frame belongs to.
type Kind uint8

// An event word has three bits for the kind: see Kind.Code. The properties of kinds are in kinds.go.
const (
	KindNative Kind = iota // machine code with or without a symbol
	KindGo                 // machine code made by the Go compiler
	KindKernel             // the kernel, entered from the frame below
	KindJava               // Java, interpreted or compiled
	KindPython             // CPython
	KindJS                 // JavaScript
	KindError              // not code: PC holds a Reason
	KindRuby               // CRuby
)

// Trust is how a frame was found, from the most reliable down.
type Trust uint8

// The trusts fit in three bits of an event word.
const (
	TrustRegs  Trust = iota // the PC register itself
	TrustCFI                // call frame information of the file
	TrustTable              // a runtime's own tables (pclntab, Method*)
	TrustFP                 // the frame-pointer chain
	TrustScan               // a return address found by scanning the stack
)

func (t Trust) String() string {
	return name(int(t), "trust", "registers", "cfi", "tables", "frame pointer", "scan")
}

// Reason is why a stack ends before the thread's start, or why a sample is missing. It is the PC
// of a KindError frame.
type Reason uint8

// Reasons of a stack that ends early.
const (
	ReasonNone     Reason = iota
	ReasonShort           // the stack is larger than the copy
	ReasonNoRule          // no unwinding information covers the address
	ReasonUnmapped        // the address is in no known mapping
	ReasonRegister        // a required register is unknown
	ReasonMemory          // a required word could not be read
	ReasonLoop            // the stack pointer did not rise
	ReasonCorrupt         // the unwinding tables are damaged there
	ReasonEmpty           // no part of the stack could be read
	ReasonHeap            // frames in the program's heap: those of a virtual thread that were not copied back to the stack
	ReasonNull            // a return address of 0 before the end of the thread's stack
	ReasonDeep            // more frames than one stack may have
	ReasonParent          // a coroutine's stack on its thread's own; the frames of its starter follow
	ReasonBound           // more frames of a runtime than are read per stack
	ReasonKernel          // not an end: the thread was in the kernel, in a call or page fault that nothing shows
)

// MaxReason is greater than any Reason.
const MaxReason = 16

func (r Reason) String() string {
	return name(int(r), "reason", "none", "stack copy too short", "no unwind rule", "unmapped address",
		"unknown register", "unreadable memory", "stack does not rise", "damaged unwind table", "no stack", "frames in the heap",
		"return address is 0", "more than 65536 frames", "frames of the parent coroutine",
		"more frames than are read of one stack", "in the kernel, in an unknown call")
}

// Frame is one activation of a function, real or inlined.
type Frame struct {
	Func  uint64 // address of the function's start (run time); 0: unknown
	PC    uint64 // the current address (Exact), or the return address into it
	CFA   uint64 // canonical frame address: the caller's SP at the call; on a relocated stack, the value without relocation
	Kind  Kind
	Trust Trust
	Exact bool  // PC is the next instruction to run (leaf, or interrupted by a signal), not a return address
	Part  bool  // Func is the start of a separate part of an unknown function (f.cold)
	Order uint8 // distinguishes logical frames that share PC and CFA; 0 is the outermost
	Era   uint8 // distinguishes mappings that had the same addresses in turn
}

// Same reports whether f and g are the same activation, given the return addresses into their
// callers (0 if there is none). The PCs of the frames themselves may differ, because an
// activation moves. If the start of a function is unknown (frame pointers only), two different
// functions called from one place look the same, and so do a function's part and any other
// function; only their names distinguish them.
func Same(f, g *Frame, fCaller, gCaller uint64) bool {
	return f.CFA == g.CFA && (f.Func == g.Func || f.Part || g.Part) && fCaller == gCaller && f.Kind == g.Kind && f.Order == g.Order && f.Era == g.Era &&
		(f.Kind != KindError || f.PC == g.PC)
}

// State is a thread's state at a sample.
type State uint8

// States of a thread.
const (
	StateUnknown  State = iota
	StateRunning        // on a CPU
	StateRunnable       // waiting for a CPU
	StateBlocked        // sleeping, can be woken by a signal
	StateDisk           // uninterruptible sleep
	StateFault          // in a page fault that waits
	StateStopped        // stopped by a signal, or frozen by its control group
	StateTraced         // held by another tracer
	StateDead           // gone
)

func (s State) String() string {
	return name(int(s), "state", "unknown", "running", "runnable", "blocked", "uninterruptible", "page fault",
		"stopped", "traced", "dead")
}

// TaskState is the state of a runtime's task (a goroutine, an asyncio task).
type TaskState uint8

// States of a task.
const (
	TaskUnknown   TaskState = iota
	TaskRunning             // a thread runs it
	TaskRunnable            // ready, waiting for its turn
	TaskCall                // its thread is in a system call for it
	TaskWaiting             // waiting: see Task.Reason
	TaskPreempted           // preempted
	TaskDone                // finished
)

func (s TaskState) String() string {
	return name(int(s), "task state", "unknown", "running", "runnable", "syscall", "waiting", "preempted", "done")
}

// Task is the state of a runtime's task at one moment.
type Task struct {
	ID     uint64 // the runtime's number for it, less than 1<<44; 0: no task
	State  TaskState
	Reason uint8 // TaskWaiting: the reason, in the runtime's numbering; 0: unknown
}

// Way is how a sample was taken.
type Way uint8

// Ways, three bits of an event word.
const (
	WayStop  Way = iota // the thread was stopped
	WayUnrun            // the thread had not run since the last sample: same stack, not read
	WayRead             // the thread was blocked: read without a stop, between two equal counters
	WayPart             // blocked, read without a stop, and the stack is incomplete
	WayClock            // it ran: a clock of the kernel copied it
)

func (w Way) String() string { return name(int(w), "way", "stop", "unrun", "read", "part", "clock") }

// Why is the reason of a gap: samples that are missing.
type Why uint8

// Reasons of a gap or mark.
const (
	WhyLate       Why = iota + 1 // ticks came too late and were not made up for
	WhyTimeout                   // the stop was not confirmed in time
	WhyTraced                    // another tracer holds the thread
	WhyExec                      // the process became another program
	WhyLost                      // events were overwritten before they were read
	WhyDenied                    // the kernel refused
	WhyStopped                   // the user paused the recording
	WhyBudget                    // the interval was stretched to keep the overhead budget
	WhyGone                      // the thread ended
	WhyUnreadable                // the stack could not be read
	WhyTrigger                   // a rule of the flight recorder matched, and the recording was kept
)

func (w Why) String() string {
	return name(int(w), "why", "none", "late", "stop timed out", "held by another tracer", "exec", "overwritten", "denied",
		"recording paused", "overhead budget", "thread ended", "stack unreadable", "trigger")
}

// Mapping is one line of a process's address space.
type Mapping struct {
	Start, End uint64 // addresses in the target
	Off        uint64 // offset in the file
	Dev        uint64 // device and inode of the file; 0 for anonymous memory
	Inode      uint64
	Exec       bool
	Write      bool
	Path       string // as the kernel shows it, without " (deleted)"; "[vdso]", "[stack]" or "" without a file
	Deleted    bool
	Gen        uint32 // distinguishes files that had the same Dev, Inode and Path in turn
}

// Span is a piece of the target's memory.
type Span struct {
	Addr uint64 // in the target
	Len  int    // bytes
	// Maybe: the memory may be absent. Of several such spans, each is present only if the
	// previous one is.
	Maybe bool
}

// MaxSpans is the most spans of one read: UIO_MAXIOV of process_vm_readv(2).
const MaxSpans = 1024

// Regs is a thread's registers in DWARF's numbering for its machine: amd64 0..16 (16 is the
// return address column), arm64 x0..x30, 31 is SP.
type Regs struct {
	PC    uint64
	R     [33]uint64
	Known uint64 // bit i: R[i] holds the thread's value
	TLS   uint64 // FS base (amd64) or TPIDR_EL0 (arm64); 0: unknown
}

// Set sets register i.
func (r *Regs) Set(i int, v uint64) { r.R[i] = v; r.Known |= 1 << i }

// Has reports whether register i is known.
func (r *Regs) Has(i int) bool { return r.Known>>i&1 != 0 }

// Call is the system call that a thread is blocked in.
type Call struct {
	Nr   int32 // -1: not in a system call
	Args [6]uint64
}

// Sample is one look at one thread. The sampler owns it and everything in it: a sink must copy
// the parts that it keeps.
type Sample struct {
	Time     Time  // when the thread had this stack
	Begin    Time  // start of the stop, WayStop only
	Pause    int64 // ns that the stop took, without the time that the thread waited for a CPU before it; 0 without a stop
	CPU      int64 // ns of CPU time since the thread began; -1: unknown
	Delay    int64 // ns of waiting for a CPU since the thread began; -1: unknown
	Switches uint64
	Again    int // of WayUnrun: number of earlier ticks with the same state and without their own sample
	Way      Way
	State    State
	GIL      bool // it held its interpreter's global lock
	Call     Call
	Stack    []Frame // leaf first; the last one is a KindError frame if Reason is set
	Kernel   []Frame // frames of the kernel above Stack, leaf first; empty: the thread was in its own code, or they are unknown
	Reason   Reason  // why the stack ends early
	// Word, if not nil, reads 8 bytes of the thread's memory at that time, from the copy. It is
	// valid while the sample is passed on. It is set only if the stack ends early and calls push
	// their return addresses (amd64).
	Word func(addr uint64) (uint64, bool)
	// Reach is set if the stack ends early: frames of earlier samples whose CFA is beyond the
	// last frame found and at most Reach are on the same stack. 0: the end of the stack on which
	// the walk ended is unknown.
	Reach uint64
	// Here, if not nil, reports whether the code of an earlier sample's frame is still mapped. It
	// is valid while the sample is passed on, and set only if the stack ends early.
	Here func(*Frame) bool
}

func name(i int, what string, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}
