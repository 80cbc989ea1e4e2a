package sampler

import (
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/stack"
)

// Hosts are OS threads that several Samplers share. The main cost of a Sampler is waking up at
// each tick. With many processes of few threads each, such as a server with one process per
// client, the processes that share a host are sampled in one pass. Create one with NewHosts; the
// zero value is not usable. Methods may be called concurrently.
type Hosts struct {
	sleeper func() (Sleeper, error)
	guests  int // per host

	mu  sync.Mutex
	all []*host
}

// Sleeper implements a host's sleep: see Engine. It is created before the Engines of its OS
// thread and closed after them.
type Sleeper interface {
	SleepUntil(t stack.Time)
	Wake()
	Now() stack.Time
	Close()
}

// NewHosts returns Hosts in which up to guests Samplers share an OS thread. Their threads must be
// sampled from one OS thread, like the threads of one process with Config.Together.
func NewHosts(guests int, sleeper func() (Sleeper, error)) *Hosts {
	return &Hosts{sleeper: sleeper, guests: max(guests, 1)}
}

// count returns the number of Samplers.
func (h *Hosts) count() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.all {
		n += x.guests
	}
	return n
}

// host is one OS thread and the groups that it samples.
type host struct {
	of   *Hosts
	seed uint64
	size atomic.Int32 // threads of all guests

	sole atomic.Pointer[group] // the only guest, which may run ticks ahead: it sleeps in its own Engine

	// The host's own.
	counted int64 // CPU time of its OS thread, in ns, up to which its guests' accounts have it

	// Guarded by of.mu.
	s      Sleeper
	came   []*group
	guests int
	begun  bool
}

// hosted is a group's state on its host.
type hosted struct {
	host  atomic.Pointer[host] // nil: not yet
	woken atomic.Bool

	// The host's own.
	until stack.Time // time of its next step
	began func()
	ended func(err error)
	left  bool       // its Sampler was notified; only its Engine still has threads to release
	limit stack.Time // until when its end waits for samples
}

// take assigns g to a host. ready is called when the host has begun to sample g, ended once when
// it stops.
func (h *Hosts) take(g *group, ready func(), ended func(err error)) {
	h.mu.Lock()
	var x *host
	for _, y := range h.all {
		if y.guests < h.guests {
			x = y
			break
		}
	}
	if x == nil {
		x = &host{of: h, seed: uint64(len(h.all)+1) * golden}
		h.all = append(h.all, x)
	}
	g.hosted.began, g.hosted.ended = ready, ended
	g.hosted.host.Store(x)
	x.guests++
	x.came = append(x.came, g)
	begin := !x.begun
	x.begun = true
	h.mu.Unlock()
	if begin {
		background.Go(x.run)
	} else {
		x.wake()
	}
}

// wake ends the host's sleep, so that it checks which guests were woken.
func (x *host) wake() {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	if x.s != nil {
		x.s.Wake()
	}
	if g := x.sole.Load(); g != nil {
		g.engine.Wake()
	}
}

// run is the main loop of the OS thread; it returns when the last guest has left.
func (x *host) run() (again bool) {
	s, err := x.of.sleeper()
	x.of.mu.Lock()
	x.s = s
	x.of.mu.Unlock()
	var guests []*group
	defer func() { // also on a panic
		for _, g := range guests {
			if g.end() && !g.hosted.left {
				g.hosted.ended(nil)
			}
		}
	}()
	for {
		came, over := x.arrivals(len(guests), err == nil)
		for _, g := range came {
			if e := err; e != nil {
				x.gone(g, e)
				continue
			}
			if e := g.s.hooks.groupInit(g); e != nil {
				x.gone(g, e)
				continue
			}
			g.hosted.began()
			guests = append(guests, g)
		}
		if over {
			break
		}
		guests = x.pass(s, guests)
	}
	if s != nil {
		s.Close()
	}
	return true
}

// arrivals returns the new guests. over: no guest is left; the next one restarts the host.
func (x *host) arrivals(there int, ok bool) (came []*group, over bool) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	came, x.came = x.came, nil
	if over = there+len(came) == 0 || !ok; over {
		x.s, x.begun = nil, false
	}
	return came, over
}

// gone frees a guest's place.
func (x *host) gone(g *group, err error) {
	x.of.mu.Lock()
	x.guests--
	x.of.mu.Unlock()
	if !g.hosted.left {
		g.hosted.left = true
		g.hosted.ended(err)
	}
}

// pass samples the guests that are due and sleeps until the next one is. It returns the remaining
// guests.
func (x *host) pass(s Sleeper, guests []*group) []*group {
	if len(guests) == 1 {
		x.sole.Store(guests[0])
	} else {
		x.sole.Store(nil)
	}
	next := s.Now() + idle
	kept := guests[:0]
	for _, g := range guests {
		h := g.hosted
		if h.left || g.ctl.stopping.Load() {
			if g.leave(s.Now()) {
				x.gone(g, nil)
				continue
			}
		} else if h.woken.Swap(false) || h.until <= s.Now() {
			h.until = g.step()
		}
		kept = append(kept, g)
		next = min(next, h.until)
	}
	if len(kept) < len(guests) {
		next = 0 // there may be no guest left
	}
	clear(guests[len(kept):])
	if next > s.Now() {
		s.SleepUntil(next)
	}
	return kept
}

// lingers bounds, in ns, how long an ending group waits for threads that have not stopped, and
// for their samples.
const lingers = 100_000_000

// leave ends a guest and reports whether it is done. Its Engine must release the threads that it
// holds, because the host's OS thread lives on.
func (g *group) leave(now stack.Time) bool {
	h := g.hosted
	if h.limit == 0 {
		h.limit = now + lingers
	}
	pending := g.engine.Reap() > 0
	if !h.left {
		g.arrivals()
		if pending && now < h.limit {
			h.until = now + reapEvery
			return false
		}
		g.finish()
	}
	if !pending {
		x := h.host.Load()
		x.of.mu.Lock() // wake holds it too: none is under way after this
		x.sole.Store(nil)
		x.of.mu.Unlock()
		g.engine.Close()
		return true
	}
	if !h.left {
		h.left = true
		h.ended(nil)
	}
	h.until = now + idleReap
	return false
}

// idleReap is how often, in ns, to check for a thread that had not stopped when its Sampler
// ended: for example one in an uninterruptible sleep.
const idleReap = 5_000_000

// alone reports whether g may sleep on its own, because its OS thread samples no other group.
func (g *group) alone() bool { return g.hosted == nil || g.hosted.host.Load().sole.Load() == g }
