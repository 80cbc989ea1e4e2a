package dwarf

import "fmt"

// Bounds on hostile abbreviation tables; compilers stay far below.
const (
	maxAbbrevs = 1 << 20 // declarations in one table
	maxAttrs   = 1 << 10 // attributes in one declaration
)

type attr struct {
	at, form uint64
	implicit int64
	size     int8 // of the form, as returned by shape.size
}

type abbrev struct {
	tag      uint64
	code     uint64
	attrs    []attr
	fixed    int32 // bytes of all attributes, -1 if variable
	children bool
	pc       bool // has an address or ranges
}

// abbrevs is one table of .debug_abbrev. Compilers write consecutive codes from 1;
// others go to the map.
type abbrevs struct {
	dense  []abbrev
	sparse map[uint64]*abbrev
}

func (t *abbrevs) find(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.sparse[code]
}

// nextAbbrev reads one declaration; ok is false at the end of the table or at a malformed one.
func nextAbbrev(c *cursor, s shape, pool *[]attr) (abbrev, bool) {
	a := abbrev{code: c.uleb()}
	if a.code == 0 || c.bad {
		return a, false
	}
	a.tag = c.uleb()
	a.children = c.u8() != 0
	from := len(*pool)
	for {
		at, form := c.uleb(), c.uleb()
		if c.bad {
			return a, false
		}
		if at == 0 && form == 0 {
			break
		}
		x := attr{at: at, form: form, size: s.size(form)}
		if form == formImplicit {
			x.implicit = c.sleb()
		}
		if x.size == -2 || len(*pool)-from >= maxAttrs {
			c.bad = true
			return a, false
		}
		switch {
		case x.size < 0:
			a.fixed = -1
		case a.fixed >= 0:
			a.fixed += int32(x.size)
		}
		if at == atLowPC || at == atRanges {
			a.pc = true
		}
		*pool = append(*pool, x)
	}
	a.attrs = (*pool)[from:len(*pool):len(*pool)]
	return a, true
}

// readAbbrevs reads the table at off. With an error it returns the declarations before
// the error.
func (d *Data) readAbbrevs(off uint64, s shape) (*abbrevs, error) {
	sec := d.c.Abbrev
	n := uint64(16 * chunk)
	if sec.Len() > 0 && sec.r == nil {
		n = sec.Len()
	}
	for ; ; n *= 8 {
		c := cursor{b: sec.at(off, n)}
		t := new(abbrevs)
		var pool []attr
		for i := 0; i < maxAbbrevs; i++ {
			a, ok := nextAbbrev(&c, s, &pool)
			if !ok {
				break
			}
			if a.code == uint64(len(t.dense))+1 {
				t.dense = append(t.dense, a)
				continue
			}
			if t.sparse == nil {
				t.sparse = make(map[uint64]*abbrev)
			}
			t.sparse[a.code] = &a
		}
		if !d.toil(8*c.pos) || !c.bad && c.b != nil {
			return t, nil
		}
		if uint64(len(c.b)) < n || n >= sec.Len() {
			return t, fmt.Errorf("abbreviation table at %#x breaks at %#x", off, off+uint64(c.pos))
		}
	}
}

// findAbbrev finds one code without storing the table: a unit's root is nearly always
// the first, and most units are never loaded.
func (d *Data) findAbbrev(off, code uint64, s shape) (abbrev, bool) {
	sec := d.c.Abbrev
	for n := uint64(chunk); ; n *= 8 {
		c := cursor{b: sec.at(off, n)}
		var pool [64]attr
		for i := 0; i < maxAbbrevs; i++ {
			p := pool[:0]
			a, ok := nextAbbrev(&c, s, &p)
			if !ok || !d.toil(8) {
				break
			}
			if a.code == code {
				return a, true
			}
		}
		if !c.bad || uint64(len(c.b)) < n {
			return abbrev{}, false
		}
	}
}
