package trigger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Deadlock: threads wait for each other in a circle.
const Deadlock Kind = "deadlock"

var deadlock = Subject{
	Kind: Deadlock, Flag: "deadlock", Help: "threads wait for each other for this long",
	value: (*Rule).limit,
	check: (*Set).deadlocks,
}

func (s *Set) deadlocks(r *state, l *Look) (out []Fired) {
	r.forget(l)
	by := map[stack.TID]*Track{}
	for _, t := range l.Threads {
		if t.waits() && t.now.holder != 0 {
			by[t.TID] = t
		}
	}
	done := map[stack.TID]bool{}
	circles := map[stack.TID]bool{}
	for _, t := range l.Threads {
		var walk []*Track
		for x := by[t.TID]; x != nil && !done[x.TID]; x = by[x.now.holder] {
			done[x.TID] = true
			walk = append(walk, x)
		}
		if len(walk) == 0 {
			continue
		}
		from := slices.IndexFunc(walk, func(x *Track) bool { return x.TID == walk[len(walk)-1].now.holder })
		if from < 0 {
			continue
		}
		circle := walk[from:]
		since, first := stack.Time(0), circle[0]
		var parts []string
		for _, x := range circle {
			since = max(since, x.now.lockAt)
			if x.TID < first.TID {
				first = x
			}
			parts = append(parts, fmt.Sprintf("%s waits for the lock at %#x held by %d", x.label(), x.now.lock, x.now.holder))
		}
		lasts := time.Duration(l.Now - since)
		k := key{first.TID, uint64(since)}
		circles[k.tid] = true
		if !r.edge(k, lasts >= r.Limit) {
			continue
		}
		out = append(out, Fired{At: since, TID: first.TID,
			Text: fmt.Sprintf("deadlock of %d threads for %s: %s", len(circle), short(lasts), strings.Join(parts, ", ")),
			Values: []Value{{"threads", strconv.Itoa(len(circle))}, {"for", short(lasts)}, {"limit", short(r.Limit)},
				{"circle", strings.Join(parts, "; ")}}})
	}
	for tid := range r.held {
		if !circles[tid] {
			delete(r.held, tid)
		}
	}
	return out
}
