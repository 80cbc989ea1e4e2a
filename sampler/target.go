package sampler

import (
	"errors"
	"fmt"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind"
)

// Errors of a Thread or Engine that has no sample. Any other error counts as ErrDenied.
var (
	ErrGone    = errors.New("the thread is gone")
	ErrTimeout = errors.New("the thread did not stop in time")
	// ErrUnsure: the thread waits for a CPU, possibly to leave a call or between two frames of an
	// interpreter, or it was last seen running a while ago.
	ErrUnsure = errors.New("the thread waits for a CPU")
	// ErrLater is an ErrTimeout after which the sample is still pending: see Engine.Arrived.
	ErrLater = fmt.Errorf("%w yet", ErrTimeout)
	// ErrAsleep: the thread is blocked and was not asked to stop: see View.Check.
	ErrAsleep = errors.New("the thread is blocked")
	// ErrLeft is ErrAsleep for a thread that was on a CPU right before.
	ErrLeft   = fmt.Errorf("%w, since a moment", ErrAsleep)
	ErrTraced = errors.New("another tracer holds the thread")
	ErrDenied = errors.New("the kernel refuses")
	// ErrNoStops: the thread runs, and the engine only reads threads that do not.
	ErrNoStops = errors.New("the engine stops no threads")
	// ErrAside: the kernel copies the stack of a running thread alone.
	ErrAside = errors.New("the kernel copies no memory beside a stack")
	// ErrAsideLater: it will soon.
	ErrAsideLater = errors.New("the program that copies memory beside a stack is being loaded")
	// ErrFiles: sliver has no free file descriptor for the thread's files.
	ErrFiles = errors.New("sliver has too many open files; raise its limit (ulimit -n)")
)

// Target is the process whose threads are sampled. Its methods may be called from any goroutine.
type Target interface {
	// Threads appends the current threads to buf[:0].
	Threads(buf []stack.TID) ([]stack.TID, error)
	// Info describes a thread that is not open, without its CPU time.
	Info(tid stack.TID) (stack.ThreadInfo, error)
	// Open opens a thread by its number, and sets its CPU time.
	Open(in *stack.ThreadInfo) (Thread, error)
	// Engine returns an Engine for the calling goroutine only, which is locked to its OS thread
	// for good. maxStack is the most bytes of stack it copies.
	Engine(maxStack int) (Engine, error)
	// Image returns a number that changes when the process execs; 0: unknown at this time.
	Image() (uint64, error)
	// Stamp returns a number that changes with the number of threads and with Image. Groups call
	// it, so it must be fast.
	Stamp() (uint64, error)
	// Space returns the address space as last read. Remap reads the maps again, after an unknown
	// address or (exec) for a new program, and reports whether anything changed.
	Space() *unwind.Space
	Remap(exec bool) (changed bool, err error)
	// Replaced reads the maps again after a sample at that time found a mapped file replaced by
	// another one. The new maps hold from that time on.
	Replaced(at stack.Time) (changed bool, err error)
	Alive() bool
	// Now returns the time, as an Engine's Now does.
	Now() stack.Time
	// Traced reports whether another tracer holds a thread of the process.
	Traced() bool
	// RestCPU returns the CPU time, in ns, of all present and past threads except those given. It
	// may lack the CPU time of a running thread since the last scheduler tick. ok is false if the
	// parts could not be read consistently. Calls do not overlap.
	RestCPU(but []Thread) (ns int64, ok bool)
	// Costs returns what sampling has cost so far; ok is false if that is unknown.
	Costs() (c Costs, ok bool)
}

// Counters are the scheduler's accounts of a thread.
type Counters struct {
	CPU      int64  // ns on CPUs
	Delay    int64  // ns waiting for a CPU
	Switches uint64 // times it was given a CPU
}

