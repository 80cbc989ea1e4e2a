package symbol

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"github.com/sliverprof/sliver/symbol/dwarf"
)

// Bounds on hostile symbol tables.
const (
	maxSymbols   = 1 << 24
	maxDebugdata = 256 << 20 // bytes of .gnu_debugdata after decompression
	maxCompared  = 256       // bytes of a name compared to choose between aliases
	maxBack      = 256       // overlapping symbols checked for one address
)

const symSize = 24 // Elf64_Sym

// symMemory is the memory of a symbol in bytes, with its place while all are sorted.
const symMemory = 68

// symtab holds all function symbols of a file, one for each address.
type symtab struct {
	names [][]byte // string tables
	syms  []sym
}

type sym struct {
	lo, hi uint64
	maxHi  uint64 // greatest hi of this and all before
	name   uint32 // offset in its string table
	tab    uint8
	kind   uint8 // as sym.worth compares it
	sized  bool
	limit  uint64 // end of its section
}

// Kinds of a symbol, best first: a version that programs no longer link with is worse
// than any other.
const (
	kindGlobal = iota
	kindWeak
	kindLocal
	kindHidden
	kindNoType = 8 // added: not marked as a function
)

// loadSymbols reads the symbols, once.
func (f *File) loadSymbols() {
	if f.haveSyms {
		return
	}
	f.haveSyms = true
	f.syms = new(symtab)
	var err error
	func() {
		defer recovered(&err, "symbols")
		f.readSymbols()
	}()
	f.problem("symbols", err)
}

func (f *File) readSymbols() {
	if f.main.section(".symtab") == nil {
		f.search()
	}
	full := false
	for _, m := range []*image{f.main, f.debug} {
		if m != nil && !full && m.section(".symtab") != nil {
			n := len(f.syms.syms)
			f.problem(m.name, f.syms.read(m, ".symtab", f.main))
			full = len(f.syms.syms) > n
		}
	}
	if !full {
		if err := f.syms.readDebugdata(f.main); err != nil {
			f.problem(".gnu_debugdata", err)
		}
		f.problem(f.main.name, f.syms.read(f.main, ".dynsym", f.main))
		if len(f.main.f.Sections) == 0 {
			f.problem("dynamic symbols", f.syms.readDynamic(f.main))
		}
	}
	f.syms.finish()
}

// read adds the symbols of one section of m. text is the image that contains the code.
func (t *symtab) read(m *image, section string, text *image) error {
	s := m.section(section)
	if s == nil {
		return nil
	}
	if int(s.Link) >= len(m.f.Sections) {
		return fmt.Errorf("%s: no string table", section)
	}
	b, err := m.sectionBytes(s)
	if err != nil && len(b) == 0 {
		return err
	}
	names, err := m.sectionBytes(m.f.Sections[s.Link])
	if err != nil && len(names) == 0 {
		return err
	}
	var versions []byte
	if section == ".dynsym" {
		for _, v := range m.f.Sections {
			if v.Type == elf.SHT_GNU_VERSYM {
				versions, _ = m.sectionBytes(v)
			}
		}
	}
	return t.add(b, names, versions, m.f.Sections, text)
}

