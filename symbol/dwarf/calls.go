package dwarf

import "sort"

// nameCost is the approximate size of an entry of Data.names in bytes.
const nameCost = 256

// tree holds the calls inlined into one function.
type tree struct {
	start uint64 // of the function
	self  *info
	calls []call
	spans []span // id is an index into calls
}

type call struct {
	origin     ref    // the function; its u is nil if unknown
	file, line uint64 // of the call, in the caller
	parent     int32  // index of the caller, -1: the function itself
	depth      int32
}

// info holds the names in a function's DIE and in those it refers to.
type info struct {
	name, linkage string
	file          string // of the declaration
	decl          int
}

// lookup appends the calls at vaddr, which is in u's ranges.
func (u *unit) lookup(vaddr uint64, buf []Call) []Call {
	u.load()
	u.d.last = u
	f := u
	if u.split != nil {
		f = u.split
	}
	pos := f.function(vaddr)
	if pos == 0 && f != u {
		f = u
		pos = f.function(vaddr)
	}
	file, line, ok := u.lines.find(vaddr)
	if pos == 0 {
		if ok {
			buf = append(buf, Call{File: file, Line: line, Lang: u.root.lang})
		}
		return buf
	}
	lang := f.root.lang
	t := f.tree(pos)
	u.d.toil(len(t.spans))
	for i := t.innermost(vaddr); i >= 0; i = t.calls[i].parent {
		c := &t.calls[i]
		in := c.origin.info()
		buf = append(buf, Call{Name: in.name, Linkage: in.linkage, DeclFile: in.file, DeclLine: in.decl,
			File: file, Line: line, Start: t.start, Inlined: true, Lang: lang})
		file, line = u.lines.file(c.file), int(min(c.line, 1<<31))
	}
	return append(buf, Call{Name: t.self.name, Linkage: t.self.linkage, DeclFile: t.self.file, DeclLine: t.self.decl,
		File: file, Line: line, Start: t.start, Lang: lang})
}

// innermost returns the deepest call at vaddr, -1 for none.
func (t *tree) innermost(vaddr uint64) int32 {
	best, depth, size := int32(-1), int32(-1), uint64(0)
	for i := range t.spans {
		s := &t.spans[i]
		if vaddr < s.lo || vaddr >= s.hi {
			continue
		}
		d := t.calls[s.id].depth
		if d > depth || d == depth && s.hi-s.lo < size {
			best, depth, size = int32(s.id), d, s.hi-s.lo
		}
	}
	return best
}

// outside marks DIEs nested in another function's DIE.
const outside = -2

// tree reads the function whose DIE is at pos.
func (u *unit) tree(pos int) *tree {
	if t := u.trees[pos]; t != nil {
		return t
	}
	t := &tree{self: (ref{u, pos}).info()}
	u.trees[pos] = t
	c := cursor{b: u.data, pos: pos}
	a := u.table.find(c.uleb())
	if a == nil {
		return t
	}
	var p pcs
	for i := range a.attrs {
		p.take(a.attrs[i].at, u.s.read(&c, &a.attrs[i]))
	}
	u.eachRange(&p, func(lo, _ uint64) {
		if t.start == 0 {
			t.start = lo
		}
	})
	if lo, ok := u.addr(p.low); ok && p.high.set {
		t.start = lo
	}
	// parents[i]: the call that contains the DIEs at depth i.
	parents := []int32{-1, -1}
	for a.children && c.pos < len(c.b) && !c.bad {
		depth := len(parents) - 1
		pos := c.pos
		code := c.uleb()
		if code == 0 {
			if parents = parents[:depth]; depth == 1 {
				break
			}
			continue
		}
		x := u.table.find(code)
		if x == nil || depth >= maxDepth {
			u.d.problem("DIE at %#x: no abbreviation %d for it at depth %d", u.off+uint64(pos), code, depth)
			break
		}
		in := parents[depth]
		switch {
		case x.tag == tagInlined && in != outside:
			in = u.addCall(t, &c, x, in, depth)
		case x.tag == tagSubprogram:
			in = outside
			fallthrough
		case x.fixed < 0:
			u.skipAttrs(&c, x)
		default:
			c.skip(uint64(x.fixed))
		}
		if x.children {
			parents = append(parents, in)
		}
	}
	u.d.toil(c.pos - pos)
	u.spend(len(t.calls)*48 + len(t.spans)*32 + 64)
	return t
}

// addCall reads the inlined call at c and returns its index.
func (u *unit) addCall(t *tree, c *cursor, a *abbrev, parent int32, depth int) int32 {
	var p pcs
	var origin value
	n := int32(len(t.calls))
	k := call{parent: parent, depth: int32(depth)}
	for i := range a.attrs {
		at := &a.attrs[i]
		v := u.s.read(c, at)
		if p.take(at.at, v) {
			continue
		}
		switch at.at {
		case atAbstract:
			origin = v
		case atCallFile:
			k.file = v.u
		case atCallLine:
			k.line = v.u
		}
	}
	if r, ok := u.ref(origin); ok && origin.set {
		k.origin = r
	}
	t.calls = append(t.calls, k)
	u.eachRange(&p, func(lo, hi uint64) { t.spans = append(t.spans, span{lo: lo, hi: hi, id: int(n)}) })
	return n
}

