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
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/watch/control"
)

// A program dies at once while the kernel writes a core dump. The dump shows the stack at
// death, not that of the previous sample, and the events before it.
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
	p.Say("leak 300") // makes the core dump take a while
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

// A program dies at once, without a core dump and long after its last sample. If the kernel
// reports fatal signals, the dump shows the stack at death as its last event.
func TestCrashBetweenSamples(t *testing.T) {
	testprog.Need(t, "ptrace")
	d, err := target.OpenDeaths()
	if err != nil {
		t.Skipf("the kernel does not tell of fatal signals here: %v", err)
	}
	d.Close()
	for _, spans := range []time.Duration{20 * time.Millisecond, time.Second} {
		p := trouble(t)
		r := begin(t, fixed(t, p.PID), func(o *Options) { o.Session.Interval = spans }, "crash yes")
		r.samples(4)
		begun := target.Now()
		p.Say("die")
		s := r.until("for the end", func(s *control.Status) bool { return len(s.Targets) == 0 })
		if kernelBefore(6, 15) && len(s.Dumps) == 0 {
			t.Skip("the kernel does not tell how a process ended")
		}
		if len(s.Dumps) != 1 || s.Dumps[0].Reason != "crash" || !strings.Contains(s.Dumps[0].Text, "SIGSEGV") {
			t.Fatalf("%+v", s.Dumps)
		}
		rec := open(t, s.Dumps[0].Files[0])
		w := &atDeath{n: trace.NewNames(rec)}
		for i := range rec.Threads {
			if rec.Threads[i].Main {
				rec.Replay(rec.Threads[i].Seq, w.n, w)
			}
		}
		names := strings.Join(w.last, " ")
		if !strings.HasSuffix(names, "main event_loop handle_input handle_command fatal_step") || w.at < begun {
			t.Errorf("samples %v apart: the last stack is %q, %v after the command; modules %+v", spans, names, time.Duration(w.at-begun), rec.Modules)
		}
	}
}

// atDeath is the last stack entered, outermost frame first.
type atDeath struct {
	n    *trace.Names
	now  []string
	last []string
	at   stack.Time
}

func (w *atDeath) Begin(t stack.Time, depth int, s *trace.Slice) {
	w.now = append(w.now[:depth], w.n.Func(&s.Frame).Name)
	w.last, w.at = append(w.last[:0], w.now...), t
}
func (w *atDeath) End(_ stack.Time, depth int, _ *trace.Slice) { w.now = w.now[:depth] }
func (w *atDeath) Other(event.Event)                           {}
