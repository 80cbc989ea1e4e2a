package dwarf

import "fmt"

// openSplit finds the unit that a skeleton refers to, in the .dwp or in a .dwo.
func (u *unit) openSplit() {
	if u.split != nil || u.noDWO || !u.hasID || !u.root.dwoName.set && u.tag != tagSkeleton {
		return
	}
	u.noDWO = true
	d := u.d
	if !d.pkgAsked {
		d.pkgAsked = true
		if d.c.Package != nil {
			if s := d.c.Package(); s != nil {
				p, err := readIndex(s)
				if err != nil {
					d.problem("package file: %w", err)
				}
				d.pkg = p
			}
		}
	}
	if d.pkg != nil {
		if s := d.pkg.find(u.id); s != nil && u.adopt(s) {
			return
		}
	}
	name, dir := u.str(u.root.dwoName), u.str(u.root.compDir)
	if d.c.Object != nil {
		d.c.Object(name, dir, u.adopt)
	}
	if u.split != nil {
		u.split.spend(u.split.d.c.memory())
	} else {
		d.problem("unit at %#x: no %s for it", u.off, name)
	}
}

// adopt takes the split unit with u's ID from s.
func (u *unit) adopt(s *Sections) bool {
	d := New(Config{Sections: *s, Text: u.d.c.Text, Budget: u.d.c.Budget, Alt: u.d.altData})
	d.account = u.d.account
	d.scanned = true // its units have no ranges of their own
	for off := uint64(0); off < s.Info.Len() && len(d.units) < maxUnits; {
		x, next, err := d.readUnit(off, s.Info)
		if next <= off {
			break
		}
		off = next
		if err != nil {
			continue
		}
		d.units = append(d.units, x)
		if x.tag != tagCompileUnit || !x.hasID || x.id != u.id || u.split != nil {
			continue
		}
		x.skel = u
		// Their bases are not attributes but follow from the sections' layout (DWARF 5
		// sections 7.26, 7.28; earlier versions have no headers).
		if x.s.version >= 5 {
			x.strBase = 8
			x.rngBase = 12
			if x.s.off == 8 {
				x.strBase, x.rngBase = 16, 20
			}
		}
		u.split = x
	}
	return u.split != nil
}

// memory returns how many bytes of the sections are in memory.
func (s *Sections) memory() (n int) {
	for _, x := range s.all() {
		if x != nil {
			n += len(x.data)
		}
	}
	return n
}

// Section numbers in the columns of .debug_cu_index: version 5 (DWARF 5 section
// 7.3.5.3) and the GNU one before it, version 2
// (https://gcc.gnu.org/wiki/DebugFissionDWP).
const (
	sectInfo       = 1
	sectAbbrev     = 3
	sectLine       = 4
	sectStrOffsets = 6
	sectRngLists   = 8 // version 5 only
)

// Bounds on hostile index sections.
const (
	maxIndexColumns = 16
	maxIndexSlots   = 1 << 24
	maxProbes       = 1 << 12 // slots checked for one unit; at most two in three are used
)

// pkgIndex is the .debug_cu_index of a .dwp file.
type pkgIndex struct {
	s       *Sections
	version uint32
	columns []uint32
	units   uint32
	slots   uint64
	b       []byte // the slots: IDs, then rows, then the tables of offsets and sizes
}

func readIndex(s *Sections) (*pkgIndex, error) {
	b := s.CUIndex.at(0, s.CUIndex.Len())
	c := cursor{b: b}
	p := &pkgIndex{s: s, version: c.u32()}
	if p.version != 2 { // version 5 has a 16-bit version and 16 bits of padding
		p.version &= 0xffff
	}
	cols := c.u32()
	p.units = c.u32()
	slots := c.u32()
	if p.version != 2 && p.version != 5 {
		return nil, fmt.Errorf("index version %d", p.version)
	}
	if c.bad || cols > maxIndexColumns || slots > maxIndexSlots || p.units > slots || slots&(slots-1) != 0 || slots == 0 {
		return nil, fmt.Errorf("index of %d columns, %d units, %d slots", cols, p.units, slots)
	}
	p.slots = uint64(slots)
	p.b = b[c.pos:]
	if uint64(len(p.b)) < p.slots*12+uint64(cols)*4*(1+2*uint64(p.units)) {
		return nil, errTruncated
	}
	c.skip(p.slots * 12)
	for range cols {
		p.columns = append(p.columns, c.u32())
	}
	return p, nil
}

// find returns the sections of the unit with that ID, cut to its contributions; nil if
// it is missing.
func (p *pkgIndex) find(id uint64) *Sections {
	mask := p.slots - 1
	h, step := id&mask, id>>32&mask|1
	for range min(p.slots, maxProbes) {
		c := cursor{b: p.b, pos: int(h * 8)}
		sig := c.uint(8)
		c.pos = int(p.slots*8 + h*4)
		row := c.u32()
		if row == 0 {
			return nil
		}
		if sig == id {
			return p.row(row)
		}
		h = (h + step) & mask
	}
	return nil
}

func (p *pkgIndex) row(row uint32) *Sections {
	if row > p.units {
		return nil
	}
	s := *p.s
	tables := int(p.slots*12) + 4*len(p.columns)
	for i, col := range p.columns {
		at := tables + 4*(int(row-1)*len(p.columns)+i)
		o := cursor{b: p.b, pos: at}
		n := cursor{b: p.b, pos: at + 4*int(p.units)*len(p.columns)}
		off, size := uint64(o.u32()), uint64(n.u32())
		switch {
		case col == sectInfo:
			s.Info = s.Info.sub(off, size)
		case col == sectAbbrev:
			s.Abbrev = s.Abbrev.sub(off, size)
		case col == sectLine:
			s.Line = s.Line.sub(off, size)
		case col == sectStrOffsets:
			s.StrOffsets = s.StrOffsets.sub(off, size)
		case col == sectRngLists && p.version == 5:
			s.RngLists = s.RngLists.sub(off, size)
		}
	}
	return &s
}
