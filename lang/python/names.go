package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	maxEntries  = 1 << 18 // of a dict
	managedDict = 1 << 4  // Py_TPFLAGS_MANAGED_DICT, from 3.11
	inlineVals  = 1 << 2  // Py_TPFLAGS_INLINE_VALUES, from 3.13
	entryKeyed  = 24      // size of an entry with its hash
	entryPlain  = 16
)

// errNoEntry says that a dict lacks a key.
var errNoEntry = errors.New("no such entry")

// ThreadNames returns the names of threads by State.Ident, as the module threading records them. It
// returns none if that is not imported. Dicts may change during reads; implausible names are left
// out.
func (r *Runtime) ThreadNames(mem io.ReaderAt, interp uint64) (map[uint64]string, error) {
	names := map[uint64]string{}
	modules, err := word(mem, interp+r.l.interpModules)
	if err != nil {
		return names, err
	}
	module, err := r.item(mem, modules, "threading")
	if errors.Is(err, errNoEntry) {
		return names, nil
	}
	if err != nil {
		return names, err
	}
	dict, err := word(mem, module+moduleDict)
	if err != nil {
		return names, err
	}
	active, err := r.item(mem, dict, "_active")
	if err != nil {
		return names, err
	}
	d, err := r.dict(mem, active)
	if err != nil {
		return names, err
	}
	for i := range d.n {
		key, thread := d.entry(i)
		if key == 0 || thread == 0 {
			continue
		}
		ident, err := r.integer(mem, key)
		if err != nil {
			continue
		}
		if at, err := r.attribute(mem, thread, "_name"); err == nil {
			if name, err := r.text(mem, at); err == nil {
				names[ident] = name
			}
		}
	}
	return names, nil
}

// NamesByTID returns the names of all threads that have one, by State.Native.
func (r *Runtime) NamesByTID(mem io.ReaderAt) map[int32]string {
	out := map[int32]string{}
	states, err := r.Threads(mem)
	if err != nil {
		return out
	}
	of := map[uint64]map[uint64]string{}
	for _, s := range states {
		if of[s.Interp] == nil {
			of[s.Interp], _ = r.ThreadNames(mem, s.Interp) // on error, names are missing
		}
		if n := of[s.Interp][s.Ident]; n != "" && s.Native != 0 {
			out[s.Native] = n
		}
	}
	return out
}

// dict holds a dict's entries in insertion order.
type dict struct {
	b      []byte
	n      int
	size   int    // size of an entry
	values []byte // of a dict with shared keys; nil: not shared
}

func (d *dict) entry(i int) (key, value uint64) {
	e := d.b[i*d.size:]
	key, value = le(e, uint64(d.size-16)), le(e, uint64(d.size-8))
	if d.values != nil {
		value = le(d.values, uint64(8*i))
	}
	return key, value
}

// dict reads a dict.
func (r *Runtime) dict(mem io.ReaderAt, addr uint64) (*dict, error) {
	return r.dictUpTo(mem, addr, maxEntries)
}

// dictUpTo reads a dict with at most most entries.
func (r *Runtime) dictUpTo(mem io.ReaderAt, addr, most uint64) (*dict, error) {
	var b [48]byte
	if err := read(mem, b[:], addr); err != nil {
		return nil, err
	}
	values := le(b[:], dictValues)
	if values != 0 && r.img.Minor >= 13 {
		values += 8 // after their count
	}
	return r.keys(mem, le(b[:], dictKeys), values, most)
}

