package hprof

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Finding is something that is wrong in a dump that can be read nevertheless.
type Finding struct {
	Offset int64  `json:"offset"` // where it was first seen
	What   string `json:"what"`
	Count  int64  `json:"count"`
}

const (
	// maxClasses bounds the classes whose instances are checked.
	maxClasses = 1 << 18
	// maxFindings bounds the findings that are reported.
	maxFindings = 100
)

// Check reads a stream of dumps and compares what it says in several places:
// sizes of instances with the fields of their classes, classes and names that are
// referred to with those in the dump. It needs memory for the classes, not for
// the objects. References between objects are not followed.
//
// If the stream is damaged, the results are of what came before, and the error is
// an *Error.
func Check(src io.Reader, temp string) ([]*Info, []Finding, error) {
	r, err := NewReader(src)
	if err != nil {
		return nil, nil, err
	}
	c := &checker{Reader: r, seen: map[string]int{}}
	defer c.close()
	c.temp = temp
	c.reset(true)
	for err == nil {
		var it *Item
		if it, err = r.Next(); err == nil {
			if it.Dump != c.counts.dump && it.Kind != KindHeader || it.Kind == KindHeader && it.Offset > 0 {
				c.verdict(it.Kind == KindHeader)
			}
			if err = c.counts.count(r, it); err == nil {
				err = c.item(it)
			}
		}
	}
	c.counts.finish(r)
	c.counts.settle()
	c.verdict(true)
	if err == io.EOF {
		err = c.failed
	}
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return cmp.Compare(a.Offset, b.Offset) })
	return c.counts.infos, c.findings, err
}

// checkedClass collects facts about a class while its dump is read.
type checkedClass struct {
	super   uint64
	own     int64 // bytes of its own fields' values
	defined bool
	first   int64 // offset of its first instance
	size    int64 // of the first instance's body, -1: none yet
	others  int64 // instances of another size
	used    int64 // where it was first referred to, -1: nowhere
}

type checker struct {
	*Reader
	counts   counter
	temp     string
	classes  map[uint64]*checkedClass
	last     *checkedClass
	lastID   uint64
	names    *members // strings are the set, what refers to them the items
	nameAt   int64    // of the first reference to a name
	ended    bool
	begun    bool
	findings []Finding
	seen     map[string]int // findings by text
	failed   error
}

// reset prepares for another dump. Names are those of all dumps behind a header.
func (c *checker) reset(names bool) {
	c.classes, c.last = map[uint64]*checkedClass{}, nil
	c.begun, c.ended = false, false
	if names {
		c.close()
		c.names, c.nameAt = newMembers(c.temp), -1
	}
}

func (c *checker) close() {
	if c.names != nil {
		c.names.close()
	}
}

func (c *checker) find(offset int64, n int64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if i, ok := c.seen[text]; ok {
		c.findings[i].Count += n
		c.findings[i].Offset = min(c.findings[i].Offset, offset)
		return
	}
	if len(c.findings) >= maxFindings {
		return
	}
	c.seen[text] = len(c.findings)
	c.findings = append(c.findings, Finding{offset, text, n})
}

func (c *checker) class(id uint64) *checkedClass {
	if c.last != nil && c.lastID == id {
		return c.last
	}
	k := c.classes[id]
	if k == nil {
		if len(c.classes) >= maxClasses {
			return nil
		}
		k = &checkedClass{size: -1, used: -1}
		c.classes[id] = k
	}
	c.last, c.lastID = k, id
	return k
}

