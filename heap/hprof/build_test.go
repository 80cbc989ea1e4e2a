package hprof

//sliver:layer live

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// builder writes dumps for tests.
type builder struct {
	bytes.Buffer
	ids     int
	segment int // where the open segment's length is, 0: none
	pixels  int // fifths of the bytes of a bitmap
}

func newBuilder(version string, ids int) *builder {
	b := &builder{ids: ids, pixels: 200_000}
	b.WriteString(magic + version + "\x00")
	b.u4(uint32(ids))
	b.u4(0x19a)
	b.u4(0x12345678)
	return b
}

func (b *builder) u1(v uint8)  { b.WriteByte(v) }
func (b *builder) u2(v uint16) { b.Write(binary.BigEndian.AppendUint16(nil, v)) }
func (b *builder) u4(v uint32) { b.Write(binary.BigEndian.AppendUint32(nil, v)) }
func (b *builder) id(v uint64) {
	var p [8]byte
	PutID(p[:], b.ids, v)
	b.Write(p[:b.ids])
}

func (b *builder) head(tag uint8, length int) {
	b.u1(tag)
	b.u4(7)
	b.u4(uint32(length))
}

func (b *builder) str(id uint64, s string) {
	b.end()
	b.head(TagString, b.ids+len(s))
	b.id(id)
	b.WriteString(s)
}

func (b *builder) load(serial uint32, class, name uint64) {
	b.end()
	b.head(TagLoadClass, 8+2*b.ids)
	b.u4(serial)
	b.id(class)
	b.u4(0)
	b.id(name)
}

func (b *builder) begin(tag uint8) {
	b.end()
	b.head(tag, 0)
	b.segment = b.Len() - 4
}

func (b *builder) end() {
	if b.segment != 0 {
		binary.BigEndian.PutUint32(b.Bytes()[b.segment:], uint32(b.Len()-b.segment-4))
		b.segment = 0
	}
}

func (b *builder) heap(heap uint32, name uint64) { b.u1(SubHeapInfo); b.u4(heap); b.id(name) }

func (b *builder) class(id, super uint64, size uint32, fields ...Field) {
	b.u1(SubClass)
	b.id(id)
	b.u4(1)
	b.id(super)
	for range 5 {
		b.id(0)
	}
	b.u4(size)
	b.u2(1) // constants
	b.u2(3)
	b.u1(uint8(TypeInt))
	b.u4(99)
	b.u2(1) // statics
	b.id(0x10)
	b.u1(uint8(TypeObject))
	b.id(0x5000)
	b.u2(uint16(len(fields)))
	for _, f := range fields {
		b.id(f.Name)
		b.u1(uint8(f.Type))
	}
}

func (b *builder) instance(id, class uint64, body []byte) {
	b.u1(SubInstance)
	b.id(id)
	b.u4(1)
	b.id(class)
	b.u4(uint32(len(body)))
	b.Write(body)
}

func (b *builder) objects(id, class uint64, elements ...uint64) {
	b.u1(SubObjectArray)
	b.id(id)
	b.u4(1)
	b.u4(uint32(len(elements)))
	b.id(class)
	for _, e := range elements {
		b.id(e)
	}
}

func (b *builder) array(id uint64, typ Type, body []byte) {
	b.u1(SubPrimitiveArray)
	b.id(id)
	b.u4(1)
	b.u4(uint32(len(body) / typ.Size(b.ids)))
	b.u1(uint8(typ))
	b.Write(body)
}

// refs is the body of an instance with these references.
func (b *builder) refs(ids ...uint64) []byte {
	var p []byte
	for _, id := range ids {
		p = append(p, make([]byte, b.ids)...)
		PutID(p[len(p)-b.ids:], b.ids, id)
	}
	return p
}

const (
	nameObject = 0x101 + iota
	nameString
	nameBitmap
	nameInteger
	nameValue
	nameBuffer
	nameRecycled
	nameApp
	nameZygote
	nameSecret
)

// content writes the heap of a dump with all kinds of records: one that ends in
// the middle of a segment, two bitmaps with the same pixels, and one without.
func (b *builder) content(tag uint8, art bool) {
	name := map[bool]string{true: "java.lang.", false: "java/lang/"}[art]
	for id, s := range map[uint64]string{0x10: "constant", nameObject: name + "Object", nameString: name + "String", nameInteger: name + "Integer",
		nameBitmap: "android.graphics.Bitmap", nameValue: "value", nameBuffer: "mBuffer", nameRecycled: "mRecycled",
		nameApp: "app", nameZygote: "zygote", nameSecret: "the password is 1234"} {
		b.str(id, s)
	}
	for i, id := range []uint64{nameObject, nameString, nameBitmap, nameInteger} {
		b.load(uint32(i+1), 0x1000+uint64(i)*0x100, id)
	}
	b.begin(tag)
	if art {
		b.heap(HeapZygote, nameZygote)
		b.instance(0x2f00, 0x1000, nil)
		b.array(0x2f10, TypeInt, bytes.Repeat([]byte{1, 2, 3, 4}, 3))
		b.objects(0x2f20, 0x1000, 0x2f00, 0)
		b.heap(HeapApp, nameApp)
	}
	b.instance(0x2000, 0x1100, b.refs(0x3000)) // before its class
	b.array(0x3000, TypeByte, []byte("a secret value"))
	b.class(0x1000, 0, 0)
	b.class(0x1100, 0x1000, uint32(b.ids), Field{nameValue, TypeObject})
	b.class(0x1200, 0x1000, uint32(b.ids+1), Field{nameRecycled, TypeBoolean}, Field{nameBuffer, TypeObject})
	b.class(0x1300, 0x1000, 4, Field{nameValue, TypeInt})
	if tag == TagHeapSegment {
		b.begin(tag)
	}
	b.instance(0x2400, 0x1300, []byte{0, 0, 4, 0xd2})
	b.array(0x3100, TypeChar, []byte("\x00s\x00e\x00c"))
	b.array(0x3200, TypeByte, bytes.Repeat([]byte("pixel"), b.pixels))
	b.array(0x3300, TypeByte, bytes.Repeat([]byte("pixel"), b.pixels))
	b.array(0x3400, TypeByte, bytes.Repeat([]byte("other"), 100))
	b.array(0x3500, TypeLong, nil)
	for i := range uint64(3) {
		b.instance(0x2100+i*0x10, 0x1200, append([]byte{0}, b.refs(0x3200+i*0x100)...))
	}
	b.objects(0x3600, 0x1000, 0x2000, 0, 0x2100)
	b.u1(SubRootJNIGlobal)
	b.id(0x2000)
	b.id(0x7777)
	b.u1(SubRootThread)
	b.id(0x2000)
	b.u4(1)
	b.u4(2)
	b.u1(SubRootUnknown)
	b.id(0x3600)
	b.end()
	if tag == TagHeapSegment {
		b.head(TagHeapDumpEnd, 0)
	}
}

// sample is a file with two dumps, of ART and of HotSpot.
func sample(t testing.TB) []byte {
	t.Helper()
	return sampleOf(t, 200_000)
}

// sampleOf is sample with bitmaps of 5 bytes for each of the pixels.
func sampleOf(t testing.TB, pixels int) []byte {
	t.Helper()
	a := newBuilder("1.0.3", 4)
	a.pixels = pixels
	a.content(TagHeapSegment, true)
	h := newBuilder("1.0.2", 8)
	h.pixels = pixels
	h.content(TagHeapSegment, false)
	h.content(TagHeapDump, false)
	return append(a.Bytes(), h.Bytes()...)
}
