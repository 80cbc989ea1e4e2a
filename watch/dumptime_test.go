package watch

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
)

// A dump of 64 busy threads is on disk within 300 ms, with its names, and costs
// no sample: of the ticks while dumps are made, no more are late than before.
// SLIVER_LONG=1: of 30 seconds; else of a few. Where other work keeps the machine
// busy the times say nothing; they are held against the limit in the long form.
func TestDumpInTime(t *testing.T) {
	testprog.Need(t, "ptrace")
	lasts, long := 3*time.Second, os.Getenv("SLIVER_LONG") != ""
	if long {
		lasts = 32 * time.Second
	}
	p := testprog.Start(t, testprog.Build(t, "c/requests", "O2"), "64", "12600")
	r := begin(t, fixed(t, p.PID), func(o *Options) { o.Session.Groups = 5 })
	r.samples(1)
	r.until("for so long a time to be kept", func(s *control.Status) bool { return time.Since(s.Targets[0].Since) > lasts })
	count := func() (all, late uint64) {
		s := r.Status().Targets[0]
		return s.Samples + s.Late, s.Late
	}
	all0, late0 := count()
	const times = 5
	var took []float64
	begin := time.Now()
	for range times {
		ds, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := ds[0]
		if d.Threads != 65 || d.Seconds < lasts.Seconds()-2.5 || long && d.Seconds < 29 {
			t.Errorf("a dump of %d threads and %.1f s", d.Threads, d.Seconds)
		}
		took = append(took, d.Named)
		open(t, d.Files[0])
		r.samples(r.Status().Targets[0].Samples + 65*8)
	}
	all1, late1 := count()
	slices.Sort(took)
	before, during := share(late0, all0), share(late1-late0, all1-all0)
	t.Logf("%d bytes of rings: whole after %.1f ms (median; %.1f to %.1f); late before %.2f%%, in the %v of dumps %.2f%%",
		r.Status().Targets[0].Bytes, took[times/2], took[0], took[times-1], before, time.Since(begin).Round(time.Millisecond), during)
	if long && (took[times/2] > 300 || during > before+2) {
		t.Error("a dump takes too long, or costs samples")
	}
}

// share is in percent.
func share(part, of uint64) float64 { return 100 * float64(part) / float64(max(of, 1)) }
