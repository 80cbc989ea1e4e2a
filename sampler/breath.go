package sampler

import "github.com/sliverprof/sliver/stack"

// Groups run before all other work where they have the right to. If they had more to do
// than the CPUs can, nothing else of this program would run: not what writes the file, nor
// what takes a signal. So all groups together work at most for breathShare of the time of
// all CPUs; a group that has used its part sleeps in the middle of its round, and ticks
// that pass meanwhile are late.
const (
	breathShare = .75
	// breathAfter is for how long, in ns of CPU time, a group may work on credit.
	breathAfter = 5_000_000
	// breathEach is how far apart, in ns, a group reads its CPU time.
	breathEach = 1_000_000
)

// SpentTracer is an optional interface of a Tracer.
type SpentTracer interface {
	// Spent is the CPU time, in ns, of the calling OS thread and of all that stops
	// threads for it.
	Spent() int64
}

// breath is a group's account of that.
type breath struct {
	tracer SpentTracer // nil: it is not known
	at     stack.Time  // when it was brought up to date
	spent  int64       // as of then
	debt   float64     // ns of work
}

// restShare is for how long a group has to sleep for each ns of work; 0: it need not.
func (s *Sampler) restShare() float64 {
	return max(float64(s.working.Load())/(breathShare*float64(s.cpus))-1, 0)
}

// account brings the account up to date: what the group did not work, it slept.
func (g *group) account(now stack.Time) (rest float64) {
	b := &g.breath
	spent := b.tracer.Spent()
	worked, all := float64(spent-b.spent), float64(now-b.at)
	b.spent, b.at = spent, now
	g.spentAll.Store(spent)
	rest = g.s.restShare()
	if rest == 0 {
		b.debt = 0
		return 0
	}
	b.debt = max(b.debt+worked-max(all-worked, 0)/rest, 0)
	return rest
}

// breathe sleeps if the group has worked too much of late.
func (g *group) breathe() {
	b := &g.breath
	if b.tracer == nil {
		return
	}
	now := g.tracer.Now()
	if now-b.at < breathEach {
		return
	}
	if rest := g.account(now); b.debt > breathAfter && g.hosted == nil {
		until := now + stack.Time(b.debt*rest)
		if end := stack.Time(g.s.end.Load()); end > 0 {
			until = min(until, end)
		}
		g.tracer.SleepUntil(until)
	}
}
