package hotspot

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/stack"
)

type mapping = stack.Mapping

// Root is an object that is alive for a reason outside of the heap.
type Root struct {
	Tag    uint8 // hprof.SubRoot…
	Object uint64
	Handle uint64 // address of a JNI reference
	Thread uint32 // number of the thread from 1, 0: none
	Frame  int32  // of the thread's trace, for SubRootJavaFrame; noFrame: none
}

// Thread is a Java thread as roots number it from 1.
type Thread struct {
	Object uint64
}

// Stack is a native thread at the moment of the copy.
type Stack struct {
	SP   uint64
	Regs stack.Regs
}

// Most blocks, monitors and bytes of a stack that are read.
const (
	maxBlocks   = 1 << 20
	maxMonitors = 1 << 24
	maxStackLen = 1 << 30
)

// roots calls yield for each root. It is called after Scan.
func (h *Heap) roots(ctx context.Context, stacks []Stack, yield func(Root)) error {
	object := func(r Root) {
		if h.Begins(r.Object) {
			yield(r)
		}
	}
	for _, c := range h.Classes {
		if c.dumped() && c.Loader == 0 && !c.Hidden && c.layout > 0 {
			object(Root{Tag: hprof.SubRootSticky, Object: c.Mirror})
		}
	}
	v := h.VM
	if at, ok := v.t.Static("JNIHandles._global_handles"); ok {
		if s, err := v.mem.word(at); err == nil {
			h.storage(s, object)
		}
	}
	if s := v.globalStorage(); s != 0 {
		h.storage(s, object)
	}
	if err := h.monitors(object); err != nil {
		return err
	}
	for i, t := range h.threads {
		if err := ctx.Err(); err != nil {
			return err
		}
		number := uint32(i + 1)
		object(Root{Tag: hprof.SubRootThread, Object: t.object, Thread: number})
		h.handles(t.handles, func(o, at uint64) {
			object(Root{Tag: hprof.SubRootJNILocal, Object: o, Handle: at, Thread: number})
		})
		for _, s := range stacks {
			if s.SP >= t.low && s.SP < t.high && t.high-s.SP <= maxStackLen {
				h.frames(&s, t.high, i, yield)
			}
		}
	}
	return nil
}

// storage reads an OopStorage (src/hotspot/share/gc/shared/oopStorage.inline.hpp of 17, 21
// and 25): an array of blocks, each of 64 references, a bitmap of those in use, and its owner.
func (h *Heap) storage(at uint64, yield func(Root)) {
	m := h.VM.mem
	array, err := m.word(at + 8)
	if err != nil {
		return
	}
	n, err := m.word(array + 8)
	if err != nil || n > maxBlocks {
		return
	}
	for i := range n {
		b, err := m.word(array + 24 + 8*i)
		if err != nil {
			return
		}
		used, err := m.word(b + 512)
		if owner, e := m.word(b + 520); err != nil || e != nil || owner != at {
			return // not the layout that is known
		}
		for k := range uint64(64) {
			if used>>k&1 == 0 {
				continue
			}
			if o, err := m.word(b + 8*k); err == nil {
				yield(Root{Tag: hprof.SubRootJNIGlobal, Object: o, Handle: b + 8*k})
			}
		}
	}
}

// named is an OopStorage.
type named struct {
	name string
	addr uint64
}

// globalStorage returns the OopStorage of the virtual machine itself, which the tables do not have; 0: not found.
func (v *VM) globalStorage() uint64 {
	for _, s := range v.storages() {
		if s.name == "VM Global" {
			return s.addr
		}
	}
	return 0
}

// storages looks for all OopStorages: variables of libjvm.so point to them.
func (v *VM) storages() []named {
	if v.stores != nil {
		return v.stores
	}
	v.stores = []named{}
	seen := map[uint64]bool{}
	last := uint64(0) // where the library's mappings end so far: its zeroed variables follow
	for _, m := range v.maps {
		lib := strings.HasSuffix(m.Path, "/libjvm.so")
		bss := m.Path == "" && m.Start == last
		if !m.Write || !lib && !bss || m.End-m.Start > 64<<20 {
			if lib {
				last = m.End
			}
			continue
		}
		last = m.End
		b := make([]byte, m.End-m.Start)
		n, _ := v.mem.src.ReadAt(b, int64(m.Start))
		for i := 0; i+8 <= n; i += 8 {
			p := le64(b[i:])
			if !plausible(p) || seen[p] {
				continue
			}
			seen[p] = true
			if name := v.storageName(p); name != "" {
				v.stores = append(v.stores, named{name, p})
			}
		}
	}
	return v.stores
}

// plausible reports whether a word may be the address of a structure.
func plausible(p uint64) bool { return p != 0 && p&7 == 0 && p>>47 == 0 }

