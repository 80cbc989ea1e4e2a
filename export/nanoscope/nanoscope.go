// Package nanoscope writes one thread of a recording as a Nanoscope trace, and its states
// as the file that Nanoscope reads beside it.
//
// The format is a list of lines, time:+name and time:POP, so missing data can only be
// shown as calls: a stack that ends early begins with a frame such as "[no unwind rule]",
// and a gap is a call on top, "[gap: late]", over the time that it covers. Times are in
// ns from 1, as 0 means "not set" to the reader.
//
// Names are sanitized for the original page, which puts them into a script element, into
// innerHTML byte by byte, and uses them as keys of an object: see name.
package nanoscope

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// maxName limits a name to what the page can draw: it paints each name into its own
// canvas, at up to 18 pixels a character, and browsers limit a canvas to 32767.
const maxName = 1024

// maxTime is the largest exact integer of the page, whose numbers are floats.
const maxTime = 1<<53 - 1

// Write writes thread th of v to w.
func Write(w io.Writer, v *view.View, th *view.Thread) error {
	out := &writer{w: bufio.NewWriterSize(w, 1<<16), v: v, base: v.Begin()}
	g := v.WithGaps(out)
	g.Close(v.ExactSlices(th, g))
	if err := out.w.Flush(); err != nil {
		return fmt.Errorf("write Nanoscope trace: %w", err)
	}
	return nil
}

type writer struct {
	w     *bufio.Writer
	v     *view.View
	base  stack.Time
	names [][]byte // by function number: ":+name\n"
	line  []byte
}

func (o *writer) stamp(t stack.Time) {
	o.line = strconv.AppendInt(o.line[:0], stampOf(t, o.base), 10)
}

func stampOf(t, base stack.Time) int64 { return min(max(int64(t-base)+1, 1), maxTime) }

func (o *writer) Begin(t stack.Time, _ int, s *trace.Slice) {
	o.stamp(t)
	f := s.Frame.Func
	for f >= len(o.names) {
		o.names = append(o.names, nil)
	}
	if o.names[f] == nil {
		o.names[f] = []byte(":+" + name(o.v.Names.Funcs[f].Name) + "\n")
	}
	o.line = append(o.line, o.names[f]...)
	o.w.Write(o.line) // the writer keeps the first error until Flush
}

func (o *writer) End(t stack.Time, _ int, _ *trace.Slice) {
	o.stamp(t)
	o.line = append(o.line, ":POP\n"...)
	o.w.Write(o.line)
}

func (o *writer) Other(event.Event) {}

// crashing names are properties of every JavaScript object. Looking up such a name, the
// page finds a function instead of its own record.
var crashing = map[string]bool{
	"constructor": true, "toString": true, "toLocaleString": true, "valueOf": true, "hasOwnProperty": true,
	"isPrototypeOf": true, "propertyIsEnumerable": true, "__proto__": true, "__defineGetter__": true,
	"__defineSetter__": true, "__lookupGetter__": true, "__lookupSetter__": true,
}

// name makes s acceptable to the page: printable ASCII on one line. Other characters
// become \u{…} or \x.., '"' (which ends a name in its search) becomes a single quote, and
// a space follows '<' where HTML would begin a tag. An empty name is replaced.
func name(s string) string {
	b := make([]byte, 0, min(len(s), maxName)+16)
	for i := 0; i < len(s); {
		if len(b) >= maxName {
			b = append(b, "..."...)
			break
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case r < 0x20 || r == 0x7f:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r > 0x7e:
			b = fmt.Appendf(b, `\u{%x}`, r)
		case r == '"':
			b = append(b, '\'')
		default:
			b = append(b, byte(r))
			if r == '<' && i+1 < len(s) && opensTag(s[i+1]) {
				b = append(b, ' ')
			}
		}
		i += n
	}
	if len(b) == 0 {
		return "?"
	}
	if crashing[string(b)] {
		return string(b) + "()"
	}
	return string(b)
}

func opensTag(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '/' || c == '!' || c == '?'
}

// Thread states of ART, as the page numbers them.
const (
	artTerminated = 66
	artRunnable   = 67
	artSleeping   = 69
	artBlocked    = 70
	artNative     = 89
	artSuspended  = 90
)

// artState returns the state of ART that corresponds to s; lock reports whether the
// thread waits for a lock.
func artState(s stack.State, lock bool) int {
	switch s {
	case stack.StateRunning:
		return artRunnable
	case stack.StateBlocked:
		if lock {
			return artBlocked
		}
		return artSleeping
	case stack.StateRunnable, stack.StateDisk, stack.StateFault:
		return artNative
	case stack.StateStopped, stack.StateTraced:
		return artSuspended
	case stack.StateDead:
		return artTerminated
	}
	return artNative
}

// WriteStates writes the states of th, for the file named like the trace with ".state"
// appended, as lines "time, state before, state after". Waiting for a CPU, the disk or a
// page is "native", the closest state available.
func WriteStates(w io.Writer, v *view.View, th *view.Thread) error {
	out := &states{w: bufio.NewWriterSize(w, 1<<16), v: v, base: v.Begin(), at: -1}
	end := v.Slices(th, out)
	out.settle()
	if out.at >= 0 {
		out.change(end, out.now) // the page draws a state when it ends
	}
	if err := out.w.Flush(); err != nil {
		return fmt.Errorf("write Nanoscope states: %w", err)
	}
	return nil
}

type states struct {
	w    *bufio.Writer
	v    *view.View
	base stack.Time
	at   int64
	now  int
	wait diff.Waiting
	// next is the state that results from the events at nextAt: a State event is followed
	// by the thread's wait.
	next   int
	nextAt stack.Time
	fresh  bool
	line   []byte
}

func (o *states) Begin(stack.Time, int, *trace.Slice) {}
func (o *states) End(stack.Time, int, *trace.Slice)   {}

func (o *states) Other(e event.Event) {
	if !o.wait.Apply(e) {
		return
	}
	if o.fresh && e.Time > o.nextAt {
		o.settle()
	}
	d := o.v.Wait(&o.wait)
	s, _ := o.wait.State()
	o.next = artState(s, d.Excludes() && (o.wait.Lock() != 0 || d != nil && d.Lock != ""))
	o.nextAt, o.fresh = e.Time, true
}

// settle writes the state reached at nextAt, if it differs.
func (o *states) settle() {
	if o.fresh && (o.next != o.now || o.at < 0) {
		o.change(o.nextAt, o.next)
	}
	o.fresh = false
}

func (o *states) change(t stack.Time, to int) {
	from := o.now
	if o.at < 0 {
		from = to
	}
	o.at, o.now = stampOf(t, o.base), to
	o.line = fmt.Appendf(o.line[:0], "%d, %d, %d\n", o.at, from, to)
	o.w.Write(o.line)
}
