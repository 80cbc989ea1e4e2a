package jvm

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
)

const (
	// maxHeaps bounds the code heaps; HotSpot has one or three.
	maxHeaps = 16
	// maxHeap bounds a code heap, in bytes: 2 GiB is the range of a call.
	maxHeap = 1 << 31
	// maxKept bounds each cache. A full cache is cleared.
	maxKept = 1 << 16
)

// Runtime is the HotSpot of a process, and the memory through which it is read.
type Runtime struct {
	*known
	mem io.ReaderAt
}

// On returns the same Runtime, read through other memory.
func (r *Runtime) On(mem io.ReaderAt) *Runtime { return &Runtime{r.known, mem} }

// known holds the state of a HotSpot.
type known struct {
	Major int // version

	l     *layout
	s     *structs
	table *managed.Table
	heaps atomic.Pointer[[]heap]

	threadList uint64 // address of the pointer to the list
	callReturn uint64 // return address of calls from the call stub to Java
	callStubFn uint64 // the call stub's address in the table

	mu      sync.Mutex // guards the fields below
	blobs   map[uint64]*blob
	methods map[uint64]*method
	names   map[uint64]string // of kinds of blobs, by address
	oops    *oops
	owners  []owner           // threads of the last list
	offsets map[string]uint64 // of fields of Java's classes
	classes map[uint64]class  // by address
	thread  threadFields
	parks   places
	chunks  chunks
	byFn    map[uint64]*method // by place in the table, if apart

	apart      bool       // each method has a place of its own in the table: see OnCopy
	classInit  classInit  // constant
	initSearch initSearch // guarded by mu
	numbers    numbers    // has its own lock
}

// heap is one part of the code cache.
type heap struct {
	low, end uint64 // reserved range; the heap grows within it
	segmap   uint64
	log2     uint
}

// New reads the data of a HotSpot whose file img is mapped with the given bias. Functions get their
// addresses from table. The error is ErrNotReady while the machine starts, and a *VersionError if
// its stacks cannot be read.
func New(img *Image, bias uint64, mem io.ReaderAt, table *managed.Table) (*Runtime, error) {
	fast := &pages{mem: mem, kept: map[uint64][]byte{}}
	s, err := readStructs(img, bias, fast)
	if err != nil {
		return nil, fmt.Errorf("read HotSpot's tables: %w", err)
	}
	version := s.static["Abstract_VM_Version._vm_major_version"]
	if version == 0 {
		return nil, &VersionError{Why: "unknown version"}
	}
	n, err := half(mem, version)
	if err != nil {
		return nil, fmt.Errorf("read HotSpot's version: %w", err)
	}
	major := int(int32(n))
	if !tried(int64(major)) {
		return nil, &VersionError{fmt.Sprint(major), "17, 21 and 25 are known"}
	}
	l, err := newLayout(s, major)
	if err != nil {
		return nil, err
	}
	g := &lookup{s: s}
	r := &Runtime{&known{Major: major, l: l, s: s, table: table,
		blobs: map[uint64]*blob{}, methods: map[uint64]*method{}, names: map[uint64]string{}, offsets: map[string]uint64{}, classes: map[uint64]class{},
		classInit: newClassInit(s), byFn: map[uint64]*method{}}, mem}
	heaps, code := g.static("CodeCache._heaps"), g.static("AbstractInterpreter._code")
	ret := g.static("StubRoutines._call_stub_return_address")
	r.threadList = g.static("ThreadsSMRSupport._java_thread_list")
	arrayLen := g.field("GrowableArrayBase._len", "GenericGrowableArray._len")
	arrayData := g.field("GrowableArray<int>._data")
	buffer := g.field("StubQueue._stub_buffer")
	if err := g.err(major); err != nil {
		return nil, err
	}
	if err := r.readHeaps(heaps, arrayLen, arrayData); err != nil {
		return nil, err
	}
	if r.callReturn, err = word(mem, ret); err != nil || r.callReturn == 0 {
		return nil, fmt.Errorf("%w: no call stub", ErrNotReady)
	}
	queue, err := word(mem, code)
	if err != nil || queue == 0 {
		return nil, fmt.Errorf("%w: no interpreter", ErrNotReady)
	}
	start, err := word(mem, queue+buffer)
	if err != nil || start == 0 {
		return nil, fmt.Errorf("%w: no interpreter", ErrNotReady)
	}
	r.callStubFn, _ = table.Add(managed.Key{Name: "[call stub]", Size: 1}, func(yield func(uint64, int) bool) { yield(1, 0) })
	return r, r.prove(start)
}

