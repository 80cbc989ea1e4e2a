// Package ringbuf is a lock-free ring of two-word events with one writer and any number of
// readers. The writer never waits: when the ring is full it overwrites the oldest events, and a
// reader that was too slow gets the number of events it lost. The package does not interpret the
// words.
//
// One goroutine at a time may call Append, AppendAll and Grow. Each Cursor belongs to one
// goroutine. Events are numbered from 0 over the whole life of a ring and its grown successors,
// so for every cursor started at 0: read + lost + not yet read = Written.
package ringbuf

import "sync/atomic"

// Event is two words; the ring does not interpret them.
type Event [2]uint64

// inFlight is how many events the writer may have begun to overwrite before it publishes them. A
// reader counts that many of the oldest slots as lost.
const inFlight = 64

// MinCap is the smallest capacity: a multiple of inFlight.
const MinCap = 4 * inFlight

// Ring holds the latest events. Slot i&mask holds event number i, for the last len(words)/2
// numbers below head.
type Ring struct {
	words []atomic.Uint64
	mask  uint64
	start uint64         // number of the first event ever put into this ring
	head  *atomic.Uint64 // number of events published, stored only by the writer
	own   atomic.Uint64  // target of head unless the memory is the caller's
	next  atomic.Pointer[Ring]
	gone  atomic.Bool // Abandon was called
}

// New returns a ring for at least capacity events (rounded up to a power of two, at least
// MinCap).
func New(capacity int) *Ring { return newAt(capacity, 0) }

func newAt(capacity int, head uint64) *Ring {
	n := MinCap
	for n < capacity {
		n <<= 1
	}
	r := &Ring{words: make([]atomic.Uint64, 2*n), mask: uint64(n - 1), start: head}
	r.head = &r.own
	r.head.Store(head)
	return r
}

// Over returns an empty ring in memory of the caller, such as a file mapping. words has two words
// for each event, for a power of two of at least MinCap events (otherwise Over panics, as this is
// a bug of the caller). *head is the number of events published; only the ring may use it from
// now on. The caller keeps the memory until the last reader is done: see Abandon.
func Over(words []atomic.Uint64, head *atomic.Uint64) *Ring {
	n := len(words) / 2
	if n < MinCap || n&(n-1) != 0 || len(words)%2 != 0 {
		panic("ringbuf: the memory of a ring is not a power of two of events")
	}
	head.Store(0)
	return &Ring{words: words, mask: uint64(n - 1), head: head}
}

// MoveTo makes n, an empty ring, the successor of r, and copies the newest events of r into it.
// It is for the writer only, which uses n from then on; readers of r switch to it on their own.
func (r *Ring) MoveTo(n *Ring) {
	head := r.head.Load()
	from := r.oldest(head)
	if most := uint64(n.Cap() - inFlight); head-from > most {
		from = head - most
	}
	n.start = from
	for i := from; i < head; i++ {
		s := (i & r.mask) << 1
		n.put(i, r.words[s].Load(), r.words[s+1].Load())
	}
	n.head.Store(head)
	r.next.Store(n)
}

// Start returns the number of the first event that was ever put into r itself.
func (r *Ring) Start() uint64 { return r.start }

// Oldest returns the event k places after the next one to be overwritten, which is the oldest
// that readers still get. ok is false if there is none. It is for the writer only.
func (r *Ring) Oldest(k int) (e Event, ok bool) {
	head := r.head.Load()
	i := r.oldest(head) + uint64(k)
	if i >= head {
		return e, false
	}
	s := (i & r.mask) << 1
	return Event{r.words[s].Load(), r.words[s+1].Load()}, true
}

// Free returns how many events can be appended before any is overwritten.
func (r *Ring) Free() int { return max(r.Cap()-inFlight-int(r.head.Load()-r.start), 0) }

// Abandon declares that r will lose its memory: cursors continue with its successor, if there is
// one, without accessing r again. No Read may be in progress during the call.
func (r *Ring) Abandon() { r.gone.Store(true) }

// Cap returns the capacity in events.
func (r *Ring) Cap() int { return len(r.words) / 2 }

// Written returns the number of events appended so far.
func (r *Ring) Written() uint64 { return r.head.Load() }

