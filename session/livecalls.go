package session

import (
	"slices"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// liveCalls are the calls for TraceOptions.Live.
type liveCalls struct {
	ended []calls.Call // since the last batch
	young []calls.Call // under way, and not long enough for the recording yet
	noted time.Time    // when the functions were reported last
	lost  uint64       // hits, then
	hot   int          // functions that were detached by then
	known int          // functions
}

// maxHold bounds how long, in ns, the events of a thread wait for a call of it to become long enough.
const maxHold = stack.Time(time.Second)

// reached is exact.Options.Reached.
func (x *tracing) reached(until stack.Time, fresh []calls.Call) {
	l, slower := &x.live, stack.Time(x.o.Slower)
	b := &trace.CallBatch{Until: until, Traced: x.changed()}
	over := map[callKey]bool{}
	for i := range l.ended {
		c := &l.ended[i]
		if len(l.young) > 0 {
			over[keyOf(c)] = true
		}
		if c.Exit-c.Enter >= slower {
			b.Ended = append(b.Ended, *c)
		}
	}
	l.ended = l.ended[:0]
	l.young = append(l.young, fresh...)
	l.young = slices.DeleteFunc(l.young, func(c calls.Call) bool {
		switch {
		case over[keyOf(&c)]:
		case slower == 0, until-c.Enter >= slower:
			b.Open = append(b.Open, c)
		default:
			if b.Hold == nil {
				b.Hold = map[stack.TID]stack.Time{}
			}
			if at, ok := b.Hold[c.TID]; !ok || c.Enter <= at {
				b.Hold[c.TID] = min(until, max(c.Enter-1, until-maxHold))
			}
			return false
		}
		return true
	})
	x.o.Live(b)
}

// callKey identifies a call.
type callKey struct {
	tid   stack.TID
	fn    int
	enter stack.Time
	cfa   uint64
}

func keyOf(c *calls.Call) callKey { return callKey{c.TID, c.Fn, c.Enter, c.CFA} }

// changed returns the functions and accounts if what a timeline needs of them has changed.
func (x *tracing) changed() *trace.Traced {
	l := &x.live
	if time.Since(l.noted) < noteEvery {
		return nil
	}
	first := l.noted.IsZero()
	l.noted = time.Now()
	a := x.t.account()
	if !first && a.Lost == l.lost && len(a.Hot) == l.hot && len(a.Functions) == l.known {
		return nil
	}
	l.lost, l.hot, l.known = a.Lost, len(a.Hot), len(a.Functions)
	return a.traced(x.o.Slower)
}