// info returns the names of the function at r.
func (r ref) info() *info {
	if r.u == nil {
		return &info{}
	}
	d, key := r.u.d, r.u.off+uint64(r.pos)
	if in := d.names[key]; in != nil {
		return in
	}
	in := new(info)
	d.names[key] = in
	var named ref
	for range maxLinks {
		next, ok := r.names(in)
		if named.u == nil && in.name != "" {
			named = r
		}
		if !ok || in.name != "" && in.linkage != "" && in.decl != 0 {
			break
		}
		r = next
	}
	if in.linkage == "" && in.name != "" && scoped(named.u.root.lang) {
		if s := named.u.scopeOf(named.pos); s != "" {
			in.name = s + "::" + in.name
		}
	}
	return in
}

// names fills the empty fields of in from the DIE at r; next is the DIE it refers to.
func (r ref) names(in *info) (next ref, ok bool) {
	u := r.u
	u.hold()
	if r.pos >= len(u.data) {
		return next, false
	}
	c := cursor{b: u.data, pos: r.pos}
	a := u.table.find(c.uleb())
	if a == nil {
		return next, false
	}
	var file value
	first := in.decl == 0
	for i := range a.attrs {
		at := &a.attrs[i]
		switch at.at {
		case atName:
			if v := u.s.read(&c, at); in.name == "" {
				in.name = u.str(v)
			}
		case atLinkage, atMIPSLinkage:
			if v := u.s.read(&c, at); in.linkage == "" {
				in.linkage = u.str(v)
			}
		case atDeclLine:
			if v := u.s.read(&c, at); in.decl == 0 {
				in.decl = int(min(v.u, 1<<31))
			}
		case atDeclFile:
			file = u.s.read(&c, at)
		case atAbstract, atSpec:
			if n, is := u.ref(u.s.read(&c, at)); is {
				next, ok = n, true
			}
		default:
			if at.size >= 0 {
				c.skip(uint64(at.size))
			} else {
				u.s.skipForm(&c, at.form)
			}
		}
	}
	if first && in.decl != 0 && file.set {
		in.file = u.files().file(file.u)
	}
	return next, ok
}

// Languages whose functions have no scopes to name (DWARF 5 section 7.12).
const (
	langC89 = 0x01
	langC   = 0x02
	langC99 = 0x0c
	langGo  = 0x16
	langC11 = 0x1d
	langC17 = 0x2c
	langAsm = 0x8001
)

func scoped(lang uint16) bool {
	switch lang {
	case langC89, langC, langC99, langGo, langC11, langC17, langAsm:
		return false
	}
	return true
}

// scope is a namespace or type with children.
type scope struct {
	from, to int // positions of its children
	parent   int32
	name     string
}

// scopeOf returns the scope of the DIE at pos, "" for none.
func (u *unit) scopeOf(pos int) string {
	if u.scopes == nil {
		u.readScopes()
	}
	// Scopes are nested and sorted by from: the last one that starts before pos
	// contains it, or one of that scope's parents does.
	best := int32(sort.Search(len(u.scopes), func(i int) bool { return u.scopes[i].from > pos }) - 1)
	for best >= 0 && pos >= u.scopes[best].to {
		best = u.scopes[best].parent
	}
	name := ""
	for n := 0; best >= 0 && n < maxLinks; n++ {
		s := &u.scopes[best]
		switch {
		case s.name == "":
		case name == "":
			name = s.name
		default:
			name = s.name + "::" + name
		}
		best = s.parent
	}
	return name
}

func (u *unit) readScopes() {
	u.hold()
	u.scopes = []scope{}
	c := cursor{b: u.data, pos: u.first}
	in := []int32{-1}
	for c.pos < len(c.b) && !c.bad && len(in) < maxDepth {
		code := c.uleb()
		if code == 0 {
			if s := in[len(in)-1]; s >= 0 {
				u.scopes[s].to = c.pos // of the innermost scope last: overwritten until its own end
			}
			if len(in) > 1 {
				in = in[:len(in)-1]
			}
			continue
		}
		a := u.table.find(code)
		if a == nil {
			break
		}
		name, isScope := "", false
		switch a.tag {
		case tagNamespace, tagClass, tagStructure, tagUnion, tagEnumeration, tagModule, tagInterface:
			isScope = a.children
		}
		if isScope {
			for i := range a.attrs {
				if v := u.s.read(&c, &a.attrs[i]); a.attrs[i].at == atName {
					name = u.str(v)
				}
			}
			if name == "" && a.tag == tagNamespace {
				name = "(anonymous namespace)"
			}
		} else {
			u.skipAttrs(&c, a)
		}
		if !a.children {
			continue
		}
		at := in[len(in)-1]
		if isScope {
			u.scopes = append(u.scopes, scope{from: c.pos, to: len(c.b), parent: at, name: name})
			at = int32(len(u.scopes) - 1)
		}
		in = append(in, at)
	}
	u.d.toil(c.pos)
	u.spend(len(u.scopes) * 64)
}