func (t *symtab) add(b, names, versions []byte, sections []*elf.Section, text *image) error {
	if len(t.names) >= 1<<8 {
		return fmt.Errorf("too many string tables")
	}
	if err := text.mem.Take(int64(min(len(b)/symSize, maxSymbols)) * symMemory); err != nil {
		return err
	}
	tab := uint8(len(t.names))
	t.names = append(t.names, names)
	t.syms = slices.Grow(t.syms, min(len(b)/symSize, 1<<20))
	le := binary.LittleEndian
	for i := 0; len(b) >= symSize; i++ {
		e := b[:symSize]
		b = b[symSize:]
		info, shndx, lo, size := e[4], elf.SectionIndex(le.Uint16(e[6:])), le.Uint64(e[8:]), le.Uint64(e[16:])
		if shndx == elf.SHN_UNDEF || shndx == elf.SHN_ABS || !text.isText(lo) {
			continue
		}
		s := sym{lo: lo, hi: lo + size, name: le.Uint32(e), tab: tab, sized: size > 0}
		if uint64(s.name) >= uint64(len(names)) {
			continue
		}
		if int(shndx) < len(sections) {
			sec := sections[shndx]
			if sec.Flags&elf.SHF_EXECINSTR == 0 {
				continue
			}
			s.limit = sec.Addr + sec.Size
		}
		switch elf.ST_BIND(info) {
		case elf.STB_LOCAL:
			s.kind = kindLocal
		case elf.STB_WEAK:
			s.kind = kindWeak
		}
		if 2*i+1 < len(versions) && le.Uint16(versions[2*i:])&0x8000 != 0 {
			s.kind = kindHidden
		}
		switch elf.ST_TYPE(info) {
		case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		case elf.STT_NOTYPE:
			s.kind += kindNoType
			// Marks of assemblers: local labels, and ARM's mapping symbols.
			if c := names[s.name]; c == '$' || c == 0 || c == '.' && len(names) > int(s.name)+1 && names[s.name+1] == 'L' {
				continue
			}
		default:
			continue
		}
		if s.hi < s.lo || names[s.name] == 0 {
			continue
		}
		if t.syms = append(t.syms, s); len(t.syms) >= maxSymbols {
			return fmt.Errorf("more than %d symbols", maxSymbols)
		}
	}
	return nil
}

// readDebugdata adds the symbols of .gnu_debugdata: an ELF file compressed with xz.
func (t *symtab) readDebugdata(m *image) error {
	b, err := m.bytes(".gnu_debugdata")
	if b == nil {
		return err
	}
	limit := min(maxDebugdata, max(anyRatio, int64(len(b))*maxRatio))
	if err := m.mem.Take(limit + maxDict); err != nil {
		return err
	}
	out, err := unxz(b, limit)
	m.mem.Give(limit + maxDict - int64(len(out)))
	if err != nil {
		return err
	}
	in, err := openImage(".gnu_debugdata", bytes.NewReader(out), m.mem)
	if err != nil {
		return err
	}
	return t.read(in, ".symtab", m)
}

