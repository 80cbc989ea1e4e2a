package graph

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/tally"
)

// A chunk is a run of sub-records that can be read by itself.
type chunk struct {
	offset, bytes int64
	heap          uint32 // ART's heap of the first one
	objects       uint32
	part          int // of a Memory, from 1; 0: it is read from the file
}

// chunkBytes is where a chunk ends at the next sub-record.
const chunkBytes = 2 << 20

// classRecord is a class as a dump has it.
type classRecord struct {
	hprof.Class
	offset int64
}

// root is a reference from outside of the heap.
type root struct {
	id     uint64
	kind   RootKind
	thread uint32 // serial number, 0: none
	frame  int32  // number in the thread's trace, -1: none
}

// text is where a string record has its bytes.
type text struct {
	id     uint64
	offset int64
	bytes  uint32
}

// loaded is a class's name.
type loaded struct {
	id, name uint64
	serial   uint32
}

// A survey is what one pass over a dump finds out: all of it but the objects
// themselves, and how many these are.
type survey struct {
	header  hprof.Header
	dump    int // number of the dump within the stream
	dumps   int // in the stream
	chunks  []chunk
	span    span
	ids     []uint64 // of all objects, where asked for
	heaps   []heapAt
	classes []classRecord
	roots   []root
	counts  tally.Counter
	damage  error // why the stream was not read to its end

	texts   []text // sorted by id
	loaded  []loaded
	frames  []hprof.Frame
	traces  []hprof.Trace
	threads []hprof.Thread
	// threadRoots are the objects of thread serials.
	threadRoots map[uint32]threadRoot
}

type threadRoot struct {
	id    uint64
	trace uint32
}

// heapAt says that objects behind offset are of one of ART's heaps.
type heapAt struct {
	offset int64
	heap   uint32
	name   uint64
}

// restart forgets what belongs to one dump: another one of the stream begins.
func (s *survey) restart(number int) {
	s.dump = number
	s.chunks, s.span, s.ids, s.heaps = nil, span{}, s.ids[:0], nil
	s.classes, s.roots, s.counts = nil, nil, tally.Counter{}
	s.threadRoots = map[uint32]threadRoot{}
}

// Kind is what an object is.
type Kind = tally.Kind

const (
	KindInstance       = tally.Instance
	KindObjectArray    = tally.ObjectArray
	KindPrimitiveArray = tally.PrimitiveArray
	KindClass          = tally.Class
)

// surveyOptions are what a caller wants of a survey.
type surveyOptions struct {
	want    int // number of the dump from 1; 0: the last one
	ids     bool
	partial bool
	step    func(done int64)
	// references has those of a Memory read too, so that it counts the ones that lead to no object.
	references bool
}

// ErrCut is of a dump whose arrays have lengths and no contents, as KOOM's strip leaves it.
var ErrCut = errors.New("KOOM's strip left gaps: 'sliver hprof fill' first")

// take reads the stream once. Memory grows with classes, strings' records, roots and
// frames, and where IDs are asked for with the objects.
func take(ctx context.Context, src io.Reader, o surveyOptions) (*survey, error) {
	r, err := hprof.NewReader(src)
	if err != nil {
		return nil, err
	}
	s := &survey{header: r.Header()}
	s.restart(0)
	t := taking{survey: s, r: r, o: o}
	if err := t.all(ctx); err != nil {
		return nil, err
	}
	if o.step != nil {
		o.step(r.Offset())
	}
	slices.SortStableFunc(s.texts, func(a, b text) int { return cmp.Compare(a.id, b.id) })
	return s, s.checkCount()
}

func (s *survey) checkCount() error {
	if s.span.n > maxObjects {
		return errors.New("more than 2,147,483,632 objects: only the histogram is available")
	}
	return nil
}

// A taking is the pass that fills a survey.
type taking struct {
	*survey
	r     *hprof.Reader
	o     surveyOptions
	open  bool // the last chunk grows
	class hprof.Class
}

// all reads the stream to its end, or to the first damage if a part is enough.
func (t *taking) all(ctx context.Context) error {
	for n := 0; ; n++ {
		if n&0xffff == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if t.o.step != nil {
				t.o.step(t.r.Offset())
			}
		}
		it, err := t.r.Next()
		if err == io.EOF {
			return nil
		}
		sub := err == nil && it.Kind == hprof.KindSub
		if err == nil && !sub {
			t.open = false
			err = t.record(t.r, it)
		}
		if err != nil {
			if !t.o.partial {
				return err
			}
			t.damage = err
			return nil
		}
		if sub {
			if err := t.sub(it); err != nil {
				return err
			}
		}
	}
}

