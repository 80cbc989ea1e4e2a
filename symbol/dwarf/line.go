package dwarf

import (
	"fmt"
	"path"
	"sort"
)

// Opcodes of line number programs (DWARF 5 section 7.22).
const (
	lnsCopy        = 1
	lnsAdvancePC   = 2
	lnsAdvanceLine = 3
	lnsSetFile     = 4
	lnsConstAddPC  = 8
	lnsFixedAddPC  = 9
	lneEndSequence = 1
	lneSetAddress  = 2
	lneDefineFile  = 3
	lnctPath       = 1
	lnctDirectory  = 2
)

// Bounds on hostile line tables.
const (
	maxFiles  = 1 << 20 // files or directories of one table
	maxFormat = 32      // fields of one entry
)

// lineTable is a decoded line number program.
type lineTable struct {
	u       *unit
	b       []byte // the whole table
	version uint16
	dirs    []value // values with formString are positions in b
	files   []fileEntry
	names   map[uint32]string
	rows    []lineRow
	seqs    []lineSeq // by lo
}

type fileEntry struct {
	name value
	dir  uint32
}

// lineRow is valid from addr to the next row's, or to the end of its sequence.
type lineRow struct {
	addr       uint64
	line, file uint32
}

type lineSeq struct {
	lo, hi   uint64
	maxHi    uint64
	from, to int32 // rows
}

func (t *lineTable) size() int { return len(t.rows)*16 + len(t.seqs)*32 + len(t.files)*40 }

// read decodes the table of u, or without rows only the names of its files. It keeps
// what precedes an error.
func (t *lineTable) read(u *unit, rows bool) error {
	sec := u.d.c.Line
	off := u.root.stmt.u
	h := cursor{b: sec.at(off, 12)}
	n, is64 := h.length()
	if h.bad || off > sec.Len() || n > sec.Len()-off-uint64(h.pos) || n > maxLines {
		return errTruncated
	}
	if !u.d.toil(int(n)) {
		return nil
	}
	t.u = u
	t.b = sec.at(off, uint64(h.pos)+n)
	c := cursor{b: t.b, pos: h.pos}
	t.version = c.u16()
	if t.version < 2 || t.version > 5 {
		return fmt.Errorf("version %d", t.version)
	}
	s := shape{addr: u.s.addr, off: 4, version: t.version}
	if is64 {
		s.off = 8
	}
	if t.version >= 5 {
		s.addr = int8(c.u8())
		c.u8() // size of a segment selector
	}
	hlen := c.offset(is64)
	if c.bad || hlen > uint64(c.left()) {
		return errTruncated
	}
	program := c.pos + int(hlen)
	p := program0{min: uint64(c.u8()), ops: 1}
	if t.version >= 4 {
		p.ops = uint64(max(c.u8(), 1))
	}
	c.u8() // default of is_stmt
	p.base = int64(int8(c.u8()))
	p.lines = c.u8()
	p.special = c.u8()
	for i := 1; i < int(p.special); i++ {
		p.args[i] = c.u8()
	}
	var err error
	if t.version >= 5 {
		err = t.readNames5(&c, s)
	} else {
		t.readNames(&c)
	}
	if err != nil {
		return err
	}
	if c.bad || p.lines == 0 || p.special == 0 {
		return errTruncated
	}
	if !rows {
		return nil
	}
	c.pos = program
	t.run(&c, &p)
	sort.SliceStable(t.seqs, func(i, j int) bool {
		a, b := &t.seqs[i], &t.seqs[j]
		return a.lo < b.lo || a.lo == b.lo && a.hi > b.hi
	})
	var hi uint64
	for i := range t.seqs {
		hi = max(hi, t.seqs[i].hi)
		t.seqs[i].maxHi = hi
	}
	if c.bad {
		return errTruncated
	}
	return nil
}

func (t *lineTable) readNames(c *cursor) {
	for len(t.dirs) < maxFiles && !c.bad {
		pos := c.pos
		c.skipString()
		if c.pos == pos+1 {
			break
		}
		t.dirs = append(t.dirs, value{form: formString, u: uint64(pos), set: true})
	}
	for len(t.files) < maxFiles && !c.bad {
		if !t.readFile(c) {
			break
		}
	}
}

// readFile reads one entry in the format before DWARF 5; false at the end.
func (t *lineTable) readFile(c *cursor) bool {
	pos := c.pos
	c.skipString()
	if c.bad || c.pos == pos+1 {
		return false
	}
	f := fileEntry{name: value{form: formString, u: uint64(pos), set: true}, dir: uint32(c.uleb())}
	c.uleb() // time
	c.uleb() // size
	t.files = append(t.files, f)
	return true
}

func (t *lineTable) readNames5(c *cursor, s shape) error {
	for pass := range 2 {
		var fields []attr
		n := int(c.u8())
		if n > maxFormat {
			return fmt.Errorf("%d fields in a file entry", n)
		}
		for range n {
			a := attr{at: c.uleb(), form: c.uleb()}
			if s.size(a.form) == -2 || a.form == formImplicit || a.form == formPresent {
				return fmt.Errorf("form %#x in a file entry", a.form)
			}
			fields = append(fields, a)
		}
		count := c.uleb()
		if len(fields) == 0 && count > 0 {
			return fmt.Errorf("%d file entries without fields", count)
		}
		for i := uint64(0); i < count && !c.bad; i++ {
			if i >= maxFiles {
				return fmt.Errorf("%d file entries", count)
			}
			var f fileEntry
			for j := range fields {
				v := s.read(c, &fields[j])
				switch fields[j].at {
				case lnctPath:
					f.name = v
				case lnctDirectory:
					f.dir = uint32(v.u)
				}
			}
			if pass == 0 {
				t.dirs = append(t.dirs, f.name)
			} else {
				t.files = append(t.files, f)
			}
		}
	}
	return nil
}

