package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// locks builds the table of locks: first locks with holders, then condition variables and
// similar.
func (r *Report) locks(v *view.View, c *contend.Contention, top int) {
	in := holders(v, c)
	out := []Lock{}
	for i := range c.Locks {
		l := &c.Locks[i]
		row := Lock{Name: l.Name, Kind: l.Kind, Excludes: l.Excludes}
		if l.Addr != 0 {
			row.Addr = fmt.Sprintf("%#x", l.Addr)
		}
		l.History(c, func(h *contend.Held) { row.Most = max(row.Most, h.Waiting) })
		var by, held, asked shares
		for _, j := range l.Waits {
			w := &c.Waits[j]
			if w.Idle && !v.ShowsIdle() {
				continue
			}
			ns := int64(w.End - w.Begin)
			row.Waits++
			row.Total += ns
			if !w.Fitted {
				row.Longest = max(row.Longest, ns)
			}
			if w.Holder != 0 {
				by.add(v.ThreadName(w.Holder)+" ("+w.By.String()+")", ns)
			} else if w.Why != "" {
				row.Unknown = view.Text(w.Why, 512)
			}
			if in[j] != "" {
				held.add(in[j], ns)
			}
			if w.Asker >= 0 {
				asked.add(v.FuncName(w.Asker), ns)
			}
		}
		if row.Waits == 0 {
			continue
		}
		row.Holders, row.HolderIn, row.WaiterIn = by.sorted(), held.sorted(), asked.sorted()
		if len(row.Holders) > 0 {
			row.Unknown = ""
		}
		out = append(out, row)
	}
	slices.SortStableFunc(out, byLock)
	r.Locks, r.More.Locks = cut(out, top)
}

// byLock orders locks as they are listed: those that a thread holds first, then by time.
func byLock(a, b Lock) int {
	switch {
	case a.Excludes == b.Excludes:
		return cmp.Compare(b.Total, a.Total)
	case a.Excludes:
		return -1
	}
	return 1
}

// shares sums values by name.
type shares map[string]*Share

// maxShares is how many names a table cell shows.
const maxShares = 5

func (s *shares) add(name string, ns int64) {
	if *s == nil {
		*s = shares{}
	}
	x := (*s)[name]
	if x == nil {
		x = &Share{Name: name}
		(*s)[name] = x
	}
	x.Waits++
	x.Total += ns
}

func (s shares) sorted() []Share {
	out := []Share{}
	for _, x := range s {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name)) })
	out, _ = cut(out, maxShares)
	return out
}

// holders returns, for each wait, the function that the holder was in when it was seen
// holding the lock; "" if unknown.
func holders(v *view.View, c *contend.Contention) []string {
	out := make([]string, len(c.Waits))
	asked := make([][]int, len(v.Threads)) // waits by the holder's thread
	for i := range c.Waits {
		if w := &c.Waits[i]; w.Holder != 0 {
			if th, ok := v.ByTID(w.Holder); ok {
				asked[th.Index] = append(asked[th.Index], i)
			}
		}
	}
	for i, waits := range asked {
		if len(waits) == 0 {
			continue
		}
		slices.SortFunc(waits, func(a, b int) int { return cmp.Compare(c.Waits[a].HeldAt, c.Waits[b].HeldAt) })
		f := &finder{v: v, c: c, waits: waits, out: out}
		f.replay = v.Replay(&v.Threads[i], f)
		f.replay.Run()
		f.answer(f.before) // no later sample answers these
	}
	return out
}

// finder looks up the stack of one thread at given times. A lock held for less than an
// interval may have been taken after the previous sample and released before the next. Of
// these two samples, finder uses the one within the wait, or the nearer one if both are. If
// neither is, it uses only the calls that both stacks share.
type finder struct {
	v      *view.View
	c      *contend.Contention
	replay *view.Replay
	waits  []int // still to come
	out    []string

	at     stack.Time    // time of the current stack
	asked  []int         // waits to answer with the previous sample or the current one
	before []trace.Slice // stack at the previous sample
	seen   stack.Time    // time of the previous sample
}

// to advances to an event at t; depth is the stack depth before it.
func (f *finder) to(t stack.Time, depth int) {
	if t <= f.at {
		return // event of the same sample
	}
	st := f.replay.Stack()
	st = st[:min(depth, len(st))]
	f.answer(st)
	n := 0
	for n < len(f.waits) && f.c.Waits[f.waits[n]].HeldAt < t {
		n++
	}
	if f.asked, f.waits = f.waits[:n], f.waits[n:]; n > 0 {
		f.before, f.seen = append(f.before[:0], st...), f.at
	}
	f.at = t
}

// answer sets the thread's position for the pending waits; st is its stack at the following
// sample.
func (f *finder) answer(st []trace.Slice) {
	for _, i := range f.asked {
		w := &f.c.Waits[i]
		within := func(t stack.Time) bool { return t >= w.Begin && t <= w.End }
		in := f.before
		switch old, next := within(f.seen), within(f.at); {
		case next && (!old || f.at-w.HeldAt < w.HeldAt-f.seen):
			in = st
		case !old && !next:
			in = in[:both(in, st)]
		}
		at := f.v.Asker(in)
		if at < 0 {
			at = len(in) - 1
		}
		if at >= 0 {
			f.out[i] = f.v.FuncName(in[at].Frame.Func)
		}
	}
}

// both returns how many outer calls two stacks of a thread share.
func both(a, b []trace.Slice) int {
	n := 0
	for n < len(a) && n < len(b) && a[n].Entered == b[n].Entered && a[n].Frame.Func == b[n].Frame.Func {
		n++
	}
	return n
}

func (f *finder) Begin(t stack.Time, depth int, _ *trace.Slice) { f.to(t, depth) }
func (f *finder) End(t stack.Time, depth int, _ *trace.Slice)   { f.to(t, depth+1) }
func (f *finder) Other(e event.Event)                           { f.to(e.Time, len(f.replay.Stack())) }
