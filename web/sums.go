package web

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/web/store"
)

// sumsReply says how a call spent its time. The totals of its parts add up to its length.
type sumsReply struct {
	Start   float64     `json:"start"`
	End     float64     `json:"end"`
	Running bool        `json:"running,omitempty"`
	Parts   []partReply `json:"parts"` // longest first
}

// partReply is the time of a call that has one reason.
type partReply struct {
	Part    string       `json:"part"` // cpu, runnable, lock, io, sleep, other, stopped, idle, unseen
	What    string       `json:"what,omitempty"`
	Lock    *lockMessage `json:"lock,omitempty"` // with the holder that held it longest
	Total   int64        `json:"total"`          // ns
	Count   int          `json:"count,omitempty"`
	Longest int64        `json:"longest,omitempty"` // ns, as sampled
	At      float64      `json:"at,omitempty"`      // begin of the longest
}

// maxParts limits the reasons of one call. The shortest ones of a kind are merged.
const maxParts = 40

// partOf is the name of the part of a thread's time that a state belongs to; "" if the state is unknown.
func partOf(s stack.State, c kind.Class) string {
	switch s {
	case stack.StateRunning:
		return "cpu"
	case stack.StateRunnable:
		return "runnable"
	case stack.StateDisk, stack.StateFault:
		return "io"
	case stack.StateStopped, stack.StateTraced:
		return "stopped"
	case stack.StateBlocked:
	default:
		return ""
	}
	switch c {
	case kind.ClassLock:
		return "lock"
	case kind.ClassIO:
		return "io"
	case kind.ClassSleep:
		return "sleep"
	case kind.ClassIdle:
		return "idle"
	}
	return "other"
}

// sums answers such a query: how the call at a thread, a depth and a time spent its time.
func (f *feed) sums(q *query, kinds store.Kinds) (*sumsReply, error) {
	t := f.st.Lookup(q.Thread)
	if t == nil {
		return nil, fmt.Errorf("%w: thread %d", errUnknown, q.Thread)
	}
	calls, _ := t.Stack(clampTime(q.At)+f.base, q.Depth, kinds)
	i := q.Depth
	if i < 0 {
		i = len(calls) - 1
	}
	if i < 0 || i >= len(calls) {
		return nil, fmt.Errorf("%w: call of thread %d at depth %d", errUnknown, q.Thread, q.Depth)
	}
	c := &calls[i]
	r := &sumsReply{Start: float64(c.Start - f.base), End: float64(c.End - f.base), Running: c.Running}
	r.Parts = fit(f.parts(q.Thread, c.Start, c.End), c.CPU, int64(c.End-c.Start))
	return r, nil
}

// parts sums up why a thread was off the CPUs in [t0, t1), as its samples found it.
func (f *feed) parts(seq int, t0, t1 stack.Time) []partReply {
	var locks []store.Slice
	f.st.EachLane(store.LaneLock, t0, t1, []int{seq}, func(_ int, x store.Slice) { locks = append(locks, x) })
	type key struct{ part, what string }
	type sum struct {
		partReply
		held map[lockMessage]int64 // ns of waits, by lock with its holder
	}
	sums := map[key]*sum{}
	arch := f.src.Process().Arch
	f.st.EachLane(store.LaneState, t0, t1, []int{seq}, func(_ int, x store.Slice) {
		s := f.st.State(x.Place)
		k := key{part: partOf(s.State, kind.Class(f.class(x.Place)))}
		if k.part == "" || k.part == "cpu" { // the scheduler counts time on a CPU better than samples do
			return
		}
		if d, ok := f.wait(s.Wait); ok {
			d.Timeout = 0
			k.what = waitText(&d)
		} else if s.Call >= 0 {
			k.what = syscalls.Name(arch, s.Call)
		}
		ns := int64(x.End - x.Start)
		var lock *lockMessage
		// A wait without a description may still have a lock.
		if k.part == "lock" || k.part == "other" {
			for len(locks) > 0 && locks[0].End <= x.Start {
				locks = locks[1:]
			}
			if len(locks) > 0 && locks[0].Start < x.End {
				lock = &lockMessages(f, []store.Lock{f.st.Lock(locks[0].Place)})[0]
				k = key{"lock", cmp.Or(lock.Wait, lock.Addr)}
			}
		}
		p := sums[k]
		if p == nil {
			p = &sum{partReply: partReply{Part: k.part, What: k.what}}
			sums[k] = p
		}
		p.Total += ns
		p.Count++
		if ns > p.Longest {
			p.Longest, p.At = ns, float64(x.Start-f.base)
		}
		if lock != nil {
			if p.held == nil {
				p.held = map[lockMessage]int64{}
			}
			p.held[*lock] += ns
		}
	})
	out := make([]partReply, 0, len(sums))
	for _, p := range sums {
		most := int64(-1)
		for l, ns := range p.held {
			if ns > most || ns == most && l.Holder < p.Lock.Holder {
				most, p.Lock = ns, &l
			}
		}
		out = append(out, p.partReply)
	}
	slices.SortFunc(out, func(a, b partReply) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Part, b.Part), cmp.Compare(a.What, b.What))
	})
	return merge(out)
}

// merge replaces the parts after the first maxParts by one of each kind.
func merge(parts []partReply) []partReply {
	if len(parts) <= maxParts {
		return parts
	}
	out := slices.Clone(parts[:maxParts])
	at := map[string]int{}
	for _, p := range parts[maxParts:] {
		i, ok := at[p.Part]
		if !ok {
			i = len(out)
			at[p.Part] = i
			out = append(out, partReply{Part: p.Part, What: "less frequent reasons"})
		}
		o := &out[i]
		o.Total += p.Total
		o.Count += p.Count
		if p.Longest > o.Longest {
			o.Longest, o.At = p.Longest, p.At
		}
	}
	return out
}

// fit adds the time on a CPU to the parts, and makes their totals add up to length, in ns. If samples
// found more waiting than the scheduler's account leaves, the waits are scaled to that. If they found
// less, the rest is a part of its own, "unseen": short waits between samples, or gaps.
func fit(parts []partReply, cpu, length int64) []partReply {
	cpu = min(max(cpu, 0), length)
	left := length - cpu
	waits := int64(0)
	for i := range parts {
		waits += parts[i].Total
	}
	if waits > left {
		k := float64(left) / float64(waits)
		for i := range parts {
			parts[i].Total = int64(float64(parts[i].Total) * k)
		}
	}
	for i := range parts {
		left -= parts[i].Total
	}
	// Scaling leaves some ns by rounding.
	if left > 0 && left <= int64(len(parts)) {
		parts[0].Total += left
		left = 0
	}
	if left > 0 {
		parts = append(parts, partReply{Part: "unseen", Total: left})
	}
	if cpu > 0 {
		parts = append(parts, partReply{Part: "cpu", Total: cpu})
	}
	slices.SortStableFunc(parts, func(a, b partReply) int { return cmp.Compare(b.Total, a.Total) })
	return slices.DeleteFunc(parts, func(p partReply) bool { return p.Total <= 0 })
}
