package graph

import (
	"cmp"
	"io"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/tally"
)

// A Strength says how firmly a field of a class of java.lang.ref holds its referent.
type Strength uint8

const (
	Strong    Strength = iota
	Soft               // kept until memory is short
	Finalizer          // waits for its finalizer
	Weak               // freed by the next collection; phantom references too
	Garbage            // nothing leads to it
)

func (s Strength) String() string {
	return [...]string{"strongly reachable", "softly reachable", "waiting for a finalizer", "weakly reachable", "unreachable"}[s]
}

// Class is a class of the dump.
type Class struct {
	ID     uint64 // 0 for classes of primitive arrays that have no class of their own
	Name   string // with dots; arrays as "byte[]"
	Super  *Class // nil for java.lang.Object, arrays that have none, and classes that the dump lacks
	Object Object // its class object, 0 if the dump has none
	Loader uint64 // ID of the class loader, 0: the VM's own

	Count    uint64 // instances
	Elements uint64 // of arrays: of all of them

	number  uint32
	size    uint32       // bytes of an instance, by the size model in units of it
	raw     uint32       // bytes of an instance as the dump says
	elem    hprof.Type   // of arrays of primitives
	array   bool         // of objects or primitives
	refs    []uint32     // where an instance's body has references: offset, with the top bit for a referent
	bytes   uint32       // of an instance's body that refs covers
	strong  Strength     // of the referent
	record  *classRecord // nil if the dump has none
	isRoot  bool         // the class object is a root: no instance needs to hold it
	looping bool         // its superclasses run in a circle
}

// referent marks an offset of refs.
const referent = 1 << 31

// Supers yields the class and its superclasses.
func (c *Class) Supers(yield func(*Class) bool) {
	for n := 0; c != nil && n < maxDepth; n++ {
		if !yield(c) {
			return
		}
		c = c.Super
	}
}

// maxDepth bounds chains of superclasses, which a damaged dump may close to a circle.
const maxDepth = 1000

// Is reports whether the class is named so or has such a superclass.
func (c *Class) Is(name string) bool {
	for k := range c.Supers {
		if k.Name == name {
			return true
		}
	}
	return false
}

// IsArray reports whether its objects are arrays.
func (c *Class) IsArray() bool { return c.array }

// Element returns the type of a primitive array's elements, 0 for other classes.
func (c *Class) Element() hprof.Type { return c.elem }

var primitiveNames = map[byte]string{'Z': "boolean", 'C': "char", 'F': "float", 'D': "double", 'B': "byte", 'S': "short", 'I': "int", 'J': "long"}

// className returns a class's name with dots, whichever way the dump writes it:
// "java/lang/String", "[Ljava/lang/String;", "[[I", or ART's "java.lang.String[]".
func className(raw string) string {
	depth := 0
	for depth < len(raw) && raw[depth] == '[' {
		depth++
	}
	s := raw[depth:]
	if depth > 0 && depth <= 255 {
		switch {
		case len(s) > 2 && s[0] == 'L' && s[len(s)-1] == ';':
			s = s[1 : len(s)-1]
		case len(s) == 1 && primitiveNames[s[0]] != "":
			s = primitiveNames[s[0]]
		}
		s += strings.Repeat("[]", depth)
	} else {
		s = raw
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "/", ".")
}

// names reads string records.
type names struct {
	file  io.ReaderAt
	texts []text // sorted
	known map[uint64]string
}

// get returns the string of an ID, or "" if the dump has none.
func (n *names) get(id uint64) string {
	if s, ok := n.known[id]; ok {
		return s
	}
	i := sort.Search(len(n.texts), func(i int) bool { return n.texts[i].id >= id })
	s := ""
	if i < len(n.texts) && n.texts[i].id == id {
		b := make([]byte, n.texts[i].bytes)
		k, _ := n.file.ReadAt(b, n.texts[i].offset)
		s = string(b[:k])
	}
	n.known[id] = s
	return s
}

// classTable makes the classes of a survey.
type classTable struct {
	all    []*Class
	byID   tally.Table
	byName map[string]*Class
	prim   [16]*Class // of arrays, by the elements' type
	idSize int
}

func (t *classTable) add(id uint64, name string) *Class {
	c := &Class{ID: id, Name: name, number: uint32(len(t.all))}
	t.all = append(t.all, c)
	if id != 0 && t.byID.Get(id) == 0 {
		t.byID.Put(id, c.number)
	}
	if name != "" && t.byName[name] == nil {
		t.byName[name] = c
	}
	return c
}

// find returns the class of an ID, nil if there is none.
func (t *classTable) find(id uint64) *Class {
	if i := t.byID.Get(id); i != 0 {
		return t.all[i-1]
	}
	return nil
}

