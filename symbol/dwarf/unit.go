package dwarf

import (
	"fmt"
	"sort"
)

// Unit types of DWARF 5 headers (section 7.5.1).
const (
	utCompile      = 1
	utType         = 2
	utPartial      = 3
	utSkeleton     = 4
	utSplitCompile = 5
	utSplitType    = 6
)

// unit is one unit of .debug_info. Its header and root are read when the file is
// scanned; load does the rest.
type unit struct {
	d        *Data
	sec      *Section // the section that contains it: .debug_info, or a part of it
	off, end uint64   // offset of the header in sec, and of the end of the unit
	s        shape
	tag      uint64
	abbrev   uint64 // offset of its table
	first    int    // position of the root DIE in the unit
	id       uint64 // of a skeleton or split unit
	hasID    bool
	root     root

	strBase, addrBase, rngBase uint64
	low                        uint64 // base of its range lists
	skel                       *unit  // the skeleton, for a split unit

	// Set by load.
	data   []byte
	table  *abbrevs
	funcs  []span // by lo
	trees  map[int]*tree
	lines  *lineTable
	heads  *lineTable // the files without lines, if only they were needed
	scopes []scope
	isLoad bool
	split  *unit // for a skeleton: the unit with the functions
	noDWO  bool  // searched without success
	cost   int   // bytes charged to the budget
	cached bool  // in d.loaded
}

// root holds the relevant attributes of a unit's root DIE.
type root struct {
	pcs
	name, compDir, dwoName, stmt value
	lang                         uint16
}

// pcs are the attributes with addresses and ranges.
type pcs struct{ low, high, ranges, entry value }

func (p *pcs) take(at uint64, v value) bool {
	switch at {
	case atLowPC:
		p.low = v
	case atHighPC:
		p.high = v
	case atRanges:
		p.ranges = v
	case atEntryPC:
		p.entry = v
	default:
		return false
	}
	return true
}

// readUnit reads the header and root at off. next is the offset of the following unit,
// 0 if unknown.
func (d *Data) readUnit(off uint64, sec *Section) (u *unit, next uint64, err error) {
	c := cursor{b: sec.at(off, chunk)}
	n, is64 := c.length()
	if c.bad || n > sec.Len()-off-uint64(c.pos) {
		return nil, 0, errTruncated
	}
	u = &unit{d: d, sec: sec, off: off, end: off + uint64(c.pos) + n}
	if n > maxUnitSize {
		return u, u.end, fmt.Errorf("%d bytes are too many for one unit", n)
	}
	u.s.version = c.u16()
	u.s.off = 4
	if is64 {
		u.s.off = 8
	}
	kind := uint8(utCompile)
	switch u.s.version {
	case 2, 3, 4:
		u.abbrev = c.offset(is64)
		u.s.addr = int8(c.u8())
	case 5:
		kind = c.u8()
		u.s.addr = int8(c.u8())
		u.abbrev = c.offset(is64)
		switch kind {
		case utSkeleton, utSplitCompile:
			u.id, u.hasID = c.uint(8), true
		case utType, utSplitType:
			c.uint(8)
			c.offset(is64)
		}
	default:
		return u, u.end, fmt.Errorf("DWARF version %d", u.s.version)
	}
	if u.s.addr != 4 && u.s.addr != 8 {
		return u, u.end, fmt.Errorf("addresses of %d bytes", u.s.addr)
	}
	u.first = c.pos
	if c.bad {
		return u, u.end, errTruncated
	}
	if kind == utType || kind == utSplitType {
		u.tag = tagTypeUnit
		return u, u.end, nil
	}
	if uint64(len(c.b)) > n {
		c.b = c.b[:u.end-off]
	}
	if !u.readRoot(c) { // a root longer than a chunk, or malformed
		c.b = sec.at(off, u.end-off)
		if !u.readRoot(c) {
			return u, u.end, fmt.Errorf("root: %w", errTruncated)
		}
	}
	return u, u.end, nil
}

