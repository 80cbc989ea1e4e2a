package hprof

import (
	"cmp"
	"crypto/md5"
	"fmt"
	"io"
	"slices"
)

// maxBitmaps bounds the pixel buffers that Matrix's rule compares. A device's
// memory has room for some thousands.
const maxBitmaps = 1 << 18

// plan is what a strip knows of a dump from reading it before.
type plan struct {
	has        bool     // arrays says which primitive arrays are kept
	arrays     *members // in the order of the dump
	names      *members // of the string records, those that are names
	bitmap     uint64   // class of bitmaps, 0: none
	pixels     int      // where a bitmap's body has its buffer; -1: nowhere
	duplicates map[uint64]uint64
}

func (p *plan) close() {
	if p.arrays != nil {
		p.arrays.close()
	}
	if p.names != nil {
		p.names.close()
	}
}

// planner reads a dump for a plan.
type planner struct {
	*plan
	o         StripOptions
	words     map[uint64]string // of the words below, by string record
	strings   map[uint64]int    // where bodies of the String classes have their value; -1: not known yet
	recycled  int               // where a bitmap's body says that it has no pixels any more
	bitmaps   map[uint64]int    // buffers of bitmaps, with their number in sums from 1
	sums      []bitmapSum
	arrayseen int64
	ids       int
}

type bitmapSum struct {
	id  uint64
	sum [md5.Size]byte
	at  int64 // number of the array
}

func word(text string) bool {
	switch text {
	case "java.lang.String", "java/lang/String", "android.graphics.Bitmap", "value", "mBuffer", "mRecycled":
		return true
	}
	return false
}

// maxWord is the length of the longest word.
const maxWord = len("android.graphics.Bitmap")

// rewindable returns a function that reads src from where it is, again and again.
func rewindable(src io.Reader, temp string) (again func() (io.Reader, error), done func(), err error) {
	if s, ok := src.(io.ReadSeeker); ok {
		at, err := s.Seek(0, io.SeekCurrent)
		if err == nil {
			return func() (io.Reader, error) {
				_, err := s.Seek(at, io.SeekStart)
				return s, err
			}, func() {}, nil
		}
	}
	f, damage, err := spool(src, temp)
	if err != nil {
		return nil, nil, err
	}
	return func() (io.Reader, error) {
		_, err := f.Seek(0, io.SeekStart)
		return io.MultiReader(f, failing{damage}), err
	}, func() { f.Close() }, nil
}

// failing is the end of a stream.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// makePlan reads a dump twice, and three times if it has bitmaps. A damaged dump
// is planned as far as it can be read: the strip then says where it ends.
func makePlan(again func() (io.Reader, error), o StripOptions) (plan, error) {
	p := &planner{plan: &plan{pixels: -1}, o: o, words: map[uint64]string{}, strings: map[uint64]int{}, recycled: -1, bitmaps: map[uint64]int{}}
	fail := func(err error) (plan, error) {
		p.close()
		return plan{}, err
	}
	if o.RedactConstants {
		p.names = newMembers(o.Temp)
	}
	if p.has = o.Rule == Matrix || o.KeepStrings; p.has {
		p.arrays = newMembers(o.Temp)
	}
	passes := []func(*Reader, *Item) error{p.classes}
	if p.has {
		passes = append(passes, p.values)
	}
	for _, pass := range passes {
		if err := each(again, pass); err != nil {
			return fail(err)
		}
	}
	if len(p.bitmaps) > 0 {
		if err := each(again, p.sum); err != nil {
			return fail(err)
		}
		p.chooseBitmaps()
		for id, kept := range p.duplicates {
			if id == kept {
				if err := p.arrays.has(id); err != nil {
					return fail(err)
				}
			}
		}
	}
	for _, m := range []*members{p.arrays, p.names} {
		if m != nil {
			if err := m.join(); err != nil {
				return fail(err)
			}
		}
	}
	return *p.plan, nil
}

