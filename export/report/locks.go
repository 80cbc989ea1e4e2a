package report

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// locks builds the table of locks: first locks with holders, then condition variables and
// similar.
func (r *Report) locks(v *view.View, c *contend.Contention, top int) {
	waits := partsOf(v, c)
	out := []Lock{}
	for i := range c.Locks {
		l := &c.Locks[i]
		row := Lock{Name: l.Name, Kind: l.Kind, Addr: waits.locks[i].Addr, Excludes: l.Excludes}
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
			for _, x := range waits.parts(j) {
				of := int64(x.End - x.Begin)
				by.add(x.Words.Holder, j, of)
				held.add(x.Words.HolderIn, j, of)
				asked.add(x.Words.WaiterIn, j, of)
				row.Unknown = cmp.Or(x.Words.Unknown, row.Unknown)
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

// shares sums the times of waits by name.
type shares map[string]*share

type share struct {
	Share
	last int // the wait that was added last
}

// maxShares is how many names a table cell shows.
const maxShares = 5

// add adds a part of a wait. A wait counts once for a name; its parts follow each other.
func (s *shares) add(name string, wait int, ns int64) {
	if name == "" {
		return
	}
	if *s == nil {
		*s = shares{}
	}
	x := (*s)[name]
	if x == nil {
		x = &share{Share{Name: name}, -1}
		(*s)[name] = x
	}
	if x.last != wait {
		x.Waits++
	}
	x.last = wait
	x.Total += ns
}

func (s shares) sorted() []Share {
	out := []Share{}
	for _, x := range s {
		out = append(out, x.Share)
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name)) })
	out, _ = cut(out, maxShares)
	return out
}

// holders returns, for each part of a wait, the function that the holder was in when it was seen
// holding the lock; "" if unknown.
func holders(v *view.View, c *contend.Contention, holds []contend.Hold) []string {
	out := make([]string, len(holds))
	inside := make([]bool, len(holds))
	asked := make([][]int, len(v.Threads)) // parts by the holder's thread
	own := make([][]int, len(v.Threads))   // waits by the waiting thread, by begin
	takes := make([]map[int]bool, len(c.Locks))
	for i := range c.Waits {
		w := &c.Waits[i]
		own[w.Thread] = append(own[w.Thread], i)
		if w.Asker >= 0 {
			if takes[w.Lock] == nil {
				takes[w.Lock] = map[int]bool{}
			}
			takes[w.Lock][w.Asker] = true
		}
	}
	for i := range holds {
		if th, ok := v.ByTID(holds[i].TID); ok {
			asked[th.Index] = append(asked[th.Index], i)
		}
	}
	for i, parts := range asked {
		if len(parts) == 0 {
			continue
		}
		slices.SortFunc(parts, func(a, b int) int { return cmp.Compare(holds[a].At, holds[b].At) })
		f := &finder{v: v, c: c, holds: holds, parts: parts, own: own[i], takes: takes, out: out, inside: inside}
		f.replay = v.Replay(&v.Threads[i], f)
		f.replay.Run()
		f.answer(f.before) // no later sample answers these
	}
	// If holders of a lock are mostly in functions that wait for it, these functions release it, too. Stacks
	// without one of them are of other times.
	release := make([]int, len(c.Locks))
	for i := range holds {
		switch {
		case inside[i]:
			release[c.Waits[holds[i].Wait].Lock]++
		case out[i] != "":
			release[c.Waits[holds[i].Wait].Lock]--
		}
	}
	for i := range holds {
		if release[c.Waits[holds[i].Wait].Lock] > 0 && !inside[i] {
			out[i] = ""
		}
	}
	return out
}

