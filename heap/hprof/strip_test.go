package hprof

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// rewritten returns a dump as f changes it: the tests' own model of a strip, on a
// dump that is in memory as a whole. f returns the output for an item and the bytes that its segment's length counts for it.
func rewritten(t testing.TB, dump []byte, f func(r *Reader, it *Item, head, body []byte) (out []byte, counted int)) []byte {
	t.Helper()
	r, err := NewReader(bytes.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	length, segment := 0, -1
	end := func() {
		if segment >= 0 {
			out[segment+5], out[segment+6], out[segment+7], out[segment+8] = byte(length>>24), byte(length>>16), byte(length>>8), byte(length)
		}
		segment, length = -1, 0
	}
	for {
		it, err := r.Next()
		if err == io.EOF {
			end()
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		head := dump[it.Offset : it.Offset+int64(len(it.Head))]
		body := dump[it.BodyOffset() : it.BodyOffset()+it.Body]
		item := *it
		if it.Kind != KindSub {
			end()
		}
		if it.HasSubs() {
			segment = len(out)
		}
		b, counted := f(r, &item, head, body)
		out = append(out, b...)
		if it.Kind == KindSub {
			length += counted
		}
	}
}

func same(_ *Reader, _ *Item, head, body []byte) ([]byte, int) {
	return append(bytes.Clone(head), body...), len(head) + len(body)
}

// zeroed is what a dump is after a strip by KOOM's rule and fill.
func zeroed(t testing.TB, dump []byte) []byte {
	system := false
	return rewritten(t, dump, func(r *Reader, it *Item, head, body []byte) ([]byte, int) {
		if it.Kind == KindSub {
			switch it.Tag {
			case SubHeapInfo:
				system = it.Heap == HeapZygote || it.Heap == HeapImage
				if system {
					return nil, 0
				}
			case SubInstance, SubObjectArray:
				if system {
					return nil, 0
				}
			case SubPrimitiveArray:
				if system {
					return nil, 0
				}
				return append(bytes.Clone(head), make([]byte, len(body))...), len(head) + len(body)
			}
		}
		return same(r, it, head, body)
	})
}

// eachDump calls f with the dumps of the corpus, and with one that this test wrote. One of 500 MB takes part with
// SLIVER_LONG=1; without, TestCheckCorpus has it.
func eachDump(t *testing.T, f func(t *testing.T, dump []byte)) {
	most := 64 << 20
	switch {
	case testing.Short():
		most = 2 << 20
	case os.Getenv("SLIVER_LONG") != "":
		most = math.MaxInt
	}
	dumpsUpTo(t, most, f)
}

// sizes are the sizes of dumps, by path: a compressed one is not read again for that.
var sizes = map[string]int{}

// dumpsUpTo is eachDump for dumps of a size.
func dumpsUpTo(t *testing.T, most int, f func(t *testing.T, dump []byte)) {
	t.Run("own", func(t *testing.T) { f(t, sample(t)) })
	for name, path := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			if sizes[path] <= most {
				dump := plain(t, path)
				if sizes[path] = len(dump); sizes[path] <= most {
					f(t, dump)
					return
				}
			}
			t.Skipf("a dump of %d bytes", sizes[path])
		})
	}
}

func strip(t testing.TB, dump []byte, o StripOptions) []byte {
	t.Helper()
	o.Temp = t.TempDir()
	var once, pipe bytes.Buffer
	if err := Strip(&once, bytes.NewReader(dump), o); err != nil {
		t.Fatal(err)
	}
	if err := Strip(&pipe, onlyReader{bytes.NewReader(dump)}, o); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(once.Bytes(), pipe.Bytes()) {
		t.Fatal("a strip from a pipe is not the strip from a file")
	}
	return once.Bytes()
}

type onlyReader struct{ io.Reader }

func TestCopy(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		var got bytes.Buffer
		if err := Copy(&got, onlyReader{bytes.NewReader(dump)}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), dump) {
			t.Fatal("the copy is not the dump")
		}
	})
}

