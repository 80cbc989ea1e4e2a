package hotspot

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/sliverprof/sliver/heap/hprof"
)

const (
	segmentBytes = 1 << 20 // from which on a segment is written
	idBytes      = 8
	headBytes    = 9 // of a record
	// maxArray bounds the bytes of an array: a segment's length has 32 bits.
	maxArray = 1<<32 - 1<<10
)

// Written counts what a dump has.
type Written struct {
	Classes, Objects, Roots uint64
	Bytes                   int64
	Truncated               uint64 // arrays of more than 4 GB, which the format cannot hold: their elements are cut
	Frames                  uint64 // roots by stacks, conservative
}

// writer encodes a dump.
type writer struct {
	h       *Heap
	w       io.Writer
	seg     []byte
	err     error
	n       Written
	strings map[string]uint64
}

func (w *writer) raw(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.n.Bytes += int64(len(b))
	}
}

// record writes a record of a small body.
func (w *writer) record(tag byte, body []byte) {
	var head [headBytes]byte
	head[0] = tag
	binary.BigEndian.PutUint32(head[5:], uint32(len(body)))
	w.raw(head[:])
	w.raw(body)
}

// flush writes the segment that is being filled.
func (w *writer) flush() {
	if len(w.seg) > 0 {
		w.record(hprof.TagHeapSegment, w.seg)
		w.seg = w.seg[:0]
	}
}

func (w *writer) id(v uint64) { w.seg = binary.BigEndian.AppendUint64(w.seg, v) }
func (w *writer) u4(v uint32) { w.seg = binary.BigEndian.AppendUint32(w.seg, v) }
func (w *writer) u2(v uint16) { w.seg = binary.BigEndian.AppendUint16(w.seg, v) }
func (w *writer) u1(v uint8)  { w.seg = append(w.seg, v) }

// name returns the ID of a string, and writes its record first if it is new. It is called
// while no segment is being filled.
func (w *writer) name(s string) uint64 {
	if id, ok := w.strings[s]; ok {
		return id
	}
	id := uint64(len(w.strings) + 1)
	w.strings[s] = id
	w.record(hprof.TagString, append(binary.BigEndian.AppendUint64(nil, id), s...))
	return id
}

const (
	resolvedName = "<resolved_references>"
	emptyTrace   = 1 // serial number of the stack trace without frames
)

// WriteHPROF writes the heap as HotSpot's GC.heap_dump -all does. It is called after Scan.
// stacks are the native threads of the process. made is the dump's time.
func (h *Heap) WriteHPROF(ctx context.Context, out io.Writer, stacks []Stack, made time.Time) (Written, error) {
	w := &writer{h: h, w: out, strings: map[string]uint64{}}
	head := append([]byte("JAVA PROFILE 1.0.2\x00"), 0, 0, 0, idBytes)
	w.raw(binary.BigEndian.AppendUint64(head, uint64(made.UnixMilli())))
	w.name(resolvedName)
	serial := uint32(0)
	for _, c := range h.Classes {
		if !c.dumped() {
			continue
		}
		for _, list := range [2][]Field{c.Fields, c.Statics} {
			for _, f := range list {
				w.name(f.Name)
			}
		}
		name := w.name(c.Name)
		serial++
		b := binary.BigEndian.AppendUint32(nil, serial)
		b = binary.BigEndian.AppendUint64(b, c.Mirror)
		b = binary.BigEndian.AppendUint32(b, emptyTrace)
		w.record(hprof.TagLoadClass, binary.BigEndian.AppendUint64(b, name))
	}
	trace := func(serial, thread uint32) {
		b := binary.BigEndian.AppendUint32(nil, serial)
		b = binary.BigEndian.AppendUint32(b, thread)
		w.record(hprof.TagTrace, binary.BigEndian.AppendUint32(b, 0))
	}
	trace(emptyTrace, 0)
	for i := range h.threads {
		trace(emptyTrace+uint32(i+1), uint32(i+1))
	}
	for _, c := range h.Classes {
		if c.dumped() {
			w.class(c)
		}
	}
	if err := h.roots(ctx, stacks, w.root); err != nil {
		return w.n, err
	}
	for _, s := range h.spans {
		if err := h.walk(ctx, s, w.object); err != nil {
			return w.n, err
		}
	}
	w.flush()
	w.record(hprof.TagHeapDumpEnd, nil)
	return w.n, w.err
}

func (w *writer) end() {
	if len(w.seg) >= segmentBytes {
		w.flush()
	}
}

// class writes a class, with its statics as they are in its mirror.
func (w *writer) class(c *Class) {
	w.n.Classes++
	super := c.Super
	w.u1(hprof.SubClass)
	w.id(c.Mirror)
	w.u4(emptyTrace)
	if super != nil {
		w.id(super.Mirror)
	} else {
		w.id(0)
	}
	loader := c.Loader
	if !w.h.Begins(loader) {
		loader = 0
	}
	w.id(loader)
	for range 4 { // signers, protection domain, reserved
		w.id(0)
	}
	if c.layout > 0 {
		w.u4(c.size)
	} else {
		w.u4(0)
	}
	w.u2(0) // constants
	n := len(c.Statics)
	resolved := c.Resolved
	if !w.h.Begins(resolved) {
		resolved = 0
	}
	if resolved != 0 {
		n++
	}
	w.u2(uint16(n))
	for _, f := range c.Statics {
		w.id(w.strings[f.Name])
		w.u1(uint8(f.Type))
		b := make([]byte, 8)
		if size := w.size(f.Type); w.h.VM.mem.read(b[:size], c.Mirror+uint64(f.Offset)) != nil {
			clear(b)
		}
		w.value(f.Type, b)
	}
	if resolved != 0 {
		w.id(w.strings[resolvedName])
		w.u1(uint8(hprof.TypeObject))
		w.id(resolved)
	}
	w.u2(uint16(len(c.Fields)))
	for _, f := range c.Fields {
		w.id(w.strings[f.Name])
		w.u1(uint8(f.Type))
	}
	w.end()
}

