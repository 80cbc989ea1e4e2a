package hprof

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// TestHollow: zeros replace the values of large primitive arrays, and nothing else.
func TestHollow(t *testing.T) {
	b := newBuilder("1.0.2", 8)
	b.str(1, "Node")
	b.load(1, 0x100, 1)
	b.begin(TagHeapSegment)
	b.class(0x100, 0, 8)
	b.instance(0x200, 0x100, random(8))
	large, small, odd := random(3<<20), random(HollowFrom-8), random(HollowFrom)
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
	var got bytes.Buffer
	if err := Hollow(&got, bytes.NewReader(dump)); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("%v, %d bytes of %d", err, got.Len(), len(want))
	}
	// A truncated dump: what came before, and where it ends.
	got.Reset()
	var damage *Error
	if err := Hollow(&got, bytes.NewReader(dump[:len(dump)-10])); !errors.As(err, &damage) || !bytes.HasPrefix(want, got.Bytes()[:len(want)-len(odd)-100]) {
		t.Errorf("truncated: %v", err)
	}
	// From a pipe the dump goes into a file in which the zeros need no space.
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err == nil {
			err = errors.Join(Hollow(w, bytes.NewReader(dump)), w.Close())
		}
		wrote <- err
	}()
	f, err := Open(pipe, t.TempDir())
	if err := errors.Join(err, <-wrote); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	back, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(back, want) {
		t.Errorf("%v, %d bytes of %d are other ones", err, len(back), len(want))
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("%v, %d bytes of %d take space", err, st.Blocks*512, len(want))
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
