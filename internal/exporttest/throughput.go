package exporttest

import (
	"io"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Throughput measures how many events per second a format writes.
func Throughput(b *testing.B, write func(io.Writer, *trace.Recording, view.Options) error) {
	b.Helper()
	rec := Big(b, 1_000_000, 4)
	events := uint64(0)
	for i := range rec.Threads {
		events += rec.Count(rec.Threads[i].Seq)
	}
	var n counter
	b.ReportAllocs()
	for b.Loop() {
		n = 0
		if err := write(&n, rec, view.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
	b.ReportMetric(float64(n)/float64(events), "B/event")
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
