package sampler

import (
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// A process may have many threads that sleep for long beside some that run. To ask
// each of the sleepers at each tick whether it has run costs more than all else, and
// makes the others late. So those that have slept for a while doze: as long as the CPU
// time of all threads but those that do not doze stays what it was, none that dozes has
// run. Such a tick counts for a thread once its own counters agree, as after an Ahead by
// the process's clock.

// DozeTarget is what a Target may be besides.
type DozeTarget interface {
	// RestCPU is the CPU time, in ns, of all threads that there are and were, but for
	// those given. It may lack what one that runs has used since the scheduler's last
	// tick. Not ok: it could not be had of one moment. It is called for one caller at a time.
	RestCPU(but []Thread) (ns int64, ok bool)
}

const (
	// dozeAfter is how many samples in a row have to say that a thread has not run
	// before it dozes. Each time that one wakes it takes twice as many.
	dozeAfter    = 16
	dozeAfterMax = 1024
	// maxAwake is how many threads are asked one by one for that clock, at most.
	maxAwake = 64
	// dozeRest is for how many rounds it is not asked after it has told of somebody.
	dozeRest = 4
)

// doze is the clock of all threads that doze, for all groups.
type doze struct {
	target DozeTarget // nil: there is none

	mu    sync.Mutex
	awake []*thread
	files []Thread // theirs
	epoch uint64   // changes with awake
	at    stack.Time
	ns    int64
	ok    bool
	of    uint64 // the epoch that ns is of
	size  atomic.Int32
}

// add has the clock leave out a thread that was taken up, or wakes.
func (d *doze) add(th *thread) {
	if d.target == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awake = append(d.awake, th)
	d.files = append(d.files, th.file)
	d.changed()
}

// drop ends add: the thread dozes, or its file is about to be closed.
func (d *doze) drop(th *thread) {
	if d.target == nil {
		return
	}
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

// dozed is what the clock showed.
type dozed struct {
	ns    int64
	epoch uint64
	at    stack.Time // when
}

// read reads the clock, or takes what another group has read since a time.
func (d *doze) read(now, since stack.Time) (x dozed, ok bool) {
	if d.target == nil || d.size.Load() > maxAwake {
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

// dozing is a group's part in it.
type dozing struct {
	// was is what the clock showed before all that doze were last seen to sleep on;
	// since is in which tick that was.
	was   dozed
	since int64
	on    bool
	rest  int // rounds for which the clock is not asked
	// whole: this round looks at all threads, napping ones too, because the state of a
	// clock proves something only if all were seen to sleep after it was read.
	whole  bool
	failed int // for how many rounds that was not tried again after the last failure
}

// mostDozeRest is for how many rounds a whole round is not tried after many in vain.
const mostDozeRest = 64

// tried notes whether the whole round that has ended showed that the next ticks can be sampled
// by a clock. Where it did not, the next one comes twice as late.
func (z *dozing) tried(threads []*thread) {
	if !z.whole {
		return
	}
	quiet, naps := true, false
	for _, th := range threads {
		quiet = quiet && th.way == stack.WayUnrun && th.steady > 0
		naps = naps || th.nap.level > 0
	}
	if z.on || quiet || !naps {
		z.failed = 0
		return
	}
	z.failed = min(max(2*z.failed, 1), mostDozeRest)
	z.rest = z.failed
}

// dozeOn has this tick of all threads that doze by the clock, if it can.
func (g *group) dozeOn(now stack.Time) bool {
	z := &g.dozing
	if z.rest > 0 {
		z.rest--
		return false
	}
	if !z.on {
		return false
	}
	z.on = false // unless all is well
	if g.tick.k-z.since > sleepSpan/g.tick.every || g.s.yielded.Load() || g.waits != nil && g.waits.Busy() {
		return false
	}
	x, ok := g.s.doze.read(now, now-stack.Time(g.tick.every*2/3))
	if !ok || x.epoch != z.was.epoch || x.ns != z.was.ns {
		z.rest = dozeRest
		return false
	}
	z.on = true
	g.ahead.blind, g.ahead.stood = append(g.ahead.blind, now), x.at
	for _, th := range g.threads {
		if th.dozes && !th.dropped.Load() {
			th.blind, th.done = true, true
		}
	}
	return true
}

// dozeAgain comes after a round that looked at all threads of the group; was is what
// the clock showed before it. Those that have slept for long doze from now on, and if
// that is so for all of was, the next tick can be had by the clock.
func (g *group) dozeAgain(was dozed, known bool) {
	if g.s.doze.target == nil {
		return
	}
	z := &g.dozing
	z.on = false
	n := 0
	for _, th := range g.threads {
		if th.blind {
			return // not all could be looked at
		}
		if th.dozes || th.mayDoze() {
			n++
		}
	}
	if n <= fewSleep {
		return
	}
	for _, th := range g.threads {
		if !th.dozes && th.mayDoze() {
			th.dozes = true
			g.s.doze.drop(th)
			known = false
		}
	}
	if known {
		z.on, z.was, z.since = true, was, g.tick.k
		g.ahead.blind, g.ahead.stood = g.ahead.blind[:0], was.at
	}
}

// mayDoze reports whether it has slept for long.
func (th *thread) mayDoze() bool {
	return th.way == stack.WayUnrun && th.steady >= max(th.dozeAfter, dozeAfter)
}

// wakes has a thread that was seen to have run doze no more.
func (g *group) wakes(th *thread) {
	if th.dozes {
		th.dozes = false
		th.dozeAfter = min(max(2*th.dozeAfter, 2*dozeAfter), dozeAfterMax)
		g.s.doze.add(th)
	}
}
