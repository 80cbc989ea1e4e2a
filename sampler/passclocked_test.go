package sampler

import (
	"math"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// clockForeseer is a clockEngine that runs ticks without items ahead.
type clockForeseer struct {
	*clockEngine
	due int // ticks that it woke for
}

func (tr *clockForeseer) Can() Abilities { return Abilities{Stops: true, Ahead: true} }

func (tr *clockForeseer) GoAhead(a *Ahead) bool {
	a.At, a.Ticks, a.Done, a.Stops, a.Err, a.Asleep = a.At[:0], 0, 0, 0, nil, false
	if !a.watches() {
		return false
	}
	for i, due := range a.Due {
		if tr.now >= tr.f.until {
			tr.SleepUntil(due) // until a wake
			break
		}
		if tr.now = max(tr.now, due); tr.now >= a.End[i] {
			break
		}
		a.At = append(a.At, tr.now)
		a.Ticks++
		tr.due++
	}
	return true
}

// A thread with a clock that hardly sleeps is looked at each few ticks only, also if the kernel adds up its CPU time in
// steps, and if it shares its CPU. Its samples are as many as those of all ticks, and a thread that sleeps loses none.
func TestPassClocked(t *testing.T) {
	const d, ticks, ms = 60 * time.Second, 6000, 1_000_000
	for _, c := range []struct {
		name              string
		burst, queue, nap int64
		least, most       float64 // looks at the thread a tick
	}{
		{"always on a CPU", 40 * ms, 0, 0, .1, .3},
		{"shares its CPU", 44 * ms, 4 * ms, 0, .1, .3},
		{"has half of a CPU", 8 * ms, 8 * ms, 0, .4, 1.1},
		{"sleeps now and then", 44 * ms, 0, 4 * ms, .9, math.MaxFloat64},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := worker(c.burst, c.queue, c.nap)
			exact := th.at
			th.at = func(now stack.Time) (Counters, bool, stack.State) {
				known, _, _ := exact(now - now%(4*ms)) // the kernel's step
				x, running, st := exact(now)
				if c.nap == 0 && known.Switches == x.Switches {
					x.CPU = known.CPU
				}
				return x, running, st
			}
			f := &fakeTarget{threads: []*fakeThread{th.fakeThread}, until: stack.Time(d), open: func(stack.TID) Thread { return th }}
			var tr *clockForeseer
			target := &foreseenTarget{clockTarget{f, clockSpace()}, func(e *clockForeseer) {
				if tr == nil {
					tr = e
				}
			}}
			_, sinks, acc := sampleTarget(t, f, target, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true})
			if looks := float64(th.looks) / ticks; looks < c.least || looks > c.most {
				t.Errorf("%.2f looks a tick, want %.2f to %.2f", looks, c.least, c.most)
			}
			if c.nap == 0 && tr.due > ticks*2/3 {
				t.Errorf("%d wake-ups for the list of threads, want at most two in three of %d ticks", tr.due, ticks)
			}
			n := map[stack.State]float64{}
			for _, s := range sinks[1].samples {
				n[s.State]++
			}
			sum := float64(c.burst + c.queue + c.nap)
			for _, x := range []struct {
				st       stack.State
				want, by float64
			}{
				{stack.StateRunning, float64(c.burst) / sum, .08}, // each newly drawn period starts over
				{stack.StateRunnable, float64(c.queue) / sum, .02}, {stack.StateBlocked, float64(c.nap) / sum, .02},
			} {
				if got := n[x.st] / ticks; math.Abs(got-x.want) > x.by+4.5*math.Sqrt(x.want*(1-x.want)/ticks) {
					t.Errorf("%.1f%% of the ticks are %v, want %.1f%%", 100*got, x.st, 100*x.want)
				}
			}
			if a := acc[1]; a.Late > 0 {
				t.Errorf("%d ticks are late", a.Late)
			}
		})
	}
}

type foreseenTarget struct {
	clockTarget
	made func(*clockForeseer)
}

func (t *foreseenTarget) Engine(n int) (Engine, error) {
	e, err := t.clockTarget.Engine(n)
	tr := &clockForeseer{clockEngine: e.(*clockEngine)}
	t.made(tr)
	return tr, err
}
