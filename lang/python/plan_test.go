package python

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
)

// TestHolds: code that another thread's walk read after a copy was planned does not validate that
// copy, because it may occupy freed memory of the code in the copy. It validates the next copy, and
// copies of the thread that it was read for.
func TestHolds(t *testing.T) {
	in := &interpreter{rt: &Runtime{}, table: managed.NewTable(managed.Of(stack.KindPython), nil)}
	thread := func() *pyThread { return &pyThread{of: in, th: in.rt.Thread(State{Addr: 0x1000})} }
	p, q := thread(), thread()
	read := func(by *pyThread) *held {
		in.reads++
		return &held{nr: in.reads, by: by}
	}
	before := read(q)
	in.spans(p, nil)
	since, own := read(q), read(p)
	if !p.holds(before) || !p.holds(own) {
		t.Error("what was read before the copy, or for it, does not count")
	}
	if p.holds(since) {
		t.Error("what another thread's walk read after the copy counts")
	}
	if in.spans(p, nil); !p.holds(since) {
		t.Error("what was read before the next copy does not count")
	}
}
