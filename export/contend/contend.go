// Package contend combines the lock waits of all threads of a recording: which locks they
// waited for and when, which threads were seen to hold them, and which thread released
// each. Package view describes one thread at a time; formats that draw arrows and lanes,
// and the report, need all threads together.
//
// A Contention is built by one goroutine and read-only afterwards.
package contend

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/infer"
	"github.com/sliverprof/sliver/wait/kind"
)

// Contention holds all lock waits of a recording.
type Contention struct {
	Locks []Lock // sorted by total wait time, longest first
	Waits []Wait // by thread, then by time
	// Dropped is the number of waits left out because there were more than MaxWaits.
	Dropped int
}

// MaxWaits limits a Contention to 1 M waits, about 150 MB.
const MaxWaits = 1 << 20

// Key identifies a lock.
type Key struct {
	Addr uint64
	File string // for a file lock, its file and kind; Addr is then 0
}

// Lock is a lock that threads waited for.
type Lock struct {
	Key
	Name      string // such as "mutex cache_lock"; unique
	Waits     []int  // indexes in Contention.Waits, by begin
	Sightings []Sighting
	Total     int64 // ns waited by all threads
	Longest   int64 // ns
	Kind      kind.Lock
	Excludes  bool // the lock has holders; see trace.Wait.Excludes
}

// Sighting is an observation of a lock's holder.
type Sighting struct {
	At  stack.Time
	TID stack.TID // 0: no holder, or unknown
	By  event.KnownBy
}

// Wait is one wait for a lock.
type Wait struct {
	Thread     int // index in View.Threads
	Lock       int // index in Contention.Locks
	Begin, End stack.Time
	Edge       int64 // ns by which it may have ended before End
	Waiting    diff.Waiting
	Asker      int  // index in Names.Funcs of the function that called; -1: unknown
	Cut        bool // the wait had not ended when the recording did
	Idle       bool // see view.View.Idle
	Fitted     bool // see view.Interval
	// Holder held the lock when the wait ended, and so released it. It is 0 if unknown;
	// Why gives the reason, if known.
	Holder stack.TID
	By     event.KnownBy
	HeldAt stack.Time // when it was last seen holding the lock
	Why    string

	woken uint64 // see view.Interval
}

// Of combines the threads of v.
func Of(v *view.View) *Contention {
	c := &Contention{}
	b := &builder{v: v, c: c, byKey: map[Key]int{}}
	for i := range v.Threads {
		b.thread(&v.Threads[i])
	}
	b.names()
	for i := range c.Locks {
		l := &c.Locks[i]
		slices.SortStableFunc(l.Sightings, func(a, b Sighting) int { return cmp.Compare(a.At, b.At) })
		slices.SortStableFunc(l.Waits, func(a, b int) int { return cmp.Compare(c.Waits[a].Begin, c.Waits[b].Begin) })
	}
	for i := range c.Waits {
		b.lastHolder(&c.Waits[i])
	}
	b.infer()
	b.order()
	return c
}

type builder struct {
	v     *view.View
	c     *Contention
	byKey map[Key]int
	best  []*trace.Wait // by lock, the most specific description

	// State of the current thread.
	th     *view.Thread
	replay *view.Replay
	cuts   view.Intervals
	open   []pending  // intervals not yet yielded
	begin  stack.Time // of the interval yielded last
}

// pending is an interval in progress.
type pending struct {
	asker     int
	exact     bool // the kernel's context switches show it
	sightings []Sighting
	blocked   bool
	idle      bool
}

func (b *builder) thread(th *view.Thread) {
	b.th, b.open = th, b.open[:0]
	b.cuts = view.Intervals{Yield: b.take}
	b.replay = b.v.Replay(th, b)
	end := b.replay.Run()
	cut := b.cuts.Open()
	b.cuts.Close(end)
	if n := len(b.c.Waits) - 1; cut && n >= 0 && b.c.Waits[n].Thread == th.Index && b.c.Waits[n].Begin == b.begin {
		b.c.Waits[n].Cut = true
	}
}

// ask notes which function the newest interval's wait is of, if that is not known.
func (b *builder) ask() {
	if n := len(b.open) - 1; n >= 0 && b.open[n].asker < 0 && b.open[n].blocked {
		if i := b.v.Asker(b.replay.Stack()); i >= 0 {
			b.open[n].asker = b.replay.Stack()[i].Frame.Func
		}
	}
}

