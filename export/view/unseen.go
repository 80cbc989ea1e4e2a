package view

import (
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// maxGap bounds what a hostile recording can say of a gap's length: a day, in ns.
const maxGap = 24 * 3600 * 1e9

// Unseen is a time of a thread for which samples are missing.
type Unseen struct {
	From, To stack.Time
	Why      stack.Why
	Missing  int64 // ns that samples would have covered
	Gaps     int   // that are in it
}

// Unseens puts a thread's gaps together: those that meet and have one reason are one, and
// none overlaps another. Where events were lost it lasts until the stack is seen again. They
// are for tracks of their own: among the calls they would have to be inside one of them, and
// what was called meanwhile is just what is not known.
type Unseens struct {
	yield func(*Unseen)

	open, lost bool
	is         Unseen
}

// NewUnseens begins at base, the beginning of what is written.
func NewUnseens(base stack.Time, yield func(*Unseen)) *Unseens {
	return &Unseens{yield: yield, is: Unseen{To: base}}
}

// Other takes in an event of a replay; those that are no gaps do not matter.
func (u *Unseens) Other(e event.Event) {
	if e.Kind() != event.Gap {
		return
	}
	why, ns := event.GapFields(e.Payload())
	from := max(e.Time-stack.Time(min(max(ns, 0), maxGap)), u.is.To)
	if u.open && (u.is.Why != why || from > u.is.To) {
		u.flush()
	}
	if !u.open {
		u.open = true
		u.is = Unseen{From: from, To: u.is.To, Why: why}
	}
	u.is.To = max(e.Time, u.is.To)
	u.is.Missing += ns
	u.is.Gaps++
	u.lost = why == stack.WhyLost
}

// Seen says that a call begins at t: then the stack is known.
func (u *Unseens) Seen(t stack.Time) {
	if u.lost {
		u.is.To = max(t, u.is.To)
		u.flush()
	}
}

// Close ends what is open at t, the end of the thread.
func (u *Unseens) Close(t stack.Time) {
	u.Seen(t)
	u.flush()
}

func (u *Unseens) flush() {
	if u.open {
		u.open, u.lost = false, false
		u.yield(&u.is)
	}
}
