package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// locks makes the table of locks: first those that some have and others have
// not, then condition variables and the like.
func (r *Report) locks(v *view.View, c *contend.Contention, top int) {
	in := holders(v, c)
	out := []Lock{}
	for i := range c.Locks {
		l := &c.Locks[i]
		row := Lock{Name: l.Name, Kind: l.Kind, Excludes: l.Excludes, Waits: len(l.Waits), Total: l.Total, Longest: l.Longest}
		if l.Addr != 0 {
			row.Addr = fmt.Sprintf("%#x", l.Addr)
		}
		l.History(c, func(h *contend.Held) { row.Most = max(row.Most, h.Waiting) })
		var by, held, asked shares
		for _, j := range l.Waits {
			w := &c.Waits[j]
			ns := int64(w.End - w.Begin)
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
		row.Holders, row.HolderIn, row.WaiterIn = by.sorted(), held.sorted(), asked.sorted()
		if len(row.Holders) > 0 {
			row.Unknown = ""
		}
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(a, b Lock) int {
		switch {
		case a.Excludes == b.Excludes:
			return cmp.Compare(b.Total, a.Total)
		case a.Excludes:
			return -1
		}
		return 1
	})
	r.Locks, r.More.Locks = cut(out, top)
}

// shares adds up by name.
type shares map[string]*Share

// maxShares is how many names a cell of a table keeps.
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

// holders finds for each wait in which function its holder was when it was
// seen to hold the lock; "" where that is not known.
func holders(v *view.View, c *contend.Contention) []string {
	out := make([]string, len(c.Waits))
	asked := make([][]int, len(v.Threads)) // waits, by the holder's thread
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
	}
	return out
}

// finder looks at the stack of one thread at given times.
type finder struct {
	v      *view.View
	c      *contend.Contention
	replay *view.Replay
	waits  []int // those still to come
	out    []string
}

// to answers for the times before t, in which the stack is as it is now.
func (f *finder) to(t stack.Time, depth int) {
	for len(f.waits) > 0 && f.c.Waits[f.waits[0]].HeldAt < t {
		st := f.replay.Stack()
		st = st[:min(depth, len(st))]
		i := f.v.Asker(st)
		if i < 0 {
			i = len(st) - 1
		}
		if i >= 0 {
			f.out[f.waits[0]] = f.v.FuncName(st[i].Frame.Func)
		}
		f.waits = f.waits[1:]
	}
}

func (f *finder) Begin(t stack.Time, depth int, _ *trace.Slice) { f.to(t, depth) }
func (f *finder) End(t stack.Time, depth int, _ *trace.Slice)   { f.to(t, depth+1) }
func (f *finder) Other(e event.Event)                           { f.to(e.Time, len(f.replay.Stack())) }
