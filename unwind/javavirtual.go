package unwind

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/jvm"
	"github.com/sliverprof/sliver/unwind/rule"
)

// VirtualThread is one of Java's virtual threads that a walk met.
type VirtualThread struct {
	ID   uint64 // Java's own number for it, as Thread.Task has it
	Name string // may be empty
}

// MaxVirtualThreads bounds those that are told apart; those that come later are not
// told at all.
const MaxVirtualThreads = 200_000

// carrier is what is known of a thread's carrying virtual threads.
type carrier struct {
	at    jvm.Carrier
	is    bool
	asked int  // how often it could not be told
	done  bool // it was

	last uint64 // the reference to the one that it had at the last walk that could tell
	id   uint64 // that one's number
	age  uint32 // of the heap then
	aged bool
}

// maxTaskID is the largest number that a task can have.
const maxTaskID = 1<<44 - 1

// maxCarrierTries is how often it is asked of a thread whether it carries others.
const maxCarrierTries = 16

// spans appends what to copy of the thread.
func (c *carrier) spans(rt *jvm.Runtime, thread uint64, out []rule.Span) []rule.Span {
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
				out = append(out, rule.Span{Addr: c.at.Near, Len: jvm.NumberSpan})
			}
		}
		if c.at.ID != 0 {
			out = append(out, rule.Span{Addr: c.at.ID, Len: 8})
		}
	}
	return out
}

// VirtualThreads are all of Java's virtual threads that walks met so far, by ID.
func (s *Space) VirtualThreads() []VirtualThread {
	h := s.runtimes.Load().jvm
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]VirtualThread, 0, len(h.virtual))
	for id, name := range h.virtual {
		out = append(out, VirtualThread{id, name})
	}
	slices.SortFunc(out, func(a, b VirtualThread) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// settle notes which virtual thread th carried as it was copied.
func (h *hotspot) settle(w *Walker, th *Thread) {
	c := &th.java.carrier
	if th.java.of != h || !c.is {
		return
	}
	t := &th.tasks
	t.known, t.sure = true, false
	own, ok1 := w.word(c.at.Own)
	mounted, ok2 := w.word(c.at.Mounted)
	if !ok1 || !ok2 {
		return
	}
	if own == mounted {
		t.sure, t.now = true, stack.Task{}
		return
	}
	age, aged := h.rt.Age()
	pinned := aged && c.aged && age == c.age
	c.age, c.aged = age, aged
	if !pinned || mounted != c.last {
		id, name, err := w.javaOf(h).rt.Virtual(c.at, own, mounted, pinned)
		if err == nil && h.meet(id, name) {
			c.last, c.id = mounted, id
			w.learnNumber(h, c)
		} else if c.last, c.id = 0, w.copiedID(c); c.id == 0 {
			return
		}
	}
	t.sure, t.now = true, stack.Task{}
	if c.id != 0 {
		t.now = stack.Task{ID: c.id, State: stack.TaskRunning}
	}
}

// learnNumber tells where numbers of virtual threads may be kept outside of the heap what
// was there when c ran one whose number is known.
func (w *Walker) learnNumber(h *hotspot, c *carrier) {
	at, words := c.at.Near, w.numbers[:]
	if at == 0 {
		return
	}
	if c.at.ID != 0 {
		at, words = c.at.ID, w.numbers[:1]
	}
	for i := range words {
		v, ok := w.mem.Word(at + uint64(8*i)) // as it was copied
		if !ok {
			return
		}
		words[i] = v
	}
	h.rt.Number(words, c.id)
}

// copiedID is the number of the virtual thread as it was copied; 0: it was not.
func (w *Walker) copiedID(c *carrier) (id uint64) {
	if c.at.ID != 0 {
		id, _ = w.word(c.at.ID)
	}
	if id > maxTaskID {
		return 0
	}
	return id
}

// meet notes a virtual thread, and reports whether there is room for it. Its name may have
// been read where a collector had already cleared its old place, which looks as if it had none:
// one without a name gets the first that is read of it later.
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
