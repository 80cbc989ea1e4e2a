// Package graph holds the objects of a Java heap dump as a graph: what refers to what,
// what the roots are, and with the dominator tree what each object alone keeps alive.
//
// It reads dumps through package hprof and opens no process. What of a graph is a leak
// is package leak's business.
//
// A Graph may be asked by one goroutine at a time, but for EachArray, which may run beside others.
package graph

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/tally"
)

// Object is the number of an object, from 1 in the order of addresses. 0 is none; as a
// dominator it is the root of all roots.
type Object uint32

// Level says how much of a dump was kept at hand, by the memory that was allowed.
type Level int

const (
	// LevelFull keeps the references and the dominator tree in memory.
	LevelFull Level = iota + 1
	// LevelMapped keeps the same arrays in an unlinked file, which the kernel may write out.
	LevelMapped
	// LevelPaths has where the objects are and one way to each; retained sizes are
	// computed exactly for the objects that are asked for.
	LevelPaths
	// LevelHistogram has counts by class alone.
	LevelHistogram
)

func (l Level) String() string {
	switch l {
	case LevelFull:
		return "full: dominator tree in memory"
	case LevelMapped:
		return "mapped: dominator tree in an unlinked file"
	case LevelPaths:
		return "paths: retained sizes of chosen objects alone"
	}
	return "histogram: counts alone"
}

// Options are how to open a dump.
type Options struct {
	Memory  int64  // bytes that may be used, 0: no bound
	Level   Level  // 0: the best that Memory allows
	Temp    string // folder of unlinked files, "": the system's
	Dump    int    // of several dumps in a file: its number from 1; 0: the last one
	Partial bool   // use the part before a damaged record
	Flat    bool   // locals of threads are roots of their own, and an instance does not hold its class
	Workers int    // threads for reading, 0: 2
	// Report prepares what a report asks for, at the levels with a dominator tree: digests of arrays and shortest paths.
	Report bool
	// Progress receives the current phase and its completed part, 0 to 1.
	Progress func(what string, done float64)
}

// Root is a reference from outside of the heap.
type Root struct {
	Object Object
	Kind   RootKind
	Thread Object // whose frame holds it, 0: none
	Frame  int    // number from the leaf of the thread's trace, -1: none
	serial uint32
}

// Times are how long the parts of opening a dump took.
type Times struct{ Survey, Index, Read, Tree time.Duration }

// Graph is a heap dump.
type Graph struct {
	source
	tables
	holders
	level   Level
	opts    Options
	survey  *survey
	names   *names
	classes *classTable
	sizes   sizeModel
	tree    *tree
	kids    children
	parents []uint32 // of the breadth-first search from the roots
	stacks  stackIndex

	Damage    error  // why the dump was not read to its end; nil if it was
	Dangled   uint64 // references to objects that the dump does not have
	Twice     uint64 // objects that the dump has more than once; the first one counts
	LostRoots uint64 // roots whose object the dump does not have
	Took      Times
}

// source is the file of a graph.
type source struct {
	file    io.ReaderAt
	memory  Memory // the file, if it is one
	first   int64  // offset of its objects
	closer  io.Closer
	bytes   int64
	header  hprof.Header
	cache   *cache
	scratch scratch
}

// tables are a graph's large arrays.
type tables struct {
	arena   *arena
	index   *index
	n       uint32
	meta    []uint32 // by object: its Kind in the top 2 bits, and its class's number
	offsets []byte   // by object: where its sub-record is, 5 bytes each
	length  []uint32 // by object: elements of an array
	start   []uint32 // by object: of its references in to
	to      []uint32
	refs    uint64
	weak    []weakRef
	digests digests
}

// holders are the references from outside of the heap.
type holders struct {
	roots  []Root
	byRoot map[Object][]int // of roots
	locals map[Object][]int // of threads: roots in their frames
}

// weakRef is a referent that its owner does not keep.
type weakRef struct {
	owner, target uint32
	strength      Strength
}

// Open opens a dump in a file, compressed or not.
func Open(ctx context.Context, path string, o Options) (*Graph, error) {
	f, err := hprof.Open(path, o.Temp)
	if err != nil {
		return nil, err
	}
	if f.Damage != nil && !o.Partial {
		f.Close()
		return nil, fmt.Errorf("decompress: %w", f.Damage)
	}
	g, err := New(ctx, f, f.Size(), o)
	if err != nil {
		f.Close()
		return nil, err
	}
	if g.Damage == nil {
		g.Damage = f.Damage
	}
	g.closer = f
	return g, nil
}

