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
	r := &tableReader{img: img, bias: bias, mem: mem, texts: map[uint64]string{}}
	for _, fill := range [...]func(*tableReader) error{s.readFields, s.readTypes, s.readInts, s.readLongs} {
		if err := fill(r); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *structs) readFields(r *tableReader) error {
	return r.each("gHotSpotVMStructs", "gHotSpotVMStructEntry", []string{"TypeName", "FieldName", "IsStatic", "Offset", "Address"}, func(typ string, t *table, b []byte) error {
		field, err := r.text(u64(b, t.column[1]))
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

func (s *structs) readTypes(r *tableReader) error {
	return r.each("gHotSpotVMTypes", "gHotSpotVMTypeEntry", []string{"TypeName", "Size"}, func(typ string, t *table, b []byte) error {
		if n := u64(b, t.column[1]); n <= maxStruct {
			s.size[typ] = n
		}
		return nil
	})
}

func (s *structs) readInts(r *tableReader) error {
	return r.each("gHotSpotVMIntConstants", "gHotSpotVMIntConstantEntry", []string{"Name", "Value"}, func(name string, t *table, b []byte) error {
		s.value[name] = int64(int32(u32(b, t.column[1])))
		return nil
	})
}

func (s *structs) readLongs(r *tableReader) error {
	return r.each("gHotSpotVMLongConstants", "gHotSpotVMLongConstantEntry", []string{"Name", "Value"}, func(name string, t *table, b []byte) error {
		s.value[name] = int64(u64(b, t.column[1]))
		return nil
	})
}

// A tableReader reads HotSpot's tables by the symbols that describe them.
type tableReader struct {
	img   *Image
	bias  uint64
	mem   io.ReaderAt
	texts map[uint64]string // by address
}

// symbol returns the word at a symbol.
func (r *tableReader) symbol(name string) (uint64, error) {
	v, ok := r.img.syms[name]
	if !ok {
		return 0, fmt.Errorf("no symbol %s", name)
	}
	return word(r.mem, v+r.bias)
}

// find returns the table at a symbol, whose entries have these columns.
func (r *tableReader) find(which, entry string, columns []string) (t table, err error) {
	if t.at, err = r.symbol(which); err != nil {
		return t, err
	}
	if t.stride, err = r.symbol(entry + "ArrayStride"); err != nil {
		return t, err
	}
	if t.at == 0 || t.stride == 0 || t.stride > maxStride {
		return t, fmt.Errorf("%w: %s at %#x, entries of %d bytes", ErrNotReady, which, t.at, t.stride)
	}
	for _, c := range columns {
		off, err := r.symbol(entry + c + "Offset")
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

// text returns the string at an address, "" for address 0.
func (r *tableReader) text(addr uint64) (string, error) {
	if addr == 0 {
		return "", nil
	}
	if v, ok := r.texts[addr]; ok {
		return v, nil
	}
	v, err := cstring(r.mem, addr)
	if err == nil {
		r.texts[addr] = v
	}
	return v, err
}

// each calls f with each entry of a table, and with the entry's name, which is its first column. An
// entry without a name ends the table.
func (r *tableReader) each(which, entry string, columns []string, f func(name string, t *table, b []byte) error) error {
	t, err := r.find(which, entry, columns)
	if err != nil {
		return err
	}
	b := make([]byte, t.stride+8)
	for i := range uint64(maxEntries) {
		if err := read(r.mem, b[:t.stride], t.at+i*t.stride); err != nil {
			return err
		}
		name := u64(b, t.column[0])
		if name == 0 {
			return nil
		}
		what, err := r.text(name)
		if err != nil {
			return err
		}
		if err := f(what, &t, b); err != nil {
			return err
		}
	}
	return fmt.Errorf("a table at %#x has no end", t.at)
}
