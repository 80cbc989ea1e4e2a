package perfetto

import (
	"fmt"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Bounds of the tracks of I/O.
const (
	maxIOFiles  = 200  // those with the most time
	maxIOTracks = 2000 // pairs of file and thread
)

// Annotation names of operations and findings, interned in this order.
const (
	annotateFile = annotateDetails + 100 + iota // after details
	annotateOp
	annotateBytes
	annotateRequested
	annotateFD
	annotateThread
	annotateStack
	annotateRule
	annotateOpened
	annotateCache
	annotateQueued
)

var ioAnnotations = []string{"file", "call", "bytes", "requested", "fd", "thread", "stack", "rule", "opened", "page_cache", "cpu_wait_ns"}

// ioTrack is the operations of one thread on one file. Those of one thread do not overlap, so that they
// nest; the reader shows tracks of the same name as one.
type ioTrack struct {
	s  *sequence
	in *interned
}

// io writes a track for each file with its operations as slices, and one with the findings. id is the
// last sequence ID in use; io returns the last one that it used.
func (e *exporter) io(id uint64) uint64 {
	rec := e.v.Rec
	if rec.IO == nil || !rec.HasOps() && len(rec.IO.Findings) == 0 {
		return id
	}
	rank := map[int]int{}
	for i := range rec.IO.Files {
		if len(rank) == maxIOFiles {
			break
		}
		rank[rec.IO.Files[i].File] = len(rank)
	}
	about := "Operations by file, with bytes, and stacks of slow ones."
	if n := len(rec.IO.Files) + rec.IO.MoreFiles - len(rank); n > 0 {
		about += fmt.Sprintf(" %s took less time than these and %s no track.", plural.Of(n, "more file"), plural.Word(n, "has", "have"))
	}
	e.child(kindIO, 0, e.uuid(kindProcess, 0), "I/O", "", about, len(e.v.Threads)+1, false)
	id = e.findings(id)
	tracks := map[[2]int]*ioTrack{}
	e.v.Ops(func(o *view.Op) bool {
		r, ok := rank[o.File]
		if !ok || o.Op == iowatch.OpClose {
			return e.out.err == nil
		}
		key := [2]int{o.File, int(o.TID)}
		t := tracks[key]
		if t == nil {
			if len(tracks) == maxIOTracks {
				return e.out.err == nil
			}
			id++
			n := len(tracks)
			e.child(kindFile, n, e.uuid(kindIO, 0), fileName(e.v.IOPath(o.File)), "", e.v.IOPath(o.File), r+1, true)
			t = &ioTrack{&sequence{out: e.out, id: id, track: e.uuid(kindFile, n), base: e.base}, newInterned(e.v)}
			tracks[key] = t
		}
		e.operation(t, o)
		return e.out.err == nil
	})
	return id
}

func (e *exporter) operation(t *ioTrack, o *view.Op) {
	in := t.in
	call := view.Text(e.v.Rec.IONames.Call(o.Call), 64)
	if call == "" {
		call = o.Op.String()
	}
	what := o.Op.String()
	if o.Op == iowatch.OpCall {
		what = call
	}
	name := in.words(what)
	in.ioAnnotation()
	file, callID, thread := in.value(e.v.IOPath(o.File)), in.value(call), in.value(e.v.ThreadName(o.TID))
	where, cache := uint32(0), uint32(0)
	if o.Missed {
		cache = in.value("missed")
	}
	if o.Stack >= 0 {
		where = in.value(e.ioStack(o.Stack))
	}
	out := e.out
	at := t.s.begin(o.Begin, true)
	in.take(out)
	ev := out.open(packetTrackEvent)
	out.uint(eventCategory, categoryIO)
	out.uint(eventType, typeBegin)
	out.uint(eventName, uint64(name))
	text := func(name uint64, value uint32) {
		a := out.open(eventAnnotation)
		out.uint(annotationName, name)
		out.uint(annotationStrIID, uint64(value))
		out.end(a)
	}
	number := func(name uint64, n int64) {
		a := out.open(eventAnnotation)
		out.uint(annotationName, name)
		out.uint(annotationInt, uint64(n))
		out.end(a)
	}
	text(annotateFile, file)
	text(annotateOp, callID)
	text(annotateThread, thread)
	if o.Op != iowatch.OpFault && o.FD >= 0 {
		number(annotateFD, int64(o.FD))
	}
	if o.Op == iowatch.OpRead || o.Op == iowatch.OpWrite {
		number(annotateBytes, o.Ret)
		number(annotateRequested, o.Want)
	}
	if cache != 0 {
		text(annotateCache, cache)
	}
	if o.Queued > 0 {
		number(annotateQueued, o.Queued)
	}
	if where != 0 {
		text(annotateStack, where)
	}
	out.end(ev)
	out.done(at)
	t.s.end(o.End())
}

// findings writes the findings as instants on a track of their own.
func (e *exporter) findings(id uint64) uint64 {
	var s *sequence
	in := newInterned(e.v)
	var last stack.Time
	e.v.Findings(func(f *trace.IOFinding, _ int) bool {
		if s == nil {
			e.child(kindFindings, 0, e.uuid(kindIO, 0), "findings", "", "Slow and wasteful uses of files, and what to change.", 0, false)
			id++
			s = &sequence{out: e.out, id: id, track: e.uuid(kindFindings, 0), base: e.base}
		}
		last = max(last, f.At)
		name := in.words(view.Text(f.Advice, view.MaxName))
		in.ioAnnotation()
		values := [][2]uint32{{annotateRule, in.value(view.Text(f.Rule, 64))}, {annotateFile, in.value(view.Text(f.Path, view.MaxName))},
			{annotateThread, in.value(e.v.ThreadName(f.TID))}}
		for _, x := range [][2]int{{annotateOpened, f.Stack}, {annotateStack, f.Where}} {
			if x[1] >= 0 {
				values = append(values, [2]uint32{uint32(x[0]), in.value(e.ioStack(x[1]))})
			}
		}
		out := e.out
		at := s.begin(last, true)
		in.take(out)
		ev := out.open(packetTrackEvent)
		out.uint(eventCategory, categoryIO)
		out.uint(eventType, typeInstant)
		out.uint(eventName, uint64(name))
		for _, x := range values {
			a := out.open(eventAnnotation)
			out.uint(annotationName, uint64(x[0]))
			out.uint(annotationStrIID, uint64(x[1]))
			out.end(a)
		}
		out.end(ev)
		out.done(at)
		return e.out.err == nil
	})
	return id
}

// ioStack is a stack as a text, leaf first.
func (e *exporter) ioStack(stack int) string {
	lines, cut := e.v.IOStack(stack)
	if cut != "" {
		lines = append(lines, "… "+cut)
	}
	return strings.Join(lines, "\n")
}

// ioAnnotation interns the names of annotations and the category.
func (n *interned) ioAnnotation() {
	if n.annotations {
		return
	}
	n.annotations = true // of a sequence with operations only
	for i, s := range ioAnnotations {
		n.entry(internedAnnotation, uint32(annotateFile+i), s)
	}
	n.entry(internedCategory, categoryIO, "io")
}

// fileName is a path's end, for the name of a track.
func fileName(path string) string {
	if r := []rune(path); len(r) > maxTrackName {
		return "…" + string(r[len(r)-maxTrackName+1:])
	}
	if path == "" {
		return "unknown"
	}
	return path
}

// maxTrackName is the length of a track's name in characters.
const maxTrackName = 60
