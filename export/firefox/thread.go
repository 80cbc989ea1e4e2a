package firefox

import (
	"encoding/binary"
	"strconv"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// samples packs the samples of one thread as uvarints: the stack's node, ns since the
// previous sample, duration in ns, and CPU ns since the previous sample.
type samples struct {
	b []byte
	n int
}

func (s *samples) add(node int32, after, lasted, cpu int64) {
	s.b = binary.AppendUvarint(s.b, uint64(node))
	s.b = binary.AppendUvarint(s.b, uint64(after))
	s.b = binary.AppendUvarint(s.b, uint64(lasted))
	s.b = binary.AppendUvarint(s.b, uint64(cpu))
	s.n++
}

// each calls yield for every sample.
func (s *samples) each(yield func(node, after, lasted, cpu uint64)) {
	b := s.b
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	for range s.n {
		yield(next(), next(), next(), next())
	}
}

// markers packs the markers of one thread as uvarints: kind, string, begin, and duration
// plus 1 (0: an instant).
type markers struct {
	b []byte
	n int
}

const (
	markState = iota
	markGap
	markOther
	markWait // its string is a list of JSON members
	markCall // likewise
)

func (m *markers) add(kind, text int, begin, end int64) {
	m.b = binary.AppendUvarint(m.b, uint64(kind))
	m.b = binary.AppendUvarint(m.b, uint64(text))
	m.b = binary.AppendUvarint(m.b, uint64(begin))
	m.b = binary.AppendUvarint(m.b, uint64(end-begin+1))
	m.n++
}

func (m *markers) each(yield func(kind, text, begin, dur uint64)) {
	s := samples{m.b, m.n}
	s.each(yield)
}

// reader collects one thread.
type reader struct {
	p       *profile
	samples samples
	markers markers

	nodes []int32 // nodes[i]: the node of real frames 0..i, with the thread running
	valid int

	// The sample that is not packed yet.
	open   bool
	at     stack.Time // begin
	node   int32
	lasted int64
	cpu    int64
	prev   stack.Time // begin of the previous sample

	state stack.State
	cuts  view.Intervals
	facts []view.Detail
	last  stack.Time
}

// Spent receives time from View.Steps.
func (r *reader) Spent(real []diff.Frame, known bool, at stack.Time, ns int64) {
	n := r.stack(real, known, at)
	if !r.open || n != r.node {
		r.flush()
		r.open, r.at, r.node = true, at, n
	}
	r.lasted += ns
	r.last = at + stack.Time(ns)
}

// Ran receives CPU time from View.Steps. The format stores one time per sample, and its
// CPU time is what the thread used up to then.
func (r *reader) Ran([]diff.Frame, bool, stack.Time, int64) {}

// Unseen receives unobserved time from View.Steps.
func (r *reader) Unseen(view.Unsampled) {}

// Changed receives the depth of a stack change from View.Steps.
func (r *reader) Changed(depth int) { r.valid = min(r.valid, depth) }

// Other receives other events from View.Steps.
func (r *reader) Other(e event.Event, real []diff.Frame, known bool) {
	r.last = max(r.last, e.Time)
	r.cuts.Other(e)
	switch e.Kind() {
	case event.Seen:
		// A separate sample carries the CPU time up to here.
		_, _, cpu := event.SeenFields(e.Payload())
		if !r.open || r.at != e.Time {
			r.flush()
			r.open, r.at, r.node = true, e.Time, r.stack(real, known, e.Time)
		}
		r.cpu += cpu
	case event.State:
		r.state, _ = event.StateFields(e.Payload())
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		begin := max(e.Time-stack.Time(ns), r.p.base)
		r.markers.add(markGap, r.p.str(why.String()), int64(begin-r.p.base), int64(max(e.Time, begin)-r.p.base))
		if why == stack.WhyLost {
			r.state = stack.StateUnknown
		}
	case event.Mark:
		at := int64(max(e.Time-r.p.base, 0))
		r.markers.add(markOther, r.p.str(stack.Why(e.Payload()).String()), at, at-1)
	}
}

// interval writes a marker for a state other than running, and one for the wait in it.
func (r *reader) interval(x *view.Interval) {
	if !x.Waits() || x.End <= x.Begin {
		return
	}
	s, nr := x.Waiting.State()
	begin, end := int64(max(x.Begin-r.p.base, 0)), int64(x.End-r.p.base)
	r.markers.add(markState, r.p.str(r.p.v.StateName(s, nr)), begin, end)
	what := r.p.v.What(&x.Waiting)
	if what == "" {
		return
	}
	b := append([]byte(`"what":`), view.JSON(what, 512)...)
	for _, d := range r.p.v.Details(&x.Waiting, r.facts[:0]) {
		b = append(append(b, `,"`+d.Name+`":`...), view.JSON(d.Value, 512)...)
	}
	r.markers.add(markWait, r.p.str(string(b)), begin, end)
}

func (r *reader) flush() {
	if r.open {
		if r.samples.n == 0 {
			r.prev = r.p.base
		}
		r.samples.add(r.node, int64(max(r.at-r.prev, 0)), r.lasted, r.cpu)
		r.prev = r.at
	}
	r.open, r.lasted, r.cpu = false, 0, 0
}

// stack returns the node of a stack. The category of its innermost frame says whether the
// thread runs.
func (r *reader) stack(real []diff.Frame, known bool, now stack.Time) int32 {
	p := r.p
	if !known {
		r.valid = 0
		return p.tree.Child(0, p.frame(frameKey{p.n, -1, 0, catMissing}))
	}
	if len(real) == 0 {
		return 0
	}
	n := int32(0)
	if r.valid > 0 {
		n = r.nodes[r.valid-1]
	}
	r.nodes = r.nodes[:r.valid]
	for i := r.valid; i < len(real); i++ {
		n = p.push(n, real[i], now, -1)
		r.nodes = append(r.nodes, n)
	}
	r.valid = len(real)
	cat := -1
	switch {
	case r.state == stack.StateRunnable:
		cat = catRunnable
	case view.Waits(r.state):
		cat = catWaiting
	default:
		return n
	}
	caller := int32(0)
	if len(real) > 1 {
		caller = r.nodes[len(real)-2]
	}
	return p.push(caller, real[len(real)-1], now, cat)
}

// push adds the logical frames of f below n. The innermost frame gets category cat,
// unless it is -1.
func (p *profile) push(n int32, f diff.Frame, now stack.Time, cat int) int32 {
	l := p.v.Names.Resolve(f.Word, now)
	for i := len(l.Frames) - 1; i >= 0; i-- {
		c := category(f.Word.Kind())
		if i == 0 && cat >= 0 {
			c = cat
		}
		n = p.tree.Child(n, p.frame(frameKey{p.n, l.ID, i, c}))
	}
	return n
}

func (p *profile) frame(k frameKey) int32 {
	i, ok := p.frameOf[k]
	if !ok {
		i = int32(len(p.frames))
		p.frames = append(p.frames, k)
		p.frameOf[k] = i
	}
	return i
}

func (p *profile) thread(th *view.Thread) {
	r := &reader{p: p}
	r.cuts.Yield = r.interval
	p.v.Steps(th, r)
	r.flush()
	r.cuts.Close(r.last)
	kinds := []string{"State", "Gap", "Mark", "Wait"}
	if p.v.Rec.Traced != nil {
		kinds = append(kinds, "Call")
		p.traced[p.n][th.Index].sorted(&r.markers)
	}

	process := view.JSON(p.v.Rec.Process.Comm, 256)
	b := append(p.line[:0], "\n{\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":"...)
	b = ms(b, max(int64(th.Born-p.base), 0))
	b = append(b, `,"unregisterTime":null,"pausedRanges":[],"showMarkersInTimeline":true,"name":`...)
	b = append(b, view.JSON(th.Label, 256)...)
	b = append(b, `,"isMainThread":`...)
	b = strconv.AppendBool(b, th.Main)
	b = append(append(b, `,"processName":`...), process...)
	b = append(b, `,"pid":"`...)
	b = strconv.AppendInt(b, int64(p.v.PID()), 10)
	b = append(b, `","tid":`...)
	b = strconv.AppendInt(b, int64(th.ID), 10)
	b = append(b, ",\n\"samples\":{\"weightType\":\"tracing-ms\",\"length\":"...)
	p.line = strconv.AppendInt(b, int64(r.samples.n), 10)
	p.w.Write(p.line)
	at, rest := uint64(0), uint64(0)
	column := func(name string, put func(b []byte, i int, node, after, lasted, cpu uint64) []byte) {
		p.print(",\n\"" + name + "\":[")
		i := 0
		r.samples.each(func(node, after, lasted, cpu uint64) {
			b := p.line[:0]
			if i > 0 {
				b = append(b, ',')
			}
			p.line = put(b, i, node, after, lasted, cpu)
			p.w.Write(p.line)
			i++
		})
		p.print("]")
	}
	column("stack", func(b []byte, _ int, node, _, _, _ uint64) []byte {
		if node == 0 {
			return append(b, "null"...)
		}
		return strconv.AppendUint(b, node-1, 10)
	})
	column("time", func(b []byte, _ int, _, after, _, _ uint64) []byte {
		at += after
		return ms(b, int64(at))
	})
	column("weight", func(b []byte, _ int, _, _, lasted, _ uint64) []byte { return ms(b, int64(lasted)) })
	column("threadCPUDelta", func(b []byte, i int, _, _, _, cpu uint64) []byte {
		if i == 0 {
			return append(b, "null"...)
		}
		rest += cpu // whole µs; the remainder carries over
		b = strconv.AppendUint(b, rest/1000, 10)
		rest %= 1000
		return b
	})
	p.print("},\n\"markers\":{\"length\":" + strconv.Itoa(r.markers.n))
	keys := [...]string{"what", "why", "what"}
	var names []int
	for _, k := range kinds {
		names = append(names, p.str(k))
	}
	mark := func(name string, put func(b []byte, kind, text, begin, dur uint64) []byte) {
		p.print(",\n\"" + name + "\":[")
		first := true
		r.markers.each(func(kind, text, begin, dur uint64) {
			b := p.line[:0]
			if !first {
				b = append(b, ',')
			}
			first = false
			p.line = put(b, kind, text, begin, dur)
			p.w.Write(p.line)
		})
		p.print("]")
	}
	mark("name", func(b []byte, kind, _, _, _ uint64) []byte { return strconv.AppendInt(b, int64(names[kind]), 10) })
	mark("startTime", func(b []byte, _, _, begin, _ uint64) []byte { return ms(b, int64(begin)) })
	mark("endTime", func(b []byte, _, _, begin, dur uint64) []byte {
		if dur == 0 {
			return append(b, "null"...)
		}
		return ms(b, int64(begin+dur-1))
	})
	mark("phase", func(b []byte, _, _, _, dur uint64) []byte {
		if dur == 0 {
			return append(b, '0')
		}
		return append(b, '1')
	})
	mark("category", func(b []byte, kind, _, _, _ uint64) []byte {
		return strconv.AppendInt(b, int64([...]int{catWaiting, catMissing, catOther, catWaiting, catNative}[kind]), 10)
	})
	mark("data", func(b []byte, kind, text, _, _ uint64) []byte {
		if kind == markWait || kind == markCall {
			return append(append(append(b, `{"type":"`+kinds[kind]+`",`...), p.table[text]...), '}')
		}
		b = append(b, `{"type":"`+kinds[kind]+`","`+keys[kind]+`":`...)
		return append(append(b, view.JSON(p.table[text], 256)...), '}')
	})
	p.print("}}")
}
