package hotspot

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/sliverprof/sliver/internal/ordered"
)

const (
	windowBytes = 1 << 20 // of the heap that is read at once: an object of wholeBytes, or many
	// stretchBytes is how much of the heap one goroutine walks at a time, or one more span.
	stretchBytes = 8 << 20
	// startBytes is how far the beginning of an object is searched for where a stretch begins inside of a span.
	startBytes = 64 << 10
)

// A stretch is a part of the heap that is walked by itself: some whole spans, or a part of one. A walk of a part begins
// at the first place from start on where objects seem to begin, and ends at the first object from stop on. Where
// the walk of the part before ends says whether that was the right place.
type stretch struct {
	spans       []span
	start, stop uint64
}

// stretches divides the spans, whatever the number of goroutines: the layout of the dump depends on it.
func stretches(spans []span) (all []stretch) {
	first := 0 // span that the next stretch begins with
	end := func(i int) {
		if i > first {
			all = append(all, stretch{spans[first:i], spans[first].start, spans[i-1].top})
		}
		first = i
	}
	for i, s := range spans {
		if s.top-s.start >= 2*stretchBytes {
			end(i)
			for at := s.start; at < s.top; {
				stop := at + stretchBytes
				if s.top-at < 2*stretchBytes {
					stop = s.top
				}
				all = append(all, stretch{spans[i : i+1], at, stop})
				at = stop
			}
			first = i + 1
		} else if s.top-spans[first].start >= stretchBytes {
			end(i + 1)
		}
	}
	end(len(spans))
	return all
}

// A scanner walks stretches, one after another. It belongs to one goroutine at a time.
type scanner struct {
	h     *Heap
	known cache
	buf   []byte       // of windows
	mem   *memory      // for places without objects
	count []classCount // by number of the class
	found
}

// found is what one walk found.
type found struct {
	placed
	start, end uint64 // where the walk began and ended
	low, high  uint64 // the bitmap's words for addresses outside of them belong to other stretches too
	classes    []*Class
	mirrors    []uint64
	skipped    uint64
	gaps       uint64
}

// classCount counts the objects of a class.
type classCount struct {
	objects, bytes uint64
	number         int // see placed.number; 0: not known
}

