package hprof

import (
	"encoding/binary"
	"fmt"
	"io"
)

// begin enters a record of sub-records.
func (r *Reader) begin(it *Item, start, length int64) {
	d := &r.dump
	if d.ended || d.tag != 0 && it.Tag == TagHeapDump {
		d.number++
	}
	if d.ended || it.Tag == TagHeapDump {
		d.heap = HeapDefault
	}
	d.ended = it.Tag == TagHeapDump
	d.tag, d.inside, d.start, d.declared, d.crossed, d.gap = it.Tag, true, start, length, -1, 0
	d.stop = start + length
	if length == 0 {
		d.stop = -1
	}
	it.Dump = d.number
}

// inDump reports whether another sub-record follows in the current record.
//
// A length of 0 is of a writer that could not go back to fill it in: the record
// ends where something follows that only a record begins with. A segment of
// length 0 may also be empty, as strips leave them, and then a record follows. A length that was
// written modulo 2³² is recognised at the sub-record that crosses the end it
// gives, or by a sub-record's tag where a record's head is due.
func (r *Reader) inDump() (bool, error) {
	d := &r.dump
	at := r.Offset()
	if d.stop >= 0 && at+d.gap < d.stop {
		return true, nil
	}
	if !r.need(1) {
		if r.err != io.EOF {
			return false, r.short(at, recordName(d.tag))
		}
		if d.crossed >= 0 && at+d.gap != d.stop {
			return false, r.overrun()
		}
		d.inside = false
		return false, nil
	}
	tag := r.buf[r.pos]
	if d.stop < 0 {
		if subHead(tag, r.header.IDSize) == 0 || r.atHeader() || at == d.start && d.tag == TagHeapSegment && knownRecord(tag) {
			d.inside = false
			return false, nil
		}
		return true, nil
	}
	if subHead(tag, r.header.IDSize) != 0 && !knownRecord(tag) && r.mayWrap() {
		d.stop += d.wrap
		return true, nil
	}
	d.inside = false
	return false, nil
}

// mayWrap reports whether the stream has room for a length that was written
// modulo 2³². Of a stream of unknown size only the one record of old writers,
// which hold the whole heap, is taken for one.
func (r *Reader) mayWrap() bool {
	if r.size >= 0 && !r.cut {
		return r.size-r.dump.stop >= r.dump.wrap
	}
	return r.dump.tag == TagHeapDump
}

func (r *Reader) overrun() error {
	return r.damaged(r.dump.crossed, "a sub-record goes past the end of its %s, at %d", recordName(r.dump.tag), r.dump.start+r.dump.declared)
}

func (r *Reader) atHeader() bool {
	return r.buf[r.pos] == magic[0] && r.need(len(magic)) && string(r.buf[r.pos:r.pos+len(magic)]) == magic
}

// knownRecord reports whether a tag is one of a record.
func knownRecord(tag uint8) bool {
	return tag >= TagString && tag <= TagHeapSummary || tag >= TagStartThread && tag <= TagControl ||
		tag == TagHeapSegment || tag == TagHeapDumpEnd
}

// subHead returns the bytes of a sub-record without its body, tag included, and
// 0 for an unknown tag. For SubClass these are its first part, of fixed size.
func subHead(tag uint8, ids int) int {
	switch tag {
	case SubRootUnknown, SubRootSticky, SubRootMonitor, SubRootInterned, SubRootFinalizing, SubRootDebugger,
		SubRootCleanup, SubRootVMInternal, SubUnreachable:
		return 1 + ids
	case SubRootJNIGlobal:
		return 1 + 2*ids
	case SubRootNative, SubRootBlock, SubHeapInfo:
		return 1 + ids + 4
	case SubRootJNILocal, SubRootJavaFrame, SubRootThread, SubRootJNIMonitor:
		return 1 + ids + 8
	case SubInstance, SubObjectArray:
		return 1 + 2*ids + 8
	case SubPrimitiveArray, SubPrimitiveBare:
		return 1 + ids + 9
	case SubClass:
		return 1 + 7*ids + 8
	}
	return 0
}