// name returns the symbol's name without its version.
func (t *symtab) name(s *sym) string {
	b := t.names[s.tab][s.name:]
	b = b[:min(len(b), dwarf.MaxName)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	if i := bytes.IndexByte(b, '@'); i > 0 {
		b = b[:i]
	}
	return string(b)
}

// hidden reports whether the name itself contains a version that is not the default.
func (t *symtab) hidden(name []byte) bool {
	i := bytes.IndexByte(name, '@')
	return i > 0 && i+1 < len(name) && name[i+1] != '@'
}

// finish sorts the symbols, selects one name for each address and computes the ends of
// symbols without a size.
func (t *symtab) finish() {
	t.sort()
	out := t.syms[:0]
	var inside uint64 // end of the sized symbols so far
	for i := range t.syms {
		s := t.syms[i]
		if !s.sized {
			if s.lo < inside { // a label within a function
				continue
			}
			s.hi = s.limit
			if i+1 < len(t.syms) {
				next := t.syms[i+1].lo
				if s.hi <= s.lo || next < s.hi {
					s.hi = next
				}
			}
			if s.hi <= s.lo {
				s.hi = s.lo + 1
			}
		} else {
			inside = max(inside, s.hi)
		}
		s.maxHi = s.hi
		if n := len(out); n > 0 {
			s.maxHi = max(s.hi, out[n-1].maxHi)
		}
		out = append(out, s)
	}
	t.syms = out
}

// sort sorts the symbols by address and leaves the best one of each. It sorts pairs of address and position, since a
// symbol takes five times the memory.
func (t *symtab) sort() {
	order := t.order()
	for i := range order { // moves each symbol of a cycle of places once
		first, at := t.syms[i], i
		for from := int(order[at]); from != i; from = int(order[at]) {
			t.syms[at], order[at], at = t.syms[from], uint32(at), from
		}
		t.syms[at], order[at] = first, uint32(at)
	}
	out := t.syms[:0]
	for _, s := range t.syms {
		if n := len(out); n == 0 || out[n-1].lo != s.lo {
			out = append(out, s)
		} else if t.worth(&s, &out[n-1]) < 0 {
			out[n-1] = s
		}
	}
	t.syms = out
}

// order returns the positions of the symbols by address.
func (t *symtab) order() []uint32 {
	// Addresses of most files leave room for the position in one word, which is sorted eight times as fast.
	const room = 24 // bits for a position: see maxSymbols
	out := make([]uint32, len(t.syms))
	words := make([]uint64, len(t.syms))
	var most uint64
	for i := range t.syms {
		lo := t.syms[i].lo
		if lo >= 1<<(64-room) || i >= 1<<room {
			for i := range out {
				out[i] = uint32(i)
			}
			slices.SortStableFunc(out, func(a, b uint32) int { return cmp.Compare(t.syms[a].lo, t.syms[b].lo) })
			return out
		}
		words[i] = lo<<room | uint64(i)
		most = max(most, words[i])
	}
	for i, w := range radix(words, room, bits.Len64(most)) {
		out[i] = uint32(w & (1<<room - 1))
	}
	return out
}

// radix sorts words by their bits from low up to high, equal ones in their present order. It overwrites words.
func radix(words []uint64, low, high int) []uint64 {
	const digit = 11 // bits
	next := make([]uint64, len(words))
	for shift := low; shift < high; shift += digit {
		var at [1 << digit]uint32 // where the next word with each digit goes
		for _, w := range words {
			at[w>>shift%uint64(len(at))]++
		}
		sum := uint32(0)
		for i, n := range at {
			at[i], sum = sum, sum+n
		}
		for _, w := range words {
			d := &at[w>>shift%uint64(len(at))]
			next[*d] = w
			*d++
		}
		words, next = next, words
	}
	return words
}

// worth orders the names of one address, best first: functions before labels, with a
// size before without, shared before local, then the better known name (fewer leading
// underscores, global before weak, shorter).
func (t *symtab) worth(a, b *sym) int {
	if x, y := a.kind >= kindNoType, b.kind >= kindNoType; x != y {
		return later(x)
	}
	if a.sized != b.sized {
		return later(b.sized)
	}
	ka, kb := a.kind%kindNoType, b.kind%kindNoType
	na, nb := t.raw(a), t.raw(b)
	if t.hidden(na) {
		ka = kindHidden
	}
	if t.hidden(nb) {
		kb = kindHidden
	}
	if x, y := ka >= kindLocal, kb >= kindLocal; x != y {
		return later(x)
	}
	if x, y := ka == kindHidden, kb == kindHidden; x != y {
		return later(x)
	}
	if x, y := underscores(na), underscores(nb); x != y {
		return x - y
	}
	if ka != kb {
		return int(ka) - int(kb)
	}
	if len(na) != len(nb) {
		return len(na) - len(nb)
	}
	return bytes.Compare(na, nb)
}

func later(is bool) int {
	if is {
		return 1
	}
	return -1
}

// raw returns the part of a symbol's name that is compared.
func (t *symtab) raw(s *sym) []byte {
	b := t.names[s.tab][s.name:]
	b = b[:min(len(b), maxCompared)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}

// underscores measures how internal to a library a name is: its leading underscores,
// and glibc's prefixes for internal use. Mangled names have one.
func underscores[T string | []byte](name T) int {
	s := string(name[:min(len(name), 16)])
	if isMangled(s) {
		return 0
	}
	n := 0
	for n < len(s) && s[n] == '_' {
		n++
	}
	for _, p := range []string{"__GI_", "__libc_", "_IO_", "__nss_"} {
		if strings.HasPrefix(s, p) {
			n++
		}
	}
	return n
}

// find returns the innermost symbol that covers vaddr.
func (t *symtab) find(vaddr uint64) (name string, start uint64, ok bool) {
	name, start, _, ok = t.covering(vaddr)
	return name, start, ok
}

// covering is find. sized is false if the symbol has a start but no size.
func (t *symtab) covering(vaddr uint64) (name string, start uint64, sized, ok bool) {
	if t == nil {
		return "", 0, false, false
	}
	i := sort.Search(len(t.syms), func(i int) bool { return t.syms[i].lo > vaddr }) - 1
	for back := 0; i >= 0 && t.syms[i].maxHi > vaddr && back < maxBack; i, back = i-1, back+1 {
		if s := &t.syms[i]; vaddr < s.hi {
			if n := t.name(s); n != "" {
				return n, s.lo, s.sized, true
			}
		}
	}
	return "", 0, false, false
}
