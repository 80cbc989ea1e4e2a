package hotspot

import (
	"cmp"
	"fmt"
	"slices"
)

// span is memory that is filled with objects from its beginning.
type span struct{ start, top uint64 }

const (
	maxRegions = 1 << 22
	maxThreads = 1 << 20
)

// spans lists the parts of the heap, by address.
func (v *VM) spans() (all []span, err error) {
	switch v.Collector {
	case G1:
		all, err = v.g1()
	case Serial:
		all, err = v.serial()
	case Parallel:
		all, err = v.parallel()
	}
	if err != nil {
		return nil, fmt.Errorf("parts of the heap: %w", err)
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	for i, s := range all {
		if s.start%8 != 0 || s.top%8 != 0 || i > 0 && s.start < all[i-1].top {
			return nil, fmt.Errorf("parts of the heap: %#x-%#x is not possible", s.start, s.top)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("parts of the heap: none has objects")
	}
	return all, nil
}

// Used returns the bytes of the heap that are in use, dead objects included, as the
// collector's structures have it now. It may be called on a running process.
func (v *VM) Used() (int64, error) {
	all, err := v.On(v.mem.src, v.maps).spans()
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, s := range all {
		sum += int64(s.top - s.start)
	}
	return sum, nil
}

func (v *VM) g1() (all []span, err error) {
	hrm := v.heap + v.field("G1CollectedHeap._hrm") + v.field("HeapRegionManager._regions", "G1HeapRegionManager._regions")
	base, length := v.field("G1HeapRegionTable._base"), v.field("G1HeapRegionTable._length")
	bottom, end, top := v.field("HeapRegion._bottom", "G1HeapRegion._bottom"), v.field("HeapRegion._end", "G1HeapRegion._end"), v.field("HeapRegion._top", "G1HeapRegion._top")
	tag := v.field("HeapRegion._type", "G1HeapRegion._type") + v.field("HeapRegionType._tag", "G1HeapRegionType._tag")
	continues, ok := v.t.Constant("HeapRegionType::ContinuesHumongousTag", "G1HeapRegionType::ContinuesHumongousTag")
	if err := v.lacks(); err != nil || !ok {
		return nil, cmp.Or(err, unsupported("the tables of HotSpot %d lack G1's tags", v.Major))
	}
	starts, _ := v.t.Constant("HeapRegionType::StartsHumongousTag", "G1HeapRegionType::StartsHumongousTag")
	table, err := v.mem.word(hrm + base)
	if err != nil {
		return nil, err
	}
	n, err := v.mem.word(hrm + length)
	if err != nil {
		return nil, err
	}
	if n > maxRegions {
		return nil, fmt.Errorf("%d regions", n)
	}
	for i := range n {
		r, err := v.mem.word(table + 8*i)
		if err != nil {
			return nil, err
		}
		if r == 0 {
			continue // not committed
		}
		kind, err := v.mem.half(r + tag)
		if err != nil {
			return nil, err
		}
		b, err1 := v.mem.word(r + bottom)
		e, err2 := v.mem.word(r + end)
		t, err3 := v.mem.word(r + top)
		if err := cmp.Or(err1, err2, err3); err != nil {
			return nil, err
		}
		switch int64(kind) {
		case 0: // free
			continue
		case continues:
			// It belongs to the object of the region before.
			if k := len(all); k > 0 && all[k-1].top == b {
				all[k-1].top = t
			}
			continue
		case starts:
			if t > e {
				t = e
			}
		}
		if t > b {
			all = append(all, span{b, t})
		}
	}
	return all, nil
}

func (v *VM) serial() ([]span, error) {
	young := v.heap + v.field("GenCollectedHeap._young_gen", "SerialHeap._young_gen")
	old := v.heap + v.field("GenCollectedHeap._old_gen", "SerialHeap._old_gen")
	at := []genSpace{
		{young, v.field("DefNewGeneration._eden_space")}, {young, v.field("DefNewGeneration._from_space")},
		{young, v.field("DefNewGeneration._to_space")}, {old, v.field("TenuredGeneration._the_space")},
	}
	bottom, top := v.field("Space._bottom", "ContiguousSpace._bottom"), v.field("ContiguousSpace._top")
	if err := v.lacks(); err != nil {
		return nil, err
	}
	return v.spaces(at, bottom, top)
}

func (v *VM) parallel() ([]span, error) {
	young, old := v.static("ParallelScavengeHeap._young_gen"), v.static("ParallelScavengeHeap._old_gen")
	at := []genSpace{
		{young, v.field("PSYoungGen._eden_space")}, {young, v.field("PSYoungGen._from_space")},
		{young, v.field("PSYoungGen._to_space")}, {old, v.field("PSOldGen._object_space")},
	}
	bottom, top := v.field("MutableSpace._bottom"), v.field("MutableSpace._top")
	if err := v.lacks(); err != nil {
		return nil, err
	}
	return v.spaces(at, bottom, top)
}

// genSpace is where a space of a generation is: the address of the pointer to the generation, and the
// offset in it of the pointer to the space.
type genSpace struct{ gen, space uint64 }

// spaces returns the used parts of spaces of generations.
func (v *VM) spaces(at []genSpace, bottom, top uint64) (all []span, err error) {
	for _, a := range at {
		g, err := v.mem.word(a.gen)
		if err != nil {
			return nil, err
		}
		if all, err = v.space(all, g+a.space, bottom, top); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// space appends the used part of a space whose address is at addr.
func (v *VM) space(all []span, addr, bottom, top uint64) ([]span, error) {
	s, err := v.mem.word(addr)
	if err != nil {
		return all, err
	}
	b, err1 := v.mem.word(s + bottom)
	t, err2 := v.mem.word(s + top)
	if err := cmp.Or(err1, err2); err != nil {
		return all, err
	}
	if t > b {
		all = append(all, span{b, t})
	}
	return all, nil
}

// buffer is what of the heap a thread allocates in: objects end at top, and the space goes
// on behind end.
type buffer struct{ start, top, end uint64 }

// thread is a Java thread.
type thread struct {
	addr      uint64 // of its JavaThread
	object    uint64 // java.lang.Thread; 0: it is starting
	low, high uint64 // its stack
	handles   uint64 // of its native frames
	tid       int32  // as the process itself sees it
}

// threads lists the Java threads, and where they allocate.
func (v *VM) threads() (all []thread, tlabs []buffer, err error) {
	f := v.field
	list := v.static("ThreadsSMRSupport._java_thread_list")
	listLength, listThreads := f("ThreadsList._length"), f("ThreadsList._threads")
	object, base, size := f("JavaThread._threadObj"), f("JavaThread._stack_base"), f("JavaThread._stack_size")
	handles, os, tid := f("Thread._active_handles", "JavaThread._active_handles"), f("JavaThread._osthread", "Thread._osthread"), f("OSThread._thread_id")
	tlab, start, top, end := f("Thread._tlab"), f("ThreadLocalAllocBuffer._start"), f("ThreadLocalAllocBuffer._top"), f("ThreadLocalAllocBuffer._end")
	prefetch := v.static("ThreadLocalAllocBuffer._reserve_for_allocation_prefetch")
	if err := v.lacks(); err != nil {
		return nil, nil, err
	}
	// src/hotspot/share/gc/shared/threadLocalAllocBuffer.hpp, end_reserve: HotSpot 25 exports what
	// is kept for a filler; in 17 and 21 it is the header of an array of int.
	reserve := uint64(2)
	if v.compact {
		reserve = 1
	} else if !v.narrowClass {
		reserve = 3
	}
	if at, ok := v.t.Static("CollectedHeap._lab_alignment_reserve"); ok {
		if w, err := v.mem.word(at); err == nil && w < 64 {
			reserve = w
		}
	}
	if p, err := v.mem.half(prefetch); err == nil && p < 1<<16 {
		reserve = max(reserve, uint64(p))
	}
	l, err := v.mem.word(list)
	if err != nil || l == 0 {
		return nil, nil, fmt.Errorf("list of Java threads at %#x: %w", list, err)
	}
	n, err1 := v.mem.half(l + listLength)
	at, err2 := v.mem.word(l + listThreads)
	if err := cmp.Or(err1, err2); err != nil || n > maxThreads {
		return nil, nil, fmt.Errorf("list of %d Java threads: %w", n, err)
	}
	for i := range uint64(n) {
		t := thread{}
		if t.addr, err = v.mem.word(at + 8*i); err != nil {
			return nil, nil, fmt.Errorf("list of Java threads: %w", err)
		}
		t.object = v.mem.handle(t.addr + object)
		high, err1 := v.mem.word(t.addr + base)
		length, err2 := v.mem.word(t.addr + size)
		if err1 == nil && err2 == nil && length <= high {
			t.low, t.high = high-length, high
		}
		t.handles, _ = v.mem.word(t.addr + handles)
		if o, err := v.mem.word(t.addr + os); err == nil && o != 0 {
			id, _ := v.mem.half(o + tid)
			t.tid = int32(id)
		}
		all = append(all, t)
		var b buffer
		b.start, err1 = v.mem.word(t.addr + tlab + start)
		b.top, err2 = v.mem.word(t.addr + tlab + top)
		e, err3 := v.mem.word(t.addr + tlab + end)
		if cmp.Or(err1, err2, err3) == nil && b.start != 0 && b.start <= b.top && b.top <= e {
			b.end = up(e+8*reserve, v.align)
			tlabs = append(tlabs, b)
		}
	}
	slices.SortFunc(tlabs, func(a, b buffer) int { return cmp.Compare(a.start, b.start) })
	return all, tlabs, nil
}

func up(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }
