package hprof

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// names are 4,000 names of classes.
func names() (b []byte) {
	rnd := rand.New(rand.NewPCG(1, 2))
	words := []string{"View", "Group", "Layout", "Manager", "On", "Click", "Listener", "Handler", "Text", "Key", "Event", "Service", "Impl", "Map", "Entry"}
	for range 4000 {
		b = append(b, "android/m"...)
		for range 1 + rnd.IntN(4) {
			b = append(b, words[rnd.IntN(len(words))]...)
		}
		if rnd.IntN(5) == 0 {
			b = fmt.Appendf(b, "$%d", rnd.IntN(20))
		}
	}
	return b
}

func noise() []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// Text of version 2: the mixer that reads it has the numbers of the one that wrote it, part after part.
func TestTextMixer(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a dump")
	in, out := newTextMixer(), newTextMixer()
	for i, part := range [][]byte{nil, {0}, names(), noise(), bytes.Repeat([]byte{255}, 3000), names(), []byte("€ and ÿ")} {
		if got := out.unmix(in.mix(nil, part), len(part)); !bytes.Equal(got, part) {
			t.Fatalf("part %d: %d bytes come back otherwise", i, len(part))
		}
	}
}

// What earlier versions packed can be unpacked; a later one is refused, and so are blocks that a version did
// not have.
func TestPackedVersions(t *testing.T) {
	for v := byte(1); v < packVersion; v++ {
		b, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("sample-v%d.spack", v)))
		if err != nil {
			t.Fatal(err)
		}
		if b[len(packMagic)] != v {
			t.Errorf("the sample of version %d has version %d", v, b[len(packMagic)])
		}
		var dump bytes.Buffer
		if err := Unpack(&dump, bytes.NewReader(b)); err != nil { // the file has the sum of the dump
			t.Fatal(v, err)
		}
		if !bytes.HasPrefix(dump.Bytes(), []byte("JAVA PROFILE 1.0.")) {
			t.Errorf("version %d, unpacked: %q", v, dump.Bytes()[:min(dump.Len(), 20)])
		}
	}
	var now bytes.Buffer
	if err := Pack(&now, bytes.NewReader(sample(t))); err != nil {
		t.Fatal(err)
	}
	for _, v := range []byte{0, packVersion - 1, packVersion + 1} {
		b := bytes.Clone(now.Bytes())
		b[len(packMagic)] = v
		if err := Unpack(io.Discard, bytes.NewReader(b)); err == nil {
			t.Errorf("a file of version %d is read as version %d", packVersion, v)
		}
	}
}

func TestIsName(t *testing.T) {
	for name, want := range map[string]bool{"a.hprof": true, "a.hprof.gz": true, "a.hprof.zst": true, "a.hprof.spack": true, "a.spack": true,
		"a.sliver": false, "a.gz": false, "a.pftrace": false, "hprof": false} {
		if IsName(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// mix appends b, coded, to out, as version 2 did.
func (m *textMixer) mix(out, b []byte) []byte {
	lo, hi := uint32(0), uint32(math.MaxUint32)
	for _, c := range b {
		for i := 7; i >= 0; i-- {
			bit := int(c>>i) & 1
			mid := lo + (hi-lo)>>12*uint32(m.predict())
			if bit == 1 {
				hi = mid
			} else {
				lo = mid + 1
			}
			m.learn(bit)
			for (lo^hi)>>24 == 0 {
				out = append(out, byte(hi>>24))
				lo, hi = lo<<8, hi<<8|255
			}
		}
	}
	return append(out, byte(hi>>24), byte(hi>>16), byte(hi>>8), byte(hi))
}
