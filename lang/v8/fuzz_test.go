package v8

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

// slab is memory that repeats the same bytes at every address, so that any pointer is valid. It
// counts reads.
type slab struct {
	b            []byte
	bytes, reads int
}

func (s *slab) ReadAt(p []byte, at int64) (int, error) {
	if len(s.b) == 0 || at%11 == 10 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = s.b[(int(at&0xffffff)+i)%len(s.b)]
	}
	s.bytes += len(p)
	s.reads++
	return len(p), nil
}

// ReadSpans implements SpanReader.
func (s *slab) ReadSpans(spans []stack.Span, b []byte) (got int) {
	reads := s.reads
	for _, x := range spans {
		if n, _ := s.ReadAt(b[got:got+x.Len], int64(x.Addr)); n < x.Len {
			break
		}
		got += x.Len
	}
	s.reads = reads + 1
	return got
}

// Word implements Words.
func (s *slab) Word(addr uint64) (uint64, bool) {
	var b [8]byte
	n, _ := s.ReadAt(b[:], int64(addr))
	return binary.LittleEndian.Uint64(b[:]), n == 8
}

// layouts returns those of the tested versions, with small type numbers.
func layouts(t testing.TB) (all []*Image) {
	for _, v := range [][2]int{{10, 2}, {11, 3}, {12, 4}, {13, 6}} {
		img := &Image{Version: "test"}
		next := 1
		if err := img.layout.fill(v[0], v[1], func(name string) (int, bool) {
			next++
			switch name = strings.TrimPrefix(name, prefix); {
			case strings.HasPrefix(name, "type_InstructionStream"):
				return 9, v[0] > 10
			case strings.HasPrefix(name, "type_Map"):
				return 1, true
			case strings.HasPrefix(name, "type_"), strings.HasPrefix(name, "class_SharedFunctionInfo"), strings.HasPrefix(name, "class_JSFunction"),
				strings.HasPrefix(name, "class_BytecodeArray__data"):
				return next % 5 * 8, true
			}
			return 0, false
		}); err != nil {
			t.Fatal(err)
		}
		img.layout.bytecodeSizes = bytes.Repeat([]byte{2}, 3*150)
		all = append(all, img)
	}
	return all
}

// FuzzMemory reads damaged heaps. It must not panic or read more than the limit of one stack: 256
// KiB, in few enough reads to take at most 2 ms at a microsecond per read. First looks have their
// own limit.
func FuzzMemory(f *testing.F) {
	words := func(v ...uint64) []byte {
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return b
	}
	f.Add(words(0), uint64(0x10000))
	f.Add(words(0x10001), uint64(0x10000))
	f.Add(words(0x10001, 0x10009, 8<<32, 0x100010001), uint64(0x10008))
	f.Add(words(0x20001, 1<<32|1, 0, 0x28001, 3<<32), uint64(0x20040))
	f.Add(bytes.Repeat([]byte{1}, 64), uint64(0x1010101))
	f.Fuzz(func(t *testing.T, b []byte, pc uint64) {
		for _, img := range layouts(t) {
			mem := &slab{b: b}
			r := New(img, func(f *Function) any {
				n := 0
				f.Each(func(end uint64, line int) bool { n++; return n < 1000 })
				return nil
			})
			w, known, account, credit := r.Walker(), &Known{}, &meter.Meter{}, &meter.Credit{}
			for turn := range 3 {
				looks := meter.MaxLooks
				if turn == 2 { // no more first looks allowed
					looks = 0
					credit.Spend(meter.Ahead + meter.Share)
				}
				mem.bytes, mem.reads = 0, 0
				account.Begin(mem, credit)
				var places []Place
				for i := range uint64(8) {
					places = append(places, Place{PC: pc + 4*i, FP: pc&^7 + 8*i, Exact: i == 0, Made: i&1 == 0, Array: 1, Offset: 60})
				}
				w.Begin(account, known, places, mem)
				for i := range places {
					if js, _ := w.Frames(&places[i], mem); len(js) > maxInline {
						t.Fatalf("%d frames in one", len(js))
					}
				}
				w.End()
				account.End()
				most := meter.Budget + looks
				if looks > 0 {
					most += meter.MaxLooks + maxSource*2 // texts
				}
				if mem.bytes > most || mem.reads > (meter.Budget+looks)/meter.LeastRead+(most-meter.Budget)/pieceBytes {
					t.Fatalf("%d bytes in %d reads", mem.bytes, mem.reads)
				}
				if looks == 0 && mem.reads > meter.Budget/meter.LeastRead {
					t.Fatalf("%d reads", mem.reads)
				}
			}
		}
	})
}

// FuzzTables decodes damaged tables.
func FuzzTables(f *testing.F) {
	f.Add([]byte{3, 0x98, 4, 0x51}, []byte{0, 1, 2}, 5)
	f.Add(bytes.Repeat([]byte{0xff}, 30), []byte{1}, 1<<20)
	l := &layouts(f)[0].layout
	f.Fuzz(func(t *testing.T, table, code []byte, off int) {
		list := places(table)
		for i := 1; i < len(list); i++ {
			if list[i].from < list[i-1].from {
				t.Fatalf("places fall: %v", list)
			}
		}
		if o, id := text(at(list, off)); o < -1 || id < 0 {
			t.Fatalf("offset %d in call %d", o, id)
		}
		if at, _ := l.baselineOffset(table, code, off); at < 0 || at > len(code)+256 {
			t.Fatalf("bytecode %d of %d", at, len(code))
		}
	})
}

// FuzzLoad reads damaged files.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Load(bytes.NewReader(b)); err == nil {
			t.Fatal("V8 in it")
		}
	})
}

// TestMissing: a version without V8's own description is refused, with an error of one line.
func TestMissing(t *testing.T) {
	var l layout
	err := l.fill(11, 3, func(string) (int, bool) { return 0, false })
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if err := l.fill(9, 4, func(string) (int, bool) { return 0, true }); err == nil {
		t.Error("V8 9.4 is taken for one that is known")
	}
	if _, err := Load(bytes.NewReader(nil)); err == nil || errors.Is(err, ErrNotV8) {
		t.Errorf("an empty file: %v", err)
	}
}

// TestUntried: an untested version shows nothing until several functions have been read, and
// reports that. Then it reports that functions may be missing.
func TestUntried(t *testing.T) {
	img := layouts(t)[3]
	img.layout.tried = false
	r := New(img, func(*Function) any { return nil })
	for i := range proofs {
		if r.proved() || r.Problem() == nil {
			t.Fatalf("after %d functions it counts as one that is known", i)
		}
		r.count(true)
	}
	if err := r.Problem(); !r.proved() || err == nil || !strings.Contains(err.Error(), "may be missing") {
		t.Errorf("after %d it does not: %v", proofs, err)
	}
}
