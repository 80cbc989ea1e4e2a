package live

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// BenchmarkRoutines looks at 10,000 goroutines that wait, with their stacks: a program
// is not stopped for it.
func BenchmarkRoutines(b *testing.B) {
	p := testprog.Start(b, testprog.Build(b, "go/routines", "default"), "-many", "10000")
	p.Line("{")
	tp, err := target.Open(p.PID)
	if err != nil {
		b.Fatal(err)
	}
	defer tp.Close()
	t, err := New(tp, nil)
	if err != nil {
		b.Fatal(err)
	}
	t.Preload()
	r := t.Routines()
	if r == nil {
		b.Fatal("no runtime of Go")
	}
	for _, part := range []string{"states", "stacks"} {
		b.Run(part, func(b *testing.B) {
			worst := time.Duration(0)
			for b.Loop() {
				begin := time.Now()
				n := 0
				if part == "states" {
					all, err := r.census.Goroutines(nil)
					if err != nil {
						b.Fatal(err)
					}
					n = len(all)
				} else {
					all, err := r.Tasks()
					if err != nil {
						b.Fatal(err)
					}
					n = len(all.List)
				}
				worst = max(worst, time.Since(begin))
				if n < 10_000 {
					b.Fatalf("%d goroutines", n)
				}
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
}