// program0 holds the parameters in a line number program's header.
type program0 struct {
	min, ops uint64 // bytes of an instruction, operations per instruction
	base     int64
	lines    uint8
	special  uint8 // the first special opcode
	args     [256]uint8
}

// run executes the program. It omits rows that change neither file nor line; of several
// rows at one address the last counts.
func (t *lineTable) run(c *cursor, p *program0) {
	var addr, op uint64
	file, line := uint64(1), uint64(1)
	from := len(t.rows)
	t.rows = make([]lineRow, 0, min(c.left()/4, 1<<20))
	sorted := true
	advance := func(n uint64) {
		if p.ops == 1 {
			addr += n * p.min
			return
		}
		addr += p.min * ((op + n) / p.ops)
		op = (op + n) % p.ops
	}
	row := func() {
		r := lineRow{addr, uint32(min(line, 1<<31)), uint32(min(file, 1<<31))}
		if n := len(t.rows); n > from {
			last := &t.rows[n-1]
			switch {
			case last.addr == addr:
				*last = r
				return
			case last.addr > addr:
				sorted = false
			case last.line == r.line && last.file == r.file:
				return
			}
		}
		t.rows = append(t.rows, r)
	}
	lineBase, lineRange, special := p.base, p.lines, p.special
	constAdd := uint64((255 - special) / lineRange)
	for c.pos < len(c.b) {
		o := c.b[c.pos]
		c.pos++
		if o >= special {
			o -= special
			advance(uint64(o / lineRange))
			line += uint64(lineBase + int64(o%lineRange))
			row()
			continue
		}
		switch o {
		case 0:
			n := c.uleb()
			if n == 0 {
				continue
			}
			end := c.pos + int(min(n, uint64(c.left())))
			if n > uint64(c.left()) {
				c.bad = true
				return
			}
			switch c.u8() {
			case lneEndSequence:
				t.endSequence(from, addr, sorted)
				from = len(t.rows)
				addr, op, file, line, sorted = 0, 0, 1, 1, true
			case lneSetAddress:
				addr, op = c.uint(min(end-c.pos, 8)), 0
			case lneDefineFile:
				if len(t.files) < maxFiles {
					t.readFile(c)
				}
			}
			c.pos = end
		case lnsCopy:
			row()
		case lnsAdvancePC:
			advance(c.uleb())
		case lnsAdvanceLine:
			line += uint64(c.sleb())
		case lnsSetFile:
			file = c.uleb()
		case lnsConstAddPC:
			advance(constAdd)
		case lnsFixedAddPC:
			addr += uint64(c.u16())
			op = 0
		default:
			for range p.args[o] {
				c.uleb()
			}
		}
	}
	t.rows = t.rows[:from:from] // a sequence without an end is dropped
}

func (t *lineTable) endSequence(from int, end uint64, sorted bool) {
	rows := t.rows[from:]
	if len(rows) == 0 {
		return
	}
	if !sorted {
		sort.SliceStable(rows, func(i, j int) bool { return rows[i].addr < rows[j].addr })
	}
	lo := rows[0].addr
	if end <= lo || !t.u.d.c.Text(lo) || len(t.rows) > 1<<31-1 {
		t.rows = t.rows[:from]
		return
	}
	t.seqs = append(t.seqs, lineSeq{lo: lo, hi: end, from: int32(from), to: int32(len(t.rows))})
}

// find returns the source location of vaddr.
func (t *lineTable) find(vaddr uint64) (file string, line int, ok bool) {
	i := sort.Search(len(t.seqs), func(i int) bool { return t.seqs[i].lo > vaddr }) - 1
	for back := 0; i >= 0 && t.seqs[i].maxHi > vaddr && back < maxBack; i, back = i-1, back+1 {
		s := &t.seqs[i]
		if vaddr >= s.hi {
			continue
		}
		rows := t.rows[s.from:s.to]
		j := sort.Search(len(rows), func(j int) bool { return rows[j].addr > vaddr }) - 1
		r := &rows[max(j, 0)]
		return t.file(uint64(r.file)), int(r.line), true
	}
	return "", 0, false
}

// file returns the path of file number n.
func (t *lineTable) file(n uint64) string {
	if t.version < 5 {
		n--
	}
	if n >= uint64(len(t.files)) {
		return ""
	}
	k := uint32(n)
	s, ok := t.names[k]
	if !ok {
		s = t.path(&t.files[k])
		if t.names == nil {
			t.names = make(map[uint32]string)
		}
		t.names[k] = s
	}
	return s
}

func (t *lineTable) path(f *fileEntry) string {
	name := t.str(f.name)
	if name == "" || path.IsAbs(name) {
		return clean(name)
	}
	compDir := t.u.str(t.u.root.compDir)
	dir, i := compDir, int64(f.dir)
	if t.version < 5 {
		i--
	}
	if i >= 0 && i < int64(len(t.dirs)) {
		dir = t.str(t.dirs[i])
		if !path.IsAbs(dir) {
			dir = path.Join(compDir, dir)
		}
	}
	return clean(path.Join(dir, name))
}

func clean(s string) string {
	if s == "" {
		return ""
	}
	return path.Clean(s)
}

func (t *lineTable) str(v value) string {
	if v.form == formString {
		c := cursor{b: t.b, pos: int(min(v.u, uint64(len(t.b))))}
		return c.string()
	}
	return t.u.str(v)
}
