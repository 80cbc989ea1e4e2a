package hprof

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Rule says what a strip removes from a dump.
type Rule string

const (
	// Shark overwrites the values of primitive arrays, with '?' those of byte[] and
	// char[], with 0 all others, and the values of Integer, Long and the other
	// wrappers with 0. The size stays. It is the rule of LeakCanary's
	// HprofPrimitiveArrayStripper (square/leakcanary, commit 0f7dbab17).
	Shark Rule = "shark"
	// Matrix removes primitive arrays but for the values of strings and one of each
	// set of bitmaps that have the same pixels, to which all of the set then refer.
	// It is the rule of HprofBufferShrinker (Tencent/matrix, commit 3b8293bd).
	Matrix Rule = "matrix"
	// Koom removes the objects of ART's zygote and image heaps, and the values of
	// primitive arrays, but not from the lengths of segments: Fill puts zeros there.
	// It is the rule of hprof_strip.cpp (KwaiAppTeam/KOOM, commit f653d7c), where
	// roots that ART no longer writes (0x8A, 0x8C, 0x90) and 0xC3 end a segment's
	// strip; here they are what the format says.
	Koom Rule = "koom"
)

// StripOptions say what Strip does.
type StripOptions struct {
	Rule            Rule
	KeepStrings     bool   // leave the values of java.lang.String as they are
	RedactConstants bool   // overwrite string records that are not names of the dump's classes, fields, methods, threads or heaps with '?'
	Temp            string // folder for temporary files without a name; "" is the system's
}

// Strip writes a dump without its contents, by a rule. It reads src once if it
// needs no look ahead: by the rules Shark and Koom without KeepStrings
// and RedactConstants. Otherwise src is read two or three times; one that is not
// an io.ReadSeeker is first written to a temporary file.
//
// If the dump is damaged, w has what came before, and the error is an *Error.
func Strip(w io.Writer, src io.Reader, o StripOptions) error {
	switch o.Rule {
	case Shark, Koom, Matrix:
	default:
		return fmt.Errorf("unknown rule %q: shark, matrix or koom", o.Rule)
	}
	var plan plan
	if o.Rule == Matrix || o.KeepStrings || o.RedactConstants {
		again, done, err := rewindable(src, o.Temp)
		if err != nil {
			return err
		}
		defer done()
		if plan, err = makePlan(again, o); err != nil {
			return err
		}
		defer plan.close()
		if src, err = again(); err != nil {
			return err
		}
	}
	r, err := newRewriter(w, src)
	if err != nil {
		return err
	}
	s := &stripper{segmented: segmented{r, pending{temp: o.Temp}}, o: o, plan: &plan, wrappers: map[uint64]wrapper{}}
	defer s.pending.close()
	for err == nil {
		var it *Item
		if it, err = r.Next(); err == nil {
			err = s.item(it)
		}
	}
	if plan.arrays != nil && plan.arrays.err != nil {
		err = plan.arrays.err
	}
	if plan.names != nil && plan.names.err != nil {
		err = plan.names.err
	}
	if e := s.endSegment(0); e != nil && err == io.EOF {
		err = e
	}
	return r.finish(err)
}

type stripper struct {
	segmented
	o        StripOptions
	plan     *plan
	wrappers map[uint64]wrapper // by class, and by string until the class is loaded
	lo, hi   uint64             // smallest and largest class of them
	objects  bool               // the heap dump has begun
	system   bool               // in ART's zygote or image heap
}

// wrapper is a class whose instances hold one primitive value.
type wrapper struct {
	t    Type
	name bool // the key is that of its name's string
}

func wrapperType(name string) Type {
	switch name {
	case "java/lang/Boolean", "java.lang.Boolean":
		return TypeBoolean
	case "java/lang/Character", "java.lang.Character":
		return TypeChar
	case "java/lang/Float", "java.lang.Float":
		return TypeFloat
	case "java/lang/Double", "java.lang.Double":
		return TypeDouble
	case "java/lang/Byte", "java.lang.Byte":
		return TypeByte
	case "java/lang/Short", "java.lang.Short":
		return TypeShort
	case "java/lang/Integer", "java.lang.Integer":
		return TypeInt
	case "java/lang/Long", "java.lang.Long":
		return TypeLong
	}
	return 0
}

// maxWrapperName is the length of "java/lang/Character", the longest.
const maxWrapperName = 19

var (
	zeros       = pattern(0)
	byteMarks   = pattern('?')
	charMarks   = pattern(0, '?')
	replacement = func(t Type) []byte {
		switch t {
		case TypeByte:
			return byteMarks
		case TypeChar:
			return charMarks
		}
		return zeros
	}
)

func (s *stripper) item(it *Item) error {
	switch it.Kind {
	case KindHeader:
		if err := s.endSegment(len(it.Head)); err != nil {
			return err
		}
		clear(s.wrappers)
		s.lo, s.hi = math.MaxUint64, 0
		s.objects, s.system = false, false
		if s.o.Rule == Koom {
			return s.insert(markRecord(s.header.IDSize))
		}
		return nil
	case KindRecord:
		if err := s.endSegment(len(it.Head)); err != nil {
			return err
		}
		return s.record(it)
	}
	if it.Tag == SubPrimitiveArray && s.plan.has {
		return s.plannedArray(it)
	}
	switch s.o.Rule {
	case Shark:
		return s.shark(it)
	case Koom:
		return s.koom(it)
	}
	return s.matrix(it)
}