// Begin implements trace.SliceHandler.
func (b *builder) Begin(stack.Time, int, *trace.Slice) {}

// End implements trace.SliceHandler.
func (b *builder) End(stack.Time, int, *trace.Slice) {}

// Other implements trace.SliceHandler.
func (b *builder) Other(e event.Event) {
	b.cuts.Other(e)
	switch e.Kind() {
	case event.State:
		if n := len(b.open) - 1; n >= 0 && !b.open[n].exact {
			b.ask() // no sample found it, but its stack is the wait's
		}
		if s, _ := event.StateFields(e.Payload()); s != stack.StateUnknown && s != stack.StateDead {
			b.open = append(b.open, pending{asker: -1, blocked: s == stack.StateBlocked || s == stack.StateDisk, exact: e.Payload()&event.StateExact != 0})
		}
	case event.Seen:
		b.ask()
	case event.Wait:
		if n := len(b.open) - 1; n >= 0 && b.open[n].blocked {
			w := b.replay.Waiting()
			b.open[n].idle = b.v.Idle(&w, b.replay.Stack())
		}
	case event.Holder:
		if n := len(b.open) - 1; n >= 0 {
			tid, by := event.HolderFields(e.Payload())
			b.open[n].sightings = append(b.open[n].sightings, Sighting{e.Time, tid, by})
		}
	}
}

// take receives the thread's intervals.
func (b *builder) take(x *view.Interval) {
	if len(b.open) == 0 {
		return
	}
	p := b.open[0]
	b.begin = x.Begin
	b.open = append(b.open[:0], b.open[1:]...)
	w := &x.Waiting
	d := b.v.Wait(w)
	if !p.blocked || w.Lock() == 0 && (d == nil || d.Lock == "") {
		return
	}
	if len(b.c.Waits) >= MaxWaits {
		b.c.Dropped++
		return
	}
	n := b.lock(w, d)
	l := &b.c.Locks[n]
	l.Waits = append(l.Waits, len(b.c.Waits))
	l.Sightings = append(l.Sightings, p.sightings...)
	ns := int64(x.End - x.Begin)
	l.Total += ns
	if !x.Fitted() {
		l.Longest = max(l.Longest, ns)
	}
	b.c.Waits = append(b.c.Waits, Wait{Thread: b.th.Index, Lock: n, Begin: x.Begin, End: x.End, Edge: x.Edge(), Waiting: *w, Asker: p.asker, Idle: p.idle, Fitted: x.Fitted(), woken: x.Woken})
}

func (b *builder) lock(w *diff.Waiting, d *trace.Wait) int {
	k := Key{Addr: w.Lock()}
	if k.Addr == 0 {
		k.File = d.LockName(0)
	}
	n, ok := b.byKey[k]
	if !ok {
		n = len(b.c.Locks)
		b.byKey[k] = n
		b.c.Locks = append(b.c.Locks, Lock{Key: k})
		b.best = append(b.best, nil)
	}
	if old := b.best[n]; d != nil && (old == nil || rank(d) > rank(old)) {
		b.best[n] = d
	}
	return n
}

// rank orders descriptions by how much they say about the lock.
func rank(d *trace.Wait) int {
	n := 0
	if d.Symbol != "" {
		n += 4
	}
	switch d.KnownBy {
	case "":
	case "likely":
		n++
	default:
		n += 2
	}
	return n
}

// names makes the names of locks unique.
func (b *builder) names() {
	taken := map[string]int{}
	for i := range b.c.Locks {
		l := &b.c.Locks[i]
		l.Excludes = b.best[i].Excludes()
		if d := b.best[i]; d != nil {
			x := *d
			l.Kind = x.Lock
			if x.Lock.Mode() {
				x.LockType = "" // the mode that was requested, not the lock's type
			}
			l.Name = x.LockName(l.Addr)
		} else {
			l.Name = (*trace.Wait)(nil).LockName(l.Addr)
		}
		l.Name = view.Text(l.Name, 512)
		taken[l.Name]++
	}
	for i := range b.c.Locks {
		if l := &b.c.Locks[i]; taken[l.Name] > 1 {
			l.Name += address(l.Addr)
		}
	}
}

func address(a uint64) string {
	if a == 0 {
		return " (another)"
	}
	return " at 0x" + strconv.FormatUint(a, 16)
}

