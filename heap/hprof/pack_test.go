package hprof

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

func packed(t testing.TB, dump []byte) []byte {
	t.Helper()
	var b, back bytes.Buffer
	if err := Pack(&b, onlyReader{bytes.NewReader(dump)}); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(&back, onlyReader{bytes.NewReader(b.Bytes())}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.Bytes(), dump) {
		t.Fatal(difference(back.Bytes(), dump))
	}
	// Columns are opened in the same order on both sides, wherever a block begins.
	most := 1 << 20
	if os.Getenv("SLIVER_LONG") != "" {
		most = 20 << 20
	}
	for _, block := range []int64{1, 3000} {
		var small, again bytes.Buffer
		if block == 1 && len(dump) > 1<<16 {
			continue
		}
		if len(dump) > most {
			continue
		}
		if err := pack(&small, bytes.NewReader(dump), block); err != nil {
			t.Fatal(err)
		}
		if err := Unpack(&again, bytes.NewReader(small.Bytes())); err != nil || !bytes.Equal(again.Bytes(), dump) {
			t.Fatalf("in blocks of %d: %v", block, err)
		}
	}
	return b.Bytes()
}

// A damaged dump comes back as it was. A source that fails does not pass for one.
func TestPackDamaged(t *testing.T) {
	testprog.Whole(t, "TestPack has sound dumps")
	testprog.Unraced(t, "one goroutine reads a dump")
	dump := sampleOf(t, 30_000)
	for n := 40; n < len(dump); n += 1 + n/9 {
		packed(t, dump[:n])
	}
	packed(t, append(bytes.Clone(dump), "and what is not a dump"...))
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(dump); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	src, how, err := Decompress(bytes.NewReader(z.Bytes()[:z.Len()-9]))
	if err != nil || how != Gzip {
		t.Fatal(how, err)
	}
	if err := Pack(io.Discard, src); err == nil {
		t.Error("a gzip that is cut short is packed without an error")
	}
}

func gzipped(t testing.TB, dump []byte) int64 {
	t.Helper()
	var n counting
	z, err := gzip.NewWriterLevel(&n, 6)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(dump); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

type counting int64

func (c *counting) Write(b []byte) (int, error) { *c += counting(len(b)); return len(b), nil }

// The short form takes dumps of at most 2 MB: packing and unpacking takes a second for each MB.
func TestPack(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		if os.Getenv("SLIVER_LONG") == "" && len(dump) > 2<<20 {
			t.Skip("a dump of more than 2 MB: SLIVER_LONG is not set")
		}
		if len(dump) > 256<<10 {
			testprog.Whole(t, "smaller dumps")
		}
		cut := strip(t, dump, StripOptions{Rule: Koom})
		p, k := packed(t, dump), packed(t, cut)
		z, zk := gzipped(t, dump), gzipped(t, cut)
		t.Logf("%d bytes, gzip %d, packed %d: %.3f; KOOM's content %d bytes, gzip %d, packed %d: %.3f, %.3f of the whole's gzip",
			len(dump), z, len(p), float64(len(p))/float64(z), len(cut), zk, len(k), float64(len(k))/float64(zk), float64(len(k))/float64(z))
		const whole, content = 0.55, 0.30
		if float64(len(p)) > whole*float64(z) {
			t.Errorf("packed to more than %v of its gzip", whole)
		}
		// What KOOM leaves of a small dump of a JVM is mostly names, which are as many in a large one.
		if z > 1<<20 && float64(len(k)) > content*float64(z) {
			t.Errorf("what KOOM leaves is packed to more than %v of the whole's gzip", content)
		}
	})
}
