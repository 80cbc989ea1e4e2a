package hotspot

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/stack"
)

// Most activations of all stacks, and most virtual threads whose stacks are read.
const (
	maxCalls   = 1 << 23
	maxVirtual = 1 << 20
)

// trace is what a Java thread has called.
type trace struct {
	object uint64   // java.lang.Thread
	calls  []uint32 // indexes of traces.calls, innermost first
}

// owned are words of a stack, or of a parked virtual thread in the heap, that an activation uses.
type owned struct {
	low, end uint64
	thread   uint32 // number of its trace
	frame    int32
}

// traces are the stacks of all Java threads.
type traces struct {
	list  []trace // by number minus 1: first of the threads of Heap.threads, then of virtual threads
	calls []jvm.Activation
	words []owned
	slots []owned       // those of which compiled code says whose they are: low is their address
	top   map[int]owned // thread that runs Java by its index: the activation that has its registers

	cut   uint64 // threads whose stacks are not complete
	why   stack.Reason
	none  error // why no stack was read
	index map[uint64]uint32
	count int
}

// noFrame says that a root belongs to no activation.
const noFrame = -1

// trace reads the stacks of all Java threads. It is called after Scan and Live.
func (h *Heap) trace(ctx context.Context, stacks []Stack) error {
	t := &traces{list: make([]trace, len(h.threads)), top: map[int]owned{}, index: map[uint64]uint32{}}
	h.traces = t
	for i := range h.threads {
		t.list[i].object = h.threads[i].object
	}
	v := h.VM
	c, err := jvm.OnCopy(v.image, v.imageBias, v.mem)
	if err != nil {
		t.none, t.cut = err, uint64(len(h.threads))
		return nil
	}
	carried := map[uint64]bool{}
	for i := range h.threads {
		if err := ctx.Err(); err != nil {
			return err
		}
		carried[h.traceThread(c, i, stacks)] = true
	}
	if err := h.traceParked(ctx, c, carried); err != nil {
		return err
	}
	t.index = nil
	slices.SortFunc(t.slots, func(a, b owned) int { return cmp.Compare(a.low, b.low) })
	slices.SortFunc(t.words, func(a, b owned) int { return cmp.Compare(a.low, b.low) })
	return nil
}

// traceThread reads the stack of a thread, and returns the virtual thread that it carries.
func (h *Heap) traceThread(c *jvm.Copy, i int, stacks []Stack) (virtual uint64) {
	t, th := h.traces, &h.threads[i]
	var regs *stack.Regs
	for k := range stacks {
		if s := &stacks[k]; s.SP >= th.low && s.SP < th.high {
			regs = &s.Regs
		}
	}
	all, why := c.Stack(th.addr, regs, th.high)
	t.lost(why)
	number, inner := uint32(i+1), all[:0]
	if virtual = c.Mounted(th.addr); virtual != 0 {
		if k := slices.IndexFunc(all, func(a jvm.Activation) bool { return a.Enters }); k >= 0 {
			inner, all = all[:k], all[k+1:] // as HotSpot 25 has them
		}
	}
	first := number
	if len(inner) > 0 {
		t.list = append(t.list, trace{object: virtual})
		first = uint32(len(t.list))
		t.add(first, inner)
	}
	t.add(number, all)
	if len(inner)+len(all) > 0 && regs != nil && c.Covers(regs.PC) {
		t.top[i] = owned{thread: first}
	}
	return virtual
}

// traceParked reads the stacks of the virtual threads that no thread carries.
func (h *Heap) traceParked(ctx context.Context, c *jvm.Copy, carried map[uint64]bool) error {
	t := h.traces
	for n, at := range h.virtual {
		if n&0xff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if carried[at] || !h.Begins(at) {
			continue
		}
		if len(t.list)-len(h.threads) >= maxVirtual {
			t.lost(stack.ReasonBound)
			continue
		}
		all, why := c.Parked(at)
		t.lost(why)
		if len(all) > 0 {
			t.list = append(t.list, trace{object: at})
			t.add(uint32(len(t.list)), all)
		}
	}
	return nil
}

// lost counts a stack that is not complete.
func (t *traces) lost(why stack.Reason) {
	if why != stack.ReasonNone {
		if t.cut == 0 {
			t.why = why
		}
		t.cut++
	}
}

// add adds activations to the trace of a number.
func (t *traces) add(number uint32, all []jvm.Activation) {
	tr := &t.list[number-1]
	for k := range all {
		a := &all[k]
		if t.count >= maxCalls {
			t.lost(stack.ReasonBound)
			return
		}
		t.count += 1 + len(a.Slots)
		i, ok := t.index[a.Place]
		if !ok {
			i = uint32(len(t.calls))
			t.index[a.Place] = i
			t.calls = append(t.calls, *a)
			t.calls[i].Slots = nil
		}
		if a.End > a.Low {
			t.words = append(t.words, owned{a.Low, a.End, number, int32(len(tr.calls))})
		}
		for _, at := range a.Slots {
			t.slots = append(t.slots, owned{low: at, thread: number, frame: int32(len(tr.calls))})
		}
		tr.calls = append(tr.calls, i)
	}
}

// owners calls yield for the activations that use the word, or half of one, at addr, or with noFrame and
// thread 0 if none is known.
func (t *traces) owners(addr uint64, yield func(thread uint32, frame int32)) {
	if t == nil {
		yield(0, noFrame)
		return
	}
	i, ok := slices.BinarySearchFunc(t.slots, addr, func(w owned, a uint64) int { return cmp.Compare(w.low, a) })
	for ; i < len(t.slots) && t.slots[i].low == addr; i++ {
		yield(t.slots[i].thread, t.slots[i].frame)
	}
	if ok {
		return
	}
	i, _ = slices.BinarySearchFunc(t.words, addr, func(w owned, a uint64) int {
		if w.end <= a {
			return -1
		}
		return 1
	})
	if i < len(t.words) && t.words[i].low <= addr {
		yield(t.words[i].thread, t.words[i].frame)
		return
	}
	yield(0, noFrame)
}

// Untraced returns how many stacks of threads the dump lacks in part, and why.
func (d *Dump) Untraced() (n uint64, why string) {
	switch t := d.h.traces; {
	case t.none != nil:
		return t.cut, t.none.Error()
	case t.cut > 0:
		return t.cut, t.why.String()
	}
	return 0, ""
}

// ReadAt implements io.ReaderAt.
func (m *memory) ReadAt(b []byte, off int64) (n int, err error) {
	for n < len(b) {
		addr := uint64(off) + uint64(n)
		p := m.page(addr / pageBytes)
		at := addr % pageBytes
		if at >= uint64(len(p)) { // behind a hole in the page
			k, err := m.src.ReadAt(b[n:min(len(b), n+int(pageBytes-at))], int64(addr))
			if n += max(k, 0); err != nil {
				return n, err
			}
			if k <= 0 {
				return n, io.ErrUnexpectedEOF
			}
			continue
		}
		n += copy(b[n:], p[at:])
	}
	return n, nil
}
