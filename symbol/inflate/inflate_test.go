package inflate

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// pack compresses b by package compress/zlib.
func pack(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// contents are inputs of all kinds: without redundancy, runs, words, and symbols of very different frequency, whose codes
// are long.
func contents() map[string][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	noise, skewed, words := make([]byte, 100_000), make([]byte, 300_000), []byte{}
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	for i := range skewed {
		skewed[i] = byte(rnd.ExpFloat64() * 7)
	}
	for len(words) < 500_000 {
		words = append(words, noise[rnd.IntN(300):][:1+rnd.IntN(260)]...)
	}
	return map[string][]byte{"nothing": {}, "one": {7}, "noise": noise, "skewed": skewed, "words": words, "run": make([]byte, 70_000),
		"pairs": bytes.Repeat([]byte("ab"), 5000), "seven": bytes.Repeat([]byte("abcdefg"), 999), "eight": bytes.Repeat([]byte("abcdefgh"), 999), "text": bytes.Repeat([]byte("DW_AT_name of a symbol\x00"), 3)}
}

func TestZlib(t *testing.T) {
	for name, b := range contents() {
		for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression, zlib.HuffmanOnly} {
			packed := pack(t, b, level)
			got, err := Zlib(slices.Clone(packed), len(b))
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("%s, level %d: %d of %d bytes, %v", name, level, len(got), len(b), err)
			}
			for _, size := range []int{len(b) - 1, len(b) + 1, -1} {
				if _, err := Zlib(slices.Clone(packed), size); !errors.Is(err, ErrStream) {
					t.Errorf("%s, level %d, as of %d bytes: %v", name, level, size, err)
				}
			}
		}
	}
}

// TestZlibCut: the beginning of a stream gives an error, also where only the checksum is missing.
func TestZlibCut(t *testing.T) {
	b := contents()["words"][:3000]
	for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.HuffmanOnly} {
		packed := pack(t, b, level)
		for n := range packed {
			if _, err := Zlib(slices.Clone(packed[:n]), len(b)); !errors.Is(err, ErrStream) {
				t.Fatalf("level %d: %d of %d bytes are accepted: %v", level, n, len(packed), err)
			}
		}
	}
}

// agrees compares the result with that of package compress/zlib, if there is one.
func agrees(t *testing.T, packed []byte, size int) {
	t.Helper()
	got, err := Zlib(slices.Clone(packed), size)
	if err != nil {
		return
	}
	r, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatalf("%d bytes of a stream that compress/zlib refuses: %v", len(got), err)
	}
	want, err := io.ReadAll(r)
	if err != nil && !errors.Is(err, zlib.ErrChecksum) {
		t.Fatalf("%d bytes of a stream that compress/zlib refuses: %v", len(got), err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, not those of compress/zlib", len(got))
	}
}

// TestZlibDamaged: with any byte changed, a stream is refused or gives what compress/zlib gives.
func TestZlibDamaged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{"skewed", "words", "seven"} {
		b := contents()[name][:2000]
		packed := pack(t, b, zlib.BestCompression)
		for i := range packed {
			for range 8 {
				x := slices.Clone(packed)
				x[i] ^= byte(1 + rnd.IntN(255))
				agrees(t, x, len(b))
			}
		}
	}
}

func FuzzZlib(f *testing.F) {
	for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.BestCompression, zlib.HuffmanOnly} {
		f.Add(pack(f, contents()["words"][:300], level), 300)
	}
	f.Add(pack(f, []byte("x"), zlib.BestCompression), 1)
	f.Fuzz(func(t *testing.T, packed []byte, size int) {
		if size <= 1<<20 {
			agrees(t, packed, size)
		}
	})
}

func BenchmarkZlib(b *testing.B) {
	want := contents()["skewed"]
	packed := pack(b, want, zlib.DefaultCompression)
	buf := make([]byte, 0, len(packed)+Padding)
	b.SetBytes(int64(len(want)))
	for b.Loop() {
		if _, err := Zlib(append(buf, packed...), len(want)); err != nil {
			b.Fatal(err)
		}
	}
}