// Thread is one thread of the target, for use by one goroutine at a time.
type Thread interface {
	Counters(c *Counters) error
	// Call reports whether the thread is running or waiting to run, and otherwise the call that
	// it is blocked in.
	Call(c *stack.Call) (running bool, err error)
	// OnCPU reports whether a running thread is on a CPU, or waits for one.
	OnCPU() (bool, error)
	// TimesOut reports whether a stop may restart a timeout of the call c that it is blocked in.
	TimesOut(c *stack.Call) bool
	// State returns the kind of blocked state.
	State() (stack.State, error)
	// NewName returns the kernel's name of the thread at a time, if its other methods have seen a new
	// one. Times do not decrease. It reads nothing.
	NewName(at stack.Time) (name string, ok bool)
	// Died fills the view with the thread's registers and stack at its death; ok is false if no
	// signal is known to have killed it after that time.
	Died(after stack.Time, v *View) (ok bool)
	Close() error

	// StartClock makes the kernel copy the thread's registers and stack as planned. The error is ErrAside if the kernel does
	// not allow a plan's Aside, and ErrAsideLater if it is not ready yet.
	StartClock(ClockPlan) error
	// SetAside replaces the memory that is copied with the stack.
	SetAside(x *unwind.Aside) error
	// SetClock starts a new period, in ns of CPU time. ran is how long the thread had run by then since StartClock, in ns; 0: unknown.
	SetClock(period int64) (ran int64, err error)
	// NextCopy fills the view with the oldest copy that was not taken yet; ok is false if none is left.
	NextCopy(v *View) (x ClockCopy, ok bool)
	StopClock()
	// MetByClock returns the CPU time, in ns since StartClock, that ticks of a clock of all CPUs have met, copied or not.
	MetByClock() int64
	// Clocks returns which clocks there are.
	Clocks() ClockLimits
}

// ClockPlan says when a clock of the kernel copies a thread.
type ClockPlan struct {
	Every int64         // ns of the thread's CPU time between two copies, in the mean
	Stack int           // bytes
	Tick  int64         // ns between ticks of a clock of all CPUs, of whose copies of the thread some are kept by chance; 0: a clock of the thread
	Crowd bool          // one with the buffers of a pool
	Aside *unwind.Aside // memory that is copied with the stack; nil: none
}

// ClockCopy is what a copy of a clock has beside a View.
type ClockCopy struct {
	Ran    int64         // ns that the thread had run since StartClock; 0: unknown
	Lost   uint64        // copies that a full buffer had no room for since the last call
	Kernel []stack.Frame // of the kernel, leaf first, until the next call; empty: the thread was in its own code, or it is unknown
}

// ClockLimits say which clocks a thread may have, and what these cost.
type ClockLimits struct {
	// Own, Machine and Crowd are the most bytes of stack in a copy of an own clock, of one of all CPUs, and of one that threads of a
	// pool share; 0: there is none.
	Own, Machine, Crowd int

	OwnCode bool         // clocks of threads, own and shared, make no copies in the kernel
	Copy    int64        // ns that a copy is assumed to cost the thread
	Tick    func() int64 // ns that a tick of the clock of all CPUs costs a thread that is not copied
	Delay   func() int64 // ns after which such a tick takes effect once it is due
}

// Activity is a thread's activity at a moment.
type Activity uint8

// Activities, in the order of package target's.
const (
	ActivityUnknown Activity = iota
	ActivityOnCPU            // it was on a CPU
	ActivityQueued           // it waited for a CPU
	ActivityAsleep           // it was blocked
)

// View is a request for data of a thread, and the result. One View serves all threads of a group;
// its contents are valid until its next use.
type View struct {
	Spans        []stack.Span // small blocks to copy
	StackHigh    uint64       // copy the stack from SP up to this address …
	StackLow     uint64       // … if SP is between the two …
	StackDefault int          // … or this many bytes if StackHigh is not above SP
	// Check makes Stop return ErrAsleep for a blocked thread. The check, like Found, is made
	// right before the request: see package target.
	Check    bool
	Deadline int64 // ns from the stop request until Stop returns without a sample; AtOnce: see Engine
	// More returns further spans to copy, now that Regs and Mem are known, before the thread is
	// resumed. It must be fast, and is called again until it returns none.
	More func(regs *stack.Regs, mem *unwind.Copy) []stack.Span
	// Ask makes Stop call More. Read, which delays no thread, calls it if a managed runtime was
	// seen.
	Ask bool

	Regs      *stack.Regs
	Call      stack.Call
	Counters  Counters // as of this look, if it read them itself (Read)
	Asked     stack.Time
	Halted    stack.Time // of a late stop: the thread has run nothing of its own since then; 0: not late
	Stopped   stack.Time
	Resumed   stack.Time
	Reads     int // number of reads of the target's memory
	Restarted bool
	Found     Activity    // activity of the thread right before the stop request
	Group     bool        // a signal has stopped the whole process
	Mem       unwind.Copy // the Spans, then the stack; shorter if memory ended
}