// prove checks the offsets by two known places: wrong offsets do not lead to these names.
func (r *Runtime) prove(interpreter uint64) error {
	for _, x := range [...]struct {
		pc   uint64
		want codeKind
	}{{interpreter, kindInterpreter}, {r.callReturn, kindStub}} {
		b, err := r.find(x.pc)
		if err != nil {
			return &VersionError{fmt.Sprint(r.Major), fmt.Sprintf("its code cache cannot be read: %v", err)}
		}
		if b.kind != x.want {
			return &VersionError{fmt.Sprint(r.Major), fmt.Sprintf("its code cache is not understood: %q at %#x", b.name, x.pc)}
		}
	}
	return nil
}

// readHeaps reads the ranges of the code cache.
func (r *Runtime) readHeaps(at, arrayLen, arrayData uint64) error {
	array, err := word(r.mem, at)
	if err != nil || array == 0 {
		return fmt.Errorf("%w: no code cache", ErrNotReady)
	}
	n, err := half(r.mem, array+arrayLen)
	if err != nil {
		return err
	}
	data, err := word(r.mem, array+arrayData)
	if err != nil {
		return err
	}
	if n == 0 || data == 0 {
		return fmt.Errorf("%w: no code cache", ErrNotReady)
	}
	if n > maxHeaps {
		return &VersionError{fmt.Sprint(r.Major), fmt.Sprintf("%d code heaps", n)}
	}
	var all []heap
	l := r.l
	for i := range uint64(n) {
		h, err := word(r.mem, data+8*i)
		if err != nil {
			return err
		}
		var x heap
		log2, err := half(r.mem, h+l.heapLog2)
		if err == nil {
			x.low, err = word(r.mem, h+l.heapMemory+l.spaceLow)
		}
		if err == nil {
			x.end, err = word(r.mem, h+l.heapMemory+l.spaceEnd)
		}
		if err == nil {
			x.segmap, err = word(r.mem, h+l.heapSegmap+l.spaceLow)
		}
		if err != nil {
			return err
		}
		if x.low == 0 || x.segmap == 0 {
			return fmt.Errorf("%w: a code heap is being made", ErrNotReady)
		}
		if x.end <= x.low || x.end-x.low > maxHeap || log2 < 3 || log2 > 16 {
			return &VersionError{fmt.Sprint(r.Major), fmt.Sprintf("a code heap at %#x-%#x in segments of 1<<%d", x.low, x.end, log2)}
		}
		x.log2 = uint(log2)
		all = append(all, x)
	}
	r.heaps.Store(&all)
	return nil
}

// Covers reports whether addr is in the reserved range of the code cache.
func (r *Runtime) Covers(addr uint64) bool { return r.heap(addr) != nil }

func (r *Runtime) heap(addr uint64) *heap {
	all := *r.heaps.Load()
	for i := range all {
		if h := &all[i]; addr >= h.low && addr < h.end {
			return h
		}
	}
	return nil
}

// codeKind is the kind of a blob's code.
type codeKind uint8

const (
	kindOther       codeKind = iota // adapters, runtime stubs
	kindStub                        // StubRoutines: assembly for Java and the virtual machine
	kindInterpreter                 // the template interpreter
	kindNmethod                     // a compiled method
	kindNative                      // the wrapper of a native method
	kindVtable                      // pushes nothing
	kindAdapter                     // from interpreted to compiled code, and back
)

