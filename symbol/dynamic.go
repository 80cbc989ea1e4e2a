package symbol

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
)

// maxDynamic bounds the dynamic section, in entries.
const maxDynamic = 1 << 12

// readDynamic finds the dynamic symbols as the loader does, for files whose section
// headers were stripped.
func (t *symtab) readDynamic(m *image) error {
	le := binary.LittleEndian
	var dyn []byte
	for _, p := range m.f.Progs {
		if p.Type == elf.PT_DYNAMIC {
			dyn = make([]byte, min(p.Filesz, maxDynamic*16))
			n, _ := p.ReadAt(dyn, 0)
			dyn = dyn[:n]
		}
	}
	tags := make(map[elf.DynTag]uint64)
	for ; len(dyn) >= 16; dyn = dyn[16:] {
		if tag := elf.DynTag(le.Uint64(dyn)); tag == elf.DT_NULL {
			break
		} else {
			tags[tag] = le.Uint64(dyn[8:])
		}
	}
	if tags[elf.DT_SYMTAB] == 0 || tags[elf.DT_STRTAB] == 0 {
		return nil
	}
	n, err := m.dynamicCount(tags)
	if err != nil {
		return err
	}
	syms, err := m.memory(tags[elf.DT_SYMTAB], n*symSize)
	if err != nil {
		return err
	}
	names, err := m.memory(tags[elf.DT_STRTAB], tags[elf.DT_STRSZ])
	if err != nil {
		return err
	}
	return t.add(syms, names, nil, nil, m)
}

// dynamicCount returns the number of dynamic symbols, which only the hash tables contain.
func (m *image) dynamicCount(tags map[elf.DynTag]uint64) (uint64, error) {
	le := binary.LittleEndian
	if at := tags[elf.DT_HASH]; at != 0 {
		h, err := m.memory(at, 8)
		if err != nil {
			return 0, err
		}
		return min(uint64(le.Uint32(h[4:])), maxSymbols), nil
	}
	at := tags[elf.DT_GNU_HASH]
	if at == 0 {
		return 0, errors.New("no hash table")
	}
	h, err := m.memory(at, 16)
	if err != nil {
		return 0, err
	}
	buckets, first, bloom := uint64(le.Uint32(h)), le.Uint32(h[4:]), uint64(le.Uint32(h[8:]))
	if buckets > maxSymbols || bloom > maxSymbols {
		return 0, errors.New("hash table too large")
	}
	at += 16 + bloom*8
	b, err := m.memory(at, buckets*4)
	if err != nil {
		return 0, err
	}
	last := uint32(0)
	for ; len(b) >= 4; b = b[4:] {
		last = max(last, le.Uint32(b))
	}
	if last < first {
		return uint64(first), nil
	}
	at += buckets * 4
	for last < maxSymbols { // the end of the last chain has its lowest bit set
		c, err := m.memory(at+uint64(last-first)*4, 4)
		if err != nil {
			return 0, err
		}
		last++
		if c[0]&1 != 0 {
			break
		}
	}
	return uint64(last), nil
}

// memory reads what the loader would map at vaddr.
func (m *image) memory(vaddr, n uint64) ([]byte, error) {
	for _, p := range m.f.Progs {
		if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz && n <= p.Filesz-(vaddr-p.Vaddr) {
			return m.readSome(io.NewSectionReader(p, int64(vaddr-p.Vaddr), int64(n)))
		}
	}
	return nil, errors.New("dynamic section points outside the file")
}
