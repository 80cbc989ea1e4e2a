// Package dwarf answers one question from DWARF 2 to 5: which calls, inlined
// ones included, and which source lines does an instruction belong to. It reads
// only the units that are asked for, keeps their line tables and functions for
// the next question within a budget of memory, and follows supplementary files
// (dwz) and split units (.dwo, .dwp) that its caller finds for it.
//
// Types, variables and locations are none of its business; neither is finding
// files, reading ELF or demangling: see package symbol.
//
// A Data belongs to one goroutine at a time. Nothing here panics or fails on
// broken input: what cannot be read is missing from the answers, and Problems
// says so.
package dwarf

import (
	"errors"
	"fmt"
	"sort"
)

// Sections of one file. The names are those of DWARF without ".debug_" and
// ".dwo"; nil where the file has none.
type Sections struct {
	Info, Abbrev, Str, LineStr, Line, Addr, StrOffsets, Ranges, RngLists, Aranges *Section
	CUIndex                                                                       *Section // .debug_cu_index of a .dwp
}

// Config is what a Data reads and whom it asks for more.
type Config struct {
	Sections
	// Text reports whether code can be at a vaddr; lists and line tables that
	// start elsewhere belong to functions that the linker dropped. nil: anywhere but 0.
	Text func(vaddr uint64) bool
	// Alt opens the supplementary file (.gnu_debugaltlink, .debug_sup) when it is
	// first needed; nil or a nil result: there is none.
	Alt func() *Data
	// Package opens the file's .dwp; nil or a nil result: there is none.
	Package func() *Sections
	// Object calls try with the sections of every file that may be the .dwo of
	// that name until try says that it is.
	Object func(name, compDir string, try func(*Sections) bool)
	// Budget is how many bytes of decoded units to keep, about; 0: DefaultBudget.
	Budget int
}

// DefaultBudget is what decoded units may take, in bytes.
const DefaultBudget = 256 << 20

// Bounds on hostile input.
const (
	maxUnits    = 1 << 22 // units in one file
	maxUnitSize = 1 << 30 // bytes of one unit
	maxLines    = 1 << 28 // bytes of one line table
	maxRanges   = 1 << 20 // ranges of one unit or function
	maxProblems = 32      // problems remembered
	maxBack     = 256     // overlapping ranges looked at for one address
	maxDepth    = 1 << 12 // nesting of DIEs
	maxLinks    = 16      // origins and specifications followed for one name
)

// Call is one logical frame.
type Call struct {
	Name     string // DW_AT_name, with enclosing namespaces and types where there is no linkage name; "" if unknown
	Linkage  string // linkage name as the compiler gave it; "" if it gave none
	File     string // where in this function: "" and 0 where that is unknown
	Line     int
	DeclFile string // where it is declared; "" and 0: unknown
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
	unranged []*unit // with code, but no range that says where
	tables   map[tableKey]*abbrevs
	names    map[uint64]*info // by offset of the DIE
	account  *Data            // whose used and loaded count: itself, or for split units that of their skeletons
	work     uint64           // bytes looked at, about, and how many may be
	limit    uint64
	used     int // bytes of decoded units
	loaded   []*unit
	last     *unit // that answered last
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

// New makes a Data. Nothing is read until the first question.
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

// Files can be made whose every answer costs an hour. What an honest one costs,
// even if its units are decoded several times, stays far below this many bytes.
const (
	workBase   = 4 << 30
	workFactor = 64
)

// toil counts n bytes of work; false: this was too much, there are no more
// answers.
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

// Problems lists what could not be read so far, at most maxProblems of them.
func (d *Data) Problems() []error { return d.problems }

func (d *Data) problem(format string, args ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, fmt.Errorf(format, args...))
	}
}

var errTruncated = errors.New("truncated")

// Lookup appends the calls at vaddr, the innermost first. Only the line is
// known where code has no function (assembler): one Call without a name. No
// Call at all: the file says nothing about vaddr.
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
		// A line without a function: another unit may know more.
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
	// Where ranges overlap the later one is looked at first: the smaller, then
	// that of the earlier unit.
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

// readAranges takes the ranges of units that do not say theirs from
// .debug_aranges (DWARF 5 section 6.1.2).
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

// rangeUnits finds where the units are that say nothing of it, by their
// functions and line tables.
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

// unitAt returns the unit that holds the section offset off.
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

// trim forgets decoded units, but for the one that answered last, when they
// outgrow the budget. Questions come in the order of addresses, so what is
// forgotten is seldom asked for again.
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
