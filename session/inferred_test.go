package session

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// For a lock without an owner, the thread that released it must be inferred from the
// recording, marked as inferred, and match the program's own log.
func TestInferredTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	const interval = 2 * time.Millisecond
	var inferred, right, wrong, facts int
	for try := 0; try == 0 || try < tries && (inferred < 10 || (wrong-1)*50 > inferred); try++ {
		inferred, right, wrong, facts = 0, 0, 0, 0
		rec, log := recordTurns(t, testprog.Build(t, "locks/rustturns", "release"), interval, "mutex", "3", "1", "16000")
		v := view.New(rec, view.Options{})
		c := contend.Of(v)
		for i := range c.Waits {
			w := &c.Waits[i]
			if w.Cut || c.Locks[w.Lock].Addr != log.lock || w.Holder == 0 {
				continue
			}
			if w.By != event.KnownByInferred {
				facts++
				continue
			}
			inferred++
			// The thread released the lock while the wait ended.
			from, to := w.End-stack.Time(w.Edge)-stack.Time(2*interval), w.End+stack.Time(2*interval)
			ok := false
			for _, h := range log.holds {
				ok = ok || h.tid == w.Holder && h.to >= from && h.to <= to
			}
			if ok {
				right++
			} else {
				wrong++
			}
		}
		t.Logf("%d waits, %d with an inferred holder: right %d, wrong %d; %d shown as facts", len(c.Waits), inferred, right, wrong, facts)
	}
	if facts != 0 {
		t.Errorf("%d holders of a lock that keeps none are shown as facts", facts)
	}
	if inferred < 10 {
		t.Errorf("only %d holders inferred", inferred)
	}
	if (wrong-1)*50 > inferred { // one is allowed
		t.Errorf("%d of %d inferred holders are wrong", wrong, inferred)
	}
}
