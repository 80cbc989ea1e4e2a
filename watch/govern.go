package watch

import (
	"context"
	"sync"
	"time"

	"github.com/sliverprof/sliver/target"
)

// governor keeps what the recorder itself takes of the CPUs below a share of one:
// where samples at the chosen interval cost more, they are taken further apart.
// Its methods may be called from any goroutine.
type governor struct {
	base   time.Duration
	budget float64 // of one CPU; 0: no bound

	mu       sync.Mutex
	now      time.Duration
	unsteady bool // something happened since the last look that is not sampling
	passed   int  // looks in a row that were passed over for that
}

const (
	// governEvery is how often it looks: long enough for an average.
	governEvery = 2 * time.Second
	// mostStretch bounds how much further apart samples get.
	mostStretch = 10
	// mostPassed bounds how long dumps and new targets, which cost CPU time of
	// another kind, can keep it from looking.
	mostPassed = 5
)

// interval is the one in force.
func (g *governor) interval() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// disturbed says that CPU time goes to something else than samples.
func (g *governor) disturbed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsteady = true
}

// next says at which interval to go on after a time in which the recorder used
// this share of a CPU. What it costs is taken to be in proportion to how often it
// samples; small changes are left out.
func (g *governor) next(share float64) (d time.Duration, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unsteady && g.passed < mostPassed {
		g.unsteady, g.passed = false, g.passed+1
		return g.now, false
	}
	g.unsteady, g.passed = false, 0
	const most, aim, least, over = 2, .8, .7, .9 // of the budget; between least and over it stays as it is
	r := share / g.budget
	d = g.now
	switch {
	case r > over:
		d = min(time.Duration(float64(d)*min(r/aim, most)), g.base*mostStretch)
	case r < least && d > g.base:
		d = max(time.Duration(float64(d)*max(r/aim, 1./most)), g.base)
	}
	d = d.Round(g.base / 20)
	changed = d != g.now && (d == g.base || max(d, g.now)-min(d, g.now) >= g.now/10)
	if changed {
		g.now = d
	}
	return g.now, changed
}

// govern sets the interval of all targets until ctx ends.
func (w *Watcher) govern(ctx context.Context) {
	tick := time.NewTicker(governEvery)
	defer tick.Stop()
	cpu, at := w.cpu(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c, now := w.cpu(), time.Now()
		share := float64(c-cpu) / float64(now.Sub(at))
		cpu, at = c, now
		was := w.governor.interval()
		d, changed := w.governor.next(share)
		if !changed {
			continue
		}
		w.log.Info("interval", "from", was, "to", d, "cpu", share, "limit", w.governor.budget)
		w.mu.Lock()
		for _, t := range w.targets {
			if f := t.flight.Load(); f != nil {
				_ = f.SetInterval(d) // it is in range
			}
		}
		w.mu.Unlock()
	}
}

// cpu is the CPU time in ns that the recorder has used, stops included.
func (w *Watcher) cpu() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := target.SelfCPU() - w.self + w.past.stops
	for _, t := range w.targets {
		if f := t.flight.Load(); f != nil {
			sum += f.StopCPU()
		}
	}
	return sum
}
