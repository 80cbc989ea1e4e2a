// Package cfi reads call frame information (DWARF 5, section 6.4, and .eh_frame of the Linux
// Standard Base) from ELF files and compiles the information for one address into a rule.Rule. It
// also evaluates the DWARF expressions in such rules.
//
// It handles files and bytes only. Package unwind maps files to addresses, caches rules and
// executes them. A Table may be used by several goroutines at once.
package cfi

import (
	"debug/elf"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/sliverprof/sliver/unwind/rule"
)

// maxSteps bounds the binary search in damaged tables, which allows 2^48 entries.
const maxSteps = 48

// A Table is the call frame information of one file.
type Table struct {
	arch  rule.Arch
	eh    *frames // nil: none
	debug lazyFrames
}

// lazyFrames is .debug_frame. It is read only for addresses that .eh_frame lacks, because it is not
// loaded by the target, may be compressed, has no search table, and mostly repeats .eh_frame.
type lazyFrames struct {
	sec  *elf.Section // nil: none
	file io.ReaderAt
	once sync.Once
	fr   *frames
	err  error
}

func (l *lazyFrames) frames() (*frames, error) {
	l.once.Do(func() {
		if l.sec != nil {
			l.fr, l.err = loadDebug(l.sec, l.file)
		}
	})
	return l.fr, l.err
}

// frames is one section of CIEs and FDEs with its index.
type frames struct {
	sec   *section
	eh    bool // .eh_frame, not .debug_frame
	bases bases
	hdr   *search

	once  sync.Once
	index []entry // from scan, sorted by lo
	err   error
}

type entry struct {
	lo, hi uint64
	off    uint64
}

// search is the table of .eh_frame_hdr: pairs of (first address, FDE).
type search struct {
	sec   *section
	enc   byte
	first uint64 // offset of the table
	count uint64
	size  uint64 // of each number
}

// readHeader decodes .eh_frame_hdr (LSB Core, section 10.6.2) and returns the vaddr of .eh_frame.
// fr.hdr stays nil if the header has no searchable table.
func (fr *frames) readHeader(s *section) (eh uint64, err error) {
	b, err := s.bytes(0, min(s.size, 32))
	if err != nil {
		return 0, err
	}
	c := cursor{b: b}
	bs := bases{text: fr.bases.text, data: s.addr, indirect: fr.bases.indirect}
	version := c.u8()
	ptrEnc, countEnc, enc := c.u8(), c.u8(), c.u8()
	if c.err == nil && version != 1 {
		return 0, s.errorf(0, "version %d is not known", version)
	}
	eh = c.pointer(ptrEnc, s.addr, &bs)
	count := c.pointer(countEnc, s.addr, &bs)
	if c.err != nil {
		return 0, s.errorf(uint64(c.pos), "header: %w", c.err)
	}
	if ptrEnc == peOmit {
		return 0, s.errorf(1, "no pointer to .eh_frame")
	}
	if countEnc == peOmit || enc == peOmit || enc&peIndir != 0 {
		return eh, nil
	}
	h := &search{sec: s, enc: enc, first: uint64(c.pos)}
	switch enc & 0x0f {
	case peU2, peS2:
		h.size = 2
	case peU4, peS4:
		h.size = 4
	case peAbs, peU8, peS8:
		h.size = 8
	default:
		return eh, nil // of varying length: not searchable
	}
	if count > (s.size-h.first)/(2*h.size) {
		return 0, s.errorf(h.first, "%d entries do not fit", count)
	}
	h.count = count
	fr.hdr = h
	return eh, nil
}

// entry returns the i-th pair of the search table.
func (h *search) entry(i uint64, b *bases) (lo, fde uint64, err error) {
	off := h.first + i*2*h.size
	p, err := h.sec.bytes(off, 2*h.size)
	if err != nil {
		return 0, 0, err
	}
	c := cursor{b: p}
	bs := bases{text: b.text, data: h.sec.addr}
	lo = c.pointer(h.enc, h.sec.addr+off, &bs)
	fde = c.pointer(h.enc, h.sec.addr+off, &bs)
	if c.err != nil {
		return 0, 0, h.sec.errorf(off, "search table: %w", c.err)
	}
	return lo, fde, nil
}

