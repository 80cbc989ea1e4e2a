// Package event defines the two-word events that describe how a thread's stack changes. Rings
// hold them, and a recording stores them.
//
// An event is {time in ns of CLOCK_MONOTONIC, value}; value is kind<<56 | payload. The payload of
// each kind:
//
//	Exit    0       the top frame was left (the whole value is 0)
//	Enter   frame   a frame was entered on top: its word, see Frame
//	Move    frame   the top frame continues at another place
//	Seen    seen    the stack was confirmed up to this time, see Seen
//	State   state   the thread's state from here on, see State
//	Lock    addr    address of the lock it waits for; 0: none any more
//	Holder  holder  the holder of that lock: TID, and how it is known
//	Sync    depth   the whole stack follows as depth Enter events, outermost
//	                first, each with the time at which it was entered
//	Gap     gap     samples are missing: why<<48 | ns they would have covered
//	Pause   ns      sliver held the thread from this time on for ns
//	Rate    ns      the interval between samples from here on
//	Wait    id      number of a description of the wait in the recording
//	Mark    why     something happened at this time (exec, …)
//	Sched   sched   times switched in since the last such event, and ns waited for a CPU
//	Task    task    the task (goroutine) that the thread runs from here on; 0: none
//	Parked  task    the state of a task that the thread ran before
//	Waker   waker   the thread that ended the present wait: by<<40 | number of
//	                a waker of the recording plus 1. No recording stores it:
//	                readers make it of the recording's context switches
//	Kernel  stack   number of the kernel stack of the present wait; the same
//
// The package imports only package stack; all functions are pure.
package event

import "github.com/sliverprof/sliver/stack"

// Kind is the top byte of a value.
type Kind uint8

// Kinds.
const (
	Exit Kind = iota
	Enter
	Move
	Seen
	State
	Lock
	Holder
	Sync
	Gap
	Pause
	Rate
	Wait
	Mark
	Sched
	Task
	Parked
	Waker
	Kernel
	kinds
)