// Scan walks the heap, marks where objects begin and counts the objects of each class. Several goroutines walk
// stretches of it.
func (h *Heap) Scan(ctx context.Context) error {
	h.placed = placed{blocks: newLayout()}
	for _, s := range h.spans {
		for i := (s.start - h.low) / chunkBytes; i <= (s.top-1-h.low)/chunkBytes; i++ {
			if h.bits[i] == nil {
				h.bits[i] = make([]uint64, chunkBytes/512)
			}
		}
	}
	all := stretches(h.spans)
	end := uint64(0) // of the walk of the stretch before
	var failed error
	err := ordered.Each(ctx, min(runtime.GOMAXPROCS(0), maxWorkers), len(all), func(i int, s *scanner) error {
		s.h = h
		return s.walk(ctx, &all[i], 0)
	}, func(i int, s *scanner) {
		if a := &all[i]; failed == nil && a.start > a.spans[0].start && s.start != end {
			s.unmark(a)
			failed = s.walk(ctx, a, end)
		}
		end = s.end
		h.join(s)
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if h.Objects == 0 {
		return errors.New("no objects are in the heap")
	}
	return nil
}

// join adds the results of the next stretch.
func (h *Heap) join(s *scanner) {
	h.placed.join(&s.placed)
	for _, c := range s.classes {
		n := &s.count[c.number]
		h.count(c, n.objects, n.bytes)
	}
	for _, at := range s.mirrors {
		h.mirrors[at] = true
	}
	h.Skipped += s.skipped
	h.Gaps += s.gaps
}

// count counts objects of a class.
func (h *Heap) count(c *Class, objects, bytes uint64) {
	c.Count += objects
	c.Bytes += bytes
	h.Objects += objects
	h.Bytes += bytes
}

// walk walks a stretch. from is where an object of it begins, 0: not known.
func (s *scanner) walk(ctx context.Context, a *stretch, from uint64) error {
	s.reset(a)
	for i, sp := range a.spans {
		w := walker{scanner: s, s: sp}
		pos, stop := sp.start, sp.top
		if len(a.spans) == 1 {
			if pos, stop = a.start, a.stop; from > 0 {
				pos = from
			} else if pos > sp.start {
				pos = w.resync(pos, min(pos+startBytes, stop))
			}
		}
		if i == 0 {
			s.start = pos
		}
		if err := w.walk(ctx, pos, stop); err != nil {
			return err
		}
	}
	s.blocks.end()
	return nil
}

// reset forgets the stretch before.
func (s *scanner) reset(a *stretch) {
	if s.buf == nil {
		s.buf, s.count = make([]byte, windowBytes), make([]classCount, len(s.h.Classes))
	}
	for _, c := range s.classes {
		s.count[c.number] = classCount{}
	}
	s.classes, s.mirrors, s.skipped, s.gaps = s.classes[:0], s.mirrors[:0], 0, 0
	s.placed.reset()
	low := s.h.low
	s.low, s.high = low+up(a.start-low, 512), low+(a.stop-low)&^511
}

// mark notes that an object begins at addr.
func (s *scanner) mark(addr uint64) {
	off := addr - s.h.low
	word, bit := &s.h.bits[off/chunkBytes][off%chunkBytes/512], uint64(1)<<(off%512/8)
	if addr < s.low || addr >= s.high {
		atomic.OrUint64(word, bit)
	} else {
		*word |= bit
	}
}

// unmark takes back what the walk of a stretch marked.
func (s *scanner) unmark(a *stretch) {
	for addr := a.start; addr < a.stop; addr += 8 {
		off := addr - s.h.low
		atomic.AndUint64(&s.h.bits[off/chunkBytes][off%chunkBytes/512], ^(uint64(1) << (off % 512 / 8)))
	}
}

// visit counts, marks and places an object.
func (s *scanner) visit(o *object) {
	c, h := o.class, s.h
	if c.Mirror == 0 {
		return // dormant, of the archive: nothing refers to it
	}
	n := &s.count[c.number]
	if n.objects == 0 {
		s.classes = append(s.classes, c)
	}
	n.objects++
	n.bytes += o.size
	if c.Kind == KindMirror {
		if k := h.classOfMirror(o); k == nil || !k.dumped() || k.Mirror != o.addr {
			if k != nil || h.isMirror(o) {
				s.mirrors = append(s.mirrors, o.addr)
				return
			}
		}
	}
	s.mark(o.addr)
	s.place(h, o)
}

// A walker reads a span from its start, through a window.
type walker struct {
	*scanner
	s    span
	base uint64 // address of win
	win  []byte
	tlab int // number of the first TLAB that does not end before the last position
}

// at returns memory from addr on: n bytes or more, or fewer at the end of the span or of what
// can be read.
func (w *walker) at(addr, n uint64) []byte {
	n = min(n, w.s.top-addr)
	if addr < w.base || addr+n > w.base+uint64(len(w.win)) {
		w.base = addr
		want := min(uint64(len(w.buf)), w.s.top-addr)
		got, _ := w.h.VM.mem.src.ReadAt(w.buf[:want], int64(addr))
		w.win = w.buf[:got]
	}
	return w.win[min(addr-w.base, uint64(len(w.win))):]
}

// limit returns the address up to which objects may follow pos: the top of a TLAB, or that of
// the span. In the unused part of a TLAB it returns the end of that part.
func (w *walker) limit(pos uint64) (addr uint64, unused bool) {
	tlabs := w.h.tlabs
	for w.tlab < len(tlabs) && tlabs[w.tlab].end <= pos {
		w.tlab++
	}
	if w.tlab == len(tlabs) || tlabs[w.tlab].start > pos {
		return w.s.top, false
	}
	if t := tlabs[w.tlab]; pos >= t.top {
		return t.end, true
	}
	return tlabs[w.tlab].top, false
}

// object returns the object at addr, which begins with b; class nil: there is none.
func (w *walker) object(addr uint64, b []byte) (o object) {
	if uint64(len(b)) < w.h.VM.least {
		return o
	}
	c := w.h.classOf(b, &w.known)
	if c == nil {
		return o
	}
	size, length := w.h.sizeOf(c, b)
	if size == 0 || size > w.s.top-addr {
		return o
	}
	return object{addr: addr, size: size, class: c, length: length}
}

// skip counts the memory at pos as a gap and returns its end: the next object, or the limit of
// a TLAB.
func (w *walker) skip(pos, limit uint64) (to uint64, err error) {
	to = limit
	if limit == w.s.top {
		to = w.resync(pos+w.h.VM.align, w.s.top)
	}
	if err := w.h.readable(pos); err != nil {
		return 0, err
	}
	w.skipped += to - pos
	w.gaps++
	return to, nil
}

// load sets the object's data.
func (w *walker) load(o *object) error {
	n := min(o.size, wholeBytes)
	o.data = w.at(o.addr, n)
	if uint64(len(o.data)) < n {
		return w.h.readable(o.addr + uint64(len(o.data)))
	}
	o.data = o.data[:min(uint64(len(o.data)), o.size)]
	return nil
}

// resync returns the first place from pos on, and before stop, at which several objects follow each other; stop: there is
// none.
func (w *walker) resync(pos, stop uint64) uint64 {
	if w.mem == nil {
		w.mem = newMemory(w.h.VM.mem.src)
	}
	mem, s := w.mem, w.s
	// A chain of large objects must not move the window.
	var b [firstBytes]byte
	for p := pos; p < stop; p += w.h.VM.align {
		q, n := p, 0
		for ; n < chainLength && q < s.top; n++ {
			n := min(firstBytes, s.top-q)
			if mem.read(b[:n], q) != nil {
				break
			}
			o := w.object(q, b[:n])
			if o.class == nil {
				break
			}
			q += o.size
		}
		if n == chainLength || n > 0 && q == s.top {
			return p
		}
	}
	return stop
}

// plain visits the objects from pos on as long as they are of plain classes, begin before stop and end at limit or
// before. It returns where the next one begins. Most objects are visited here.
func (w *walker) plain(pos, stop, limit uint64) uint64 {
	h := w.h
	for pos < stop {
		b := w.at(pos, firstBytes)
		if uint64(len(b)) < h.VM.least {
			return pos
		}
		c := h.classOf(b, &w.known)
		if c == nil || !c.plain {
			return pos
		}
		size, length := c.fixed, c.size
		out := uint64(c.size)
		if size == 0 {
			if size, length = h.sizeOf(c, b); size == 0 || size > wholeBytes {
				return pos
			}
			out = uint64(length) * uint64(c.unit)
		}
		if size > limit-pos {
			return pos
		}
		n := &w.count[c.number]
		if n.objects == 0 {
			w.classes = append(w.classes, c)
		}
		if n.number == 0 {
			n.number = w.number(c)
		}
		n.objects++
		n.bytes += size
		w.mark(pos)
		w.counts.AddTo(n.number, pos, length)
		w.blocks.add(pos, c.recordHead()+int64(out), false)
		pos += size
	}
	return pos
}

// walk visits the objects from pos up to stop, by address. Where it finds none it looks for the next one.
func (w *walker) walk(ctx context.Context, pos, stop uint64) error {
	for n := 0; pos < stop; n++ {
		if n&0xfff == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		limit, unused := w.limit(pos)
		if unused {
			pos = limit
			continue
		}
		until := min(stop, limit)
		if w.tlab < len(w.h.tlabs) && w.h.tlabs[w.tlab].start > pos {
			until = min(until, w.h.tlabs[w.tlab].start) // where the limit is another one
		}
		if pos = w.plain(pos, until, limit); pos >= until {
			continue
		}
		o := w.object(pos, w.at(pos, firstBytes))
		if o.class == nil || pos+o.size > limit {
			to, err := w.skip(pos, limit)
			if err != nil {
				return err
			}
			pos = to
			continue
		}
		if o.class.Kind == KindMirror { // of others the head is enough
			if err := w.load(&o); err != nil {
				return err
			}
		}
		w.visit(&o)
		pos += o.size
	}
	w.end = pos
	return nil
}
