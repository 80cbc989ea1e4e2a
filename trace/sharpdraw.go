package trace

import (
	"cmp"
	"math"
	"slices"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

const never = stack.Time(math.MaxInt64)

// openCalls are the traced calls of a thread over time.
type openCalls struct {
	all  []tracedCall
	next int           // the first one that has not begun
	now  []*tracedCall // under way, outermost first
	exit stack.Time    // the earliest of their ends
	last map[int32]stack.Time
	live bool // all grows, and calls that have begun are removed from it

	at   []*tracedCall  // result of asOf
	near map[int32]bool // functions with a call that began or ended about then
	gone map[int32]bool // functions with a call that ends until then, of those that have not ended yet
}

func (o *openCalls) init(all []tracedCall) {
	o.all, o.exit, o.last, o.near = all, never, map[int32]stack.Time{}, map[int32]bool{}
	o.gone = map[int32]bool{}
}

// edge returns the time at which the next call begins or ends.
func (o *openCalls) edge() stack.Time {
	if o.next < len(o.all) {
		return min(o.exit, o.all[o.next].enter)
	}
	return o.exit
}

// step lets the next call begin or end, and returns the one that ended, nil for none.
func (o *openCalls) step() *tracedCall {
	if o.next < len(o.all) && o.all[o.next].enter < o.exit {
		c := &o.all[o.next]
		if o.live {
			begun := *c
			c = &begun
		}
		o.next++
		if len(o.now) < maxNested {
			o.now = append(o.now, c)
			o.exit = min(o.exit, c.exit)
		}
		return nil
	}
	i := len(o.now) - 1
	for i > 0 && o.now[i].exit > o.exit {
		i--
	}
	c := o.now[i]
	o.now = slices.Delete(o.now, i, i+1)
	o.exit = never
	for _, x := range o.now {
		o.exit = min(o.exit, x.exit)
	}
	if c.how != calls.Open {
		o.last[c.fn] = c.exit
	}
	return c
}

// asOf returns the calls that are open at a time to come, outermost first.
func (o *openCalls) asOf(t stack.Time) []*tracedCall {
	o.at = o.at[:0]
	clear(o.near)
	clear(o.gone)
	take := func(c *tracedCall) {
		if c.exit <= t && c.how != calls.Open {
			o.gone[c.fn] = true
		}
		switch {
		case c.enter > t || c.exit <= t && c.exit >= t-sharpSkew && c.how != calls.Open:
			o.near[c.fn] = true
		case c.exit > t && len(o.at) < maxNested:
			o.at = append(o.at, c)
		}
	}
	for _, c := range o.now {
		take(c)
	}
	for i := o.next; i < len(o.all) && o.all[i].enter <= t+sharpSkew; i++ {
		take(&o.all[i])
	}
	return o.at
}

// over notes that a sample at t shows that c is over.
func (o *openCalls) over(c *tracedCall, t stack.Time) {
	if c.exit = min(c.exit, max(t, c.enter)); slices.Contains(o.now, c) {
		o.exit = min(o.exit, c.exit)
	}
}

// stage says that the first frames of the next stack exist from a time on.
type stage struct {
	at     stack.Time
	frames int
}

// match finds the frames of the next stack that belong to calls open at t, and returns when the new ones of these
// began. sample says that a sample was taken at t.
func (s *Sharp) match(t stack.Time, sample bool) []stage {
	x := &s.next
	m := matching{s: s, t: t, sample: sample, open: s.open.asOf(t), keep: len(s.frames)}
	errors := s.errors
	if x.on {
		m.keep, m.add = x.keep, x.add
		for i := range x.add {
			errors += countError(&x.add[i])
		}
		for i := x.keep; i < len(s.frames); i++ {
			errors -= countError(&s.frames[i])
		}
	}
	m.whole = errors == 0
	for _, i := range s.traced {
		if i < m.keep {
			m.frame(&s.frames[i], i+1)
		}
	}
	for i := range m.add {
		if m.add[i].fn >= 0 {
			m.frame(&m.add[i], m.keep+i+1)
		}
	}
	if (sample || x.on) && m.whole && !s.guess && m.keep+len(m.add) > 0 {
		for ; m.done < len(m.open); m.done++ {
			if c := m.open[m.done]; c.stale() && c.enter < t-c.skew() {
				s.open.over(c, t)
			}
		}
	}
	return m.out
}

// matching is a match in progress.
type matching struct {
	s      *Sharp
	t      stack.Time
	sample bool
	open   []*tracedCall
	done   int            // calls before it are matched or over
	keep   int            // frames of the present stack in the next one
	add    []sampledFrame // the others
	whole  bool           // the next stack is complete
	out    []stage
}

// frame finds the call of a frame of the next stack, the pos-th from 1 on.
func (m *matching) frame(f *sampledFrame, pos int) {
	k := m.done
	for k < len(m.open) && m.open[k].fn != f.fn && m.open[k].stale() {
		k++
	}
	if k == len(m.open) || m.open[k].fn != f.fn {
		if m.sample {
			f.covered = m.edge(f, pos)
		}
		return
	}
	if m.sample {
		f.covered = true
		for ; m.done < k && m.whole; m.done++ {
			m.s.open.over(m.open[m.done], m.t)
		}
	}
	if c := m.open[k]; pos > m.keep && c.enter > m.s.seen {
		m.out = append(m.out, stage{c.enter, pos})
	}
	m.done = k + 1
}

// edge reports whether a frame without a call is of one that begins or ends about then.
func (m *matching) edge(f *sampledFrame, pos int) bool {
	o, x := &m.s.open, &m.s.next
	last := o.last[f.fn]
	if o.near[f.fn] || last > 0 && last >= m.t-sharpSkew || m.tracing(pos) {
		return true
	}
	leaf := pos == m.keep+len(m.add) && (f.word.Exact() || x.on && pos == m.keep && x.moved.Exact())
	return leaf && (last > 0 || o.gone[f.fn]) && m.s.calls.complete(f.fn, m.t)
}

// tracing reports whether the frame on the pos-th of the next stack records a call of that one.
func (m *matching) tracing(pos int) bool {
	var on *sampledFrame
	switch n := pos - m.keep; {
	case n < 0:
		on = &m.s.frames[pos]
	case n < len(m.add):
		on = &m.add[n]
	default:
		return false
	}
	return m.s.calls.tracing(on.word, m.t)
}

// countError returns 1 for an error frame.
func countError(f *sampledFrame) int {
	if f.word.Kind() == stack.KindError {
		return 1
	}
	return 0
}

// step lets the next call begin or end, and reports whether one ended.
func (s *Sharp) step() bool {
	c := s.open.step()
	if c == nil || c.how != calls.Open {
		return c != nil
	}
	if i := slices.Index(s.drawing.binds, c); i >= 0 && i < len(s.traced) { // the call goes on, without being traced
		s.frames[s.traced[i]].covered = false
	}
	return true
}

// drawing is the stack that was passed on.
type drawing struct {
	goal
	stack  []drawn
	dirty  int // the sampled stack has changed from here on
	budget int // frames that may end and begin again: see reentered
	tired  bool
}

// goal is a stack to pass on.
type goal struct {
	n     int           // frames of the sampled stack
	binds []*tracedCall // their calls, by position in Sharp.traced; nil: none
	over  event.Word    // the innermost of them is here; 0: where it was sampled
	left  []*tracedCall // calls on top of them
}

// drawn is a frame of the stack that was passed on.
type drawn struct {
	word event.Word
	id   uint64 // of the sampled frame; 0: it has none
	call *tracedCall
}

// same reports whether b, at the same depth, is the activation that a was.
func (a *drawn) same(b *drawn) bool {
	switch {
	case a.call == b.call && a.call != nil:
		return true
	case a.id != b.id || a.id == 0:
		return false
	case a.call == nil:
		return b.call == nil || b.call.before
	}
	return b.call == nil && a.call.how == calls.Open
}

// target returns the stack of the present moment.
func (s *Sharp) target() (g goal) {
	g.n = min(s.limit, len(s.frames))
	if s.drawing.tired || len(s.frames) > maxSharpDepth {
		return g
	}
	last, j := 0, 0 // frames up to the last with a call
	for _, p := range s.traced {
		if p >= g.n {
			break
		}
		if j < len(s.open.now) && s.open.now[j].fn == s.frames[p].fn {
			g.binds = append(g.binds, s.open.now[j])
			last = p + 1
			if j++; s.next.on && s.open.now[j-1].enter > s.seen { // no sample was taken in it
				g.n = last
				s.frames[p].covered = s.frames[p].covered || p >= s.next.keep // the frame is over, or this call
			}
			continue
		}
		if s.frames[p].covered || s.ended(&s.frames[p]) {
			g.n = p
			break
		}
		g.binds = append(g.binds, nil)
	}
	if g.left = s.open.now[j:]; len(g.left) > 0 {
		s.below(&g, last)
	}
	return g
}

// ended reports whether a call of a frame's function has ended since the frame was seen first, of a function whose calls
// are all known: the frame was that call's.
func (s *Sharp) ended(f *sampledFrame) bool {
	last := s.open.last[f.fn]
	return last > 0 && last >= f.entered && s.calls.complete(f.fn, last)
}

// below places the calls without a frame: on top of the caller of the outermost. last is how many frames belong to
// it or to calls further out.
func (s *Sharp) below(g *goal, last int) {
	if len(s.frames) == 0 {
		g.left = nil
		return
	}
	c := g.left[0]
	of := s.calls.caller(c)
	for i := 1; i < len(g.left); i++ {
		g.left[i].orphan = s.calls.caller(g.left[i]) != s.calls.entry(g.left[i-1].fn, c.enter)
	}
	c.orphan = false
	for p := g.n - 1; of > 0 && p >= max(last-1, g.n-maxCallerDepth, 0); p-- {
		if f := &s.frames[p]; s.calls.frame(f) == of {
			g.n = p + 1
			g.over = wordAt(f.word, c.ret)
			g.trim(s.traced)
			return
		}
	}
	c.orphan = true
	if s.next.on && c.enter > s.seen {
		g.n = min(g.n, max(s.next.keep, last))
		g.trim(s.traced)
	}
}

// trim leaves out the calls of frames that are gone.
func (g *goal) trim(traced []int) {
	for n := len(g.binds); n > 0 && traced[n-1] >= g.n; n-- {
		g.binds = g.binds[:n-1]
	}
}

// wordAt returns w at a return address.
func wordAt(w event.Word, ret uint64) event.Word {
	const address = 1<<48 - 1
	return w&^(address|1<<55) | event.Word(ret&address)
}

// expected reports whether the caller of the outermost call without a frame is a frame of the next stack, and how
// many frames that has then.
func (s *Sharp) expected(g *goal) (frames int, ok bool) {
	if !s.next.on || len(g.left) == 0 || !g.left[0].orphan {
		return 0, false
	}
	of := s.calls.caller(g.left[0])
	for i := len(s.next.add) - 1; i >= max(len(s.next.add)-maxCallerDepth, 0) && of > 0; i-- {
		if s.calls.frame(&s.next.add[i]) == of {
			return s.next.keep + i + 1, true
		}
	}
	return 0, false
}

// items returns the frames of g from one on.
func (s *Sharp) items(g *goal, from int) (out []drawn) {
	b, _ := slices.BinarySearch(s.traced[:len(g.binds)], from)
	for i := from; i < g.n; i++ {
		f := &s.frames[i]
		d := drawn{word: f.word, id: f.id}
		if i == g.n-1 && g.over != 0 {
			d.word = g.over
		}
		if b < len(g.binds) && s.traced[b] == i {
			d.call = g.binds[b]
			b++
		}
		out = append(out, d)
	}
	for i := max(from-g.n, 0); i < len(g.left); i++ {
		out = append(out, drawn{word: s.calls.word(g.left[i].fn), call: g.left[i]})
	}
	return out
}

// differs returns the first depth from which on g may differ from the present drawing.
func (s *Sharp) differs(g *goal) int {
	d := &s.drawing
	from := min(d.n, g.n, d.dirty)
	if d.over != 0 || g.over != 0 {
		from = min(from, d.n-1, g.n-1)
	}
	n := min(len(d.binds), len(g.binds))
	i := 0
	for i < n && d.binds[i] == g.binds[i] {
		i++
	}
	if (i < len(d.binds) || i < len(g.binds)) && i < len(s.traced) {
		from = min(from, s.traced[i])
	}
	return max(from, 0)
}

// draw passes on what makes the stack the present one.
func (s *Sharp) draw(t stack.Time) {
	want := s.target()
	if n, ok := s.expected(&want); ok {
		s.begin(n)
		want = s.target()
	}
	t = max(t, s.high)
	from := s.differs(&want)
	all := s.items(&want, from)
	d := &s.drawing
	m := 0
	for m < len(all) && from+m < len(d.stack) && d.stack[from+m].same(&all[m]) {
		was := &d.stack[from+m]
		if c := all[m].call; c != nil && was.call == nil { // a sampled frame goes on as a call
			s.out.is(from+m, s.exact(&all[m]))
		}
		was.id, was.call = all[m].id, all[m].call
		m++
	}
	for n := len(d.stack); n > from+m; n-- {
		s.pass(event.Event{Time: t})
	}
	if d.stack = d.stack[:from+m]; m > 0 && d.stack[from+m-1].word != all[m-1].word && all[m-1].id != 0 {
		s.pass(event.Make(t, event.Move, uint64(all[m-1].word)))
		d.stack[from+m-1].word = all[m-1].word
	}
	for i := m; i < len(all); i++ {
		s.enter(t, &all[i])
	}
	if d.budget = min(d.budget, reenteredMost) - (len(all) - m); d.budget < -reenteredFirst {
		d.tired = true
	}
	d.set(&want, from+m, all[m:])
}

// set notes that g was passed on, with other frames from one on.
func (d *drawing) set(g *goal, from int, all []drawn) {
	binds := append(d.binds[:0], g.binds...)
	d.goal = *g
	d.binds, d.left = binds, nil
	d.stack = append(d.stack[:from], all...)
	d.dirty = math.MaxInt
}

// enter passes on an Enter, which is not before the one before it, with the call that it is.
func (s *Sharp) enter(t stack.Time, d *drawn) {
	s.high = max(s.high, t)
	e := event.Make(t, event.Enter, uint64(d.word))
	if d.call == nil {
		s.out.Apply(e)
		return
	}
	var l *Loc
	if d.id == 0 {
		l = s.calls.loc(d.call.fn, t)
	}
	s.out.begin(e, s.exact(d), l)
}

// exact describes the call of a frame, which becomes a slice.
func (s *Sharp) exact(d *drawn) *Exact {
	c := d.call
	if s.calls.placed != nil {
		s.calls.placed[c.n/64] |= 1 << (c.n % 64)
	}
	return &Exact{Call: calls.Call{Fn: int(c.fn), TID: s.calls.tid, Enter: c.enter, Exit: c.exit, Ret: c.ret, How: c.how, Before: c.before, Unsure: c.unsure},
		Orphan: c.orphan && d.id == 0}
}

// compareCalls orders calls by their begin, outermost first.
func compareCalls(a, b tracedCall) int {
	return cmp.Or(cmp.Compare(a.enter, b.enter), cmp.Compare(b.exit, a.exit), cmp.Compare(b.n, a.n))
}
