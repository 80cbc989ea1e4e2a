package perfetto

import "github.com/sliverprof/sliver/export/view"

// unseen writes the gaps of a thread as slices of a separate track.
type unseen struct {
	*view.Unseens
	e  *exporter
	th *view.Thread
	s  *sequence
	in *interned
}

func newUnseen(e *exporter, th *view.Thread) *unseen {
	u := &unseen{e: e, th: th, s: e.sequence(kindGaps, th), in: &interned{}}
	u.Unseens = view.NewUnseens(e.base, u.slice)
	return u
}

func (u *unseen) slice(x *view.Unseen) {
	if !u.s.begun {
		u.e.child(kindGaps, u.th.Index, u.e.uuid(kindSlices, u.th.Index), "not seen", "",
			"When samples are missing, and why: what the track above shows there was not looked at.", 0, false)
	}
	in, o := u.in, u.e.out
	in.annotation()
	id := in.words("gap: " + x.Why.String())
	at := u.s.begin(x.From, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventCategory, categorySliver)
	o.uint(eventType, typeBegin)
	o.uint(eventName, uint64(id))
	a := o.open(eventAnnotation)
	o.uint(annotationName, annotateWhy)
	o.str(annotationString, x.Why.String())
	o.end(a)
	o.number(annotateMissing, uint64(x.Missing))
	o.number(annotateGaps, uint64(x.Gaps))
	o.end(ev)
	o.done(at)
	u.s.end(x.To)
}
