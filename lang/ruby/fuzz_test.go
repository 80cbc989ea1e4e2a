package ruby

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
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

func words(v ...uint64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// FuzzMemory reads damaged interpreters. It must not panic, loop, or read more of one thread than the
// budget of a walk.
func FuzzMemory(f *testing.F) {
	f.Add(words(0))
	f.Add(words(0x1000))
	f.Add(words(0x1000, 0x1000, 0x1008, 0x1000, 0x1010))
	f.Add(words(0x1000, 0x800, 0x1400, 0x1000, 0x2000, 0x1000, 0x1000, 0x61a, 0x701a, 0x1000))
	f.Add(words(0x701a, 0x1000, 0x1000, 0x2005, 0x4, 0x1000, 0x55550023, 0x1000, 0x11110021, 0x1000, 0x1000))
	f.Add(bytes.Repeat([]byte{0x10}, 64))
	f.Add(words(0x100c, 0x1018, 0x1010, 1, 0x74756d, 0x78657475, 0x1018)) // objects with data
	f.Fuzz(func(t *testing.T, b []byte) {
		for minor := oldest; minor <= newest; minor++ {
			for i := range layouts[minor] {
				fuzzRuntime(t, b, minor, &layouts[minor][i])
			}
		}
	})
}

func fuzzRuntime(t *testing.T, b []byte, minor int, l *layout) {
	mem := &slab{b: b}
	img := &Image{Minor: minor, Version: "3.x", data: []span{{0x1000, 0x1400}}}
	_, _ = New(img, 0, mem) // any answer will do
	vm, _ := word(mem, 0x1000+threadVM)
	r := &Runtime{img: img, l: l, vm: vm, symbols: 0x1000}
	if states, err := r.Threads(mem); err == nil && len(states) > maxThreads {
		t.Fatalf("%d threads", len(states))
	}
	s := State{Addr: 0x1000}
	s.Ractor, _ = word(mem, 0x1000+threadRactor)
	if l.threadNT != none {
		s.native, _ = word(mem, 0x1000+l.threadNT)
	}
	_ = r.Waits(mem, s, 0x1000)
	if lock, err := r.LockOf(mem, 0x1000); err == nil {
		_ = r.Holder(mem, 0x1000, lock)
	}
	if w, ok := r.Wanted(mem, s); ok && (int(w.Sort) >= len(kinds) || w.Sort != Sleeping && !pointer(w.Addr)) {
		t.Fatalf("a wait of %+v", w)
	}
	mem.bytes = 0
	var credit meter.Credit
	var m meter.Meter
	m.Begin(mem, &credit)
	defer m.End()
	follow := r.Follow(mem, nil)
	follow.states = map[int32]State{7: s}
	var tr Track
	mem.bytes = 0
	for range 3 {
		var spans []stack.Span
		for _, x := range follow.Plan(&tr, 7, true, spans) {
			if x.Len < 0 || x.Len > MaxDepth*64+roomFrames*64+maxValues {
				t.Fatalf("a span of %d bytes", x.Len)
			}
		}
		follow.Read(&tr, missing{}, &m, 0x5000+uint64(len(tr.Stack.Frames)), tr.Asks())
	}
	if len(tr.Stack.Frames) > MaxDepth || m.Bytes > meter.Budget+meter.MaxLooks+maxText {
		t.Fatalf("%d frames, %d bytes", len(tr.Stack.Frames), m.Bytes)
	}
	var st Stack
	r.Thread(s).Capture(&m, &m, 0, &st)
	checkMerge(t, &st)
}

// missing is a copy without anything.
type missing struct{}

func (missing) ReadAt([]byte, int64) (int, error) { return 0, ErrMissing }

// checkMerge merges a stack with C stacks of several forms, and counts its frames in the results.
func checkMerge(t *testing.T, s *Stack) {
	t.Helper()
	c := []stack.Frame{{Func: 0x2000, CFA: 0x800}, {Func: 0x2000, CFA: 0x4000}, {Func: 1}, {PC: 3, Kind: stack.KindError}}
	for n := range len(c) + 1 {
		ruby, native := 0, 0
		for _, f := range s.Merge(nil, c[:n], 0x2000) {
			switch f.Kind {
			case stack.KindRuby:
				ruby++
			case stack.KindNative:
				native++
			}
		}
		if ruby != len(s.Frames) || native != min(n, 3) {
			t.Fatalf("%d of %d frames and %d of %d C frames are in the merged stack", ruby, len(s.Frames), native, min(n, 3))
		}
	}
}

// FuzzLines decodes tables of lines.
func FuzzLines(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0x81, 0x40}, 100), uint16(3), uint32(60))
	f.Fuzz(func(_ *testing.T, b []byte, lines uint16, pos uint32) {
		fn := Func{index: b, lines: make([]int32, lines), Size: uint64(pos%4096) * 8, code: 0x1000}
		fn.Line(uint64(pos) * 8)
		for end, line := range fn.Each {
			_, _ = end, line
		}
	})
}

// FuzzLoad loads damaged files.
func FuzzLoad(f *testing.F) {
	if exe, err := os.Open("/proc/self/exe"); err == nil {
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

// TestLines decodes a table of lines by hand: three entries, of which the second begins at word 2 and
// the third at word 60, in the part of the table for large functions.
func TestLines(t *testing.T) {
	index := make([]byte, indexHead+indexBlock)
	for pos := range uint64(immediate) {
		rank := uint64(1)
		if pos >= 2 {
			rank = 2
		}
		at := pos / perWord * 8
		binary.LittleEndian.PutUint64(index[at:], le(index, at)|rank<<(pos%perWord*immediateLen))
	}
	binary.LittleEndian.PutUint32(index[indexHead:], 2)
	binary.LittleEndian.PutUint64(index[indexHead+blockBits:], 1<<(60-immediate))
	for i := range uint64(7) { // one bit is before the small blocks from 1 on
		at := uint64(indexHead + blockRanks)
		binary.LittleEndian.PutUint64(index[at:], le(index, at)|1<<(i*rankBits))
	}
	f := Func{code: 0x1000, Size: 200 * 8, index: index, lines: []int32{10, 20, 30}}
	for word := range uint64(200) {
		want := 10
		if word >= 2 {
			want = 20
		}
		if word >= 60 {
			want = 30
		}
		if got := f.Line(word * 8); got != want {
			t.Fatalf("word %d: line %d, not %d", word, got, want)
		}
	}
	var runs []int
	for end, line := range f.Each {
		runs = append(runs, int(end), line)
	}
	if want := []int{16, 10, 480, 20, 1600, 30}; len(runs) != 6 || [6]int(runs) != [6]int(want) {
		t.Errorf("runs %v, not %v", runs, want)
	}
}

// TestRefused: files that are not CRuby, and unknown versions, are refused.
func TestRefused(t *testing.T) {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	if _, err := Load(exe); !errors.Is(err, ErrNotRuby) {
		t.Errorf("the test's own program: %v", err)
	}
	if err := (&VersionError{"2.7.8"}).Error(); err != "Ruby 2.7.8 is not known: its stacks are shown as C alone; 3.1 to 3.4 are" {
		t.Error(err)
	}
}
