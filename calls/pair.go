package calls

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// MaxOpen bounds the open calls of one thread or task: recursion that goes deeper is counted in
// Dropped.
const MaxOpen = 1 << 16

// Pairer pairs hits into calls. An enter and an exit belong to the same call if they have the same
// frame. A hit proves that all calls whose frames are deeper on its stack have ended. This holds for
// recursion of any depth, and for calls that an exception, longjmp or a panic ends.
//
// Hits of one thread come in order; where several threads are under way, the order between them
// does not matter, except for tasks that change threads.
type Pairer struct {
	// Region returns a number for the stack of a thread that contains an address. Frames on different
	// stacks (signal stacks, coroutines) cannot be compared. See Regions. nil: one stack per thread.
	Region func(tid stack.TID, addr uint64) uint64
	// Loops reports whether a function jumps to its own entry: see Code.Loops. nil: none does.
	Loops func(fn int) bool
	// Inside reports whether a hit of Inside follows each call of a function. It decides whether a second hit of an
	// entry is a second call: a runtime that preempts a task at a breakpoint returns to it later, by an instruction
	// of its own, so that it is hit again. The task runs nothing of the function in between. So the hit is of the
	// same call if no Inside came since the first one. Without Inside, the hit is of another call if a register has
	// another value, since the runtime restores all; if none has, it counts as the same call, which is Unsure: the
	// first one may have ended by a panic. nil: it follows none.
	Inside func(fn int) bool
	// Began is when tracing began: for calls that had begun before.
	Began stack.Time
	// Yield takes calls as they end, not in the order of their begin.
	Yield func(Call)

	stacks map[key]*open
	lost   bool // hits, at any time
	// Odd counts hits that were dropped: a switch's jump through a table that looked like a tail
	// call, and an entry or exit that one call hit twice.
	Odd uint64
	// Dropped counts calls beyond MaxOpen.
	Dropped uint64
}

// key names a stack.
type key struct {
	tid    stack.TID // 0 where a task is known: it takes its stack along
	task   uint64
	region uint64
}

// open are the calls under way on one stack, outermost first, so with falling CFA.
type open struct {
	calls []Call
	last  Hit // that was on it last
	// at: the task is at the entry of the innermost call, and Inside follows when it goes on.
	at   bool
	said stack.Time // begin of the newest call that Fresh yielded
}

// Hit takes the next hit.
func (p *Pairer) Hit(h *Hit) {
	o := p.stack(h)
	switch {
	case h.Where == Inside:
		o.at = false
		return
	case p.again(o, h):
		p.Odd++
	case h.Where == Enter:
		p.enter(o, h)
	default:
		o.at = false
		p.exit(o, h)
	}
	o.last = *h
}

// again reports whether h is a second hit of a place by one call of a task, which was preempted there.
func (p *Pairer) again(o *open, h *Hit) bool {
	if !h.Moves {
		return false
	}
	same := o.last.Where == h.Where && o.last.Fn == h.Fn && o.last.CFA == h.CFA && o.last.Ret == h.Ret
	if h.Where != Enter {
		// An entry is between two returns with one frame. A runtime copies no stack of a task that it preempted, and
		// a copy is elsewhere: of two returns in a row, the outer call's has another frame.
		return same
	}
	if len(o.calls) == 0 {
		return false
	}
	c := &o.calls[len(o.calls)-1]
	if c.Fn != h.Fn || c.CFA != h.CFA || c.Ret != h.Ret {
		return false
	}
	if p.Inside != nil && p.Inside(h.Fn) {
		return o.at
	}
	if !same || o.last.Regs != h.Regs {
		return false
	}
	c.Unsure = true
	return h.Regs != 0
}

func (p *Pairer) stack(h *Hit) *open {
	k := key{tid: h.TID, task: h.Task}
	if h.Task != 0 {
		k.tid = 0
	} else if p.Region != nil {
		k.region = p.Region(h.TID, h.CFA)
	}
	o := p.stacks[k]
	if o == nil {
		if p.stacks == nil {
			p.stacks = map[key]*open{}
		}
		o = &open{}
		p.stacks[k] = o
	}
	return o
}

func (p *Pairer) enter(o *open, h *Hit) {
	for n := len(o.calls); n > 0; n = len(o.calls) {
		c := &o.calls[n-1]
		if c.CFA > h.CFA || h.Moves && c.CFA != h.CFA {
			break
		}
		if c.CFA == h.CFA && c.Fn == h.Fn && c.Ret == h.Ret && p.Loops != nil && p.Loops(h.Fn) {
			return // it goes round
		}
		p.end(o, h.Time, Left)
	}
	if len(o.calls) >= MaxOpen {
		p.Dropped++
		return
	}
	o.calls = append(o.calls, Call{Fn: h.Fn, TID: h.TID, Task: h.Task, Enter: h.Time, CFA: h.CFA, Ret: h.Ret})
	o.at = p.Inside != nil && p.Inside(h.Fn)
}

