package target

import (
	"fmt"
	"math"
	"testing"
)

// BenchmarkSnapshot copies processes of some sizes, and reports the shortest time that one was stopped for: by its own
// clock, and by Snapshot.Frozen. Where nothing else runs that is 5 ms and 20 ms for each GB in small pages at most.
func BenchmarkSnapshot(b *testing.B) {
	for _, c := range []struct {
		mb    int
		pages string
	}{{16, "small"}, {512, "small"}, {1024, "small"}, {1024, "huge"}} {
		b.Run(fmt.Sprintf("%dMB/%s", c.mb, c.pages), func(b *testing.B) {
			args := []string{fmt.Sprint(c.mb)}
			if c.pages == "huge" {
				args = append(args, "huge")
			}
			prog := start(b, build(b, "testdata/stopwatch.c"), args...)
			prog.line()
			p := openProcess(b, prog.pid())
			own, frozen := math.Inf(1), math.Inf(1)
			for b.Loop() {
				prog.tell("forget what was before")
				prog.line()
				s := snapshot(b, p, SnapshotOptions{})
				prog.tell("and now")
				own, frozen = min(own, float64(atoi(b, prog.line()))), min(frozen, float64(s.Frozen))
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(own/1e6, "ms-own-clock")
			b.ReportMetric(frozen/1e6, "ms-frozen")
		})
	}
}
