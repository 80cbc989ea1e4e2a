// Package speedscope writes a recording for https://www.speedscope.app: an evented profile for each thread,
// in ns from the beginning. Those of several processes follow each other, and each has its process's name.
//
// The format has no marks, so gaps are drawn as calls, as in package nanoscope, and so are waits: "[waits:
// mutex m]". The profile's name lists the losses. A frame is a function with the function's line, so that
// speedscope's sums are by function.
//
// Write streams; it may run for several recordings at once.
package speedscope

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Write writes rec to w as JSON.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	views := view.All(rec, o)
	out := &writer{w: bufio.NewWriterSize(w, 1<<16), number: map[source]int32{}}
	out.base, _ = view.Span(views)
	name := view.Title(views)
	if l := view.Losses(views); len(l) > 0 {
		name += ", missing: " + strings.Join(l, ", ")
	}
	out.print(`{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":`)
	out.w.Write(view.JSON("sliver "+rec.Process.Sliver, 256))
	out.print(`,"activeProfileIndex":0,"name":`)
	out.w.Write(view.JSON(name, view.MaxName))
	out.print(`,"profiles":[`)
	for _, v := range views {
		out.v, out.known = v, nil
		if len(views) > 1 {
			out.process = v.Process() + ": "
		}
		for i := range v.Threads {
			out.thread(&v.Threads[i])
		}
	}
	if out.profiles == 0 { // the reader requires one
		out.print(`{"type":"evented","name":"nothing recorded","unit":"nanoseconds","events":[],"startValue":0,"endValue":0}`)
	}
	out.print("\n],\"shared\":{\"frames\":[")
	for i, f := range out.frames {
		if i > 0 {
			out.print(",")
		}
		out.print("\n{\"name\":")
		out.w.Write(view.JSON(f.name, view.MaxName))
		if f.file != "" {
			out.print(`,"file":`)
			out.w.Write(view.JSON(f.file, view.MaxName))
			if f.line > 0 {
				out.print(`,"line":` + strconv.Itoa(f.line))
			}
		}
		out.print("}")
	}
	out.print("]}}\n")
	if err := out.w.Flush(); err != nil {
		return fmt.Errorf("write speedscope profile: %w", err)
	}
	return nil
}

// source is a function, the same in all processes.
type source struct {
	name, file string
	line       int
}

type writer struct {
	w        *bufio.Writer
	v        *view.View
	base     stack.Time
	process  string // of several, before the names of its threads
	frames   []source
	number   map[source]int32 // of frames
	known    []int32          // frame plus 1 by function of v
	profiles int
	events   int // of this thread
	first    int64
	last     int64
	th       *view.Thread
	line     []byte
}

func (o *writer) print(s string) { o.w.WriteString(s) } // o.w keeps the first error until Flush

func (o *writer) thread(th *view.Thread) {
	o.th, o.events = th, 0
	g := o.v.WithGaps(o)
	waits := o.v.WithWaits(g)
	end := o.v.ExactSlices(th, waits)
	waits.Close(end)
	g.Close(end)
	if o.events > 0 {
		o.print(fmt.Sprintf(`],"startValue":%d,"endValue":%d}`, o.first, o.last))
	}
}

func (o *writer) frame(fn int) int32 {
	for fn >= len(o.known) {
		o.known = append(o.known, 0)
	}
	if o.known[fn] == 0 {
		f := &o.v.Names.Funcs[fn]
		x := source{f.Name, f.File, f.StartLine}
		n, ok := o.number[x]
		if !ok {
			n = int32(len(o.frames))
			o.frames, o.number[x] = append(o.frames, x), n
		}
		o.known[fn] = n + 1
	}
	return o.known[fn] - 1
}

func (o *writer) event(kind byte, t stack.Time, fn int) {
	o.last = int64(t - o.base)
	b := o.line[:0]
	if o.events == 0 {
		o.first = o.last
		if o.profiles > 0 {
			b = append(b, ',')
		}
		o.profiles++
		b = append(b, "\n{\"type\":\"evented\",\"unit\":\"nanoseconds\",\"name\":"...)
		b = append(b, view.JSON(fmt.Sprintf("%s%s (%d)", o.process, o.th.Label, o.th.ID), 512)...)
		b = append(b, ",\"events\":["...)
	} else {
		b = append(b, ',')
	}
	o.events++
	b = append(b, "\n{\"type\":\""...)
	b = append(b, kind)
	b = append(b, "\",\"frame\":"...)
	b = strconv.AppendInt(b, int64(o.frame(fn)), 10)
	b = append(b, ",\"at\":"...)
	b = strconv.AppendInt(b, o.last, 10)
	b = append(b, '}')
	o.line = b
	o.w.Write(b)
}

func (o *writer) Begin(t stack.Time, _ int, s *trace.Slice) { o.event('O', t, s.Frame.Func) }
func (o *writer) End(t stack.Time, _ int, s *trace.Slice)   { o.event('C', t, s.Frame.Func) }
func (o *writer) Other(event.Event)                         {}
