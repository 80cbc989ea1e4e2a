// Package python counts the objects of a CPython interpreter in memory that does not change,
// without tables of any version: by the first two words of an object, its reference count
// and its type, and by the beginning of a type. This was tried on 3.8 to 3.14 with the
// global interpreter lock.
//
// The memory is that of a process at any moment and untrusted: every loop and length has a
// bound. How it was copied is package snapshot's business. A Census is immutable.
package python

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// The layout of PyObject and of the beginning of PyTypeObject is the same in 3.8 to 3.14
// (Include/object.h, Include/cpython/object.h), in bytes.
const (
	typeOff      = 8   // ob_type
	sizeOff      = 16  // ob_size of a PyVarObject; of an int since 3.12 lv_tag
	nameOff      = 24  // tp_name
	basicSizeOff = 32  // tp_basicsize
	itemSizeOff  = 40  // tp_itemsize
	flagsOff     = 168 // tp_flags
	baseOff      = 256 // tp_base
	typeBytes    = 264
	slot         = 16      // objects begin at multiples of this
	typeSubclass = 1 << 31 // Py_TPFLAGS_TYPE_SUBCLASS
	longSubclass = 1 << 24 // Py_TPFLAGS_LONG_SUBCLASS
	inlineValues = 1 << 2  // Py_TPFLAGS_INLINE_VALUES of 3.13
	managedDict  = 1 << 4  // Py_TPFLAGS_MANAGED_DICT of 3.11
)

const (
	windowBytes = 1 << 20
	maxName     = 512
	maxTypes    = 1 << 20
	maxBasic    = 1 << 20 // bytes of an object of a type without items
	maxItems    = 1 << 40 // bytes of all items of an object
	maxDepth    = 64
	// maxMeta bounds the passes through memory that look for types: each finds the
	// types whose metaclass the pass before has found.
	maxMeta = 4
)

// ErrNone says that there is no CPython in the memory.
var ErrNone = errors.New("no CPython: no object is its own type and called \"type\"")

// Type is a type, and its objects.
type Type struct {
	Addr  uint64
	Name  string // as tp_name has it: without the module, for classes of Python code
	Count uint64
	// Bytes of the objects themselves: what their type and their number of items say. Buffers
	// that an object refers to, such as a list's elements and a string's characters, are not
	// counted.
	Bytes uint64

	basic, item uint64
	isInt       bool
	outside     bool // the address of its attributes is in front of an object
	inline      bool // attributes are behind an object
}

// Census are the objects of an interpreter, by type, those with most bytes first.
type Census struct {
	Types   []*Type
	Objects uint64
	Bytes   uint64
	Scanned uint64 // bytes of memory that were looked through
}

// reader looks through memory.
type reader struct {
	mem    io.ReaderAt
	maps   []stack.Mapping // that may have objects
	types  map[uint64]*Type
	maybe  []uint64 // a bit for each hash of a type's address
	census *Census
	visit  func(addr uint64, t *Type) // called with each object, or nil
}

// Take counts the objects in memory, whose mappings are maps and whose addresses are
// offsets of mem. ErrNone: it is not CPython's.
func Take(ctx context.Context, mem io.ReaderAt, maps []stack.Mapping) (*Census, error) {
	r, err := newReader(ctx, mem, maps)
	if err != nil {
		return nil, err
	}
	return r.take(ctx)
}

// newReader finds the types.
func newReader(ctx context.Context, mem io.ReaderAt, maps []stack.Mapping) (*reader, error) {
	r := &reader{mem: mem, types: map[uint64]*Type{}, maybe: make([]uint64, 1<<10), census: &Census{}}
	for _, m := range maps {
		if m.Write && !strings.HasPrefix(m.Path, "[stack") && !strings.HasPrefix(m.Path, "/dev/") {
			r.maps = append(r.maps, m)
		}
	}
	root, err := r.root(ctx)
	if err != nil {
		return nil, err
	}
	r.add(root)
	for range maxMeta {
		before := len(r.types)
		if err := r.findTypes(ctx); err != nil {
			return nil, err
		}
		if len(r.types) == before {
			break
		}
	}
	return r, nil
}

// take counts the objects of the types.
func (r *reader) take(ctx context.Context) (*Census, error) {
	if err := r.count(ctx); err != nil {
		return nil, err
	}
	c := r.census
	for _, t := range r.types {
		if t.Count > 0 {
			c.Types = append(c.Types, t)
			c.Objects += t.Count
			c.Bytes += t.Bytes
		}
	}
	slices.SortFunc(c.Types, func(a, b *Type) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Addr, b.Addr))
	})
	return c, nil
}

// each calls visit for each 16-byte slot of the mappings.
func (r *reader) each(ctx context.Context, maps []stack.Mapping, visit func(addr uint64, b []byte)) error {
	buf := make([]byte, windowBytes)
	for _, m := range maps {
		for at := m.Start; at < m.End; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(uint64(len(buf)), m.End-at)
			got, err := r.mem.ReadAt(buf[:n], int64(at))
			for i := 0; i+slot <= got; i += slot {
				visit(at+uint64(i), buf[i:got])
			}
			r.census.Scanned += uint64(got)
			if uint64(got) < n {
				if got == 0 && at == m.Start && len(maps) == 1 {
					return fmt.Errorf("memory at %#x: %w", at, err)
				}
				break // the rest of the mapping cannot be read: a hole, or a device
			}
			at += n
		}
	}
	return nil
}

