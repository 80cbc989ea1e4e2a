package hotspot

import (
	"context"
	"encoding/binary"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/heap/hprof"
)

// Written counts what a dump has.
type Written struct {
	Classes, Objects, Roots uint64
	Bytes                   int64
	Truncated               uint64 // arrays of more than 4 GB, which the format cannot hold: their elements are cut
	Frames                  uint64 // roots by stacks, conservative
}

// Dump is the heap as a heap dump, as HotSpot's GC.heap_dump -all writes it. It is not
// stored: each read encodes the part that is asked for from the memory of the copy. ReadAt
// may be called by several goroutines at once.
type Dump struct {
	Written

	h        *Heap
	head     []byte
	end      []byte
	encoders sync.Pool
	lost     []atomic.Int32 // by block: references to no object, plus 1; 0: not encoded yet
	headLost uint64

	mu     sync.Mutex
	recent [recentBlocks]struct {
		block int // its number plus 1
		bytes []byte
	}
	next int // place in recent that is used next

	parts  []int    // by part: the number of its first block; at last how many blocks there are
	single *encoder // of ReadRecord
	pages  *memory  // that ReadRecord read
	// The last instance that ReadRecord was called for: its fields are read one after another.
	record   []byte
	recordID uint64
	start    [firstBytes]byte // of the object that it reads
}

// recentBlocks is how many blocks that were read in part are kept.
const recentBlocks = 32

// Dump encodes names, classes and roots, and returns the dump. It is called after Scan and
// Live. stacks are the native threads of the process, made is the dump's time.
func (h *Heap) Dump(ctx context.Context, stacks []Stack, made time.Time) (*Dump, error) {
	w := &header{encoder: encoder{h: h, known: &h.cache, top: h.high}, strings: map[string]uint64{}}
	if err := w.write(ctx, stacks, made); err != nil {
		return nil, err
	}
	d := &Dump{Written: w.n, h: h, head: w.out.Bytes(), lost: make([]atomic.Int32, len(h.blocks.blocks)), headLost: w.lost}
	d.encoders.New = func() any { return &encoder{h: h, known: &cache{}} }
	d.end = make([]byte, headBytes)
	d.end[0] = hprof.TagHeapDumpEnd
	binary.BigEndian.PutUint32(d.end[5:], 0)
	d.makeParts()
	d.Objects, d.Truncated = h.blocks.objects, h.blocks.truncated
	d.Bytes = int64(len(d.head)) + h.blocks.size + int64(len(d.end))
	return d, nil
}

// Size is the length of the dump in bytes.
func (d *Dump) Size() int64 { return d.Bytes }

// Nulled counts references to no object, written as null, in the parts that were read.
func (d *Dump) Nulled() uint64 {
	sum := d.headLost
	for i := range d.lost {
		if n := d.lost[i].Load(); n > 0 {
			sum += uint64(n - 1)
		}
	}
	return sum
}

