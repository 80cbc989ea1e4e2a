package gopcln

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	maxSteps   = 1 << 20 // entries of one function's table: one per instruction of a 4 MB function
	maxTables  = 64      // pcdata or funcdata tables of a function; Go has 5 and 8
	maxStringB = 64 << 10
)

var errTable = errors.New("damaged pclntab")

// fn is one function's entry.
type fn struct {
	entry, end uint64 // vaddr
	at         uint64 // of its _func, from the table's start
	name       uint32
	deferred   uint32 // offset of its call of deferreturn from entry; 0: none
	pcsp       uint32
	pcfile     uint32
	pcln       uint32
	npcdata    uint32
	cu         uint32
	id, flag   uint8
	nfuncdata  uint8
	tables     uint64 // of pcdata, from the table's start
}

// Flags of a function (abi.FuncFlag), since 1.17.
const (
	flagTop = 1 << iota
	flagSPWrite
	flagAsm
)

// read fills b from off, relative to the table's start.
func (t *Table) read(b []byte, off uint64) error {
	if off > t.size || t.size-off < uint64(len(b)) {
		return fmt.Errorf("%w: %d bytes at %#x of %#x", errTable, len(b), off, t.size)
	}
	return t.img.readOff(b, t.off+int64(off))
}

func (t *Table) u32(off uint64) (uint32, error) {
	var b [4]byte
	err := t.read(b[:], off)
	return binary.LittleEndian.Uint32(b[:]), err
}

// ftabField returns the size of a field of the function table.
func (h *header) ftabField() uint64 {
	if h.magic == magic116 {
		return 8
	}
	return 4
}

// value returns field i of the function table. The entries are (start, offset of the _func),
// followed by the end of the last function.
func (t *Table) value(i uint64) (uint64, error) {
	var b [8]byte
	n := t.ftabField()
	err := t.read(b[:n], t.funcs+i*n)
	return binary.LittleEndian.Uint64(b[:]), err
}

// entry returns the vaddr of function i, or of the end of all functions for i = nfunc.
func (t *Table) entry(i uint64) (uint64, error) {
	v, err := t.value(2 * i)
	if err != nil || t.magic == magic116 {
		return v, err
	}
	return t.textAddr(v), nil
}

// textAddr is runtime.(*moduledata).textAddr.
func (t *Table) textAddr(off uint64) uint64 {
	for i, s := range t.sections {
		if off >= s.off && off < s.end || i == len(t.sections)-1 && off == s.end {
			return s.vaddr + off - s.off
		}
	}
	return t.text + off
}

// find returns the function that contains vaddr, or an error that wraps rule.ErrNoRule if there is
// none.
func (t *Table) find(vaddr uint64, f *fn) error {
	if vaddr < t.first || vaddr >= t.last {
		return fmt.Errorf("go function at %#x: %w", vaddr, rule.ErrNoRule)
	}
	lo, hi := uint64(0), t.nfunc // entry(lo) <= vaddr < entry(hi)
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		e, err := t.entry(mid)
		if err != nil {
			return err
		}
		if e <= vaddr {
			lo = mid
		} else {
			hi = mid
		}
	}
	if err := t.load(lo, f); err != nil {
		return err
	}
	if vaddr < f.entry || vaddr >= f.end { // between two text sections, or an unsorted table
		return fmt.Errorf("go function at %#x: %w", vaddr, rule.ErrNoRule)
	}
	return nil
}

