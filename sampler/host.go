package sampler

import (
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/stack"
)

// Hosts are OS threads that several Samplers share. What a Sampler costs is to wake
// up at each tick: of many processes with few threads each, as a server with a process
// for each client has, those that share a Host are looked at in one go. The zero value
// is not usable: NewHosts. It may be used by several goroutines at once.
type Hosts struct {
	sleeper func() (Sleeper, error)
	guests  int // of each

	mu  sync.Mutex
	all []*host
}

// Sleeper is how a host sleeps: see Tracer. It is made before the Tracers of its OS
// thread, and closed after them.
type Sleeper interface {
	SleepUntil(t stack.Time)
	Wake()
	Now() stack.Time
	Close()
}

// NewHosts has so many Samplers share an OS thread. Their threads have to be looked at
// one after the other: as many as Config.Together would be had if they were of one
// process.
func NewHosts(guests int, sleeper func() (Sleeper, error)) *Hosts {
	return &Hosts{sleeper: sleeper, guests: max(guests, 1)}
}

// host is one OS thread, and the groups that it looks at.
type host struct {
	of   *Hosts
	seed uint64
	size atomic.Int32 // threads of all guests

	sole atomic.Pointer[group] // the only guest, which may go ahead: it sleeps in its own Tracer

	// Guarded by of.mu.
	s      Sleeper
	came   []*group
	guests int
	begun  bool
}

// hosted is what a group has of its host.
type hosted struct {
	host  atomic.Pointer[host] // nil: not yet
	woken atomic.Bool

	// The host's own.
	until stack.Time // when it wants to be looked at
	began func()
	ended func(err error)
	left  bool       // its Sampler was told; only its Tracer has still to let go
	limit stack.Time // until when its end waits for samples
}

// take has a host look at g; ended is called once when it does no more, and ready
// when it has begun to.
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

// wake has the host look who was woken.
func (x *host) wake() {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	if x.s != nil {
		x.s.Wake()
	}
	if g := x.sole.Load(); g != nil {
		g.tracer.Wake()
	}
}

// run is the life of the OS thread: until there are no guests.
func (x *host) run() (again bool) {
	s, err := x.of.sleeper()
	x.of.mu.Lock()
	x.s = s
	x.of.mu.Unlock()
	var guests []*group
	defer func() { // on a panic too
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
			if e := g.s.groupInit(g); e != nil {
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

// arrivals are the guests that came. over: there are none, and whoever comes begins
// another life.
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

// pass looks at the guests that are due, and sleeps until the next one is. It returns
// those that stay.
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
		if h.left || g.stopping.Load() {
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
		next = 0 // perhaps nobody is there
	}
	clear(guests[len(kept):])
	if next > s.Now() {
		s.SleepUntil(next)
	}
	return kept
}

// lingers bounds, in ns, how long a group waits at its end for threads that have not
// stopped, and for their samples.
const lingers = 100_000_000

// leave is the end of a guest, and reports whether nothing is left to do: what its
// Tracer holds, it has to let go of, while the host's OS thread lives on.
func (g *group) leave(now stack.Time) bool {
	h := g.hosted
	if h.limit == 0 {
		h.limit = now + lingers
	}
	pending := g.tracer.Reap() > 0
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
		x.of.mu.Lock() // who wakes it holds this: nobody does from here on
		x.sole.Store(nil)
		x.of.mu.Unlock()
		g.tracer.Close()
		return true
	}
	if !h.left {
		h.left = true
		h.ended(nil)
	}
	h.until = now + idleReap
	return false
}

// idleReap is how often, in ns, a thread is looked for that has not stopped when its
// Sampler ended: one in a sleep that nothing ends.
const idleReap = 5_000_000

// alone reports whether g may sleep as it likes: nobody else is looked at by its OS
// thread.
func (g *group) alone() bool { return g.hosted == nil || g.hosted.host.Load().sole.Load() == g }
