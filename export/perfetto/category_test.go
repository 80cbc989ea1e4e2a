package perfetto

import (
	"bytes"
	"testing"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestCategory: frames of a managed runtime are of a category of their own, which
// is described once.
func TestCategory(t *testing.T) {
	n := newInterned(view.New(&trace.Recording{}, view.Options{}))
	of := func(k stack.Kind) uint64 {
		return n.category(&trace.Slice{Loc: &trace.Loc{Word: event.WordOf(&stack.Frame{Kind: k, PC: 1, Func: 1})}})
	}
	if of(stack.KindNative) != 0 || of(stack.KindError) != 0 || n.category(&trace.Slice{}) != 0 {
		t.Error("machine code has a category")
	}
	python, java := of(stack.KindPython), of(stack.KindJava)
	if python <= categoryWait || java <= categoryWait || python == java || of(stack.KindPython) != python {
		t.Errorf("categories %d and %d", python, java)
	}
	if b := n.fresh.b; bytes.Count(b, []byte("python")) != 1 || bytes.Count(b, []byte("java")) != 1 {
		t.Errorf("described by %q", b)
	}
}
