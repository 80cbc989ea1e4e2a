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
	serials := map[uint64]uint32{}
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
		serials[c.Addr] = uint32(len(serials) + 1)
		b := binary.BigEndian.AppendUint32(nil, serials[c.Addr])
		b = binary.BigEndian.AppendUint64(b, c.Mirror)
		b = binary.BigEndian.AppendUint32(b, emptyTrace)
		w.record(hprof.TagLoadClass, binary.BigEndian.AppendUint64(b, name))
	}
	if err := h.trace(ctx, stacks); err != nil {
		return err
	}
	w.traces(serials)
	for _, c := range h.Classes {
		if h.written(c) {
			w.class(c)
		}
	}
	if err := h.roots(ctx, stacks, w.root); err != nil {
		return err
	}
	for i := len(h.threads); i < len(h.traces.list); i++ {
		w.root(Root{Tag: hprof.SubRootThread, Object: h.traces.list[i].object, Thread: uint32(i + 1)})
	}
	for _, at := range h.chunks {
		if err := w.chunk(at); err != nil {
			return err
		}
	}
	w.flush()
	return ctx.Err()
}

// traces writes what all threads have called. serials are the serial numbers of classes.
func (w *header) traces(serials map[uint64]uint32) {
	t := w.h.traces
	for i := range t.calls {
		a := &t.calls[i]
		b := binary.BigEndian.AppendUint64(nil, uint64(i+1))
		for _, s := range [...]string{a.Name, a.Type, a.File} {
			id := uint64(0)
			if s != "" {
				id = w.name(s)
			}
			b = binary.BigEndian.AppendUint64(b, id)
		}
		line := int32(a.Line)
		switch {
		case a.Native:
			line = lineNative
		case line == 0:
			line = lineUnknown
		}
		b = binary.BigEndian.AppendUint32(b, serials[a.Class])
		w.record(hprof.TagFrame, binary.BigEndian.AppendUint32(b, uint32(line)))
	}
	w.trace(emptyTrace, 0, nil)
	for i := range t.list {
		w.trace(emptyTrace+uint32(i+1), uint32(i+1), t.list[i].calls)
	}
}

// Lines of frames that have none.
const (
	lineUnknown = -1
	lineNative  = -3
)

func (w *header) trace(serial, thread uint32, calls []uint32) {
	b := binary.BigEndian.AppendUint32(nil, serial)
	b = binary.BigEndian.AppendUint32(b, thread)
	b = binary.BigEndian.AppendUint32(b, uint32(len(calls)))
	for _, i := range calls {
		b = binary.BigEndian.AppendUint64(b, uint64(i+1))
	}
	w.record(hprof.TagTrace, b)
}

// chunk writes what the frames of a virtual thread in the heap hold.
func (w *header) chunk(at uint64) error {
	if !w.h.Begins(at) {
		return nil
	}
	o, err := w.object(at)
	if err != nil {
		return err
	}
	seen := map[Root]bool{}
	w.h.chunk(&o, func(object, at uint64) {
		w.h.traces.owners(at, func(thread uint32, frame int32) {
			if r := (Root{Tag: hprof.SubRootJavaFrame, Object: object, Thread: thread, Frame: frame}); !seen[r] {
				seen[r] = true
				w.root(r)
			}
		})
	})
	return nil
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
		var p []byte
		w.seg, p = extend(w.seg, f.Type.Size(idBytes))
		w.put(p, f.Type, b)
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
	case hprof.SubRootJNILocal:
		w.u4(r.Thread)
		w.u4(0xffffffff) // no frame
	case hprof.SubRootJavaFrame:
		w.n.Frames++
		w.u4(r.Thread)
		w.u4(uint32(r.Frame))
	}
	w.end()
}
