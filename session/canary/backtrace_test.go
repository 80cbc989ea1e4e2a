package canary

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
)

// TestBacktrace compares the stack of an open and of a read of a C program without frame pointers with the
// program's own backtrace(), address by address: a recursion, a callback of libc, and main's callers.
func TestBacktrace(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/backs", "O2"), stored(t, 1))
	p.Ready()
	s := watch(t, p.PID, "main-io slow=0s")
	p.Go()
	var want []uint64
	for _, text := range strings.Fields(p.Line("truth "))[1:] {
		at, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, at)
	}
	p.Done()
	s.end(t)
	all := s.Engine.Findings()
	i := slices.IndexFunc(all, func(f *iowatch.Finding) bool { return f.First == iowatch.OpRead && f.Call == "" })
	if i < 0 || len(want) < 40 {
		t.Fatalf("%+v; the program says %#x", all, want)
	}
	for what, id := range map[string]iowatch.StackID{"opened": all[i].Stack, "read": all[i].Where} {
		frames, why := s.Stacks.Frames(uint32(id))
		at := slices.IndexFunc(frames, func(f stacks.Frame) bool { return f.Func == "reading" })
		if why != stack.ReasonNone || !s.Stacks.Complete(uint32(id)) || at < 0 {
			t.Errorf("%s at %s (%v)", what, s.stackOf(id), why)
			continue
		}
		var got []uint64
		for _, f := range frames[at+1:] {
			if !f.Inlined { // backtrace has physical frames only
				got = append(got, f.Addr)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s at %s\n%#x, the program says\n%#x", what, s.stackOf(id), got, want)
		}
	}
}