// find returns the offset of the FDE that may cover vaddr.
func (fr *frames) find(vaddr uint64) (off uint64, ok bool, err error) {
	if fr.hdr == nil {
		return fr.findByScan(vaddr)
	}
	lo, hi := uint64(0), fr.hdr.count
	var at uint64
	for i := 0; lo < hi && i < maxSteps; i++ {
		mid := (lo + hi) / 2
		a, f, err := fr.hdr.entry(mid, &fr.bases)
		if err != nil {
			return 0, false, err
		}
		if a <= vaddr {
			lo, at, ok = mid+1, f, true
		} else {
			hi = mid
		}
	}
	if !ok {
		return 0, false, nil
	}
	if at < fr.sec.addr || at-fr.sec.addr >= fr.sec.size {
		return 0, false, fr.hdr.sec.errorf(fr.hdr.first, "FDE at vaddr %#x is not in %s", at, fr.sec.name)
	}
	return at - fr.sec.addr, true, nil
}

func (fr *frames) findByScan(vaddr uint64) (off uint64, ok bool, err error) {
	fr.once.Do(fr.scan)
	i := sort.Search(len(fr.index), func(i int) bool { return fr.index[i].lo > vaddr })
	if i > 0 && vaddr < fr.index[i-1].hi {
		return fr.index[i-1].off, true, nil
	}
	return 0, false, fr.err
}

// scan builds the index. Entries after a damaged one are lost, because the length of each entry
// leads to the next.
func (fr *frames) scan() {
	var c cie
	have := false
	var h head
	var err error
	for off := uint64(0); off < fr.sec.size && fr.sec.size-off >= 4; off = h.next {
		if h, err = fr.head(off); err != nil {
			fr.err = err
			break
		}
		if h.end {
			if fr.sec.open {
				break
			}
			continue // a linker may leave one in the middle (crtend.o)
		}
		if h.isCIE {
			continue
		}
		if !have || c.off != h.cie {
			if err := fr.parseCIE(h.cie, &c); err != nil {
				fr.err, have = err, false
				continue
			}
			have = true
		}
		b, err := fr.sec.bytes(h.body, h.next-h.body)
		if err != nil {
			fr.err = err
			break
		}
		cur := cursor{b: b}
		lo, hi := fr.rng(&h, &cur, c.enc, &fr.bases)
		if cur.err != nil {
			fr.err = fr.sec.errorf(off, "FDE: %w", cur.err)
			continue
		}
		// The linker leaves dropped functions at address 0 in .debug_frame.
		if lo < hi && (lo != 0 || fr.eh) {
			fr.index = append(fr.index, entry{lo, hi, off})
		}
	}
	sort.Slice(fr.index, func(i, j int) bool { return fr.index[i].lo < fr.index[j].lo })
}

// function returns the range of the function at vaddr. ok is false if no FDE covers it.
func (fr *frames) function(vaddr uint64) (lo, hi uint64, ok bool, err error) {
	off, ok, err := fr.find(vaddr)
	if !ok || err != nil {
		return 0, 0, false, err
	}
	var f fde
	if err := fr.parseFDE(off, &f); err != nil {
		return 0, 0, false, err
	}
	return f.lo, f.hi, vaddr >= f.lo && vaddr < f.hi, nil
}