// kindOf returns the kind for a blob's name (src/hotspot/share/code/codeBlob.cpp,
// runtime/stubRoutines.cpp, interpreter/templateInterpreter.cpp of 17, 21, 25).
func kindOf(name string) codeKind {
	switch {
	case name == "nmethod":
		return kindNmethod
	case name == "native nmethod":
		return kindNative
	case name == "Interpreter":
		return kindInterpreter
	case strings.HasPrefix(name, "StubRoutines"), strings.HasPrefix(name, "Stub Generator"):
		return kindStub
	case name == "vtable chunks":
		return kindVtable
	case strings.HasPrefix(name, "I2C/C2I"):
		return kindAdapter
	}
	return kindOther
}

// blob is a cached piece of the code cache. It is immutable except for gone.
type blob struct {
	addr      uint64
	name      string
	namePtr   uint64
	kind      codeKind
	code, end uint64 // its instructions
	complete  uint64 // offset from code at which the frame is complete; 0: at once
	frame     uint64 // size of the frame with the return address, in bytes; 0: unknown
	compileID uint32
	fn        uint64 // its address in the table if it is not a method: for frames of its own
	nm        *nmethod
	head      string // of its block: the length, and the flag for being in use

	gone atomic.Bool // it was found to be removed

	rebuilds     bool // it creates frames for the interpreter
	exception    bool // C2's code jumps there with an exception
	continuation bool // stubs that move frames of virtual threads from and to the heap

	upcall *upcall // the frame of a stub that C code calls; nil: another blob, or not understood
}

var errNoBlob = errors.New("no code is there")

// maxHops bounds the steps through a segment map. Each step goes back up to 254 segments, and a
// blob has at most 2 MB.
const maxHops = 1 << 15

// find returns the blob that contains pc.
func (r *Runtime) find(pc uint64) (*blob, error) {
	h := r.heap(pc)
	if h == nil {
		return nil, fmt.Errorf("at %#x: %w", pc, errNoBlob)
	}
	at, err := h.blockOf(r.mem, pc)
	if err != nil {
		return nil, err
	}
	at += r.l.block
	r.mu.Lock()
	b := r.blobs[at]
	r.mu.Unlock()
	if b == nil || pc < b.code || pc >= b.end {
		if b, err = r.readBlob(at); err != nil {
			return nil, err
		}
		r.keep(b)
	}
	if pc < b.addr || pc >= b.end {
		return nil, fmt.Errorf("at %#x: %w: %s ends at %#x", pc, errNoBlob, b.name, b.end)
	}
	return b, nil
}

func (r *Runtime) keep(b *blob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.blobs) >= maxKept {
		clear(r.blobs)
	}
	r.blobs[b.addr] = b
}

// blockOf follows the segment map back to the block that contains pc.
func (h *heap) blockOf(mem io.ReaderAt, pc uint64) (uint64, error) {
	seg := (pc - h.low) >> h.log2
	var b [64]byte
	base := uint64(0) // b holds the map from base on
	have := uint64(0)
	for range maxHops {
		if seg < base || seg >= base+have {
			base = seg - min(seg, uint64(len(b)-1))
			have = seg - base + 1
			if err := read(mem, b[:have], h.segmap+base); err != nil {
				return 0, fmt.Errorf("map of segments: %w", err)
			}
		}
		switch tag := uint64(b[seg-base]); {
		case tag == 0:
			return h.low + seg<<h.log2, nil
		case tag == 0xff || tag > seg:
			return 0, fmt.Errorf("at %#x: %w", pc, errNoBlob)
		default:
			seg -= tag
		}
	}
	return 0, fmt.Errorf("at %#x: %w: the map of segments goes round", pc, errNoBlob)
}

// maxBlob bounds a blob, in bytes.
const maxBlob = 64 << 20

