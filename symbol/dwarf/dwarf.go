// Package dwarf resolves an instruction to its calls, inlined ones included, and its
// source lines, using DWARF 2 to 5. It reads only the requested units, caches their
// line tables and functions within a memory budget, and follows supplementary files
// (dwz) and split units (.dwo, .dwp) that its caller finds for it.
//
// It does not handle types, variables and locations. Package symbol finds files, reads
// ELF and demangles.
//
// A Data belongs to one goroutine at a time. Nothing here panics or fails on malformed
// input: unreadable parts are missing from the results, and Problems lists them.
package dwarf

import (
	"errors"
	"fmt"
	"sort"
)

// Sections of one file, named as in DWARF without ".debug_" and ".dwo"; nil if the file
// has none.
type Sections struct {
	Info, Abbrev, Str, LineStr, Line, Addr, StrOffsets, Ranges, RngLists, Aranges *Section
	CUIndex                                                                       *Section // .debug_cu_index of a .dwp
}

// Config configures a Data: its input and callbacks for more.
type Config struct {
	Sections
	// Text reports whether code can be at a vaddr; lists and line tables that start
	// elsewhere belong to functions that the linker dropped. nil: anywhere except 0.
	Text func(vaddr uint64) bool
	// Alt opens the supplementary file (.gnu_debugaltlink, .debug_sup) when it is
	// first needed; nil or a nil result: there is none.
	Alt func() *Data
	// Package opens the file's .dwp; nil or a nil result: there is none.
	Package func() *Sections
	// Object calls try with the sections of every file that may be the .dwo of that
	// name until try returns true.
	Object func(name, compDir string, try func(*Sections) bool)
	// Budget bounds the cached bytes of decoded units, approximately; 0: DefaultBudget.
	Budget int
}

// DefaultBudget bounds the decoded units, in bytes.
const DefaultBudget = 256 << 20

// Bounds on hostile input.
const (
	maxUnits    = 1 << 22 // units in one file
	maxUnitSize = 1 << 30 // bytes of one unit
	maxLines    = 1 << 28 // bytes of one line table
	maxRanges   = 1 << 20 // ranges of one unit or function
	maxProblems = 32      // problems recorded
	maxBack     = 256     // overlapping ranges checked for one address
	maxDepth    = 1 << 12 // nesting of DIEs
	maxLinks    = 16      // origins and specifications followed for one name
)

// Call is one logical frame.
type Call struct {
	Name     string // DW_AT_name, with enclosing namespaces and types if Linkage is ""; "" if unknown
	Linkage  string // linkage name from the compiler; "" if there is none
	File     string // location in this function: "" and 0 if unknown
	Line     int
	DeclFile string // location of the declaration; "" and 0 if unknown
	DeclLine int
	Start    uint64 // vaddr of the containing concrete function; 0: unknown
	Inlined  bool   // into the next one
	Lang     uint16 // DW_LANG code of the unit, 0: unknown
}

// Data is the DWARF of one file.
type Data struct {
	c        Config
	alt      *Data
	altAsked bool
	pkg      *pkgIndex
	pkgAsked bool
	scanned  bool
	units    []*unit // by offset
	ranges   []unitRange
	unranged []*unit // with code, but without ranges
	tables   map[tableKey]*abbrevs
	names    map[uint64]*info // by offset of the DIE
	account  *Data            // the Data whose used and loaded count: itself, or for split units that of their skeletons
	work     uint64           // approximate bytes processed, and their bound
	limit    uint64
	used     int // bytes of decoded units
	loaded   []*unit
	last     *unit // of the last result
	problems []error
}

type tableKey struct {
	off uint64
	s   shape
}

type unitRange struct {
	lo, hi uint64
	maxHi  uint64 // greatest hi of this and all before
	u      *unit
}

// New returns a Data. It reads nothing before the first lookup.
func New(c Config) *Data {
	if c.Text == nil {
		c.Text = func(vaddr uint64) bool { return vaddr != 0 }
	}
	if c.Budget == 0 {
		c.Budget = DefaultBudget
	}
	d := &Data{c: c, tables: make(map[tableKey]*abbrevs), names: make(map[uint64]*info)}
	d.account = d
	d.limit = workBase + workFactor*uint64(c.size())
	return d
}

// A hostile file can make every lookup cost an hour. An honest file stays far below
// this many bytes, even if its units are decoded several times.
const (
	workBase   = 4 << 30
	workFactor = 64
)

// toil counts n bytes of work; false: it exceeds the bound, and later lookups return no
// results.
func (d *Data) toil(n int) bool {
	a := d.account
	if a.work > a.limit {
		return false
	}
	if a.work += uint64(n); a.work > a.limit {
		a.problem("given up after %d bytes were looked at", a.work)
		return false
	}
	return true
}

// Problems returns what could not be read so far, at most maxProblems errors.
func (d *Data) Problems() []error { return d.problems }

func (d *Data) problem(format string, args ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, fmt.Errorf(format, args...))
	}
}

var errTruncated = errors.New("truncated")

// Lookup appends the calls at vaddr, leaf first. For code without a function
// (assembler) only the line is known: one Call without a name. No Call: the file has no
// information about vaddr.
func (d *Data) Lookup(vaddr uint64, buf []Call) []Call {
	d.scan()
	if !d.toil(1) {
		return buf
	}
	from := len(buf)
	buf = d.lookupRanges(vaddr, buf)
	if len(buf) == from && d.unranged != nil {
		d.rangeUnits()
		buf = d.lookupRanges(vaddr, buf)
	}
	d.trim()
	return buf
}

