// Package meter bounds what one walk reads of a target's memory as it is now, beside
// what was copied of the thread: whatever lies in that memory, a walk ends soon. The
// readers of all managed runtimes go through one Meter.
//
// A Meter belongs to one goroutine, a Credit to all that look at one process.
package meter

import (
	"errors"
	"io"
	"sync"

	"github.com/sliverprof/sliver/stack"
)

const (
	// Budget is the most that one walk reads, in bytes, of which a read takes LeastRead at
	// least, and a span of many that are read at once LeastSpan: 682 reads, which are 2 ms
	// where one takes 2.9 µs (live's BenchmarkSpentWalk has what it takes: 2.7 µs).
	Budget    = 256 << 10
	LeastRead = 384
	LeastSpan = 16
	// MaxLooks is the most that it reads besides of what was not seen before (functions,
	// code), in bytes, and of texts, of which the last is read to its end. Of all walks
	// together both are Share for each, and Ahead ahead.
	MaxLooks = 1 << 20
	Share    = 128 << 10
	Ahead    = 64 << 20
)

// ErrSpent says that a walk would read more than it may. The next one may again.
var ErrSpent = errors.New("more of the target's memory than is read for one stack")

// SpanReader is memory that reads many spans at once, one after the other into b, and
// gives how many bytes it read until the first that could not be.
type SpanReader interface {
	ReadSpans(spans []stack.Span, b []byte) int
}

// Credit is what all walks of a process may read of what they see for the first time.
// The zero value has all of it.
type Credit struct {
	mu   sync.Mutex
	used int // bytes
}

// Begin gives the bytes that one walk may read of that.
func (c *Credit) Begin() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = max(c.used-Share, 0)
	return max(min(Ahead-c.used, MaxLooks), 0)
}

// Spend takes the bytes that it did read.
func (c *Credit) Spend(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used += n
}

// Meter is a target's memory, as far as one walk may read it. It implements io.ReaderAt;
// offsets are addresses.
type Meter struct {
	mem     io.ReaderAt // nil: there is none
	credit  *Credit
	granted int

	left  int  // bytes that may still be read
	looks int  // the same of what is seen for the first time
	first bool // left and looks have changed places
	texts int  // bytes of texts
	spent bool

	// What was read since Begin: bytes that were asked for, and calls.
	Bytes, Reads int
}

// Begin begins a walk: mem (nil: nothing can be read) may be read, and what is seen for
// the first time is on credit.
func (m *Meter) Begin(mem io.ReaderAt, credit *Credit) {
	*m = Meter{mem: mem, credit: credit, left: Budget, granted: credit.Begin()}
	m.looks = m.granted
}

// End ends it.
func (m *Meter) End() {
	if m.credit == nil {
		return
	}
	looks := m.looks
	if m.first {
		looks = m.left
	}
	m.credit.Spend(m.granted - looks + m.texts)
	m.credit, m.mem = nil, nil
}

// FirstLook has what is read until done is called count as part of looks at what was not
// seen before.
func (m *Meter) FirstLook() (done func()) {
	if m.first {
		return func() {}
	}
	m.swap(true)
	return func() { m.swap(false) }
}

func (m *Meter) swap(first bool) {
	m.first, m.left, m.looks = first, m.looks, m.left
}

// Spent reports whether something was not read since Begin because it was too much: what
// could not be read may be there.
func (m *Meter) Spent() bool { return m.spent }

// Left is the bytes that may still be read, as part of a first look during one.
func (m *Meter) Left() int { return m.left }

// Charge takes n bytes from what may still be read; ErrSpent: it is more than that.
func (m *Meter) Charge(n int) error {
	if n > m.left {
		m.left, m.spent = min(m.left, 0), true
		return ErrSpent
	}
	m.left -= n
	return nil
}

// Text allows a text of n bytes to be read with Direct, whole: it may be longer than
// all that is left. ErrSpent: there were enough of them.
func (m *Meter) Text(n int) error {
	if m.left <= 0 || m.texts > MaxLooks {
		m.spent = true
		return ErrSpent
	}
	m.texts += n
	return nil
}

// ReadAt implements io.ReaderAt.
func (m *Meter) ReadAt(b []byte, addr int64) (int, error) {
	if err := m.Charge(max(len(b), LeastRead)); err != nil {
		return 0, err
	}
	return m.Direct(b, addr)
}

// Direct is ReadAt without a charge.
func (m *Meter) Direct(b []byte, addr int64) (int, error) {
	if m.mem == nil {
		return 0, io.EOF
	}
	m.Reads++
	m.Bytes += len(b)
	return m.mem.ReadAt(b, addr)
}

// ReadSpans implements SpanReader: up to the first that is too much, or that could not be
// read. What comes after that one costs nothing.
func (m *Meter) ReadSpans(spans []stack.Span, b []byte) int {
	n, size := 0, 0
	for n < len(spans) && m.price(n, spans[n].Len) <= m.left {
		m.left -= m.price(n, spans[n].Len)
		size += spans[n].Len
		n++
	}
	if m.mem == nil || n == 0 {
		m.spent = m.spent || len(spans) > 0
		return 0
	}
	got := 0
	if many, ok := m.mem.(SpanReader); ok {
		m.Reads += (n + stack.MaxSpans - 1) / stack.MaxSpans
		got = many.ReadSpans(spans[:n], b[:size])
	} else {
		for _, s := range spans[:n] {
			m.Reads++
			k, _ := m.mem.ReadAt(b[got:got+s.Len], int64(s.Addr))
			if got += max(k, 0); k < s.Len {
				break
			}
		}
	}
	m.spent = m.spent || n < len(spans) && got == size
	left := got
	for i := range n {
		if left < 0 { // behind the one that failed
			m.left += m.price(i, spans[i].Len)
			continue
		}
		m.Bytes += spans[i].Len
		left -= spans[i].Len
	}
	return got
}

// price is what the i-th span of one reading costs.
func (m *Meter) price(i, n int) int {
	if _, many := m.mem.(SpanReader); i == 0 || !many {
		return max(n, LeastRead)
	}
	return max(n, LeastSpan)
}