// firstLook counts reads as first looks until done is called. spent reports whether the meter has
// refused a read; results are not conclusive then.
func (r *Runtime) firstLook() (done func()) {
	if m, ok := r.mem.(*meter.Meter); ok {
		return m.FirstLook()
	}
	return func() {}
}

func (r *Runtime) spent() bool {
	m, ok := r.mem.(*meter.Meter)
	return ok && m.Spent()
}

// readBlob reads the blob at addr.
func (r *Runtime) readBlob(addr uint64) (*blob, error) {
	defer r.firstLook()()
	l := r.l
	var buf [maxStruct/8 + room]byte
	size := min(l.block+max(l.blob, l.nmethod)+room, uint64(len(buf)))
	if err := read(r.mem, buf[:size], addr-l.block); err != nil {
		// A small blob at the end of mapped memory.
		size = l.block + l.blob
		if err := read(r.mem, buf[:size], addr-l.block); err != nil {
			return nil, fmt.Errorf("code blob: %w", err)
		}
		size += room
	}
	head := buf[l.block:size]
	b := &blob{addr: addr, namePtr: u64(head, l.blobName), head: string(buf[:l.blockUsed+1])}
	if buf[l.blockUsed] == 0 {
		return nil, fmt.Errorf("code blob at %#x: %w any more", addr, errNoBlob)
	}
	var err error
	if b.name, err = r.nameOf(b.namePtr); err != nil {
		return nil, fmt.Errorf("code blob at %#x: name: %w", addr, err)
	}
	b.kind = kindOf(b.name)
	// "(continuation stubs)" in 21, "(continuationstubs)" in 25.
	b.continuation = b.kind == kindStub && strings.Contains(b.name, "ontinuation")
	b.exception = b.name == "ExceptionBlob"
	b.rebuilds = b.name == "DeoptimizationBlob" || b.name == "UncommonTrapBlob"
	size = uint64(u32(head, l.blobSize))
	if l.major >= 23 {
		b.code, b.end = addr+uint64(u32(head, l.blobCode)), addr+uint64(u32(head, l.blobEnd))
		if c := int16(u16(head, l.blobComplete)); c > 0 {
			b.complete = uint64(c)
		}
	} else {
		b.code, b.end = u64(head, l.blobCode), u64(head, l.blobEnd)
		if c := int32(u32(head, l.blobComplete)); c > 0 {
			b.complete = uint64(c)
		}
	}
	if size == 0 || size > maxBlob || b.code < addr || b.end <= b.code || b.end > addr+size {
		return nil, fmt.Errorf("code blob %q at %#x: %d bytes, code at %#x-%#x", b.name, addr, size, b.code, b.end)
	}
	if f := int32(u32(head, l.blobFrame)); f > 0 && f < maxFrameWords {
		b.frame = 8 * uint64(f)
	}
	if b.kind == kindNmethod || b.kind == kindNative {
		if b.nm, err = r.nmethodOf(b, head); err != nil {
			return nil, err
		}
		return b, nil
	}
	if upcallName(b.name) {
		code := make([]byte, min(maxUpcallHead, b.end-b.code))
		if read(r.mem, code, b.code) == nil {
			b.upcall = upcallOf(code)
		}
	}
	b.fn, _ = r.table.Add(managed.Key{Name: "[" + b.name + "]", Size: b.end - b.code},
		func(yield func(uint64, int) bool) { yield(b.end-b.code, 0) })
	return b, nil
}

// maxFrameWords bounds one frame of compiled code, in words.
const maxFrameWords = 1 << 15

// nameOf reads the name of a kind of blobs. The names are few and stay in memory.
func (r *Runtime) nameOf(addr uint64) (string, error) {
	r.mu.Lock()
	name, ok := r.names[addr]
	r.mu.Unlock()
	if ok {
		return name, nil
	}
	name, err := cstring(r.mem, addr)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.names) >= maxKept {
		clear(r.names)
	}
	r.names[addr] = name
	return name, nil
}
