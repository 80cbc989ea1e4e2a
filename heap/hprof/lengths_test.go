package hprof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// Lengths that were written modulo a number are followed to where the content ends.
// The real number is 2³²; TestWrapped has that.
func TestWrappedSmall(t *testing.T) {
	for _, ids := range []int{4, 8} {
		b := newBuilder("1.0.1", ids)
		b.content(TagHeapDump, false)
		b.head(TagControl, 2)
		b.WriteString("xy")
		whole := b.Bytes()
		want, err := ReadInfo(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		record := int(dumpRecord(t, whole))
		real := binary.BigEndian.Uint32(whole[record+5:])
		for wrap := uint32(real/2 - 7); wrap > 100; wrap /= 3 {
			dump := bytes.Clone(whole)
			binary.BigEndian.PutUint32(dump[record+5:], real%wrap)
			for _, src := range []io.Reader{bytes.NewReader(dump), onlyReader{bytes.NewReader(dump)}} {
				r, err := NewReader(src)
				if err != nil {
					t.Fatal(err)
				}
				r.dump.wrap = int64(wrap)
				c := counter{}
				for {
					it, err := r.Next()
					if err == io.EOF {
						c.settle()
						break
					}
					if err == nil {
						err = c.count(r, it)
					}
					if err != nil {
						t.Fatalf("wrapped at %d, length %d: %v", wrap, real%wrap, err)
					}
				}
				if got := c.infos[0]; got.Objects() != want[0].Objects() || got.Roots != want[0].Roots || got.Records[TagControl].Count != 1 {
					t.Errorf("wrapped at %d: %+v, want %+v", wrap, got.Objects(), want[0].Objects())
				}
			}
		}
	}
}

// dumpRecord returns where the first heap dump record begins.
func dumpRecord(t testing.TB, dump []byte) int64 {
	t.Helper()
	r, err := NewReader(bytes.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	for {
		it, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if it.HasSubs() {
			return it.Offset
		}
	}
}

func TestLengthZero(t *testing.T) {
	for _, tag := range []uint8{TagHeapDump, TagHeapSegment} {
		b := newBuilder("1.0.2", 8)
		b.content(tag, false)
		dump := b.Bytes()
		want, err := ReadInfo(bytes.NewReader(dump))
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(bytes.NewReader(bytes.Clone(dump)))
		if err != nil {
			t.Fatal(err)
		}
		for it, err := r.Next(); err == nil; it, err = r.Next() {
			if it.HasSubs() {
				clear(dump[it.Offset+5 : it.Offset+9])
			}
		}
		got, err := ReadInfo(onlyReader{bytes.NewReader(dump)})
		if err != nil || got[0].Objects() != want[0].Objects() || got[0].Roots != want[0].Roots || got[0].Records != want[0].Records {
			t.Errorf("record 0x%02x: %v", tag, err)
		}
		var copied bytes.Buffer
		if err := Copy(&copied, bytes.NewReader(dump)); err != nil || !bytes.Equal(copied.Bytes(), dump) {
			t.Error("the copy differs", err)
		}
	}
	// Empty segments, as strips leave them, are empty.
	b := newBuilder("1.0.3", 4)
	b.begin(TagHeapSegment)
	b.str(1, "after an empty segment")
	b.begin(TagHeapSegment)
	b.end()
	b.head(TagHeapDumpEnd, 0)
	got, err := ReadInfo(bytes.NewReader(b.Bytes()))
	if err != nil || got[0].Records[TagString].Count != 1 || got[0].Records[TagHeapSegment].Count != 2 {
		t.Error(got, err)
	}
}

// A sub-record that goes past its segment is damage, and says where.
func TestOverrun(t *testing.T) {
	b := newBuilder("1.0.2", 8)
	b.content(TagHeapSegment, false)
	dump := b.Bytes()
	record := dumpRecord(t, dump)
	at := record + recordHeadBytes
	// The first object claims more than its segment has.
	binary.BigEndian.PutUint32(dump[at+1+8+4+8:], 1<<20)
	for _, src := range []io.Reader{bytes.NewReader(dump), onlyReader{bytes.NewReader(dump)}} {
		_, err := ReadInfo(src)
		var damage *Error
		if !errors.As(err, &damage) || damage.Offset != at {
			t.Errorf("%v, want damage at %d", err, at)
		}
	}
}

// endless is a dump of more than 4 GB in one record, whose length is written
// modulo 2³². It is made while it is read.
type endless struct {
	head, tail []byte
	block      []byte // many objects
	blocks, n  int64
	at         int
}

func (e *endless) Read(p []byte) (int, error) {
	var src []byte
	switch {
	case e.n == 0:
		src = e.head
	case e.n <= e.blocks:
		src = e.block
	case e.n == e.blocks+1:
		src = e.tail
	default:
		return 0, io.EOF
	}
	n := copy(p, src[e.at:])
	if e.at += n; e.at == len(src) {
		e.at = 0
		e.n++
	}
	return n, nil
}

func TestWrapped(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 10 GB, with -short")
	}
	objects := newBuilder("", 8)
	objects.Reset()
	for i := range uint64(100) {
		objects.array(0x1000+i, TypeByte, make([]byte, 99_973))
	}
	const blocks = 1000
	dump := func() *endless {
		e := &endless{block: objects.Bytes(), blocks: blocks}
		b := newBuilder("1.0.1", 8)
		b.head(TagHeapDump, int(uint32(int64(len(e.block))*blocks)))
		e.head = b.Bytes()
		b = newBuilder("", 8)
		b.Reset()
		b.head(TagControl, 0)
		e.tail = b.Bytes()
		return e
	}
	infos, err := ReadInfo(dump())
	if err != nil || infos[0].Objects().Count != 100*blocks || infos[0].Records[TagControl].Count != 1 {
		t.Fatal(infos, err)
	}
}
