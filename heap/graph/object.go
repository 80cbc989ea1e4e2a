package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"

	"github.com/sliverprof/sliver/heap/hprof"
)

// scratch is what reading objects uses again.
type scratch struct {
	body []byte
}

// maxBody bounds what of an object is read in one piece.
const maxBody = 4 << 20

// Value is a field's or an element's.
type Value struct {
	Type hprof.Type
	Bits uint64 // of a primitive; an object's ID
}

// String returns a primitive's value as Java writes it, and an ID in hexadecimal.
func (v Value) String() string {
	switch v.Type {
	case hprof.TypeBoolean:
		return strconv.FormatBool(v.Bits != 0)
	case hprof.TypeChar:
		return strconv.QuoteRune(rune(v.Bits))
	case hprof.TypeFloat:
		return strconv.FormatFloat(float64(math.Float32frombits(uint32(v.Bits))), 'g', -1, 32)
	case hprof.TypeDouble:
		return strconv.FormatFloat(math.Float64frombits(v.Bits), 'g', -1, 64)
	case hprof.TypeByte:
		return strconv.Itoa(int(int8(v.Bits)))
	case hprof.TypeShort:
		return strconv.Itoa(int(int16(v.Bits)))
	case hprof.TypeInt:
		return strconv.Itoa(int(int32(v.Bits)))
	case hprof.TypeLong:
		return strconv.FormatInt(int64(v.Bits), 10)
	}
	if v.Bits == 0 {
		return "null"
	}
	return fmt.Sprintf("0x%x", v.Bits)
}

// Field is a field with its value.
type Field struct {
	Class *Class // that declares it
	Name  string
	Value
}

// head reads what of an object's sub-record is in front of its body. It uses no Reader,
// whose window is too much for a single object.
func (g *Graph) head(o Object) (tag byte, class uint64, count uint32, elem hprof.Type, body int64) {
	at := g.offset(o)
	ids := g.header.IDSize
	var b [32]byte
	n, _ := g.readRecord(o, b[:], at)
	if at == 0 || n < 10+ids {
		return 0, 0, 0, 0, 0
	}
	switch tag = b[0]; tag {
	case hprof.SubInstance:
		if n >= 9+2*ids {
			return tag, hprof.ID(b[5+ids:], ids), binary.BigEndian.Uint32(b[5+2*ids:]), 0, at + int64(9+2*ids)
		}
	case hprof.SubObjectArray:
		if n >= 9+2*ids {
			return tag, hprof.ID(b[9+ids:], ids), binary.BigEndian.Uint32(b[5+ids:]), hprof.TypeObject, at + int64(9+2*ids)
		}
	case hprof.SubPrimitiveArray, hprof.SubPrimitiveBare:
		return tag, 0, binary.BigEndian.Uint32(b[5+ids:]), hprof.Type(b[9+ids]), at + int64(10+ids)
	case hprof.SubClass:
		return tag, hprof.ID(b[1:], ids), 0, 0, at
	}
	return 0, 0, 0, 0, 0
}

// metaOf returns an object's Kind and class as in meta, from the file where that was not
// kept.
func (g *Graph) metaOf(o Object) uint32 {
	if g.meta != nil {
		return g.meta[o]
	}
	tag, class, _, elem, _ := g.head(o)
	switch tag {
	case hprof.SubPrimitiveArray, hprof.SubPrimitiveBare:
		return uint32(KindPrimitiveArray)<<kindShift | g.classes.prim[elem&15].number
	case hprof.SubInstance, hprof.SubObjectArray, hprof.SubClass:
		c := g.classes.find(class)
		if c == nil {
			break
		}
		kind := KindInstance
		if tag == hprof.SubObjectArray {
			kind = KindObjectArray
		} else if tag == hprof.SubClass {
			kind = KindClass
		}
		return uint32(kind)<<kindShift | c.number
	}
	return 0
}

func (g *Graph) sizeFromFile(o Object) int64 {
	m := g.metaOf(o)
	c := g.classes.all[m&numberMask]
	switch Kind(m >> kindShift) {
	case KindInstance:
		return int64(c.size)
	case KindClass:
		return g.sizes.classObject(c)
	}
	_, _, n, t, _ := g.head(o)
	return g.sizes.array(t, int64(n))
}

// Length returns how many elements an array has, 0 for other objects.
func (g *Graph) Length(o Object) int {
	if g.length != nil {
		return int(g.length[o])
	}
	tag, _, n, _, _ := g.head(o)
	if tag == hprof.SubInstance || tag == hprof.SubClass {
		return 0
	}
	return int(n)
}

// bytesOf returns up to max bytes of an object's body from the offset from. They are
// valid until the next call.
func (g *Graph) bytesOf(o Object, from, max int64) []byte {
	tag, _, n, t, at := g.head(o)
	size := int64(n)
	switch tag {
	case hprof.SubObjectArray, hprof.SubPrimitiveArray:
		size *= int64(t.Size(g.header.IDSize))
	case hprof.SubInstance:
	default:
		return nil
	}
	size = min(size-from, max, maxBody, g.bytes-at-from)
	if size <= 0 {
		return nil
	}
	if int64(cap(g.scratch.body)) < size {
		g.scratch.body = make([]byte, size)
	}
	b := g.scratch.body[:size]
	k, _ := g.readRecord(o, b, at+from)
	return b[:k]
}

