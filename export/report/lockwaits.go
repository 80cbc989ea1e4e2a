package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
)

// LockWait is the part of a wait for a lock in which one thread held it, or the whole of a wait without a known holder.
type LockWait struct {
	Thread     int // index in View.Threads
	Begin, End stack.Time
	Idle       bool // the table of locks has it only with idle waits
	Fitted     bool // the wait cannot be the longest: see view.Interval
	GoesOn     bool // it is of the same wait as the part before it
	Words      LockWords
}

// LockWords are what the table of locks says about a part of a wait. A name is "" if it is unknown.
type LockWords struct {
	Lock     string    `json:"lock"`
	Kind     kind.Lock `json:"kind"`
	Addr     string    `json:"addr,omitempty"` // hex
	Excludes bool      `json:"exclusive,omitempty"`
	Holder   string    `json:"holder,omitempty"` // the thread, with how that is known
	HolderIn string    `json:"holder_in,omitempty"`
	WaiterIn string    `json:"waiter_in,omitempty"`
	Unknown  string    `json:"no_holder,omitempty"` // reason why no holder is named
}

// LockWaits returns the waits behind the table of locks, by thread and then by begin.
func LockWaits(v *view.View) (out []LockWait) {
	c := contend.Of(v)
	p := partsOf(v, c)
	for i := range c.Waits {
		out = append(out, p.parts(i)...)
	}
	slices.SortStableFunc(out, func(a, b LockWait) int { return cmp.Or(cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.Begin, b.Begin)) })
	return out
}

// waitParts are the waits of a Contention, divided by the holders of their locks.
type waitParts struct {
	v     *view.View
	c     *contend.Contention
	locks []LockWords // of each lock: what they are for all of its waits
	holds []contend.Hold
	in    []string // the function of each of holds, see holders
	of    []int    // for each wait, the first of holds that is of it or of a later one
}

func partsOf(v *view.View, c *contend.Contention) *waitParts {
	p := &waitParts{v: v, c: c, holds: c.Holds(v), of: make([]int, len(c.Waits)+1)}
	p.in = holders(v, c, p.holds)
	for i := range c.Locks {
		l := &c.Locks[i]
		w := LockWords{Lock: l.Name, Kind: l.Kind, Excludes: l.Excludes}
		if l.Addr != 0 {
			w.Addr = fmt.Sprintf("%#x", l.Addr)
		}
		p.locks = append(p.locks, w)
	}
	for i, k := 0, 0; i < len(p.of); i++ {
		for k < len(p.holds) && p.holds[k].Wait < i {
			k++
		}
		p.of[i] = k
	}
	return p
}

// parts returns the parts of wait i, one at least.
func (p *waitParts) parts(i int) (out []LockWait) {
	w := &p.c.Waits[i]
	whole := LockWait{Thread: w.Thread, Begin: w.Begin, End: w.End, Idle: w.Idle, Fitted: w.Fitted, Words: p.locks[w.Lock]}
	if w.Asker >= 0 {
		whole.Words.WaiterIn = p.v.FuncName(w.Asker)
	}
	for k := p.of[i]; k < p.of[i+1]; k++ {
		h, x := &p.holds[k], whole
		x.Begin, x.End, x.GoesOn = h.Begin, h.End, len(out) > 0
		x.Words.Holder, x.Words.HolderIn = p.v.ThreadName(h.TID)+" ("+h.By.String()+")", p.in[k]
		out = append(out, x)
	}
	if len(out) > 0 {
		return out
	}
	if w.Holder == 0 && w.Why != "" {
		whole.Words.Unknown = view.Text(w.Why, 512)
	}
	return []LockWait{whole}
}