// root finds type itself: the object that is its own type.
func (r *reader) root(ctx context.Context) (*Type, error) {
	var own, others []stack.Mapping
	for i, m := range r.maps {
		name := filepath.Base(m.Path)
		follows := i > 0 && m.Path == "" && r.maps[i-1].End == m.Start && strings.Contains(r.maps[i-1].Path, "python")
		switch {
		case strings.Contains(name, "python"), follows:
			own = append(own, m)
		case m.Path != "" && m.Path[0] == '/':
			others = append(others, m)
		}
	}
	var found *Type
	for _, maps := range [][]stack.Mapping{own, others} {
		err := r.each(ctx, maps, func(addr uint64, b []byte) {
			if found == nil && le(b[typeOff:]) == addr {
				if t := r.typeAt(addr); t != nil && t.Name == "type" {
					found = t
				}
			}
		})
		if err != nil {
			return nil, err
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, ErrNone
}

// typeAt reads a type; nil: it is not one.
func (r *reader) typeAt(addr uint64) *Type {
	var b [typeBytes]byte
	if n, _ := r.mem.ReadAt(b[:], int64(addr)); n < len(b) {
		return nil
	}
	t := &Type{Addr: addr, basic: le(b[basicSizeOff:]), item: le(b[itemSizeOff:]), isInt: le(b[flagsOff:])&longSubclass != 0, outside: le(b[flagsOff:])&managedDict != 0, inline: le(b[flagsOff:])&inlineValues != 0}
	if t.basic < slot || t.basic > maxBasic || t.item > maxBasic {
		return nil
	}
	var name [maxName]byte
	n, _ := r.mem.ReadAt(name[:], int64(le(b[nameOff:])))
	end := slices.Index(name[:n], 0)
	if end <= 0 {
		return nil
	}
	for _, c := range name[:end] {
		if c < ' ' || c == 0x7f {
			return nil
		}
	}
	t.Name = string(name[:end])
	return t
}

// isMeta reports whether the objects of a type are types: it is type, or derived from it.
func (r *reader) isMeta(addr uint64) bool {
	var b [8]byte
	if n, _ := r.mem.ReadAt(b[:], int64(addr+flagsOff)); n < len(b) {
		return false
	}
	return le(b[:])&typeSubclass != 0
}

func (r *reader) add(t *Type) {
	if len(r.types) < maxTypes {
		r.types[t.Addr] = t
		h := hash(t.Addr)
		r.maybe[h>>6] |= 1 << (h & 63)
	}
}

// hash is a number below 1<<16 for an address of a type.
func hash(addr uint64) uint64 { return (addr >> 4 * 0x9e3779b97f4a7c15) >> 48 }

// typeOf returns the type of the object that b begins with, nil if it is not one.
func (r *reader) typeOf(b []byte) *Type {
	t := le(b[typeOff:])
	if t&7 != 0 || !counted(le(b)) {
		return nil
	}
	if h := hash(t); r.maybe[h>>6]>>(h&63)&1 == 0 {
		return nil
	}
	if r.address(le(b)) {
		return nil
	}
	return r.types[t]
}

// address reports whether a word that may be a reference count is more likely an address: a program that is not
// position-independent has its heap below 4 GiB.
func (r *reader) address(w uint64) bool {
	const rare = 1 << 20 // references to one object
	if w < rare || w%8 != 0 || w < r.maps[0].Start || w >= 1<<32 {
		return false
	}
	i := sort.Search(len(r.maps), func(i int) bool { return r.maps[i].End > w })
	return i < len(r.maps) && w >= r.maps[i].Start
}

// counted reports whether a word is a reference count: above 0 and below 1<<32, which is that of immortal objects
// in 3.12 and 3.13. 3.14 has flags in the upper 16 bits. A free block has a link in its place, or 0.
func counted(w uint64) bool {
	const flags = 1 << 6
	return uint32(w) != 0 && w>>32&0xffff == 0 && w>>48 < flags
}

// findTypes looks for objects whose type is a metaclass.
func (r *reader) findTypes(ctx context.Context) error {
	meta := map[*Type]bool{}
	return r.each(ctx, r.maps, func(addr uint64, b []byte) {
		t := r.typeOf(b)
		if t == nil || r.types[addr] != nil {
			return
		}
		is, known := meta[t]
		if !known {
			is = r.isMeta(t.Addr)
			meta[t] = is
		}
		if is {
			if t := r.typeAt(addr); t != nil {
				r.add(t)
			}
		}
	})
}

func (r *reader) count(ctx context.Context) error {
	r.census.Scanned = 0
	return r.each(ctx, r.maps, func(addr uint64, b []byte) {
		t := r.typeOf(b)
		if t == nil {
			return
		}
		t.Count++
		t.Bytes += r.sizeOf(t, addr, b)
		if r.visit != nil {
			r.visit(addr, t)
		}
	})
}

// sizeOf returns the size of the object at addr that begins with b. One with more items than its mapping
// has room for is dead memory that looks like an object: it counts without items.
func (r *reader) sizeOf(t *Type, addr uint64, b []byte) uint64 {
	size := t.basic
	if t.item > 0 && len(b) >= sizeOff+8 {
		n := le(b[sizeOff:])
		switch {
		case t.isInt && n>>62 == 0 && n > 7:
			n >>= 3 // lv_tag of 3.12: the number of digits above 3 bits
		case int64(n) < 0:
			n = -n // a negative int up to 3.11
		}
		if n <= maxItems/t.item {
			size += n * t.item
		}
	}
	if size > t.basic+slot*slot {
		i := sort.Search(len(r.maps), func(i int) bool { return r.maps[i].End > addr })
		if i == len(r.maps) || size > r.maps[i].End-addr {
			return t.basic
		}
	}
	return size
}

func le(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
