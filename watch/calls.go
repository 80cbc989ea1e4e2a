package watch

import (
	"errors"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/trigger"
)

// calls counts the calls of functions in rules. A sample may miss a short call; the CPU's
// breakpoints do not. It belongs to the watching goroutine.
type calls struct {
	t       *watched
	places  []calledPlace
	threads map[int][]*counted // by the thread's number in the Recorder
	off     map[*trigger.Rule]bool
	last    stack.Time // previous look
	stale   bool       // the address space has changed since the functions were located
	found   stack.Time // when they were located
}

// findAgain is how often functions are located, in ns, in a process that maps code all
// the time.
const findAgain = 2_000_000_000

type calledPlace struct {
	rule *trigger.Rule
	addr uint64
}

type counted struct {
	rule  *trigger.Rule
	tid   stack.TID
	c     *target.CallCounter
	calls uint64
}

// maxCalls in one thread between two looks is too many for a marker: each call costs the
// target some µs.
const maxCalls = 1000

// find locates the functions of rules. If a function has no unique address, or the kernel
// forbids counting, only samples can detect its calls.
func (k *calls) find(rules []*trigger.Rule) {
	if k.off == nil {
		k.off, k.threads = map[*trigger.Rule]bool{}, map[int][]*counted{}
	}
	var places []calledPlace
	for _, r := range rules {
		if r.Kind != trigger.Call || r.Slower > 0 || k.off[r] {
			continue
		}
		for _, addr := range k.t.names.Find(r.Function, trigger.Names, target.MaxCallCounters+1) {
			places = append(places, calledPlace{r, addr})
		}
	}
	if len(places) > target.MaxCallCounters {
		k.t.w.log.Info("calls are met by samples alone", "pid", k.t.pid, "functions", len(places), "most", target.MaxCallCounters)
		places = nil
	}
	if !slices.Equal(places, k.places) {
		k.close()
		k.places = places
		k.t.w.log.Info("counts calls", "pid", k.t.pid, "places", len(places))
	}
}

// renew locates them again after the address space has changed.
func (k *calls) renew(now stack.Time) {
	if !k.stale || k.found != 0 && int64(now-k.found) < findAgain {
		return
	}
	k.stale, k.found = false, now
	rules, _ := k.t.w.current()
	k.find(rules)
}

// counted reports whether calls of the rule's function by a thread are being counted.
func (k *calls) counted(r *trigger.Rule, tid stack.TID) bool {
	for _, cs := range k.threads {
		for _, c := range cs {
			if c.rule == r && c.tid == tid && c.calls > 0 {
				return true
			}
		}
	}
	return false
}

// look returns the calls of a thread since the previous look. It starts counting for a
// new thread.
func (k *calls) look(seq int, track *trigger.Track, hits []trigger.Hit) []trigger.Hit {
	if len(k.places) == 0 {
		return hits
	}
	cs, ok := k.threads[seq]
	if !ok {
		for _, p := range k.places {
			if !p.rule.Picks(track) {
				continue
			}
			c, err := k.t.proc.CountCalls(track.TID, p.addr)
			if errors.Is(err, target.ErrGone) {
				break
			}
			if err != nil {
				k.stop(p.rule, err)
				return hits
			}
			cs = append(cs, &counted{rule: p.rule, tid: track.TID, c: c})
		}
		k.threads[seq] = cs
	}
	for _, c := range cs {
		n, err := c.c.Read()
		if err != nil || n == c.calls {
			continue
		}
		more := n - c.calls
		c.calls = n
		hits = append(hits, trigger.Hit{Rule: c.rule, TID: track.TID, Since: k.last})
		if more > maxCalls {
			k.stop(c.rule, errors.New("it is called too often"))
			return hits
		}
	}
	return hits
}

// stop stops counting for a rule, which then relies on samples.
func (k *calls) stop(r *trigger.Rule, why error) {
	k.t.w.log.Warn("calls are met by samples alone", "pid", k.t.pid, "function", r.Function, "why", why)
	k.off[r] = true
	rules, _ := k.t.w.current()
	k.find(rules)
}

// keep closes the counters of threads that are gone.
func (k *calls) keep(there map[int]bool) {
	for seq, cs := range k.threads {
		if !there[seq] {
			for _, c := range cs {
				c.c.Close()
			}
			delete(k.threads, seq)
		}
	}
}

func (k *calls) close() { k.keep(nil) }
