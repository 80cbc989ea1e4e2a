package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// jitdump writes a jitdump as a program would.
type jitdump struct{ bytes.Buffer }

func newJITDump(flags uint64) *jitdump {
	j := &jitdump{}
	for _, v := range []any{uint32(jitMagic), uint32(1), uint32(jitHeader), uint32(62), uint32(0), uint32(7), uint64(1), flags} {
		binary.Write(j, binary.LittleEndian, v)
	}
	return j
}

func (j *jitdump) record(id uint32, at uint64, parts ...any) {
	var b bytes.Buffer
	for _, p := range parts {
		if s, ok := p.(string); ok {
			b.WriteString(s)
			b.WriteByte(0)
			continue
		}
		binary.Write(&b, binary.LittleEndian, p)
	}
	for _, v := range []any{id, uint32(jitRecordHead + b.Len()), at} {
		binary.Write(j, binary.LittleEndian, v)
	}
	j.Write(b.Bytes())
}

func (j *jitdump) load(at, addr, size uint64, name string) {
	j.record(jitLoad, at, uint32(7), uint32(7), addr, addr, size, uint64(1), name, make([]byte, size))
}

func sampleJITDump() *jitdump {
	j := newJITDump(0)
	j.record(jitDebug, 90, uint64(0x1000), uint64(3), uint64(0x1000), uint32(3), uint32(0), "a.js", uint64(0x1010), uint32(5), uint32(0), "\xff",
		uint64(0x1020), uint32(9), uint32(0), "b.js")
	j.load(100, 0x1000, 0x40, "first")
	j.load(150, 0x2000, 0x40, "other")
	j.record(4, 160, uint64(1), uint64(2), uint64(3)) // unwinding
	j.load(200, 0x1000, 0x20, "second")
	j.record(jitMove, 300, uint32(7), uint32(7), uint64(0x2000), uint64(0x2000), uint64(0x1020), uint64(0x40), uint64(1))
	j.record(jitClose, 400)
	return j
}

func TestJITDump(t *testing.T) {
	whole := sampleJITDump().Bytes()
	stripped, err := StripJITDump(bytes.NewReader(whole), 1<<20)
	if err != nil || len(stripped) >= len(whole)-0x80 {
		t.Fatalf("%d bytes of %d, %v", len(stripped), len(whole), err)
	}
	for what, b := range map[string][]byte{"whole": whole, "stripped": stripped} {
		d, err := ParseJITDump(bytes.NewReader(b))
		if err != nil || len(d.code) != 4 {
			t.Fatalf("%s: %d, %v", what, len(d.code), err)
		}
		for _, c := range []struct {
			addr  uint64
			until int64
			want  string
		}{
			{0x1000, 200, "first a.js:3"}, {0x1011, 150, "first a.js:5"}, {0x1030, 150, "first b.js:9"}, {0x1000, 201, "second :0"},
			{0x1000, math.MaxInt64, "second :0"}, {0x1000, 50, "first a.js:3"}, {0x1030, 250, "first b.js:9"}, {0x1030, 301, "other :0"},
			{0x2010, 1000, "other :0"}, {0x3000, 1000, " :0"}, {0xfff, 1000, " :0"}, {0x2040, 1000, " :0"},
		} {
			f, _ := d.Lookup(c.addr, c.until)
			if got := fmt.Sprintf("%s %s:%d", f.Func, f.File, f.Line); got != c.want {
				t.Errorf("%s: %#x until %d: %s, want %s", what, c.addr, c.until, got, c.want)
			}
		}
		// The code moved at 300 replaced nothing, because "first" had already been replaced.
		if got := d.Reused(10); !slices.Equal(got, []int64{200}) {
			t.Errorf("%s: reused at %v", what, got)
		}
	}
	// If the file is truncated anywhere, the records before that are read.
	for n := range whole {
		d, err := ParseJITDump(bytes.NewReader(whole[:n]))
		if n < jitHeader != errors.Is(err, ErrNoJITDump) || n >= jitHeader && err != nil || len(d.code) > 4 {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if _, err := StripJITDump(bytes.NewReader(whole), 100); err == nil {
		t.Error("the bound is not held")
	}
}

func FuzzJITDump(f *testing.F) {
	f.Add(sampleJITDump().Bytes())
	f.Add(sampleJITDump().Bytes()[:200])
	f.Add(newJITDump(1).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseJITDump(bytes.NewReader(b))
		for _, a := range []uint64{0, 0x1000, 0x1020, math.MaxUint64} {
			d.Lookup(a, 200)
		}
		d.Reused(8)
		s, serr := StripJITDump(bytes.NewReader(b), 1<<20)
		if err != nil || serr != nil {
			return
		}
		e, err := ParseJITDump(bytes.NewReader(s))
		if err != nil || len(e.code) != len(d.code) {
			t.Fatalf("%d pieces, stripped %d: %v", len(d.code), len(e.code), err)
		}
	})
}
