package meter

import (
	"errors"
	"io"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// vast is memory at all addresses except those that end in 7. It counts reads.
type vast struct{ bytes, reads int }

func (v *vast) ReadAt(b []byte, addr int64) (int, error) {
	v.reads++
	if addr&7 == 7 {
		return 0, io.EOF
	}
	v.bytes += len(b)
	return len(b), nil
}

// batches is vast with batched reads.
type batches struct{ vast }

func (m *batches) ReadSpans(spans []stack.Span, b []byte) (got int) {
	m.reads++
	for _, s := range spans {
		if s.Addr&7 == 7 {
			break
		}
		got += s.Len
	}
	m.bytes += got
	return got
}

// TestBounds: no kind of read exceeds the budget or the number of reads.
func TestBounds(t *testing.T) {
	for _, size := range []int{1, 8, LeastRead, LeastRead + 1, 4096, 100_000, Budget, Budget + 1} {
		for name, read := range map[string]func(m *Meter, b []byte) bool{
			"bytes": func(m *Meter, b []byte) bool { n, err := m.ReadAt(b, 64); return n == len(b) && err == nil },
			"spans": func(m *Meter, b []byte) bool { return m.ReadSpans([]stack.Span{{Addr: 64, Len: len(b)}}, b) == len(b) },
		} {
			for _, look := range []bool{false, true} {
				mem, m := &batches{}, &Meter{}
				m.Begin(mem, &Credit{})
				most := Budget
				if look {
					most = MaxLooks
					m.FirstLook()
				}
				n := 0
				for read(m, make([]byte, size)) {
					n++
				}
				if want := most / max(size, LeastRead); n != want || mem.bytes != n*size || mem.reads != n || m.Bytes != mem.bytes || m.Reads != n || !m.Spent() {
					t.Errorf("%s of %d bytes, first look %v: %d reads, want %d; %d bytes in %d reads", name, size, look, n, want, mem.bytes, mem.reads)
				}
			}
		}
	}
}

// TestSpans: each span of a batch costs little, and spans after a failed one cost nothing.
func TestSpans(t *testing.T) {
	spans := make([]stack.Span, 1000)
	for i := range spans {
		spans[i] = stack.Span{Addr: uint64(64 * i), Len: 8}
	}
	b := make([]byte, 8*len(spans))
	m := &Meter{}
	m.Begin(&batches{}, &Credit{})
	if got := m.ReadSpans(spans, b); got != len(b) || m.Reads != 1 || m.Left() != Budget-LeastRead-999*LeastSpan {
		t.Errorf("%d bytes in %d reads, %d left", got, m.Reads, m.Left())
	}
	spans[10].Addr = 7
	m.Begin(&batches{}, &Credit{})
	if got := m.ReadSpans(spans, b); got != 80 || m.Bytes != 88 || m.Left() != Budget-LeastRead-10*LeastSpan {
		t.Errorf("%d bytes, %d asked for, %d left", got, m.Bytes, m.Left())
	}
	mem := &vast{}
	m.Begin(mem, &Credit{}) // which reads the spans one by one
	if got := m.ReadSpans(spans, b); got != 80 || mem.reads != 11 || m.Reads != 11 || m.Left() != Budget-11*LeastRead {
		t.Errorf("%d bytes in %d reads, %d left", got, mem.reads, m.Left())
	}
	m.Begin(nil, &Credit{})
	if got := m.ReadSpans(spans, b); got != 0 {
		t.Errorf("%d bytes of nothing", got)
	}
}

// TestCredit: first looks of all walks together cost Ahead, plus Share per walk. Texts are read
// whole.
func TestCredit(t *testing.T) {
	credit, mem := &Credit{}, &vast{}
	b := make([]byte, 1<<16)
	for walk := range 2000 {
		m := &Meter{}
		m.Begin(mem, credit)
		done := m.FirstLook()
		again := m.FirstLook() // part of the first
		for {
			if _, err := m.ReadAt(b, 0); err != nil {
				if !errors.Is(err, ErrSpent) {
					t.Fatal(err)
				}
				break
			}
		}
		again()
		done()
		if _, err := m.ReadAt(b, 0); err != nil {
			t.Fatalf("walk %d: first looks took what the walk itself may read: %v", walk, err)
		}
		m.End()
		if most := Ahead + (walk+1)*(Share+len(b)); mem.bytes > most {
			t.Fatalf("after %d walks %d bytes were read, more than %d", walk+1, mem.bytes, most)
		}
	}
	if mem.bytes < Ahead {
		t.Errorf("%d bytes in all", mem.bytes)
	}
	m := &Meter{}
	m.Begin(mem, &Credit{})
	n := 0
	for m.Text(300<<10) == nil {
		n++
	}
	if n != 4 {
		t.Errorf("%d texts of 300 KiB", n)
	}
}
