package graph

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/heap/hprof"
)

// Bytes that a level needs: the arrays of build and of dominate at their largest. Of
// the objects half are folded or more, and of the references many are null.
const (
	fullBytes   = 50 // an object, and
	reportBytes = 12 // an object, with Options.Report: digests and the search for paths
	fullRef     = 6  // a reference
	mappedBytes = 16 // an object: what the search goes back to most often
	pathsBytes  = 11 // an object
	namesBytes  = 24 // a string record
	classBytes  = 512
)

// choose returns the best level that the memory allows.
func (g *Graph) choose() Level {
	if g.opts.Level != 0 {
		return g.opts.Level
	}
	memory := g.opts.Memory
	if memory == 0 {
		return LevelFull
	}
	n := int64(g.survey.span.n)
	fixed := g.survey.span.bytes() + int64(len(g.survey.texts))*namesBytes + int64(len(g.survey.classes))*classBytes
	refs := int64(min(g.maxRefs(), math.MaxUint32))
	full := n*fullBytes + refs*fullRef
	if g.opts.Report {
		full += n * reportBytes
	}
	switch {
	case fixed+full <= memory:
		return LevelFull
	case fixed+n*mappedBytes <= memory && g.maxRefs() <= math.MaxUint32/2 && freeBytes(g.tempDir()) > 2*full:
		return LevelMapped
	case fixed+n*pathsBytes <= memory:
		return LevelPaths
	}
	return LevelHistogram
}

func (g *Graph) tempDir() string {
	if g.opts.Temp != "" {
		return g.opts.Temp
	}
	return os.TempDir()
}

// freeBytes returns what a folder's file system has left.
func freeBytes(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(min(s.Bavail*uint64(s.Bsize), math.MaxInt64))
}

// maxRefs returns how many references there are at most.
func (g *Graph) maxRefs() (sum uint64) {
	for i := range g.survey.counts.All {
		y := &g.survey.counts.All[i]
		switch y.Kind {
		case KindInstance:
			if c := g.classes.find(y.ID); c != nil {
				sum += y.Count * uint64(len(c.refs)+1)
			}
		case KindObjectArray:
			sum += y.Elements + y.Count
		}
	}
	for i := range g.survey.classes {
		k := &g.survey.classes[i]
		sum += uint64(len(k.Statics)+len(k.Constants)) + 5
	}
	return sum
}

// maxBlock is how much of the table of references a worker takes at a time at most.
const maxBlock = 64 << 10

// builder is the pass that reads what objects refer to.
type builder struct {
	g     *Graph
	limit uint64
	block uint64        // entries of the table that a worker takes at a time
	next  atomic.Uint64 // of g.to
	chunk atomic.Int64
	once  bool // no ID comes twice: several workers may write

	mu      sync.Mutex
	err     error
	weak    []weakRef
	dangled uint64
	twice   uint64
	refs    uint64
}

// build reads the objects.
func (g *Graph) build(ctx context.Context) (err error) {
	begin := time.Now()
	defer func() { g.Took.Read = time.Since(begin) }()
	s := g.survey
	for _, c := range g.classes.all {
		if c.record != nil {
			c.Object = g.Find(c.ID)
		}
	}
	for _, r := range s.roots {
		if c := g.classes.find(r.id); c != nil && r.kind != RootJavaFrame && r.kind != RootJNILocal {
			c.isRoot = true
		}
	}
	count := int64(g.n) + 1
	if g.offsets, err = g.arena.bytes(count * offsetBytes); err != nil {
		return err
	}
	full := g.level <= LevelMapped
	b := &builder{g: g, once: uint64(g.n) == s.span.n}
	if full {
		if g.meta, err = g.arena.u32s(count); err != nil {
			return err
		}
		if g.start, err = g.arena.u32s(count); err != nil {
			return err
		}
		if g.length, err = g.arena.u32s(count); err != nil {
			return err
		}
		if g.opts.Report {
			if g.digests.of, err = g.arena.u64s(count); err != nil {
				return err
			}
			g.digests.seed = maphash.MakeSeed()
		}
		// The rest of a block is lost if an object's references do not fit into it.
		b.block = min(maxBlock, g.maxRefs()/16+256)
		b.limit = 2*g.maxRefs() + uint64(g.opts.Workers+1)*b.block + uint64(len(s.roots)) + 1
		if g.maxRefs() > math.MaxUint32/2 {
			return errTooManyRefs
		}
		b.limit = min(b.limit, math.MaxUint32)
		if err = g.arena.reserve(func() (err error) {
			g.to, err = g.arena.u32s(int64(b.limit))
			return err
		}); err != nil {
			return err
		}
		b.next.Store(1)
	}
	workers := g.opts.Workers
	if !b.once {
		workers = 1
	}
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() { b.work(ctx) })
	}
	wait.Wait()
	if b.err != nil {
		return b.err
	}
	g.weak, g.Dangled, g.Twice, g.refs = b.weak, b.dangled, b.twice, b.refs
	g.resolveRoots()
	if full {
		if err := b.holdLocals(); err != nil {
			return err
		}
		g.arena.shrink32(&g.to, int64(min(b.next.Load(), b.limit)))
	}
	return nil
}

