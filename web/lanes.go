package web

import (
	"cmp"
	"math"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web/store"
)

// lanesReply describes contended locks, and all threads together, in n equal parts of [T0, T1).
type lanesReply struct {
	T0       float64        `json:"t0"`
	T1       float64        `json:"t1"`
	Counters []counterReply `json:"counters"`
	Locks    []lockLane     `json:"locks"`           // that were waited for longest, longest first
	More     int            `json:"more,omitempty"`  // locks that are left out
	Files    []fileLane     `json:"files,omitempty"` // in whose operations threads spent the most time, most first
	// MoreFiles is how many files are left out.
	MoreFiles int `json:"more_files,omitempty"`
}

// counterReply is a number over time: the mean of each part.
type counterReply struct {
	Name string    `json:"name"` // cpu: CPUs in use; runnable, lock: threads that wait for one; gap: threads without samples
	Bins []float64 `json:"bins"`
}

// lockLane is a lock over time. A holder is known only while a thread waits.
type lockLane struct {
	Lock    lockMessage `json:"lock"` // without a holder
	Total   int64       `json:"total"`
	Most    float64     `json:"most"`    // largest mean number of waiting threads
	Waiting []float64   `json:"waiting"` // mean number of threads
	Holder  []stack.TID `json:"holder"`  // that held it most; 0: not known
}

// lockAt identifies a lock: equal addresses of several processes are different locks.
type lockAt struct {
	addr    uint64
	process int
}

func lockAtOf(l store.Lock) lockAt { return lockAt{l.Addr, l.Process} }

// maxLockLanes limits the locks of a reply.
const maxLockLanes = 64

// binned spreads numbers over equal parts of a time.
type binned struct {
	from, to stack.Time
	width    float64 // ns
}

// each calls f for every part that [a, b) touches, with the ns of it.
func (p binned) each(n int, a, b stack.Time, f func(k int, ns float64)) {
	x, y := float64(max(a, p.from)-p.from), float64(min(b, p.to)-p.from)
	for k := max(int(x/p.width), 0); k < n && float64(k)*p.width < y; k++ {
		if ns := min(y, float64(k+1)*p.width) - max(x, float64(k)*p.width); ns > 0 {
			f(k, ns)
		}
	}
}

// lanes answers such a query.
func (f *feed) lanes(q *query) lanesReply {
	from, to := f.st.Span()
	if q.T1 > q.T0 {
		from, to = clampTime(q.T0)+f.base, clampTime(q.T1)+f.base
	}
	n := max(q.N, 1)
	r := lanesReply{T0: float64(from - f.base), T1: float64(to - f.base), Counters: []counterReply{}, Locks: []lockLane{}}
	p := binned{from, to, float64(to-from) / float64(n)}
	if p.width <= 0 {
		return r
	}
	mean := func() []float64 { return make([]float64, n) }
	cpu, ready, lock, gap := mean(), mean(), mean(), mean()
	for _, l := range f.st.Loads(from, to, n) {
		for i, v := range l.Bins {
			cpu[i] += v
		}
	}
	f.st.EachLane(store.LaneState, from, to, q.Threads, func(_ int, x store.Slice) {
		if f.st.State(x.Place).State == stack.StateRunnable {
			p.each(n, x.Start, x.End, func(k int, ns float64) { ready[k] += ns })
		}
	})
	f.st.EachLane(store.LaneGap, from, to, q.Threads, func(_ int, x store.Slice) {
		if x.Place&1 == 0 { // not a mark
			p.each(n, x.Start, x.End, func(k int, ns float64) { gap[k] += ns })
		}
	})
	total := map[lockAt]int64{}
	f.st.EachLane(store.LaneLock, from, to, q.Threads, func(_ int, x store.Slice) {
		p.each(n, x.Start, x.End, func(k int, ns float64) { lock[k] += ns })
		total[lockAtOf(f.st.Lock(x.Place))] += int64(x.End - x.Start)
	})
	for _, c := range []counterReply{{"cpu", cpu}, {"runnable", ready}, {"lock", lock}, {"gap", gap}} {
		for i := range c.Bins {
			c.Bins[i] = thousandths(c.Bins[i] / p.width)
		}
		r.Counters = append(r.Counters, c)
	}
	r.Locks, r.More = f.lockLanes(q, total, p, n)
	r.Files, r.MoreFiles = f.fileLanes(q, p, n)
	return r
}

// lockLanes returns the locks with the largest totals and the number of the others.
func (f *feed) lockLanes(q *query, total map[lockAt]int64, p binned, n int) ([]lockLane, int) {
	addrs := make([]lockAt, 0, len(total))
	for a := range total {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, func(a, b lockAt) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a.addr, b.addr), cmp.Compare(a.process, b.process))
	})
	shown := maxLockLanes
	if q.Max > 0 {
		shown = min(shown, q.Max)
	}
	more := max(len(addrs)-shown, 0)
	addrs = addrs[:len(addrs)-more]
	out := make([]lockLane, len(addrs))
	lead := make([][]float64, len(addrs)) // ns by which the holder leads the others
	at := make(map[lockAt]int, len(addrs))
	for i, a := range addrs {
		at[a] = i
		out[i] = lockLane{Total: total[a], Waiting: make([]float64, n), Holder: make([]stack.TID, n)}
		lead[i] = make([]float64, n)
	}
	f.st.EachLane(store.LaneLock, p.from, p.to, q.Threads, func(_ int, x store.Slice) {
		l := f.st.Lock(x.Place)
		i, ok := at[lockAtOf(l)]
		if !ok {
			return
		}
		o := &out[i]
		if o.Lock.Addr == "" || o.Lock.Wait == "" {
			o.Lock = lockMessages(f, []store.Lock{{Addr: l.Addr, Wait: l.Wait, Process: l.Process}})[0]
		}
		p.each(n, x.Start, x.End, func(k int, ns float64) {
			o.Waiting[k] += ns
			switch { // a majority vote needs no table of all holders
			case l.Holder == 0:
			case o.Holder[k] == l.Holder:
				lead[i][k] += ns
			case lead[i][k] >= ns:
				lead[i][k] -= ns
			default:
				o.Holder[k], lead[i][k] = l.Holder, ns-lead[i][k]
			}
		})
	})
	for i := range out {
		for k, ns := range out[i].Waiting {
			v := thousandths(ns / p.width)
			out[i].Waiting[k] = v
			out[i].Most = max(out[i].Most, v)
		}
	}
	return out, more
}

func thousandths(v float64) float64 { return math.Round(v*1e3) / 1e3 }
