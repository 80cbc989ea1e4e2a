package watch

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/trigger"
)

// DefaultMaxCPU returns the default limit of a recorder's CPU time, as a share of one CPU: 3 %, and on
// machines with few CPUs 0.6 % of each while all are busy. A server that uses all CPUs loses the
// recorder's time, plus up to half as much again by the disturbance. Time on an idle CPU costs nothing,
// so the limit at rest is 3 %. A control group with a quota is an exception, as idle CPUs say nothing
// about the quota.
func DefaultMaxCPU() (busy, rest float64) {
	// NumCPU includes affinity, GOMAXPROCS a control group's quota.
	cpus, quota := runtime.NumCPU(), runtime.GOMAXPROCS(0)
	busy = min(.03, .006*float64(min(cpus, quota)))
	if quota < cpus {
		return busy, busy
	}
	return busy, .03
}

// governor keeps the recorder's CPU time below a share of one CPU: if sampling at the configured
// interval costs more, it increases the interval. Its methods may be called from any goroutine.
type governor struct {
	base   time.Duration
	budget float64 // of one CPU; 0: no limit
	rest   float64 // the same while CPUs are idle

	mu       sync.Mutex
	now      time.Duration
	idle     bool    // the machine has idle CPUs
	takes    float64 // recent share of one CPU
	looks    int
	low      int       // consecutive looks with much less than the budget
	unsteady bool      // something other than sampling used CPU time since the last look
	passed   int       // consecutive looks skipped for that reason
	settled  time.Time // when the newest target's tables, maps and names have been read
}

const (
	// governEvery is the time between two looks: long enough for an average. At the start, when the
	// interval may be far off, looks are more frequent.
	governEvery = 2 * time.Second
	governSoon  = 500 * time.Millisecond
	soonLooks   = 8
	// mostStretch limits the stretch of the interval if a rule needs the samples; furthest returns the
	// limit if none does.
	mostStretch = 10
	farStretch  = 50
	// ofLimit is the minimum number of samples within a rule's time.
	ofLimit = 10
	// settling is how long a new target's first samples cost more than later ones: they read the tables
	// and names of each file seen for the first time.
	settling = 2 * time.Second
	// mostPassed limits how many looks are skipped because of dumps and new targets, whose CPU time
	// does not come from sampling.
	mostPassed = 5
	// lowLooks is how many consecutive low looks it takes to decrease the interval.
	lowLooks = 3
	// CPUs count as idle above the first share of them, and until the share falls below the second.
	idleFrom, idleUntil = .4, .25
)

// bound returns the current limit, as a share of one CPU.
func (g *governor) bound() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit()
}

func (g *governor) limit() float64 {
	if g.idle {
		return max(g.budget, g.rest)
	}
	return g.budget
}

// room sets the share of the machine's CPUs that was idle since the last look.
func (g *governor) room(idle float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = idle >= idleFrom || g.idle && idle >= idleUntil
}

// interval returns the current interval.
func (g *governor) interval() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// share returns the recorder's CPU share at the last look.
func (g *governor) share() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takes
}

// every returns the time until the next look.
func (g *governor) every() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.looks < soonLooks {
		return governSoon
	}
	return governEvery
}

// disturbed reports that CPU time is used for something other than samples.
func (g *governor) disturbed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsteady = true
}

// began reports that a target's first samples are about to be taken, or that a watch that costs more at first has begun.
func (g *governor) began() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsteady, g.settled = true, time.Now().Add(settling)
}

// furthest returns the longest interval with which the rules still work: ten times the configured
// interval, and up to fifty times if enough samples fall into the shortest time of a rule, and one
// between two checks of a thread's CPU time.
func furthest(base time.Duration, rules []*trigger.Rule) time.Duration {
	most := base * farStretch
	for _, r := range rules {
		if r.Limit > 0 {
			most = min(most, r.Limit/ofLimit)
		}
		if r.Kind == trigger.CPU && !r.Process {
			most = min(most, r.Every)
		}
	}
	return max(most, base*mostStretch)
}

// leastSamples is how many samples it takes to distinguish one call from several, in a handler that is
// rarely entered.
const leastSamples = 5