// rule compiles the row for vaddr; ok is false if no FDE covers it.
func (fr *frames) rule(vaddr uint64, arch rule.Arch, out *rule.Rule) (ok bool, err error) {
	off, ok, err := fr.find(vaddr)
	if !ok || err != nil {
		return false, err
	}
	var f fde
	if err := fr.parseFDE(off, &f); err != nil {
		return false, err
	}
	if vaddr < f.lo || vaddr >= f.hi {
		return false, nil
	}
	m := machine{cie: &f.cie, b: &fr.bases, lo: f.lo, hi: f.hi, pc: vaddr}
	_, pos, err := m.run(f.cie.instr, 0, true)
	if err != nil {
		return false, fr.sec.errorf(f.cie.off, "CIE's instruction %d bytes in: %w", pos, err)
	}
	m.initial = m.row
	m.states = m.states[:0]
	_, pos, err = m.run(f.instr, fr.vaddr(off, &f), false)
	if err != nil {
		return false, fr.sec.errorf(off, "FDE's instruction %d bytes in: %w", pos, err)
	}
	out.Lo, out.Hi, out.Func = m.lo, m.hi, f.lo
	out.Part = fr.part(&f, &m, fr.vaddr(off, &f))
	out.Signal = f.cie.signal
	if err := m.rule(out, arch); err != nil {
		return false, fr.sec.errorf(off, "row at vaddr %#x: %w", m.lo, err)
	}
	return true, nil
}

// part reports whether f starts with a frame that already exists, as no whole function does. f then
// describes a part that the compiler moved elsewhere (f.cold). m must have run.
func (fr *frames) part(f *fde, m *machine, at uint64) bool {
	if len(f.instr) == 0 || f.instr[0]&0xc0 == cfaAdvance || f.instr[0] == cfaNop {
		return false // nearly all others begin with their first instructions
	}
	r := &m.row
	if m.lo != f.lo {
		b := machine{cie: &f.cie, b: &fr.bases, lo: f.lo, hi: f.hi, pc: f.lo, row: m.initial, initial: m.initial}
		if _, _, err := b.run(f.instr, at, false); err != nil {
			return false
		}
		r = &b.row
	}
	expr := r.cfaExpr != nil || m.row.cfaExpr != nil // a procedure linkage table begins like this too
	return !expr && (r.cfaReg != m.initial.cfaReg || r.cfaOff != m.initial.cfaOff)
}

// vaddr returns the vaddr of f's first instruction byte, for DW_CFA_set_loc.
func (fr *frames) vaddr(off uint64, f *fde) uint64 {
	h, err := fr.head(off)
	if err != nil {
		return 0
	}
	return fr.sec.addr + h.next - uint64(len(f.instr))
}

// Rule compiles the rule for the instruction at vaddr into out, whose Exprs slice is reused. The
// rule is valid for vaddr itself: for a return address, pass the address of the byte before it. The
// error is rule.ErrNoRule if nothing covers vaddr. Any other error means that the tables are
// damaged there.
func (t *Table) Rule(vaddr uint64, out *rule.Rule) error {
	reset(out)
	var first error
	if t.eh != nil {
		ok, err := t.eh.rule(vaddr, t.arch, out)
		if ok {
			return nil
		}
		first = err
		reset(out)
	}
	fr, err := t.debug.frames()
	if err == nil && fr != nil {
		var ok bool
		if ok, err = fr.rule(vaddr, t.arch, out); ok {
			return nil
		}
		reset(out)
	}
	if first == nil {
		first = err
	}
	if first != nil {
		return fmt.Errorf("rule for vaddr %#x: %w", vaddr, first)
	}
	return rule.ErrNoRule
}

// Func returns the vaddrs [lo, hi) of the function at vaddr, as one entry of .eh_frame describes
// it. A part that the compiler moved elsewhere (f.cold) counts as a function of its own. One entry
// may cover several assembly functions, or the stubs of a procedure linkage table. ok is false if
// nothing covers vaddr or the tables are damaged there.
func (t *Table) Func(vaddr uint64) (lo, hi uint64, ok bool) {
	if t.eh == nil {
		return 0, 0, false
	}
	lo, hi, ok, err := t.eh.function(vaddr)
	if !ok || err != nil {
		return 0, 0, false
	}
	return lo, hi, true
}

func reset(out *rule.Rule) { *out = rule.Rule{Exprs: out.Exprs[:0]} }