// sub decodes the sub-record at the current position.
func (r *Reader) sub(it *Item) error {
	at, ids := r.Offset(), r.header.IDSize
	if !r.need(1) {
		return r.short(at, recordName(r.dump.tag))
	}
	tag := r.buf[r.pos]
	head := subHead(tag, ids)
	if tag == subKeptArray && r.cut {
		head = subHead(SubPrimitiveArray, ids)
	}
	if head == 0 {
		return r.damaged(at, "unknown sub-record 0x%02x", tag)
	}
	if !r.need(head) {
		return r.short(at, subName(tag))
	}
	var gap int64
	b := r.buf[r.pos : r.pos+head]
	*it = Item{Kind: KindSub, Tag: tag, Dump: r.dump.number, Offset: at, Head: b}
	switch tag {
	case SubInstance:
		it.ID = ID(b[1:], ids)
		it.Trace = binary.BigEndian.Uint32(b[1+ids:])
		it.Ref = ID(b[5+ids:], ids)
		it.Count = binary.BigEndian.Uint32(b[5+2*ids:])
		it.Body = int64(it.Count)
	case SubObjectArray:
		it.ID = ID(b[1:], ids)
		it.Trace = binary.BigEndian.Uint32(b[1+ids:])
		it.Count = binary.BigEndian.Uint32(b[5+ids:])
		it.Ref = ID(b[9+ids:], ids)
		it.Type = TypeObject
		it.Body = int64(it.Count) * int64(ids)
	case SubPrimitiveArray, SubPrimitiveBare, subKeptArray:
		it.ID = ID(b[1:], ids)
		it.Trace = binary.BigEndian.Uint32(b[1+ids:])
		it.Count = binary.BigEndian.Uint32(b[5+ids:])
		it.Type = Type(b[9+ids])
		size := it.Type.Size(ids)
		if size == 0 || it.Type == TypeObject {
			return r.damaged(at, "a primitive array of invalid type %d", b[9+ids])
		}
		switch body := int64(it.Count) * int64(size); {
		case tag == subKeptArray:
			it.Tag, it.Body = SubPrimitiveArray, body
		case tag == SubPrimitiveArray && r.cut:
			gap = body
		case tag == SubPrimitiveArray:
			it.Body = body
		}
	case SubClass:
		n, err := r.classHead(at, head)
		if err != nil {
			return err
		}
		head = n
		b = r.buf[r.pos : r.pos+n]
		it.Head = b
		it.ID = ID(b[1:], ids)
		it.Trace = binary.BigEndian.Uint32(b[1+ids:])
		it.Ref = ID(b[5+ids:], ids)
		it.Count = binary.BigEndian.Uint32(b[5+7*ids:])
	case SubHeapInfo:
		r.dump.heap = binary.BigEndian.Uint32(b[1:])
		it.Ref = ID(b[5:], ids)
	case SubRootJNIGlobal:
		it.ID = ID(b[1:], ids)
		it.Ref = ID(b[1+ids:], ids)
	default:
		it.ID = ID(b[1:], ids)
		if head > 1+ids {
			it.Serial = binary.BigEndian.Uint32(b[1+ids:])
		}
		if head > 5+ids {
			n := binary.BigEndian.Uint32(b[5+ids:])
			if tag == SubRootThread {
				it.Trace = n
			} else {
				it.Count = n
			}
		}
	}
	it.Heap = r.dump.heap
	return r.enter(it, at+int64(head)+it.Body, head, gap)
}

// enter checks where a sub-record ends and consumes its head. The stream lacks gap
// bytes of it.
func (r *Reader) enter(it *Item, end int64, head int, gap int64) error {
	d := &r.dump
	if r.size >= 0 && end > r.size {
		return &Error{it.Offset, fmt.Sprintf("ends inside %s: %d of its %d bytes are there", subName(it.Tag), r.size-it.Offset, end-it.Offset), io.ErrUnexpectedEOF}
	}
	if end += d.gap + gap; d.stop >= 0 && end > d.stop {
		if d.crossed < 0 {
			d.crossed = it.Offset
		}
		if !r.mayWrap() {
			return r.overrun()
		}
		for end > d.stop { // one sub-record may be longer than 4 GB
			d.stop += d.wrap
		}
	}
	d.gap += gap
	r.pos += head
	r.left = it.Body
	return nil
}

func recordName(tag uint8) string {
	switch tag {
	case TagString:
		return "a string"
	case TagLoadClass:
		return "a loaded class"
	case TagFrame:
		return "a stack frame"
	case TagTrace:
		return "a stack trace"
	case TagHeapDump:
		return "heap dump"
	case TagHeapSegment:
		return "heap dump segment"
	}
	return fmt.Sprintf("a record 0x%02x", tag)
}

func subName(tag uint8) string {
	switch tag {
	case SubClass:
		return "a class"
	case SubInstance:
		return "an instance"
	case SubObjectArray:
		return "an object array"
	case SubPrimitiveArray, SubPrimitiveBare, subKeptArray:
		return "a primitive array"
	case SubHeapInfo:
		return "a heap's name"
	}
	return fmt.Sprintf("a root 0x%02x", tag)
}

func (it *Item) name() string {
	if it.Kind == KindSub {
		return subName(it.Tag)
	}
	return recordName(it.Tag)
}