func TestShark(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		names := map[uint64]Type{}
		classes := map[uint64]Type{}
		want := rewritten(t, dump, func(r *Reader, it *Item, head, body []byte) ([]byte, int) {
			body = bytes.Clone(body)
			switch {
			case it.Kind == KindRecord && it.Tag == TagString:
				if typ := wrapperType(string(body)); typ != 0 {
					names[it.ID] = typ
				}
			case it.Kind == KindRecord && it.Tag == TagLoadClass && names[it.Ref] != 0:
				classes[it.ID] = names[it.Ref]
			case it.Kind == KindSub && it.Tag == SubInstance && classes[it.Ref] != 0:
				clear(body[:classes[it.Ref].Size(0)])
			case it.Kind == KindSub && it.Tag == SubPrimitiveArray:
				for i := range body {
					body[i] = 0
					if it.Type == TypeByte || it.Type == TypeChar && i%2 == 1 {
						body[i] = '?'
					}
				}
			}
			return same(r, it, head, body)
		})
		got := strip(t, dump, StripOptions{Rule: Shark})
		if len(got) != len(dump) || !bytes.Equal(got, want) {
			t.Fatal(difference(got, want))
		}
	})
}

func TestKoomAndFill(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		cut := strip(t, dump, StripOptions{Rule: Koom})
		r, err := NewReader(bytes.NewReader(cut))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = r.Next()
		}
		if err != io.EOF || !r.Cut() {
			t.Fatalf("reading the strip: %v, cut %t", err, r.Cut())
		}
		want := zeroed(t, dump)
		for _, marked := range []bool{true, false} {
			src := cut
			if !marked { // as KOOM's own are
				m := markRecord(r.header.IDSize)
				src = bytes.ReplaceAll(cut, m, nil)
			}
			var got bytes.Buffer
			if err := Fill(&got, onlyReader{bytes.NewReader(src)}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Fatal(difference(got.Bytes(), want))
			}
		}
		// Nothing is left to fill.
		var again bytes.Buffer
		if err := Fill(&again, bytes.NewReader(dump)); !errors.Is(err, ErrNotCut) {
			t.Fatalf("fill of a whole dump: %v", err)
		}
	})
}

func difference(got, want []byte) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("they differ at %d of %d and %d: %x, want %x", i, len(got), len(want),
				got[max(0, i-8):min(len(got), i+24)], want[max(0, i-8):min(len(want), i+24)])
		}
	}
	return fmt.Sprintf("one ends before the other: %d and %d", len(got), len(want))
}

// stringArrays returns the arrays that hold the values of strings, and the bitmaps'
// buffers with the class of bitmaps, by reading the whole dump into memory.
func stringArrays(t testing.TB, dump []byte) (values, buffers map[uint64]bool) {
	t.Helper()
	names := map[uint64]string{}
	classes := map[uint64]string{}
	layout := map[uint64]*Class{}
	values, buffers = map[uint64]bool{}, map[uint64]bool{}
	for pass := range 2 {
		r, err := NewReader(bytes.NewReader(dump))
		if err != nil {
			t.Fatal(err)
		}
		for {
			it, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			body := dump[it.BodyOffset() : it.BodyOffset()+it.Body]
			switch {
			case it.Kind == KindRecord && it.Tag == TagString:
				names[it.ID] = string(body)
			case it.Kind == KindRecord && it.Tag == TagLoadClass:
				classes[it.ID] = names[it.Ref]
			case it.Kind == KindSub && it.Tag == SubClass:
				c := &Class{}
				if err := r.Class(c); err != nil {
					t.Fatal(err)
				}
				layout[c.ID] = c
			case it.Kind == KindSub && it.Tag == SubInstance && pass == 1:
				field := map[string]string{"java/lang/String": "value", "java.lang.String": "value", "android.graphics.Bitmap": "mBuffer"}[classes[it.Ref]]
				at := 0
				for _, f := range layout[it.Ref].Fields {
					if field != "" && names[f.Name] == field {
						if id := ID(body[at:], r.IDSize()); id != 0 && field == "value" {
							values[id] = true
						} else if id != 0 {
							buffers[id] = true
						}
					}
					at += f.Type.Size(r.IDSize())
				}
			}
		}
	}
	return values, buffers
}

