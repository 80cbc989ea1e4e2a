package hprof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Form is one of the two that dumps are written in.
type Form string

const (
	HotSpot Form = "hotspot" // version 1.0.2, without heaps and ART's roots
	ART     Form = "art"     // version 1.0.3, in small segments that name their heap
)

// ConvertOptions say what Convert does.
type ConvertOptions struct {
	To Form // "": the other form than that of the dump
	// ClassNames rewrites the names of classes: java/lang/String and [I of HotSpot,
	// java.lang.String and int[] of ART. To the form of ART it is always done.
	ClassNames bool
	Temp       string // folder for temporary files without a name; "" is the system's
}

const (
	artSegmentObjects = 128 // objects of a segment, as in art/runtime/hprof/hprof.cc
	artSegmentBytes   = 4096
	version2          = "1.0.2"
	version3          = "1.0.3"
)

// Convert writes a dump in the form of the other virtual machine.
//
// From ART to HotSpot it does what hprof-conv of the Android SDK does, byte for
// byte: heaps lose their names, roots that only ART has become of unknown kind, and
// arrays without values become empty. src is read once, and twice for names.
//
// If the dump is damaged, w has what came before, and the error is an *Error.
func Convert(w io.Writer, src io.Reader, o ConvertOptions) error {
	again, done, err := rewindable(src, o.Temp)
	if err != nil {
		return err
	}
	defer done()
	if src, err = again(); err != nil {
		return err
	}
	probe, err := NewReader(src)
	if err != nil {
		return err
	}
	switch is := map[bool]Form{true: ART, false: HotSpot}[probe.Header().Version == version3]; {
	case o.To == "" && is == ART:
		o.To = HotSpot
	case o.To == "":
		o.To = ART
	case o.To != ART && o.To != HotSpot:
		return fmt.Errorf("unknown form %q: art or hotspot", o.To)
	}
	c := &converter{to: o.To, names: o.ClassNames || o.To == ART}
	if c.names {
		c.classes = newMembers(o.Temp)
		defer c.classes.close()
		if err := each(again, c.plan); err != nil {
			return err
		}
		if err := c.classes.join(); err != nil {
			return err
		}
	}
	if src, err = again(); err != nil {
		return err
	}
	r, err := newRewriter(w, src)
	if err != nil {
		return err
	}
	c.segmented = segmented{r, pending{temp: o.Temp}}
	defer c.pending.close()
	for err == nil {
		var it *Item
		if it, err = r.Next(); err == nil {
			err = c.item(it)
		}
	}
	if e := c.end(0); e != nil && err == io.EOF {
		err = e
	}
	return r.finish(err)
}

type converter struct {
	segmented
	to      Form
	names   bool
	classes *members // of the string records, those that are names of classes
	used    uint64   // identifiers below 64 that string records have
	heap    []byte   // to ART: the sub-record that names the heap
	objects int      // of the segment that is held back
	size    int64    // bytes of it
	fresh   bool     // it has nothing but its heap's name
	due     bool     // the dump's end: the record it comes from has none
}