// markRecord is the record that Reader.Cut knows a strip by KOOM's rule by.
func markRecord(ids int) []byte {
	b := make([]byte, recordHeadBytes+ids, recordHeadBytes+ids+len(mark))
	b[0] = TagString
	binary.BigEndian.PutUint32(b[5:], uint32(ids+len(mark)))
	return append(b, mark...)
}

func (s *stripper) record(it *Item) error {
	switch it.Tag {
	case TagString:
		if s.cut && it.ID == 0 && it.Body == int64(len(mark)) {
			return s.damaged(it.Offset, "stripped by KOOM's rule already")
		}
		redact := s.o.RedactConstants && !s.plan.names.next()
		if s.o.Rule == Shark && it.Body <= maxWrapperName {
			id := it.ID
			text, err := s.Bytes()
			if err != nil {
				return err
			}
			if t := wrapperType(string(text)); t != 0 {
				s.wrappers[id] = wrapper{t, true}
			}
			if redact {
				copy(text, byteMarks)
			}
			return nil
		}
		if redact {
			return s.overwrite(it.Body, byteMarks)
		}
	case TagLoadClass:
		w, ok := s.wrappers[it.Ref]
		if !ok || !w.name {
			return nil
		}
		if _, known := s.wrappers[it.ID]; s.objects && !known {
			return s.damaged(it.Offset, "a wrapper class is loaded after the first objects: their values would be left in")
		}
		s.wrappers[it.ID] = wrapper{t: w.t}
		s.lo, s.hi = min(s.lo, it.ID), max(s.hi, it.ID)
	case TagHeapDump, TagHeapSegment:
		s.objects = true
		if s.o.Rule == Matrix || s.o.Rule == Koom && s.header.Version == "1.0.3" {
			return s.beginSegment(it)
		}
	}
	return nil
}

// shark strips a sub-record by the rule of that name.
func (s *stripper) shark(it *Item) error {
	switch it.Tag {
	case SubPrimitiveArray:
		return s.overwrite(it.Body, replacement(it.Type))
	case SubInstance:
		if it.Ref < s.lo || it.Ref > s.hi {
			return nil
		}
		if w, ok := s.wrappers[it.Ref]; ok && !w.name {
			return s.overwrite(min(it.Body, int64(w.t.Size(s.header.IDSize))), zeros)
		}
	case SubClass:
		w, ok := s.wrappers[it.ID]
		if !ok || w.name {
			return nil
		}
		var c Class
		if err := s.Class(&c); err != nil {
			return err
		}
		if len(c.Fields) != 1 || c.Fields[0].Type != w.t {
			return s.damaged(it.Offset, "the class of %s values has other fields than one of that type: they would be left in", w.t)
		}
	}
	return nil
}

// koom strips a sub-record by the rule of that name.
func (s *stripper) koom(it *Item) error {
	switch it.Tag {
	case SubHeapInfo:
		heap := it.Heap & 0xff
		if !s.pending.open {
			return nil
		}
		if s.system = heap == HeapZygote || heap == HeapImage; s.system {
			return s.dropItem()
		}
	case SubInstance, SubObjectArray:
		if s.system {
			return s.dropItem()
		}
	case SubPrimitiveArray:
		if s.system {
			return s.dropItem()
		}
		s.pending.cut += it.Body
		return s.dropBody()
	}
	return nil
}

// matrix strips a sub-record other than a primitive array by the rule of that name.
func (s *stripper) matrix(it *Item) error {
	ids := s.header.IDSize
	switch it.Tag {
	case SubRootJNIGlobal: // Matrix writes no JNI references
		clear(it.Head[1+ids:])
	case SubClass: // nor signers, protection domains and constants
		clear(it.Head[1+3*ids+4 : 1+7*ids+4])
		if n := binary.BigEndian.Uint16(it.Head[1+7*ids+8:]); n != 0 {
			return s.dropConstants(it)
		}
	case SubInstance:
		if s.plan.bitmap != 0 && it.Ref == s.plan.bitmap {
			return s.bitmap(it)
		}
	}
	return nil
}

// dropConstants writes a class without its constant pool.
func (s *stripper) dropConstants(it *Item) error {
	ids := s.header.IDSize
	var c Class
	if err := s.Class(&c); err != nil {
		return err
	}
	at := 1 + 7*ids + 8
	clear(it.Head[at : at+2])
	head := append([]byte(nil), it.Head[:at+2]...)
	from := at + 2
	for _, k := range c.Constants {
		from += 3 + k.Type.Size(ids)
	}
	rest := append([]byte(nil), it.Head[from:]...)
	if err := s.dropItem(); err != nil {
		return err
	}
	if _, err := s.tap.w.Write(head); err != nil {
		return err
	}
	_, err := s.tap.w.Write(rest)
	return err
}

// bitmap lets a bitmap refer to the one of its duplicates that is kept.
func (s *stripper) bitmap(it *Item) error {
	at, ids := s.plan.pixels, s.header.IDSize
	if at < 0 || it.Body < int64(at+ids) || it.Body > maxWhole {
		return nil
	}
	b, err := s.Bytes()
	if err != nil {
		return err
	}
	if kept, ok := s.plan.duplicates[ID(b[at:], ids)]; ok {
		PutID(b[at:], ids, kept)
	}
	return nil
}

// plannedArray strips a primitive array where a plan says which are kept.
func (s *stripper) plannedArray(it *Item) error {
	keep := s.plan.arrays.next()
	switch {
	case s.o.Rule == Matrix && !keep:
		return s.dropItem()
	case s.o.Rule == Shark && !keep:
		return s.shark(it)
	case s.o.Rule == Koom && (!keep || s.system):
		return s.koom(it)
	case s.o.Rule == Koom:
		it.Head[0] = subKeptArray
	}
	return nil
}