// lastHolder finds the lock's last observed holder before the wait ended. Any of the
// lock's waiters may have observed it.
func (b *builder) lastHolder(w *Wait) {
	ss := b.c.Locks[w.Lock].Sightings
	tid := b.v.Threads[w.Thread].TID
	i, _ := slices.BinarySearchFunc(ss, w.End+1, func(s Sighting, t stack.Time) int { return cmp.Compare(s.At, t) })
	for i--; i >= 0 && ss[i].At >= w.Begin; i-- {
		if s := &ss[i]; s.TID != 0 && s.TID != tid {
			w.Holder, w.By, w.HeldAt = s.TID, s.By, s.At
			return
		}
	}
	if d := b.v.Wait(&w.Waiting); d != nil {
		w.Why = d.NoHolder
	}
}

// order sorts locks by total wait time, longest first.
func (b *builder) order() {
	c := b.c
	at := make([]int, len(c.Locks))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(x, y int) int { return cmp.Compare(c.Locks[y].Total, c.Locks[x].Total) })
	to := make([]int, len(at))
	sorted := make([]Lock, len(at))
	for i, n := range at {
		to[n], sorted[i] = i, c.Locks[n]
	}
	c.Locks = sorted
	for i := range c.Waits {
		c.Waits[i].Lock = to[c.Waits[i].Lock]
	}
}

// infer finds the releasing thread of locks whose memory does not name a holder.
func (b *builder) infer() {
	c := b.c
	var of []int // indexes of waits
	var ws []infer.Wait
	critical := map[int]bool{}
	ask := func(w *Wait) bool {
		return c.Locks[w.Lock].Kind.Inner() && !slices.ContainsFunc(c.Locks[w.Lock].Sightings, func(s Sighting) bool { return s.TID != 0 })
	}
	asked := make(map[int]bool, len(c.Locks))
	for i := range c.Waits {
		w := &c.Waits[i]
		yes, ok := asked[w.Lock]
		if !ok {
			yes = ask(w)
			asked[w.Lock] = yes
		}
		if !yes || w.Cut {
			continue
		}
		if tid, ok := b.v.Waker(w.woken); ok { // nothing need be inferred
			w.Holder, w.By, w.Why, w.HeldAt = tid, event.KnownByWaker, "", max(w.Begin, w.End-1)
			continue
		}
		of = append(of, i)
		x := infer.Wait{TID: stack.TID(w.Thread + 1), Lock: uint64(w.Lock + 1), Begin: w.Begin, End: w.End, Edge: w.Edge}
		if w.Asker >= 0 {
			x.Func = uint64(w.Asker + 1)
			critical[w.Asker] = true
		}
		ws = append(ws, x)
	}
	if len(ws) == 0 {
		return
	}
	var ss []infer.Slice
	for i := range b.v.Threads {
		s := &slicer{critical: critical, tid: stack.TID(i + 1), out: &ss}
		b.v.Slices(&b.v.Threads[i], s)
	}
	for i, k := range infer.Wakers(ws, ss) {
		w := &c.Waits[of[i]]
		if k.TID != 0 {
			w.Holder, w.By, w.Why = b.v.Threads[k.TID-1].TID, k.By, ""
			w.HeldAt = max(w.Begin, w.End-stack.Time(w.Edge)-1)
		} else if w.Why == "" {
			w.Why = k.Why
		}
	}
}

// slicer collects the calls of the selected functions.
type slicer struct {
	critical map[int]bool
	tid      stack.TID
	seen     stack.Time
	begun    []stack.Time // by depth
	out      *[]infer.Slice
}

// maxSlices limits how many calls are searched for wakers.
const maxSlices = 1 << 21

func (s *slicer) Begin(t stack.Time, depth int, _ *trace.Slice) {
	s.begun = append(s.begun[:min(depth, len(s.begun))], t)
}

func (s *slicer) End(t stack.Time, depth int, x *trace.Slice) {
	if !s.critical[x.Frame.Func] || depth >= len(s.begun) || len(*s.out) >= maxSlices {
		return
	}
	*s.out = append(*s.out, infer.Slice{TID: s.tid, Func: uint64(x.Frame.Func + 1), Begin: s.begun[depth], End: t,
		Edge: max(int64(t-max(s.seen, s.begun[depth])), 0)})
}

func (s *slicer) Other(e event.Event) {
	if e.Kind() == event.Seen {
		s.seen = e.Time
	}
}
