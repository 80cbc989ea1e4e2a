package jvm

import (
	"fmt"
	"io"
)

const (
	// maxEntries bounds each of HotSpot's tables, which have up to 2,100 entries. maxStride bounds
	// the size of an entry, in bytes.
	maxEntries = 1 << 14
	maxStride  = 256
	// maxOffset bounds the offset of a field, and maxStruct the size of a structure.
	maxOffset = 1 << 14
	maxStruct = 1 << 14
)

// structs is HotSpot's description of itself.
type structs struct {
	offset map[string]uint64 // fields: "Type.field" → offset in bytes
	static map[string]uint64 // static fields: → address
	size   map[string]uint64 // types, in bytes
	value  map[string]int64  // constants
}

// table is one of HotSpot's tables: its address, the stride of its entries, and the offsets of the
// columns in an entry.
type table struct {
	at, stride uint64
	column     []uint64
}

// readStructs reads HotSpot's tables. mem should be a cache.
func readStructs(img *Image, bias uint64, mem io.ReaderAt) (*structs, error) {
	s := &structs{offset: map[string]uint64{}, static: map[string]uint64{}, size: map[string]uint64{}, value: map[string]int64{}}
	at := func(name string) (uint64, error) {
		v, ok := img.syms[name]
		if !ok {
			return 0, fmt.Errorf("no symbol %s", name)
		}
		return word(mem, v+bias)
	}
	find := func(which, entry string, columns ...string) (t table, err error) {
		if t.at, err = at(which); err != nil {
			return t, err
		}
		if t.stride, err = at(entry + "ArrayStride"); err != nil {
			return t, err
		}
		if t.at == 0 || t.stride == 0 || t.stride > maxStride {
			return t, fmt.Errorf("%w: %s at %#x, entries of %d bytes", ErrNotReady, which, t.at, t.stride)
		}
		for _, c := range columns {
			off, err := at(entry + c + "Offset")
			if err != nil {
				return t, err
			}
			if off > t.stride-4 {
				return t, fmt.Errorf("%s: %s of an entry at %d of %d bytes", which, c, off, t.stride)
			}
			t.column = append(t.column, off)
		}
		return t, nil
	}
	texts := map[uint64]string{}
	text := func(addr uint64) (string, error) {
		if addr == 0 {
			return "", nil
		}
		if v, ok := texts[addr]; ok {
			return v, nil
		}
		v, err := cstring(mem, addr)
		if err == nil {
			texts[addr] = v
		}
		return v, err
	}
	// each calls f with the name of each entry and the entry.
	each := func(t table, f func(name string, b []byte) error) error {
		b := make([]byte, t.stride+8)
		for i := range uint64(maxEntries) {
			if err := read(mem, b[:t.stride], t.at+i*t.stride); err != nil {
				return err
			}
			name := u64(b, t.column[0])
			if name == 0 {
				return nil
			}
			what, err := text(name)
			if err != nil {
				return err
			}
			if err := f(what, b); err != nil {
				return err
			}
		}
		return fmt.Errorf("a table at %#x has no end", t.at)
	}
	t, err := find("gHotSpotVMStructs", "gHotSpotVMStructEntry", "TypeName", "FieldName", "IsStatic", "Offset", "Address")
	if err == nil {
		err = each(t, func(typ string, b []byte) error {
			field, err := text(u64(b, t.column[1]))
			if err != nil {
				return err
			}
			key := typ + "." + field
			if u32(b, t.column[2]) != 0 {
				s.static[key] = u64(b, t.column[4])
			} else if off := u64(b, t.column[3]); off < maxOffset {
				s.offset[key] = off
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	if t, err = find("gHotSpotVMTypes", "gHotSpotVMTypeEntry", "TypeName", "Size"); err == nil {
		err = each(t, func(typ string, b []byte) error {
			if n := u64(b, t.column[1]); n <= maxStruct {
				s.size[typ] = n
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	if t, err = find("gHotSpotVMIntConstants", "gHotSpotVMIntConstantEntry", "Name", "Value"); err == nil {
		err = each(t, func(name string, b []byte) error {
			s.value[name] = int64(int32(u32(b, t.column[1])))
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	if t, err = find("gHotSpotVMLongConstants", "gHotSpotVMLongConstantEntry", "Name", "Value"); err == nil {
		err = each(t, func(name string, b []byte) error {
			s.value[name] = int64(u64(b, t.column[1]))
			return nil
		})
	}
	return s, err
}
