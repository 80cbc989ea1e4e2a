package live

import (
	"io"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind/meter"
)

// BenchmarkSpentWalk reads as much of another process as one walk may: in the most
// expensive reads, and in the largest ones.
func BenchmarkSpentWalk(b *testing.B) {
	p := testprog.Start(b, testprog.Build(b, "locks/pthread", "O2"), "cond")
	p.Line("{")
	proc, err := target.Open(p.PID)
	if err != nil {
		b.Fatal(err)
	}
	defer proc.Close()
	tg, err := New(proc, nil)
	if err != nil {
		b.Fatal(err)
	}
	at := int64(0)
	for _, m := range tg.Maps() {
		if m.Exec && m.End-m.Start >= 1<<20 { // the C library's code
			at = int64(m.Start)
			break
		}
	}
	for _, x := range []struct {
		name string
		size int
	}{{"128B", 128}, {"64KiB", 64 << 10}} {
		b.Run(x.name, func(b *testing.B) {
			var m meter.Meter
			buf := make([]byte, x.size)
			for b.Loop() {
				m.Begin((*memory)(tg), &meter.Credit{})
				for i := int64(0); ; i++ {
					if n, err := m.ReadAt(buf, at+i*4096%(512<<10)); err == meter.ErrSpent {
						break
					} else if n < len(buf) || err != nil && err != io.EOF {
						b.Fatal(n, err)
					}
				}
				if m.Reads != meter.Budget/max(x.size, meter.LeastRead) {
					b.Fatalf("%d bytes in %d reads", m.Bytes, m.Reads)
				}
			}
			b.ReportMetric(float64(m.Reads), "reads")
		})
	}
}
