// Package chrome writes a recording in Chrome's trace event format, which chrome://tracing,
// Perfetto, speedscope and DevTools read. A call is a B and an E event; the thread's CPU
// share is a counter; states and times with missing samples are asynchronous events of the
// process. Times are in µs since the start of the recording, with three decimals. A wait for
// a lock with a known holder starts an arrow; it ends at the call in which the holder
// released the lock. Traced calls are calls of their threads, with arguments; those that have no place there are
// asynchronous events. Several processes have the same timeline.
//
// Write streams; it may run for several recordings at once.
package chrome

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Write writes rec to w as JSON.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	views := view.All(rec, o)
	out := &writer{w: bufio.NewWriterSize(w, 1<<16)}
	out.base, _ = view.Span(views)
	out.print(`{"displayTimeUnit":"ns","otherData":{`)
	for i, f := range views[0].Facts() {
		if i > 0 {
			out.print(",")
		}
		out.w.Write(view.JSON(f[0], 64))
		out.print(":")
		out.w.Write(view.JSON(f[1], view.MaxName))
	}
	out.print(`},"traceEvents":[`)
	for n, v := range views {
		out.of(n, v)
		out.meta("process_name", v.PID(), "name", view.JSON(v.Rec.Process.Comm, 256))
		if len(views) > 1 {
			out.meta("process_sort_index", v.PID(), "sort_index", strconv.AppendInt(nil, int64(n+1), 10))
		}
		for i := range v.Threads {
			th := &v.Threads[i]
			out.meta("thread_name", th.ID, "name", view.JSON(th.Label, 256))
			out.meta("thread_sort_index", th.ID, "sort_index", strconv.AppendInt(nil, int64(i+1), 10))
		}
	}
	out.of(0, views[0])
	for i, l := range view.Losses(views) {
		out.head('i', out.base, views[0].PID(), "loss "+strconv.Itoa(i+1)+": "+l, nil)
		out.print(`,"s":"p"}`)
	}
	for n, v := range views {
		out.of(n, v)
		out.process()
	}
	out.print("\n]}\n")
	if err := out.w.Flush(); err != nil {
		return fmt.Errorf("write Chrome trace: %w", err)
	}
	return nil
}

// of makes v, the n-th view, that of the events that follow.
func (o *writer) of(n int, v *view.View) {
	*o = writer{w: o.w, base: o.base, events: o.events, arrowed: o.arrowed, files: o.files, line: o.line, v: v, modules: make([][]byte, len(v.Rec.Modules))}
	o.pid = strconv.AppendInt(nil, int64(v.PID()), 10)
	if n > 0 {
		o.scope = fmt.Sprintf("%d ", n)
	}
}

// process writes the threads of a process.
func (o *writer) process() {
	for i := range o.v.Threads {
		o.thread(&o.v.Threads[i])
	}
	o.traced()
	if len(o.v.Rec.Waits) > 0 {
		o.arrows(contend.Of(o.v))
	}
}

type writer struct {
	w       *bufio.Writer
	v       *view.View
	base    stack.Time
	pid     []byte
	scope   string   // before the IDs of asynchronous events, which all processes share
	arrowed int      // arrows of the processes before
	names   [][]byte // by function, as JSON
	modules [][]byte // by module
	files   map[string][]byte
	events  bool
	th      *view.Thread
	line    []byte

	cuts   view.Intervals
	unseen *view.Unseens
	facts  []view.Detail
	winAt  stack.Time
	winCPU int64
}

func (o *writer) print(s string) { o.w.WriteString(s) } // o.w keeps the first error until Flush

func (o *writer) meta(what string, tid int, key string, val []byte) {
	o.comma()
	fmt.Fprintf(o.w, `{"ph":"M","name":%q,"pid":%s,"tid":%d,"args":{%q:%s}}`, what, o.pid, tid, key, val)
}

func (o *writer) comma() {
	if o.events {
		o.print(",\n")
	} else {
		o.print("\n")
	}
	o.events = true
}

// start begins an event in o.line with its phase, time and thread.
func (o *writer) start(ph byte, t stack.Time, tid int) {
	b := o.line[:0]
	if o.events {
		b = append(b, ',')
	}
	o.events = true
	b = append(b, "\n{\"ph\":\""...)
	b = append(b, ph)
	b = append(b, "\",\"ts\":"...)
	us := max(int64(t-o.base), 0)
	b = strconv.AppendInt(b, us/1000, 10)
	b = append(b, '.', byte('0'+us/100%10), byte('0'+us/10%10), byte('0'+us%10))
	b = append(b, ",\"pid\":"...)
	b = append(b, o.pid...)
	b = append(b, ",\"tid\":"...)
	o.line = strconv.AppendInt(b, int64(tid), 10)
}

