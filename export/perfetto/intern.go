package perfetto

import (
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// interned holds the tables of one thread's sequence. fresh holds entries added since the
// last packet. IDs count from 1 in each table.
type interned struct {
	v     *view.View
	fresh message

	names     []uint32 // event name, by function
	functions []uint32 // function name, by function
	modules   []uint32 // annotation value, by module
	mappings  []uint32 // by module
	strings   map[string]uint32
	values    map[string]uint32 // annotation values
	sources   map[place]uint32
	paths     map[string]uint32 // source paths
	frames    map[placeAt]uint32
	stacks    *tally.Tree // labels are frame IDs
	written   []bool      // by node of stacks
	path      []int32

	lastName, lastFunction, lastString, lastMap, lastBuild uint32
	annotations                                            bool
	exact                                                  bool    // exactAnnotation was called
	kinds                                                  [8]bool // categories described so far
}

// place is a line of a function.
type place struct {
	fn   int
	line int
	file string
}

// placeAt is a frame of a callstack: a place at an address of a module.
type placeAt struct {
	place
	key trace.LocKey
}

// Annotation names, interned in this order.
const (
	annotateModule = iota + 1
	annotateWhy
	annotateMissing
	annotateInterval
	annotateCPU
	annotateSwitches
	annotateDelay
	annotateGaps
	annotateDetails // first of the names of view.Detail, in the order of details
)

// details are the annotations of a wait.
var details = []string{view.DetailCall, view.DetailFile, view.DetailPeer, view.DetailLock, view.DetailHolder, view.DetailNoHolder,
	view.DetailWhy}

// annotateWoken is of a state that a wake-up ended.
const annotateWoken = annotateDetails + 300 // after those of calls

// annotateFor is of a state that is a wait for other processes.
const annotateFor = annotateWoken + 1

// annotateKernel is of a state with a kernel stack.
const annotateKernel = annotateWoken + 2

// Categories, interned in this order.
const (
	categorySliver = 1
	categoryWait   = 2
	categoryIO     = 100 // of operations and findings
	categoryCalls  = 101 // of traced calls
	categoryKinds  = 3   // first ID of managed frames, by stack.Kind
)

// category returns the category ID of a frame; 0 for machine code.
func (n *interned) category(s *trace.Slice) uint64 {
	if s.Loc == nil {
		return 0
	}
	kind := s.Loc.Word.Kind()
	if !kind.Managed() {
		return 0
	}
	if !n.kinds[kind] {
		n.kinds[kind] = true
		n.entry(internedCategory, categoryKinds+uint32(kind), kind.String())
	}
	return categoryKinds + uint64(kind)
}

func newInterned(v *view.View) *interned {
	return &interned{
		v: v, sources: map[place]uint32{}, paths: map[string]uint32{},
		frames: map[placeAt]uint32{}, stacks: tally.NewTree(), written: make([]bool, 1),
	}
}

// entry adds {iid, text} to a table.
func (n *interned) entry(field protowire.Number, iid uint32, s string) {
	at := n.fresh.open(field)
	n.fresh.uint(entryIID, uint64(iid))
	n.fresh.str(entryText, s)
	n.fresh.end(at)
}

// take moves the new entries to the packet that is being written.
func (n *interned) take(out *batches) {
	if len(n.fresh.b) > 0 {
		out.bytes(packetInterned, n.fresh.b)
		n.fresh.b = n.fresh.b[:0]
	}
}

// slot returns &s[i], growing s.
func slot[T any](s *[]T, i int) *T {
	for i >= len(*s) {
		var zero T
		*s = append(*s, zero)
	}
	return &(*s)[i]
}

func (n *interned) name(fn int) uint32 {
	p := slot(&n.names, fn)
	if *p == 0 {
		n.lastName++
		*p = n.lastName
		n.entry(internedName, *p, n.v.FuncName(fn))
	}
	return *p
}

// words interns a name that is not a function's.
func (n *interned) words(s string) uint32 {
	id, ok := n.strings[s]
	if !ok {
		if n.strings == nil {
			n.strings = map[string]uint32{}
		}
		n.lastName++
		id = n.lastName
		n.strings[s] = id
		n.entry(internedName, id, s)
	}
	return id
}

func (n *interned) annotation() {
	if n.annotations {
		return
	}
	n.annotations = true
	for i, s := range append([]string{"module", "why", "missing_ns", "interval_ns", "cpu_us", "switches", "runnable_us", "gaps"}, details...) {
		n.entry(internedAnnotation, uint32(i+1), s)
	}
	n.entry(internedCategory, categorySliver, "sliver")
	n.entry(internedCategory, categoryWait, "wait")
}

// value interns the value of an annotation.
func (n *interned) value(s string) uint32 {
	id, ok := n.values[s]
	if !ok {
		if n.values == nil {
			n.values = map[string]uint32{}
		}
		n.lastString++
		id = n.lastString
		n.values[s] = id
		n.entry(internedString, id, s)
	}
	return id
}

// source interns the source location of a slice; 0 if unknown.
func (n *interned) source(f *trace.LocFrame) uint32 {
	file, line := f.File, f.Line
	if file == "" {
		fn := n.v.Names.Func(f)
		if file = fn.File; line == 0 {
			line = fn.StartLine
		}
	}
	if file == "" {
		return 0
	}
	return n.sourceAt(place{f.Func, line, file}, n.v.FuncName(f.Func))
}

// sourceAt interns a place in a function with this name.
func (n *interned) sourceAt(p place, function string) uint32 {
	id, ok := n.sources[p]
	if !ok {
		id = uint32(len(n.sources) + 1)
		n.sources[p] = id
		at := n.fresh.open(internedSource)
		n.fresh.uint(entryIID, uint64(id))
		n.fresh.str(sourceFile, view.Text(p.file, view.MaxName))
		n.fresh.str(sourceFunction, function)
		n.fresh.uint(sourceLine, uint64(max(p.line, 0)))
		n.fresh.end(at)
	}
	return id
}

// module interns a module as the value of an annotation.
func (n *interned) module(m int) uint32 {
	if m < 0 {
		return 0
	}
	p := slot(&n.modules, m)
	if *p == 0 {
		n.annotation()
		n.lastString++
		*p = n.lastString
		x := &n.v.Rec.Modules[m]
		s := view.Text(x.Path, view.MaxName)
		if x.Deleted {
			s += " (deleted)"
		}
		if x.BuildID != "" {
			s += " build-id " + view.Text(x.BuildID, 128)
		}
		n.entry(internedString, *p, s)
	}
	return *p
}

func (n *interned) function(fn int) uint32 {
	p := slot(&n.functions, fn)
	if *p == 0 {
		n.lastFunction++
		*p = n.lastFunction
		n.entry(internedFunction, *p, n.v.FuncName(fn))
	}
	return *p
}

// mapping interns a module as a mapping. Its address is the first one in the newest maps
// that contain the module.
func (n *interned) mapping(m int) uint32 {
	p := slot(&n.mappings, m)
	if *p != 0 {
		return *p
	}
	x := &n.v.Rec.Modules[m]
	n.lastMap++
	*p = n.lastMap
	n.entry(internedMapPath, n.lastMap, view.Text(x.Path, view.MaxName))
	build := uint32(0)
	if id, err := hex.DecodeString(x.BuildID); err == nil && len(id) > 0 {
		n.lastBuild++
		build = n.lastBuild
		n.entry(internedBuildID, build, string(id))
	}
	at := n.fresh.open(internedMapping)
	n.fresh.uint(entryIID, uint64(*p))
	if build > 0 {
		n.fresh.uint(mappingBuildID, uint64(build))
	}
	if r, ok := n.newest(m); ok {
		n.fresh.uint(mappingStart, r.Start)
		n.fresh.uint(mappingEnd, r.End)
		n.fresh.uint(mappingOffset, r.Off)
	}
	n.fresh.uint(mappingPath, uint64(n.lastMap))
	n.fresh.end(at)
	return *p
}

func (n *interned) newest(m int) (trace.Mapping, bool) {
	for g := len(n.v.Rec.Maps) - 1; g >= 0; g-- {
		for _, r := range n.v.Rec.Maps[g].Mappings {
			if r.Module == m {
				return r, true
			}
		}
	}
	return trace.Mapping{}, false
}

// frame interns a logical frame of a callstack.
func (n *interned) frame(f *trace.LocFrame, l *trace.Loc) uint32 {
	k := placeAt{place{f.Func, f.Line, f.File}, l.Key}
	id, ok := n.frames[k]
	if ok {
		return id
	}
	id = uint32(len(n.frames) + 1)
	n.frames[k] = id
	fn := n.function(f.Func)
	mapped := uint32(0)
	if m := l.Key.Module; m >= 0 && l.Word.Kind() != stack.KindError {
		mapped = n.mapping(m)
	}
	path := uint32(0)
	if f.File != "" {
		if path, ok = n.paths[f.File]; !ok {
			path = uint32(len(n.paths) + 1)
			n.paths[f.File] = path
			n.entry(internedSourcePath, path, view.Text(f.File, view.MaxName))
		}
	}
	at := n.fresh.open(internedFrame)
	n.fresh.uint(entryIID, uint64(id))
	n.fresh.uint(frameFunction, uint64(fn))
	if mapped > 0 {
		n.fresh.uint(frameMapping, uint64(mapped))
		n.fresh.uint(frameRelPC, l.Key.Addr)
	}
	if path > 0 {
		n.fresh.uint(frameSource, uint64(path))
		n.fresh.uint(frameLine, uint64(max(f.Line, 0)))
	}
	n.fresh.end(at)
	return id
}

// callstack interns node of n.stacks if necessary and returns its ID.
func (n *interned) callstack(node int32) uint64 {
	if w := slot(&n.written, int(node)); !*w {
		*w = true
		n.path = n.stacks.Path(node, n.path[:0])
		at := n.fresh.open(internedCallstack)
		n.fresh.uint(entryIID, uint64(node))
		for i := len(n.path) - 1; i >= 0; i-- { // outermost first
			n.fresh.uint(callstackFrames, uint64(n.path[i]))
		}
		n.fresh.end(at)
	}
	return uint64(node)
}

// special interns a frame that represents no function. Its number is negative.
func (n *interned) special(number int, name string) uint32 {
	k := placeAt{place: place{fn: number}}
	id, ok := n.frames[k]
	if !ok {
		id = uint32(len(n.frames) + 1)
		n.frames[k] = id
		n.lastFunction++
		n.entry(internedFunction, n.lastFunction, name)
		at := n.fresh.open(internedFrame)
		n.fresh.uint(entryIID, uint64(id))
		n.fresh.uint(frameFunction, uint64(n.lastFunction))
		n.fresh.end(at)
	}
	return id
}