// each calls f for every item of a dump, up to where it is damaged.
func each(again func() (io.Reader, error), f func(*Reader, *Item) error) error {
	src, err := again()
	if err != nil {
		return err
	}
	r, err := NewReader(src)
	if err != nil {
		return err
	}
	for {
		it, err := r.Next()
		if err == nil {
			err = f(r, it)
		}
		if _, damaged := err.(*Error); damaged || err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// classes finds the classes of strings and bitmaps, their fields, and the names.
func (p *planner) classes(r *Reader, it *Item) error {
	if it.Kind == KindHeader {
		clear(p.words)
		return nil
	}
	if it.Kind == KindRecord {
		return p.record(r, it)
	}
	switch it.Tag {
	case SubHeapInfo:
		return p.name(it.Ref)
	case SubClass:
		_, isString := p.strings[it.ID]
		isBitmap := p.bitmap != 0 && it.ID == p.bitmap
		if !isString && !isBitmap && p.names == nil {
			return nil
		}
		var c Class
		if err := r.Class(&c); err != nil {
			return err
		}
		at := 0
		for _, f := range c.Fields {
			if err := p.name(f.Name); err != nil {
				return err
			}
			text := p.words[f.Name]
			if isString && text == "value" && f.Type == TypeObject {
				p.strings[c.ID] = at
			}
			if isBitmap && text == "mBuffer" && f.Type == TypeObject {
				p.pixels = at
			}
			if isBitmap && text == "mRecycled" && f.Type == TypeBoolean {
				p.recycled = at
			}
			at += f.Type.Size(r.header.IDSize)
		}
		for _, f := range c.Statics {
			if err := p.name(f.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *planner) record(r *Reader, it *Item) error {
	switch it.Tag {
	case TagString:
		id := it.ID
		if p.names != nil {
			if err := p.names.item(id); err != nil {
				return err
			}
		}
		if it.Body > int64(maxWord) {
			return nil
		}
		text, err := r.Bytes()
		if err == nil && word(string(text)) {
			p.words[id] = string(text)
		}
		return err
	case TagLoadClass:
		switch p.words[it.Ref] {
		case "java.lang.String", "java/lang/String":
			if _, ok := p.strings[it.ID]; !ok && len(p.strings) < maxStringClasses {
				p.strings[it.ID] = -1
			}
		case "android.graphics.Bitmap":
			if p.bitmap == 0 && p.o.Rule == Matrix {
				p.bitmap = it.ID
			}
		}
		return p.name(it.Ref)
	case TagFrame:
		if p.names == nil {
			return nil
		}
		f, err := r.Frame()
		if err != nil {
			return err
		}
		return p.name(f.Method, f.Signature, f.Source)
	case TagStartThread:
		if p.names == nil {
			return nil
		}
		t, err := r.Thread()
		if err != nil {
			return err
		}
		return p.name(t.Name, t.Group, t.Parent)
	}
	return nil
}

// maxStringClasses bounds the classes called String: one for each dump of a file.
const maxStringClasses = 1 << 10

func (p *planner) name(ids ...uint64) error {
	if p.names == nil {
		return nil
	}
	for _, id := range ids {
		if err := p.names.has(id); err != nil {
			return err
		}
	}
	return nil
}

// values finds the arrays of strings and the buffers of bitmaps.
func (p *planner) values(r *Reader, it *Item) error {
	if it.Kind != KindSub {
		return nil
	}
	ids := r.header.IDSize
	switch it.Tag {
	case SubPrimitiveArray:
		return p.arrays.item(it.ID)
	case SubInstance:
		if at, ok := p.strings[it.Ref]; ok && at >= 0 && it.Body >= int64(at+ids) && it.Body <= maxWhole {
			b, err := r.Bytes()
			if err != nil {
				return err
			}
			if id := ID(b[at:], ids); id != 0 {
				return p.arrays.has(id)
			}
			return nil
		}
		if p.bitmap == 0 || it.Ref != p.bitmap || p.pixels < 0 || it.Body < int64(p.pixels+ids) || it.Body > maxWhole {
			return nil
		}
		b, err := r.Bytes()
		if err != nil {
			return err
		}
		if p.recycled >= 0 && p.recycled < len(b) && b[p.recycled] != 0 {
			return nil
		}
		if id := ID(b[p.pixels:], ids); id != 0 {
			if p.bitmaps[id] = 0; len(p.bitmaps) > maxBitmaps {
				return fmt.Errorf("more than %d bitmaps: too many to compare", maxBitmaps)
			}
		}
	}
	return nil
}

// sum takes a checksum of every bitmap's buffer.
func (p *planner) sum(r *Reader, it *Item) error {
	if it.Kind != KindSub || it.Tag != SubPrimitiveArray {
		return nil
	}
	p.arrayseen++
	p.ids = r.header.IDSize
	n, ok := p.bitmaps[it.ID]
	if !ok {
		return nil
	}
	id, h := it.ID, md5.New()
	for {
		b, err := r.Chunk()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		h.Write(b)
	}
	s := bitmapSum{id: id, at: p.arrayseen}
	h.Sum(s.sum[:0])
	if n > 0 { // the array of another dump in the stream
		p.sums[n-1].sum = s.sum
		return nil
	}
	p.sums = append(p.sums, s)
	p.bitmaps[id] = len(p.sums)
	return nil
}

// chooseBitmaps chooses the one of each set of equal bitmaps that is kept: the one
// that Matrix comes to first. It goes through a java.util.HashMap of all primitive
// arrays, keyed by Arrays.hashCode of the identifier's bytes.
func (p *planner) chooseBitmaps() {
	buckets := int64(16)
	for p.arrayseen*4 > buckets*3 {
		buckets *= 2
	}
	bucket := func(id uint64) int64 {
		h := int32(1)
		for i := p.ids - 1; i >= 0; i-- {
			h = 31*h + int32(int8(id>>(8*i)))
		}
		u := uint32(h)
		return int64(u^u>>16) & (buckets - 1)
	}
	slices.SortFunc(p.sums, func(a, b bitmapSum) int {
		return cmp.Or(cmp.Compare(bucket(a.id), bucket(b.id)), cmp.Compare(a.at, b.at))
	})
	first := map[[md5.Size]byte]uint64{}
	p.duplicates = map[uint64]uint64{}
	for _, s := range p.sums {
		kept, ok := first[s.sum]
		if !ok {
			first[s.sum] = s.id
			continue
		}
		p.duplicates[kept], p.duplicates[s.id] = kept, kept
	}
}
