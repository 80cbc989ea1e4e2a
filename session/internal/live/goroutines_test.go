package live

import (
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/lang/golang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
)

// routines starts a program with waiting goroutines and returns its Target.
func routines(tb testing.TB, variant, many string) *Target {
	tb.Helper()
	p := testprog.Start(tb, testprog.Build(tb, "go/routines", variant), "-many", many)
	p.Line("{")
	tp, err := target.Open(p.PID)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tp.Close() })
	t, err := New(tp, nil)
	if err != nil {
		tb.Fatal(err)
	}
	t.Preload()
	return t
}

// TestRoutines: a cached stack, recognized by its return addresses, must equal the
// result of a walk. The same must hold for many goroutines, which two readers share.
func TestRoutines(t *testing.T) {
	testprog.Need(t, "ptrace")
	const many = 2 * fewStacks
	live := routines(t, "default", strconv.Itoa(many))
	r := live.Routines()
	if r == nil {
		t.Fatal("no runtime of Go")
	}
	all, err := r.Look()
	if err != nil {
		t.Fatal(err)
	}
	w := unwind.NewWalker(live.space)
	same, deep := 0, 0
	for i := range all {
		g := &all[i]
		if g.Status != gopcln.GoWaiting || g.ID == 1 {
			continue // it may have run
		}
		want, reason := golang.Walk(w, &g.Goroutine)
		if reason != stack.ReasonNone || g.Reason != stack.ReasonNone || g.Stack < 0 {
			t.Fatalf("goroutine %d: stack %d ends with %v, a walk with %v", g.ID, g.Stack, g.Reason, reason)
		}
		got := r.Stacks[g.Stack]
		if !slices.EqualFunc(got, want, func(a, b stack.Frame) bool { b.CFA = 0; return a == b }) {
			t.Fatalf("goroutine %d: %v, a walk finds %v", g.ID, got, want)
		}
		same++
		deep = max(deep, len(got))
	}
	if same < many || deep < 200 || len(r.Stacks) > 40 {
		t.Errorf("%d goroutines with %d stacks, the deepest of %d frames", same, len(r.Stacks), deep)
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkRoutines samples 10,000 waiting goroutines: only their states, with their stacks, and
// with everything that only the first look does. The program is not stopped.
func BenchmarkRoutines(b *testing.B) {
	t := routines(b, "default", "10000")
	r := t.Routines()
	if r == nil {
		b.Fatal("no runtime of Go")
	}
	for _, part := range []string{"states", "stacks", "first"} {
		b.Run(part, func(b *testing.B) {
			var took, cpu []time.Duration
			for b.Loop() {
				if part == "first" {
					r = t.Routines()
				}
				begin, used := time.Now(), cpuTime(b)
				n, err := 0, error(nil)
				if part == "states" {
					if _, r.which, err = r.census.Read(r.which[:0]); err != nil {
						b.Fatal(err)
					}
					n = len(r.census.ByID(nil))
				} else {
					all, err := r.Tasks()
					if err != nil {
						b.Fatal(err)
					}
					n = len(all.List)
				}
				took, cpu = append(took, time.Since(begin)), append(cpu, cpuTime(b)-used)
				if n < 10_000 {
					b.Fatalf("%d goroutines", n)
				}
			}
			slices.Sort(took)
			slices.Sort(cpu)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(cpu[len(cpu)/2].Microseconds())/1000, "p50-cpu-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms")
		})
	}
}
