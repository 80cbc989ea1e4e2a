package jvm

import (
	"fmt"
	"io"
)

// Tables are the offsets, addresses and constants that a HotSpot library describes itself
// with. They are immutable.
type Tables struct {
	s     *structs
	Major int // of its version
}

// ReadTables reads them from the memory of a process in which img is bias above its vaddrs.
// A *VersionError: the version is not one of those that were tried.
func ReadTables(img *Image, bias uint64, mem io.ReaderAt) (*Tables, error) {
	s, err := readStructs(img, bias, &pages{mem: mem, kept: map[uint64][]byte{}})
	if err != nil {
		return nil, fmt.Errorf("read HotSpot's tables: %w", err)
	}
	version := s.static["Abstract_VM_Version._vm_major_version"]
	if version == 0 {
		return nil, &VersionError{Why: "its tables lack the version"}
	}
	n, err := half(mem, version)
	if err != nil {
		return nil, fmt.Errorf("read HotSpot's version: %w", err)
	}
	if !tried(int64(int32(n))) {
		return nil, &VersionError{fmt.Sprint(int32(n)), "17, 21 and 25 are supported"}
	}
	return &Tables{s, int(int32(n))}, nil
}

// Field returns the offset in bytes of the first of these fields ("Type.field") that exists.
func (t *Tables) Field(names ...string) (off uint64, ok bool) {
	for _, n := range names {
		if off, ok := t.s.offset[n]; ok {
			return off, true
		}
	}
	return 0, false
}

// Static returns the address of the first of these static fields that exists.
func (t *Tables) Static(names ...string) (addr uint64, ok bool) {
	for _, n := range names {
		if a := t.s.static[n]; a != 0 {
			return a, true
		}
	}
	return 0, false
}

// Size returns the bytes of a type.
func (t *Tables) Size(name string) (bytes uint64, ok bool) {
	n, ok := t.s.size[name]
	return n, ok && n != 0
}

// Constant returns the value of the first of these constants that exists.
func (t *Tables) Constant(names ...string) (v int64, ok bool) {
	for _, n := range names {
		if v, ok := t.s.value[n]; ok {
			return v, true
		}
	}
	return 0, false
}

// Flags returns the addresses of the values of HotSpot's flags by name.
func (t *Tables) Flags(mem io.ReaderAt) (map[string]uint64, error) {
	g := &lookup{s: t.s}
	flags, count, size := g.static("JVMFlag.flags"), g.static("JVMFlag.numFlags"), g.size("JVMFlag")
	nameAt, addrAt := g.field("JVMFlag._name"), g.field("JVMFlag._addr")
	if err := g.err(t.Major); err != nil {
		return nil, err
	}
	fast := &pages{mem: mem, kept: map[uint64][]byte{}}
	at, err := word(fast, flags)
	if err != nil {
		return nil, err
	}
	n, err := word(fast, count)
	if err != nil {
		return nil, err
	}
	all := map[string]uint64{}
	for i := range min(n, maxFlags) {
		p, err1 := word(fast, at+i*size+nameAt)
		v, err2 := word(fast, at+i*size+addrAt)
		if err1 != nil || err2 != nil || p == 0 || v == 0 {
			continue
		}
		if name, err := cstring(fast, p); err == nil {
			all[name] = v
		}
	}
	return all, nil
}
