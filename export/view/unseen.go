package view

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// maxGap limits the length of a gap in a hostile recording: a day, in ns.
const maxGap = 24 * 3600 * 1e9

// Unseen is a time of a thread with missing samples.
type Unseen struct {
	From, To stack.Time
	Why      stack.Why
	Missing  int64 // ns that the samples would have covered
	Gaps     int   // number of gaps in it
}

// Unseens merges a thread's gaps: adjacent ones with the same reason become one, and none
// overlaps another. After lost events a gap lasts until the stack is known again. Gaps
// belong on separate tracks: among the calls they would have to nest inside one, and the
// calls during a gap are unknown.
type Unseens struct {
	yield func(*Unseen)

	open, lost bool
	is         Unseen
}

// NewUnseens starts at base, the beginning of the output.
func NewUnseens(base stack.Time, yield func(*Unseen)) *Unseens {
	return &Unseens{yield: yield, is: Unseen{To: base}}
}

// Other handles an event of a replay; only gaps matter.
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

// Seen reports that a call begins at t, so the stack is known from then on.
func (u *Unseens) Seen(t stack.Time) {
	if u.lost {
		u.is.To = max(t, u.is.To)
		u.flush()
	}
}

// Close ends an open gap at t, the end of the thread.
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
