package exact

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
)

// Limit bounds the hits of a Tracer, by one of its fields. The zero value allows all.
type Limit struct {
	Share float64 // of one CPU, for the measured cost of the hits
	Hits  float64 // a second
}

// DefaultLimit is a fifth of a CPU.
var DefaultLimit = Limit{Share: .2}

// String returns the limit as --trace-limit takes it.
func (l Limit) String() string {
	if l.Share > 0 {
		return strconv.FormatFloat(100*l.Share, 'g', 4, 64) + "%"
	}
	return strconv.FormatFloat(l.Hits, 'f', -1, 64)
}

// burst is for how many seconds' hits may come at once. A function that keeps a CPU busy with hits alone has used up the
// default limit's after 50 ms: 40 ms, and the 20% of the time so far.
const (
	burst = .2
	// leastBurst is the least cost that may come at once, in ns.
	leastBurst = 15_000_000
)

// tally counts the hits of a function.
type tally struct {
	hits, calls uint64
	ns          int64 // cost
}

func (t tally) minus(o tally) tally { return tally{t.hits - o.hits, t.calls - o.calls, t.ns - o.ns} }

// rate is a bucket that leaks as much a second as the limit allows.
type rate struct {
	limit Limit
	level float64 // hits in the bucket, or ns of their cost
	at    stack.Time
	gone  uint64 // lost since the last look
	near  bool   // the bucket is half full

	mu     sync.Mutex // guards all that follows
	cost   Cost
	all    []tally // by function
	recent []tally // at the last look
	lostNS int64   // cost of all that were lost
}

// begin says what a hit costs.
func (r *rate) begin(c Cost) {
	r.mu.Lock()
	r.cost = c
	r.mu.Unlock()
}

// hit counts a hit that costs ns.
func (r *rate) hit(h *calls.Hit, ns int64) {
	r.mu.Lock()
	r.all[h.Fn].add(h, ns)
	r.mu.Unlock()
}

// late counts a hit of a function that was detached for its hits: it is not too hot again.
func (r *rate) late(h *calls.Hit, ns int64) {
	r.mu.Lock()
	r.all[h.Fn].add(h, ns)
	r.recent[h.Fn].add(h, ns)
	r.mu.Unlock()
}

func (t *tally) add(h *calls.Hit, ns int64) {
	t.hits++
	t.ns += ns
	if h.Where == calls.Enter {
		t.calls++
	}
}

func (r *rate) lost(n uint64) {
	r.gone += n
	r.mu.Lock()
	r.lostNS += int64(n) * r.cost.mean()
	r.mu.Unlock()
}

// mean is the cost of a hit of an unknown place, in ns.
func (c Cost) mean() int64 { return int64(c.Enter+c.Exit) / 2 }

// of returns the hits of a function, and their cost.
func (r *rate) of(fn int) (hits uint64, cost time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[fn].hits, time.Duration(r.all[fn].ns)
}

// sum returns the cost of a hit, and that of all.
func (r *rate) sum() (one Cost, all time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ns := r.lostNS
	for i := range r.all {
		ns += r.all[i].ns
	}
	return r.cost, time.Duration(ns)
}

// over reports the costliest function since the call before if there were more hits than the limit allows.
func (r *rate) over(now stack.Time) (hot Hot, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seconds := float64(now-r.at) / 1e9
	if r.at == 0 || r.limit == (Limit{}) {
		r.at, r.recent, r.gone = now, slices.Clone(r.all), 0
		return hot, false
	}
	if seconds <= 0 {
		return hot, false
	}
	sum, most, worst := tally{hits: r.gone, ns: int64(r.gone) * r.cost.mean()}, -1, tally{}
	for i := range r.all {
		x := r.all[i].minus(r.recent[i])
		sum.hits, sum.ns = sum.hits+x.hits, sum.ns+x.ns
		if x.hits > 0 && (most < 0 || x.ns > worst.ns) {
			most, worst = i, x
		}
	}
	r.gone, r.at = 0, now
	copy(r.recent, r.all)
	allowed, used, room := r.limit.Hits, float64(sum.hits), r.limit.Hits*burst
	if r.limit.Share > 0 {
		allowed, used, room = r.limit.Share*1e9, float64(sum.ns), max(r.limit.Share*1e9*burst, leastBurst)
	}
	r.level = max(0, r.level-allowed*seconds) + used
	r.near = r.level > room/2
	if most < 0 || r.level <= room {
		return hot, false
	}
	r.level, r.near = 0, false
	return Hot{Fn: most, At: now, Rate: float64(worst.hits) / seconds, Calls: float64(worst.calls) / seconds, Share: float64(worst.ns) / 1e9 / seconds}, true
}

// resize makes room for n functions.
func (r *rate) resize(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := func(s []tally) []tally { return append(s, make([]tally, max(n-len(s), 0))...)[:n] }
	r.all, r.recent = size(r.all), size(r.recent)
}
