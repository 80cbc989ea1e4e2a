// Package calls holds what exact tracing of function calls needs and no process: patterns that
// choose functions (Pattern), the places in a function's code at which it is entered and left
// (Scan), and the pairing of enters with exits into calls (Pairer). An engine reports Hits; who
// reads a process or writes a recording is not this package's business.
//
// Its types are for one goroutine at a time.
package calls

import "github.com/sliverprof/sliver/stack"

// Where says what a probe's place is to its function.
type Where uint8

// The places of a function.
const (
	Enter  Where = iota // the function begins: the return address is at CFA-8 (amd64) or in LR (arm64)
	Return              // a return instruction
	Jump                // a jump to another function (tail call)
	// Inside is the instruction behind Enter's: the thread carried that one out. See Code.Second.
	Inside
)

func (w Where) String() string {
	switch w {
	case Enter:
		return "enter"
	case Return:
		return "return"
	case Jump:
		return "jump"
	case Inside:
		return "inside"
	}
	return "where?"
}

// Hit is one passage of a thread through a probe.
type Hit struct {
	Time  stack.Time
	TID   stack.TID
	Fn    int // number of the function, as the caller of Pairer counts them
	Where Where
	// CFA is the frame's canonical address, in the target. Where Task is set and Moves is not, it
	// counts from the end of the task's stack, so that it stays when the stack is copied.
	CFA  uint64
	Ret  uint64 // return address; 0: not known. Of Enter, and of exits if Moves
	Task uint64 // runtime's task that runs on the thread (Go: address of its g); 0: none
	// Moves says that CFA is the address itself although the task's stack may be copied elsewhere.
	Moves bool
	// Regs is a digest of the registers; 0: not known. Only of Enter, where no Inside follows and the runtime may
	// preempt a task at the place.
	Regs uint64
}

// How says how a call ended.
type How uint8

// The ends of a call. Recordings hold these numbers.
const (
	Returned How = iota // by a return instruction
	Jumped              // by a jump to another function (tail call)
	Left                // without a return (exception, longjmp, panic): Exit is the first moment at which it was over
	Open                // tracing, or the thread, ended before it did
	hows
)

// Ended is by a return or an exception: the engine does not know which. Recordings have Returned in its place.
const Ended How = 1 << 7

func (h How) String() string {
	switch h {
	case Ended:
		return "ended"
	case Returned:
		return "returned"
	case Jumped:
		return "tail call"
	case Left:
		return "left"
	case Open:
		return "open"
	}
	return "how?"
}

// Valid reports whether h is one of the ends above.
func (h How) Valid() bool { return h < hows }

// Call is one activation of a traced function.
type Call struct {
	Fn    int
	TID   stack.TID // that entered it; where it began before tracing, that left it
	Task  uint64    // as Hit has it
	Enter stack.Time
	Exit  stack.Time
	CFA   uint64
	Ret   uint64 // 0: not known
	How   How
	// Before: it was entered before tracing began, Enter is when that was.
	Before bool
	// Unsure: records were lost while it was open, so its end may be another call's, and calls in
	// that time are missing. With Before, its entry may be one of the lost ones. Or its entry was hit twice, and
	// it is not known whether that was one call or two: see Pairer.Inside.
	Unsure bool
}

// Duration in ns. It is a bound where How is Left, Open, or Before is set.
func (c *Call) Duration() int64 { return int64(c.Exit - c.Enter) }

// Sink takes what an engine reports. It is called by one goroutine.
type Sink interface {
	// Hit reports one hit, which is the sink's until it returns.
	Hit(h *Hit)
	// Lost reports that n hits are missing before the next one.
	Lost(n uint64)
	// Gone reports that a thread ended.
	Gone(tid stack.TID, at stack.Time)
}
