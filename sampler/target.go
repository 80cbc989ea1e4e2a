package sampler

import (
	"errors"
	"fmt"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// What a Thread or Tracer answers when there is no sample to be had. Anything
// else counts as ErrDenied.
var (
	ErrGone    = errors.New("the thread is gone")
	ErrTimeout = errors.New("the thread did not stop in time")
	// ErrUnsure: the thread waits for a CPU, perhaps to leave a call, or between two
	// frames of an interpreter; or it was a while ago that it was seen to run.
	ErrUnsure = errors.New("the thread waits for a CPU")
	// ErrLater is an ErrTimeout after which the sample is still to come: LateTracer.
	ErrLater = fmt.Errorf("%w yet", ErrTimeout)
	// ErrAsleep: the thread is blocked, and was not asked to stop: View.Check.
	ErrAsleep = errors.New("the thread is blocked")
	// ErrLeft is ErrAsleep of a thread that was on a CPU a moment before.
	ErrLeft   = fmt.Errorf("%w, since a moment", ErrAsleep)
	ErrTraced = errors.New("another tracer holds the thread")
	ErrDenied = errors.New("the kernel refuses")
	// ErrFiles: sliver has no descriptor left for the thread's files.
	ErrFiles = errors.New("sliver has too many open files; raise its limit (ulimit -n)")
)

// Target is the process whose threads are sampled. Its methods may be called
// from any goroutine.
type Target interface {
	// Threads appends the threads there are to buf[:0].
	Threads(buf []stack.TID) ([]stack.TID, error)
	Info(tid stack.TID) (stack.ThreadInfo, error)
	Open(tid stack.TID) (Thread, error)
	// Tracer is for the calling goroutine alone, which is locked to its OS
	// thread for good. maxStack is the most bytes of stack it ever copies.
	Tracer(maxStack int) (Tracer, error)
	// Image is a number that changes when the process execs.
	Image() (uint64, error)
	// Stamp is a number that changes with the number of threads and with Image. It
	// is asked for by groups, and quick.
	Stamp() (uint64, error)
	// Space is the address space as last read. Remap reads the maps again,
	// after an unknown address or (exec) for a new program, and tells whether
	// anything changed.
	Space() *unwind.Space
	Remap(exec bool) (changed bool, err error)
	// Replaced reads the maps again after a sample taken at that time showed another file
	// in the place of a mapped one. The new maps hold from that time on.
	Replaced(at stack.Time) (changed bool, err error)
	Alive() bool
	// Traced reports whether another tracer holds a thread of the process.
	Traced() bool
}

// Counters is the scheduler's account of a thread.
type Counters struct {
	CPU      int64  // ns on CPUs
	Delay    int64  // ns it waited for one
	Switches uint64 // times it got one
}

// Thread is one thread of the target, for one goroutine at a time.
type Thread interface {
	Counters(c *Counters) error
	// Call says whether the thread is running or waiting to run, and else what
	// it is blocked in.
	Call(c *stack.Call) (running bool, err error)
	// OnCPU tells apart the ways to run: on a CPU now, or waiting for one.
	OnCPU() (bool, error)
	// TimesOut reports whether a stop may restart a timeout of the call c that it is blocked in.
	TimesOut(c *stack.Call) bool
	// State tells apart the ways not to run.
	State() (stack.State, error)
	Close() error
}

// Activity is what a thread did at a moment.
type Activity uint8

// Activities. They are those of package target, in its order.
const (
	ActivityUnknown Activity = iota
	ActivityOnCPU            // it was on a CPU
	ActivityQueued           // it waited for a CPU
	ActivityAsleep           // it was blocked
)

// View is what is to be copied of a thread, and what was. One View serves all
// threads of a group; what it holds is good until it is used again.
type View struct {
	Spans        []stack.Span // small blocks to copy
	StackHigh    uint64       // copy the stack from SP up to here …
	StackLow     uint64       // … if SP lies between the two …
	StackDefault int          // … or this many bytes where StackHigh is not above SP
	// Check makes Stop return ErrAsleep for a blocked thread. The check, like Found, is made
	// right before the request: see package target.
	Check    bool
	Deadline int64 // ns from the request to stop until it is given up; AtOnce: see LateTracer
	// More says what else is to be copied now that Regs and Mem are known,
	// before the thread goes on. It is quick, and asked again until it says
	// nothing.
	More func(regs *stack.Regs, mem *unwind.Copy) []stack.Span
	// Ask has Stop call More. Read, which holds nothing up, calls it wherever a
	// managed runtime was seen.
	Ask bool

	Regs      *stack.Regs
	Call      stack.Call
	Counters  Counters // as of this look, where it took them itself (Read)
	Asked     stack.Time
	Halted    stack.Time // of a stop that came late: from then on the thread ran nothing of its own; 0: it came at once
	Stopped   stack.Time
	Resumed   stack.Time
	Reads     int // of the target's memory that this took
	Restarted bool
	Found     Activity    // what the thread did right before it was asked to stop
	Group     bool        // a signal has stopped the whole process
	Mem       unwind.Copy // the Spans, then the stack; shorter where memory ended
}

// Mortal is what a Thread may be besides: where a signal has killed it after a time,
// it has the view show registers and stack as they were then.
type Mortal interface {
	Died(after stack.Time, v *View) (ok bool)
}

// Tracer looks at threads from one OS thread.
type Tracer interface {
	// Stop suspends the thread, copies, and resumes it.
	Stop(t Thread, v *View) error
	// Read copies from a blocked thread without a stop; not ok when it ran meanwhile.
	Read(t Thread, v *View) (ok bool, err error)
	// Reap lets go of threads that stopped after their deadline, and says how
	// many have not stopped yet.
	Reap() (pending int)
	// SleepUntil returns at t, or earlier after a Wake.
	SleepUntil(t stack.Time)
	// Wake may be called from any goroutine.
	Wake()
	Now() stack.Time
	Close()
}

// Sink takes what the sampler finds out about one thread, from the goroutine
// of its group. Nothing of the Sample may be kept.
type Sink interface {
	Sample(s *stack.Sample)
	Gap(t stack.Time, why stack.Why, ns int64)
	Event(t stack.Time, k event.Kind, payload uint64)
	End(t stack.Time, why stack.Why)
	Flush()
}

// FullSink is an optional interface of a Sink: while Full holds, ticks of its thread are left
// out, and counted as late.
type FullSink interface{ Full() bool }

// A Glance is what was seen of a thread.
type Glance struct {
	State    stack.State
	Call     stack.Call // of a blocked thread
	SP       uint64     // of a blocked thread; 0 unknown
	Counters Counters   // as long as they stay, a blocked thread has not gone on
	// Sample, nil where no stack was looked at, is good until the next look.
	Sample *stack.Sample
	// Again: it went on since the look before, back to the same call with the same bytes on
	// its stack.
	Again bool
	// Frames are the stack of Sample; where that has none, as the thread has not run, of the one
	// before it if that was left out of what Waits looked at.
	Frames []stack.Frame
}

// Waits finds out what blocked threads wait for, in the time between their
// samples. One serves the threads of one group, from its goroutine. It is
// quick, stops nobody, and does nothing where a wait is still the same.
type Waits interface {
	// Look comes after each sample of a thread, once that is in the sink, and
	// puts what it finds out there: events Wait, Lock and Holder. Samples of
	// blocked threads may be left out where a round took too long. A wait is the
	// one of the last time where g.Sample.Switches and g.Call are; a sample that
	// took a stop (WayStop) does not have the counters of the sleep after it.
	Look(t Thread, in *stack.ThreadInfo, g *Glance, to Sink)
	// Late comes between two rounds, and puts what could not be found out in a Look,
	// if it is there by now. No event's time may be before since, when the last
	// round ended; what there is no time for until the other one is left for the next.
	Late(since, until stack.Time)
	// Busy reports whether it is to look at each tick, though no thread has run: it
	// asks who holds the locks that they wait for.
	Busy() bool
	// Forget drops what is known of a thread that ended, of all (0) at an exec.
	Forget(tid stack.TID)
	Close()
}
