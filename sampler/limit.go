package sampler

import (
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// Limit bounds the CPU time that this program uses for samples of all Samplers that share it: their intervals
// grow together until it is kept. Other work, such as reading the files of a new process, has the weight that it
// has for Config.MaxOverhead. Methods may be called concurrently.
//
// While CPUs are idle, samples displace little, and Bounds.Share alone applies. While no CPU is idle, whatever this
// program uses is taken from others, so its work and the time of stops are also bounded by Bounds.Busy.
type Limit struct {
	b    Bounds
	v    governor
	size atomic.Int32  // of all
	full atomic.Uint64 // checks while no CPU was idle that found more than Bounds.Busy

	// Guarded by v.mu.
	all    map[*Sampler]used // by the last check
	past   used              // of Samplers that ended since the last check
	own    int64             // CPU time of this program by the last check
	at     stack.Time        // of the last check
	came   stack.Time        // when the newest Sampler came
	passed int               // checks in a row that were left to its first samples

	idleTicks, ticks uint64 // of all CPUs, by the last check
}

// Bounds are those of a Limit.
type Bounds struct {
	Share float64 // of one CPU, for samples
	Busy  float64 // while no CPU is idle: of the CPU time that the targets use, for samples and stops; 0: no such bound
	From  int     // number of Samplers from which they apply
}

// moreNaps is how often the longest nap of threads that hardly run may be doubled before intervals grow.
const moreNaps = 2

// leastBusy is the least bound while no CPU is idle, as a share of one CPU: targets that sleep use next to nothing.
const leastBusy = .01

// used are sums of one Sampler, in ns.
type used struct {
	asleep, awake int64 // number of looks at threads that slept, and at others

	spent int64 // CPU time for samples
	held  int64 // time of stops
	ran   int64 // CPU time of the target's threads that are sampled
}

func (u *used) add(now, was used) {
	u.asleep += now.asleep - was.asleep
	u.awake += now.awake - was.awake
	u.spent += now.spent - was.spent
	u.held += now.held - was.held
	u.ran += now.ran - was.ran
}

// fresh is how long, in ns, first samples cost more than later ones, and mostPassed how many checks in a row are
// left out for that: in a build, processes come all the time.
const (
	fresh      = 1_000_000_000
	mostPassed = 4
)

// NewLimit returns a Limit, nil if b.Share is 0.
func NewLimit(b Bounds) *Limit {
	if b.Share <= 0 {
		return nil
	}
	return &Limit{b: b, all: map[*Sampler]used{}}
}

// napMost returns the longest nap level of a thread that hardly runs. l may be nil.
func (l *Limit) napMost() int {
	if l == nil {
		return napMost
	}
	return napMost + int(min(l.v.napLeast.Load(), moreNaps))
}

// many reports whether more than fewSleep Samplers share l: most of their threads sleep. l may be nil.
func (l *Limit) many() bool { return l != nil && l.size.Load() > fewSleep }

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
	l.all[s], l.came = s.used(), s.target.Now()
	l.size.Store(int32(len(l.all)))
	l.v.mu.Unlock()
}

func (l *Limit) leave(s *Sampler) {
	if l == nil {
		return
	}
	l.v.mu.Lock()
	l.past.add(s.used(), l.all[s])
	delete(l.all, s)
	l.size.Store(int32(len(l.all)))
	l.v.mu.Unlock()
}

// check steers the intervals if that is due. Groups call it between two rounds. l may be nil.
func (l *Limit) check(s *Sampler, now stack.Time) {
	if l == nil || !l.v.isDue(s, now) {
		return
	}
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	applies := len(l.all) >= l.b.From
	if !applies && l.v.factor() == 1 {
		l.v.begun = false
		return
	}
	c, ok := s.target.Costs()
	if !ok {
		return
	}
	sum := l.past
	l.past = used{}
	for x, was := range l.all {
		n := x.used()
		sum.add(n, was)
		l.all[x] = n
	}
	since, own := now-l.at, c.Own-l.own
	idle := idleShare(c.IdleTicks-l.idleTicks, c.Ticks-l.ticks)
	l.at, l.own, l.idleTicks, l.ticks = now, c.Own, c.IdleTicks, c.Ticks
	if !l.v.begun || since <= 0 {
		l.v.begun = true
		return
	}
	if now < l.came+fresh && l.passed < mostPassed {
		l.passed++
		return
	}
	l.passed = 0
	l.v.idles(idle)
	load := 0.
	if applies {
		load = l.load(own, sum, int64(since))
	}
	if load >= lowShare || l.v.factor() == 1 { // short intervals come back soon
		l.v.looked(now)
	}
	sleepers := 0.
	if l.v.napLeast.Load() < moreNaps {
		sleepers = float64(sum.asleep) / float64(max(sum.asleep+sum.awake, 1))
	}
	l.v.steer(s, load, sleepers)
}

// load is the cost of ns since the last check, as a part of the bound that is nearer: own is this program's CPU time.
func (l *Limit) load(own int64, u used, since int64) float64 {
	cost := float64(u.spent) + politeWeight*float64(max(min(own-u.spent, u.spent), 0))
	load := cost / float64(since) / l.b.Share
	if l.b.Busy <= 0 || l.v.idle {
		return load
	}
	busy := (cost + float64(u.held)) / max(l.b.Busy*float64(u.ran), leastBusy*float64(since))
	if busy > max(load, 1) {
		l.full.Add(1)
	}
	return max(load, busy)
}

// used returns the sums of s.
func (s *Sampler) used() used {
	asleep, awake := s.looks()
	u := used{asleep: int64(asleep), awake: int64(awake), spent: s.spent(), held: s.Held()}
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	for _, th := range s.roll.all {
		u.ran += th.acc.cpu.Load()
	}
	return u
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
