// Package meter bounds how much of a target's current memory one walk reads, in addition to the
// copied memory. Every walk ends soon, whatever the memory contains. The readers of all managed
// runtimes share one Meter.
//
// A Meter must be used by one goroutine. A Credit is shared by all walks of one process.
package meter

import (
	"errors"
	"io"
	"sync"

	"github.com/sliverprof/sliver/stack"
)

const (
	// Budget bounds the bytes that one walk reads. A read costs at least LeastRead, and each span of
	// a batched read at least LeastSpan. This allows 682 reads, or 2 ms at 2.9 µs per read
	// (BenchmarkSpentWalk in package live measures 2.7 µs).
	Budget    = 256 << 10
	LeastRead = 384
	LeastSpan = 16
	// MaxLooks bounds, per walk, the additional bytes read from objects seen for the first time
	// (functions, code), and the bytes of texts; the last text is read to its end. All walks
	// together may read Share per walk for both, plus Ahead.
	MaxLooks = 1 << 20
	Share    = 128 << 10
	Ahead    = 64 << 20
)

// ErrSpent says that a walk reached its limit on reads. The next walk may read again.
var ErrSpent = errors.New("more of the target's memory than is read for one stack")

// SpanReader is memory that reads many spans at once, packed into b. It returns the number of bytes
// read before the first failure.
type SpanReader interface {
	ReadSpans(spans []stack.Span, b []byte) int
}

// Credit limits the first looks of all walks of a process. The zero value is the full credit.
type Credit struct {
	mu   sync.Mutex
	used int // bytes
}

// Begin returns the number of bytes for first looks that one walk may read.
func (c *Credit) Begin() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = max(c.used-Share, 0)
	return max(min(Ahead-c.used, MaxLooks), 0)
}

// Spend deducts the bytes that the walk did read.
func (c *Credit) Spend(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used += n
}

// Meter is a target's memory, limited to what one walk may read. It implements io.ReaderAt with
// addresses as offsets.
type Meter struct {
	mem     io.ReaderAt // nil: no memory
	credit  *Credit
	granted int

	left  int  // bytes that may still be read
	looks int  // the same for first looks
	first bool // left and looks are swapped
	texts int  // bytes of texts
	spent bool

	// Bytes and Reads count the bytes requested and the calls since Begin.
	Bytes, Reads int
}

// Begin starts a walk that reads mem (nil: nothing is readable) and takes first looks from credit.
func (m *Meter) Begin(mem io.ReaderAt, credit *Credit) {
	*m = Meter{mem: mem, credit: credit, left: Budget, granted: credit.Begin()}
	m.looks = m.granted
}

// End ends the walk.
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

// FirstLook counts reads as first looks until done is called.
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

// Spent reports whether a read was refused since Begin because of the limit. The memory that could
// not be read may exist.
func (m *Meter) Spent() bool { return m.spent }

// Left returns the bytes that may still be read, from the first looks' share between FirstLook and
// done.
func (m *Meter) Left() int { return m.left }

// Charge deducts n bytes from the bytes left. It returns ErrSpent if they do not suffice.
func (m *Meter) Charge(n int) error {
	if n > m.left {
		m.left, m.spent = min(m.left, 0), true
		return ErrSpent
	}
	m.left -= n
	return nil
}

// Text permits a text of n bytes to be read whole with Direct, even if it is longer than the bytes
// left. It returns ErrSpent after too many texts.
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

// ReadSpans implements SpanReader. It stops at the first span that exceeds the limit or cannot be
// read; spans after it cost nothing.
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
		if left < 0 { // after the failed span
			m.left += m.price(i, spans[i].Len)
			continue
		}
		m.Bytes += spans[i].Len
		left -= spans[i].Len
	}
	return got
}

// price returns the cost of the i-th span of one batch.
func (m *Meter) price(i, n int) int {
	if _, many := m.mem.(SpanReader); i == 0 || !many {
		return max(n, LeastRead)
	}
	return max(n, LeastSpan)
}
