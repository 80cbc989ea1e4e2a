package canary

import (
	"slices"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// walk resolves the stack of a record.
func (c *Canary) walk(r *kernel.IORecord) {
	var regs stack.Regs
	if !registers(r.Regs, r.TLS, &regs) {
		return
	}
	var pages []unwind.Block
	for _, p := range r.Extras {
		pages = append(pages, unwind.Block{Addr: p.Addr, Data: p.Data})
	}
	c.Thread(r.TID) // while it lives: a finding may come after its end
	r.Event.Stack = iowatch.StackID(c.Stacks.Walk(r.TID, r.End, &regs, pages, unwind.Block{Addr: r.Base, Data: r.Memory}))
	if len(r.Extras) > 0 && !c.plans[r.TID] && c.Stacks.Complete(uint32(r.Event.Stack)) {
		c.guessedWell()
	}
	want := c.Stacks.Pages(r.TID, kernel.Extras)
	whole := !c.young || c.Stacks.Complete(uint32(r.Event.Stack))
	if len(want) > 0 || len(r.Memory) >= kernel.StackPages*4096 {
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
	if len(c.guess) > 0 {
		c.good = 0
		c.io.Guess(c.guess, uint64(c.room))
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
	c.plans[tid] = true
	c.io.Plan(tid, pages, wakes)
}
