package sampler

import (
	"github.com/sliverprof/sliver/stack"
)

// Limit bounds the CPU time that this program uses for samples of all Samplers that share it: their intervals
// grow together until it is kept. Other work, such as reading the files of a new process, has the weight that it
// has for Config.MaxOverhead. Methods may be called concurrently.
type Limit struct {
	share float64 // of one CPU
	from  int     // number of Samplers from which it applies
	v     governor

	// Guarded by v.mu.
	all    map[*Sampler]int64 // CPU time in ns that each had used for samples by the last check
	past   int64              // the same of Samplers that ended since
	own    int64              // CPU time of this program by the last check
	at     stack.Time         // of the last check
	came   stack.Time         // when the newest Sampler came
	passed int                // checks in a row that were left to its first samples
}

// fresh is how long, in ns, first samples cost more than later ones, and mostPassed how many checks in a row are
// left out for that: in a build, processes come all the time.
const (
	fresh      = 1_000_000_000
	mostPassed = 4
)

// NewLimit returns a Limit of a share of one CPU, nil if it is 0. It applies while at least from Samplers run.
func NewLimit(share float64, from int) *Limit {
	if share <= 0 {
		return nil
	}
	return &Limit{share: share, from: from, all: map[*Sampler]int64{}}
}

// factor returns the present factor on the chosen intervals. l may be nil.
func (l *Limit) factor() float64 {
	if l == nil {
		return 1
	}
	return l.v.factor()
}

// join begins to count s, and leave ends it. l may be nil.
func (l *Limit) join(s *Sampler) {
	if l == nil {
		return
	}
	l.v.mu.Lock()
	l.all[s], l.came = s.spent(), s.target.Now()
	l.v.mu.Unlock()
}

func (l *Limit) leave(s *Sampler) {
	if l == nil {
		return
	}
	l.v.mu.Lock()
	l.past += s.spent() - l.all[s]
	delete(l.all, s)
	l.v.mu.Unlock()
}

// check steers the intervals if that is due. Groups call it between two rounds. l may be nil.
func (l *Limit) check(s *Sampler, now stack.Time) {
	if l == nil || !l.v.isDue(s, now) {
		return
	}
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	applies := len(l.all) >= l.from
	if !applies && l.v.factor() == 1 {
		l.v.begun = false
		return
	}
	c, ok := s.target.Costs()
	if !ok {
		return
	}
	spent := l.past
	l.past = 0
	for x, was := range l.all {
		n := x.spent()
		spent += n - was
		l.all[x] = n
	}
	since, own := now-l.at, c.Own-l.own
	l.at, l.own = now, c.Own
	if !l.v.begun || since <= 0 {
		l.v.begun = true
		return
	}
	if now < l.came+fresh && l.passed < mostPassed {
		l.passed++
		return
	}
	l.passed = 0
	l.v.looked(now)
	load := l.load(own, spent, int64(since))
	if !applies {
		load = 0
	}
	l.v.steer(s, load, 0)
}

// load is the cost of ns since the last check, as a part of the bound: own is this program's CPU time, spent
// what of it was for samples.
func (l *Limit) load(own, spent, since int64) float64 {
	return (float64(spent) + politeWeight*float64(max(min(own-spent, spent), 0))) / float64(since) / l.share
}

// spent is the CPU time in ns that s has used for samples.
func (s *Sampler) spent() (ns int64) {
	for _, g := range s.groups {
		ns += g.breath.all.Load()
	}
	return ns
}

// factor returns the factor on the chosen interval that keeps all bounds.
func (s *Sampler) factor() float64 { return max(s.gov.factor(), s.cfg.Limit.factor()) }
