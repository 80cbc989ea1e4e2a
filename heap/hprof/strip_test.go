package hprof

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
)

// rewritten returns a dump as f changes it: the tests' own account of what a
// strip does, on a dump that is in memory as a whole. f returns what is written
// for an item and the bytes that its segment's length counts for it.
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

// eachDump calls f with the dumps of the corpus, and with one that this test wrote.
func eachDump(t *testing.T, f func(t *testing.T, dump []byte)) {
	t.Run("own", func(t *testing.T) { f(t, sample(t)) })
	for name, path := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			dump := plain(t, path)
			if testing.Short() && len(dump) > 100<<20 {
				t.Skip("a dump of more than 100 MB, with -short")
			}
			f(t, dump)
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
