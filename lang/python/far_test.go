package python

import (
	"io"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

// arenas is memory with some arenas unmapped. It counts reads.
type arenas struct {
	gone  map[uint64]bool
	calls int
}

func (a *arenas) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }

func (a *arenas) ReadSpans(spans []stack.Span, b []byte) (got int) {
	a.calls++
	for _, s := range spans {
		if a.gone[s.Addr/arena] {
			break
		}
		b[got] = byte(s.Addr >> 9)
		got += s.Len
	}
	return got
}

// TestEachFar: frames of recent stacks are read in few calls, even if some of their memory was
// unmapped. Frames of unmapped arenas are not read again.
func TestEachFar(t *testing.T) {
	const size = 80
	var all, there []uint64
	mem := &arenas{gone: map[uint64]bool{101: true, 103: true}}
	for i := range uint64(1500) { // across five arenas in turn
		at := (100+i%5)*arena + i/5*512
		all = append(all, at)
		if !mem.gone[at/arena] {
			there = append(there, at)
		}
	}
	look := func(pl *pyPlan, enough func() bool) bool {
		var live meter.Meter
		live.Begin(mem, &meter.Credit{})
		defer live.End()
		mem.calls = 0
		pl.reader.near, pl.spans, pl.buf = map[uint64][]byte{}, pl.spans[:0], pl.buf[:0]
		return pl.eachFar(&live, size, enough)
	}
	pl := &pyPlan{far: slices.Clone(all)}
	if look(pl, func() bool { return false }) {
		t.Error("never enough, and enough")
	}
	if !slices.Equal(pl.far, there) || mem.calls != 4 { // one per unmapped arena, 512, the rest
		t.Errorf("%d frames of late, want %d; %d calls", len(pl.far), len(there), mem.calls)
	}
	for _, at := range there {
		if b := pl.reader.near[at]; len(b) != size || b[0] != byte(at>>9) {
			t.Fatalf("at %#x: %v", at, b)
		}
	}
	if len(pl.reader.near) != len(there) {
		t.Errorf("%d frames, want %d", len(pl.reader.near), len(there))
	}
	if !look(pl, func() bool { return true }) || mem.calls != 1 || len(pl.reader.near) != atOnce {
		t.Errorf("%d frames in %d calls where the first are enough", len(pl.reader.near), mem.calls)
	}

	// More unmapped arenas than maxHoles.
	mem.gone = map[uint64]bool{}
	pl.far = pl.far[:0]
	for i := range uint64(100) {
		pl.far = append(pl.far, i*arena)
		mem.gone[i] = true
	}
	if look(pl, func() bool { return true }) || mem.calls != maxHoles+1 || len(pl.far) != 100-maxHoles-1 {
		t.Errorf("%d calls, %d frames left", mem.calls, len(pl.far))
	}
}
