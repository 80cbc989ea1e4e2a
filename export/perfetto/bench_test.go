package perfetto

import (
	"io"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

func BenchmarkWrite(b *testing.B) {
	const n = 1_000_000
	rec := exporttest.Big(b, n, 4)
	events := uint64(0)
	for i := range rec.Threads {
		events += rec.Count(rec.Threads[i].Seq)
	}
	b.ReportAllocs()
	b.ResetTimer()
	raw := int64(0)
	var c count
	for b.Loop() {
		c = 0
		var err error
		if raw, err = write(&c, rec, view.Options{}, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
	b.ReportMetric(float64(raw)/float64(events), "B/event")
	b.ReportMetric(float64(c)/float64(events), "zB/event")
}

type count int64

func (c *count) Write(p []byte) (int, error) { *c += count(len(p)); return len(p), nil }

var _ io.Writer = (*count)(nil)
