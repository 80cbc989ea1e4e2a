package web

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web/store"
)

type waitReply struct {
	Thread int          `json:"thread"`
	Kind   string       `json:"kind"`
	State  string       `json:"state,omitempty"`
	Call   int32        `json:"call"`
	Wait   string       `json:"wait,omitempty"`
	Lock   *lockMessage `json:"lock,omitempty"`
	Count  int          `json:"count"`
	Total  int64        `json:"total"` // ns
	Max    int64        `json:"max"`
	At     float64      `json:"at"`
}

// maxWaits limits the table of waits sent to a page.
const maxWaits = 2000

// waits merges equal waits: the recording has a separate description of a wait for each
// timeout, and Python's threads have a different one at each attempt to get the GIL.
func (f *feed) waits(q *query, t0, t1 stack.Time) []waitReply {
	all := f.st.Waits(t0, t1, q.Threads)
	// A wait for a lock is in the lane of states too; it counts once, as a lock.
	type told struct{ seq, wait int }
	locks := map[told]bool{}
	for i := range all {
		if w := &all[i]; w.Kind == "lock" && w.Lock.Wait != 0 {
			locks[told{w.Seq, w.Lock.Wait}] = true
		}
	}
	type look struct {
		seq  int
		what string // kind, state, call and wait, without its timeout
		lock lockMessage
	}
	out := []waitReply{}
	at := map[look]int{}
	for _, w := range all {
		if w.Kind == "call" && locks[told{w.Seq, w.State.Wait}] {
			continue
		}
		x := waitReply{Thread: w.Seq, Kind: w.Kind, Call: -1, Count: w.Count, Total: w.Total, Max: w.Max, At: float64(w.At - f.base)}
		k := look{seq: w.Seq, what: w.Kind}
		short := "" // the wait without its timeout
		if w.Kind == "lock" {
			k.lock = lockMessages(f, []store.Lock{w.Lock})[0]
			x.Lock = &k.lock
		} else {
			x.State, x.Call = w.State.State.String(), w.State.Call
			if d, ok := f.wait(w.State.Wait); ok {
				x.Wait = waitText(&d)
				d.Timeout = 0
				short = waitText(&d)
			}
			k.what += fmt.Sprintf(" %s %d %s", x.State, x.Call, short)
		}
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			out = append(out, x)
			continue
		}
		o := &out[i]
		if o.Wait != x.Wait {
			o.Wait = short
		}
		o.Count += x.Count
		o.Total += x.Total
		if x.Max > o.Max {
			o.Max, o.At = x.Max, x.At
		}
	}
	slices.SortStableFunc(out, func(a, b waitReply) int { return cmp.Compare(b.Total, a.Total) })
	return out[:min(len(out), maxWaits)]
}
