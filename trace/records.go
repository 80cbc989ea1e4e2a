package trace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// records is a type of chunk with records of one thread, in the order in which they ended:
//
//	uvarint TID, uvarint number of records, uvarint time, records
//
// The time is that of the first record. Numbers of a record are relative to those of the one before.
type records[T any] struct {
	chunk string // its type
	what  string // it holds, for errors
	tid   func(*T) stack.TID
	// span is the record's time, from and to.
	span func(*T) (from, to stack.Time)
	// first is what the first record of a chunk is relative to.
	first func(stack.TID, stack.Time) T
	// put appends x, relative to the record before.
	put func(b []byte, x, before *T) []byte
	// take makes the record before, in x, the next one. It reports bad values by n.bad.
	take func(n *recordNumbers, x *T)
	// tail appends values of a later version, which older readers ignore behind the records. taken returns a function
	// that sets them, called with each record in order. Both are nil if there are none.
	tail  func(b []byte, all []T) []byte
	taken func(n *recordNumbers) func(x *T)
}

// Bounds on records.
const (
	maxRecordChunks = 1 << 20 // of a type that a hostile recording can make a reader keep
	maxRecords      = 1 << 14 // that a writer puts into one chunk
)

// recordNumbers reads the numbers of a chunk. After an error, which stays, all are 0.
type recordNumbers struct {
	b    []byte
	i    int
	what string
	err  error
}

func (n *recordNumbers) bad(format string, args ...any) {
	if n.err == nil {
		n.err = fmt.Errorf("%s chunk: byte %d: bad %s", n.what, n.i, fmt.Sprintf(format, args...))
	}
}

// next moves over a number of some bytes, 0 or less if it is damaged, and reports whether it counts.
func (n *recordNumbers) next(bytes int) bool {
	if n.err == nil && bytes <= 0 {
		n.bad("number")
	}
	if n.err != nil {
		return false
	}
	n.i += bytes
	return true
}

func (n *recordNumbers) unsigned() uint64 {
	v, k := binary.Uvarint(n.b[n.i:])
	if !n.next(k) {
		return 0
	}
	return v
}

func (n *recordNumbers) signed() int64 {
	v, k := binary.Varint(n.b[n.i:])
	if !n.next(k) {
		return 0
	}
	return v
}

func (n *recordNumbers) flags() byte {
	if n.err == nil && n.i >= len(n.b) {
		n.bad("flags")
	}
	if n.err != nil {
		return 0
	}
	n.i++
	return n.b[n.i-1]
}

// append appends a chunk of records of one thread; there is at least one.
func (k *records[T]) append(b []byte, all []T) []byte {
	at, _ := k.span(&all[0])
	b = binary.AppendUvarint(b, uint64(uint32(k.tid(&all[0]))))
	b = binary.AppendUvarint(b, uint64(len(all)))
	b = binary.AppendUvarint(b, uint64(at))
	before := k.first(k.tid(&all[0]), at)
	for i := range all {
		b = k.put(b, &all[i], &before)
		before = all[i]
	}
	if k.tail != nil {
		b = k.tail(b, all)
	}
	return b
}

// decode calls yield for each record of a chunk until it says no.
func (k *records[T]) decode(b []byte, yield func(T) bool) (more bool, err error) {
	n := &recordNumbers{b: b, what: k.what}
	tid, count, at := n.unsigned(), n.unsigned(), n.unsigned()
	if n.err == nil && (tid > 1<<31-1 || at > 1<<63-1 || count > uint64(len(b)-n.i)) {
		n.err = fmt.Errorf("%s chunk: thread %d, %d records, time %d in %d bytes", k.what, tid, count, at, len(b))
	}
	x := k.first(stack.TID(tid), stack.Time(at))
	end, set := *n, func(*T) {}
	if k.taken != nil {
		y := x
		for i := count; i > 0 && end.err == nil; i-- {
			k.take(&end, &y)
		}
		if end.err == nil && end.i < len(b) {
			set = k.taken(&end)
		}
	}
	for ; count > 0 && n.err == nil; count-- {
		if k.take(n, &x); n.err != nil {
			break
		}
		if set(&x); !yield(x) {
			return false, nil
		}
	}
	err = cmp.Or(n.err, end.err)
	return err == nil, err
}

// write writes records of any threads. It sorts them by thread.
func (k *records[T]) write(w *Writer, all []T) error {
	slices.SortStableFunc(all, func(a, b T) int { return int(k.tid(&a)) - int(k.tid(&b)) })
	for len(all) > 0 {
		n := 1
		for n < len(all) && n < maxRecords && k.tid(&all[n]) == k.tid(&all[0]) {
			n++
		}
		w.payload = k.append(w.payload[:0], all[:n])
		if err := w.chunk(k.chunk, w.payload); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// note keeps where a chunk is.
func (k *records[T]) note(refs *[]chunkRef, off int64, length int, crc uint32) {
	if len(*refs) < maxRecordChunks {
		*refs = append(*refs, chunkRef{off: off, length: length, crc: crc})
	}
}

// all yields the records of chunks, those of one thread in the order in which they ended. Those in
// damaged chunks are left out; damage is reported once the iteration is over, as an error of the last
// call of yield.
func (k *records[T]) all(rec *Recording, refs []chunkRef) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var buf []byte
		var first error
		for _, ref := range refs {
			b, err := payloadAt(rec.r, ref.off, k.chunk, ref.length, ref.crc, buf)
			more := true
			if err == nil {
				buf = b
				more, err = k.decode(b, func(x T) bool { return yield(x, nil) })
			}
			if err != nil {
				if first == nil {
					first = at(ref.off, err)
				}
				continue
			}
			if !more {
				return
			}
		}
		if first != nil {
			var zero T
			yield(zero, first)
		}
	}
}

// cut writes those of the records that were under way in the part.
func (k *records[T]) cut(tw *Writer, rec *Recording, p Part, all iter.Seq2[T, error]) error {
	var batch []T
	for x, err := range all {
		if err != nil {
			continue
		}
		from, to := k.span(&x)
		if to < p.From || p.To != 0 && from > p.To || !rec.hasThread(p, k.tid(&x), to) {
			continue
		}
		if batch = append(batch, x); len(batch) == maxRecords {
			if err := k.write(tw, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return k.write(tw, batch)
}

// hasThread reports whether a thread is in the part.
func (rec *Recording) hasThread(p Part, tid stack.TID, t stack.Time) bool {
	if p.Threads == nil {
		return true
	}
	i := rec.ThreadOf(tid, t)
	return i >= 0 && slices.Contains(p.Threads, rec.Threads[i].Seq)
}

// ThreadOf is the index in Threads of the thread that had a number at a time, -1 for none: a number
// may have been used by several threads in turn.
func (rec *Recording) ThreadOf(tid stack.TID, t stack.Time) int {
	best := -1
	for i := range rec.Threads {
		th := &rec.Threads[i]
		if th.TID == tid && (best < 0 || th.Born <= t && th.Born >= rec.Threads[best].Born) {
			best = i
		}
	}
	return best
}
