// Package dumptest writes small heap dumps for tests, from classes and objects that a test
// defines.
package dumptest

import (
	"encoding/binary"
	"math"

	"github.com/sliverprof/sliver/heap/hprof"
)

// Dump collects the records of a dump.
type Dump struct {
	ids     int
	head    []byte
	records []byte
	heap    []byte
	strings map[string]uint64
	classes map[string]*class
	next    uint64
}

type class struct {
	id     uint64
	super  *class
	fields []Field
}

// Field is a field of a class, with its value if it is static. A value is an int, a bool,
// or an object's ID as uint64.
type Field struct {
	Name  string
	Type  hprof.Type
	Value any
}

// New returns a dump of a version whose identifiers have ids bytes.
func New(version string, ids int) *Dump {
	d := &Dump{ids: ids, strings: map[string]uint64{}, classes: map[string]*class{}, next: 0x1000_0000}
	d.head = append([]byte("JAVA PROFILE "+version+"\x00"), 0, 0, 0, byte(ids))
	d.head = binary.BigEndian.AppendUint64(d.head, 1_700_000_000_000)
	return d
}

func (d *Dump) id(b []byte, v uint64) []byte {
	if d.ids == 4 {
		return binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return binary.BigEndian.AppendUint64(b, v)
}

func (d *Dump) record(tag byte, body []byte) {
	d.records = append(d.records, tag, 0, 0, 0, 0)
	d.records = binary.BigEndian.AppendUint32(d.records, uint32(len(body)))
	d.records = append(d.records, body...)
}

func (d *Dump) name(s string) uint64 {
	if id, ok := d.strings[s]; ok {
		return id
	}
	id := uint64(len(d.strings) + 1)
	d.strings[s] = id
	d.record(hprof.TagString, append(d.id(nil, id), s...))
	return id
}

// Alloc returns an ID for an object of a size.
func (d *Dump) Alloc(size int) uint64 {
	id := d.next
	d.next += uint64(size+7) / 8 * 8
	return id
}

func (d *Dump) value(b []byte, t hprof.Type, v any) []byte {
	var bits uint64
	switch v := v.(type) {
	case nil:
	case bool:
		if v {
			bits = 1
		}
	case int:
		bits = uint64(v)
	case float64:
		bits = math.Float64bits(v)
	case uint64:
		bits = v
	}
	switch t.Size(d.ids) {
	case 1:
		return append(b, byte(bits))
	case 2:
		return binary.BigEndian.AppendUint16(b, uint16(bits))
	case 4:
		return binary.BigEndian.AppendUint32(b, uint32(bits))
	}
	return binary.BigEndian.AppendUint64(b, bits)
}

// Class adds a class. Its superclass must have been added before ("": none), loader is a
// loader's ID. It returns the class's ID.
func (d *Dump) Class(name, super string, loader uint64, statics []Field, fields ...Field) uint64 {
	c := &class{id: d.Alloc(128), super: d.classes[super], fields: fields}
	d.classes[name] = c
	load := binary.BigEndian.AppendUint32(nil, uint32(len(d.classes)))
	load = d.id(load, c.id)
	load = binary.BigEndian.AppendUint32(load, 0)
	d.record(hprof.TagLoadClass, d.id(load, d.name(name)))
	size := 0
	for k := c; k != nil; k = k.super {
		for _, f := range k.fields {
			size += f.Type.Size(d.ids)
		}
	}
	b := d.id([]byte{hprof.SubClass}, c.id)
	b = binary.BigEndian.AppendUint32(b, 0)
	above := uint64(0)
	if c.super != nil {
		above = c.super.id
	}
	for _, v := range []uint64{above, loader, 0, 0, 0, 0} {
		b = d.id(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(statics)))
	for _, f := range statics {
		b = d.value(append(d.id(b, d.name(f.Name)), byte(f.Type)), f.Type, f.Value)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(fields)))
	for _, f := range fields {
		b = append(d.id(b, d.name(f.Name)), byte(f.Type))
	}
	d.heap = append(d.heap, b...)
	return c.id
}

// Instance adds an object of a class with values by field name, and returns its ID.
func (d *Dump) Instance(name string, values map[string]any) uint64 {
	id := d.Alloc(64)
	d.InstanceAt(id, name, values)
	return id
}

// InstanceAt adds an object with an ID from Alloc.
func (d *Dump) InstanceAt(id uint64, name string, values map[string]any) {
	c := d.classes[name]
	var body []byte
	for k := c; k != nil; k = k.super {
		for _, f := range k.fields {
			body = d.value(body, f.Type, values[f.Name])
		}
	}
	b := d.id([]byte{hprof.SubInstance}, id)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = d.id(b, c.id)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	d.heap = append(append(d.heap, b...), body...)
}

// Objects adds an object array of a class that was added.
func (d *Dump) Objects(class string, elements ...uint64) uint64 {
	id := d.Alloc(16 + 4*len(elements))
	b := d.id([]byte{hprof.SubObjectArray}, id)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(elements)))
	b = d.id(b, d.classes[class].id)
	for _, e := range elements {
		b = d.id(b, e)
	}
	d.heap = append(d.heap, b...)
	return id
}

// Bytes adds a byte array.
func (d *Dump) Bytes(content []byte) uint64 {
	return d.Primitives(hprof.TypeByte, len(content), content)
}

// Primitives adds an array of n elements of a type with its encoded content.
func (d *Dump) Primitives(t hprof.Type, n int, content []byte) uint64 {
	id := d.Alloc(16 + len(content))
	b := d.id([]byte{hprof.SubPrimitiveArray}, id)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	d.heap = append(append(append(d.heap, b...), byte(t)), content...)
	return id
}

// Root adds a root with its sub-record's tag, and the values that follow the ID.
func (d *Dump) Root(tag byte, id uint64, more ...uint32) {
	d.heap = d.id(append(d.heap, tag), id)
	for _, v := range more {
		d.heap = binary.BigEndian.AppendUint32(d.heap, v)
	}
}

// Encode returns the encoded dump.
func (d *Dump) Encode() []byte {
	all := append(append([]byte(nil), d.head...), d.records...)
	all = append(all, hprof.TagHeapSegment, 0, 0, 0, 0)
	all = binary.BigEndian.AppendUint32(all, uint32(len(d.heap)))
	all = append(all, d.heap...)
	return append(all, hprof.TagHeapDumpEnd, 0, 0, 0, 0, 0, 0, 0, 0)
}