// ReadAt reads as io.ReaderAt says.
func (d *Dump) ReadAt(p []byte, off int64) (n int, err error) {
	e := d.encoders.Get().(*encoder)
	defer d.encoders.Put(e)
	for n < len(p) {
		k, err := d.read(e, p[n:], off+int64(n))
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// read reads some of what ReadAt wants.
func (d *Dump) read(e *encoder, p []byte, off int64) (int, error) {
	head, size := int64(len(d.head)), d.h.blocks.size
	switch {
	case off < 0 || off >= d.Bytes:
		return 0, io.EOF
	case off < head:
		return copy(p, d.head[off:]), nil
	case off >= head+size:
		return copy(p, d.end[off-head-size:]), nil
	}
	off -= head
	i := d.h.blocks.find(off)
	b := &d.h.blocks.blocks[i]
	stop := d.h.blocks.stop(i)
	if b.large {
		n := int(min(int64(len(p)), stop-off))
		return n, e.part(i, off-b.off, p[:n])
	}
	if off == b.off && int64(len(p)) >= stop-off {
		return int(stop - off), d.encode(e, i, p[:stop-off:stop-off])
	}
	whole, err := d.block(e, i, int(stop-b.off))
	return copy(p, whole[min(off-b.off, int64(len(whole))):]), err
}

// encode encodes a block that is not large.
func (d *Dump) encode(e *encoder, i int, out []byte) error {
	e.lost = 0
	err := e.block(i, out)
	d.lose(i, e.lost)
	return err
}

// lose notes how many references to no object a block has, of which a part may have been read.
func (d *Dump) lose(block int, n uint64) {
	now := int32(min(n, 1<<30)) + 1
	for old := d.lost[block].Load(); now > old && !d.lost[block].CompareAndSwap(old, now); {
		old = d.lost[block].Load()
	}
}

// block returns a block of n bytes of which a part is read: another part follows soon.
func (d *Dump) block(e *encoder, i, n int) ([]byte, error) {
	d.mu.Lock()
	for k := range d.recent {
		if d.recent[k].block == i+1 {
			b := d.recent[k].bytes
			d.mu.Unlock()
			return b, nil
		}
	}
	d.mu.Unlock()
	b := make([]byte, n)
	if err := d.encode(e, i, b); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recent[d.next].block, d.recent[d.next].bytes = i+1, b
	d.next = (d.next + 1) % len(d.recent)
	return b, nil
}

const (
	pieceBytes = 1 << 20 // of the dump that Write encodes at a time, or one more block
	maxWorkers = 4
)

// piece is a part of the dump that is being encoded.
type piece struct {
	bytes []byte
	err   error
	done  chan struct{}
}

// Write writes the dump, about pieceBytes at a time. Several goroutines encode.
func (d *Dump) Write(ctx context.Context, w io.Writer) error {
	workers := min(runtime.GOMAXPROCS(0), maxWorkers)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type task struct {
		off, n int64
		p      *piece
	}
	tasks, order := make(chan task), make(chan *piece, workers)
	free := make(chan []byte, 2*workers+2) // buffers; one of a large block is larger
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		defer close(order)
		defer close(tasks)
		d.pieces(func(off, n int64) bool {
			p := &piece{done: make(chan struct{})}
			select {
			case order <- p:
			case <-ctx.Done():
				return false
			}
			tasks <- task{off, n, p}
			return true
		})
	})
	for range workers {
		all.Go(func() {
			for t := range tasks {
				var buf []byte
				select {
				case buf = <-free:
				default:
				}
				if int64(cap(buf)) < t.n {
					buf = make([]byte, t.n)
				}
				t.p.bytes = buf[:t.n]
				if t.p.err = ctx.Err(); t.p.err == nil {
					_, t.p.err = d.ReadAt(t.p.bytes, t.off)
				}
				close(t.p.done)
			}
		})
	}
	for p := range order {
		<-p.done
		if p.err != nil {
			return p.err
		}
		if _, err := w.Write(p.bytes); err != nil {
			return err
		}
		select {
		case free <- p.bytes:
		default:
		}
	}
	return ctx.Err()
}

// pieces calls yield with parts of the dump that are whole blocks or parts of a large one.
func (d *Dump) pieces(yield func(off, n int64) bool) {
	from := int64(0)
	to := func(end int64, large bool) bool {
		for from < end {
			n := end - from
			if large {
				n = min(n, pieceBytes)
			}
			if !yield(from, n) {
				return false
			}
			from += n
		}
		return true
	}
	head := int64(len(d.head))
	if !to(head, true) {
		return
	}
	l := &d.h.blocks
	for i := range l.blocks {
		begin, stop := head+l.blocks[i].off, head+l.stop(i)
		if l.blocks[i].large {
			if !to(begin, false) || !to(stop, true) {
				return
			}
		} else if stop-from >= pieceBytes && !to(stop, false) {
			return
		}
	}
	to(d.Bytes, false)
}
