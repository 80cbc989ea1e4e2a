// Package hotspot reads the Java heap of a HotSpot virtual machine from memory that does
// not change: its classes, its objects and its roots, and encodes them as a heap dump
// (Dump). It finds everything by the tables that libjvm.so describes itself with
// (package jvm of unwind). The layouts beyond these tables are those of 17, 21 and 25 with the collectors G1,
// Serial and Parallel. How the memory was copied is package snapshot's business.
//
// The memory is that of a process at any moment, not at a safepoint: an object may be
// allocated and not yet have its header. So the walk marks where objects begin, and a
// reference to another place is read as null and counted.
//
// All of the memory is untrusted: every loop and length has a bound. A Heap belongs to one
// goroutine at a time.
package hotspot

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/stack"
)

// UnsupportedError says why a heap cannot be read.
type UnsupportedError struct{ Why string }

func (e *UnsupportedError) Error() string { return e.Why }

func unsupported(format string, args ...any) error {
	return &UnsupportedError{fmt.Sprintf(format, args...)}
}

// Collector is a garbage collector.
type Collector string

const (
	G1       Collector = "G1"
	Serial   Collector = "Serial"
	Parallel Collector = "Parallel"
)

// Source is where a HotSpot is in memory.
type Source struct {
	Image *jvm.Image // of libjvm.so
	Bias  uint64     // address minus vaddr
	Maps  []stack.Mapping
	Mem   io.ReaderAt // offsets are addresses
}

// VM is what does not change while a virtual machine runs: layouts and flags.
type VM struct {
	Major     int
	Collector Collector
	// Gate is the address of a byte that is not 0 while the collector moves objects.
	Gate uint64

	t         *jvm.Tables
	mem       *memory
	maps      []stack.Mapping
	flags     map[string]uint64
	heap      uint64 // CollectedHeap
	image     *jvm.Image
	imageBias uint64

	narrow, narrowClass, compact bool
	base, shift                  uint64
	classBase, classShift        uint64
	align                        uint64
	lengthAt                     uint64 // of an array
	least                        uint64 // bytes of the smallest object
	missing                      []string
	stores                       []named // see storages
}

// field returns an offset, and notes one that is missing.
func (v *VM) field(names ...string) uint64 {
	off, ok := v.t.Field(names...)
	if !ok {
		v.missing = append(v.missing, names[0])
	}
	return off
}

func (v *VM) static(names ...string) uint64 {
	a, ok := v.t.Static(names...)
	if !ok {
		v.missing = append(v.missing, names[0])
	}
	return a
}

func (v *VM) lacks() error {
	if len(v.missing) == 0 {
		return nil
	}
	return unsupported("the tables of HotSpot %d lack %s", v.Major, strings.Join(v.missing[:min(3, len(v.missing))], ", "))
}

// flag reads one of HotSpot's flags of n bytes; 0 if the version does not have it.
func (v *VM) flag(name string, n int) uint64 {
	at := v.flags[name]
	if at == 0 {
		return 0
	}
	var b [8]byte
	if v.mem.read(b[:n], at) != nil {
		return 0
	}
	return le64(b[:])
}

// Examine reads layouts and flags, from the running process or from a copy of it. An
// *UnsupportedError or *jvm.VersionError says that its heap cannot be read.
func Examine(s Source) (*VM, error) {
	t, err := jvm.ReadTables(s.Image, s.Bias, s.Mem)
	if err != nil {
		return nil, err
	}
	v := &VM{Major: t.Major, t: t, mem: newMemory(s.Mem), maps: s.Maps, image: s.Image, imageBias: s.Bias}
	if v.flags, err = t.Flags(s.Mem); err != nil {
		return nil, fmt.Errorf("flags of HotSpot: %w", err)
	}
	switch {
	case v.flag("UseZGC", 1) != 0:
		return nil, unsupported("its collector is ZGC, whose heap is shared memory that a copy does not hold")
	case v.flag("UseShenandoahGC", 1) != 0:
		return nil, unsupported("its collector is Shenandoah, which moves objects while threads run")
	case v.flag("UseEpsilonGC", 1) != 0:
		return nil, unsupported("its collector is Epsilon, which is not supported")
	case v.flag("UseG1GC", 1) != 0:
		v.Collector = G1
	case v.flag("UseParallelGC", 1) != 0:
		v.Collector = Parallel
	case v.flag("UseSerialGC", 1) != 0:
		v.Collector = Serial
	default:
		return nil, unsupported("its collector is unknown")
	}
	v.narrow, v.narrowClass = v.flag("UseCompressedOops", 1) != 0, v.flag("UseCompressedClassPointers", 1) != 0
	v.compact = v.flag("UseCompactObjectHeaders", 1) != 0
	if v.align = v.flag("ObjectAlignmentInBytes", 4); v.align < 8 || v.align > 256 || v.align&(v.align-1) != 0 {
		v.align = 8
	}
	universe := v.static("Universe._collectedHeap")
	active := v.field("CollectedHeap._is_gc_active", "CollectedHeap._is_stw_gc_active")
	base, shift := v.static("CompressedOops._narrow_oop._base", "CompressedOops._base"), v.static("CompressedOops._narrow_oop._shift", "CompressedOops._shift")
	cbase := v.static("CompressedKlassPointers._narrow_klass._base", "CompressedKlassPointers._base")
	cshift := v.static("CompressedKlassPointers._narrow_klass._shift", "CompressedKlassPointers._shift")
	if err := v.lacks(); err != nil {
		return nil, err
	}
	var errs [5]error
	v.heap, errs[0] = v.mem.word(universe)
	v.base, errs[1] = v.mem.word(base)
	v.classBase, errs[2] = v.mem.word(cbase)
	s1, e := v.mem.half(shift)
	errs[3] = e
	s2, e := v.mem.half(cshift)
	errs[4] = e
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if v.heap == 0 {
		return nil, jvm.ErrNotReady
	}
	v.Gate = v.heap + active
	v.shift, v.classShift = uint64(s1)&31, uint64(s2)&31
	v.least = 16
	switch { // src/hotspot/share/oops/arrayOop.hpp, length_offset_in_bytes
	case v.compact: // a java.lang.Object is its head alone
		v.lengthAt, v.least = 8, 8
	case v.narrowClass:
		v.lengthAt = 12
	default:
		v.lengthAt = 16
	}
	return v, nil
}

// Flag reads a flag of HotSpot's that is true or false, of any version whose tables can be
// read and any collector. known is false if the version does not have it.
func Flag(s Source, name string) (on, known bool, err error) {
	t, err := jvm.ReadTables(s.Image, s.Bias, s.Mem)
	if err != nil {
		return false, false, err
	}
	flags, err := t.Flags(s.Mem)
	if err != nil || flags[name] == 0 {
		return false, false, err
	}
	b, err := newMemory(s.Mem).byte(flags[name])
	return b != 0, err == nil, err
}

// number reads a flag of 8 bytes.
func number(s Source, name string) (uint64, error) {
	t, err := jvm.ReadTables(s.Image, s.Bias, s.Mem)
	if err != nil {
		return 0, err
	}
	flags, err := t.Flags(s.Mem)
	if err != nil || flags[name] == 0 {
		return 0, err
	}
	return newMemory(s.Mem).word(flags[name])
}

// On is the same virtual machine in a copy of its memory.
func (v *VM) On(mem io.ReaderAt, maps []stack.Mapping) *VM {
	c := *v
	c.mem, c.maps, c.stores = newMemory(mem), maps, nil
	return &c
}
