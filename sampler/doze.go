package sampler

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// A process may have many threads that sleep for a long time, next to some that run. Asking each
// sleeper at each tick whether it has run costs more than everything else and delays the other
// threads. So threads that have slept for a while doze: while the CPU time of all threads except
// the awake ones does not change, no dozing thread has run. Such a tick counts for a thread once
// its own counters agree, as after an Ahead by the process's clock.

const (
	// dozeAfter is how many samples in a row must show that a thread has not run before it dozes.
	// The number doubles each time the thread wakes. One that hardly ran or woke in its life (nap.go) dozes from its first look.
	dozeAfter    = 16
	dozeAfterMax = 1024
	// maxAwake is the highest number of awake threads with which the clock is used.
	maxAwake = 64
	// dozeRest is for how many rounds the clock is not read after it has advanced.
	dozeRest = 4
)

// doze is the clock of all dozing threads, shared by all groups.
type doze struct {
	target Target

	mu    sync.Mutex
	awake []*thread
	files []Thread // of the awake threads
	epoch uint64   // changes with awake
	at    stack.Time
	ns    int64
	ok    bool
	of    uint64 // the epoch of ns
	size  atomic.Int32
	// taking: very many threads are being taken up. Each of them changes awake, so no reading would hold until the
	// next tick. A dozing thread naps for about as long as it would be sampled by the clock.
	taking atomic.Bool
}

// add excludes a new or awake thread from the clock.
func (d *doze) add(th *thread) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awake = append(d.awake, th)
	d.files = append(d.files, th.file)
	d.changed()
}

// drop reverts add: the thread dozes, or its file is about to be closed.
func (d *doze) drop(th *thread) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, x := range d.awake {
		if x == th {
			last := len(d.awake) - 1
			d.awake[i], d.files[i] = d.awake[last], d.files[last]
			d.awake[last], d.files[last] = nil, nil
			d.awake, d.files = d.awake[:last], d.files[:last]
			d.changed()
			return
		}
	}
}

func (d *doze) changed() {
	d.epoch++
	d.size.Store(int32(len(d.awake)))
}

func (d *doze) epochNow() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.epoch
}

// dozed is a reading of the clock.
type dozed struct {
	ns    int64
	epoch uint64
	at    stack.Time // time of the reading
}

// usable reports whether read may return a reading.
func (d *doze) usable() bool { return !d.taking.Load() && d.size.Load() <= maxAwake }

// applies reports whether the sleeping threads doze, or will once all are taken up.
func (d *doze) applies() bool { return d.taking.Load() || d.size.Load() <= maxAwake }

