package view_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// parts separates a replay into calls, kernel frames, and the times at which a thread's
// states say it was blocked.
type parts struct {
	names   *trace.Names
	calls   []string
	kernel  []exporttest.Call
	depth   int // of the open kernel slice, if any
	open    bool
	blocked view.Intervals
	waits   []view.Interval
}

func (p *parts) Begin(t stack.Time, depth int, s *trace.Slice) {
	if n := p.names.Func(&s.Frame).Name; strings.HasPrefix(n, "[kernel]") {
		p.kernel = append(p.kernel, exporttest.Call{Name: n, Depth: depth, Begin: int64(t)})
		p.open, p.depth = true, depth
		return
	}
	p.calls = append(p.calls, fmt.Sprintf("%d %d+%s", t, depth, p.names.Func(&s.Frame).Name))
	if p.open {
		p.calls = append(p.calls, "on top of the kernel")
	}
}

func (p *parts) End(t stack.Time, depth int, s *trace.Slice) {
	if p.open {
		p.open = false
		k := &p.kernel[len(p.kernel)-1]
		if k.End = int64(t); k.End == k.Begin {
			p.kernel = p.kernel[:len(p.kernel)-1] // a sample changed the stack and another followed at once
		}
		if depth == p.depth {
			return
		}
	}
	p.calls = append(p.calls, fmt.Sprintf("%d %d-%s", t, depth, p.names.Func(&s.Frame).Name))
}

func (p *parts) Other(e event.Event) { p.blocked.Other(e) }

func apart(rec *trace.Recording, thread int, o view.Options) *parts {
	v := view.New(rec, o)
	p := &parts{names: v.Names}
	p.blocked.Yield = func(i *view.Interval) {
		if s, nr := i.Waiting.State(); i.End > i.Begin && s != stack.StateRunning && view.Waits(s) && (v.Call(nr) != "" || s == stack.StateFault) {
			p.waits = append(p.waits, *i)
		}
	}
	p.blocked.Close(v.Slices(&v.Threads[thread], p))
	return p
}

// With --kernel each wait in a system call has an extra frame on top of the stack, from
// the begin of the wait to its end. Nothing else differs.
func TestKernel(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	blocked := stack.StateBlocked
	th.Look(exporttest.Look{At: 0, State: blocked, Call: 1, Stack: "main:1 read:1"}) // 0 is read
	th.Look(exporttest.Look{At: 10 * ms, State: stack.StateRunning, Stack: "main:1 work:1"})
	th.Look(exporttest.Look{At: 20 * ms, State: stack.StateFault, Stack: "main:1 work:1"})
	th.Look(exporttest.Look{At: 30 * ms, State: blocked, Call: 203, Stack: "main:2 lock:1"})
	th.Sync()
	th.Look(exporttest.Look{At: 40 * ms, State: blocked, Call: 203, Times: 3, Way: stack.WayRead, Stack: "main:2 lock:1"})
	th.Look(exporttest.Look{At: 50 * ms, State: blocked, Call: 203, Times: 3, Stack: "main:2 lock:2"})
	th.Look(exporttest.Look{At: 60 * ms, State: stack.StateRunnable, Stack: "main:2"})
	small := b.Finish(70 * ms)
	var got []string
	for _, k := range apart(small, 0, view.Options{Kernel: true}).kernel {
		got = append(got, fmt.Sprintf("%d..%d %d%s", (k.Begin-int64(exporttest.Start))/ms, (k.End-int64(exporttest.Start))/ms, k.Depth, k.Name))
	}
	if s, want := strings.Join(got, ", "), "0..10 2[kernel] read, 20..30 2[kernel] page fault, 30..50 2[kernel] futex, 50..60 2[kernel] futex"; s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	for what, rec := range map[string]*trace.Recording{"small": small, "sample": exporttest.Sample(t), "big": exporttest.Big(t, 20_000, 2), "contended": exporttest.Contended(t, 20_000, 2)} {
		for _, o := range []view.Options{{}, {From: exporttest.Start + 12*ms, To: exporttest.Start + 66*ms}} {
			for i := range rec.Threads {
				with := o
				with.Kernel = true
				plain, k := apart(rec, i, o), apart(rec, i, with)
				if a, b := strings.Join(plain.calls, "\n"), strings.Join(k.calls, "\n"); a != b || a == "" {
					t.Fatalf("%s, thread %d: the other calls differ:\n%.3000s\n---\n%.3000s", what, i, a, b)
				}
				waited, inside := int64(0), int64(0)
				for _, w := range k.waits {
					waited += int64(w.End - w.Begin)
				}
				for _, c := range k.kernel {
					inside += c.End - c.Begin
				}
				if waited != inside || len(k.kernel) < len(k.waits) {
					t.Errorf("%s, thread %d: %d ns in %d calls of the kernel, %d ns in %d waits", what, i, inside, len(k.kernel), waited, len(k.waits))
				}
			}
		}
	}
}

// In any recording, kernel frames nest, and open ones are closed at the end.
func FuzzKernel(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		replay(t, rec, view.Options{Kernel: true}, true)
		var plain, with bytes.Buffer
		for o, out := range map[bool]*bytes.Buffer{false: &plain, true: &with} {
			v := view.New(rec, view.Options{Kernel: o})
			fmt.Fprint(out, v.Steps(&v.Threads[0], &sum{t: t}))
		}
		if plain.String() != with.String() {
			t.Fatalf("%s ns in all with the kernel, %s without", &with, &plain)
		}
	})
}