func (u *unit) readRoot(c cursor) bool {
	code := c.uleb()
	a, ok := u.d.findAbbrev(u.abbrev, code, u.s)
	if !ok {
		return false
	}
	u.tag = a.tag
	u.root = root{}
	for i := range a.attrs {
		at := &a.attrs[i]
		v := u.s.read(&c, at)
		if u.root.take(at.at, v) {
			continue
		}
		switch at.at {
		case atName:
			u.root.name = v
		case atCompDir:
			u.root.compDir = v
		case atStmtList:
			u.root.stmt = v
		case atLanguage:
			u.root.lang = uint16(v.u)
		case atDwoName, atGNUDwoName:
			u.root.dwoName = v
		case atGNUDwoID:
			u.id, u.hasID = v.u, true
		case atStrOffBase:
			u.strBase = v.u
		case atAddrBase, atGNUAddrBase:
			u.addrBase = v.u
		case atRngBase, atGNURngBase:
			u.rngBase = v.u
		}
	}
	if c.bad {
		return false
	}
	u.low, _ = u.addr(u.root.low)
	return true
}

// addr resolves an address; ok is false if there is none.
func (u *unit) addr(v value) (a uint64, ok bool) {
	if !v.set {
		return 0, false
	}
	switch v.form {
	case formAddr:
		return v.u, true
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrx:
		o := u
		if u.skel != nil {
			o = u.skel
		}
		if v.u > o.d.c.Addr.Len() {
			return 0, false
		}
		return number(o.d.c.Addr, o.addrBase+v.u*uint64(u.s.addr), int(u.s.addr))
	}
	return 0, false
}

func number(sec *Section, off uint64, n int) (uint64, bool) {
	c := cursor{b: sec.at(off, uint64(n))}
	v := c.uint(n)
	return v, !c.bad
}

// str resolves a string; "" if there is none.
func (u *unit) str(v value) string {
	if !v.set {
		return ""
	}
	sec, off := u.d.c.Str, v.u
	switch v.form {
	case formString:
		return u.inline(v.u)
	case formStrp:
	case formLineStrp:
		sec = u.d.c.LineStr
	case formGNUStrAlt, formStrpSup:
		alt := u.d.altData()
		if alt == nil {
			return ""
		}
		sec = alt.c.Str
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrx:
		if v.u > u.d.c.StrOffsets.Len() {
			return ""
		}
		var ok bool
		if off, ok = number(u.d.c.StrOffsets, u.strBase+v.u*uint64(u.s.off), int(u.s.off)); !ok {
			return ""
		}
	default:
		return ""
	}
	s, _ := sec.cstring(off)
	return s
}

// inline returns the string that is stored in the unit itself at pos.
func (u *unit) inline(pos uint64) string {
	if u.data == nil {
		s, _ := u.sec.sub(0, u.end).cstring(u.off + pos)
		return s
	}
	c := cursor{b: u.data, pos: int(min(pos, uint64(len(u.data))))}
	return c.string()
}

// ref is a DIE: its unit and position there.
type ref struct {
	u   *unit
	pos int
}

// ref resolves a reference.
func (u *unit) ref(v value) (ref, bool) {
	d, off := u.d, v.u
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		if off >= u.end-u.off {
			return ref{}, false
		}
		return ref{u, int(off)}, true
	case formRefAddr:
		if off >= u.off && off < u.end {
			return ref{u, int(off - u.off)}, true
		}
	case formGNURefAlt, formRefSup4, formRefSup8:
		if d = u.d.altData(); d == nil {
			return ref{}, false
		}
	default: // including a type unit's signature: names come from there only with a linkage name
		return ref{}, false
	}
	to := d.unitAt(off)
	if !v.set || to == nil {
		return ref{}, false
	}
	return ref{to, int(off - to.off)}, true
}

// hold makes the unit's bytes and abbreviations available.
func (u *unit) hold() {
	if u.data != nil {
		return
	}
	if !u.d.toil(int(u.end - u.off)) {
		u.data, u.table = []byte{}, new(abbrevs)
		return
	}
	u.data = u.sec.at(u.off, u.end-u.off)
	u.table = u.d.table(u.abbrev, u.s)
	if u.sec.r != nil {
		u.spend(len(u.data))
	} else {
		u.spend(1)
	}
}

func (u *unit) spend(n int) {
	acc := u.d.account
	acc.used += n
	u.cost += n
	if !u.cached {
		u.cached = true
		acc.loaded = append(acc.loaded, u)
	}
}