// Engine looks at threads from one OS thread. One that lacks an ability embeds NoStops, NoRegisters or NoLate,
// which answer for it. Only Wake may be called from other goroutines.
type Engine interface {
	// Can returns the engine's abilities, which never change.
	Can() Abilities
	// Read copies from a blocked thread without a stop; ok is false if it ran during the copy.
	Read(t Thread, v *View) (ok bool, err error)
	// Registers makes Read fill in all registers from now on, where it can. It returns whether it did not before: another Read
	// has more.
	Registers() (more bool)
	// Stop suspends the thread, copies, and resumes it. It may return ErrLater; with the deadline
	// AtOnce it always does, and the thread need not be asked to stop before Ask.
	Stop(t Thread, v *View) error
	// Reap releases threads that stopped after their deadline, and returns how many have not
	// stopped yet.
	Reap() (pending int)

	// Ask sends the requests of all stops with the deadline AtOnce: all of a round together,
	// which costs little more than one.
	Ask()
	// Arrived fills the view with a stop that came after its deadline; the view is valid until
	// the next Reap. Its times are those of the request and of the stop. err is as for Stop; ok
	// is false if none is left.
	Arrived(v *View) (t Thread, err error, ok bool)
	// Free reports whether threads that stop late are released without Reap.
	Free() bool

	// GoAhead runs the ticks of a and reports whether it could start. Wake ends it.
	GoAhead(a *Ahead) bool
	// Taken fills the view with stop n of the run.
	Taken(n int, v *View)

	// Spent returns the CPU time, in ns, of the calling OS thread, which may be older than the engine and work for
	// others, and of the engine's helpers; 0: unknown.
	Spent() (thread, helpers int64)
	// SleepUntil returns at t, or earlier after a Wake.
	SleepUntil(t stack.Time)
	// Wake may be called from any goroutine.
	Wake()
	Now() stack.Time
	Close()
}

// Abilities are what an Engine can do beside reading blocked threads.
type Abilities struct {
	Stops bool // Stop takes samples of running threads
	Late  bool // Stop may return ErrLater
	Ahead bool // GoAhead runs ticks
}

// Sink receives the sampler's findings on one thread, from the goroutine of its group. It must
// not keep any part of the Sample.
type Sink interface {
	Sample(s *stack.Sample)
	Gap(t stack.Time, why stack.Why, ns int64)
	Event(t stack.Time, k event.Kind, payload uint64)
	End(t stack.Time, why stack.Why)
	Flush()
	// Full reports whether to leave out ticks of its thread and count them as late.
	Full() bool
}

// Glance is the observed state of a thread.
type Glance struct {
	State    stack.State
	Call     stack.Call // of a blocked thread
	SP       uint64     // of a blocked thread; 0 unknown
	Counters Counters   // while these do not change, a blocked thread has not run
	// Sample is valid until the next look; nil if the stack was not looked at.
	Sample *stack.Sample
	// Again: the thread ran since the look before, and returned to the same call with the same
	// bytes on its stack.
	Again bool
	// Frames is the stack of Sample. If that has none because the thread has not run, it is the
	// stack of the sample before, provided Waits did not see that one.
	Frames []stack.Frame
}

// Waits resolves what blocked threads wait for, in the time between their samples. One serves the
// threads of one group, from its goroutine. It must be fast, stops no thread, and does nothing
// for an unchanged wait.
type Waits interface {
	// Look follows each sample of a thread, once that is in the sink, and adds its findings
	// there: events Wait, Lock and Holder. Samples of blocked threads may be left out if a round
	// took too long. A wait is unchanged while g.Sample.Switches and g.Call are. A sample that
	// took a stop (WayStop) does not have the counters of the sleep after it.
	Look(t Thread, in *stack.ThreadInfo, g *Glance, to Sink)
	// Late is called between two rounds, and adds findings that were not available in a Look. No
	// event's time may be before since, the end of the last round. Work that does not fit before
	// until is left for the next call.
	Late(since, until stack.Time)
	// Busy reports whether Look must be called at each tick although no thread has run, because
	// Waits is resolving the holders of their locks. Only a Look makes it busy.
	Busy() bool
	// Forget drops the state of a thread that ended, or of all threads (0) at an exec.
	Forget(tid stack.TID)
	Close()
}
