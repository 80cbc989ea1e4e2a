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

// DefaultMaxCPU is what a recorder takes at most if nobody says it, as a share of one
// CPU: 3 %, and where few CPUs are all in use 0.6 % of each. A server that wants them all lacks what is
// taken there, and what it loses by being disturbed is up to half as much again. What is
// taken of a CPU that is idle nobody lacks: at rest it is 3 %, but where a control group
// has a quota, of which idle CPUs say nothing.
func DefaultMaxCPU() (busy, rest float64) {
	// Affinity is in the first of them, a control group's quota in the other.
	cpus, quota := runtime.NumCPU(), runtime.GOMAXPROCS(0)
	busy = min(.03, .006*float64(min(cpus, quota)))
	if quota < cpus {
		return busy, busy
	}
	return busy, .03
}

// governor keeps what the recorder takes of the CPUs below a share of one: where
// samples at the chosen interval cost more, they are taken further apart.
// Its methods may be called from any goroutine.
type governor struct {
	base   time.Duration
	budget float64 // of one CPU; 0: no bound
	rest   float64 // the same while CPUs are idle

	mu       sync.Mutex
	now      time.Duration
	idle     bool    // there are CPUs that nobody wants
	takes    float64 // share of one CPU, of late
	looks    int
	low      int       // looks in a row with much less than the budget
	unsteady bool      // something happened since the last look that is not sampling
	passed   int       // looks in a row that were passed over for that
	settled  time.Time // when the newest target's tables, maps and names have been read
}

const (
	// governEvery is how often it looks: long enough for an average. At its beginning,
	// where it may have far to go, it looks more often.
	governEvery = 2 * time.Second
	governSoon  = 500 * time.Millisecond
	soonLooks   = 8
	// mostStretch bounds how much further apart samples get, where a rule needs them;
	// furthest, where none does: see furthest.
	mostStretch = 10
	farStretch  = 50
	// ofLimit is how many samples at least fall into the time that a rule has.
	ofLimit = 10
	// settling is how long a new target's first samples take to be like those that follow:
	// they read the tables and names of each file that is met for the first time.
	settling = 2 * time.Second
	// mostPassed bounds how long dumps and new targets, which cost CPU time of
	// another kind, can keep it from looking.
	mostPassed = 5
	// lowLooks is how often in a row it has to take little for samples to come closer.
	lowLooks = 3
	// CPUs count as idle from this share of them on, and until they fall below the other.
	idleFrom, idleUntil = .4, .25
)

// bound is what it may take now, as a share of one CPU.
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

// room says which share of the machine's CPUs was idle since the last look.
func (g *governor) room(idle float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = idle >= idleFrom || g.idle && idle >= idleUntil
}

// interval is the one in force.
func (g *governor) interval() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// share is what the recorder took at the last look.
func (g *governor) share() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takes
}

// every is when to look next.
func (g *governor) every() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.looks < soonLooks {
		return governSoon
	}
	return governEvery
}

// disturbed says that CPU time goes to something else than samples.
func (g *governor) disturbed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsteady = true
}

// began says that a target's first samples are about to be taken.
func (g *governor) began() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsteady, g.settled = true, time.Now().Add(settling)
}

// furthest is how far apart samples may be, so that the rules can still tell what they
// are to: ten times the interval asked for, and up to fifty times if as many samples fall into
// the shortest time that a rule has, and one between two checks of a thread's CPU time.
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

// leastSamples is how many it takes to tell one call from several, in a handler that is
// entered rarely.
const leastSamples = 5

// blunt are the rules that cannot tell what lasts no longer than they say, of samples so
// far apart: each with what they do tell.
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

// next says at which interval to go on after a time in which the recorder took
// this share of a CPU. What it costs is taken to be in proportion to how often it
// samples; small changes are left out.
func (g *governor) next(share float64, most time.Duration) (d time.Duration, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The look that ends after the settling is of a time that was, in part, before its end.
	if g.unsteady && g.passed < mostPassed {
		g.unsteady, g.passed = time.Now().Before(g.settled), g.passed+1
		return g.now, false
	}
	g.looks++
	g.unsteady, g.passed, g.takes = false, 0, share
	const grow, shrink, aim, least, over = 5, 2, .8, .6, .95 // of the budget; between least and over it stays as it is
	r := share / g.limit()
	d = g.now
	if r >= least {
		g.low = 0
	}
	switch {
	case r > over:
		d = time.Duration(float64(d) * min(r/aim, grow))
	case r < least && d > g.base:
		if g.low++; g.low >= lowLooks { // a moment's rest is no reason
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
	dull := "" // what the log says of blunt rules
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
		if w.count() == 0 { // it takes what the search for targets does, which no interval changes
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
				w.log.Warn("samples are too far apart for some triggers: they tell only what lasts longer", "interval", d, "triggers", now)
			}
			dull = now
		case d == most && g.share() > g.bound()*1.2 && !told:
			w.log.Warn("samples are as far apart as they get, and still take more than they are to", "interval", d, "takes", inPercent(share), "limit", inPercent(g.bound()))
			told = true
		}
	}
}

func inPercent(share float64) string { return fmt.Sprintf("%.2f%%", share*100) }

// why says what a change of the interval is for.
func why(was, d, most time.Duration) string {
	switch {
	case d < was:
		return "samples cost less than they may"
	case d == most:
		return "samples cost more than they may; further apart the triggers could not tell"
	}
	return "samples cost more than they may"
}

// space has all targets sampled at an interval.
func (w *Watcher) space(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets {
		if f := t.flight.Load(); f != nil {
			_ = f.SetInterval(d) // it is in range
		}
	}
}

// taken is what the recorder has taken of CPUs, in ns: what it used, stops included,
// and of stops the time for which threads were held, if that is more.
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
