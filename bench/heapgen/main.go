// Command heapgen writes a Java heap dump of any size that simulates a leaking cache: a
// table whose entries have a key with its text and a value with its data, the values linked
// in a list, and a second table that a thread's frame holds. The retained sizes are known,
// so that an analysis of a heap too large for any available machine can be checked.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
)

// perEntry is how many objects an entry of the cache has.
const perEntry = 5

// Sizes in the heap, with headers of 12 bytes, references of 4 and objects aligned to 8.
const (
	nodeBytes   = 32 // header, hash, key, value, next
	stringBytes = 24 // header, hash, coder, value
	textBytes   = 16 + 24
	itemBytes   = 32 // header, next, data, stamp
	dataBytes   = 16 + 8
	entryBytes  = nodeBytes + stringBytes + textBytes + itemBytes + dataBytes
)

const segmentBytes = 1 << 20

type writer struct {
	w   *bufio.Writer
	seg []byte
	err error
}

func (w *writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *writer) record(tag byte, body []byte) {
	var head [9]byte
	head[0] = tag
	binary.BigEndian.PutUint32(head[5:], uint32(len(body)))
	w.write(head[:])
	w.write(body)
}

func (w *writer) flush() {
	if len(w.seg) > 0 {
		w.record(0x1C, w.seg)
		w.seg = w.seg[:0]
	}
}

func u8(b []byte, v ...uint64) []byte {
	for _, x := range v {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	return b
}

func u4(b []byte, v ...uint32) []byte {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

func main() {
	n := flag.Int("objects", 1_000_000, "objects, about")
	out := flag.String("o", "", "file that is written")
	flag.Parse()
	if *out == "" || *n < 100 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := generate(*out, *n/perEntry); err != nil {
		fmt.Fprintf(os.Stderr, "heapgen: %v\n", err)
		os.Exit(1)
	}
}

// Names of string records and classes, by ID.
const (
	nameObject = iota + 1
	nameString
	nameNode
	nameItem
	nameCache
	nameArray
	nameBytes
	nameLongs
	nameClass
	nameReference
	nameWeak
	nameSoft
	nameFinal
	namePhantom
	nameThread
	nameKey
	nameValue
	nameNext
	nameData
	nameHash
	nameCoder
	nameStamp
	nameTable
	nameMain
	nameReferent
)

var names = map[uint64]string{nameObject: "java/lang/Object", nameString: "java/lang/String", nameNode: "gen/Cache$Node", nameItem: "gen/Item",
	nameCache: "gen/Cache", nameArray: "[Ljava/lang/Object;", nameBytes: "[B", nameLongs: "[J", nameClass: "java/lang/Class", nameThread: "java/lang/Thread", nameKey: "key", nameValue: "value", nameNext: "next",
	nameData: "data", nameHash: "hash", nameCoder: "coder", nameStamp: "stamp", nameTable: "table", nameMain: "main", nameReferent: "referent",
	nameReference: "java/lang/ref/Reference", nameWeak: "java/lang/ref/WeakReference", nameSoft: "java/lang/ref/SoftReference",
	nameFinal: "java/lang/ref/FinalReference", namePhantom: "java/lang/ref/PhantomReference"}

func generate(path string, entries int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := &writer{w: bufio.NewWriterSize(f, 1<<20), seg: make([]byte, 0, segmentBytes+4096)}
	w.write(append([]byte("JAVA PROFILE 1.0.2\x00"), u8(u4(nil, 8), 1_700_000_000_000)...))
	for id := uint64(1); id <= nameReferent; id++ {
		w.record(0x01, append(u8(nil, id), names[id]...))
	}
	// Class objects are at the start of the heap, 128 bytes apart.
	const base = 0x700000000
	class := func(name uint64) uint64 { return base + name*128 }
	for name := uint64(nameObject); name <= nameThread; name++ {
		w.record(0x02, u8(u4(u8(u4(nil, uint32(name)), class(name)), 0), name))
	}
	array := uint64(base + 64*128)
	first := array + (16+uint64(entries)*4+7)/8*8
	classDump := func(name, super uint64, size uint32, static uint64, fields ...uint64) {
		b := u8(u4(append(w.seg, 0x20), nil...), class(name))
		b = u8(u4(b, 0), super, 0, 0, 0, 0, 0)
		b = u4(b, size)
		b = append(b, 0, 0)
		if static != 0 {
			b = append(u8(append(b, 0, 1), nameTable), 2)
			b = u8(b, static)
		} else {
			b = append(b, 0, 0)
		}
		b = append(b, 0, byte(len(fields)/2))
		for i := 0; i < len(fields); i += 2 {
			b = append(u8(b, fields[i]), byte(fields[i+1]))
		}
		w.seg = b
	}
	object := class(nameObject)
	classDump(nameObject, 0, 0, 0)
	classDump(nameString, object, 13, 0, nameHash, 10, nameCoder, 8, nameValue, 2)
	classDump(nameNode, object, 28, 0, nameHash, 10, nameKey, 2, nameValue, 2, nameNext, 2)
	classDump(nameItem, object, 24, 0, nameNext, 2, nameData, 2, nameStamp, 11)
	classDump(nameCache, object, 0, array)
	classDump(nameArray, object, 0, 0)
	for _, name := range []uint64{nameBytes, nameLongs, nameClass, nameThread} {
		classDump(name, object, 0, 0)
	}
	classDump(nameReference, object, 8, 0, nameReferent, 2)
	for name := uint64(nameWeak); name <= namePhantom; name++ {
		classDump(name, class(nameReference), 8, 0)
	}
	for name := uint64(nameObject); name <= nameThread; name++ {
		w.seg = u8(append(w.seg, 0x05), class(name))
	}
	w.flush()
	// The table is one sub-record, which is longer than a segment.
	var head [9]byte
	head[0] = 0x1C
	binary.BigEndian.PutUint32(head[5:], uint32(25+entries*8))
	w.write(head[:])
	w.write(u8(u4(u4(u8([]byte{0x22}, array), 0), uint32(entries)), class(nameArray)))
	for i := range entries {
		w.write(u8(nil, first+uint64(i)*entryBytes))
	}
	text := []byte("session-000000000-of-gen")
	for i := range entries {
		at := first + uint64(i)*entryBytes
		str, txt := at+nodeBytes, at+nodeBytes+stringBytes
		item := txt + textBytes
		data := item + itemBytes
		next := uint64(0)
		if i%1000 != 999 && i+1 < entries { // lists of a thousand
			next = item + entryBytes
		}
		b := w.seg
		b = u4(u8(u4(u8(append(b, 0x21), at), 0), class(nameNode)), 28)
		b = u8(u4(b, uint32(i)), str, item, 0)
		b = u4(u8(u4(u8(append(b, 0x21), str), 0), class(nameString)), 13)
		b = u8(append(u4(b, 0), 0), txt)
		b = append(u4(u8(append(b, 0x23), txt), 0, 24), 8)
		for k, v := 16, i; k > 8; k, v = k-1, v/10 {
			text[k] = '0' + byte(v%10)
		}
		b = append(b, text...)
		b = u4(u8(u4(u8(append(b, 0x21), item), 0), class(nameItem)), 24)
		b = u8(b, next, data, uint64(i))
		b = append(u4(u8(append(b, 0x23), data), 0, 1), 11)
		w.seg = u8(b, uint64(i)*7)
		if len(w.seg) >= segmentBytes {
			w.flush()
		}
	}
	w.flush()
	w.record(0x2C, nil)
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err == nil {
		w.err = f.Close()
	}
	return w.err
}
