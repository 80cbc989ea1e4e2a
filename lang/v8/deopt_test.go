package v8

import (
	"encoding/hex"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/unwind/meter"
)

// TestTranslations decodes the translations that Node 24.9.0 made of a function with a loop that
// was inlined into another function. It compares the interpreter frames of each, innermost first.
// Most translations repeat part of another one.
func TestTranslations(t *testing.T) {
	b, err := hex.DecodeString("0e000202010c020005280628032707280c1d021d0125252527070e1a0202012e020005361d080e260202012e020005361d080e32020201030200052f28052e25" +
		"2530250e0004040126020005280628032805280c1e0a1e1025252525013e000203260426062608260a260c260e25250e2c04043d1e0e1e122f0e360202014c020005311e121e0e31")
	if err != nil {
		t.Fatal(err)
	}
	c := &code{trans: b}
	for index, want := range map[int][]level{
		0: {{1, 6}}, 26: {{1, 23}}, 38: {{1, 23}}, 50: {{1, -1}}, 67: {{0, 31}, {1, 19}}, 111: {{0, 31}, {1, 19}}, 121: {{1, 38}},
	} {
		if got, ok := c.levels(&translations13, index); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("at %d: %v, %v, want %v", index, got, ok, want)
		}
	}
	for _, index := range []int{-1, 1, 25, len(b) - 1, len(b)} {
		if got, ok := c.levels(&translations13, index); ok {
			t.Errorf("at %d, where none begins: %v", index, got)
		}
	}
}

// TestLoops: the ends of loops from TurboFan and from Maglev.
func TestLoops(t *testing.T) {
	for _, x := range []struct {
		at   int
		code string
		want loop
	}{
		{0x2ba, "41807db100" + "0f847bfdffff" + "e9f6000000", loop{begin: 0x40, end: 0x2ca, asks: 0x3c0}},
		{0x17d, "41807db100" + "0f85e5060000" + "c5832ad1" + "ebb2", loop{begin: 0x140, end: 0x18e, asks: 0x86d}},
	} {
		b := make([]byte, x.at+2*maxLoopEnd)
		if _, err := hex.Decode(b[x.at:], []byte(x.code)); err != nil {
			t.Fatal(err)
		}
		if got, ok := loopAt(b, x.at); !ok || got != x.want {
			t.Errorf("%+v, %v, want %+v", got, ok, x.want)
		}
		b[x.at+len(x.code)/2-1]++ // the jump has another target
		if got, ok := loopAt(b, x.at); ok && got == x.want {
			t.Errorf("another jump makes the same loop: %+v", got)
		}
	}
}

// TestPoint: a return address belongs to its call, and any other offset to the last place before
// it.
func TestPoint(t *testing.T) {
	c := &code{points: []point{{8, 1, false}, {16, 2, true}, {16, 3, false}, {32, 4, true}}}
	for _, x := range []struct {
		off   int
		exact bool
		want  int
	}{{7, true, 0}, {8, true, 1}, {8, false, 0}, {15, true, 1}, {16, true, 3}, {16, false, 2}, {20, false, 3}, {32, false, 4}, {99, true, 4}} {
		got := 0
		if p := c.point(x.off, x.exact); p != nil {
			got = p.index
		}
		if got != x.want {
			t.Errorf("%s: %d, want %d", fmt.Sprint(x.off, x.exact), got, x.want)
		}
	}
}

func FuzzTranslations(f *testing.F) {
	f.Add([]byte{0x0e, 0, 2, 2, 1, 0x0c, 2, 0, 5}, 0)
	f.Add([]byte{0x0e, 0, 2, 2, 1, 0x0c, 2, 0, 5, 0x0e, 9, 2, 2, 0x2e}, 9)
	f.Fuzz(func(t *testing.T, b []byte, index int) {
		if list, ok := (&code{trans: b}).levels(&translations13, index); ok && (len(list) == 0 || len(list) > maxInline) {
			t.Fatalf("%d frames", len(list))
		}
		if to, ok := afterSlowAlloc(b, uint64(max(index, 0))); ok && (to < 0 || to >= index) {
			t.Fatalf("from %d to %d", index, to)
		}
		if len(b) >= 2*maxLoopEnd {
			loopAt(b, min(max(index, 0), len(b)-2*maxLoopEnd))
		}
	})
}

// page is memory of one page.
type page struct {
	at uint64
	b  [4096]byte
}

func (p *page) ReadAt(b []byte, at int64) (int, error) {
	o := uint64(at) - p.at
	if o >= uint64(len(p.b)) {
		return 0, io.EOF
	}
	n := copy(b, p.b[o:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// TestSome: an object at the end of V8's memory is read up to that end.
func TestSome(t *testing.T) {
	h := &heap{mem: &meter.Meter{}}
	h.mem.Begin(&page{at: 0x10000}, &meter.Credit{})
	for _, x := range []struct {
		addr        uint64
		least, want int // 0: an error
	}{{0x10000, 8, 64}, {0x10ff0, 8, 16}, {0x10ff8, 8, 8}, {0x10ff8, 16, 0}, {0x11000, 8, 0}} {
		b, err := h.some(make([]byte, 64), x.addr, x.least)
		if err == nil && len(b) != x.want || (err == nil) != (x.want > 0) {
			t.Errorf("at %#x: %d bytes, %v, want %d", x.addr, len(b), err, x.want)
		}
	}
}