func (d *Data) lookupRanges(vaddr uint64, buf []Call) []Call {
	from := len(buf)
	i := sort.Search(len(d.ranges), func(i int) bool { return d.ranges[i].lo > vaddr }) - 1
	for back := 0; i >= 0 && d.ranges[i].maxHi > vaddr && back < maxBack; i, back = i-1, back+1 {
		if vaddr >= d.ranges[i].hi {
			continue
		}
		got := d.ranges[i].u.lookup(vaddr, buf[:from])
		if len(got) > from && got[len(got)-1].Start != 0 {
			return got
		}
		// A line without a function: another unit may have more.
		if len(got) > from && len(buf) == from {
			buf = got
		}
	}
	return buf
}

// scan reads the headers and roots of all units, once.
func (d *Data) scan() {
	if d.scanned {
		return
	}
	d.scanned = true
	aranges := false
	for off := uint64(0); off < d.c.Info.Len(); {
		u, next, err := d.readUnit(off, d.c.Info)
		if next <= off || len(d.units) >= maxUnits || !d.toil(16) {
			d.problem("unit at %#x: %w", off, err)
			break
		}
		off = next
		if err != nil {
			d.problem("unit at %#x: %w", u.off, err)
			continue
		}
		d.units = append(d.units, u)
		if u.tag != tagCompileUnit && u.tag != tagSkeleton {
			continue
		}
		n := len(d.ranges)
		u.eachRange(&u.root.pcs, func(lo, hi uint64) { d.addRange(lo, hi, u) })
		if n == len(d.ranges) && !u.root.ranges.set && !u.root.high.set && u.root.stmt.set {
			d.unranged = append(d.unranged, u)
			aranges = true
		}
	}
	if aranges {
		d.readAranges()
	}
	d.sortRanges()
}

func (d *Data) addRange(lo, hi uint64, u *unit) {
	if lo < hi && d.c.Text(lo) {
		d.ranges = append(d.ranges, unitRange{lo: lo, hi: hi, u: u})
	}
}

func (d *Data) sortRanges() {
	// Of overlapping ranges the later one is checked first: the smaller one, then that
	// of the earlier unit.
	sort.Slice(d.ranges, func(i, j int) bool {
		a, b := &d.ranges[i], &d.ranges[j]
		if a.lo != b.lo {
			return a.lo < b.lo
		}
		if a.hi != b.hi {
			return a.hi > b.hi
		}
		return a.u.off > b.u.off
	})
	var hi uint64
	for i := range d.ranges {
		hi = max(hi, d.ranges[i].hi)
		d.ranges[i].maxHi = hi
	}
}

// readAranges reads the ranges of units that do not contain them from .debug_aranges
// (DWARF 5 section 6.1.2).
func (d *Data) readAranges() {
	want := make(map[uint64]*unit)
	for _, u := range d.unranged {
		want[u.off] = u
	}
	c := cursor{b: d.c.Aranges.at(0, d.c.Aranges.Len())}
	for c.left() > 0 && !c.bad {
		from := c.pos
		n, is64 := c.length()
		if c.bad || n > uint64(c.left()) {
			break
		}
		set := cursor{b: c.b[:c.pos+int(n)], pos: c.pos}
		c.pos += int(n)
		version := set.u16()
		u := want[set.offset(is64)]
		size, seg := int(set.u8()), int(set.u8())
		if version != 2 || u == nil || seg != 0 || size != 4 && size != 8 {
			continue
		}
		set.skip(uint64(-(set.pos - from)) % uint64(2*size))
		for set.left() >= 2*size {
			lo, n := set.uint(size), set.uint(size)
			if lo == 0 && n == 0 {
				break
			}
			d.addRange(lo, lo+n, u)
			delete(want, u.off)
		}
	}
	left := d.unranged[:0]
	for _, u := range d.unranged {
		if want[u.off] != nil {
			left = append(left, u)
		}
	}
	d.unranged = left
}

// rangeUnits derives the ranges of units that do not contain them from their functions
// and line tables.
func (d *Data) rangeUnits() {
	for _, u := range d.unranged {
		u.load()
		for i := range u.funcs {
			d.addRange(u.funcs[i].lo, u.funcs[i].hi, u)
		}
		for i := range u.lines.seqs {
			d.addRange(u.lines.seqs[i].lo, u.lines.seqs[i].hi, u)
		}
		d.trim()
	}
	d.unranged = nil
	d.sortRanges()
}

// unitAt returns the unit that contains the section offset off.
func (d *Data) unitAt(off uint64) *unit {
	d.scan()
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].off > off }) - 1
	if i < 0 || off >= d.units[i].end {
		return nil
	}
	return d.units[i]
}

func (d *Data) altData() *Data {
	if !d.altAsked {
		d.altAsked = true
		if d.c.Alt != nil {
			d.alt = d.c.Alt()
		}
	}
	return d.alt
}

// trim drops decoded units, except the one of the last result, when they exceed the
// budget. Lookups are ordered by address, so dropped units are seldom needed again.
func (d *Data) trim() {
	if d.used > d.c.Budget {
		kept := d.loaded[:0]
		d.used = 0
		for _, u := range d.loaded {
			if u == d.last || u.skel != nil && u.skel == d.last {
				kept = append(kept, u)
				d.used += u.cost
			} else {
				u.unload()
			}
		}
		clear(d.loaded[len(kept):])
		d.loaded = kept
		clear(d.tables)
	}
	if len(d.names)*nameCost > d.c.Budget {
		clear(d.names)
	}
	if d.alt != nil {
		d.alt.trim()
	}
}

func (d *Data) table(off uint64, s shape) *abbrevs {
	k := tableKey{off, s}
	t := d.tables[k]
	if t == nil {
		var err error
		if t, err = d.readAbbrevs(off, s); err != nil {
			d.problem("%w", err)
		}
		d.tables[k] = t
	}
	return t
}