// read reads the clock, or returns another group's reading if that is not older than since.
func (d *doze) read(now, since stack.Time) (x dozed, ok bool) {
	if !d.usable() {
		return x, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != d.epoch || d.at < since || !d.ok {
		d.at, d.of = now, d.epoch
		d.ns, d.ok = d.target.RestCPU(d.files)
	}
	return dozed{d.ns, d.epoch, d.at}, d.ok
}

// threadDoze is a thread's state for dozing.
type threadDoze struct {
	on    bool
	soon  bool // it hardly ran or woke before
	after int  // needed value of steady; 0: it has not woken yet
}

// dozing is a group's state for dozing threads.
type dozing struct {
	// was is the clock's reading before all dozing threads were last seen asleep; since is the
	// tick of that.
	was   dozed
	since int64
	on    bool
	rest  int    // rounds for which the clock is not read
	epoch uint64 // of the clock, in the round before
	// whole: this round looks at all threads, including napping ones, because a reading of the
	// clock proves something only if all were seen asleep after it.
	whole  bool
	failed int // length of the pause after the last failed whole round
}

// mostDozeRest limits for how many rounds a whole round is not tried after failures.
const mostDozeRest = 64

// tried records whether the completed whole round showed that the next ticks can be sampled by a
// clock. If not, the pause before the next whole round doubles.
func (z *dozing) tried(threads []*thread) {
	if !z.whole {
		return
	}
	quiet, naps := true, false
	for _, th := range threads {
		quiet = quiet && th.ahead.way == stack.WayUnrun && th.ahead.steady > 0
		naps = naps || th.sleep.nap.level > 0
	}
	if z.on || quiet || !naps {
		z.failed = 0
		return
	}
	z.failed = min(max(2*z.failed, 1), mostDozeRest)
	z.rest = z.failed
}

// dozesWhole reports whether this round looks at all threads, for the clock to sample the next ticks. If many have begun to doze
// since the last round, the clock is likely to change again before the next one.
func (g *group) dozesWhole() bool {
	z, was := &g.dozing, g.dozing.epoch
	z.epoch = g.s.doze.epochNow()
	return z.rest == 0 && len(g.threads) > fewSleep && z.epoch-was <= fewSleep && g.s.doze.usable()
}

// dozeOn samples this tick of all dozing threads by the clock, if possible.
func (g *group) dozeOn(now stack.Time) bool {
	z := &g.dozing
	if z.rest > 0 {
		z.rest--
		return false
	}
	if !z.on {
		return false
	}
	z.on = false // unless all checks pass
	if g.tick.k-z.since > g.dozeSpan()/g.tick.every || g.s.ctl.yielded.Load() || g.waits.busy() {
		return false
	}
	x, ok := g.s.doze.read(now, now-g.dozeFresh())
	if !ok || x.epoch != z.was.epoch || x.ns != z.was.ns {
		z.rest = dozeRest
		return false
	}
	z.on = true
	g.ahead.blind, g.ahead.stood = append(g.ahead.blind, now), x.at
	for _, th := range g.threads {
		if th.sleep.doze.on && !th.life.dropped.Load() && th.pend.to(byClock) {
			th.round.done = true
		}
	}
	return true
}

// passDozed opens the ticks of dozeTo that have passed.
func (g *group) passDozed(now stack.Time) {
	was := g.tick.k
	for g.tick.k < g.pass.napTo && g.tick.due <= now {
		g.ahead.blind = append(g.ahead.blind, g.tick.due)
		g.tick.k++
		g.tick.due = g.tick.dueOf(g.tick.k)
	}
	for i := 0; g.tick.k > was && i < len(g.threads); i++ {
		g.threads[i].pend.to(byClock)
	}
}

// dozeTo returns the next tick for which the clock has to be read, or all threads are looked at, if all threads of the
// group doze: the last reading serves for the ticks before, and the group sleeps through them. 0: it is unknown.
func (g *group) dozeTo() int64 {
	z := &g.dozing
	if g.hosted != nil || g.extra.eves > 0 || g.extra.again != 0 || g.s.ctl.yielded.Load() || g.waits.busy() {
		return 0
	}
	for _, th := range g.threads {
		if !th.sleep.doze.on || th.pend.is != blind && th.pend.is != settled || th.life.dropped.Load() {
			return 0
		}
	}
	to, fresh := g.tick.k, g.ahead.stood+g.dozeFresh()
	for to-z.since <= g.dozeSpan()/g.tick.every && g.tick.dueOf(to) <= fresh {
		to++
	}
	return to
}

// dozeSpan is for how long, in ns, the clock alone samples ticks: as long as sleepers nap, and longer the more threads the group
// has, since all of them are looked at afterwards.
func (g *group) dozeSpan() int64 {
	return max(sleepSpan, g.leastNap(), min(int64(len(g.threads))*dozeEach, mostDozeSpan))
}

// dozeEach is the time, in ns, that the clock samples for each thread of the group: some 100 times as long as a look takes.
const dozeEach = 1_250_000

// dozeLevel is the nap level with which a thread is looked at about once in dozeSpan.
func (g *group) dozeLevel() int {
	return min(bits.Len64(uint64(g.dozeSpan()/g.tick.every)), mostNap)
}

// leastNap is for how long, in ns, the overhead bound makes sleepers nap at least, up to mostDozeSpan.
func (g *group) leastNap() int64 {
	return min(g.tick.every<<g.s.gov.napLeast.Load(), mostDozeSpan)
}

// dozeFresh is how old a reading of the clock may be. The kernel adds up the CPU times of all threads for one, which for
// thousands takes as long as looks at some hundred. So it may be older the more threads there are, and where the overhead
// bound makes sleepers nap, by up to 1/16 of a nap; a thread that wakes has as many more late ticks.
func (g *group) dozeFresh() stack.Time {
	threads := int64(0)
	for _, x := range g.s.groups {
		threads += int64(x.tally.size.Load())
	}
	return stack.Time(max(g.tick.every*2/3, g.leastNap()/16, min(threads*dozeReadEach, mostDozeSpan/16)))
}

// dozeReadEach is how old, in ns, a reading may be for each thread: 100 times as long as it takes the kernel.
const dozeReadEach = 10_000

// mostDozeSpan bounds, in ns, how old the samples of sleepers are when they are recorded.
const mostDozeSpan = 1_000_000_000

// dozeAgain follows a round that looked at all threads of the group; was is the clock's reading
// before it. Threads that have slept for long doze from now on. If was already covered all of
// them, the next tick can be sampled by the clock.
func (g *group) dozeAgain(was dozed, known bool) {
	z := &g.dozing
	z.on = false
	n := 0
	for _, th := range g.threads {
		if th.pend.is == blind {
			return // some could not be checked
		}
		if th.sleep.doze.on || th.mayDoze() {
			n++
		}
	}
	if n <= fewSleep {
		return
	}
	for _, th := range g.threads {
		if !th.sleep.doze.on && th.mayDoze() {
			th.sleep.doze.on = true
			g.s.doze.drop(th)
			known = false
		}
	}
	if known {
		z.on, z.was, z.since = true, was, g.tick.k
		g.ahead.blind, g.ahead.stood = g.ahead.blind[:0], was.at
	}
}

// mayDoze reports whether the thread has slept long enough to doze.
func (th *thread) mayDoze() bool {
	d := &th.sleep.doze
	if d.soon && d.after == 0 {
		return th.seen.blocked
	}
	return th.ahead.way == stack.WayUnrun && th.ahead.steady >= max(d.after, dozeAfter)
}

// wakes ends the doze of a thread that was seen to have run.
func (g *group) wakes(th *thread) {
	if th.sleep.doze.on {
		th.sleep.doze.on = false
		th.sleep.doze.after = min(max(2*th.sleep.doze.after, 2*dozeAfter), dozeAfterMax)
		g.s.doze.add(th)
	}
}