// New returns the graph of a dump of size bytes that is not compressed. The file must
// stay as it is for as long as the graph is used.
func New(ctx context.Context, file io.ReaderAt, size int64, o Options) (g *Graph, err error) {
	if o.Workers <= 0 {
		o.Workers = 2
	}
	g = &Graph{source: source{file: file, bytes: size, cache: newCache(file, size)}, opts: o}
	defer func() {
		if err != nil {
			g.closer = nil
			g.Close()
			g = nil
		}
	}()
	if err = g.take(ctx); err != nil {
		return
	}
	if g.level == LevelHistogram {
		return
	}
	if err = g.build(ctx); err != nil {
		return
	}
	if g.level <= LevelMapped {
		err = g.dominate(ctx)
	}
	return
}

// Close gives back what the graph holds. Nothing of it may be used afterwards.
func (g *Graph) Close() error {
	if g.arena != nil {
		g.arena.close()
		g.arena = nil
	}
	if g.closer != nil {
		return g.closer.Close()
	}
	return nil
}

func (g *Graph) progress(what string, done float64) {
	if g.opts.Progress != nil {
		g.opts.Progress(what, done)
	}
}

// errNoObjects is of a file that is an HPROF file without a heap dump.
var errNoObjects = errors.New("the file has no heap dump, or one without objects")

// take makes the survey, chooses the level and makes the index.
func (g *Graph) take(ctx context.Context) (err error) {
	begin := time.Now()
	// A pass that keeps the IDs spares a second one, at 8 bytes an object and as much again
	// while the list grows. 40 bytes are less than what most dumps have for an object.
	keep := g.opts.Memory == 0 || g.bytes/40*16 < g.opts.Memory/4
	o := surveyOptions{
		want: g.opts.Dump, ids: keep && g.opts.Level != LevelHistogram, partial: g.opts.Partial,
		step: func(done int64) { g.progress("counting objects", float64(done)/float64(max(g.bytes, 1))) },
	}
	if m, ok := g.file.(Memory); ok {
		g.memory, g.first = m, m.Parts()[0]
		o.references = g.opts.Memory > 0 || g.opts.Level > LevelMapped // a pass that reads all of them may not follow
		g.survey, err = takeMemory(ctx, m, g.opts.Workers, o)
	} else {
		g.survey, err = take(ctx, io.NewSectionReader(g.file, 0, g.bytes), o)
	}
	if err != nil {
		return err
	}
	s := g.survey
	g.header, g.Damage = s.header, s.damage
	if g.opts.Dump > max(s.dumps, 1) {
		return fmt.Errorf("the file has %d heap dumps, not %d", s.dumps, g.opts.Dump)
	}
	g.names = &names{file: g.file, texts: s.texts, known: map[uint64]string{}}
	g.classes = newClasses(s, g.names)
	g.Took.Survey = time.Since(begin)
	if s.span.n == 0 {
		return errNoObjects
	}
	g.sizes = g.model()
	s.counts.Arrays = [9][]tally.Sample{}
	if g.level = g.choose(); g.level == LevelHistogram {
		return nil
	}
	begin = time.Now()
	defer func() { g.Took.Index = time.Since(begin) }()
	folder := ""
	if g.level == LevelMapped {
		folder = g.tempDir()
	}
	if g.arena, err = newArena(folder); err != nil {
		return err
	}
	return g.makeIndex(ctx)
}

// makeIndex numbers the objects.
func (g *Graph) makeIndex(ctx context.Context) error {
	s := g.survey
	if s.span.pages() == 0 { // IDs far apart
		ids := s.ids
		if len(ids) == 0 {
			ids = make([]uint64, 0, s.span.n)
			if err := g.eachID(ctx, func(id uint64) { ids = append(ids, id) }); err != nil {
				return err
			}
		}
		s.ids = nil
		g.index = newSorted(ids)
		g.n = g.index.n
		return nil
	}
	var words []uint64
	err := g.arena.reserve(func() (err error) {
		words, err = g.arena.u64s(s.span.maxWords())
		return err
	})
	if err != nil {
		return err
	}
	g.index = newBitmap(s.span, words)
	if g.memory != nil {
		for i := range s.classes {
			g.index.set(s.classes[i].ID)
		}
		for addr, word := range g.memory.Starts {
			g.index.setWord(addr, word)
		}
	} else if len(s.ids) > 0 {
		for _, id := range s.ids {
			g.index.set(id)
		}
		s.ids = nil
	} else if err := g.eachID(ctx, g.index.set); err != nil {
		return err
	}
	g.index.seal()
	g.arena.shrink64(&words, int64(len(g.index.words)))
	if g.index.sparse() {
		ids := make([]uint64, 0, g.index.n)
		for id := range g.index.all {
			ids = append(ids, id)
		}
		g.arena.free64(&words)
		g.index = newSorted(ids)
	}
	g.n = g.index.n
	return nil
}

