package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestRuntime: the report counts the CPU time of an interpreter's own functions, where it runs others, and
// leaves its frames out of the stacks of waits.
func TestRuntime(t *testing.T) {
	for name, c := range map[string]struct {
		running, waiting string
		runtime          int64 // ms
		hidden           string
	}{
		"interpreter":  {"main:1 PyEval_EvalCode:1 py.work:3 PyNumber_Add:1", "main:1 PyEval_EvalCode:1 py.work:4 PyOS_Readline:1 poll_input:1", 40, "3 native frames of the interpreter not shown"},
		"its function": {"main:1 PyEval_EvalCode:1 py.work:3", "py.work:4 poll_input:1", 0, ""},
		"an extension": {"main:1 PyEval_EvalCode:1 py.work:3 dot_product:1", "py.work:4 PyOS_Readline:1 poll_input:1", 0, "1 native frame of the interpreter not shown"},
		"no script":    {"main:1 PyGC_Collect:1", "main:1 PyOS_Readline:1 poll_input:1", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := exporttest.New(t)
			th := b.Thread(1234, "main")
			th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: c.running})
			th.Look(exporttest.Look{At: 40 * ms, CPU: 40 * ms, Times: 1, State: stack.StateRunning, Stack: c.running})
			th.Look(exporttest.Look{At: 50 * ms, CPU: 40 * ms, Times: 2, State: stack.StateBlocked, Call: 7, Stack: c.waiting})
			th.Look(exporttest.Look{At: 90 * ms, CPU: 40 * ms, Times: 2, State: stack.StateBlocked, Call: 7, Stack: c.waiting})
			rec := b.Finish(100 * ms)
			r := report.Of(rec, view.Options{}, 0)
			if r.Runtime != c.runtime*ms {
				t.Errorf("%d ns of the interpreter, want %d ms: %+v", r.Runtime, c.runtime, r.OnCPU)
			}
			if len(r.Longest) != 1 || r.Longest[0].Hidden() != c.hidden || len(r.Longest[0].Stack) != len(strings.Fields(c.waiting)) {
				t.Errorf("%+v, want %q", r.Longest, c.hidden)
			}
			var text bytes.Buffer
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text.String(), "--kinds no-runtime") != (c.runtime > 0) || c.hidden != "" && !strings.Contains(text.String(), "… "+c.hidden) ||
				strings.Contains(text.String(), "      PyOS_Readline") != (c.hidden == "" && strings.Contains(c.waiting, "PyOS_Readline")) {
				t.Errorf("%s", &text)
			}
			// By default, its code counts for the functions that it runs.
			r = report.Of(rec.Only(trace.OwnKinds), view.Options{}, 0)
			for _, f := range r.OnCPU {
				if strings.HasPrefix(f.Name, "PyNumber") {
					t.Errorf("%+v", f)
				}
				if f.Name == "py.work" && f.Self != 40*ms && name != "an extension" {
					t.Errorf("%+v", f)
				}
			}
			if first := strings.Fields(c.running)[0]; name != "no script" && r.OnCPU[len(r.OnCPU)-1].Name+":1" != first && r.OnCPU[len(r.OnCPU)-2].Name+":1" != first {
				t.Errorf("%s, which only begins a thread, is not at the end: %+v", first, r.OnCPU)
			}
			text.Reset()
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if runs := name != "no script"; r.Runtime != 0 || r.NoRuntime != runs || strings.Contains(text.String(), "--kinds all") != runs {
				t.Errorf("%+v, %s", r, &text)
			}
		})
	}
}
