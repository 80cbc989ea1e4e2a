package report_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Waits that context switches show and no sample met are counted, by a name of their own, behind those with a
// function.
func TestWaitsWithoutSample(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1235, "worker")
	for at := int64(0); at <= 100*ms; at += 10 * ms {
		look := exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: "main:1"}
		if at == 50*ms {
			look.State, look.Call, look.Stack = stack.StateBlocked, 0, "main:1 load:2"
		}
		th.Look(look)
		if at == 50*ms {
			th.Event(at, event.Wait, b.Wait(trace.Wait{Call: "read", Kind: "file"}))
		}
	}
	for at := int64(2 * ms); at < 100*ms; at += 10 * ms {
		if at == 42*ms {
			b.Off(1235, 49*ms, 53*ms, 53*ms, trace.Waker{}, 0)
			continue
		}
		b.Off(1235, at, at+3*ms, at+3*ms, trace.Waker{}, 0)
	}
	r := report.Of(b.Finish(100*ms), view.Options{}, 0)
	if len(r.Functions) != 2 {
		t.Fatalf("%+v", r.Functions)
	}
	load, rest := r.Functions[0], r.Functions[1]
	if load.Name != "load" || load.Waits != 1 || load.Total != 4*ms || rest.Name != trace.NotSampled || rest.Total <= load.Total {
		t.Errorf("%+v\n%+v", load, rest)
	}
}

// TestKernelStacks: the longest waits have the kernel's functions of those waits that have them.
func TestKernelStacks(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1235, "worker")
	for at := int64(0); at <= 100*ms; at += 10 * ms {
		th.Look(exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: "main:1"})
	}
	b.Off(1235, 12*ms, 20*ms, 20*ms, trace.Waker{}, 0)
	b.KernelStack("schedule", "pipe_read", "vfs_read")
	b.Off(1235, 32*ms, 36*ms, 36*ms, trace.Waker{}, 0)
	r := report.Of(b.Finish(100*ms), view.Options{}, 0)
	if len(r.Longest) != 2 || r.Longest[0].Duration != 8*ms {
		t.Fatalf("%+v", r.Longest)
	}
	want := report.Fact{Name: view.DetailKernel, Value: "vfs_read;pipe_read;schedule"}
	if !slices.Contains(r.Longest[0].Facts, want) {
		t.Errorf("%+v", r.Longest[0].Facts)
	}
	for _, f := range r.Longest[1].Facts {
		if f.Name == view.DetailKernel {
			t.Errorf("a wait without a kernel stack has %q", f.Value)
		}
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if strings.Count(text.String(), want.Value) != 1 {
		t.Errorf("want %q once:\n%s", want.Value, text.String())
	}
}
