package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf/btf"
)

// vmlinux is the type information of the running kernel (CONFIG_DEBUG_INFO_BTF).
const vmlinux = "/sys/kernel/btf/vmlinux"

// types finds single types in BTF (Documentation/bpf/btf.rst of Linux, include/uapi/linux/btf.h). Package btf decodes all
// types first, which takes ten times as long: a twentieth of sliver's CPU time for a build of two seconds.
type types struct {
	all   []byte   // the section of types
	names []byte   // the section of strings
	some  []uint32 // where every typesEvery-th type begins in all, from type 1 on
	count int
}

// Bounds on the input.
const (
	typesEvery  = 64
	maxTypes    = 64 << 20 // bytes
	maxModifier = 32       // types between a member and its structure
	maxInner    = 16       // structures inside each other
)

// Kinds of types (enum in linux/btf.h).
const (
	kindInt       = 1
	kindPtr       = 2
	kindArray     = 3
	kindStruct    = 4
	kindUnion     = 5
	kindEnum      = 6
	kindFwd       = 7
	kindTypedef   = 8
	kindVolatile  = 9
	kindConst     = 10
	kindRestrict  = 11
	kindFunc      = 12
	kindFuncProto = 13
	kindVar       = 14
	kindDatasec   = 15
	kindFloat     = 16
	kindDeclTag   = 17
	kindTypeTag   = 18
	kindEnum64    = 19
)

// typeHead is the size of struct btf_type in bytes, memberBytes that of struct btf_member.
const (
	typeHead    = 12
	memberBytes = 12
)

var errBTF = errors.New("broken type information")

// kernelTypes reads the types of the running kernel.
func kernelTypes() (*types, error) {
	b, err := os.ReadFile(vmlinux)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTypes, err)
	}
	t, err := parseTypes(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTypes, vmlinux, err)
	}
	return t, nil
}

// parseTypes reads struct btf_header, and where the types begin.
func parseTypes(b []byte) (*types, error) {
	const magic, header = 0xeb9f, 24
	ne := binary.NativeEndian
	if len(b) < header || ne.Uint16(b) != magic || b[2] != 1 {
		return nil, errBTF
	}
	cut := func(off, n uint32) []byte {
		lo := uint64(ne.Uint32(b[4:])) + uint64(off)
		if hi := lo + uint64(n); hi <= uint64(len(b)) && n <= maxTypes {
			return b[lo:hi]
		}
		return nil
	}
	t := &types{all: cut(ne.Uint32(b[8:]), ne.Uint32(b[12:])), names: cut(ne.Uint32(b[16:]), ne.Uint32(b[20:]))}
	for at := 0; at < len(t.all); t.count++ {
		if t.count%typesEvery == 0 {
			t.some = append(t.some, uint32(at))
		}
		n, ok := t.size(at)
		if !ok {
			return nil, fmt.Errorf("%w: at %d of %d bytes", errBTF, at, len(t.all))
		}
		at += n
	}
	if t.count == 0 || len(t.names) == 0 {
		return nil, errBTF
	}
	return t, nil
}

func (t *types) word(at int) uint32 { return binary.NativeEndian.Uint32(t.all[at:]) }

// kind and members of the type at a place that size has accepted.
func (t *types) kind(at int) uint32 { return t.word(at+4) >> 24 & 0x1f }
func (t *types) vlen(at int) int    { return int(t.word(at+4) & 0xffff) }

// size returns how many bytes the type at a place has.
func (t *types) size(at int) (n int, ok bool) {
	if at+typeHead > len(t.all) {
		return 0, false
	}
	n = typeHead
	switch t.kind(at) {
	case kindInt, kindVar, kindDeclTag:
		n += 4
	case kindArray:
		n += 12
	case kindStruct, kindUnion, kindDatasec, kindEnum64:
		n += 12 * t.vlen(at)
	case kindEnum, kindFuncProto:
		n += 8 * t.vlen(at)
	case kindPtr, kindFwd, kindTypedef, kindVolatile, kindConst, kindRestrict, kindFunc, kindFloat, kindTypeTag:
	default:
		return 0, false
	}
	return n, at+n <= len(t.all)
}

// at returns where a type is. Types are numbered from 1.
func (t *types) at(id uint32) (at int, ok bool) {
	if id == 0 || uint64(id) > uint64(t.count) {
		return 0, false
	}
	i := int(id - 1)
	at = int(t.some[i/typesEvery])
	for range i % typesEvery {
		n, _ := t.size(at)
		at += n
	}
	return at, true
}

// is reports whether the string at an offset is name.
func (t *types) is(off uint32, name string) bool {
	end := uint64(off) + uint64(len(name))
	return end < uint64(len(t.names)) && t.names[end] == 0 && string(t.names[off:end]) == name
}

// find returns the number and the place of the first type of a kind and a name.
func (t *types) find(kind uint32, name string) (id uint32, at int, ok bool) {
	// The linker keeps one copy of each string, so offsets are compared first.
	first := bytes.Index(t.names, append(append([]byte{0}, name...), 0))
	if first < 0 {
		return 0, 0, false
	}
	for i := 0; i < t.count; i++ {
		if t.kind(at) == kind {
			if off := t.word(at); off == uint32(first)+1 || off > uint32(first) && t.is(off, name) {
				return uint32(i + 1), at, true
			}
		}
		n, _ := t.size(at)
		at += n
	}
	return 0, 0, false
}

// function returns the number of a function that programs may call.
func (t *types) function(name string) (btf.TypeID, error) {
	id, _, ok := t.find(kindFunc, name)
	if !ok {
		return 0, fmt.Errorf("%w: programs have no %s", ErrTypes, name)
	}
	return btf.TypeID(id), nil
}

// offset returns where a member is in a structure, in bytes.
func (t *types) offset(of string, path []string) (uint32, error) {
	_, at, ok := t.find(kindStruct, of)
	if !ok {
		return 0, fmt.Errorf("%w: no struct %s", ErrTypes, of)
	}
	off, ok := t.member(at, path, maxInner)
	if !ok {
		return 0, fmt.Errorf("struct %s has no member %v", of, path)
	}
	return off, nil
}

// member finds a member of the structure at a place, also in structures without a name.
func (t *types) member(at int, path []string, depth int) (off uint32, ok bool) {
	if depth == 0 || len(path) == 0 || path[0] == "" {
		return 0, false
	}
	fields := t.word(at+4)>>31 != 0 // the upper 8 bits of offsets are the size of a bit field
	for i := range t.vlen(at) {
		m := at + typeHead + i*memberBytes
		bits := t.word(m + 8)
		if fields {
			bits &= 1<<24 - 1
		}
		own := t.is(t.word(m), path[0])
		if own && len(path) == 1 {
			return bits / 8, true
		}
		if !own && !t.is(t.word(m), "") {
			continue
		}
		rest := path
		if own {
			rest = path[1:]
		}
		in, is := t.structure(t.word(m + 4))
		if is {
			if off, ok = t.member(in, rest, depth-1); ok {
				return bits/8 + off, true
			}
		}
		if own {
			return 0, false
		}
	}
	return 0, false
}

// structure returns where the structure or union is that a type is, through typedefs and qualifiers.
func (t *types) structure(id uint32) (at int, ok bool) {
	for range maxModifier {
		if at, ok = t.at(id); !ok {
			return 0, false
		}
		switch t.kind(at) {
		case kindStruct, kindUnion:
			return at, true
		case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
			id = t.word(at + 8)
		default:
			return 0, false
		}
	}
	return 0, false
}
