package trigger

import (
	"hash/maphash"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// loop is the detected event loop of a thread: the frame that stays while the thread
// polls again and again from the same place.
type loop struct {
	bit    int // of the rule that names it; -1: detected automatically
	depth  int // of its frame; -1: unknown
	last   []frame
	places map[uint64]int        // number of polls from each place
	chain  []event.Word          // frames from the loop's to the polling one, at the last poll from a known place
	short  int                   // the shortest such chain
	run    run                   // the time outside the loop
	key    stack.Time            // the call that run is about, by its enter time
	site   uint64                // its call site
	shares map[uint64][2]float64 // samples in calls from each site: share.in of all
}

// A place to poll is known after the thread has polled there three times; maxPlaces
// limits how many are tracked.
const (
	minVisits = 3
	maxPlaces = 64
)

func (l *loop) forget() {
	l.depth, l.last, l.chain, l.short, l.run.on = -1, l.last[:0], l.chain[:0], 0, false
	clear(l.places)
}

var seed = maphash.MakeSeed()

// place identifies the frames above depth, without the topmost one.
func place(fs []frame) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range fs {
		maphash.WriteComparable(&h, fs[i].word.Addr())
	}
	return h.Sum64()
}

// visit records that t polls with its current stack.
func (l *loop) visit(t *Track) {
	if l.bit < 0 {
		common := 0
		for common < min(len(l.last), len(t.frames)-1) && l.last[common].entered == t.frames[common].entered {
			common++
		}
		l.last = append(l.last[:0], t.frames...)
		if common == 0 {
			l.forget()
			l.last = append(l.last[:0], t.frames...)
			return
		}
		if l.depth >= common {
			// The assumed loop has returned, so the loop is one of its callers.
			l.forget()
			l.last = append(l.last[:0], t.frames...)
		}
		if l.depth < 0 {
			l.depth = common - 1
		}
	}
	if l.depth < 0 || l.depth >= len(t.frames) {
		return
	}
	if l.places == nil {
		l.places = map[uint64]int{}
	}
	way := t.frames[l.depth:max(len(t.frames)-1, l.depth+1)]
	p := place(way)
	if len(l.places) >= maxPlaces && l.places[p] == 0 {
		clear(l.places)
	}
	l.places[p]++
	strict := l.bit >= 0
	if !strict && l.places[p] < minVisits || strict && len(l.chain) > 0 && len(way) > l.short {
		return // with a named loop, a deeper poll belongs to a handler
	}
	l.short = len(way)
	l.chain = l.chain[:0]
	for i := range way {
		l.chain = append(l.chain, way[i].word)
	}
}

// follow starts, continues or ends the time outside of the loop.
func (l *loop) follow(t *Track) {
	if l.depth < 0 || l.bit < 0 && len(l.chain) == 0 {
		l.run.on = false
		return
	}
	i := 0
	for i < len(l.chain) && l.depth+i < len(t.frames) && t.frames[l.depth+i].word.Addr() == l.chain[i].Addr() {
		i++
	}
	handler := l.depth + i + 1
	home := len(l.chain) > 0 && i == len(l.chain)
	// A handler that polls waits for something too. Only with a named loop is it known to
	// be a stall.
	polls := t.now.state == stack.StateBlocked && t.set.polls(t.now.call) && (l.bit < 0 || len(l.chain) == 0)
	if home || polls || handler >= len(t.frames) {
		l.run.on = false
		return
	}
	if key := t.frames[handler].entered; !l.run.on || l.key != key || l.run.depth != handler {
		l.key, l.site = key, t.frames[handler-1].word.Addr()
		for q, in := range l.shares[l.site] {
			l.run.share[q].in = in
		}
		l.run.start(t.at, handler)
	}
}

// count adds n samples. How often the thread is in calls from one site determines the
// odds of a run there.
func (l *loop) count(n int, unrun, queued bool, ns int64) {
	q := index(queued)
	before := l.run.share[q].all
	l.run.count(n, unrun, queued, ns)
	if l.run.share[q].all < before { // older ones fade
		for k, v := range l.shares {
			v[q] /= 2
			l.shares[k] = v
		}
	}
	if l.run.on && !unrun {
		v, known := l.shares[l.site]
		if l.shares == nil || len(l.shares) >= maxPlaces && !known {
			l.shares = map[uint64][2]float64{}
		}
		v[q] += float64(n)
		l.shares[l.site] = v
	}
}
