// Package speedscope writes a recording for https://www.speedscope.app: an evented profile for each thread,
// in ns from the beginning.
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
	v := view.New(rec, o)
	out := &writer{w: bufio.NewWriterSize(w, 1<<16), v: v, base: v.Begin()}
	name := fmt.Sprintf("%s (%d)", rec.Process.Comm, rec.Process.PID)
	if l := v.Losses(); len(l) > 0 {
		name += ", missing: " + strings.Join(l, ", ")
	}
	out.print(`{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":`)
	out.w.Write(view.JSON("sliver "+rec.Process.Sliver, 256))
	out.print(`,"activeProfileIndex":0,"name":`)
	out.w.Write(view.JSON(name, view.MaxName))
	out.print(`,"profiles":[`)
	for i := range v.Threads {
		out.thread(&v.Threads[i])
	}
	if out.profiles == 0 { // the reader requires one
		out.print(`{"type":"evented","name":"nothing recorded","unit":"nanoseconds","events":[],"startValue":0,"endValue":0}`)
	}
	out.print("\n],\"shared\":{\"frames\":[")
	for i, fn := range out.frames {
		if i > 0 {
			out.print(",")
		}
		f := &v.Names.Funcs[fn]
		out.print("\n{\"name\":")
		out.w.Write(view.JSON(f.Name, view.MaxName))
		if f.File != "" {
			out.print(`,"file":`)
			out.w.Write(view.JSON(f.File, view.MaxName))
			if f.StartLine > 0 {
				out.print(`,"line":` + strconv.Itoa(f.StartLine))
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

type writer struct {
	w        *bufio.Writer
	v        *view.View
	base     stack.Time
	frames   []int   // function by frame
	number   []int32 // frame plus 1 by function
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
	for fn >= len(o.number) {
		o.number = append(o.number, 0)
	}
	if o.number[fn] == 0 {
		o.frames = append(o.frames, fn)
		o.number[fn] = int32(len(o.frames))
	}
	return o.number[fn] - 1
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
		b = append(b, view.JSON(fmt.Sprintf("%s (%d)", o.th.Label, o.th.ID), 512)...)
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
