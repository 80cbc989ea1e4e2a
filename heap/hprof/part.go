package hprof

import "io"

// Reset makes r read size bytes of src that are sub-records alone and that begin at
// offset of a stream with the header h: a part of a dump that a Reader of the whole has
// seen before. Offsets are those of the stream, heap is ART's heap of the first
// sub-record. The zero Reader may be reset. Parts may be read at the same time, each
// by a Reader of its own.
func (r *Reader) Reset(src io.Reader, h Header, offset, size int64, heap uint32) {
	buf := r.buf
	if buf == nil {
		buf = make([]byte, windowBytes)
	}
	*r = Reader{src: src, size: offset + size, buf: buf, base: offset, header: h}
	r.dump = dumpState{inside: size > 0, tag: TagHeapSegment, start: offset, declared: size, stop: offset + size, crossed: -1, heap: heap, wrap: 1 << 32}
}