// eachID reads the dump once more for the IDs of its objects.
func (g *Graph) eachID(ctx context.Context, f func(uint64)) error {
	var file fileReader
	for i, c := range g.survey.chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i%64 == 0 {
			g.progress("numbering objects", float64(i)/float64(len(g.survey.chunks)))
		}
		r := g.objects(&file, c)
		for {
			it, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			f(it.ID)
		}
	}
	return nil
}

func isObject(tag uint8) bool {
	switch tag {
	case hprof.SubInstance, hprof.SubObjectArray, hprof.SubPrimitiveArray, hprof.SubPrimitiveBare, hprof.SubClass:
		return true
	}
	return false
}

// Header returns the dump's header.
func (g *Graph) Header() hprof.Header { return g.header }

// Level returns how much of the dump is at hand.
func (g *Graph) Level() Level { return g.level }

// Memory returns what may be used, 0: no bound.
func (g *Graph) Memory() int64 { return g.opts.Memory }

// Bytes returns how many bytes the graph's arrays take.
func (g *Graph) Bytes() int64 {
	if g.arena == nil {
		return 0
	}
	return g.arena.used
}

// PeakBytes returns how many bytes the graph's arrays have taken at most.
func (g *Graph) PeakBytes() int64 {
	if g.arena == nil {
		return 0
	}
	return g.arena.peak
}

// Dumps returns how many heap dumps the file has.
func (g *Graph) Dumps() int { return max(g.survey.dumps, 1) }

// Dump returns the number of the one that this graph is of, from 1.
func (g *Graph) Dump() int { return g.survey.dump + 1 }

// Len returns how many objects there are, classes included.
func (g *Graph) Len() int {
	if g.index == nil {
		return int(g.survey.span.n)
	}
	return int(g.n)
}

// Refs returns how many references there are.
func (g *Graph) Refs() uint64 { return g.refs }

// Roots returns the references from outside.
func (g *Graph) Roots() []Root { return g.roots }

// RootsOf returns why an object is a root, nothing if it is none.
func (g *Graph) RootsOf(o Object) (all []Root) {
	for _, i := range g.byRoot[o] {
		all = append(all, g.roots[i])
	}
	return all
}

// ID returns an object's ID.
func (g *Graph) ID(o Object) uint64 { return g.index.id(uint32(o)) }

// Find returns the object of an ID, 0 if there is none.
func (g *Graph) Find(id uint64) Object {
	if g.index == nil {
		return 0
	}
	return Object(g.index.find(id))
}

const (
	kindShift   = 30
	numberMask  = 1<<kindShift - 1
	offsetBytes = 5
)

// Kind returns what an object is.
func (g *Graph) Kind(o Object) Kind { return Kind(g.metaOf(o) >> kindShift) }

// Class returns an object's class; for a class object, the class it represents.
func (g *Graph) Class(o Object) *Class { return g.classes.all[g.metaOf(o)&numberMask] }

// Size returns an object's own bytes.
func (g *Graph) Size(o Object) int64 {
	if g.length != nil {
		return g.sizeOf(uint32(o))
	}
	return g.sizeFromFile(o)
}

// Total returns the bytes of all objects.
func (g *Graph) Total() (sum int64) {
	for _, l := range g.Histogram() {
		sum += l.Bytes
	}
	return sum
}

func (g *Graph) offset(o Object) int64 {
	b := g.offsets[int(o)*offsetBytes:]
	return int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24 | int64(b[4])<<32
}

func (g *Graph) setOffset(o uint32, at int64) {
	b := g.offsets[int(o)*offsetBytes:]
	b[0], b[1], b[2], b[3], b[4] = byte(at), byte(at>>8), byte(at>>16), byte(at>>24), byte(at>>32)
}

// Heap returns the name of ART's heap that an object is in, "" where the dump has none.
func (g *Graph) Heap(o Object) string {
	h := g.heapAt(g.offset(o))
	if h == nil {
		return ""
	}
	return g.names.get(h.name)
}

func (g *Graph) heapAt(at int64) *heapAt {
	i, _ := slices.BinarySearchFunc(g.survey.heaps, at, func(h heapAt, at int64) int { return cmp.Compare(h.offset, at) })
	if i == 0 {
		return nil
	}
	return &g.survey.heaps[i-1]
}