// blunt lists the rules that cannot detect events as short as configured with samples that far apart,
// each with what it can detect.
func blunt(d time.Duration, rules []*trigger.Rule) (out []string) {
	for _, r := range rules {
		switch least := leastSamples * d; {
		case (r.Kind == trigger.Stall || r.Kind == trigger.Slow) && r.Limit < least:
			out = append(out, fmt.Sprintf("%s from %v on", r, least))
		case r.Kind == trigger.CPU && !r.Process && r.Every < d:
			out = append(out, fmt.Sprintf("%s at checks %v apart", r, d))
		}
	}
	return out
}

// next returns the interval to use after a period in which the recorder took this share of a CPU. It
// assumes that the cost is proportional to the sampling rate; small changes are ignored.
func (g *governor) next(share float64, most time.Duration) (d time.Duration, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The look that ends after settling covers a time that partly precedes its end.
	if g.unsteady && g.passed < mostPassed {
		g.unsteady, g.passed = time.Now().Before(g.settled), g.passed+1
		return g.now, false
	}
	g.looks++
	g.unsteady, g.passed, g.takes = false, 0, share
	const grow, shrink, aim, least, over = 5, 2, .8, .6, .95 // of the budget; no change between least and over
	r := share / g.limit()
	d = g.now
	if r >= least {
		g.low = 0
	}
	switch {
	case r > over:
		d = time.Duration(float64(d) * min(r/aim, grow))
	case r < least && d > g.base:
		if g.low++; g.low >= lowLooks { // a short quiet period is not enough
			g.low = 0
			d = time.Duration(float64(d) * max(r/aim, 1./shrink))
		}
	}
	d = max(min(d.Round(g.base/20), most), g.base)
	changed = d != g.now && (d == g.base || d == most || max(d, g.now)-min(d, g.now) >= g.now/10)
	if changed {
		g.now = d
	}
	return g.now, changed
}

// govern sets the interval of all targets until ctx ends.
func (w *Watcher) govern(ctx context.Context) {
	g := &w.governor
	tick := time.NewTimer(g.every())
	defer tick.Stop()
	cpu, at := w.taken(), time.Now()
	free, all := target.IdleCPU()
	told := false
	dull := "" // the log message about blunt rules
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c, now := w.taken(), time.Now()
		share := float64(c-cpu) / float64(now.Sub(at))
		cpu, at = c, now
		f, a := target.IdleCPU()
		if a > all {
			g.room(float64(f-free) / float64(a-all))
		}
		free, all = f, a
		if w.count() == 0 { // only the search for targets uses CPU time, which no interval changes
			tick.Reset(governEvery)
			continue
		}
		rules, _ := w.current()
		was, most := g.interval(), furthest(g.base, rules)
		d, changed := g.next(share, most)
		tick.Reset(g.every())
		switch {
		case changed:
			w.space(d)
			w.log.Info("interval", "from", was, "to", d, "asked", g.base, "takes", inPercent(share), "limit", inPercent(g.bound()), "why", why(was, d, most))
			told = false
			now := strings.Join(blunt(d, rules), "; ")
			if now != dull && now != "" {
				w.log.Warn("the interval is too long for some triggers: they miss shorter events", "interval", d, "triggers", now)
			}
			dull = now
		case d == most && g.share() > g.bound()*1.2 && !told:
			w.log.Warn("samples are as far apart as they get, and still take more than they are to", "interval", d, "takes", inPercent(share), "limit", inPercent(g.bound()))
			told = true
		}
	}
}

func inPercent(share float64) string { return fmt.Sprintf("%.2f%%", share*100) }

// why explains a change of the interval.
func why(was, d, most time.Duration) string {
	switch {
	case d < was:
		return "samples cost less than they may"
	case d == most:
		return "sampling exceeds its limit; with a longer interval the triggers would miss events"
	}
	return "samples cost more than they may"
}

// space sets the sampling interval of all targets.
func (w *Watcher) space(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets {
		if f := t.flight.Load(); f != nil {
			_ = f.SetInterval(d) // it is in range
		}
	}
}

// taken returns the recorder's cost in ns: its own CPU time, plus the CPU time of stops or the time for
// which threads were stopped, whichever is more.
func (w *Watcher) taken() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	stops, held := w.past.stops, w.past.held
	for _, t := range w.targets {
		if f := t.flight.Load(); f != nil {
			stops, held = stops+f.StopCPU(), held+f.Held()
		}
	}
	return target.SelfCPU() - w.self + max(stops, held)
}