// keys reads a table of keys. values is the address of the values of a dict with shared keys, or 0
// if they are next to the keys.
func (r *Runtime) keys(mem io.ReaderAt, addr, values, most uint64) (*dict, error) {
	var b [40]byte
	if err := read(mem, b[:], addr); err != nil {
		return nil, err
	}
	d := &dict{size: entryKeyed}
	var n, skip uint64
	if r.img.Minor >= 11 { // struct _dictkeysobject in Include/internal/pycore_dict.h
		n, skip = le(b[:], 24), 32
		if b[9] > 40 || b[10] > 2 {
			return nil, fmt.Errorf("no dict's keys at %#x", addr)
		}
		skip += 1 << b[9]
		if b[10] != 0 {
			d.size = entryPlain
		}
	} else { // Objects/dict-common.h
		size := le(b[:], 8)
		n, skip = le(b[:], 32), 40
		switch {
		case size <= 0xff:
			skip += size
		case size <= 0xffff:
			skip += 2 * size
		case size <= 0xffffffff:
			skip += 4 * size
		default:
			return nil, fmt.Errorf("no dict's keys at %#x", addr)
		}
	}
	if n > most {
		return nil, fmt.Errorf("a dict of %d entries at %#x", n, addr)
	}
	d.n = int(n)
	if n == 0 {
		return d, nil
	}
	d.b = make([]byte, d.n*d.size)
	if err := read(mem, d.b, addr+skip); err != nil {
		return nil, err
	}
	if values != 0 {
		d.values = make([]byte, 8*d.n)
		return d, read(mem, d.values, values)
	}
	return d, nil
}

// item returns the value of a key.
func (r *Runtime) item(mem io.ReaderAt, addr uint64, name string) (uint64, error) {
	d, err := r.dict(mem, addr)
	if err != nil {
		return 0, err
	}
	return r.in(mem, d, name)
}

func (r *Runtime) in(mem io.ReaderAt, d *dict, name string) (uint64, error) {
	for i := range d.n {
		key, value := d.entry(i)
		if key == 0 || value == 0 {
			continue
		}
		if s, err := r.text(mem, key); err == nil && s == name {
			return value, nil
		}
	}
	return 0, fmt.Errorf("%q: %w", name, errNoEntry)
}

// attribute returns the attribute of an instance.
func (r *Runtime) attribute(mem io.ReaderAt, obj uint64, name string) (uint64, error) {
	typ, err := word(mem, obj+obType)
	if err != nil {
		return 0, err
	}
	b := make([]byte, r.l.cachedKeys+8)
	if err := read(mem, b, typ); err != nil {
		return 0, err
	}
	flags, off := le(b, typeFlags), le(b, typeDict)
	if r.img.Minor < 11 || flags&managedDict == 0 {
		if off == 0 || off > maxSelfOffset {
			return 0, fmt.Errorf("%q: %w", name, errNoEntry)
		}
		at, err := word(mem, obj+off)
		if err != nil {
			return 0, err
		}
		return r.item(mem, at, name)
	}
	// The dict, or the values of the type's shared keys, is before the object
	// (Include/internal/pycore_object.h).
	at, err := word(mem, obj-24)
	if err != nil {
		return 0, err
	}
	var values uint64
	switch r.img.Minor {
	case 11:
		if values, err = word(mem, obj-32); err != nil {
			return 0, err
		}
	case 12:
		if at&1 != 0 {
			values, at = at+1, 0
		}
	default:
		if flags&inlineVals != 0 && at == 0 {
			values = obj + le(b, typeBasic) + 8
		}
	}
	if values == 0 {
		return r.item(mem, at, name)
	}
	d, err := r.keys(mem, le(b, r.l.cachedKeys), values, maxEntries)
	if err != nil {
		return 0, err
	}
	return r.in(mem, d, name)
}

// integer reads a non-negative int of up to 64 bits.
func (r *Runtime) integer(mem io.ReaderAt, addr uint64) (uint64, error) {
	var b [longDigits + 12]byte
	if err := read(mem, b[:longDigits], addr); err != nil {
		return 0, err
	}
	n := le(b[:], obSize)
	if r.img.Minor >= 12 { // lv_tag: two bits of sign, and a reserved one
		if b[obSize]&3 > 1 {
			n = 0
		} else {
			n >>= 3
		}
	}
	if n == 0 || n > 3 {
		return 0, fmt.Errorf("no fitting int at %#x", addr)
	}
	if err := read(mem, b[longDigits:longDigits+4*n], addr+longDigits); err != nil {
		return 0, err
	}
	var v uint64
	for i := n; i > 0; i-- {
		v = v<<30 | uint64(binary.LittleEndian.Uint32(b[longDigits+4*(i-1):])&(1<<30-1))
	}
	return v, nil
}