// fail keeps the first error.
func (b *builder) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// worker is one goroutine's part of a builder.
type worker struct {
	*builder
	file     fileReader
	r        hprof.ObjectReader // of the chunk
	pos, end uint64             // of its block of g.to
	first    uint64             // of the object's references
	weak     []weakRef
	dangled  uint64
	twice    uint64
	refs     uint64
	class    hprof.Class
	lastID   uint64
	last     *Class
	a        Array // whose digest is made
	hash     maphash.Hash
}

func (b *builder) work(ctx context.Context) {
	w := &worker{builder: b}
	g := b.g
	for !b.failed() {
		i := int(b.chunk.Add(1)) - 1
		if i >= len(g.survey.chunks) {
			break
		}
		if err := ctx.Err(); err != nil {
			b.fail(err)
			return
		}
		if i%64 == 0 {
			g.progress("reading objects", float64(i)/float64(len(g.survey.chunks)))
		}
		c := g.survey.chunks[i]
		if c.objects == 0 && c.part == 0 {
			continue
		}
		if err := w.read(c); err != nil {
			b.fail(err)
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.weak = append(b.weak, w.weak...)
	b.dangled += w.dangled
	b.twice += w.twice
	b.refs += w.refs
}

// errChanged is of a file that is not what it was in the pass before.
var errChanged = errors.New("the file changed while it was read")

func (w *worker) read(c chunk) error {
	g := w.g
	w.r = g.objects(&w.file, c)
	for {
		it, err := w.r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errChanged, err)
		}
		o := g.index.find(it.ID)
		if o == 0 {
			return errChanged
		}
		if !w.once {
			if g.offset(Object(o)) != 0 {
				w.twice++
				continue
			}
		}
		g.setOffset(o, it.Offset)
		if g.meta == nil {
			if it.Tag == hprof.SubInstance {
				if err := w.onlyWeak(o, it); err != nil {
					return err
				}
			}
			continue
		}
		if err := w.object(o, it); err != nil {
			return err
		}
	}
}

// onlyWeak records the referent of an instance: where no table of references is kept, the
// strong ones are read when they are wanted.
func (w *worker) onlyWeak(o uint32, it *hprof.Item) error {
	c := w.classOf(it.Ref)
	if c == nil || c.strong == Strong {
		return nil
	}
	ids, err := w.r.Refs()
	if err != nil {
		return err
	}
	for i, id := range ids[:min(len(ids), len(c.refs))] {
		if c.refs[i]&referent == 0 {
			continue
		}
		if t := w.g.Find(id); t != 0 {
			w.weak = append(w.weak, weakRef{o, uint32(t), c.strong})
		}
	}
	return nil
}