// size is the bytes of a value in the heap.
func (w *writer) size(t hprof.Type) uint64 {
	if t == hprof.TypeObject {
		return w.h.refBytes()
	}
	return uint64(t.Size(idBytes))
}

// value appends a value from its bytes in memory.
func (w *writer) value(t hprof.Type, b []byte) {
	switch t {
	case hprof.TypeObject:
		w.id(w.h.ref(b))
	case hprof.TypeBoolean, hprof.TypeByte:
		w.u1(b[0])
	case hprof.TypeChar, hprof.TypeShort:
		w.u2(le16(b))
	case hprof.TypeInt, hprof.TypeFloat:
		w.u4(le32(b))
	default:
		w.seg = binary.BigEndian.AppendUint64(w.seg, le64(b))
	}
}

func (w *writer) root(r Root) {
	w.n.Roots++
	w.u1(r.Tag)
	w.id(r.Object)
	switch r.Tag {
	case hprof.SubRootJNIGlobal:
		w.id(r.Handle)
	case hprof.SubRootThread:
		w.u4(r.Thread)
		w.u4(emptyTrace + r.Thread)
	case hprof.SubRootJNILocal, hprof.SubRootJavaFrame:
		if r.Tag == hprof.SubRootJavaFrame {
			w.n.Frames++
		}
		w.u4(r.Thread)
		w.u4(0xffffffff) // no frame
	}
	w.end()
}

func (w *writer) object(o *object) error {
	c, h := o.class, w.h
	if !h.Begins(o.addr) {
		return w.err // dormant, or the mirror of a class that is not dumped
	}
	switch c.Kind {
	case KindObjects, KindPrimitives:
		w.array(o)
	case KindMirror:
		if h.isMirror(o) {
			return w.err // written as a class
		}
		w.instance(o)
	case KindChunk:
		w.instance(o)
		h.chunk(o, func(at uint64) { w.root(Root{Tag: hprof.SubRootJavaFrame, Object: at}) })
	default:
		w.instance(o)
	}
	w.end()
	return w.err
}

func (w *writer) instance(o *object) {
	c := o.class
	w.n.Objects++
	w.u1(hprof.SubInstance)
	w.id(o.addr)
	w.u4(emptyTrace)
	w.id(c.Mirror)
	w.u4(c.size)
	for i := range c.all {
		f := &c.all[i]
		if size := w.size(f.Type); uint64(f.Offset)+size <= uint64(len(o.data)) {
			w.value(f.Type, o.data[f.Offset:])
		} else {
			w.value(f.Type, make([]byte, 8))
		}
	}
}

// array writes an array. One that is not whole in o.data is read in pieces.
func (w *writer) array(o *object) {
	c := o.class
	w.n.Objects++
	n := uint64(o.length)
	out := uint64(c.Element.Size(idBytes))
	if n*out > maxArray {
		n = maxArray / out
		w.n.Truncated++
	}
	head := uint64(uint32(c.layout) >> 16 & 255)
	size := w.size(c.Element)
	large := head+n*size > uint64(len(o.data))
	if large {
		w.flush()
	}
	if c.Kind == KindObjects {
		w.u1(hprof.SubObjectArray)
		w.id(o.addr)
		w.u4(emptyTrace)
		w.u4(uint32(n))
		w.id(c.Mirror)
	} else {
		w.u1(hprof.SubPrimitiveArray)
		w.id(o.addr)
		w.u4(emptyTrace)
		w.u4(uint32(n))
		w.u1(uint8(c.Element))
	}
	if !large {
		w.elements(c.Element, o.data[head:head+n*size])
		return
	}
	var rec [headBytes]byte
	rec[0] = hprof.TagHeapSegment
	binary.BigEndian.PutUint32(rec[5:], uint32(uint64(len(w.seg))+n*out))
	w.raw(rec[:])
	w.raw(w.seg)
	w.seg = w.seg[:0]
	buf := make([]byte, wholeBytes)
	for at := uint64(0); at < n*size && w.err == nil; {
		b := buf[:min(uint64(len(buf)), n*size-at)]
		if _, err := w.h.VM.mem.src.ReadAt(b, int64(o.addr+head+at)); err != nil {
			w.err = fmt.Errorf("array at %#x: %w", o.addr, err)
			return
		}
		w.elements(c.Element, b)
		w.raw(w.seg)
		w.seg = w.seg[:0]
		at += uint64(len(b))
	}
}

// elements appends values from their bytes in memory.
func (w *writer) elements(t hprof.Type, b []byte) {
	be := binary.BigEndian
	switch t {
	case hprof.TypeBoolean, hprof.TypeByte:
		w.seg = append(w.seg, b...)
	case hprof.TypeChar, hprof.TypeShort:
		for ; len(b) >= 2; b = b[2:] {
			w.seg = be.AppendUint16(w.seg, le16(b))
		}
	case hprof.TypeInt, hprof.TypeFloat:
		for ; len(b) >= 4; b = b[4:] {
			w.seg = be.AppendUint32(w.seg, le32(b))
		}
	case hprof.TypeObject:
		for n := w.h.refBytes(); uint64(len(b)) >= n; b = b[n:] {
			w.id(w.h.ref(b))
		}
	default:
		for ; len(b) >= 8; b = b[8:] {
			w.seg = be.AppendUint64(w.seg, le64(b))
		}
	}
}
