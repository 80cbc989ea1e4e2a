package view_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// weights returns the CPU time of the samples of each Seen event of a thread.
func weights(rec *trace.Recording, v *view.View) (out []float64) {
	w, now := v.Weights(&v.Threads[0]), diff.Waiting{}
	for e := range rec.Events(v.Threads[0].Seq) {
		if e.Kind() == event.Seen {
			out = append(out, w.Of(e, now.Sampled()))
		} else {
			now.Apply(e)
		}
	}
	return append(out, w.Total(), float64(w.Unseen()))
}

// A view of all has the accounts of one whose range, from the first ns on, makes it read the events with other times:
// the times of changes do not matter to a range that no sample is in for a part only.
func TestAccountOfAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for n := range 40 {
		b := exporttest.New(t)
		th := b.Thread(1234, "main")
		at, cpu := int64(1*ms), int64(0)
		busy := rnd.Float64()
		for range 300 {
			l := exporttest.Look{At: at, CPU: cpu, State: stack.StateRunning, Stack: "main work:3"}
			switch {
			case rnd.Float64() > busy:
				l.State, l.Call, l.Stack, l.Way = stack.StateBlocked, 1, "main load:2", stack.WayRead
			case n%2 == 0:
				l.Way = stack.WayClock
			case rnd.IntN(10) == 0:
				l.State = stack.StateRunnable
			}
			th.Look(l)
			step := 1 + rnd.Int64N(10*ms)
			at, cpu = at+step, cpu+int64(float64(step)*busy*rnd.Float64())
		}
		rec := b.Finish(at)
		all, ranged := weights(rec, view.New(rec, view.Options{})), weights(rec, view.New(rec, view.Options{From: 1}))
		if len(all) < 5 || all[len(all)-2] <= 0 {
			t.Fatalf("%d samples, %.0f ns", len(all), all[len(all)-2])
		}
		for i := range all {
			if all[i] != ranged[i] {
				t.Fatalf("recording %d: sample %d of %d has %.1f ns of CPU time, with a range %.1f", n, i, len(all), all[i], ranged[i])
			}
		}
	}
}
