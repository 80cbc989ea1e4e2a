package hprof

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// The packer's mixer and the unpacker's must have the same numbers, part after part.
func TestMixer(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	var names []byte
	words := []string{"View", "Group", "Layout", "Manager", "On", "Click", "Listener", "Handler", "Text", "Key", "Event", "Service", "Impl", "Map", "Entry"}
	for range 4000 {
		names = append(names, "android/m"...)
		for range 1 + rnd.IntN(4) {
			names = append(names, words[rnd.IntN(len(words))]...)
		}
		if rnd.IntN(5) == 0 {
			names = fmt.Appendf(names, "$%d", rnd.IntN(20))
		}
	}
	parts := [][]byte{nil, {0}, names, noise, bytes.Repeat([]byte{255}, 3000), names, []byte("€ and ÿ")}
	in, out := newMixer(), newMixer()
	for i, part := range parts {
		coded := in.mix(nil, part)
		if got := out.unmix(coded, len(part)); !bytes.Equal(got, part) {
			t.Fatalf("part %d: %d bytes come back otherwise", i, len(part))
		}
		t.Logf("part %d: %d bytes, %d coded", i, len(part), len(coded))
	}
	// What it is there for: better than zstd for names, and 5 % more than the bytes themselves for noise.
	z, err := newZipper()
	if err != nil {
		t.Fatal(err)
	}
	defer z.enc.Close()
	zipped, err := z.frame(names, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(newMixer().mix(nil, names)); n > len(zipped)*85/100 {
		t.Errorf("%d bytes of names take %d, and %d as a frame of zstd", len(names), n, len(zipped))
	}
	if n := len(newMixer().mix(nil, noise)); n > len(noise)*106/100 {
		t.Errorf("%d bytes of noise take %d", len(noise), n)
	}
}

// What the first version packed can be unpacked; a later one is refused.
func TestPackedVersions(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "sample-v1.spack"))
	if err != nil {
		t.Fatal(err)
	}
	var dump bytes.Buffer
	if err := Unpack(&dump, bytes.NewReader(b)); err != nil { // the file has the sum of the dump
		t.Fatal(err)
	}
	if !bytes.HasPrefix(dump.Bytes(), []byte("JAVA PROFILE 1.0.")) {
		t.Errorf("unpacked: %q", dump.Bytes()[:min(dump.Len(), 20)])
	}
	b[len(packMagic)] = packVersion + 1
	if err := Unpack(io.Discard, bytes.NewReader(b)); err == nil {
		t.Error("a later version is read")
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