func TestMatrix(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		values, buffers := stringArrays(t, dump)
		got := strip(t, dump, StripOptions{Rule: Matrix})
		before, after := map[uint64][]byte{}, map[uint64][]byte{}
		for _, side := range []struct {
			dump   []byte
			arrays map[uint64][]byte
		}{{dump, before}, {got, after}} {
			r, err := NewReader(onlyReader{bytes.NewReader(side.dump)})
			if err != nil {
				t.Fatal(err)
			}
			for {
				it, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if it.Kind == KindSub && it.Tag == SubPrimitiveArray {
					side.arrays[it.ID] = side.dump[it.BodyOffset() : it.BodyOffset()+it.Body]
				}
			}
		}
		equal := map[string]int{}
		for id := range buffers {
			equal[string(before[id])]++
		}
		for id, b := range after {
			if !bytes.Equal(b, before[id]) {
				t.Fatalf("array %#x has other values", id)
			}
			if !values[id] {
				if !buffers[id] || equal[string(b)] < 2 {
					t.Fatalf("array %#x is left and holds no string and no duplicated bitmap", id)
				}
				equal[string(b)] = 0 // one of them
			}
		}
		for id := range before {
			if values[id] && after[id] == nil && len(before[id]) > 0 {
				t.Fatalf("the value of a string, %#x, is gone", id)
			}
		}
		for b, n := range equal {
			if n > 1 {
				t.Fatalf("%d bitmaps have the same %d bytes, and none of them is left", n, len(b))
			}
		}
	})
}

// Duplicates refer to the bitmap that is kept.
func TestMatrixBitmaps(t *testing.T) {
	b := newBuilder("1.0.3", 4)
	b.content(TagHeapSegment, true)
	got := strip(t, b.Bytes(), StripOptions{Rule: Matrix})
	r, err := NewReader(bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	var refs, arrays []uint64
	for {
		it, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if it.Kind == KindSub && it.Tag == SubInstance && it.Ref == 0x1200 {
			refs = append(refs, ID(got[it.BodyOffset()+1:], 4))
		}
		if it.Kind == KindSub && it.Tag == SubPrimitiveArray {
			arrays = append(arrays, it.ID)
		}
	}
	// Of 0x3200 and 0x3300, a HashMap with 16 buckets comes to one first: their hash
	// codes are 31⁴ + 31·0x32 and 31⁴ + 31·0x33, in buckets 2 and 1.
	hash := func(id uint32) uint32 {
		h := int32(1)
		for i := 3; i >= 0; i-- {
			h = 31*h + int32(int8(id>>(8*i)))
		}
		return (uint32(h) ^ uint32(h)>>16) & 15
	}
	kept := uint64(0x3200)
	if hash(0x3300) < hash(0x3200) {
		kept = 0x3300
	}
	if want := []uint64{kept, kept, 0x3400}; !slices.Equal(refs, want) {
		t.Errorf("bitmaps refer to %x, want %x", refs, want)
	}
	if want := []uint64{0x3000, kept}; !slices.Equal(arrays, want) {
		t.Errorf("arrays %x are left, want %x", arrays, want)
	}
}

func TestKeepStrings(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		values, _ := stringArrays(t, dump)
		// By Shark's rule the rest becomes ? and 0, by KOOM's and fill 0.
		system := false
		for _, rule := range []Rule{Shark, Koom} {
			want := rewritten(t, strip(t, dump, StripOptions{Rule: Shark}), func(r *Reader, it *Item, head, body []byte) ([]byte, int) {
				if it.Kind != KindSub || it.Tag != SubPrimitiveArray || !values[it.ID] {
					return same(r, it, head, body)
				}
				return same(r, it, head, dump[it.BodyOffset():it.BodyOffset()+it.Body])
			})
			got := strip(t, dump, StripOptions{Rule: rule, KeepStrings: true})
			if rule == Koom {
				var filled bytes.Buffer
				if err := Fill(&filled, bytes.NewReader(got)); err != nil {
					t.Fatal(err)
				}
				got = filled.Bytes()
				want = rewritten(t, dump, func(r *Reader, it *Item, head, body []byte) ([]byte, int) {
					if it.Kind == KindSub {
						switch it.Tag {
						case SubHeapInfo:
							system = it.Heap == HeapZygote || it.Heap == HeapImage
							if system {
								return nil, 0
							}
						case SubInstance, SubObjectArray, SubPrimitiveArray:
							if system {
								return nil, 0
							}
							if it.Tag == SubPrimitiveArray && !values[it.ID] {
								body = make([]byte, len(body))
							}
						}
					}
					return same(r, it, head, body)
				})
			}
			if !bytes.Equal(got, want) {
				t.Fatal(rule, difference(got, want))
			}
		}
	})
}