var kindNames = [...]string{"exit", "enter", "move", "seen", "state", "lock", "holder", "sync", "gap", "pause", "rate",
	"wait", "mark", "sched", "task", "parked", "waker", "kernel"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Valid reports whether k is known to this version.
func (k Kind) Valid() bool { return k < kinds }

// Event is one entry of a ring.
type Event struct {
	Time  stack.Time
	Value uint64
}

const payloadMask = 1<<56 - 1

// Kind returns the kind of e.
func (e Event) Kind() Kind { return Kind(e.Value >> 56) }

// Payload returns the payload of e, 56 bits.
func (e Event) Payload() uint64 { return e.Value & payloadMask }

// Make joins a kind and a payload; payload bits above 56 are dropped.
func Make(t stack.Time, k Kind, payload uint64) Event {
	return Event{t, uint64(k)<<56 | payload&payloadMask}
}

// Word is the payload of Enter and Move: the parts of a frame that symbolizing requires.
//
//	bits 0..47 address (PC or return address; a Reason for error frames)
//	bits 48..50 stack.Kind.Code   bit 51 bare   bits 52..54 stack.Trust   bit 55 exact
//
// User addresses of both machines fit in 48 bits (a program that requests five-level page tables
// by hint may have code above; such a PC is truncated).
type Word uint64

// WordOf packs f.
func WordOf(f *stack.Frame) Word {
	w := f.PC&(1<<48-1) | f.Kind.Code()<<48 | uint64(f.Trust&7)<<52
	if (f.Func == 0 || f.Part) && f.Kind != stack.KindError {
		w |= 1 << 51
	}
	if f.Exact {
		w |= 1 << 55
	}
	return Word(w)
}

// Addr returns the frame's PC: exact, or a return address.
func (w Word) Addr() uint64 { return uint64(w) & (1<<48 - 1) }

// Kind returns the kind of the frame.
func (w Word) Kind() stack.Kind { return stack.KindOf(uint64(w)>>48&7, w.Addr()) }

// Bare reports whether the start of the frame's function is unknown: two functions called in turn
// from one place can then be distinguished only by name.
func (w Word) Bare() bool { return w>>51&1 != 0 }

// Trust returns the trust of the frame.
func (w Word) Trust() stack.Trust { return stack.Trust(w >> 52 & 7) }

// Exact reports whether Addr is the next instruction and not a return address.
func (w Word) Exact() bool { return w>>55&1 != 0 }

// Lookup returns the address for finding names and lines: the address itself if it is exact,
// otherwise one less, inside the call.
func (w Word) Lookup() uint64 {
	if a := w.Addr(); w.Exact() || a == 0 || w.Kind() == stack.KindError {
		return a
	}
	return w.Addr() - 1
}

// Ran reports whether a sample of a thread in state s found it on a CPU. Imported recordings have
// no states.
func Ran(s stack.State, w stack.Way) bool {
	return s == stack.StateRunning || s == stack.StateUnknown && w == stack.WayStop
}

// Limits of Seen's fields: a writer emits one before either overflows.
const (
	MaxSeen    = 1<<13 - 1 // samples
	MaxSeenCPU = 1<<40 - 1 // ns, 18 minutes
)

// SeenOf packs n samples (since the last Seen or change), all taken in the same way, and the CPU
// time in ns that the thread used since the last Seen.
func SeenOf(w stack.Way, n int, cpu int64) uint64 {
	return uint64(w&7)<<53 | uint64(min(n, MaxSeen))<<40 | uint64(min(max(cpu, 0), MaxSeenCPU))
}

// SeenFields unpacks a Seen payload.
func SeenFields(p uint64) (w stack.Way, n int, cpu int64) {
	return stack.Way(p >> 53 & 7), int(p >> 40 & MaxSeen), int64(p & MaxSeenCPU)
}

// StateOf packs a state and the thread's system call (-1: none).
func StateOf(s stack.State, nr int32) uint64 {
	return uint64(s)<<48 | uint64(uint32(nr+1))&0xffff
}

// StateGIL is the bit of a State payload that says that the thread held its interpreter's global lock
// (CPython's GIL).
const StateGIL = 1 << 16

// StateFields unpacks a State payload.
func StateFields(p uint64) (s stack.State, nr int32) {
	return stack.State(p >> 48 & 0xff), int32(p&0xffff) - 1
}

// StateExact is the bit of a State payload that says that the kernel's context switches show the state and
// its time. Bits 18 to 25 then have the state that the sample found which the next Seen confirms, and StateSampled
// returns it. No recording stores these bits: readers set them.
const (
	StateExact   = 1 << 17
	stateSampled = 18 // shift
	stateBits    = 0xff << stateSampled
)

// StateOfSwitch makes a State payload exact: p is that of the last sample.
func StateOfSwitch(s stack.State, nr int32, p uint64) uint64 {
	sampled := StateSampled(p)
	return StateOf(s, nr) | p&StateGIL | StateExact | uint64(sampled)<<stateSampled
}

// StateSampled returns the state that the sample found: that of the payload, if it is not exact.
func StateSampled(p uint64) stack.State {
	if p&StateExact != 0 {
		return stack.State(p & stateBits >> stateSampled)
	}
	s, _ := StateFields(p)
	return s
}

// WokenBy is how a thread was woken, as bits; 0: by a thread.
type WokenBy uint8

// Values of WokenBy. In an interrupt, the waker is the thread that the interrupt found on the CPU.
const (
	ByHard  WokenBy = 1 << iota // by an interrupt
	BySoft                      // by the deferred part of one
	ByTimer                     // the interrupt was a timer's
)

// Thread reports whether a thread woke it, and not an interrupt.
func (b WokenBy) Thread() bool { return b&(ByHard|BySoft) == 0 }

// WakerOf packs the number of a waker, -1 for an unknown one, and how it woke the thread.
func WakerOf(waker int, by WokenBy) uint64 { return uint64(by)<<40 | uint64(uint32(waker+1)) }

// WakerFields unpacks a Waker payload.
func WakerFields(p uint64) (waker int, by WokenBy) { return int(uint32(p)) - 1, WokenBy(p >> 40) }

// GapOf packs the reason for missing samples and the ns that they would have covered (at most
// 2^48).
func GapOf(w stack.Why, ns int64) uint64 {
	return uint64(w)<<48 | uint64(min(max(ns, 0), 1<<48-1))
}

// GapFields unpacks a Gap payload.
func GapFields(p uint64) (w stack.Why, ns int64) {
	return stack.Why(p >> 48 & 0xff), int64(p & (1<<48 - 1))
}

// SchedOf packs the number n of switches in and the ns of waiting for a CPU, both since the last
// Sched event.
func SchedOf(n uint64, delay int64) uint64 {
	return min(n, 0xffff)<<40 | uint64(min(max(delay, 0), MaxSeenCPU))
}

// SchedFields unpacks a Sched payload.
func SchedFields(p uint64) (n uint64, delay int64) { return p >> 40 & 0xffff, int64(p & MaxSeenCPU) }

// KnownBy is how a holder is known.
type KnownBy uint8

// Ways to know a holder.
const (
	KnownByWord     KnownBy = iota + 1 // the lock word or its owner field names it
	KnownByKernel                      // /proc/locks, PI futex
	KnownByRuntime                     // a managed runtime's own records
	KnownByInferred                    // inferred from the recording: the thread that released it when the wait ended
	KnownByWaker                       // the kernel saw it wake the waiting thread
)

func (k KnownBy) String() string {
	switch k {
	case KnownByWord:
		return "lock word"
	case KnownByKernel:
		return "kernel"
	case KnownByRuntime:
		return "runtime"
	case KnownByInferred:
		return "inferred"
	case KnownByWaker:
		return "wake-up"
	}
	return ""
}

// HolderOf packs the TID that holds a lock and how it is known; tid 0: none or unknown.
func HolderOf(tid stack.TID, by KnownBy) uint64 { return uint64(by)<<48 | uint64(uint32(tid)) }

// HolderFields unpacks a Holder payload.
func HolderFields(p uint64) (tid stack.TID, by KnownBy) {
	return stack.TID(uint32(p)), KnownBy(p >> 48 & 0xff)
}

// MaxTask is the largest number of a task; larger numbers are truncated.
const MaxTask = 1<<44 - 1

// TaskOf packs a task: number in bits 0..43, state in 44..47, reason in 48..55.
func TaskOf(t stack.Task) uint64 {
	return t.ID&MaxTask | uint64(t.State&15)<<44 | uint64(t.Reason)<<48
}

// TaskFields unpacks a Task or Parked payload.
func TaskFields(p uint64) stack.Task {
	return stack.Task{ID: p & MaxTask, State: stack.TaskState(p >> 44 & 15), Reason: uint8(p >> 48)}
}