// object records what an object is and refers to.
func (w *worker) object(o uint32, it *hprof.Item) error {
	g := w.g
	switch it.Tag {
	case hprof.SubPrimitiveArray, hprof.SubPrimitiveBare:
		g.meta[o] = uint32(KindPrimitiveArray)<<kindShift | g.classes.prim[it.Type&15].number
		g.length[o] = it.Count
		if g.digests.of != nil {
			return w.digest(o, it)
		}
		return nil
	case hprof.SubInstance:
		c := w.classOf(it.Ref)
		if c == nil {
			return errChanged
		}
		g.meta[o] = uint32(KindInstance)<<kindShift | c.number
		if len(c.refs) == 0 {
			if g.holdsClass(c) {
				w.begin(1)
				w.add(uint32(c.Object))
				w.finish(o)
			}
			return nil
		}
		ids, err := w.r.Refs()
		if err != nil {
			return err
		}
		w.instance(o, c, ids)
		return nil
	case hprof.SubObjectArray:
		c := w.classOf(it.Ref)
		if c == nil {
			return errChanged
		}
		g.meta[o] = uint32(KindObjectArray)<<kindShift | c.number
		g.length[o] = it.Count
		return w.array(o, c, it)
	}
	if err := w.file.r.Class(&w.class); err != nil {
		return err
	}
	c := g.classes.find(it.ID)
	if c == nil {
		return errChanged
	}
	g.meta[o] = uint32(KindClass)<<kindShift | c.number
	w.begin(uint64(len(w.class.Statics) + len(w.class.Constants) + 4))
	eachClassRef(&w.class, w.id)
	w.finish(o)
	return nil
}

// eachClassRef calls f with what a class refers to.
func eachClassRef(k *hprof.Class, f func(id uint64)) {
	for _, id := range [...]uint64{k.Super, k.Loader, k.Signers, k.Domain} {
		f(id)
	}
	for i := range k.Constants {
		if k.Constants[i].Type == hprof.TypeObject {
			f(k.Constants[i].Value)
		}
	}
	for i := range k.Statics {
		if k.Statics[i].Type == hprof.TypeObject {
			f(k.Statics[i].Value)
		}
	}
}

func (w *worker) instance(o uint32, c *Class, ids []uint64) {
	g := w.g
	w.begin(uint64(len(ids)) + 1)
	for i, id := range ids[:min(len(ids), len(c.refs))] {
		if c.refs[i]&referent == 0 {
			w.id(id)
		} else if id != 0 {
			if t := g.index.find(id); t != 0 {
				w.weak = append(w.weak, weakRef{o, t, c.strong})
			} else {
				w.dangled++
			}
		}
	}
	if g.holdsClass(c) {
		w.add(uint32(c.Object))
	}
	w.finish(o)
}

// array records the elements, which may be too many for one piece.
func (w *worker) array(o uint32, c *Class, it *hprof.Item) error {
	w.begin(uint64(it.Count) + 1)
	nulls := uint64(0)
	for {
		ids, err := w.r.Refs()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		for _, id := range ids {
			if id == 0 {
				nulls++
				continue
			}
			w.id(id)
		}
	}
	if w.g.digests.of != nil {
		w.g.digests.of[o] = nulls
	}
	if w.g.holdsClass(c) {
		w.add(uint32(c.Object))
	}
	w.finish(o)
	return nil
}

// holdsClass reports whether instances are what keeps their class. A class that is a
// root needs no holder, so that a reference to it would change nothing.
func (g *Graph) holdsClass(c *Class) bool { return !c.isRoot && c.Object != 0 && !g.opts.Flat }

func (w *worker) classOf(id uint64) *Class {
	if w.last == nil || w.lastID != id {
		w.lastID, w.last = id, w.g.classes.find(id)
	}
	return w.last
}

// begin makes room for n references of one object.
func (w *worker) begin(n uint64) {
	if w.pos+n > w.end {
		size := max(n, w.block)
		w.pos = w.next.Add(size) - size
		w.end = min(w.pos+size, w.limit)
	}
	w.first = w.pos
}

func (w *worker) id(id uint64) {
	if id == 0 {
		return
	}
	if t := w.g.index.find(id); t != 0 {
		w.add(t)
	} else {
		w.dangled++
	}
}

func (w *worker) add(t uint32) {
	if w.pos < w.end {
		w.g.to[w.pos] = t
		w.pos++
	}
}

func (w *worker) finish(o uint32) {
	if w.pos > w.first {
		w.g.to[w.pos-1] |= lastRef
		w.g.start[o] = uint32(w.first)
		w.refs += w.pos - w.first
	}
}
