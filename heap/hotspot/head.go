package hotspot

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/sliverprof/sliver/heap/hprof"
)

// header encodes the first part of a dump: names, classes, stacks and roots.
type header struct {
	encoder
	out     bytes.Buffer
	seg     []byte
	n       Written
	strings map[string]uint64
}

// record writes a record of a small body.
func (w *header) record(tag byte, body []byte) {
	var head [headBytes]byte
	head[0] = tag
	binary.BigEndian.PutUint32(head[5:], uint32(len(body)))
	w.out.Write(head[:])
	w.out.Write(body)
}

// flush writes the segment that is being filled.
func (w *header) flush() {
	if len(w.seg) > 0 {
		w.record(hprof.TagHeapSegment, w.seg)
		w.seg = w.seg[:0]
	}
}

func (w *header) end() {
	if len(w.seg) >= segmentBytes {
		w.flush()
	}
}

func (w *header) id(v uint64) { w.seg = binary.BigEndian.AppendUint64(w.seg, v) }
func (w *header) u4(v uint32) { w.seg = binary.BigEndian.AppendUint32(w.seg, v) }
func (w *header) u2(v uint16) { w.seg = binary.BigEndian.AppendUint16(w.seg, v) }
func (w *header) u1(v uint8)  { w.seg = append(w.seg, v) }

// name returns the ID of a string, and writes its record first if it is new. It is called
// while no segment is being filled.
func (w *header) name(s string) uint64 {
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

// write encodes the head of a dump with time made.
func (w *header) write(ctx context.Context, stacks []Stack, made time.Time) error {
	h := w.h
	head := append([]byte("JAVA PROFILE 1.0.2\x00"), 0, 0, 0, idBytes)
	w.out.Write(binary.BigEndian.AppendUint64(head, uint64(made.UnixMilli())))
	w.name(resolvedName)
	serial := uint32(0)
	for _, c := range h.Classes {
		if !h.written(c) {
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
	w.trace(emptyTrace, 0)
	for i := range h.threads {
		w.trace(emptyTrace+uint32(i+1), uint32(i+1))
	}
	for _, c := range h.Classes {
		if h.written(c) {
			w.class(c)
		}
	}
	if err := h.roots(ctx, stacks, w.root); err != nil {
		return err
	}
	for _, at := range h.chunks {
		if !h.Begins(at) {
			continue
		}
		o, err := w.object(at)
		if err != nil {
			return err
		}
		h.chunk(&o, func(at uint64) { w.root(Root{Tag: hprof.SubRootJavaFrame, Object: at}) })
	}
	w.flush()
	return ctx.Err()
}

func (w *header) trace(serial, thread uint32) {
	b := binary.BigEndian.AppendUint32(nil, serial)
	b = binary.BigEndian.AppendUint32(b, thread)
	w.record(hprof.TagTrace, binary.BigEndian.AppendUint32(b, 0))
}

// written reports whether a dump has a class: with the live objects alone, one that is alive.
func (h *Heap) written(c *Class) bool { return c.dumped() && (!h.live || h.Begins(c.Mirror)) }

// class writes a class, with its statics as they are in its mirror.
func (w *header) class(c *Class) {
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
		if size := w.h.VM.size(f.Type); w.h.VM.mem.read(b[:size], c.Mirror+uint64(f.Offset)) != nil {
			clear(b)
		}
		w.seg = w.value(w.seg, f.Type, b)
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

func (w *header) root(r Root) {
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
