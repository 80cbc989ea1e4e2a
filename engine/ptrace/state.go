package ptrace

// state says whether a stop of a thread is under way. A thread that is asked or kept is attached, or will be:
// the target must not be left before it is released, which Reap and Close do.
type state uint8

const (
	free   state = iota // nothing holds the thread
	asked               // a stop was left to a stopper; Arrived returns its result
	kept                // attached after the deadline of a stop of which no sample comes; Reap releases it
	gone                // the thread has ended
	closed              // its files are closed
	states
)

// never marks the changes that cannot occur. They leave the state as it is.
const never = states

// change is an event that changes a thread's state.
type change uint8

const (
	took     change = iota // a stop, or a try, left nothing behind: the thread runs, or is blocked
	left                   // a stop was left to a stopper (ErrLater)
	overdue                // the thread has not stopped (ErrTimeout), and is attached
	arrived                // the result of a stop that was left to a stopper
	released               // nothing holds it any more, and its result was not taken
	ended                  // it is gone (ErrGone)
	shut                   // Close
	changes
)

// next is the table of transitions. The columns are took, left, overdue, arrived, released, ended and shut.
var next = [states][changes]state{
	free:  {free, asked, kept, free, free, gone, closed},
	asked: {never, never, asked, free, free, gone, closed},
	kept:  {never, never, kept, never, free, gone, closed},
	gone:  {never, never, never, gone, gone, gone, closed},
	// The result of a stop may come after Close, and is dropped.
	closed: {never, never, never, closed, closed, closed, closed},
}

// to changes the state.
func (t *Thread) to(c change) {
	if n := next[t.is][c]; n != never {
		t.is = n
	}
}

// held reports whether the thread is attached, or will be.
func (s state) held() bool { return s == asked || s == kept }