// head writes the start of an infrequent event; args is JSON or nil.
func (o *writer) head(ph byte, t stack.Time, tid int, name string, args []byte) {
	o.headOf("sliver", ph, t, tid, name, args)
}

// headOf is head with a category.
func (o *writer) headOf(category string, ph byte, t stack.Time, tid int, name string, args []byte) {
	o.start(ph, t, tid)
	o.line = append(o.line, `,"name":`...)
	o.line = append(o.line, view.JSON(name, view.MaxName)...)
	o.line = append(o.line, `,"cat":"`+category+`"`...)
	if args != nil {
		o.line = append(append(o.line, `,"args":`...), args...)
	}
	o.w.Write(o.line)
}

func (o *writer) thread(th *view.Thread) {
	o.th, o.winAt, o.winCPU = th, 0, 0
	o.cuts.Yield = o.state
	o.unseen = view.NewUnseens(o.base, o.gap)
	end := o.v.ExactSlices(th, o)
	o.cuts.Close(end)
	o.unseen.Close(end)
	if d := end - o.winAt; o.winAt > 0 && d > 0 {
		o.share(end)
		o.counter(end, 0)
	}
}

func (o *writer) name(fn int) []byte {
	for fn >= len(o.names) {
		o.names = append(o.names, nil)
	}
	if o.names[fn] == nil {
		o.names[fn] = view.JSON(o.v.Names.Funcs[fn].Name, view.MaxName)
	}
	return o.names[fn]
}

func (o *writer) file(f string) []byte {
	if o.files == nil {
		o.files = map[string][]byte{}
	}
	b, ok := o.files[f]
	if !ok {
		b = view.JSON(f, view.MaxName)
		o.files[f] = b
	}
	return b
}

func (o *writer) Begin(t stack.Time, _ int, s *trace.Slice) {
	o.unseen.Seen(t)
	o.start('B', t, o.th.ID)
	b := append(o.line, ",\"name\":"...)
	b = append(b, o.name(s.Frame.Func)...)
	b = append(b, ",\"cat\":\"call\",\"args\":{"...)
	file, line := s.Frame.File, s.Frame.Line
	if file == "" {
		f := o.v.Names.Func(&s.Frame)
		file, line = f.File, f.StartLine
	}
	n := len(b)
	if file != "" {
		b = append(b, "\"file\":"...)
		b = append(b, o.file(file)...)
		b = append(b, ",\"line\":"...)
		b = strconv.AppendInt(b, int64(line), 10)
	}
	if m := o.v.ModuleOf(s); m >= 0 {
		if len(b) > n {
			b = append(b, ',')
		}
		if o.modules[m] == nil {
			o.modules[m] = view.JSON(o.v.Rec.Modules[m].Path, view.MaxName)
		}
		b = append(b, "\"module\":"...)
		b = append(b, o.modules[m]...)
	}
	if s.Exact != nil {
		if len(b) > n {
			b = append(b, ',')
		}
		b = exactArgs(b, s.Exact)
	}
	o.line = append(b, "}}"...)
	o.w.Write(o.line)
}

func (o *writer) End(t stack.Time, _ int, _ *trace.Slice) {
	o.start('E', t, o.th.ID)
	o.line = append(o.line, '}')
	o.w.Write(o.line)
}

func (o *writer) Other(e event.Event) {
	o.cuts.Other(e)
	o.unseen.Other(e)
	switch e.Kind() {
	case event.Mark:
		o.head('i', e.Time, o.th.ID, stack.Why(e.Payload()).String(), nil)
		o.print(`,"s":"t"}`)
	case event.Pause:
		o.head('i', e.Time, o.th.ID, "sliver: pause", fmt.Appendf(nil, `{"ns":%d}`, e.Payload()))
		o.print(`,"s":"t"}`)
	case event.Seen:
		_, _, cpu := event.SeenFields(e.Payload())
		if o.winAt == 0 {
			o.winAt = e.Time
		}
		o.winCPU += cpu
		if e.Time-o.winAt >= minWindow {
			o.share(e.Time)
		}
	}
}

// minWindow is the shortest time over which a CPU share is computed, in ns.
const minWindow = 100_000_000