func (u *unit) unload() {
	u.data, u.table, u.funcs, u.trees, u.lines, u.heads, u.scopes = nil, nil, nil, nil, nil, nil, nil
	u.isLoad, u.cached, u.cost = false, false, 0
	if u.split != nil { // found again when needed
		u.split, u.noDWO = nil, false
	}
}

// load reads the locations of the unit's functions and lines.
func (u *unit) load() {
	if u.isLoad {
		return
	}
	u.isLoad = true
	u.hold()
	u.lines = new(lineTable)
	if u.root.stmt.set {
		if err := u.lines.read(u, true); err != nil {
			u.d.problem("line table at %#x: %w", u.root.stmt.u, err)
		}
		u.spend(u.lines.size())
	}
	u.trees = make(map[int]*tree)
	u.readFuncs()
	u.spend(len(u.funcs) * 32)
	u.openSplit()
	if u.split != nil && !u.split.isLoad {
		u.split.isLoad = true
		u.split.hold()
		u.split.trees = make(map[int]*tree)
		u.split.readFuncs()
		u.split.spend(len(u.split.funcs) * 32)
	}
}

// files returns the unit's table of files, for attributes that refer to a file.
func (u *unit) files() *lineTable {
	if u.skel != nil {
		u = u.skel
	}
	switch {
	case u.lines != nil:
		return u.lines
	case u.heads == nil:
		u.heads = new(lineTable)
		if u.root.stmt.set {
			if err := u.heads.read(u, false); err != nil {
				u.d.problem("line table at %#x: %w", u.root.stmt.u, err)
			}
		}
		u.spend(u.heads.size() + 64)
	}
	return u.heads
}

// span is a range of a function, or of an inlined call.
type span struct {
	lo, hi uint64
	maxHi  uint64 // functions: greatest hi of this and all before
	id     int    // functions: position of the DIE; calls: index in the tree
}

// readFuncs lists the functions with code. They may be at any depth below the root, so
// every DIE is read; the nesting does not matter for that.
func (u *unit) readFuncs() {
	c := cursor{b: u.data, pos: u.first}
	for c.pos < len(c.b) {
		pos := c.pos
		code := c.uleb()
		if code == 0 {
			continue
		}
		a := u.table.find(code)
		if a == nil {
			u.d.problem("unit at %#x: no abbreviation %d at %#x", u.off, code, u.off+uint64(pos))
			break
		}
		if a.tag != tagSubprogram || !a.pc {
			if a.fixed >= 0 {
				c.skip(uint64(a.fixed))
			} else {
				u.skipAttrs(&c, a)
			}
			if c.bad {
				break
			}
			continue
		}
		var p pcs
		for i := range a.attrs {
			p.take(a.attrs[i].at, u.s.read(&c, &a.attrs[i]))
		}
		text := u.d.c.Text
		if u.skel != nil {
			text = u.skel.d.c.Text
		}
		u.eachRange(&p, func(lo, hi uint64) {
			if text(lo) {
				u.funcs = append(u.funcs, span{lo: lo, hi: hi, id: pos})
			}
		})
	}
	if c.bad {
		u.d.problem("unit at %#x: %w", u.off, errTruncated)
	}
	sort.Slice(u.funcs, func(i, j int) bool {
		a, b := &u.funcs[i], &u.funcs[j]
		if a.lo != b.lo {
			return a.lo < b.lo
		}
		if a.hi != b.hi {
			return a.hi > b.hi
		}
		return a.id > b.id
	})
	var hi uint64
	for i := range u.funcs {
		hi = max(hi, u.funcs[i].hi)
		u.funcs[i].maxHi = hi
	}
}

func (u *unit) skipAttrs(c *cursor, a *abbrev) {
	for i := range a.attrs {
		x := &a.attrs[i]
		if x.size >= 0 {
			c.skip(uint64(x.size))
		} else {
			u.s.skipForm(c, x.form)
		}
	}
}

// function returns the DIE of the innermost function at vaddr, 0 if there is none.
func (u *unit) function(vaddr uint64) int {
	i := sort.Search(len(u.funcs), func(i int) bool { return u.funcs[i].lo > vaddr }) - 1
	for back := 0; i >= 0 && u.funcs[i].maxHi > vaddr && back < maxBack; i, back = i-1, back+1 {
		if vaddr < u.funcs[i].hi {
			return u.funcs[i].id
		}
	}
	return 0
}