// Fields returns the fields of an instance, those of its own class first, or the static
// fields of a class.
func (g *Graph) Fields(o Object) (all []Field) {
	switch g.Kind(o) {
	case KindInstance:
		body := g.bytesOf(o, 0, maxBody)
		ids := g.header.IDSize
		for k := range g.Class(o).Supers {
			if k.record == nil {
				break
			}
			for _, f := range k.record.Fields {
				size := f.Type.Size(ids)
				if len(body) < size {
					return all
				}
				all = append(all, Field{k, g.names.get(f.Name), Value{f.Type, bitsOf(body, size)}})
				body = body[size:]
			}
		}
	case KindClass:
		c := g.Class(o)
		if c.record == nil {
			return nil
		}
		for _, s := range c.record.Statics {
			all = append(all, Field{c, g.names.get(s.Name), Value{s.Type, s.Value}})
		}
	}
	return all
}

func bitsOf(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// Slot is where instances of a class have a field.
type Slot struct {
	offset int64
	typ    hprof.Type
}

// Slot returns where instances of c have the field of a name, that of the nearest class
// which declares one. class "" is any class.
func (g *Graph) Slot(c *Class, class, name string) (Slot, bool) {
	at := int64(0)
	for k := range c.Supers {
		if k.record == nil {
			break
		}
		for _, f := range k.record.Fields {
			if (class == "" || class == k.Name) && g.names.get(f.Name) == name {
				return Slot{at, f.Type}, true
			}
			at += int64(f.Type.Size(g.header.IDSize))
		}
	}
	return Slot{}, false
}

// At returns the value that an instance has in a slot.
func (g *Graph) At(o Object, s Slot) (Value, bool) {
	size := s.typ.Size(g.header.IDSize)
	if g.memory != nil && g.meta != nil && g.Kind(o) == KindInstance { // no need to read the record's head
		var b [8]byte
		n, _ := g.readRecord(o, b[:size], g.offset(o)+int64(9+2*g.header.IDSize)+s.offset)
		return Value{s.typ, bitsOf(b[:], size)}, size > 0 && n == size
	}
	b := g.bytesOf(o, s.offset, int64(size))
	if size == 0 || len(b) < size {
		return Value{}, false
	}
	return Value{s.typ, bitsOf(b, size)}, true
}

// Field returns the value of an instance's field.
func (g *Graph) Field(o Object, name string) (Value, bool) {
	if g.Kind(o) != KindInstance {
		return Value{}, false
	}
	s, ok := g.Slot(g.Class(o), "", name)
	if !ok {
		return Value{}, false
	}
	return g.At(o, s)
}

// Follow returns the object that a chain of fields leads to, 0 if one is null or missing.
func (g *Graph) Follow(o Object, names ...string) Object {
	for _, name := range names {
		v, ok := g.Field(o, name)
		if !ok || v.Type != hprof.TypeObject || v.Bits == 0 {
			return 0
		}
		if o = g.Find(v.Bits); o == 0 {
			return 0
		}
	}
	return o
}

// Static returns the value of a class's static field.
func (c *Class) static(g *Graph, name string) (Value, bool) {
	if c == nil || c.record == nil {
		return Value{}, false
	}
	for _, s := range c.record.Statics {
		if g.names.get(s.Name) == name {
			return Value{s.Type, s.Value}, true
		}
	}
	return Value{}, false
}

// Static returns the value of a class's static field.
func (g *Graph) Static(c *Class, name string) (Value, bool) { return c.static(g, name) }

// Elements calls f with up to max elements of an array, until f returns false.
func (g *Graph) Elements(o Object, max int, f func(i int, v Value) bool) {
	tag, _, n, t, _ := g.head(o)
	if tag != hprof.SubObjectArray && tag != hprof.SubPrimitiveArray {
		return
	}
	size := t.Size(g.header.IDSize)
	n = uint32(min(int64(n), int64(max)))
	const piece = 64 << 10
	for i := 0; i < int(n); {
		b := append([]byte(nil), g.bytesOf(o, int64(i)*int64(size), int64(min(piece, int(n)-i)*size))...)
		if len(b) < size {
			return
		}
		for ; len(b) >= size; b = b[size:] {
			if !f(i, Value{t, bitsOf(b, size)}) {
				return
			}
			i++
		}
	}
}

// Bytes returns up to max bytes of a primitive array's content, as the dump has them. They
// are valid until the graph is next asked.
func (g *Graph) Content(o Object, max int64) []byte {
	if g.Kind(o) != KindPrimitiveArray {
		return nil
	}
	return g.bytesOf(o, 0, max)
}

// Text returns up to max characters of a java.lang.String, and whether o is one. It knows
// the strings of JDK 5 to 25 and of Android.
func (g *Graph) Text(o Object, max int) (string, bool) {
	if o == 0 || g.Kind(o) != KindInstance || g.Class(o).Name != "java.lang.String" {
		return "", false
	}
	array := g.Follow(o, "value")
	if array == 0 {
		return "", array != 0
	}
	from, n := 0, g.Length(array)
	if v, ok := g.Field(o, "count"); ok && v.Type == hprof.TypeInt {
		n = min(n, int(int32(v.Bits)))
		if v, ok := g.Field(o, "offset"); ok {
			from = int(int32(v.Bits))
		}
	}
	elem := g.Class(array).elem
	coder := uint64(0)
	if v, ok := g.Field(o, "coder"); ok {
		coder = v.Bits
	}
	if from < 0 || n < 0 {
		return "", true
	}
	switch {
	case elem == hprof.TypeChar:
		return utf16Text(g.bytesOf(array, int64(from)*2, int64(min(n, max))*2), binary.BigEndian), true
	case coder == 1: // the array has characters of two bytes in the machine's order
		return utf16Text(g.bytesOf(array, 0, int64(min(n/2, max))*2), binary.LittleEndian), true
	}
	b := g.bytesOf(array, int64(from), int64(min(n, max)))
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes), true
}

func utf16Text(b []byte, order binary.ByteOrder) string {
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = order.Uint16(b[2*i:])
	}
	return string(utf16.Decode(u))
}
