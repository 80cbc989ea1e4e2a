package between

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
)

// Step is a part of the critical path: a time in which the end of the first process depended on another one.
type Step struct {
	Process    int
	Begin, End stack.Time
	// Waiter is the process that waited for it, -1 for the last step. How says how that is known: a word of By,
	// ByLives or ByStart.
	Waiter int
	How    string
}

// Words of Step.How beyond those of By.
const (
	ByLives = "lives"   // the waiter is its parent, was not seen to do anything else, and went on after its end
	ByStart = "started" // it started the waiter
)

// Limits of the path.
const (
	MaxSteps = 1 << 12
	maxHops  = 1 << 18
	maxLegs  = 1 << 20 // intervals of all threads on the path
)

// Path returns the critical path from from to to: what the end of the first process depended on, by time. It goes back
// from the end. If the thread that it follows was woken by another one, it follows that one from the time at which it did
// so; before the beginning of a process, it follows the one that started it. Where a process has no samples, or its
// wait could not be resolved, the ends of its children count. Further steps than MaxSteps, the earliest, are
// only counted. sums has the time of each process on the path, those of all steps.
func (b *Between) Path(from, to stack.Time) (steps []Step, more int, sums map[int]stack.Time) {
	p := &pather{b: b, tracks: map[[2]int]*track{}, begun: map[int]bool{}, ended: map[int]bool{}, kids: map[int]int{}, sums: map[int]stack.Time{}}
	if len(b.Processes) == 0 {
		return nil, 0, p.sums
	}
	at := cursor{process: 0, thread: -1, t: to, waiter: -1}
	for hops := 0; hops < maxHops && at.process >= 0 && at.t > from; hops++ {
		next := p.before(&at)
		next.t = min(next.t, at.t)
		p.add(&at, max(next.t, from))
		at = next
	}
	slices.Reverse(p.steps)
	return p.steps, p.more, p.sums
}

// cursor is a place on the path: before t, the path is in this thread.
type cursor struct {
	process, thread int // thread is an index in the Threads of its view; -1: the main one
	t               stack.Time
	waiter          int
	how             string
	take            func() // marks what led here as followed
}

// pather walks a path. Times never increase, so data after the present time is passed once.
type pather struct {
	b      *Between
	tracks map[[2]int]*track // by view and thread
	legs   int               // of all tracks
	begun  map[int]bool      // processes before whose beginning the path went
	ended  map[int]bool      // processes whose end the path followed
	kids   map[int]int       // by process: how many of b.ending may be before the present time
	makes  map[string][]int  // by name of the parent: children that ended, by Gone
	steps  []Step            // latest first
	more   int
	sums   map[int]stack.Time
}

// track is what a thread was seen to do.
type track struct {
	legs []leg // by time
	left int   // how many of them may be before the present time
}

// leg is an interval of a thread. Without a waker it is -1.
type leg struct {
	begin, seen, end stack.Time
	delay            stack.Time // for which it waited for a CPU
	waits            bool
	waker, thread    int
	at               stack.Time
	how              string
}

// add adds the time from begin to the cursor's.
func (p *pather) add(c *cursor, begin stack.Time) {
	if begin >= c.t {
		return
	}
	p.sums[c.process] += c.t - begin
	if n := len(p.steps) - 1; n >= 0 && p.steps[n].Process == c.process && p.steps[n].Begin == c.t {
		p.steps[n].Begin = begin
		return
	}
	if len(p.steps) >= MaxSteps {
		p.more++
		return
	}
	p.steps = append(p.steps, Step{c.process, begin, c.t, c.waiter, c.how})
}

// before returns where the path was before it came to c.
func (p *pather) before(c *cursor) cursor {
	best := p.start(c)
	if w, ok := p.wait(c); ok && w.t > best.t {
		best = w
	}
	if k, ok := p.kid(c); ok && k.t > best.t {
		best = k
	}
	if best.take != nil {
		best.take()
	}
	return best
}

// start is where the thread began: in the main thread of its process, or in the process that made it.
func (p *pather) start(c *cursor) cursor {
	b, x := p.b, &p.b.Processes[c.process]
	if x.View >= 0 && c.thread >= 0 && c.thread != mainOf(b.views[x.View]) {
		return cursor{process: c.process, thread: -1, t: max(b.views[x.View].Threads[c.thread].Since, x.Born), waiter: c.waiter, how: c.how}
	}
	out := cursor{process: -1, thread: -1, t: x.Born, waiter: c.process, how: ByStart}
	if x.Parent != 0 && x.Parent != x.PID && !p.begun[c.process] {
		out.process = b.find(x.Parent, x.Born)
		out.take = func() { p.begun[c.process] = true }
	}
	return out
}

// wait is the last wait of the thread that ended before the cursor.
func (p *pather) wait(c *cursor) (out cursor, ok bool) {
	tr := p.track(c)
	if tr == nil {
		return out, false
	}
	for ; tr.left > 0; tr.left-- {
		l := &tr.legs[tr.left-1]
		if l.begin >= c.t || l.waker < 0 || l.at > c.t && l.seen >= c.t { // it was not woken by then
			continue
		}
		t := max(min(l.at, c.t), l.begin)
		if gone := p.b.Processes[l.waker].Gone; gone > 0 {
			t = min(t, gone) // the end of a child may be before the wait for it was seen to begin
		}
		return cursor{process: l.waker, thread: l.thread, t: t, waiter: c.process, how: l.how, take: func() {
			tr.left--
			p.ended[l.waker] = p.ended[l.waker] || l.how == ByEnd.String() || l.how == ByEndOnly.String()
		}}, true
	}
	return out, false
}