// load reads function i. Layout: runtime._func in src/runtime/runtime2.go of
// 1.16 (absolute entry), 1.18 (entry offset) and 1.20 (startLine).
func (t *Table) load(i uint64, f *fn) error {
	var err error
	if f.entry, err = t.entry(i); err != nil {
		return err
	}
	if f.end, err = t.entry(i + 1); err != nil {
		return err
	}
	off, err := t.value(2*i + 1)
	if err != nil {
		return err
	}
	if off > t.size-t.funcs {
		return fmt.Errorf("%w: function %d at %#x", errTable, i, off)
	}
	f.at = t.funcs + off
	var b [44]byte
	size, skip := 44, 0
	switch t.magic {
	case magic116:
		skip = 4
	case magic118:
		size = 40
	}
	if err := t.read(b[:size], f.at); err != nil {
		return err
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[skip+4*i:]) }
	f.name, f.deferred, f.pcsp, f.pcfile, f.pcln, f.npcdata, f.cu = word(1), word(3), word(4), word(5), word(6), word(7), word(8)
	f.id, f.flag, f.nfuncdata = b[size-4], b[size-3], b[size-1]
	f.tables = f.at + uint64(size)
	if f.npcdata > maxTables || f.nfuncdata > maxTables {
		return fmt.Errorf("%w: function at %#x has %d pcdata and %d funcdata tables", errTable, f.entry, f.npcdata, f.nfuncdata)
	}
	return nil
}

// steps walks a pc-value table of f. It calls visit with each value and its range of vaddrs [lo,
// hi) until visit returns false. Encoding: step in src/runtime/symtab.go.
func (t *Table) steps(f *fn, table uint32, visit func(val int32, lo, hi uint64) bool) error {
	var buf [64]byte
	in, have, pos := 0, 0, t.pc+uint64(table)
	next := func() (byte, error) {
		if in == have {
			n := uint64(len(buf))
			if pos >= t.size {
				return 0, fmt.Errorf("%w: pc table of %#x ends at %#x", errTable, f.entry, pos)
			}
			n = min(n, t.size-pos)
			if err := t.read(buf[:n], pos); err != nil {
				return 0, err
			}
			in, have, pos = 0, int(n), pos+n
		}
		in++
		return buf[in-1], nil
	}
	varint := func() (v uint32, err error) {
		for shift := 0; shift < 35; shift += 7 {
			b, err := next()
			if err != nil {
				return 0, err
			}
			v |= uint32(b&0x7f) << shift
			if b < 0x80 {
				return v, nil
			}
		}
		return 0, fmt.Errorf("%w: number before %#x too long", errTable, pos)
	}
	val, pc := int32(-1), f.entry
	for i := 0; i < maxSteps; i++ {
		d, err := varint()
		if err != nil {
			return err
		}
		if d == 0 && i > 0 {
			return nil
		}
		val += int32(-(d & 1) ^ (d >> 1))
		n, err := varint()
		if err != nil {
			return err
		}
		lo := pc
		if pc += uint64(n) * t.quantum; pc > f.end || !visit(val, lo, pc) {
			if pc > f.end {
				return fmt.Errorf("%w: pc table of %#x runs past its end", errTable, f.entry)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: pc table of %#x has no end", errTable, f.entry)
}

// valueAt returns the value of a pc-value table at vaddr, and its range.
func (t *Table) valueAt(f *fn, table uint32, vaddr uint64) (val int32, lo, hi uint64, err error) {
	found := false
	err = t.steps(f, table, func(v int32, l, h uint64) bool {
		if vaddr < h {
			val, lo, hi, found = v, l, h, true
		}
		return !found
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: pc table of %#x does not reach %#x", errTable, f.entry, vaddr)
	}
	return val, lo, hi, err
}

// textAt reads the string at off up to its NUL.
func (t *Table) textAt(off uint64) (string, error) {
	var buf [128]byte
	var long []byte
	for len(long) < maxStringB {
		if off >= t.size {
			break
		}
		b := buf[:min(uint64(len(buf)), t.size-off)]
		if err := t.read(b, off); err != nil {
			return "", err
		}
		for i, c := range b {
			if c == 0 {
				if long == nil {
					return string(b[:i]), nil
				}
				return string(append(long, b[:i]...)), nil
			}
		}
		long = append(long, b...)
		off += uint64(len(b))
	}
	return "", fmt.Errorf("%w: string before %#x has no end", errTable, off)
}

func (t *Table) nameOf(f *fn) (string, error) { return t.textAt(t.names + uint64(f.name)) }
