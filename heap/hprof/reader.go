package hprof

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Kind says what an Item is.
type Kind uint8

const (
	KindHeader Kind = iota // the start of a dump: see Reader.Header
	KindRecord             // a record; one with sub-records is followed by them
	KindSub                // a sub-record of a heap dump
)

// Item is one piece of a dump. Items are contiguous: the bytes of a dump are the
// Heads and bodies of its items, in order.
//
//	tag                     ID        Ref               Serial   Trace  Count
//	TagString               string
//	TagLoadClass            class     its name's string class    trace
//	SubRoot…, by tag        object    JNI reference     thread   trace  frame number
//	SubHeapInfo                       its name's string
//	SubClass                class     superclass                 trace  bytes of an instance
//	SubInstance             object    class                      trace  bytes of the body
//	SubObjectArray          object    array's class              trace  elements
//	SubPrimitiveArray       object                               trace  elements
//
// Where the table is empty a field is 0.
type Item struct {
	Kind   Kind
	Tag    uint8
	Type   Type   // elements' type of a primitive array, TypeObject of an object array
	Heap   uint32 // ART's heap of a sub-record
	Dump   int    // from 0: which heap dump of the stream this belongs to
	Offset int64  // of Head in the decompressed stream
	Head   []byte // the encoded item without its body; valid until the next call of the Reader
	Body   int64  // bytes of the body, which begins at Offset+len(Head)
	Micros uint32 // of a record: µs since the header's time
	ID     uint64
	Ref    uint64
	Serial uint32
	Trace  uint32
	Count  uint32
}

// BodyOffset returns where the body begins in the decompressed stream.
func (it *Item) BodyOffset() int64 { return it.Offset + int64(len(it.Head)) }

// HasSubs reports whether an Item is a record whose content is sub-records.
func (it *Item) HasSubs() bool {
	return it.Kind == KindRecord && (it.Tag == TagHeapDump || it.Tag == TagHeapSegment)
}

const (
	windowBytes = 256 << 10
	// maxWhole bounds an item that is read in one piece: a class is at most 65,535
	// constants, static fields and fields, which are 2.4 MB.
	maxWhole = 4 << 20
	// maxVersion bounds the header's text.
	maxVersion = 64
	magic      = "JAVA PROFILE "
)

// Reader reads a stream of heap dumps, item by item, in bounded memory and
// without allocating. A stream may have several dumps, with headers of their own
// or behind one.
type Reader struct {
	src    io.Reader
	size   int64 // of the stream, -1 where it is unknown
	buf    []byte
	pos    int // of the next byte in buf
	end    int
	base   int64 // offset of buf[0] in the stream
	err    error // why no more can be read
	header Header
	item   Item
	left   int64 // of the current item's body
	dump   dumpState
	cut    bool  // KOOM's strip left arrays without content: see mark
	forced bool  // the caller says so: the dump has no mark
	wrote  error // of the tap
	tap    *tap  // receives the consumed bytes for a rewriter, or nil
}

// dumpState is where the Reader is among heap dump records.
type dumpState struct {
	number   int
	inside   bool  // between sub-records
	ended    bool  // the next heap dump record begins a new dump
	tag      uint8 // of the record
	start    int64 // of the record's content
	declared int64 // its length as written
	stop     int64 // its known end; -1: it ends where no sub-record follows
	crossed  int64 // first sub-record that crosses the declared end, else -1
	heap     uint32
	wrap     int64 // lengths are written modulo this
	gap      int64 // bytes that lengths count and the stream lacks, since start
}

// NewReader reads the header of the first dump. If src has a method Size() int64,
// as bytes.Reader and io.SectionReader do, lengths are checked against it.
func NewReader(src io.Reader) (*Reader, error) {
	r := &Reader{src: src, size: -1, buf: make([]byte, windowBytes)}
	r.dump.wrap = 1 << 32
	r.dump.crossed = -1
	if s, ok := src.(interface{ Size() int64 }); ok {
		r.size = s.Size()
	}
	if !r.need(len(magic)) || string(r.buf[:len(magic)]) != magic {
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return nil, r.err
		}
		return nil, &Error{0, `no HPROF dump: it does not begin with "JAVA PROFILE "`, nil}
	}
	head, err := r.peekHeader()
	if err != nil {
		return nil, err
	}
	r.header = head
	return r, nil
}

// Header returns the header of the dump of the last Item, and before the first
// Item that of the first dump.
func (r *Reader) Header() Header { return r.header }

// Cut reports whether the dump is one of KOOM's strip: its primitive arrays have a
// Count but no body. It is known of dumps that were stripped by this package,
// from the Item after the header.
func (r *Reader) Cut() bool { return r.cut }