// sub adds a sub-record, if it is of the dump that is wanted.
func (t *taking) sub(it *hprof.Item) error {
	t.dumps = max(t.dumps, it.Dump+1)
	if t.o.want != 0 && it.Dump != t.o.want-1 {
		return nil
	}
	if it.Dump != t.dump {
		t.restart(it.Dump)
		t.open = false
	}
	if t.r.Cut() {
		return ErrCut
	}
	t.header = t.r.Header()
	c := t.chunk(it)
	switch it.Tag {
	case hprof.SubInstance:
		t.object(c, it, KindInstance, it.Ref)
	case hprof.SubObjectArray:
		t.object(c, it, KindObjectArray, it.Ref)
	case hprof.SubPrimitiveArray, hprof.SubPrimitiveBare:
		t.object(c, it, KindPrimitiveArray, uint64(it.Type))
	case hprof.SubClass:
		if err := t.addClass(it); err != nil {
			return err
		}
		t.identify(c, it)
		t.counts.Break()
	case hprof.SubHeapInfo:
		t.heaps = append(t.heaps, heapAt{it.Offset, it.Heap, it.Ref})
	default:
		t.addRoot(it)
	}
	return nil
}

// chunk returns the chunk that the sub-record belongs to.
func (t *taking) chunk(it *hprof.Item) *chunk {
	if !t.open || it.Offset-t.chunks[len(t.chunks)-1].offset >= chunkBytes {
		t.chunks = append(t.chunks, chunk{offset: it.Offset, heap: it.Heap})
		t.open = true
	}
	c := &t.chunks[len(t.chunks)-1]
	c.bytes = it.BodyOffset() + it.Body - c.offset
	return c
}

func (t *taking) addClass(it *hprof.Item) error {
	if err := t.r.Class(&t.class); err != nil {
		return err
	}
	k := t.class
	k.Constants, k.Statics, k.Fields = slices.Clone(k.Constants), slices.Clone(k.Statics), slices.Clone(k.Fields)
	t.classes = append(t.classes, classRecord{k, it.Offset})
	return nil
}

// identify counts the ID of an object or a class.
func (t *taking) identify(c *chunk, it *hprof.Item) {
	c.objects++
	t.span.add(it.ID)
	if t.o.ids {
		t.ids = append(t.ids, it.ID)
	}
}

// object counts an instance or an array in the tally of its class: see tally.Tally.ID for key.
func (t *taking) object(c *chunk, it *hprof.Item, kind Kind, key uint64) {
	t.identify(c, it)
	t.counts.Add(kind, key, it.ID, it.Count)
}

func (s *survey) record(r *hprof.Reader, it *hprof.Item) error {
	switch it.Tag {
	case hprof.TagString:
		s.texts = append(s.texts, text{it.ID, it.BodyOffset(), uint32(min(it.Body, maxText))})
	case hprof.TagLoadClass:
		s.loaded = append(s.loaded, loaded{it.ID, it.Ref, it.Serial})
	case hprof.TagFrame:
		f, err := r.Frame()
		if err != nil {
			return err
		}
		s.frames = append(s.frames, f)
	case hprof.TagTrace:
		var t hprof.Trace
		if err := r.Trace(&t); err != nil {
			return err
		}
		s.traces = append(s.traces, t)
	case hprof.TagStartThread:
		t, err := r.Thread()
		if err != nil {
			return err
		}
		s.threads = append(s.threads, t)
	}
	return nil
}

// maxText is how much of a string record is used as a name.
const maxText = 64 << 10

func (s *survey) addRoot(it *hprof.Item) {
	kind, ok := rootKinds[it.Tag]
	if !ok {
		return
	}
	g := root{id: it.ID, kind: kind, thread: it.Serial, frame: -1}
	switch it.Tag {
	case hprof.SubRootThread:
		s.threadRoots[it.Serial] = threadRoot{it.ID, it.Trace}
	case hprof.SubRootJavaFrame, hprof.SubRootJNILocal:
		g.frame = int32(it.Count)
	}
	s.roots = append(s.roots, g)
}

// RootKind says why an object is a root.
type RootKind uint8

const (
	RootUnknown RootKind = iota
	RootJNIGlobal
	RootJNILocal
	RootJavaFrame
	RootNativeStack
	RootStickyClass
	RootThreadBlock
	RootMonitor
	RootThread
	RootInterned
	RootFinalizing
	RootDebugger
	RootCleanup
	RootVMInternal
	RootJNIMonitor
)

var rootKinds = map[uint8]RootKind{
	hprof.SubRootUnknown: RootUnknown, hprof.SubRootJNIGlobal: RootJNIGlobal, hprof.SubRootJNILocal: RootJNILocal,
	hprof.SubRootJavaFrame: RootJavaFrame, hprof.SubRootNative: RootNativeStack, hprof.SubRootSticky: RootStickyClass,
	hprof.SubRootBlock: RootThreadBlock, hprof.SubRootMonitor: RootMonitor, hprof.SubRootThread: RootThread,
	hprof.SubRootInterned: RootInterned, hprof.SubRootFinalizing: RootFinalizing, hprof.SubRootDebugger: RootDebugger,
	hprof.SubRootCleanup: RootCleanup, hprof.SubRootVMInternal: RootVMInternal, hprof.SubRootJNIMonitor: RootJNIMonitor,
}

func (k RootKind) String() string {
	return [...]string{"unknown root", "JNI global", "JNI local", "Java frame", "native stack", "system class", "thread block",
		"monitor", "thread", "interned string", "finalizing", "debugger", "reference cleanup", "VM internal", "JNI monitor"}[k]
}