// finder looks up the stack of one thread at given times. A lock held for less than an
// interval may have been taken after the previous sample and released before the next. Of
// these two samples, finder uses the one within the part of the wait, or the nearer one if both are. If
// neither is, it uses only the calls that both stacks share.
//
// A sample that found the thread waiting for the lock did not find it holding the lock; nor
// did one that found it blocked, if the lock is an interpreter's, which is released first. If
// one stack has a function in which threads wait for the lock, and the other does not, the
// other was sampled before the lock was taken or after it was released.
type finder struct {
	v      *view.View
	c      *contend.Contention
	replay *view.Replay
	holds  []contend.Hold
	parts  []int          // of holds, still to come
	own    []int          // waits of the thread itself
	takes  []map[int]bool // functions that wait for a lock, by lock
	out    []string
	inside []bool // the stack of out has a function that takes the lock

	at     stack.Time    // time of the current stack
	asked  []int         // parts to answer with the previous sample or the current one
	before []trace.Slice // stack at the previous sample
	seen   stack.Time    // time of the previous sample
	sleeps bool          // the thread is blocked
	slept  bool          // it was at the previous sample
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
	for n < len(f.parts) && f.holds[f.parts[n]].At < t {
		n++
	}
	if f.asked, f.parts = f.parts[:n], f.parts[n:]; n > 0 {
		f.before, f.seen, f.slept = append(f.before[:0], st...), f.at, f.sleeps
	}
	f.at = t
}

// answer sets the thread's position for the pending parts; st is its stack at the following
// sample.
func (f *finder) answer(st []trace.Slice) {
	for _, i := range f.asked {
		h := &f.holds[i]
		lock := f.c.Waits[h.Wait].Lock
		old, next := f.position(f.before, f.seen, f.slept, h), f.position(st, f.at, f.sleeps, h)
		old.holds, next.holds = old.holds && (old.takes > 0 || next.takes == 0 || !next.holds), next.holds && (next.takes > 0 || old.takes == 0 || !old.holds)
		in := f.before
		switch old.within, next.within = old.within && old.holds, next.within && next.holds; {
		case next.within && (!old.within || f.at-h.At < h.At-f.seen):
			in = st
		case !old.within:
			in = shared(in, st, old, next)
		}
		at := f.v.Asker(in)
		if at < 0 {
			at = len(in) - 1
		}
		if at >= 0 {
			f.out[i], f.inside[i] = f.v.FuncName(in[at].Frame.Func), f.taken(in, lock) > 0
		}
	}
}

// position says what a sample of the thread shows about its hold of a lock.
type position struct {
	within bool // it was taken within the part of the wait
	holds  bool // the thread may have held the lock
	takes  int  // see finder.taken
}

func (f *finder) position(st []trace.Slice, at stack.Time, sleeps bool, h *contend.Hold) position {
	lock := f.c.Waits[h.Wait].Lock
	p := position{within: at >= h.Begin && at <= h.End, holds: !sleeps || f.c.Locks[lock].Kind != kind.LockGIL}
	n := len(st)
	if j := f.waited(at); j >= 0 {
		if f.c.Waits[j].Lock == lock {
			p.holds = false
		} else if i := f.v.Asker(st); i >= 0 {
			n = i // it may be about to take the lock in this function
		}
	}
	p.takes = f.taken(st[:n], lock)
	return p
}

// taken returns how many calls there are up to the innermost function that waits for a lock;
// 0: there is none.
func (f *finder) taken(st []trace.Slice, lock int) int {
	for i := len(st); i > 0; i-- {
		if f.takes[lock][st[i-1].Frame.Func] {
			return i
		}
	}
	return 0
}

// waited returns the thread's own wait at a time; -1: it did not wait for a lock.
func (f *finder) waited(at stack.Time) int {
	n, _ := slices.BinarySearchFunc(f.own, at, func(i int, at stack.Time) int {
		if f.c.Waits[i].Begin <= at {
			return -1
		}
		return 1
	})
	if n > 0 && f.c.Waits[f.own[n-1]].End > at {
		return f.own[n-1]
	}
	return -1
}

// shared returns the calls in which the thread held a lock, of two stacks of which neither
// was sampled while it certainly did: those that both have, and at least those down to the
// function that takes the lock.
func shared(a, b []trace.Slice, old, next position) []trace.Slice {
	n := both(a, b)
	switch {
	case old.takes > n && (old.holds || next.takes == 0 || !next.holds):
		return a[:old.takes]
	case next.takes > n:
		return b[:next.takes]
	}
	return a[:n]
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

func (f *finder) Other(e event.Event) {
	f.to(e.Time, len(f.replay.Stack()))
	if e.Kind() == event.State {
		s, _ := event.StateFields(e.Payload())
		f.sleeps = s == stack.StateBlocked
	}
}
