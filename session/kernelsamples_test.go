package session

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// inKernelLog is what testdata/targets/c/inkernel.c did: ns of CPU time, and those in calls.
type inKernelLog struct {
	Threads []struct {
		Name       string
		TID        stack.TID
		CPU, Calls int64
	}
}

// kernelCount counts the samples of a thread that a clock took on a CPU.
type kernelCount struct {
	n     *trace.Names
	want  []string // parts of names; a stack of the kernel has to have a function with one of them
	names []string // of the present stack
	kinds []stack.Kind

	all, kernel, right int
	cpu                int64 // ns of all samples
	wrong              []string
	root               bool // the kernel's frames were below others
}

func (c *kernelCount) Begin(_ stack.Time, depth int, s *trace.Slice) {
	c.names = append(c.names[:depth], c.n.Func(&s.Frame).Name)
	c.kinds = append(c.kinds[:depth], s.Loc.Word.Kind())
}

func (c *kernelCount) End(_ stack.Time, depth int, _ *trace.Slice) {
	c.names, c.kinds = c.names[:depth], c.kinds[:depth]
}

func (c *kernelCount) Other(e event.Event) {
	if e.Kind() != event.Seen {
		return
	}
	way, n, cpu := event.SeenFields(e.Payload())
	c.cpu += cpu
	if way != stack.WayClock || cpu == 0 {
		return
	}
	c.all += n
	from := slices.Index(c.kinds, stack.KindKernel)
	if from < 0 {
		return
	}
	c.kernel += n
	inner := c.names[from:]
	c.root = c.root || from == 0 || slices.ContainsFunc(c.kinds[from:], func(k stack.Kind) bool { return k != stack.KindKernel }) ||
		slices.ContainsFunc(inner, func(f string) bool { return !strings.HasPrefix(f, "[kernel] ") })
	if slices.ContainsFunc(inner, func(f string) bool {
		return slices.ContainsFunc(c.want, func(w string) bool { return strings.Contains(f, w) })
	}) {
		c.right += n
	} else {
		c.wrong = append(c.wrong, strings.Join(c.names, ";"))
	}
}

// recordInKernel records a run of inkernel.c.
func recordInKernel(t *testing.T, seconds string, o Options) (*trace.Recording, *inKernelLog) {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	if err := kernel.CheckSched(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	p := testprog.Start(t, testprog.Build(t, "c/inkernel", "O2"), seconds)
	p.Ready()
	l := &inKernelLog{}
	var err error
	if o.Selection, err = sampler.ParseSelection("all"); err != nil {
		t.Fatal(err)
	}
	o.Jitter = .5
	rec := recordWhole(t, p.PID, o, func(*Session) {
		p.Go()
		if err := json.Unmarshal([]byte(p.Line(`{"threads"`)), l); err != nil {
			t.Fatal(err)
		}
	})
	p.Go()
	if st := p.Wait(); !st.Success() {
		t.Fatalf("ended with %v: %q", st, p.Errors())
	}
	return rec, l
}

// TestKernelSamplesTruth: CPU samples of threads in the kernel have its functions above the program's, those of the call
// or page fault, in proportion to the CPU time that the program measured in its calls. A thread that makes no calls has
// none.
func TestKernelSamplesTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	rec, l := recordInKernel(t, "6", Options{Interval: 2 * time.Millisecond, Clock: true, Switches: &SwitchOptions{Need: true}})
	for _, lost := range rec.Switches.Lost {
		if strings.Contains(lost, "no kernel stacks") {
			testprog.Missing(t, "perf", lost)
		}
	}
	v := view.New(rec, view.Options{})
	for _, th := range l.Threads {
		x, ok := v.ByTID(th.TID)
		if !ok {
			t.Fatalf("%s is not in the view", th.Name)
		}
		c := &kernelCount{n: v.Names, want: map[string][]string{"random": {"getrandom"}, "zero": {"read_zero", "vfs_read"}, "faults": {"page_fault", "madvise"}}[th.Name]}
		v.Slices(x, c)
		share := float64(c.kernel) / float64(max(c.all, 1))
		t.Logf("%s: %d samples, %.1f%% in the kernel, %d of %d with its function; %d ms by samples, %d by the program", th.Name, c.all, 100*share, c.right, c.kernel, c.cpu/1e6, th.CPU/1e6)
		if c.all < 100 || c.root {
			t.Errorf("%s: %d samples; frames of the kernel below others: %v", th.Name, c.all, c.root)
		}
		if want := th.CPU; math.Abs(float64(c.cpu-want)) > .02*float64(want)+50e6 {
			t.Errorf("%s: %d ns of CPU time by samples, the thread used %d", th.Name, c.cpu, want)
		}
		switch th.Name {
		case "random", "zero":
			if share < .95 {
				t.Errorf("%s: %.1f%% of its samples are in the kernel", th.Name, 100*share)
			}
		case "mixed":
			want := float64(th.Calls) / float64(th.CPU)
			if d := math.Abs(share - want); d > .03+4.5*math.Sqrt(want*(1-want)/float64(c.all)) {
				t.Errorf("%s: %.1f%% of its samples are in the kernel, %.1f%% of its CPU time is in calls", th.Name, 100*share, 100*want)
			}
		case "spin":
			// Before it spins it waits for the others.
			if slices.ContainsFunc(c.wrong, func(s string) bool { return !strings.Contains(s, "pthread_barrier_wait") }) {
				t.Errorf("spin: %.1f%% of its samples are in the kernel: %q", 100*share, c.wrong)
			}
		}
		if c.want == nil {
			continue
		}
		if c.kernel == 0 || float64(c.right) < .95*float64(c.kernel) {
			slices.Sort(c.wrong)
			t.Errorf("%s: %d of %d samples in the kernel have its function; others: %q", th.Name, c.right, c.kernel, slices.Compact(c.wrong))
		}
	}
}
