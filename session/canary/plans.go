package canary

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/session/oneshot"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// walk resolves the stack of a record.
func (c *Canary) walk(r *kernel.IORecord) {
	k := oneshot.Copy{Stack: unwind.Block{Addr: r.Base, Data: r.Memory}}
	if !target.BlockRegs(r.Regs, r.TLS, &k.Regs) {
		return
	}
	for _, p := range r.Extras {
		k.Pages = append(k.Pages, unwind.Block{Addr: p.Addr, Data: p.Data})
	}
	for _, p := range slices.Concat(r.Links, r.Rest) {
		k.Beside = append(k.Beside, unwind.Block{Addr: p.Addr, Data: p.Data})
	}
	c.Thread(r.TID) // while it lives: a finding may come after its end
	r.Event.Stack = iowatch.StackID(c.Stacks.Walk(r.TID, r.End, &k))
	c.locate(r)
	x, planned := c.plans[r.TID]
	if len(r.Extras) > 0 && !planned && c.Stacks.Complete(uint32(r.Event.Stack)) {
		c.guessedWell()
	}
	want := c.Stacks.Pages(r.TID, kernel.Extras)
	whole := !c.young || c.Stacks.Complete(uint32(r.Event.Stack))
	if planned && len(r.Links) > 0 {
		c.plans[r.TID] = x.next(whole)
	}
	if len(want) > 0 || len(r.Memory) > kernel.StackPages*4096 {
		c.plan(r.TID, want, whole)
	}
	if int(r.TID) != c.proc.PID() {
		c.needed(want)
	}
}

// needed notes pages that the stack of a thread needed. A list that is full has code instead of the thread's state.
func (c *Canary) needed(pages []uint64) {
	if len(pages) == kernel.Extras {
		return
	}
	changed := false
	for _, p := range pages {
		if !slices.Contains(c.guess, p) {
			c.guess = append(c.guess, p)
			changed = true
		}
	}
	if changed {
		c.guess = slices.Delete(c.guess, 0, max(len(c.guess)-kernel.Extras, 0))
		c.guessed()
	}
}

// guessed lets threads that are not known yet have the memory copied that others needed: a thread for
// each request often has its runtime's state where the thread before had it. A wrong guess costs a copy, so
// their number is bounded.
func (c *Canary) guessed() {
	list, room := c.located.list, c.room
	if c.expected != nil {
		list, room = c.expected, maxGuesses
	}
	if len(c.guess) > 0 || list != nil {
		c.good = 0
		c.io.Guess(c.guess, list, uint64(room))
	}
}

// expect lets the kernel follow the list of frames of a runtime that has not begun, so that the first stacks with its
// frames have them.
func (c *Canary) expect() {
	c.expected = nil
	if l, ok := c.Stacks.Expected(); ok && time.Since(c.began) < settles {
		c.expected = &kernel.List{Links: l}
		c.guessed()
	}
}

// begun looks whether the runtime that is expected has begun. Stacks that are read after that have its frames.
func (c *Canary) begun() {
	if c.expected != nil && (c.Stacks.Managed() || c.Stacks.Begun() || time.Since(c.began) >= settles) {
		c.expected = nil
		_ = c.share() // the next round tries again
		c.learn()
	}
}

// guessedWell notes that a guess made a stack complete. As long as most do, more are made.
func (c *Canary) guessedWell() {
	if c.good++; c.good >= c.room/2 && c.room < maxGuesses {
		c.room = min(2*c.room, maxGuesses)
		c.guessed()
	}
}

// plan sets which pages are copied with the stacks of a thread. After a stack that was not whole, the next ones are
// read at once: they may need other pages.
func (c *Canary) plan(tid stack.TID, pages []uint64, whole bool) {
	wakes := uint64(0)
	if !whole && c.woken < maxWoken {
		c.woken++
		wakes = wakesAfter
	}
	if len(c.plans) >= maxNames {
		clear(c.plans)
	}
	x, list := c.plans[tid], c.links(tid)
	c.plans[tid] = x
	switch {
	case list == nil:
		list = c.expected // its frames may begin before the next reading
	case list.Object != 0 && !x.pages():
		pages = nil // the list has all that its frames need, and without pages the copy is shorter
	}
	c.io.Plan(tid, pages, list, wakes)
}

// planned describes a thread with a plan.
type planned struct{ lacking int } // grows with each stack that lacks frames although its list was copied, and falls with others

// Stacks that lack frames weigh more: three of eight are too many. One may be between two frames.
const (
	lackingStep = 4
	lackingMost = 4 * lackingStep
	needsPages  = 2 * lackingStep
)

// next returns the state after a stack with its list.
func (x planned) next(whole bool) planned {
	if whole {
		return planned{max(x.lacking-1, 0)}
	}
	return planned{min(x.lacking+lackingStep, lackingMost)}
}

// pages reports whether the thread's frames need pages beside the list: there are more than it has room for, or other lists.
func (x planned) pages() bool { return x.lacking > needsPages }

// links returns the list of a thread's frames; nil: there is none.
func (c *Canary) links(tid stack.TID) *kernel.List {
	l, ok := c.Stacks.Links(tid)
	if !ok {
		return nil
	}
	return &kernel.List{Links: l}
}

// located is the list of frames of threads that are not known yet.
type located struct {
	list  *kernel.List // Head is 0
	tid   stack.TID    // the last thread that was looked at
	tries int
}

const (
	// nearTLS bounds how far from a thread's TLS base the pointer to its runtime's state is searched, in bytes each way.
	nearTLS    = 4096
	maxLocates = 16 // threads that are looked at
)

// locate looks for the pointer to the state that a runtime has for a thread near the thread's TLS base, such as in the
// C library's array of thread-specific data. All threads have it at the same offset, also those that are not known yet. A
// wrong offset only makes the copy useless: walks look for frames at the addresses that the runtime's own lists have.
func (c *Canary) locate(r *kernel.IORecord) {
	x := &c.located
	if x.tries >= maxLocates || x.tid == r.TID || r.TLS < nearTLS {
		return
	}
	l := c.links(r.TID)
	if l == nil {
		return
	}
	x.tid = r.TID
	x.tries++
	var b [nearTLS]byte
	if x.list != nil { // a second thread confirms it
		if n, _ := c.proc.ReadAt(b[:8], r.TLS+uint64(x.list.TLS)); n == 8 && binary.NativeEndian.Uint64(b[:]) == l.Head.Addr {
			x.tries = maxLocates
			return
		}
	}
	// A thread-local variable below the base is 0 while the thread is in a call. It comes second.
	for _, from := range [2]uint64{r.TLS, r.TLS - nearTLS} {
		n, _ := c.proc.ReadAt(b[:], from) // a part that cannot be read is not searched
		for off := 0; off+8 <= n; off += 8 {
			if binary.NativeEndian.Uint64(b[off:]) == l.Head.Addr {
				l.Head.Addr, l.TLS = 0, int64(from+uint64(off)-r.TLS)
				x.list = l
				c.guessed()
				return
			}
		}
	}
}