// IDSize returns the bytes of an identifier.
func (r *Reader) IDSize() int { return r.header.IDSize }

// Offset returns where the next unread byte is in the stream.
func (r *Reader) Offset() int64 { return r.base + int64(r.pos) }

// need makes n unread bytes available in one piece, and reports whether there
// are as many. n is at most maxWhole.
func (r *Reader) need(n int) bool {
	if r.end-r.pos >= n {
		return true
	}
	return r.fill(n)
}

func (r *Reader) fill(n int) bool {
	if r.err != nil {
		return false
	}
	if r.tap != nil {
		if r.wrote = r.tap.flush(r.buf, r.pos); r.wrote != nil {
			r.err = r.wrote
			return false
		}
	}
	rest := r.end - r.pos
	copy(r.buf, r.buf[r.pos:r.end])
	r.base += int64(r.pos)
	r.pos, r.end = 0, rest
	if r.tap != nil {
		r.tap.from = 0
	}
	idle := 0
	for r.end < n {
		if r.end == len(r.buf) { // grow by the bytes received, not by the claimed length
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
		}
		got, err := r.src.Read(r.buf[r.end:])
		if got < 0 || got > len(r.buf)-r.end {
			r.err = errors.New("hprof: a Read returned an invalid count")
			return false
		}
		r.end += got
		if err != nil {
			r.err = err
			break
		}
		if got == 0 {
			if idle++; idle > 100 {
				r.err = io.ErrNoProgress
				break
			}
		} else {
			idle = 0
		}
	}
	return r.end-r.pos >= n
}

// short returns the error of an item that begins at offset and is not whole.
func (r *Reader) short(offset int64, inside string) error {
	if r.wrote != nil {
		return r.wrote
	}
	if r.err != nil && !errors.Is(r.err, io.EOF) && !errors.Is(r.err, io.ErrUnexpectedEOF) {
		return &Error{offset, fmt.Sprintf("read %s: %v", inside, r.err), r.err}
	}
	return &Error{offset, fmt.Sprintf("ends inside %s, at %d", inside, r.base+int64(r.end)), io.ErrUnexpectedEOF}
}

func (r *Reader) damaged(offset int64, format string, args ...any) error {
	return &Error{offset, fmt.Sprintf(format, args...), nil}
}

// peekHeader decodes the header at the current position.
func (r *Reader) peekHeader() (Header, error) {
	at := r.Offset()
	r.need(maxVersion)
	text := r.buf[r.pos:min(r.end, r.pos+maxVersion)]
	nul := strings.IndexByte(string(text), 0)
	if nul < 0 {
		if len(text) < maxVersion {
			return Header{}, r.short(at, "the header")
		}
		return Header{}, r.damaged(at, "the header's version does not end within %d bytes", maxVersion)
	}
	if !r.need(nul + 13) {
		return Header{}, r.short(at, "the header")
	}
	b := r.buf[r.pos:]
	size := binary.BigEndian.Uint32(b[nul+1:])
	if size != 4 && size != 8 {
		return Header{}, r.damaged(at, "identifiers have %d bytes: 4 and 8 are supported", size)
	}
	millis := binary.BigEndian.Uint64(b[nul+5:])
	return Header{Version: string(b[len(magic):nul]), IDSize: int(size), Time: time.UnixMilli(int64(millis & math.MaxInt64))}, nil
}

// Next returns the next Item. It and its Head are valid until the next call. What
// is unread of the last Item's body is skipped. At the end of the stream it
// returns io.EOF, and where the stream is damaged an *Error; no more Items follow
// either.
func (r *Reader) Next() (*Item, error) {
	if r.left > 0 {
		if err := r.skip(); err != nil {
			return nil, err
		}
	}
	if r.tap != nil && r.tap.drop {
		r.tap.drop, r.tap.from = false, r.pos
	}
	it := &r.item
	if r.dump.inside {
		more, err := r.inDump()
		if err != nil {
			return nil, err
		}
		if more {
			if err := r.sub(it); err != nil {
				return nil, err
			}
			return it, nil
		}
	}
	if !r.need(1) {
		if r.err == io.EOF {
			return nil, io.EOF
		}
		return nil, r.short(r.Offset(), "the stream")
	}
	at := r.Offset()
	if at == 0 || r.buf[r.pos] == magic[0] && r.need(len(magic)) && string(r.buf[r.pos:r.pos+len(magic)]) == magic {
		head, err := r.peekHeader()
		if err != nil {
			return nil, err
		}
		if at > 0 && r.dump.tag != 0 {
			r.dump.ended = true
		}
		r.header, r.cut = head, r.forced
		r.dump.heap = 0
		n := len(magic) + len(head.Version) + 13
		*it = Item{Kind: KindHeader, Offset: at, Head: r.buf[r.pos : r.pos+n], Dump: r.upcoming()}
		r.pos += n
		return it, nil
	}
	if err := r.record(it, at); err != nil {
		return nil, err
	}
	return it, nil
}

