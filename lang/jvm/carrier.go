package jvm

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// MaxVirtualThreads bounds the virtual threads with an ID. Those found after that are not reported.
const MaxVirtualThreads = 200_000

// carrier holds what walks learned about a thread that carries virtual threads.
type carrier struct {
	at    Carrier
	is    bool
	asked int  // failed lookups
	done  bool // no more lookups are needed

	last uint64 // reference to the virtual thread of the last successful walk
	id   uint64 // its number
	age  uint32 // the heap's age at that walk
	aged bool
}

// maxTaskID is the largest possible number of a task.
const maxTaskID = 1<<44 - 1

// maxCarrierTries bounds the lookups of whether a thread carries virtual threads.
const maxCarrierTries = 16

// spans appends the thread's memory to copy.
func (c *carrier) spans(rt *Runtime, thread uint64, out []rule.Span) []rule.Span {
	if !c.done {
		at, is, err := rt.Carrier(thread)
		c.asked++
		c.at, c.is, c.done = at, is, err == nil || c.asked == maxCarrierTries
	}
	if c.is {
		out = append(out, rule.Span{Addr: c.at.Own, Len: 8}, rule.Span{Addr: c.at.Mounted, Len: 8})
		if off, sought := rt.NumberAt(); c.at.Near != 0 {
			if c.at.ID = 0; off != 0 {
				c.at.ID = c.at.Near + off
			} else if sought {
				out = append(out, rule.Span{Addr: c.at.Near, Len: NumberSpan})
			}
		}
		if c.at.ID != 0 {
			out = append(out, rule.Span{Addr: c.at.ID, Len: 8})
		}
	}
	return out
}

// tasks returns all Java virtual threads that walks found so far, by ID, which is Java's number.
func (h *hotspot) tasks() []lang.Task {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]lang.Task, 0, len(h.virtual))
	for id, name := range h.virtual {
		out = append(out, lang.Task{ID: id, Name: name})
	}
	slices.SortFunc(out, func(a, b lang.Task) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Settle records which virtual thread th carried when it was copied.
func (h *hotspot) Settle(w *unwind.Walker, th *unwind.Thread) {
	j := javaThreads.Of(th)
	c := &j.carrier
	if j.of != h || !c.is {
		return
	}
	th.SetTask(stack.Task{}, false)
	own, ok1 := w.Word(c.at.Own)
	mounted, ok2 := w.Word(c.at.Mounted)
	if !ok1 || !ok2 {
		return
	}
	if own == mounted {
		th.SetTask(stack.Task{}, true)
		return
	}
	age, aged := h.rt.Age()
	pinned := aged && c.aged && age == c.age
	c.age, c.aged = age, aged
	if !pinned || mounted != c.last {
		id, name, err := h.walk(w).rt.Virtual(c.at, own, mounted, pinned)
		if err == nil && h.meet(id, name) {
			c.last, c.id = mounted, id
			h.learnNumber(w, c)
		} else if c.last, c.id = 0, c.copiedID(w); c.id == 0 {
			return
		}
	}
	now := stack.Task{}
	if c.id != 0 {
		now = stack.Task{ID: c.id, State: stack.TaskRunning}
	}
	th.SetTask(now, true)
}

// learnNumber helps to find where virtual threads keep their numbers outside of the heap. It
// records the words seen there while c ran a virtual thread with a known number.
func (h *hotspot) learnNumber(w *unwind.Walker, c *carrier) {
	numbers := &h.walk(w).numbers
	at, words := c.at.Near, numbers[:]
	if at == 0 {
		return
	}
	if c.at.ID != 0 {
		at, words = c.at.ID, numbers[:1]
	}
	for i := range words {
		v, ok := w.Copied().Word(at + uint64(8*i)) // from the copy
		if !ok {
			return
		}
		words[i] = v
	}
	h.rt.Number(words, c.id)
}

// copiedID returns the number of the virtual thread from the copy, or 0 if it was not copied.
func (c *carrier) copiedID(w *unwind.Walker) (id uint64) {
	if c.at.ID != 0 {
		id, _ = w.Word(c.at.ID)
	}
	if id > maxTaskID {
		return 0
	}
	return id
}

// meet records a virtual thread and reports whether there was room for it. If a collector has
// already cleared the name's old place, the name reads as empty; the first name that a later read
// finds replaces it.
func (h *hotspot) meet(id uint64, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, ok := h.virtual[id]; id == 0 || ok && (was != "" || name == "") {
		return true
	} else if ok {
		h.virtual[id] = name
		return true
	}
	if len(h.virtual) >= MaxVirtualThreads || id > maxTaskID {
		return false
	}
	if h.virtual == nil {
		h.virtual = map[uint64]string{}
	}
	h.virtual[id] = name
	return true
}
