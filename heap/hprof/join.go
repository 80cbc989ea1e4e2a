package hprof

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"math"
	"os"
	"slices"
)

const (
	sortEntries = 256 << 10 // entries that a sorter holds: 4 MiB
	mergeBytes  = 4 << 20   // buffers of a sorter's runs while they are merged
	entryBytes  = 16
)

// entry is what a sorter sorts, by key and then by order.
type entry struct{ key, order uint64 }

func (e entry) compare(o entry) int {
	return cmp.Or(cmp.Compare(e.key, o.key), cmp.Compare(e.order, o.order))
}

// sorter sorts any number of entries in bounded memory: sorted runs wait in a
// temporary file.
type sorter struct {
	temp string
	buf  []entry
	file *os.File
	runs []int64 // where each run in file ends
}

func (s *sorter) add(e entry) error {
	if len(s.buf) == sortEntries {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.buf = append(s.buf, e)
	return nil
}

func (s *sorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = nameless(s.temp); err != nil {
			return err
		}
	}
	slices.SortFunc(s.buf, entry.compare)
	w := bufio.NewWriterSize(s.file, 64<<10)
	var b [entryBytes]byte
	for _, e := range s.buf {
		binary.LittleEndian.PutUint64(b[:], e.key)
		binary.LittleEndian.PutUint64(b[8:], e.order)
		if _, err := w.Write(b[:]); err != nil {
			return err
		}
	}
	var end int64
	if n := len(s.runs); n > 0 {
		end = s.runs[n-1]
	}
	s.runs = append(s.runs, end+int64(len(s.buf))*entryBytes)
	s.buf = s.buf[:0]
	return w.Flush()
}

func (s *sorter) close() {
	if s.file != nil {
		s.file.Close()
	}
	s.buf = nil
}

// sorted returns the entries in order. No more can be added.
func (s *sorter) sorted() (*merge, error) {
	if s.file == nil {
		slices.SortFunc(s.buf, entry.compare)
		return &merge{rest: s.buf}, nil
	}
	if err := s.spill(); err != nil {
		return nil, err
	}
	s.buf = nil
	m := &merge{}
	var from int64
	for _, end := range s.runs {
		src := bufio.NewReaderSize(io.NewSectionReader(s.file, from, end-from), max(entryBytes, mergeBytes/len(s.runs)))
		from = end
		if err := m.push(run{src: src}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

type run struct {
	src  io.Reader
	head entry
}

// merge hands out entries in order: those of one slice, or of a heap of runs.
type merge struct {
	rest []entry
	heap []run
}

// push adds a run by its next entry, if it has one.
func (m *merge) push(r run) error {
	var b [entryBytes]byte
	if _, err := io.ReadFull(r.src, b[:]); err != nil {
		if err == io.EOF {
			return nil
		}
		return err
	}
	r.head = entry{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
	m.heap = append(m.heap, r)
	for i := len(m.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if m.heap[up].head.compare(m.heap[i].head) <= 0 {
			break
		}
		m.heap[up], m.heap[i] = m.heap[i], m.heap[up]
		i = up
	}
	return nil
}

// next returns the next entry, and false at the end.
func (m *merge) next() (entry, bool, error) {
	if len(m.rest) > 0 {
		e := m.rest[0]
		m.rest = m.rest[1:]
		return e, true, nil
	}
	if len(m.heap) == 0 {
		return entry{}, false, nil
	}
	top := m.heap[0]
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && m.heap[down+1].head.compare(m.heap[down].head) < 0 {
			down++
		}
		if m.heap[i].head.compare(m.heap[down].head) <= 0 {
			break
		}
		m.heap[i], m.heap[down] = m.heap[down], m.heap[i]
		i = down
	}
	return top.head, true, m.push(top)
}

// members reports for each item of a stream, in the stream's order, whether its
// identifier is in a set. Items and set may come in any order, and need the
// same memory for any number of them.
type members struct {
	temp             string
	set, items, hits sorter
	count            uint64
	found            *merge
	upcoming         uint64 // number of the next item that is in the set
	at               uint64
	err              error
}

func newMembers(temp string) *members {
	return &members{temp: temp, set: sorter{temp: temp}, items: sorter{temp: temp}, hits: sorter{temp: temp}}
}

// has adds an identifier to the set.
func (m *members) has(id uint64) error { return m.set.add(entry{key: id}) }

// item adds the next item of the stream.
func (m *members) item(id uint64) error {
	m.count++
	return m.items.add(entry{id, m.count - 1})
}

// join is called once all are added, and before next.
func (m *members) join() error {
	set, err := m.set.sorted()
	if err != nil {
		return err
	}
	items, err := m.items.sorted()
	if err != nil {
		return err
	}
	s, more, err := set.next()
	if err != nil {
		return err
	}
	for more {
		it, ok, err := items.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		for more && s.key < it.key {
			if s, more, err = set.next(); err != nil {
				return err
			}
		}
		if more && s.key == it.key {
			if err := m.hits.add(entry{key: it.order}); err != nil {
				return err
			}
		}
	}
	m.set.close()
	m.items.close()
	if m.found, err = m.hits.sorted(); err != nil {
		return err
	}
	return m.advance()
}

func (m *members) advance() error {
	e, ok, err := m.found.next()
	if m.upcoming = e.key; !ok {
		m.upcoming = math.MaxUint64
	}
	return err
}

// next reports whether the next item of the stream is in the set.
func (m *members) next() bool {
	n := m.at
	m.at++
	if m.err != nil || n != m.upcoming {
		return false
	}
	m.err = m.advance()
	return true
}

func (m *members) close() {
	m.set.close()
	m.items.close()
	m.hits.close()
}

// nameless returns a new file without a name, whose space Close frees.
func nameless(temp string) (*os.File, error) {
	f, err := os.CreateTemp(temp, "sliver-hprof-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
