package target

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestReadSpans: many spans in one call, up to the first that cannot be read or does not fit.
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
	for n := range 2*stack.MaxSpans + 5 {
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

// The spans of a planned stop do not change: the stop may come while the caller makes its next
// plan.
func TestForeseenSpans(t *testing.T) {
	it := AheadItem{Thread: &Thread{}, Spans: []stack.Span{{Addr: 0x1000, Len: 8}}}
	w := (&Tracer{}).renewed(DefaultStack, maxAheadSpans)
	if !w.foresee(&it) {
		t.Fatal("there is no room")
	}
	it.Spans[0] = stack.Span{Addr: 0x2000, Len: 16}
	if w.Spans[0] != (stack.Span{Addr: 0x1000, Len: 8}) {
		t.Errorf("it copies %v", w.Spans)
	}
}

// A window gets room for the small blocks of a sample before that sample, up to the limit. That of a planned stop keeps its
// size.
func TestRoomForSpans(t *testing.T) {
	w := NewWindow(0)
	small := len(w.buf)
	for _, c := range []struct {
		w         *Window
		len       []int
		fit, room int
	}{
		{w, []int{100, leastSpans - 100}, 2, leastSpans},
		{w, []int{100, leastSpans}, 2, 2 * (leastSpans + pageBytes)},
		{w, []int{100}, 1, 2 * (leastSpans + pageBytes)},
		{w, []int{MaxSpanBytes - 100, 100}, 2, MaxSpanBytes},
		{w, []int{MaxSpanBytes - 100, 101, 100}, 1, MaxSpanBytes},
		{w, []int{-1}, 0, MaxSpanBytes},
		{(&Tracer{}).renewed(DefaultStack, maxAheadSpans), []int{100, maxAheadSpans}, 1, maxAheadSpans},
	} {
		c.w.Spans = nil
		for _, n := range c.len {
			c.w.Spans = append(c.w.Spans, stack.Span{Addr: 0x1000, Len: n})
		}
		if c.w.reset(); c.w.n != c.fit || c.w.spans != c.room || len(c.w.buf) < c.room+pageBytes+c.w.max {
			t.Errorf("blocks of %d bytes: %d fit, room for %d bytes in %d", c.len, c.w.n, c.w.spans, len(c.w.buf))
		}
	}
	if small >= MaxSpanBytes {
		t.Errorf("a new window has %d bytes", small)
	}
}

// TestMaybe: optional blocks are read after the stack, up to the first that is missing, which
// costs no further call. A missing required block costs one.
func TestMaybe(t *testing.T) {
	prog := start(t, build(t, "testdata/tall.c", "-O1"))
	tid := 0
	fmt.Sscan(prog.line(), &tid)
	th := openThread(t, openProcess(t, prog.pid()), tid)
	tr := tracer(t)
	w := NewWindow(8192)
	capture(t, tr, th, w)
	at := w.StackAddr &^ 4095
	there := func(k uint64) stack.Span { return stack.Span{Addr: at + 4096*k + 8*k, Len: 100} }
	maybe := func(s stack.Span) stack.Span { s.Maybe = true; return s }
	gone := stack.Span{Addr: 4096, Len: 64}
	for _, x := range []struct {
		spans []stack.Span
		got   []int
		reads int
	}{
		{nil, nil, 1},
		{[]stack.Span{there(1), there(2)}, []int{100, 100}, 1},
		{[]stack.Span{there(1), maybe(there(2))}, []int{100, 100}, 1},
		{[]stack.Span{maybe(there(1)), maybe(there(2)), maybe(there(3))}, []int{100, 100, 100}, 1},
		{[]stack.Span{maybe(gone), maybe(there(2))}, []int{0, 0}, 1},
		{[]stack.Span{there(1), maybe(there(2)), maybe(gone), maybe(there(3))}, []int{100, 100, 0, 0}, 1},
		{[]stack.Span{gone, there(1), maybe(gone)}, []int{0, 100, 0}, 2},
		{[]stack.Span{there(1), gone, gone, there(2), maybe(there(3))}, []int{100, 0, 0, 100, 100}, 3},
	} {
		w.Spans = x.spans
		capture(t, tr, th, w)
		var got []int
		for i := range x.spans {
			got = append(got, len(w.Block(i)))
		}
		if !slices.Equal(got, x.got) || w.Reads != x.reads || len(w.Stack()) != w.StackAsked() {
			t.Errorf("%v: got %v in %d reads, want %v in %d; %d of %d bytes of stack", x.spans, got, w.Reads, x.got, x.reads, len(w.Stack()), w.StackAsked())
		}
		same := make([]byte, 100)
		for i, s := range x.spans {
			if len(w.Block(i)) < 100 || s.Addr-w.StackAddr+100 > uint64(len(w.Stack())) {
				continue
			}
			if copy(same, w.Stack()[s.Addr-w.StackAddr:]); !bytes.Equal(same, w.Block(i)) {
				t.Errorf("%v: block %d is not what is there in the stack", x.spans, i)
			}
		}
		if off := w.off[w.n] % pageBytes; uint64(off) != w.StackAddr%pageBytes {
			t.Errorf("the copy begins %d bytes into a page, the stack %d", off, w.StackAddr%pageBytes)
		}
	}
}