// Append adds one event.
func (r *Ring) Append(a, b uint64) {
	h := r.head.Load()
	r.put(h, a, b)
	r.head.Store(h + 1)
}

// AppendAll adds several events; readers see them a few dozen at a time.
func (r *Ring) AppendAll(es []Event) {
	h := r.head.Load()
	for len(es) > 0 {
		n := min(len(es), inFlight)
		for _, e := range es[:n] {
			r.put(h, e[0], e[1])
			h++
		}
		r.head.Store(h)
		es = es[n:]
	}
}

func (r *Ring) put(h, a, b uint64) {
	i := (h & r.mask) << 1
	w := r.words[i : i+2 : i+2]
	w[0].Store(a)
	w[1].Store(b)
}

// Grow returns a ring of at least capacity events that continues after r. The writer uses the new
// one from then on; readers of r switch to it on their own.
func (r *Ring) Grow(capacity int) *Ring {
	n := newAt(capacity, r.head.Load())
	r.next.Store(n)
	return n
}

// Cursor reads a ring from some point on.
type Cursor struct {
	ring *Ring
	pos  uint64
	lost uint64
}

// NewCursor returns a cursor at the oldest event that r still holds; overwritten ones count as
// lost.
func (r *Ring) NewCursor() *Cursor { return &Cursor{ring: r} }

// Tail returns a cursor at the newest event, without counting the older ones as lost.
func (r *Ring) Tail() *Cursor { return &Cursor{ring: r, pos: r.head.Load()} }

// Read copies the next events into buf, oldest first. It returns how many it copied and how many
// were overwritten just before the first of them. Zero events and zero lost mean that there are
// no new events.
func (c *Cursor) Read(buf []Event) (n int, lost uint64) {
	for {
		next := c.ring.next.Load() // before head: once it is set, head is final
		if c.ring.gone.Load() {
			if next == nil {
				return 0, 0
			}
			c.ring = next
			continue
		}
		n, lost = c.ring.read(&c.pos, buf)
		c.lost += lost
		if n > 0 || lost > 0 || next == nil {
			return n, lost
		}
		c.ring = next
	}
}

// Waiting returns how many events the writer has appended since the last Read, including
// overwritten ones, and the capacity of the ring it writes to.
func (c *Cursor) Waiting() (events uint64, capacity int) {
	r := c.ring
	for next := r.next.Load(); next != nil; next = r.next.Load() {
		r = next
	}
	return r.Written() - c.pos, r.Cap()
}

// Lost returns the total number of events that this cursor did not get.
func (c *Cursor) Lost() uint64 { return c.lost }

// Pos returns the number of the event at which the next Read begins.
func (c *Cursor) Pos() uint64 { return c.pos }

func (r *Ring) read(pos *uint64, buf []Event) (n int, lost uint64) {
	head := r.head.Load()
	if first := r.oldest(head); *pos < first {
		lost = first - *pos
		*pos = first
	}
	n = int(min(uint64(len(buf)), head-*pos))
	for i := range buf[:n] {
		s := ((*pos + uint64(i)) & r.mask) << 1
		buf[i] = Event{r.words[s].Load(), r.words[s+1].Load()}
	}
	// Events that the writer reached during the copy may be torn: drop them from the front.
	if first := r.oldest(r.head.Load()); *pos < first {
		torn := int(min(first-*pos, uint64(n)))
		copy(buf, buf[torn:n])
		lost += uint64(torn)
		*pos += uint64(torn)
		n -= torn
	}
	*pos += uint64(n)
	return n, lost
}

// Span returns the range of event numbers that are intact in a ring of capacity events after its
// writer died. start is the ring's first number, head its published count.
func Span(capacity int, start, head uint64) (from, to uint64) {
	if capacity < MinCap || start > head {
		return head, head
	}
	if held := uint64(capacity - inFlight); head-start > held {
		return head - held, head
	}
	return start, head
}

// oldest returns the lowest event number whose slot cannot be being overwritten while head is the
// published count.
func (r *Ring) oldest(head uint64) uint64 {
	if held := uint64(r.Cap() - inFlight); head > held {
		return max(head-held, r.start)
	}
	return r.start
}
