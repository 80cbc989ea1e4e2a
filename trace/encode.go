package trace

import (
	"encoding/binary"
	"fmt"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// An EVNT chunk holds events of one thread:
//
//	uvarint Seq of the thread, uvarint number of events, uvarint time of the first event, events
//
// An event is a byte kind | flags, then, unless flagSameTime, the zigzag varint of its time
// minus that of the previous event, then its payload. Exit has no payload. Enter and Move have
// the zigzag varint of the address minus that of the previous frame word in this chunk. If
// flagAttr is set, one byte of attributes (bits 48..55) precedes it; otherwise the attributes
// are those of the previous word. The other kinds have a uvarint.
const (
	flagSameTime = 0x80
	flagAttr     = 0x40
	kindMask     = 0x1f
)

// eventEncoder packs events of one thread into the payload of a chunk.
type eventEncoder struct {
	buf  []byte
	n    int
	seq  int
	base stack.Time
	at   stack.Time
	word uint64
}

func (c *eventEncoder) reset(seq int) {
	c.buf, c.n, c.seq, c.word = c.buf[:0], 0, seq, 0
}

func (c *eventEncoder) add(e event.Event) {
	if c.n == 0 {
		c.base, c.at = e.Time, e.Time
	}
	c.n++
	k := byte(e.Kind())
	head := len(c.buf)
	c.buf = append(c.buf, k)
	if e.Time == c.at {
		c.buf[head] |= flagSameTime
	} else {
		c.buf = binary.AppendVarint(c.buf, int64(e.Time-c.at))
		c.at = e.Time
	}
	p := e.Payload()
	switch event.Kind(k) {
	case event.Exit:
	case event.Enter, event.Move:
		if p>>48 != c.word>>48 {
			c.buf[head] |= flagAttr
			c.buf = append(c.buf, byte(p>>48))
		}
		const addr = 1<<48 - 1
		c.buf = binary.AppendVarint(c.buf, int64(p&addr)-int64(c.word&addr))
		c.word = p
	default:
		c.buf = binary.AppendUvarint(c.buf, p)
	}
}

// payload returns the finished chunk, in dst's memory.
func (c *eventEncoder) payload(dst []byte) []byte {
	dst = binary.AppendUvarint(dst[:0], uint64(c.seq))
	dst = binary.AppendUvarint(dst, uint64(c.n))
	dst = binary.AppendUvarint(dst, uint64(c.base))
	return append(dst, c.buf...)
}

// eventsHead is the header before the events.
type eventsHead struct {
	seq   int
	count uint64
	base  stack.Time
	size  int // bytes of the head
}

func parseEventsHead(b []byte) (h eventsHead, err error) {
	var v [3]uint64
	for i := range v {
		x, n := binary.Uvarint(b[h.size:])
		if n <= 0 {
			return h, fmt.Errorf("event chunk: byte %d: bad number", h.size)
		}
		v[i], h.size = x, h.size+n
	}
	if v[0] > 1<<31-1 || v[2] > 1<<63-1 {
		return h, fmt.Errorf("event chunk: thread %d or time %d is out of range", v[0], v[2])
	}
	h.seq, h.count, h.base = int(v[0]), v[1], stack.Time(v[2])
	if h.count > uint64(len(b)-h.size) { // an event takes at least one byte
		return h, fmt.Errorf("event chunk: %d events in %d bytes", h.count, len(b)-h.size)
	}
	return h, nil
}

// decodeEvents calls yield for each event of an EVNT payload until it returns false.
func decodeEvents(b []byte, yield func(event.Event) bool) (more bool, err error) {
	h, err := parseEventsHead(b)
	if err != nil {
		return false, err
	}
	at, word, i := h.base, uint64(0), h.size
	for n := h.count; n > 0; n-- {
		if i >= len(b) {
			return false, fmt.Errorf("event chunk: ends %d events early", n)
		}
		head := b[i]
		i++
		if head&flagSameTime == 0 {
			d, k := binary.Varint(b[i:])
			if k <= 0 {
				return false, fmt.Errorf("event chunk: byte %d: bad time", i)
			}
			at, i = at+stack.Time(d), i+k
		}
		kind := event.Kind(head & kindMask)
		var p uint64
		switch kind {
		case event.Exit:
		case event.Enter, event.Move:
			attr := word >> 48
			if head&flagAttr != 0 {
				if i >= len(b) {
					return false, fmt.Errorf("event chunk: byte %d: no attributes", i)
				}
				attr = uint64(b[i])
				i++
			}
			d, k := binary.Varint(b[i:])
			if k <= 0 {
				return false, fmt.Errorf("event chunk: byte %d: bad address", i)
			}
			i += k
			word = attr<<48 | uint64(int64(word&(1<<48-1))+d)&(1<<48-1)
			p = word
		default:
			x, k := binary.Uvarint(b[i:])
			if k <= 0 {
				return false, fmt.Errorf("event chunk: byte %d: bad payload", i)
			}
			p, i = x, i+k
		}
		if !yield(event.Make(at, kind, p)) {
			return false, nil
		}
	}
	return true, nil
}
