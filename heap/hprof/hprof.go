// Package hprof reads and rewrites Java heap dumps in the HPROF binary format:
// versions 1.0.1 and 1.0.2 as HotSpot writes them and 1.0.3 as Android's ART
// does, with identifiers of 4 or 8 bytes.
//
// It works on streams of bytes. It opens no process, keeps no table that grows
// with the number of objects, and needs the same memory for any size of dump.
// What the objects are to each other is package graph's business.
//
// The format is described in hprof_b_spec.h of the JDK (src/hotspot/share/services/heapDumper.cpp
// has it as a comment) and in art/runtime/hprof/hprof.cc for ART's additions.
//
// A value of any type here belongs to one goroutine at a time.
package hprof

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Tags of records.
const (
	TagString       = 0x01 // {id, utf8…}
	TagLoadClass    = 0x02 // {u4 serial, id class, u4 trace, id name}
	TagUnloadClass  = 0x03 // {u4 serial}
	TagFrame        = 0x04 // {id, id method, id signature, id source, u4 class serial, i4 line}
	TagTrace        = 0x05 // {u4 serial, u4 thread, u4 n, id frame[n]}
	TagAllocSites   = 0x06
	TagHeapSummary  = 0x07
	TagStartThread  = 0x0A // {u4 serial, id, u4 trace, id name, id group, id parent group}
	TagEndThread    = 0x0B // {u4 serial}
	TagHeapDump     = 0x0C // sub-records
	TagCPUSamples   = 0x0D
	TagControl      = 0x0E
	TagHeapSegment  = 0x1C // sub-records
	TagHeapDumpEnd  = 0x2C // {}
	recordHeadBytes = 9    // u1 tag, u4 µs since the header's time, u4 length
)

// Tags of sub-records, which are the content of TagHeapDump and TagHeapSegment.
const (
	SubRootUnknown    = 0xFF // {id}
	SubRootJNIGlobal  = 0x01 // {id, id JNI reference}
	SubRootJNILocal   = 0x02 // {id, u4 thread, u4 frame}
	SubRootJavaFrame  = 0x03 // {id, u4 thread, u4 frame}
	SubRootNative     = 0x04 // {id, u4 thread}
	SubRootSticky     = 0x05 // {id}
	SubRootBlock      = 0x06 // {id, u4 thread}
	SubRootMonitor    = 0x07 // {id}
	SubRootThread     = 0x08 // {id, u4 thread, u4 trace}
	SubRootInterned   = 0x89 // ART, {id}
	SubRootFinalizing = 0x8A // ART, {id}
	SubRootDebugger   = 0x8B // ART, {id}
	SubRootCleanup    = 0x8C // ART, {id}
	SubRootVMInternal = 0x8D // ART, {id}
	SubRootJNIMonitor = 0x8E // ART, {id, u4 thread, u4 frame}
	SubUnreachable    = 0x90 // ART, {id}
	SubHeapInfo       = 0xFE // ART, {u4 heap, id name}: the heap of the objects that follow
	SubClass          = 0x20 // see Class
	SubInstance       = 0x21 // {id, u4 trace, id class, u4 n, u1[n] field values}
	SubObjectArray    = 0x22 // {id, u4 trace, u4 n, id class, id[n]}
	SubPrimitiveArray = 0x23 // {id, u4 trace, u4 n, u1 type, values}
	SubPrimitiveBare  = 0xC3 // ART, as SubPrimitiveArray but without values
	subKeptArray      = 0xC4 // after mark only: a SubPrimitiveArray whose values KOOM's rule has left in
)

// mark is the content of a string record with the identifier 0, the first record
// of a dump that this package has stripped by KOOM's rule. Readers of other tools
// take it for a string that nothing refers to.
const mark = "sliver: stripped by KOOM's rule, fill before use"

// Heaps of ART, as SubHeapInfo numbers them. HotSpot's objects are in HeapDefault.
const (
	HeapDefault = 0
	HeapApp     = 'A'
	HeapZygote  = 'Z'
	HeapImage   = 'I'
)

// Type is the type of a field or of a primitive array's elements.
type Type uint8

const (
	TypeObject  Type = 2
	TypeBoolean Type = 4
	TypeChar    Type = 5
	TypeFloat   Type = 6
	TypeDouble  Type = 7
	TypeByte    Type = 8
	TypeShort   Type = 9
	TypeInt     Type = 10
	TypeLong    Type = 11
)

// Size returns the bytes of a value, and 0 for an invalid type.
func (t Type) Size(idSize int) int {
	switch t {
	case TypeObject:
		return idSize
	case TypeBoolean, TypeByte:
		return 1
	case TypeChar, TypeShort:
		return 2
	case TypeFloat, TypeInt:
		return 4
	case TypeDouble, TypeLong:
		return 8
	}
	return 0
}

// String returns Java's name of the type.
func (t Type) String() string {
	names := [...]string{2: "object", 4: "boolean", 5: "char", 6: "float", 7: "double", 8: "byte", 9: "short", 10: "int", 11: "long"}
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Header is the start of a dump.
type Header struct {
	Version string    // what follows "JAVA PROFILE ", for example "1.0.2"
	IDSize  int       // bytes of an identifier, 4 or 8
	Time    time.Time // when the dump was made, by the target's clock
}

// Error is a place where a dump is damaged or ends too soon. What the Reader
// returned before it is whole.
type Error struct {
	Offset int64  // bytes from the start of the decompressed stream
	What   string // the problem found there
	Err    error  // the cause, or nil: io.ErrUnexpectedEOF for a truncated dump
}

func (e *Error) Error() string {
	if e.What == "" {
		return fmt.Sprintf("offset %d: %v", e.Offset, e.Err)
	}
	return fmt.Sprintf("offset %d: %s", e.Offset, e.What)
}

func (e *Error) Unwrap() error { return e.Err }

// ID decodes an identifier at the start of b, which has at least idSize bytes.
func ID(b []byte, idSize int) uint64 {
	if idSize == 4 {
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// PutID encodes an identifier at the start of b.
func PutID(b []byte, idSize int, id uint64) {
	if idSize == 4 {
		binary.BigEndian.PutUint32(b, uint32(id))
		return
	}
	binary.BigEndian.PutUint64(b, id)
}

// value decodes a value of type t as its bits.
func value(b []byte, t Type, idSize int) uint64 {
	switch t.Size(idSize) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}
