package foreign

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// record is a call's begin, its end, or both.
type record struct {
	ts, dur int64 // ns
	seq     int64 // position in the file
	thread  int32
	name    uint32
	kind    uint8
}

// compare orders records by thread and time. At the same time, begins and ends keep the
// file's order and come before complete calls. Of two complete calls the longer one is
// the caller.
func compare(a, b *record) int {
	whole := func(r *record) int {
		if r.kind == complete {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.ts, b.ts), cmp.Compare(whole(a), whole(b)), cmp.Compare(b.dur, a.dur),
		cmp.Compare(a.seq, b.seq))
}

// sorter sorts records with bounded memory: sorted runs go to an unnamed temporary file
// and are merged at the end.
type sorter struct {
	dir  string
	seq  int64
	run  []record
	file *os.File
	off  int64
	runs []span
}

type span struct{ off, len int64 }

// runLength is how many records are sorted in memory: 20 MB.
const runLength = 1 << 19

const recordLen = 8 + 8 + 8 + 4 + 4 + 1

func (s *sorter) add(r record) error {
	r.seq = s.seq
	s.seq++
	s.run = append(s.run, r)
	if len(s.run) < runLength {
		return nil
	}
	return s.spill()
}

func (s *sorter) sortRun() {
	slices.SortFunc(s.run, func(a, b record) int { return compare(&a, &b) })
}

func (s *sorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "sliver-import-"); err != nil {
			return fmt.Errorf("sort: %w", err)
		}
		if err := os.Remove(s.file.Name()); err != nil {
			return fmt.Errorf("sort: %w", err)
		}
	}
	s.sortRun()
	w := bufio.NewWriterSize(s.file, 1<<18)
	var b [recordLen]byte
	for i := range s.run {
		r := &s.run[i]
		le := binary.LittleEndian
		le.PutUint64(b[0:], uint64(r.ts))
		le.PutUint64(b[8:], uint64(r.dur))
		le.PutUint64(b[16:], uint64(r.seq))
		le.PutUint32(b[24:], uint32(r.thread))
		le.PutUint32(b[28:], r.name)
		b[32] = r.kind
		w.Write(b[:])
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sort: %w", err)
	}
	n := int64(len(s.run)) * recordLen
	s.runs = append(s.runs, span{s.off, n})
	s.off += n
	s.run = s.run[:0]
	return nil
}

func (s *sorter) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// each yields all records in order.
func (s *sorter) each(yield func(*record) error) error {
	s.sortRun()
	h := &merge{}
	for _, r := range s.runs {
		h.add(&stored{r: bufio.NewReaderSize(io.NewSectionReader(s.file, r.off, r.len), 1<<16)})
	}
	h.add(&stored{run: s.run})
	if h.err != nil {
		return h.err
	}
	for len(h.heads) > 0 {
		top := h.heads[0]
		if err := yield(&top.now); err != nil {
			return err
		}
		ok, err := top.next()
		if err != nil {
			return err
		}
		if ok {
			heap.Fix(h, 0)
		} else {
			heap.Pop(h)
		}
	}
	return nil
}

// stored is a sorted run, in memory or in the file.
type stored struct {
	now record
	run []record
	r   *bufio.Reader
}

func (s *stored) next() (bool, error) {
	if s.r == nil {
		if len(s.run) == 0 {
			return false, nil
		}
		s.now, s.run = s.run[0], s.run[1:]
		return true, nil
	}
	var b [recordLen]byte
	if _, err := io.ReadFull(s.r, b[:]); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("sort: %w", err)
	}
	le := binary.LittleEndian
	s.now = record{ts: int64(le.Uint64(b[0:])), dur: int64(le.Uint64(b[8:])), seq: int64(le.Uint64(b[16:])),
		thread: int32(le.Uint32(b[24:])), name: le.Uint32(b[28:]), kind: b[32]}
	return true, nil
}

// merge is a heap of runs by their next record.
type merge struct {
	heads []*stored
	err   error
}

func (m *merge) add(s *stored) {
	ok, err := s.next()
	if err != nil {
		m.err = err
	} else if ok {
		heap.Push(m, s)
	}
}

func (m *merge) Len() int           { return len(m.heads) }
func (m *merge) Less(i, j int) bool { return compare(&m.heads[i].now, &m.heads[j].now) < 0 }
func (m *merge) Swap(i, j int)      { m.heads[i], m.heads[j] = m.heads[j], m.heads[i] }
func (m *merge) Push(x any)         { m.heads = append(m.heads, x.(*stored)) }
func (m *merge) Pop() any {
	s := m.heads[len(m.heads)-1]
	m.heads = m.heads[:len(m.heads)-1]
	return s
}
