package target

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestReadSpans: many spans in one go, until the first that cannot be read or
// has no room.
func TestReadSpans(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	prog.line()
	p := openProcess(t, prog.pid())
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(maps, func(m stack.Mapping) bool { return m.Exec && m.Inode != 0 })
	if i < 0 {
		t.Fatal("no code")
	}
	at := maps[i].Start
	whole := make([]byte, 1024)
	if _, err := p.ReadAt(whole, at); err != nil {
		t.Fatal(err)
	}
	var spans []stack.Span
	var want []byte
	for n := range 2*maxVecs + 5 {
		o := n % 512
		spans = append(spans, stack.Span{Addr: at + uint64(o), Len: 1 + o%7})
		want = append(want, whole[o:o+1+o%7]...)
	}
	b := make([]byte, len(want)+100)
	if n := p.ReadSpans(spans, b); n != len(want) || !bytes.Equal(b[:n], want) {
		t.Errorf("%d of %d bytes", n, len(want))
	}
	if n := p.ReadSpans(spans[:3], b[:spans[0].Len+spans[1].Len+1]); n != spans[0].Len+spans[1].Len {
		t.Errorf("without room %d bytes", n)
	}
	broken := []stack.Span{spans[0], spans[1], {Addr: 16, Len: 8}, spans[2]}
	if n := p.ReadSpans(broken, b); n != spans[0].Len+spans[1].Len {
		t.Errorf("with a hole %d bytes", n)
	}
	if n := p.ReadSpans(nil, b); n != 0 {
		t.Errorf("of nothing %d bytes", n)
	}
}

// What a stop is to copy stays as it was planned: it may come when whoever planned it
// makes the next plan.
func TestForeseenSpans(t *testing.T) {
	it := AheadItem{Thread: &Thread{}, Spans: []stack.Span{{Addr: 0x1000, Len: 8}}}
	w := newWindow(DefaultStack, maxAheadSpans)
	if !w.foresee(&it) {
		t.Fatal("there is no room")
	}
	it.Spans[0] = stack.Span{Addr: 0x2000, Len: 16}
	if w.Spans[0] != (stack.Span{Addr: 0x1000, Len: 8}) {
		t.Errorf("it copies %v", w.Spans)
	}
}