// kid is the last child that ended before the cursor, if the process may have waited for it.
func (p *pather) kid(c *cursor) (out cursor, ok bool) {
	b, x := p.b, &p.b.Processes[c.process]
	if x.View >= 0 && c.thread >= 0 && c.thread != mainOf(b.views[x.View]) {
		return out, false
	}
	all := b.ending[c.process]
	n, ok := p.kids[c.process]
	if !ok {
		n = len(all)
	}
	for ; n > 0; n-- {
		k := &b.Processes[all[n-1]]
		if k.Gone > c.t+b.edge(k) || k.Born >= k.Gone || k.Born >= c.t || p.ended[all[n-1]] || p.busy(c, k) {
			continue
		}
		break
	}
	p.kids[c.process] = n
	if n == 0 {
		return out, false
	}
	i := all[n-1]
	return cursor{process: i, thread: -1, t: min(b.Processes[i].Gone, c.t), waiter: c.process, how: ByLives, take: func() { p.ended[i] = true }}, true
}

// busy reports whether the thread was seen to do something else when a child ended: it ran before and after that, or
// waited on.
func (p *pather) busy(c *cursor, kid *Process) bool {
	tr := p.track(c)
	if tr == nil {
		return false
	}
	n, found := slices.BinarySearchFunc(tr.legs, kid.Gone, func(l leg, t stack.Time) int { return cmp.Compare(l.begin, t) })
	if !found {
		n--
	}
	if n < 0 {
		return false
	}
	l := &tr.legs[n]
	if l.waits { // one that was woken is seen to wait until it gets a CPU
		woken := l.delay
		if n+1 < len(tr.legs) {
			woken += tr.legs[n+1].delay
		}
		return l.seen-woken > kid.Gone+late+p.b.edge(kid)
	}
	return l.seen >= kid.Gone && kid.Gone-kid.Born > p.b.slack // a shorter wait may have had no sample
}

// track returns what the thread of a cursor was seen to do; nil: it has no samples.
func (p *pather) track(c *cursor) *track {
	n := p.b.Processes[c.process].View
	if n < 0 {
		return nil
	}
	v, thread := p.b.views[n], c.thread
	if thread < 0 {
		thread = mainOf(v)
	}
	if thread < 0 {
		return nil
	}
	key := [2]int{n, thread}
	if p.tracks[key] == nil {
		tr := &track{}
		in := &view.Intervals{Yield: func(x *view.Interval) {
			if p.legs < maxLegs {
				p.legs++
				tr.legs = append(tr.legs, p.leg(n, thread, x))
			}
		}}
		in.Close(v.Slices(&v.Threads[thread], others{in}))
		tr.left = len(tr.legs)
		p.tracks[key] = tr
	}
	return p.tracks[key]
}

// leg describes an interval, and what ended it.
func (p *pather) leg(n, thread int, x *view.Interval) leg {
	l := leg{begin: x.Begin, seen: x.Seen, end: x.End, delay: stack.Time(x.Delay), waits: x.Waits(), waker: -1, thread: -1, at: x.End}
	if !l.waits {
		return l
	}
	v, own := p.b.views[n], p.b.own[n]
	w := p.b.At(n, thread, x.Begin)
	if w != nil && w.Waker >= 0 {
		l.waker, l.thread, l.at, l.how = w.Waker, w.WakerThread, w.At, w.By.String()
		return l
	}
	if k, soft := v.WakerOf(x.Woken); k != nil && !soft && k.PID == v.Rec.Process.PID {
		if th, ok := v.ByTID(k.TID); ok && th.Index != thread {
			l.waker, l.thread, l.how = own, th.Index, ByKernel.String()
		}
		return l
	}
	if tid, _ := x.Waiting.Holder(); tid != 0 {
		if th, ok := v.ByTID(tid); ok && th.Index != thread {
			l.waker, l.thread, l.how = own, th.Index, ByHolder.String()
		}
		return l
	}
	if d := v.Wait(&x.Waiting); d != nil && w == nil && (signalled(d.Kind) && d.Kind != kind.WaitSignal) {
		p.slot(&l, own)
	}
	return l
}

// slot resolves a wait of make for a slot of the job server that it shares with other makes: one of their jobs
// ended. A job of its own that did is found by lives.
func (p *pather) slot(l *leg, own int) {
	b := p.b
	if p.makes == nil {
		p.makes = map[string][]int{}
		for parent, kids := range b.ending {
			name := b.Processes[parent].Name
			p.makes[name] = append(p.makes[name], kids...)
		}
		for _, all := range p.makes {
			slices.SortStableFunc(all, func(x, y int) int { return cmp.Compare(b.Processes[x].Gone, b.Processes[y].Gone) })
		}
	}
	all := p.makes[b.Processes[own].Name]
	from, _ := slices.BinarySearchFunc(all, l.seen-late, func(i int, t stack.Time) int { return cmp.Compare(b.Processes[i].Gone, t) })
	found := -1
	for _, i := range all[from:] {
		k := &b.Processes[i]
		if k.Gone > l.end {
			break
		}
		if !k.Exact || i == own || b.find(k.Parent, k.Born) == own || found >= 0 {
			return
		}
		found = i
	}
	if found >= 0 {
		l.waker, l.thread, l.at, l.how = found, -1, b.Processes[found].Gone, ByEndOnly.String()
	}
}
