package session

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// TestPythonPerf: functions of a Python that describes its code to profilers (python3
// -X perf) must have the names that it gives them.
func TestPythonPerf(t *testing.T) {
	testprog.Need(t, "ptrace")
	prog := testprog.StartCmd(t, exec.Command(testprog.Tool(t, "python3.12"), "-X", "perf", "-c", `
import sys, time
def innermost(n):
    s = 0
    for i in range(n): s = (s * 31 + i) & 0xffffffff
    return s
def outermost():
    for i in range(20): innermost(20000)
print("ready", flush=True)
sys.stdin.readline()
end = time.process_time() + .5
while time.process_time() < end: outermost()
`))
	t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", prog.PID)) })
	prog.Line("ready")
	rec := recordWhole(t, prog.PID, Options{Interval: 2 * time.Millisecond, Groups: 2}, func(*Session) {
		prog.Go()
		prog.Wait()
	})
	had := map[string]stack.Time{}
	for _, c := range callsOf(rec, "py::") {
		had[c.name] += c.to - c.from
	}
	for _, fn := range []string{"innermost", "outermost", "<module>"} {
		if ms := stack.Time(time.Millisecond); had["py::"+fn+":<string>"] < 150*ms {
			t.Errorf("%s: %v", fn, had)
		}
	}
	// Their code has no table, but ends right after its call.
	if total := rec.Stats.Total(); total.Truncated*20 > total.Samples {
		t.Errorf("%d of %d samples have gaps%s", total.Truncated, total.Samples, errorFrames(rec))
	}
}
