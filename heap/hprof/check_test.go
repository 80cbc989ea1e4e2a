package hprof

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

func TestCheckCorpus(t *testing.T) {
	most := math.MaxInt
	if testing.Short() {
		most = 2 << 20
	}
	dumpsUpTo(t, most, func(t *testing.T, dump []byte) {
		infos, findings, err := Check(onlyReader{bytes.NewReader(dump)}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			t.Logf("%s ids %d: %+v", i.Version, i.IDSize, i.Objects())
		}
		for _, f := range findings {
			// JDK 6's and 7's agent writes threads that have ended.
			if f.What != "a root 0x08 of no object" || f.Count != 2 || !strings.Contains(t.Name(), "agent") {
				t.Errorf("%d: %s (%d)", f.Offset, f.What, f.Count)
			}
		}
	})
}

func TestCheckFinds(t *testing.T) {
	for _, c := range []struct {
		want string
		make func(b *builder)
	}{
		{"instances of 3 bytes whose class's fields have 8", func(b *builder) { b.instance(0x9000, 0x1100, []byte{1, 2, 3}) }},
		{"instances that differ in size", func(b *builder) {
			b.instance(0x9000, 0x1100, b.refs(0))
			b.instance(0x9010, 0x1100, b.refs(0, 0))
		}},
		{"a class that objects have", func(b *builder) { b.instance(0x9000, 0x7700, nil) }},
		{"a class that objects have", func(b *builder) { b.objects(0x9000, 0x7700) }},
		{"a class that was defined before", func(b *builder) { b.class(0x1000, 0, 0) }},
		{"names that the dump does not have", func(b *builder) { b.class(0x7700, 0x1000, 8, Field{0x666, TypeLong}) }},
		{"a class among its own superclasses", func(b *builder) {
			b.class(0x7700, 0x7700, 8)
			b.instance(0x9000, 0x7700, nil)
		}},
		{"a root 0x07 of no object", func(b *builder) { b.u1(SubRootMonitor); b.id(0) }},
		{"an unknown record 0x77", func(b *builder) { b.end(); b.head(0x77, 3); b.WriteString("abc") }},
		{"no end of the heap dump", func(b *builder) { b.begin(TagHeapSegment) }},
	} {
		b := newBuilder("1.0.2", 8)
		b.str(0x10, "a")
		b.str(nameObject, "java/lang/Object")
		b.str(nameString, "java/lang/String")
		b.str(nameValue, "value")
		b.load(1, 0x1000, nameObject)
		b.load(2, 0x1100, nameString)
		b.begin(TagHeapDump)
		b.class(0x1000, 0, 0)
		b.class(0x1100, 0x1000, 8, Field{nameValue, TypeObject})
		before, open := bytes.Clone(b.Bytes()), b.segment
		b.end()
		if infos, findings, err := Check(bytes.NewReader(b.Bytes()), t.TempDir()); err != nil || len(findings) != 0 || len(infos) != 1 {
			t.Fatal(findings, err)
		}
		b.Reset()
		b.Write(before)
		b.segment = open
		c.make(b)
		b.end()
		_, findings, err := Check(bytes.NewReader(b.Bytes()), t.TempDir())
		if err != nil || !slices.ContainsFunc(findings, func(f Finding) bool { return strings.HasPrefix(f.What, c.want) }) {
			t.Errorf("%s: found %+v, %v", c.want, findings, err)
		}
	}
}

// Every prefix of a dump gives what came before and one error, which says where.
func TestTruncated(t *testing.T) {
	testprog.Whole(t, "TestSalvage cuts a dump at some places")
	testprog.Unraced(t, "one goroutine reads a dump")
	dump := sampleOf(t, 30_000) // its bitmaps are larger than buffers, and are read some ten thousand times
	whole, err := ReadInfo(bytes.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	clean := map[int]bool{}
	r, err := NewReader(bytes.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	for { // it may end between records, unseen
		it, err := r.Next()
		if err == io.EOF {
			break
		}
		if it.Kind != KindSub {
			clean[int(it.Offset)] = true
		}
	}
	clean[len(dump)] = true
	step := 1
	for n := 40; n <= len(dump); n += step {
		if step = 1; n > 2000 && n < len(dump)/2-2000 || n > len(dump)/2+2000 && n < len(dump)-2000 {
			step = 997 // inside the large arrays
		}
		for _, src := range []io.Reader{bytes.NewReader(dump[:n]), onlyReader{bytes.NewReader(dump[:n])}} {
			infos, err := ReadInfo(src)
			var damage *Error
			switch {
			case err == nil && !clean[n]:
				t.Fatalf("%d bytes: no error", n)
			case err != nil && (!errors.As(err, &damage) || !errors.Is(err, io.ErrUnexpectedEOF) || damage.Offset > int64(n)):
				t.Fatalf("%d bytes: %v", n, err)
			case n == len(dump) && (len(infos) != len(whole) || err != nil):
				t.Fatalf("whole: %v, %d dumps", err, len(infos))
			}
		}
	}
}

// The part before the damage is read as a whole dump.
func TestSalvage(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a dump")
	whole := sample(t)
	cut := strip(t, whole, StripOptions{Rule: Koom})
	for _, dump := range [][]byte{whole, cut} {
		for n := 60; n < len(dump); n += 1 + n/40 {
			s, err := Salvage(bytes.NewReader(dump[:n]), int64(n))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(s)
			if err != nil || int64(len(got)) != s.Size() {
				t.Fatalf("%d bytes: %v", n, err)
			}
			at := make([]byte, len(got))
			for i := 0; i < len(at); i += 3 { // in pieces across the changed head
				if k, err := s.ReadAt(at[i:min(i+3, len(at))], int64(i)); k != min(3, len(at)-i) {
					t.Fatal(k, err)
				}
			}
			if !bytes.Equal(at, got) {
				t.Fatal("ReadAt is not Read")
			}
			before, err := ReadInfo(bytes.NewReader(dump[:n]))
			if (err != nil) != (s.Damage != nil) {
				t.Fatalf("%d bytes: %v, damage %v", n, err, s.Damage)
			}
			after, err := ReadInfo(bytes.NewReader(got))
			if err != nil {
				t.Fatalf("%d bytes: the rest is damaged: %v", n, err)
			}
			if len(before) != len(after) || s.Damage != nil && before[len(before)-1].Objects().Count < after[len(after)-1].Objects().Count {
				t.Fatalf("%d bytes: %d dumps, %d after", n, len(before), len(after))
			}
		}
	}
}
