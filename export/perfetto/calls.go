package perfetto

import (
	"fmt"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/trace"
)

// maxCallTracks bounds the tracks of traced calls.
const maxCallTracks = 1 << 14

// Annotation names of traced calls, interned in this order.
const (
	annotateEnded = annotateDetails + 200 + iota // after those of I/O
	annotateCaller
	annotateTask
	annotateBefore
	annotateUnsure
	annotateOrphan
)

var callAnnotations = []string{"ended", "caller", "task", "began_before", "hits_lost", "caller_not_sampled"}

// callTrack is one lane of a thread. The reader shows lanes of the same name as one track.
type callTrack struct {
	s  *sequence
	in *interned
}

// callsOf are the calls of one thread.
type callsOf struct {
	lanes  view.Lanes
	tracks []*callTrack // by lane; nil: there are too many
}

// calls writes the traced calls that are not slices of their threads on tracks of their own. id is the last sequence ID in use; calls returns
// the last one that it used.
func (e *exporter) calls(id uint64) uint64 {
	tr := e.v.Rec.Traced
	if tr == nil {
		return id
	}
	about := "Calls of traced functions, with exact times, that have no place on the thread's own track: of tasks, or while its stack is not known."
	caller := e.v.Callers()
	threads := map[[2]int]*callsOf{}
	tracks, left := 0, 0
	e.v.Apart(func(c *view.Call) bool {
		key := [2]int{c.Thread, int(c.TID)}
		if c.Thread >= 0 {
			key[1] = 0
		}
		of := threads[key]
		if of == nil {
			of = &callsOf{}
			threads[key] = of
		}
		lane := of.lanes.Place(c.Enter, c.Exit)
		if lane == len(of.tracks) {
			var t *callTrack
			if tracks < maxCallTracks {
				id++
				t = &callTrack{&sequence{out: e.out, id: id, track: e.uuid(kindExact, tracks), absolute: true}, newInterned(e.v)}
				if c.Thread >= 0 {
					e.child(kindExact, tracks, e.uuid(kindSlices, c.Thread), "traced calls", "", about, 1, true)
				} else {
					name := "traced calls of " + e.v.ThreadName(c.TID)
					e.child(kindExact, tracks, e.uuid(kindProcess, 0), name, "", "Calls of traced functions, with exact times, of a thread that was not sampled.", len(e.v.Threads)+1, true)
				}
				tracks++
			}
			of.tracks = append(of.tracks, t)
		}
		if lane < 0 || of.tracks[lane] == nil {
			left++
			return e.out.err == nil
		}
		e.call(of.tracks[lane], c, caller(c))
		return e.out.err == nil
	})
	if left > 0 {
		e.child(kindExact, tracks, e.uuid(kindProcess, 0), "traced calls left out", "", "", len(e.v.Threads)+1, false)
		in := newInterned(e.v)
		id++
		s := &sequence{out: e.out, id: id, track: e.uuid(kindExact, tracks), base: e.base}
		name := in.words(fmt.Sprintf("%s %s on no track: too many overlap", plural.Of(left, "traced call"), plural.Word(left, "is", "are")))
		in.callAnnotation()
		at := s.begin(e.base, true)
		in.take(e.out)
		ev := e.out.open(packetTrackEvent)
		e.out.uint(eventCategory, categoryCalls)
		e.out.uint(eventType, typeInstant)
		e.out.uint(eventName, uint64(name))
		e.out.end(ev)
		e.out.done(at)
	}
	return id
}

// call writes one call.
func (e *exporter) call(t *callTrack, c *view.Call, caller string) {
	in, f := t.in, &e.v.Rec.Traced.Functions[c.Fn]
	function := e.v.TracedName(c.Fn)
	name := in.words(function)
	in.callAnnotation()
	source, module := uint32(0), uint32(0)
	if f.File != "" {
		source = in.sourceAt(place{-1 - c.Fn, f.Line, f.File}, function)
	}
	if f.Module != "" {
		module = in.value(view.Text(f.Module, view.MaxName))
	}
	ended, from, task := in.value(c.How.String()), uint32(0), uint32(0)
	if caller != "" {
		from = in.value(caller)
	}
	if c.Task != 0 {
		task = in.value(fmt.Sprintf("%#x", c.Task))
	}
	out := e.out
	at := t.s.begin(c.Enter, true)
	in.take(out)
	ev := out.open(packetTrackEvent)
	out.uint(eventCategory, categoryCalls)
	out.uint(eventType, typeBegin)
	out.uint(eventName, uint64(name))
	if source != 0 {
		out.uint(eventSource, uint64(source))
	}
	for _, x := range [...][2]uint32{{annotateModule, module}, {annotateEnded, ended}, {annotateCaller, from}, {annotateTask, task}} {
		if x[1] == 0 {
			continue
		}
		a := out.open(eventAnnotation)
		out.uint(annotationName, uint64(x[0]))
		out.uint(annotationStrIID, uint64(x[1]))
		out.end(a)
	}
	out.flag(annotateBefore, c.Before)
	out.flag(annotateUnsure, c.Unsure)
	out.end(ev)
	out.done(at)
	t.s.end(c.Exit)
}

// callAnnotation interns the names of annotations and the category.
func (n *interned) callAnnotation() {
	if n.annotations {
		return
	}
	n.annotations = true // of a sequence with traced calls only
	n.entry(internedAnnotation, annotateModule, "module")
	n.exactAnnotation()
}

// exactAnnotation interns those of traced calls alone.
func (n *interned) exactAnnotation() {
	if n.exact {
		return
	}
	n.exact = true
	for i, s := range callAnnotations {
		n.entry(internedAnnotation, uint32(annotateEnded+i), s)
	}
	n.entry(internedCategory, categoryCalls, "traced")
}

// exact annotates the slice of a traced call, ended being how it ended, interned.
func (o *batches) exact(x *trace.Exact, ended uint32) {
	if x == nil {
		return
	}
	a := o.open(eventAnnotation)
	o.uint(annotationName, annotateEnded)
	o.uint(annotationStrIID, uint64(ended))
	o.end(a)
	o.flag(annotateBefore, x.Before)
	o.flag(annotateUnsure, x.Unsure)
	o.flag(annotateOrphan, x.Orphan)
}

// flag writes an annotation if its value is true.
func (o *batches) flag(name uint64, is bool) {
	if is {
		a := o.open(eventAnnotation)
		o.uint(annotationName, name)
		o.uint(annotationUint, 1)
		o.end(a)
	}
}
