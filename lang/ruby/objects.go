package ruby

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Types and flags of objects: include/ruby/internal/value_type.h, fl_type.h, core/rstring.h and
// core/rarray.h.
const (
	typeMask   = 0x1f
	typeClass  = 0x02
	typeModule = 0x03
	typeString = 0x05
	typeArray  = 0x07
	typeImemo  = 0x1a
	user       = 12              // first bit of the flags for each type
	noEmbed    = 1 << (user + 1) // RSTRING_NOEMBED
	embed      = 1 << (user + 1) // RARRAY_EMBED_FLAG
	singleton  = 1 << (user + 1) // RCLASS_SINGLETON in 3.4
	imemoMask  = 0x0f
	imemoSvar  = 2
	imemoEntry = 6
	imemoISeq  = 7
)

// maxText bounds a label or a path, in bytes.
const maxText = 4096

// flags reads the flags of the object v.
func flags(mem io.ReaderAt, v uint64) (uint64, error) {
	if !pointer(v) {
		return 0, fmt.Errorf("no object at %#x", v)
	}
	return word(mem, v)
}

// stringOf reads the String v.
func (r *Runtime) stringOf(mem io.ReaderAt, v uint64) (string, error) {
	var b [32]byte
	if !pointer(v) {
		return "", fmt.Errorf("no String at %#x", v)
	}
	if err := read(mem, b[:], v); err != nil {
		return "", err
	}
	f := le(b[:], 0)
	if f&typeMask != typeString {
		return "", fmt.Errorf("no String at %#x", v)
	}
	n, at := le(b[:], stringLen), le(b[:], stringPtr)
	if f&noEmbed == 0 {
		if at = v + r.l.stringData; r.img.Minor == 1 {
			n = f >> (user + 2) & 0x1f // RSTRING_EMBED_LEN_MASK
		}
	}
	if n > maxText {
		return "", fmt.Errorf("the String at %#x has %d bytes; at most %d are read", v, n, maxText)
	}
	data := make([]byte, n)
	if n > 0 {
		if err := read(mem, data, at); err != nil {
			return "", err
		}
	}
	if s := string(data); utf8.ValidString(s) {
		return s, nil
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), nil
}

// element returns the i-th element of the Array v.
func (r *Runtime) element(mem io.ReaderAt, v, i uint64) (uint64, error) {
	var b [40]byte
	if !pointer(v) {
		return 0, fmt.Errorf("no Array at %#x", v)
	}
	if err := read(mem, b[:], v); err != nil {
		return 0, err
	}
	f := le(b[:], 0)
	if f&typeMask != typeArray {
		return 0, fmt.Errorf("no Array at %#x", v)
	}
	n, at := le(b[:], arrayLen), le(b[:], arrayPtr)
	if f&embed != 0 {
		mask := uint64(0x7f) // RARRAY_EMBED_LEN_MASK
		if r.img.Minor == 1 {
			mask = 3
		}
		n, at = f>>(user+3)&mask, v+arrayData
	}
	if i >= n {
		return 0, fmt.Errorf("the Array at %#x has %d elements, and none of number %d", v, n, i)
	}
	return word(mem, at+8*i)
}

// perEntry is the number of symbols in one Array of rb_symbols_t.ids (ID_ENTRY_UNIT, symbol.c). Each
// has two elements: its String, and the Symbol.
const perEntry = 512

// named returns the name of the symbol with a number (rb_id_serial_t).
func (r *Runtime) named(mem io.ReaderAt, symbols, serial uint64) (string, error) {
	ids, err := word(mem, symbols+16)
	if err != nil {
		return "", err
	}
	if serial > maxSerial {
		return "", fmt.Errorf("no symbol has the number %d", serial)
	}
	part, err := r.element(mem, ids, serial/perEntry)
	if err != nil {
		return "", err
	}
	s, err := r.element(mem, part, serial%perEntry*2)
	if err != nil {
		return "", err
	}
	return r.stringOf(mem, s)
}

// lastOperator returns the largest ID that is its own number: tLAST_OP_ID of id.h.
func (r *Runtime) lastOperator() uint64 {
	if r.img.Minor == 4 {
		return 170
	}
	return 169
}

// idName returns the name of an ID (RUBY_ID_SCOPE_SHIFT in id.h is 4).
func (r *Runtime) idName(mem io.ReaderAt, id uint64) (string, error) {
	if id > r.lastOperator() {
		id >>= 4
	}
	return r.named(mem, r.symbols, id)
}

// className returns the name of a class or module as labels show it; "" if it has none. It exists from
// 3.3 on.
func (r *Runtime) className(mem io.ReaderAt, class uint64) (string, error) {
	var b [8 + extPath - extPermanent/8*8]byte
	at := class + classExt + extPermanent/8*8
	if err := read(mem, b[:], at); err != nil {
		return "", err
	}
	path := le(b[:], extPath-extPermanent/8*8)
	if b[extPermanent%8]&1 == 0 || !pointer(path) {
		return "", nil
	}
	return r.stringOf(mem, path)
}

// owned puts the name of a method's owner before its name, as 3.4 does (rb_gen_method_name in
// vm_backtrace.c).
func (r *Runtime) owned(mem io.ReaderAt, owner uint64, name string) (string, error) {
	if !pointer(owner) {
		return name, nil
	}
	f, err := flags(mem, owner)
	if err != nil {
		return "", err
	}
	if t := f & typeMask; t != typeClass && t != typeModule {
		return name, nil
	}
	sep := "#"
	if f&typeMask == typeClass && f&singleton != 0 {
		if owner, err = word(mem, owner+classExt+extAttached); err != nil {
			return "", err
		}
		if !pointer(owner) {
			return name, nil
		}
		if f, err = flags(mem, owner); err != nil {
			return "", err
		}
		if t := f & typeMask; t != typeClass && t != typeModule {
			return name, nil
		}
		sep = "."
	}
	class, err := r.className(mem, owner)
	if err != nil || class == "" {
		return name, err
	}
	return class + sep + name, nil
}

func le32(b []byte, off uint64) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
