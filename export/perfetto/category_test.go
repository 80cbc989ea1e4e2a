package perfetto

import (
	"bytes"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestCategoryRead: Perfetto's own reader distinguishes calls of a managed runtime from
// machine code by their category.
func TestCategoryRead(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1, "main")
	for i := range int64(5) {
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 10 * ms, State: stack.StateRunning, Stack: "main:1 py.run:1 libeval:1 py.work:1 leaf:1"})
	}
	rows := exporttest.Ask(t, export(t, b.Finish(50*ms), view.Options{}),
		`select name from slice where category = 'python' order by name`, `select name from slice where category is null and name in ('main', 'libeval', 'leaf', 'py.run')`)
	if len(rows[0]) != 2 || rows[0][0].Text("name") != "py.run" || rows[0][1].Text("name") != "py.work" || len(rows[1]) != 3 {
		t.Errorf("of Python: %v; without a category: %v", rows[0], rows[1])
	}
}

// TestCategory: frames of a managed runtime have their own category, which is described
// once.
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
