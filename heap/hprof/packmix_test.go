package hprof

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// mixRun codes strings and columns in turn, in three blocks. It returns the coded blocks and what
// the mixer returned for each.
func mixRun(m *mixer, strings, columns [][]byte, coded [][]byte) (blocks, values [][]byte) {
	cols := make([]column, len(columns))
	for i := range cols {
		cols[i].group = group(i % int(groups))
	}
	for block := range 3 {
		var in []byte
		if coded != nil {
			in = coded[block]
		}
		m.begin(in)
		var got []byte
		take := func(v byte) byte {
			if coded != nil { // a decoder must not use it
				return 0x55
			}
			return v
		}
		for i, s := range strings {
			m.begins()
			for _, c := range s {
				got = append(got, m.textByte(groupText, take(c)))
			}
			for _, c := range columns[i%len(columns)] {
				got = append(got, m.columnByte(&cols[i%len(cols)], take(c)))
			}
		}
		values = append(values, got)
		if coded == nil {
			blocks = append(blocks, bytes.Clone(m.end()))
		}
	}
	return blocks, values
}

// The packer's mixer and the unpacker's must have the same numbers, block after block.
func TestMixer(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a dump")
	text := [][]byte{nil, {0}, names(), noise(), bytes.Repeat([]byte{255}, 3000), names(), []byte("€ and ÿ")}
	columns := [][]byte{noise(), bytes.Repeat([]byte{1, 0, 0, 7}, 500), nil, {9}}
	blocks, in := mixRun(newMixer(false), text, columns, nil)
	_, out := mixRun(newMixer(true), text, columns, blocks)
	for i := range in {
		if !bytes.Equal(in[i], out[i]) {
			t.Fatalf("block %d: %d bytes come back otherwise", i, len(in[i]))
		}
	}
}

// What it is there for: names in two thirds of what zstd takes, and at most 6 % more than the bytes
// themselves for noise.
func TestMixerSize(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a dump")
	z, err := newZipper()
	if err != nil {
		t.Fatal(err)
	}
	defer z.enc.Close()
	size := func(b []byte, code func(m *mixer, c byte)) int {
		m := newMixer(false)
		m.begin(nil)
		for _, c := range b {
			code(m, c)
		}
		return len(m.end())
	}
	text := func(m *mixer, c byte) { m.textByte(groupText, c) }
	zipped, err := z.frame(names(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := size(names(), text); n > len(zipped)*67/100 {
		t.Errorf("%d bytes of names take %d, and %d as a frame of zstd", len(names()), n, len(zipped))
	}
	k := column{group: groupValues}
	column := func(m *mixer, c byte) { m.columnByte(&k, c) }
	for what, code := range map[string]func(*mixer, byte){"text": text, "a column": column} {
		if n := size(noise(), code); n > len(noise())*106/100 {
			t.Errorf("%d bytes of noise in %s take %d", len(noise()), what, n)
		}
	}
}

// Strings that a zero cannot end, and lengths around the limits of strings and arrays that are mixed.
func TestPackStrings(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a dump")
	b := newBuilder("1.0.2", 8)
	for i, s := range []string{"", "\x00", "a\x00b", "x", strings.Repeat("ab", maxPiece/2), strings.Repeat("c", maxPiece-1), strings.Repeat("d", maxPiece+1), "last"} {
		b.str(uint64(8*i+1000), s)
	}
	for i, n := range []int{0, 1, mixedArray / 2, mixedArray/2 + 1, mixedArray, mixedArray + 1} {
		for _, typ := range []Type{TypeByte, TypeChar, TypeBoolean, TypeLong} {
			b.begin(TagHeapSegment)
			b.u1(SubPrimitiveArray)
			b.id(uint64(0x10000 + 0x1000*i + 16*int(typ)))
			b.u4(0)
			b.u4(uint32(n))
			b.u1(uint8(typ))
			for j := range n * typ.Size(8) {
				b.u1(uint8(j * j >> 3))
			}
		}
	}
	b.end()
	packed(t, b.Bytes())
}

// A block is not mixed after mixedBytes, and a file that has one is refused.
func TestPackMixedLimit(t *testing.T) {
	testprog.Whole(t, "TestPack has small dumps")
	testprog.Unraced(t, "one goroutine reads a dump")
	b := newBuilder("1.0.2", 4)
	line := 0
	for size := 0; size < mixedBytes+mixedBytes/2; size += 48 {
		line++
		b.str(uint64(line), fmt.Sprintf("com/example/shop/Package%04d/Class%08x", line%97, line*2654435761))
	}
	b.end()
	var out bytes.Buffer
	if err := Pack(&out, bytes.NewReader(b.Bytes())); err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	if err := Unpack(&back, bytes.NewReader(out.Bytes())); err != nil || !bytes.Equal(back.Bytes(), b.Bytes()) {
		t.Fatal("another dump came back", err)
	}
	u := &unpacker{mixer: newMixer(true), model: newModel(false)}
	u.mixer.count = mixedBytes
	u.in = bufio.NewReader(strings.NewReader("\x01\x00"))
	if err := u.mixed(); err == nil || !strings.Contains(err.Error(), "mixed") {
		t.Errorf("a mixed block after %d mixed bytes: %v", u.mixer.count, err)
	}
	u.mixer.count = mixedBytes - 1
	u.in = bufio.NewReader(strings.NewReader("\x01\x00"))
	if err := u.mixed(); err != nil {
		t.Error(err)
	}
	u.in = bufio.NewReader(strings.NewReader("\x05\x00"))
	if err := u.mixed(); err != io.ErrUnexpectedEOF {
		t.Errorf("a mixed block that is cut short: %v", err)
	}
}