func (o *writer) share(t stack.Time) {
	o.counter(o.winAt, 100*float64(o.winCPU)/float64(t-o.winAt))
	o.winAt, o.winCPU = t, 0
}

func (o *writer) counter(t stack.Time, percent float64) {
	o.head('C', t, o.th.ID, fmt.Sprintf("CPU share of %s (%d)", o.th.Label, o.th.ID), fmt.Appendf(nil, `{"%%":%.3f}`, percent))
	o.print("}")
}

// state writes a state of the thread and the wait in it.
func (o *writer) state(x *view.Interval) {
	s, nr := x.Waiting.State()
	name := o.v.StateName(s, nr)
	args := fmt.Appendf(nil, `{"cpu_ns":%d,"switches":%d,"runnable_ns":%d`, x.CPU, x.Switches, x.Delay)
	if what := o.v.What(&x.Waiting); what != "" {
		args = append(append(args, `,"waits_for":`...), view.JSON(what, view.MaxName)...)
		for _, d := range o.v.Details(&x.Waiting, o.facts[:0]) {
			args = append(append(args, `,"`+d.Name+`":`...), view.JSON(d.Value, view.MaxName)...)
		}
	}
	o.async('b', x.Begin, "state", name, append(args, '}'))
	o.async('e', x.End, "state", name, nil)
}

// gap writes a time range with missing samples.
func (o *writer) gap(x *view.Unseen) {
	name := "gap: " + x.Why.String()
	o.async('b', x.From, "not seen", name, fmt.Appendf(nil, `{"missing_ns":%d,"gaps":%d}`, x.Missing, x.Gaps))
	o.async('e', x.To, "not seen", name, nil)
}

// async writes the begin or end of an asynchronous event of the thread.
func (o *writer) async(ph byte, t stack.Time, kind, name string, args []byte) {
	o.head(ph, t, o.th.ID, name, args)
	fmt.Fprintf(o.w, `,"id":"%s%s %d"}`, o.scope, kind, o.th.Index)
}

// arrows writes an arrow from each wait to the call in which the other thread released the
// lock. trace_processor v55 reverses arrows of JSON traces: it takes one that ends in its
// enclosing call ("bp":"e") for a beginning.
func (o *writer) arrows(c *contend.Contention) {
	type end struct {
		at   stack.Time
		wait int
	}
	ends := make([][]end, len(o.v.Threads))
	for i := range c.Waits {
		w := &c.Waits[i]
		if to, ok := o.v.ByTID(w.Holder); w.Holder != 0 && !w.Cut && ok && to.Index != w.Thread {
			ends[to.Index] = append(ends[to.Index], end{w.End, i})
		}
	}
	for i, es := range ends {
		slices.SortFunc(es, func(a, b end) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.wait, b.wait)) })
		if len(es) == 0 {
			continue
		}
		in := &inCall{}
		for _, e := range es {
			in.times = append(in.times, e.at)
		}
		o.v.ExactSlices(&o.v.Threads[i], in)
		for j, inside := range in.out { // calls beyond the end do not contain it
			if inside {
				o.arrow(c, es[j].wait, &o.v.Threads[i])
			}
		}
	}
	o.arrowed += len(c.Waits)
}

func (o *writer) arrow(c *contend.Contention, i int, to *view.Thread) {
	w := &c.Waits[i]
	name := c.Locks[w.Lock].Name
	args := append(append([]byte(`{"holder_known_by":`), view.JSON(w.By.String(), 64)...), '}')
	o.head('s', w.Begin, o.v.Threads[w.Thread].ID, name, args)
	fmt.Fprintf(o.w, `,"id":%d}`, o.arrowed+i+1)
	o.head('f', w.End, to.ID, name, nil)
	fmt.Fprintf(o.w, `,"id":%d,"bp":"e"}`, o.arrowed+i+1)
}

// inCall reports at which of the given times, in order, a thread was in a call.
type inCall struct {
	times []stack.Time
	depth int
	out   []bool
}

func (x *inCall) to(t stack.Time) {
	for len(x.out) < len(x.times) && x.times[len(x.out)] < t {
		x.out = append(x.out, x.depth > 0)
	}
}

func (x *inCall) Begin(t stack.Time, depth int, _ *trace.Slice) {
	x.to(t)
	x.depth = depth + 1
}

func (x *inCall) End(t stack.Time, depth int, _ *trace.Slice) {
	x.to(t)
	x.depth = depth
}

func (x *inCall) Other(event.Event) {}
