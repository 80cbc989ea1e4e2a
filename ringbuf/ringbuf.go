// Package ringbuf is a lock-free ring of two-word events with one writer and
// any number of readers. The writer never waits: when the ring is full it
// overwrites the oldest events, and a reader that was too slow learns how many
// it lost. What the words mean is the business of others.
//
// One goroutine at a time may call Append, AppendAll and Grow. Each Cursor
// belongs to one goroutine. Events have a number, counted from 0 over the
// whole life of a ring and its grown successors, so that for every cursor
// started at 0: read + lost + not yet read = Written.
package ringbuf

import "sync/atomic"

// Event is two words; the ring does not look at them.
type Event [2]uint64

// inFlight is how many events the writer may have begun to overwrite before
// it publishes them. A reader counts that many of the oldest slots as lost.
const inFlight = 64

// MinCap is the smallest capacity: some multiple of what may be in flight.
const MinCap = 4 * inFlight

// Ring holds the latest events. Slot i&mask holds event number i, for the
// last len(words)/2 numbers below head.
type Ring struct {
	words []atomic.Uint64
	mask  uint64
	start uint64         // number of the first event ever put into this ring
	head  *atomic.Uint64 // number of events published, stored by the writer alone
	own   atomic.Uint64  // where head points unless the memory is the caller's
	next  atomic.Pointer[Ring]
	gone  atomic.Bool // Abandon was called
}

// New makes a ring for at least capacity events (rounded up to a power of two, at least MinCap).
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

// Over makes an empty ring in memory of the caller's, such as a file mapping.
// words are two for each event, and a power of two of MinCap events or more
// (else Over panics: it is the caller's mistake). *head is the number of events
// published, the ring's alone from now on. The caller keeps the memory until
// nobody reads: see Abandon.
func Over(words []atomic.Uint64, head *atomic.Uint64) *Ring {
	n := len(words) / 2
	if n < MinCap || n&(n-1) != 0 || len(words)%2 != 0 {
		panic("ringbuf: the memory of a ring is not a power of two of events")
	}
	head.Store(0)
	return &Ring{words: words, mask: uint64(n - 1), head: head}
}

// MoveTo makes n, an empty ring, the one that goes on where r ends, with the
// newest events of r copied into it. For the writer alone, which uses n from
// then on; readers of r find it by themselves.
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

// Start is the number of the first event that was ever put into r itself.
func (r *Ring) Start() uint64 { return r.start }

// Oldest is the event k places behind the one that would be overwritten first,
// which is the oldest that readers still get. ok is false where there is none.
// For the writer alone.
func (r *Ring) Oldest(k int) (e Event, ok bool) {
	head := r.head.Load()
	i := r.oldest(head) + uint64(k)
	if i >= head {
		return e, false
	}
	s := (i & r.mask) << 1
	return Event{r.words[s].Load(), r.words[s+1].Load()}, true
}

// Free is how many events can be appended before any is overwritten.
func (r *Ring) Free() int { return max(r.Cap()-inFlight-int(r.head.Load()-r.start), 0) }

// Abandon says that r will lose its memory: cursors go on with its successor,
// if it has one, without looking at it again. Nobody may be inside a Read
// meanwhile.
func (r *Ring) Abandon() { r.gone.Store(true) }

// Cap is the capacity in events.
func (r *Ring) Cap() int { return len(r.words) / 2 }

// Written is the number of events appended so far.
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

// Grow returns a ring of at least capacity events that goes on where r ends.
// The writer uses the new one from then on; readers of r find it by themselves.
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

// NewCursor reads from the oldest event that r still holds; those that are
// already overwritten count as lost.
func (r *Ring) NewCursor() *Cursor { return &Cursor{ring: r} }

// Tail makes a cursor that begins at the newest event, without counting the
// older ones as lost.
func (r *Ring) Tail() *Cursor { return &Cursor{ring: r, pos: r.head.Load()} }

// Read copies the next events into buf, oldest first. It returns how many it
// copied and how many were overwritten just before the first of them. Zero
// events and zero lost means that there is nothing new.
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

// Waiting is how many events the writer has appended since the last Read, those
// that were overwritten included, and the capacity of the ring it writes to.
func (c *Cursor) Waiting() (events uint64, capacity int) {
	r := c.ring
	for next := r.next.Load(); next != nil; next = r.next.Load() {
		r = next
	}
	return r.Written() - c.pos, r.Cap()
}

// Lost is the number of events that this cursor did not get, in all.
func (c *Cursor) Lost() uint64 { return c.lost }

// Pos is the number of the event that the next Read begins at.
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
	// What the writer reached meanwhile may be torn: drop it from the front.
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

// Span are the numbers of the events that a ring of capacity events still
// holds whole when it is found after its writer died: from start on, head
// having been published.
func Span(capacity int, start, head uint64) (from, to uint64) {
	if capacity < MinCap || start > head {
		return head, head
	}
	if held := uint64(capacity - inFlight); head-start > held {
		return head - held, head
	}
	return start, head
}

// oldest is the lowest event number whose slot cannot be under the pen while
// head is the published count.
func (r *Ring) oldest(head uint64) uint64 {
	if held := uint64(r.Cap() - inFlight); head > held {
		return max(head-held, r.start)
	}
	return r.start
}
