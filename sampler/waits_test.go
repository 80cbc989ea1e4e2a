package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// slowWaits is a Waits that takes long for every answer.
type slowWaits struct {
	takes stack.Time
	looks map[stack.TID]int
	early int        // looks before the thread ran again, or before its sample was written
	last  stack.Time // earliest time that an event may have
	lates int
	order int // of these, calls that may put an event before an earlier one
	bare  int // threads without a stack at their first look
}

func (w *slowWaits) Look(th Thread, in *stack.ThreadInfo, g *Glance, to Sink) {
	if w.looks[in.TID]++; w.looks[in.TID] == 1 && len(g.Frames) == 0 {
		w.bare++
	}
	tr := th.(*fakeThread).tr
	s := g.Sample
	if s.Way == stack.WayStop && tr.now < s.Begin+stack.Time(s.Pause) {
		w.early++
	}
	to.Event(s.Time, event.Wait, 1)
	tr.now += w.takes
	w.last = tr.now
}

func (w *slowWaits) Late(since, until stack.Time) {
	w.lates++
	if since < w.last || until <= since {
		w.order++
	}
}

func (w *slowWaits) Forget(stack.TID) {}
func (w *slowWaits) Busy() bool       { return false }
func (w *slowWaits) Close()           {}

// answers is a Waits that is busy as often as said.
type answers struct {
	slowWaits
	busy, asked int
}

func (a *answers) Busy() bool {
	a.asked++
	return a.asked <= a.busy
}

// Waits that are not busy are not asked again before the next Look.
func TestWaitsBusy(t *testing.T) {
	a := &answers{busy: 2}
	w := waiting{of: a}
	for i, want := range []bool{true, true, false, false, false} {
		if got := w.busy(); got != want || a.asked != min(i+1, 3) {
			t.Errorf("call %d: %v after %d questions", i, got, a.asked)
		}
	}
	g := &group{s: &Sampler{}, engine: &fakeEngine{}, waits: w}
	th := newThread(stack.ThreadInfo{TID: 1}, &fakeThread{tr: &fakeEngine{}}, &memorySink{})
	th.seen.state = stack.StateRunning
	a.looks = map[stack.TID]int{}
	if g.tellWait(th); g.waits.idle {
		t.Error("still idle after a Look")
	}
}

// Resolving waits stops no blocked thread, and happens after the stop of a running one. However
// long it takes, stops stay as short as without it, rounds stay in time, and each thread gets its
// turn.
func TestWaitsCostNoStop(t *testing.T) {
	const cost = 30_000
	pauses := map[bool]int64{}
	for _, asked := range []bool{false, true} {
		busy := running(cost)
		busy.tid = 4 // the main thread has its own group and clock
		f := &fakeTarget{threads: []*fakeThread{busy, blocked(2), blocked(3)}, until: 1000 * ms}
		var all []*slowWaits // one for each group
		cfg := Config{Interval: 10 * time.Millisecond}
		if asked {
			cfg.Waits = func(func()) Waits {
				w := &slowWaits{takes: ms, looks: map[stack.TID]int{}}
				all = append(all, w)
				return w
			}
		}
		sinks, acc := sample(t, f, cfg)
		for _, a := range acc {
			switch a.TID {
			case 4:
				pauses[asked] = a.PauseNS / int64(max(a.Stops, 1))
				if a.Stops < 90 {
					t.Errorf("asked %v: %d stops of the running thread", asked, a.Stops)
				}
			default:
				if a.Stops != 0 || a.Samples < 90 {
					t.Errorf("asked %v: blocked thread %d was stopped %d times in %d samples", asked, a.TID, a.Stops, a.Samples)
				}
			}
		}
		looks, early := map[stack.TID]int{}, 0
		for _, w := range all {
			early += w.early
			if w.lates < 90 && len(w.looks) > 0 || w.order != 0 {
				t.Errorf("asked %d times for what comes late, %d times for events before others", w.lates, w.order)
			}
			for tid, n := range w.looks {
				looks[tid] += n
			}
		}
		if asked && (looks[4] < 50 || looks[2] < 40 || looks[3] < 40 || early != 0) {
			t.Errorf("looks %v, %d of them early", looks, early)
		}
		if n := len(sinks[2].samples); n < 90 {
			t.Errorf("asked %v: %d samples", asked, n)
		}
	}
	if pauses[true] != pauses[false] || pauses[true] != cost {
		t.Errorf("a stop takes %d ns, with waits asked for %d ns", pauses[false], pauses[true])
	}
}

// If a round has no time to resolve a thread's wait, a later one does, with the thread's stack,
// even if the thread has not run since.
func TestWaitsLeftOut(t *testing.T) {
	f := &fakeTarget{threads: []*fakeThread{blocked(2), blocked(3), blocked(4), blocked(5), blocked(6)}, until: 500 * ms}
	w := &slowWaits{takes: ms, looks: map[stack.TID]int{}}
	sample(t, f, Config{Interval: 10 * time.Millisecond, Waits: func(func()) Waits { return w }})
	if len(w.looks) != 5 || w.bare != 0 {
		t.Errorf("%d of 5 threads looked at, %d without their stack", len(w.looks), w.bare)
	}
}