// end ends the record that is held back, and the dump where a record of its own
// has to say so. The last head bytes that were read are not part of it.
func (c *converter) end(head int) error {
	if err := c.endSegment(head); err != nil || !c.due {
		return err
	}
	c.due = false
	if err := c.tap.flush(c.buf, c.pos-head); err != nil {
		return err
	}
	_, err := c.tap.w.Write([]byte{TagHeapDumpEnd, 0, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// plan collects the names of classes.
func (c *converter) plan(_ *Reader, it *Item) error {
	if it.Kind != KindRecord {
		return nil
	}
	switch it.Tag {
	case TagString:
		if it.ID < 64 {
			c.used |= 1 << it.ID
		}
		return c.classes.item(it.ID)
	case TagLoadClass:
		return c.classes.has(it.Ref)
	}
	return nil
}

func (c *converter) item(it *Item) error {
	switch {
	case it.Kind == KindHeader:
		if err := c.end(len(it.Head)); err != nil {
			return err
		}
		return c.header(it)
	case it.Kind == KindRecord:
		if err := c.end(len(it.Head)); err != nil {
			return err
		}
		switch {
		case it.Tag == TagString && c.cut && it.ID == 0:
			return errors.New("KOOM's strip left gaps: fill first")
		case it.Tag == TagString && c.names && c.classes.next():
			return c.className(it)
		case it.HasSubs():
			return c.begin(it)
		}
		return nil
	case c.to == ART:
		return c.toART(it)
	}
	return c.toHotSpot(it)
}

func (c *converter) header(it *Item) error {
	version := version2
	if c.to == ART {
		version = version3
	}
	head := append([]byte(magic+version), it.Head[len(magic)+len(c.rewriter.header.Version):]...)
	if err := c.dropItem(); err != nil {
		return err
	}
	if _, err := c.tap.w.Write(head); err != nil || c.to != ART {
		return err
	}
	ids := c.rewriter.header.IDSize
	id := uint64(1)
	for c.used>>id&1 == 1 && id < 63 {
		id++
	}
	const name = "app"
	b := make([]byte, recordHeadBytes+ids, recordHeadBytes+ids+len(name))
	b[0] = TagString
	binary.BigEndian.PutUint32(b[5:], uint32(ids+len(name)))
	PutID(b[recordHeadBytes:], ids, id)
	c.heap = make([]byte, 5+ids)
	c.heap[0] = SubHeapInfo
	binary.BigEndian.PutUint32(c.heap[1:], HeapApp)
	PutID(c.heap[5:], ids, id)
	_, err := c.tap.w.Write(append(b, name...))
	return err
}

// className rewrites the name of a class.
func (c *converter) className(it *Item) error {
	if it.Body > maxClassName {
		return nil
	}
	head := bytes.Clone(it.Head)
	if err := c.dropItem(); err != nil {
		return err
	}
	b, err := c.Bytes()
	if err != nil {
		return err
	}
	name := HotSpotName(string(b))
	if c.to == ART {
		name = ARTName(string(b))
	}
	binary.BigEndian.PutUint32(head[5:], uint32(len(head)-recordHeadBytes+len(name)))
	_, err = c.tap.w.Write(append(head, name...))
	return err
}

// maxClassName is what a class file allows.
const maxClassName = 1<<16 - 1

func (c *converter) begin(it *Item) error {
	c.objects, c.size = 0, 0
	if err := c.beginSegment(it); err != nil {
		return err
	}
	if c.to == ART {
		c.due = it.Tag == TagHeapDump
		c.pending.head[0] = TagHeapSegment
		c.fresh = true
	}
	return nil
}

// toHotSpot changes a sub-record of ART.
func (c *converter) toHotSpot(it *Item) error {
	ids := c.rewriter.header.IDSize
	switch it.Tag {
	case SubHeapInfo:
		return c.dropItem()
	case SubRootInterned, SubRootFinalizing, SubRootDebugger, SubRootCleanup, SubRootVMInternal, SubUnreachable:
		it.Head[0] = SubRootUnknown
	case SubRootJNIMonitor:
		root := append([]byte{SubRootUnknown}, it.Head[1:1+ids]...)
		if err := c.dropItem(); err != nil {
			return err
		}
		_, err := c.tap.w.Write(root)
		return err
	case SubPrimitiveBare:
		it.Head[0] = SubPrimitiveArray
		clear(it.Head[5+ids : 9+ids])
	}
	return nil
}

// toART puts a sub-record into a segment of ART's size. Objects come behind the
// name of their heap.
func (c *converter) toART(it *Item) error {
	if c.cut {
		return errors.New("KOOM's strip left gaps: fill first")
	}
	object := it.Tag == SubClass || it.Tag >= SubInstance && it.Tag <= SubPrimitiveArray
	if object && (c.objects >= artSegmentObjects || c.size >= artSegmentBytes) {
		head := c.pending.head
		if err := c.endSegment(len(it.Head)); err != nil {
			return err
		}
		c.pending.head, c.pending.open, c.pending.cut = head, true, 0
		c.tap.w = &c.pending
		c.objects, c.size, c.fresh = 0, 0, true
	}
	c.size += int64(len(it.Head)) + it.Body
	if !object {
		return nil
	}
	c.objects++
	if c.fresh && c.rewriter.header.Version != version3 {
		c.fresh = false
		if err := c.tap.flush(c.buf, c.pos-len(it.Head)); err != nil {
			return err
		}
		_, err := c.tap.w.Write(c.heap)
		return err
	}
	return nil
}

var typeCodes = map[string]string{"Z": "boolean", "C": "char", "F": "float", "D": "double", "B": "byte", "S": "short", "I": "int", "J": "long"}

// ARTName returns a class's name as ART writes it: java.lang.String[] for
// [Ljava/lang/String;. One that has this form already stays.
func ARTName(name string) string {
	base := strings.TrimLeft(name, "[")
	dims := len(name) - len(base)
	if dims > 0 {
		if code, ok := typeCodes[base]; ok {
			base = code
		} else if strings.HasPrefix(base, "L") && strings.HasSuffix(base, ";") {
			base = base[1 : len(base)-1]
		} else {
			return name
		}
	}
	return strings.ReplaceAll(base, "/", ".") + strings.Repeat("[]", dims)
}

// HotSpotName returns a class's name as HotSpot writes it: [Ljava/lang/String; for
// java.lang.String[]. One that has this form already stays.
func HotSpotName(name string) string {
	base := name
	for strings.HasSuffix(base, "[]") {
		base = base[:len(base)-2]
	}
	dims := (len(name) - len(base)) / 2
	if strings.HasPrefix(name, "[") {
		return name
	}
	base = strings.ReplaceAll(base, ".", "/")
	if dims == 0 {
		return base
	}
	for code, t := range typeCodes {
		if base == t {
			return strings.Repeat("[", dims) + code
		}
	}
	return strings.Repeat("[", dims) + "L" + base + ";"
}