func newClasses(s *survey, n *names) *classTable {
	t := &classTable{byName: map[string]*Class{}, idSize: s.header.IDSize}
	named := make(map[uint64]uint64, len(s.loaded))
	for _, l := range s.loaded {
		named[l.id] = l.name
	}
	for i := range s.classes {
		k := &s.classes[i]
		if t.find(k.ID) != nil {
			continue // a second record of the class
		}
		c := t.add(k.ID, className(n.get(named[k.ID])))
		c.record, c.raw, c.Loader = k, k.Size, k.Loader
		c.array = strings.HasSuffix(c.Name, "[]")
		if c.Name == "" {
			c.Name = "(class without a name)"
		}
	}
	for typ := hprof.TypeBoolean; typ <= hprof.TypeLong; typ++ {
		name := typ.String() + "[]"
		c := t.byName[name]
		if c == nil {
			c = t.add(0, name)
		}
		c.elem, c.array = typ, true
		t.prim[typ] = c
	}
	for i := range s.counts.All { // instances of classes that the dump lacks
		y := &s.counts.All[i]
		if y.Kind == KindPrimitiveArray {
			t.prim[y.ID&15].Count += y.Count
			t.prim[y.ID&15].Elements += y.Elements
			continue
		}
		c := t.find(y.ID)
		if c == nil {
			name := className(n.get(named[y.ID]))
			if name == "" {
				name = "(class the dump lacks)"
			}
			if c = t.add(y.ID, name); y.ID == 0 { // a damaged dump may say so of an object
				t.byID.Put(0, c.number)
			}
		}
		c.Count += y.Count
		if y.Kind == KindObjectArray {
			c.array = true
			c.Elements += y.Elements
		}
	}
	for _, c := range t.all {
		if c.record != nil {
			c.Super = t.find(c.record.Super)
		}
	}
	for _, c := range t.all {
		t.layout(c, n)
	}
	return t
}

// layout finds out where instances have their references.
func (t *classTable) layout(c *Class, n *names) {
	depth := 0
	for k := c; k != nil; k = k.Super {
		if depth++; depth > maxDepth {
			c.looping = true
			return
		}
		c.strong = max(c.strong, refStrength(k.Name))
	}
	offset := uint32(0)
	for k := range c.Supers {
		if k.record == nil {
			break
		}
		for _, f := range k.record.Fields {
			if f.Type == hprof.TypeObject {
				at := offset
				if c.strong != Strong && k.Name == "java.lang.ref.Reference" && n.get(f.Name) == "referent" {
					at |= referent
				}
				c.refs = append(c.refs, at)
			}
			offset += uint32(f.Type.Size(t.idSize))
			if offset >= referent {
				return
			}
		}
	}
	c.bytes = offset
}

// refStrength returns how firmly instances of a class of java.lang.ref hold their
// referent.
func refStrength(name string) Strength {
	switch name {
	case "java.lang.ref.SoftReference":
		return Soft
	case "java.lang.ref.WeakReference", "java.lang.ref.PhantomReference":
		return Weak
	case "java.lang.ref.FinalReference", "java.lang.ref.FinalizerReference":
		return Finalizer
	}
	return Strong
}

// Classes returns all classes, those with most instances first.
func (g *Graph) Classes() []*Class {
	all := slices.Clone(g.classes.all)
	slices.SortStableFunc(all, func(a, b *Class) int {
		if a.Count != b.Count {
			if a.Count > b.Count {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// ClassByName returns the first class of a name, nil if there is none.
func (g *Graph) ClassByName(name string) *Class { return g.classes.byName[name] }

// ClassesByName returns all classes of a name: each of its class loaders has one.
func (g *Graph) ClassesByName(name string) (all []*Class) {
	for _, c := range g.classes.all {
		if c.Name == name {
			all = append(all, c)
		}
	}
	return all
}

// HasRefs reports whether the class itself declares instance fields that are references.
func (c *Class) HasRefs() bool {
	if c.record == nil {
		return false
	}
	return slices.ContainsFunc(c.record.Fields, func(f hprof.Field) bool { return f.Type == hprof.TypeObject })
}

// FileOrder returns all objects in the order in which the dump has them.
func (g *Graph) FileOrder() []uint32 {
	all := make([]uint32, g.n)
	for i := range all {
		all[i] = uint32(i) + 1
	}
	sorted := true
	for o := Object(2); uint32(o) <= g.n && sorted; o++ {
		sorted = g.offset(o-1) < g.offset(o)
	}
	if !sorted {
		slices.SortFunc(all, func(a, b uint32) int { return cmp.Compare(g.offset(Object(a)), g.offset(Object(b))) })
	}
	return all
}