// Every string is redacted unless a class, field, method, thread or heap has it as its name.
func TestRedactConstants(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		used := map[uint64]bool{}
		{
			r, err := NewReader(bytes.NewReader(dump))
			if err != nil {
				t.Fatal(err)
			}
			for {
				it, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case it.Kind == KindRecord && it.Tag == TagLoadClass, it.Kind == KindSub && it.Tag == SubHeapInfo:
					used[it.Ref] = true
				case it.Kind == KindRecord && it.Tag == TagFrame:
					f, err := r.Frame()
					if err != nil {
						t.Fatal(err)
					}
					used[f.Method], used[f.Signature], used[f.Source] = true, true, true
				case it.Kind == KindRecord && it.Tag == TagStartThread:
					f, err := r.Thread()
					if err != nil {
						t.Fatal(err)
					}
					used[f.Name], used[f.Group], used[f.Parent] = true, true, true
				case it.Kind == KindSub && it.Tag == SubClass:
					var c Class
					if err := r.Class(&c); err != nil {
						t.Fatal(err)
					}
					for _, f := range c.Fields {
						used[f.Name] = true
					}
					for _, f := range c.Statics {
						used[f.Name] = true
					}
				}
			}
		}
		redacted := 0
		want := rewritten(t, strip(t, dump, StripOptions{Rule: Shark}), func(r *Reader, it *Item, head, body []byte) ([]byte, int) {
			if it.Kind == KindRecord && it.Tag == TagString && !used[it.ID] {
				redacted++
				body = bytes.Repeat([]byte("?"), len(body))
			}
			return same(r, it, head, body)
		})
		got := strip(t, dump, StripOptions{Rule: Shark, RedactConstants: true})
		if !bytes.Equal(got, want) {
			t.Fatal(difference(got, want))
		}
		t.Logf("%d strings are redacted", redacted)
		if strings.Contains(t.Name(), "/own") && (redacted != 3 || bytes.Contains(got, []byte("the password"))) {
			t.Errorf("%d strings are redacted", redacted)
		}
	})
}

// Sorted runs that do not fit into memory give what a sort in memory gives.
func TestMembersSpill(t *testing.T) {
	m := newMembers(t.TempDir())
	defer m.close()
	const n = 3*sortEntries + 17
	for i := range uint64(n) {
		if err := m.item(i * 0x9E3779B97F4A7C15); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := m.has((n - i - 1) / 3 * 3 * 0x9E3779B97F4A7C15); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.join(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := m.next(); got != (i%3 == 0) {
			t.Fatalf("item %d of %d: %t", i, n, got)
		}
	}
}