// upcoming returns the number of the heap dump that a record before it belongs to.
func (r *Reader) upcoming() int {
	if r.dump.ended {
		return r.dump.number + 1
	}
	return r.dump.number
}

// record decodes a record's head. Heads of strings and loaded classes include
// their fixed fields; those of heap dumps are followed by sub-records.
func (r *Reader) record(it *Item, at int64) error {
	if !r.need(recordHeadBytes) {
		return r.short(at, "a record's head")
	}
	b := r.buf[r.pos:]
	tag, length := b[0], int64(binary.BigEndian.Uint32(b[5:]))
	*it = Item{Kind: KindRecord, Tag: tag, Offset: at, Micros: binary.BigEndian.Uint32(b[1:])}
	head, ids := recordHeadBytes, r.header.IDSize
	switch tag {
	case TagString:
		head += ids
	case TagLoadClass:
		head += 8 + 2*ids
	case TagHeapDump, TagHeapSegment:
		r.begin(it, at+recordHeadBytes, length)
		it.Head = r.buf[r.pos : r.pos+recordHeadBytes]
		r.pos += recordHeadBytes
		return nil
	case TagHeapDumpEnd:
		it.Dump = r.dump.number
		r.dump.ended = true
	}
	if tag != TagHeapDumpEnd {
		it.Dump = r.upcoming()
	}
	if length < int64(head-recordHeadBytes) {
		return r.damaged(at, "record 0x%02x has a length of %d, its fields need %d", tag, length, head-recordHeadBytes)
	}
	if r.size >= 0 && length > r.size-at-recordHeadBytes {
		return &Error{at, fmt.Sprintf("ends inside %s: its length is %d, and %d bytes are left",
			recordName(tag), length, max(0, r.size-at-recordHeadBytes)), io.ErrUnexpectedEOF}
	}
	if !r.need(head) {
		return r.short(at, recordName(tag))
	}
	b = r.buf[r.pos : r.pos+head]
	switch tag {
	case TagString:
		it.ID = ID(b[9:], ids)
		if it.ID == 0 && length == int64(ids+len(mark)) && r.need(head+len(mark)) {
			b = r.buf[r.pos : r.pos+head]
			r.cut = r.cut || string(r.buf[r.pos+head:r.pos+head+len(mark)]) == mark
		}
	case TagLoadClass:
		it.Serial = binary.BigEndian.Uint32(b[9:])
		it.ID = ID(b[13:], ids)
		it.Trace = binary.BigEndian.Uint32(b[13+ids:])
		it.Ref = ID(b[17+ids:], ids)
	}
	it.Head, it.Body = b, length-int64(head-recordHeadBytes)
	r.pos += head
	r.left = it.Body
	return nil
}

// skip consumes the rest of the body.
func (r *Reader) skip() error {
	for r.left > 0 {
		if n := int64(r.end - r.pos); n > 0 {
			n = min(n, r.left)
			r.pos += int(n)
			r.left -= n
			continue
		}
		if !r.need(1) {
			return r.short(r.item.Offset, r.item.name())
		}
	}
	return nil
}

// Chunk returns the next bytes of the current Item's body, as many as are at hand
// and at least one, and io.EOF at its end. They are valid until the next call.
func (r *Reader) Chunk() ([]byte, error) {
	if r.left == 0 {
		return nil, io.EOF
	}
	if !r.need(1) {
		return nil, r.short(r.item.Offset, r.item.name())
	}
	n := min(int64(r.end-r.pos), r.left)
	b := r.buf[r.pos : r.pos+int(n)]
	r.pos += int(n)
	r.left -= n
	return b, nil
}

// Bytes returns the rest of the current Item's body in one piece. It is valid
// until the next call. More than 4 MiB is an error: use Chunk.
func (r *Reader) Bytes() ([]byte, error) {
	if r.left > maxWhole {
		return nil, r.damaged(r.item.Offset, "%s of %d bytes: at most %d are supported", r.item.name(), r.left, maxWhole)
	}
	n := int(r.left)
	if !r.need(n) {
		return nil, r.short(r.item.Offset, r.item.name())
	}
	b := r.buf[r.pos : r.pos+n]
	r.pos += n
	r.left = 0
	return b, nil
}