// storageName returns the name of the OopStorage at addr; "": there is none, or one without references.
func (v *VM) storageName(addr uint64) string {
	var at [16]byte // its name and its array of blocks
	if n, _ := v.mem.src.ReadAt(at[:], int64(addr)); n < len(at) {
		return ""
	}
	name, array := le64(at[:]), le64(at[8:])
	if name == 0 || name>>47 != 0 || !plausible(array) {
		return ""
	}
	var blocks [32]byte // size, number, references to it, the first
	if n, _ := v.mem.src.ReadAt(blocks[:], int64(array)); n < len(blocks) {
		return ""
	}
	size, count, first := le64(blocks[:]), le64(blocks[8:]), le64(blocks[24:])
	if count == 0 || count > size || size > maxBlocks || !plausible(first) {
		return ""
	}
	var owner [8]byte
	if n, _ := v.mem.src.ReadAt(owner[:], int64(first+520)); n < len(owner) || le64(owner[:]) != addr {
		return ""
	}
	var text [64]byte // it is allocated: anywhere
	n, _ := v.mem.src.ReadAt(text[:], int64(name))
	s, _, ended := strings.Cut(string(text[:n]), "\x00")
	if !ended {
		return ""
	}
	return s
}

// handles reads the references of a thread's native frames (src/hotspot/share/runtime/jniHandles.hpp).
func (h *Heap) handles(block uint64, yield func(object, at uint64)) {
	v := h.VM
	top, ok1 := v.t.Field("JNIHandleBlock._top")
	next, ok2 := v.t.Field("JNIHandleBlock._next")
	list, ok3 := v.t.Field("JNIHandleBlock._handles")
	if !ok1 || !ok2 || !ok3 {
		return
	}
	for n := 0; block != 0 && n < maxBlocks; n++ {
		count, err := v.mem.half(block + top)
		if err != nil || count > 32 {
			return
		}
		for i := range uint64(count) {
			at := block + list + 8*i
			if o, err := v.mem.word(at); err == nil && o&1 == 0 { // a freed one is tagged
				yield(o, at)
			}
		}
		if block, err = v.mem.word(block + next); err != nil {
			return
		}
	}
}

// monitors reads the inflated monitors that have an owner.
func (h *Heap) monitors(yield func(Root)) error {
	v := h.VM
	head, ok := v.t.Static("ObjectSynchronizer._in_use_list")
	if !ok {
		return nil
	}
	first, next := v.field("MonitorList._head"), v.field("ObjectMonitor._next_om")
	object, owner := v.field("ObjectMonitor._object"), v.field("ObjectMonitor._owner")
	if err := v.lacks(); err != nil {
		return err
	}
	m, err := v.mem.word(head + first)
	for n := 0; err == nil && m != 0 && n < maxMonitors; n++ {
		if w, e := v.mem.word(m + owner); e == nil && w != 0 {
			yield(Root{Tag: hprof.SubRootMonitor, Object: v.mem.handle(m + object)})
		}
		m, err = v.mem.word(m + next)
	}
	return nil
}

// frames reads the stack of the i-th thread conservatively: each word, and each half of one as a narrow
// reference, that is where an object begins. So it finds all that compiled code has there,
// and now and then one that is dead.
func (h *Heap) frames(s *Stack, high uint64, i int, yield func(Root)) {
	seen := map[Root]bool{}
	root := func(o uint64, thread uint32, frame int32) {
		if thread == 0 {
			thread = uint32(i + 1)
		}
		if r := (Root{Tag: hprof.SubRootJavaFrame, Object: o, Thread: thread, Frame: frame}); !seen[r] {
			seen[r] = true
			yield(r)
		}
	}
	top := owned{frame: noFrame}
	if t := h.traces; t != nil {
		if o, ok := t.top[i]; ok {
			top = o
		}
	}
	for k := range s.Regs.R {
		if s.Regs.Has(k) { // it may hold a reference
			h.word(s.Regs.R[k], 0, func(o, _ uint64) { root(o, top.thread, top.frame) })
		}
	}
	b := make([]byte, 64<<10)
	for at := s.SP &^ 7; at < high; {
		n := min(uint64(len(b)), high-at)
		got, _ := h.VM.mem.src.ReadAt(b[:n], int64(at))
		for k := 0; k+8 <= got; k += 8 {
			h.word(le64(b[k:]), at+uint64(k), func(o, place uint64) {
				h.traces.owners(place, func(thread uint32, frame int32) { root(o, thread, frame) })
			})
		}
		if uint64(got) < n {
			return
		}
		at += n
	}
}

// word calls yield for each object that begins where the word at an address says, or one of its halves, with
// the address of that half.
func (h *Heap) word(w, at uint64, yield func(object, at uint64)) {
	if w == 0 {
		return
	}
	if h.Begins(w) {
		yield(w, at)
	}
	if v := h.VM; v.narrow {
		for k, half := range [2]uint64{w & 0xffffffff, w >> 32} {
			if o := v.base + half<<v.shift; half != 0 && o != w && h.Begins(o) {
				yield(o, at+4*uint64(k))
			}
		}
	}
}

// chunk reads the frames of a virtual thread that is not mounted, conservatively too. It calls yield for
// each word, or half of one, that refers to an object.
func (h *Heap) chunk(o *object, yield func(object, at uint64)) {
	if uint64(len(o.data)) < max(h.chunkSP, h.chunkSize)+4 {
		return
	}
	sp, size := uint64(le32(o.data[h.chunkSP:])), uint64(le32(o.data[h.chunkSize:]))
	begin := uint64(o.class.layout &^ 7)
	if sp > size || begin+8*size > uint64(len(o.data)) {
		return
	}
	for i := sp; i < size; i++ {
		at := begin + 8*i
		h.word(binary.LittleEndian.Uint64(o.data[at:]), o.addr+at, yield)
	}
}