func (p *Pairer) exit(o *open, h *Hit) {
	how := Returned
	if h.Where == Jump {
		how = Jumped
	}
	at := p.find(o, h)
	if at < 0 {
		if h.Where == Jump {
			p.Odd++
			return
		}
		if !h.Moves { // deeper calls have ended
			for n := len(o.calls); n > 0 && o.calls[n-1].CFA <= h.CFA; n = len(o.calls) {
				p.end(o, h.Time, Left)
			}
		}
		p.Yield(Call{Fn: h.Fn, TID: h.TID, Task: h.Task, Enter: min(p.Began, h.Time), Exit: h.Time, CFA: h.CFA, How: how, Before: true, Unsure: p.lost})
		return
	}
	for len(o.calls) > at+1 {
		p.end(o, h.Time, Left)
	}
	p.end(o, h.Time, how)
}

// find is the open call that h leaves, -1 for none.
func (p *Pairer) find(o *open, h *Hit) int {
	if h.Moves {
		return moved(o, h)
	}
	for i := len(o.calls) - 1; i >= 0; i-- {
		c := &o.calls[i]
		switch {
		case c.Fn == h.Fn && c.CFA == h.CFA:
			return i
		case c.CFA > h.CFA:
			return -1
		}
	}
	return -1
}

// moved is find where stacks are copied: the innermost call with the frame of h, else with its return address, since
// a copy changes the frame alone. A call that a panic ended inside of an outer one of the function has neither.
func moved(o *open, h *Hit) int {
	at, known := -1, false
	for i := len(o.calls) - 1; i >= 0; i-- {
		c := &o.calls[i]
		if c.Fn != h.Fn {
			continue
		}
		ret := c.Ret == h.Ret || h.Ret == 0
		if ret && c.CFA == h.CFA {
			return i
		}
		if at < 0 || ret && !known {
			at, known = i, ret
		}
	}
	return at
}

// end closes the innermost call.
func (p *Pairer) end(o *open, t stack.Time, how How) {
	n := len(o.calls) - 1
	c := o.calls[n]
	o.calls = o.calls[:n]
	c.Exit, c.How = max(t, c.Enter), how
	p.Yield(c)
}

// Lost says that hits of any thread are missing before the next one.
func (p *Pairer) Lost() {
	p.lost = true
	for _, o := range p.stacks {
		o.at, o.last = false, Hit{} // what came since is not known
		for i := range o.calls {
			o.calls[i].Unsure = true
		}
	}
}

// Gone says that a thread ended at t: its calls are over. Those of tasks go on elsewhere.
func (p *Pairer) Gone(tid stack.TID, t stack.Time) {
	for k, o := range p.stacks {
		if k.tid == tid {
			p.close(o, t)
			delete(p.stacks, k)
		}
	}
}

// Detach says that no more hits of a function come after t.
func (p *Pairer) Detach(fn int, t stack.Time) {
	for _, o := range p.stacks {
		kept := o.calls[:0]
		for _, c := range o.calls {
			if c.Fn != fn {
				kept = append(kept, c)
				continue
			}
			c.Exit, c.How = max(t, c.Enter), Open
			p.Yield(c)
		}
		o.calls = kept
	}
}

// Close says that tracing ended at t.
func (p *Pairer) Close(t stack.Time) {
	keys := make([]key, 0, len(p.stacks))
	for k := range p.stacks {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { // for the same order each time
		return cmp.Or(cmp.Compare(a.tid, b.tid), cmp.Compare(a.task, b.task), cmp.Compare(a.region, b.region))
	})
	for _, k := range keys {
		p.close(p.stacks[k], t)
	}
	clear(p.stacks)
}

func (p *Pairer) close(o *open, t stack.Time) {
	for len(o.calls) > 0 {
		p.end(o, t, Open)
	}
}

// Fresh yields the calls that are open and that it did not yield before, per stack outermost first.
func (p *Pairer) Fresh(yield func(Call)) {
	for _, o := range p.stacks {
		i := len(o.calls)
		for i > 0 && o.calls[i-1].Enter > o.said {
			i--
		}
		for _, c := range o.calls[i:] {
			o.said = c.Enter
			yield(c)
		}
	}
}

// Under yields the calls that are open, per stack outermost first.
func (p *Pairer) Under(yield func(Call)) {
	for _, o := range p.stacks {
		for _, c := range o.calls {
			yield(c)
		}
	}
}
