package perfetto

import (
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
)

// unseen writes the times of a thread for which samples are missing, as slices of a track
// of its own: on that of the calls they would have to be inside one of them, and what was
// called meanwhile is just what is not known. Gaps that meet and have one reason are one slice.
type unseen struct {
	e  *exporter
	th *view.Thread
	s  *sequence
	in *interned

	open     bool
	lost     bool // events were lost: it lasts until the stack is seen again
	why      stack.Why
	from, to stack.Time
	missing  int64 // ns that samples would have covered
	count    int   // gaps that are in it
}

func newUnseen(e *exporter, th *view.Thread) *unseen {
	return &unseen{e: e, th: th, s: e.sequence(kindGaps, th), in: &interned{}, to: e.base}
}

// gap takes in a Gap: samples that would have covered ns are missing up to t.
func (u *unseen) gap(t stack.Time, why stack.Why, ns int64) {
	from := max(t-stack.Time(min(max(ns, 0), maxPause)), u.to)
	if u.open && (u.why != why || from > u.to) {
		u.flush()
	}
	if !u.open {
		u.open, u.why, u.from, u.missing, u.count = true, why, from, 0, 0
	}
	u.to, u.missing, u.count = max(t, u.to), u.missing+ns, u.count+1
	u.lost = why == stack.WhyLost
}

// seen says that a call begins at t: then the stack is known.
func (u *unseen) seen(t stack.Time) {
	if u.lost {
		u.to = max(t, u.to)
		u.flush()
	}
}

func (u *unseen) flush() {
	if !u.open {
		return
	}
	u.open, u.lost = false, false
	if !u.s.begun {
		u.e.child(kindGaps, u.th.Index, u.e.uuid(kindSlices, u.th.Index), "not seen", "",
			"When samples are missing, and why: what the track above shows there was not looked at.", 0, false)
	}
	in, o := u.in, u.e.out
	in.annotation()
	id := in.words("gap: " + u.why.String())
	at := u.s.begin(u.from, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventCategory, categorySliver)
	o.uint(eventType, typeBegin)
	o.uint(eventName, uint64(id))
	a := o.open(eventAnnotation)
	o.uint(annotationName, annotateWhy)
	o.str(annotationString, u.why.String())
	o.end(a)
	o.number(annotateMissing, uint64(u.missing))
	o.number(annotateGaps, uint64(u.count))
	o.end(ev)
	o.done(at)
	u.s.end(u.to)
}

// close ends what is open at t, the end of the thread.
func (u *unseen) close(t stack.Time) {
	u.seen(t)
	u.flush()
}
