package watch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/watch/control"
)

// A program that dies at once, and of which the kernel writes a core dump: the
// dump shows the stack at death, not that of the last sample before, and what led
// to it.
func TestCrashWithCore(t *testing.T) {
	testprog.Need(t, "ptrace")
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		t.Fatal(err)
	}
	if p := strings.TrimSpace(string(pattern)); strings.ContainsAny(p, "/|") || p == "" {
		t.Skipf("core dumps are not written to the program's folder here, but to %q", p)
	}
	cmd := exec.Command("/bin/sh", "-c", `ulimit -c unlimited && exec "$0"`, testprog.Build(t, "c/trouble", "O2"))
	cmd.Dir = t.TempDir()
	p := testprog.StartCmd(t, cmd)
	p.Line("serving")
	r := begin(t, fixed(t, p.PID), func(o *Options) { o.Session.Interval = 10 * time.Millisecond }, "crash yes")
	p.Say("leak 300") // a core dump that takes a while
	p.Line("leak ")
	r.samples(r.Status().Targets[0].Samples + 100)
	p.Say("die")
	s := r.until("for the end", func(s *control.Status) bool { return len(s.Targets) == 0 })
	if kernelBefore(6, 15) && len(s.Dumps) == 0 {
		t.Skip("the kernel does not tell how a process ended")
	}
	if cores, _ := filepath.Glob(filepath.Join(cmd.Dir, "core*")); len(cores) == 0 {
		t.Skip("no core dump was written: the machine forbids it")
	}
	if len(s.Dumps) != 1 || s.Dumps[0].Reason != "crash" || !strings.Contains(s.Dumps[0].Text, "SIGSEGV") {
		t.Fatalf("%+v", s.Dumps)
	}
	rec := open(t, s.Dumps[0].Files[0])
	death := look(rec, stack.TID(p.PID), "fatal_step")
	before := look(rec, stack.TID(p.PID), "leak_memory")
	if death.longest == 0 || before.longest == 0 || death.begin < before.begin {
		t.Errorf("fatal_step is there for %v, leak_memory before for %v", death.longest, before.longest)
	}
	if loop := look(rec, stack.TID(p.PID), "event_loop"); loop.longest < 300*time.Millisecond {
		t.Errorf("event_loop, where it was all the time, is there for %v", loop.longest)
	}
}
