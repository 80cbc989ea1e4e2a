package python

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// slab is memory that repeats the same bytes at every address, so that any pointer is valid. It
// counts reads.
type slab struct {
	b     []byte
	bytes int
}

func (s *slab) ReadAt(p []byte, at int64) (int, error) {
	if len(s.b) == 0 || at%7 == 6 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = s.b[(int(at&0xffffff)+i)%len(s.b)]
	}
	s.bytes += len(p)
	return len(p), nil
}

// images returns one image per version, with type objects at addresses that a slab's words may
// contain.
func images() []*Image {
	var all []*Image
	for minor := 8; minor <= newest; minor++ {
		all = append(all, &Image{Minor: minor, Version: "3.x", runtime: 0x1000, eval: 0x2000, types: types{0x100, 0x100, 0x100, 0x100}})
	}
	return all
}

// FuzzMemory reads damaged interpreters. It must not panic, loop, or read more than 256 KiB for one
// thread.
func FuzzMemory(f *testing.F) {
	words := func(v ...uint64) []byte {
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return b
	}
	f.Add(words(0))
	f.Add(words(0x100))
	f.Add(words(0x100, 0x100, 8, 16, 0x100))
	f.Add(bytes.Repeat([]byte{0x60}, 64))
	f.Add(append([]byte(selfCookie), words(0x030d00f0, 0, 64, 8, 16, 24, 32, 40, 48, 56, 64, 8, 16, 24)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, img := range images() {
			mem := &slab{b: b}
			r := &Runtime{img: img, types: img.types, l: layouts[min(img.Minor, 12)]}
			if l, err := described(b); err == nil {
				r.l = *l
			}
			if states, err := r.Threads(mem); err == nil && len(states) > maxThreads {
				t.Fatalf("%d threads", len(states))
			}
			mem.bytes = 0
			var st Stack
			th := r.Thread(State{Addr: 64})
			th.state.Interp, _ = word(mem, 64+r.l.tsInterp)
			th.state.Ident, _ = word(mem, 64+r.l.tsThread)
			if r.l.tsNative != none {
				n, _ := word(mem, 64+r.l.tsNative)
				th.state.Native = int32(n)
			}
			th.Capture(mem, &st)
			if len(st.Frames) > MaxDepth || mem.bytes > 256<<10 {
				t.Fatalf("%d frames, %d bytes", len(st.Frames), mem.bytes)
			}
			c := []stack.Frame{{Func: 0x2000, CFA: 0x800}, {Func: 0x2000, CFA: 0x4000}, {Func: 1}, {PC: 3, Kind: stack.KindError}}
			for n := range len(c) + 1 {
				out := r.Merge(nil, c[:n], 0x10, &st, n&1 != 0)
				python := 0
				for i := range out {
					if out[i].Kind == stack.KindPython {
						python++
					}
				}
				if python != len(st.Frames) {
					t.Fatalf("%d of %d frames are in the merged stack", python, len(st.Frames))
				}
			}
			if code, err := r.Code(mem, 64); err == nil {
				for off := uint64(0); off < 64; off++ {
					code.Line(off)
				}
			}
			_, _ = r.ThreadNames(mem, 128)
			_, _ = r.GIL(mem, 8)
		}
	})
}

// FuzzLines decodes line tables of all forms.
func FuzzLines(f *testing.F) {
	f.Add([]byte{0x80, 0, 0xe8, 1, 0xf0, 2, 3, 4, 5, 0xf8}, 3, 5)
	f.Add([]byte{4, 1, 6, 0x80, 2, 0xff}, 7, 5)
	f.Fuzz(func(t *testing.T, b []byte, first, off int) {
		for form := range formLocation + 1 {
			(&Code{First: first, form: form, lines: b}).Line(uint64(off))
		}
	})
}

// FuzzLoad loads damaged files.
func FuzzLoad(f *testing.F) {
	exe, err := os.Open("/proc/self/exe")
	if err == nil {
		b := make([]byte, 4096)
		n, _ := io.ReadFull(exe, b)
		exe.Close()
		f.Add(b[:n])
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if img, err := Load(bytes.NewReader(b)); (img == nil) == (err == nil) {
			t.Fatal(img, err)
		}
	})
}

// TestLines decodes handmade tables, one of each form.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		code Code
		want []int // at every second byte
	}{
		{Code{First: 10, form: formLnotab, lines: []byte{4, 1, 2, 0xfe}}, []int{10, 10, 11, 9, 9}},
		{Code{First: 10, form: formTable, lines: []byte{2, 0, 4, 2, 2, 0x80, 2, 0xff}}, []int{10, 12, 12, 0, 11, 0}},
		// One instruction on the line, two 2 lines on, one without, one a long way back.
		{Code{First: 10, form: formLocation, lines: []byte{0x80, 0, 0x80 | 12<<3 | 1, 0, 0, 0x80 | 15<<3, 0x80 | 13<<3, 7}}, []int{10, 12, 12, 0, 9, 0}},
	} {
		for i, want := range c.want {
			if got := c.code.Line(uint64(2 * i)); got != want {
				t.Errorf("form %d, byte %d: line %d, not %d", c.code.form, 2*i, got, want)
			}
		}
	}
}

// TestRefused: files that are not CPython, and unknown versions, are refused.
func TestRefused(t *testing.T) {
	b := make([]byte, selfSize)
	if _, err := described(b); err == nil {
		t.Error("a table of nothing is taken")
	}
	copy(b, selfCookie)
	binary.LittleEndian.PutUint64(b[selfVersion:], 0x030f00f0)
	if _, err := described(b); err == nil || err.Error() != (&VersionError{"3.15"}).Error() {
		t.Errorf("3.15: %v", err)
	}
	for _, version := range []uint64{0x030d00f0, 0x030e08f0} {
		binary.LittleEndian.PutUint64(b[selfVersion:], version)
		binary.LittleEndian.PutUint64(b[selfThreaded:], 0)
		if _, err := described(b); err == nil {
			t.Errorf("%#x: a table of zeros is taken", version)
		}
		binary.LittleEndian.PutUint64(b[selfThreaded:], 1)
		if _, err := described(b); err == nil || !strings.Contains(err.Error(), "without the global lock") {
			t.Errorf("%#x without the lock: %v", version, err)
		}
	}
}