func (c *checker) name(at int64, ids ...uint64) error {
	for _, id := range ids {
		if id == 0 {
			continue
		}
		if c.nameAt < 0 {
			c.nameAt = at
		}
		if err := c.names.item(id); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) item(it *Item) error {
	if it.Kind == KindRecord {
		return c.record(it)
	}
	if it.Kind == KindHeader {
		return nil
	}
	switch it.Tag {
	case SubInstance:
		k := c.class(it.Ref)
		if k == nil {
			return nil
		}
		if k.size < 0 {
			k.size, k.first = it.Body, it.Offset
		} else if k.size != it.Body {
			k.others++
		}
		c.use(k, it)
	case SubObjectArray:
		if k := c.class(it.Ref); k != nil {
			c.use(k, it)
		}
	case SubClass:
		return c.definition(it)
	case SubHeapInfo:
		return c.name(it.Offset, it.Ref)
	case SubPrimitiveArray, SubPrimitiveBare:
	default:
		if it.ID == 0 {
			c.find(it.Offset, 1, "a root 0x%02x of no object", it.Tag)
		}
	}
	return nil
}

func (c *checker) use(k *checkedClass, it *Item) {
	if k.used < 0 {
		k.used = it.Offset
	}
}

func (c *checker) definition(it *Item) error {
	var d Class
	if err := c.Class(&d); err != nil {
		return err
	}
	for _, f := range d.Fields {
		if err := c.name(it.Offset, f.Name); err != nil {
			return err
		}
	}
	for _, f := range d.Statics {
		if err := c.name(it.Offset, f.Name); err != nil {
			return err
		}
	}
	k := c.class(d.ID)
	if k == nil {
		return nil
	}
	if k.defined {
		c.find(it.Offset, 1, "a class that was defined before")
	}
	k.defined, k.super, k.own = true, d.Super, 0
	for _, f := range d.Fields {
		k.own += int64(f.Type.Size(c.header.IDSize))
	}
	if d.Super != 0 {
		if s := c.class(d.Super); s != nil {
			c.use(s, it)
		}
	}
	return nil
}

func (c *checker) record(it *Item) error {
	if !knownRecord(it.Tag) {
		c.find(it.Offset, 1, "an unknown record 0x%02x", it.Tag)
	}
	switch it.Tag {
	case TagString:
		return c.names.has(it.ID)
	case TagLoadClass:
		return c.name(it.Offset, it.Ref)
	case TagFrame:
		f, err := c.Frame()
		if err != nil {
			return err
		}
		return c.name(it.Offset, f.Method, f.Signature, f.Source)
	case TagHeapSegment:
		c.begun = true
	case TagHeapDumpEnd:
		c.ended = true
		if it.Body != 0 {
			c.find(it.Offset, 1, "an end of the heap dump that has %d bytes", it.Body)
		}
	}
	if it.HasSubs() && c.lengthless(it) {
		c.find(it.Offset, 1, "a heap dump record of length 0 that has content")
	}
	return nil
}

// lengthless reports whether a heap dump record gives no length though it has content.
func (c *checker) lengthless(it *Item) bool {
	if c.dump.declared != 0 || !c.need(1) {
		return false
	}
	tag := c.buf[c.pos]
	return subHead(tag, c.header.IDSize) != 0 && !(it.Tag == TagHeapSegment && knownRecord(tag))
}

// verdict reports the findings that take the whole dump.
func (c *checker) verdict(names bool) {
	for _, k := range c.classes {
		if !k.defined {
			if k.used >= 0 {
				c.find(k.used, 1, "a class that objects have and that the dump does not")
			}
			continue
		}
		if k.size < 0 {
			continue
		}
		if k.others > 0 {
			c.find(k.first, k.others, "instances that differ in size from others of their class")
		}
		want, depth := int64(0), 0
		for at := k; at != nil && at.defined; depth++ {
			want += at.own
			if depth > maxDepth {
				c.find(k.first, 1, "a class among its own superclasses")
				want = k.size
				break
			}
			if at.super == 0 {
				break
			}
			at = c.classes[at.super]
		}
		if k.size != want {
			c.find(k.first, 1, "instances of %d bytes whose class's fields have %d", k.size, want)
		}
	}
	if names {
		c.missingNames()
	}
	if c.begun && !c.ended {
		c.find(c.Offset(), 1, "no end of the heap dump after its last segment")
	}
	c.reset(names)
}

func (c *checker) missingNames() {
	if err := c.names.join(); err != nil {
		c.failed = cmp.Or(c.failed, err)
		return
	}
	var missing int64
	for range c.names.count {
		if !c.names.next() {
			missing++
		}
	}
	if missing > 0 {
		c.find(c.nameAt, missing, "names that the dump does not have")
	}
}

// maxDepth bounds a class's superclasses.
const maxDepth = 1 << 10
