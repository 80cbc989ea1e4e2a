package hprof

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
)

// random returns n bytes none of which is zero.
func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + rand.IntN(255))
	}
	return b
}

// TestKeep: the values of large primitive arrays become holes, and all other bytes stay.
func TestKeep(t *testing.T) {
	b := newBuilder("1.0.2", 8)
	b.str(1, "Node")
	b.load(1, 0x100, 1)
	b.begin(TagHeapSegment)
	b.class(0x100, 0, 8)
	b.instance(0x200, 0x100, random(8))
	large, small, odd := random(3<<20), random(hollowFrom-8), random(hollowFrom)
	b.array(0x300, TypeLong, large)
	b.array(0x400, TypeByte, small)
	b.objects(0x500, 0x100, 0x200, 0x300)
	b.array(0x600, TypeChar, odd)
	b.end()
	dump := b.Bytes()
	want := bytes.Clone(dump)
	for _, x := range [][]byte{large, odd} {
		at := bytes.Index(want, x)
		clear(want[at : at+len(x)])
	}
	for _, src := range []io.Reader{bytes.NewReader(dump), &pieces{dump}} {
		k, err := Keep(src, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer k.File.Close()
		got := make([]byte, len(want)+1)
		if n, err := k.File.ReadAt(got, 0); err != io.EOF || !bytes.Equal(got[:n], want) {
			t.Errorf("%v, %d bytes of %d are other ones", err, n, len(want))
		}
		if k.Objects != 5 || k.Classes != 1 {
			t.Errorf("%d objects, %d classes", k.Objects, k.Classes)
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(int(k.File.Fd()), &st); err != nil || st.Blocks*512 > 1<<20 {
			t.Errorf("%v, %d bytes of %d take space", err, st.Blocks*512, len(want))
		}
	}
	var damage *Error
	if k, err := Keep(bytes.NewReader(dump[:len(dump)-10]), t.TempDir()); !errors.As(err, &damage) || k.File != nil {
		t.Errorf("truncated: %v", err)
	}
	broken := errors.New("broken")
	if k, err := Keep(io.MultiReader(bytes.NewReader(dump[:len(dump)/2]), failing{broken}), t.TempDir()); !errors.Is(err, broken) || k.File != nil {
		t.Errorf("broken source: %v", err)
	}
	if _, err := Keep(bytes.NewReader(dump), "/nonexistent"); err == nil {
		t.Error("no folder, and no error")
	}
}

// TestSpoolHoles: whatever the pieces that arrive, a spooled file has the same bytes, also if it ends with zeros, and
// the error of its source.
func TestSpoolHoles(t *testing.T) {
	broken := errors.New("broken")
	for range 20 {
		var all []byte
		for range rand.IntN(40) {
			if rand.IntN(2) == 0 {
				all = append(all, make([]byte, rand.IntN(100_000))...)
			} else {
				all = append(all, random(rand.IntN(20_000))...)
			}
		}
		f, damage, err := spool(io.MultiReader(&pieces{all}, failing{broken}), t.TempDir())
		if err != nil || damage != broken {
			t.Fatal(damage, err)
		}
		got, err := io.ReadAll(f)
		if err != nil || !bytes.Equal(got, all) {
			t.Fatalf("%v, %d bytes, want %d", err, len(got), len(all))
		}
		f.Close()
	}
}

// pieces reads a few bytes at a time.
type pieces struct{ left []byte }

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+rand.IntN(70_000))], p.left)
	p.left = p.left[n:]
	return n, nil
}
