package python

import (
	"github.com/sliverprof/sliver/unwind"
)

// Links implements Stepper. CPython's thread state points to the innermost frame, in 3.11 and 3.12 by a CFrame on the C
// stack. A CFrame that was just pushed has no frame yet, so that its list is empty.
func (in *interpreter) Links(th *unwind.Thread) (l unwind.Links, ok bool) {
	p := pyThreads.Of(th)
	if in.table == nil || p.of != in || p.th == nil {
		return l, false
	}
	at := &in.rt.l
	l = unwind.Links{Head: p.th.Span(), First: int(at.tsFrame), Next: int(at.fBack), Len: int(at.fSize)}
	if at.tsFrame == none {
		l.First, l.Via = int(at.tsCFrame), int(at.cfCurrent)+1
	}
	return l, true
}
