package session

import (
	"strconv"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// TestUnsampledThreads: of a process whose threads come and go, the recording has all CPU time of the process, and says how much of it
// is of no thread.
func TestUnsampledThreads(t *testing.T) {
	testprog.Need(t, "ptrace")
	prog := testprog.Start(t, testprog.Build(t, "c/churn", "O2"), "--live", "2", "--seconds", "3600")
	p, err := target.Open(prog.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	used := func() int64 {
		ns, ok := p.CPU()
		if !ok {
			t.Fatal("no CPU time of the process")
		}
		return ns
	}
	before := used()
	var least int64
	rec := recordWhole(t, prog.PID, Options{Interval: 10 * time.Millisecond}, func(*Session) {
		from := used()
		await(t, "half a second of CPU time", func() bool { return used() > from+5e8 })
		least = used() - from
	})
	most := used() - before
	if ns := rec.Stats.CPU; ns < least || ns > most {
		t.Errorf("%d ns of CPU time, and it used %d to %d", ns, least, most)
	}
	if rec.CPU() < rec.Stats.CPU {
		t.Errorf("the recording's CPU time is %d ns, by the kernel %d", rec.CPU(), rec.Stats.CPU)
	}
	v := view.New(rec, view.Options{})
	if missing := trace.Unsampled(rec.Stats.CPU, rec.Stats.Total().CPUNS, rec.Process.Interval); v.Unsampled() != missing {
		t.Errorf("%d ns are of no thread, want %d", v.Unsampled(), missing)
	}
	only, err := sampler.ParseSelection(strconv.Itoa(prog.PID))
	if err != nil {
		t.Fatal(err)
	}
	part := recordWhole(t, prog.PID, Options{Interval: 10 * time.Millisecond, Selection: only}, func(*Session) {})
	if part.Stats.CPU != 0 {
		t.Errorf("of one thread: %d ns of CPU time of the whole process", part.Stats.CPU)
	}
}
