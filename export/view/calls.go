package view

import (
	"fmt"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Call is a traced call: exact, not sampled.
type Call struct {
	calls.Call
	Thread int // position in View.Threads; -1: the thread was not sampled
}

// Calls yields the traced calls that were under way in the view, in no particular order. Those of
// threads that were not sampled are there if no threads were chosen.
func (v *View) Calls(yield func(*Call) bool) { v.eachCall(false, yield) }

// Apart yields those of Calls that are not slices of the threads whose Timeline has run: of threads that were not
// sampled, of tasks, and from times in which the stack was not known.
func (v *View) Apart(yield func(*Call) bool) { v.eachCall(true, yield) }

func (v *View) eachCall(apart bool, yield func(*Call) bool) {
	numbers := map[int]int{} // of the next call of a thread
	chosen := map[int]int{}  // position in View.Threads, by Seq
	for i := range v.Threads {
		chosen[v.Threads[i].Seq] = i
	}
	known := map[stack.TID]int{} // the thread that had a number last
	all := len(v.Threads) == len(v.Rec.Threads)
	for c, err := range v.Rec.Calls() {
		if err != nil {
			continue
		}
		k, ok := known[c.TID]
		if !ok {
			k = v.Rec.ThreadOf(c.TID, c.Exit)
			if n := v.sharing(c.TID); n == 1 {
				known[c.TID] = k
			}
		}
		n := numbers[k]
		numbers[k]++
		if c.Exit < v.from || c.Enter > v.to {
			continue
		}
		x := Call{Call: c, Thread: -1}
		if k >= 0 {
			i, is := chosen[v.Rec.Threads[k].Seq]
			if !is {
				continue
			}
			if is := v.placed[v.Threads[i].Seq]; apart && n/64 < len(is) && is[n/64]>>(n%64)&1 != 0 {
				continue
			}
			x.Thread = i
		} else if !all {
			continue
		}
		if !yield(&x) {
			return
		}
	}
}

// sharing is how many threads had a number in turn.
func (v *View) sharing(tid stack.TID) (n int) {
	for i := range v.Rec.Threads {
		if v.Rec.Threads[i].TID == tid {
			n++
		}
	}
	return n
}

// Callers returns a function that names the place that a call was made from; "": not known.
func (v *View) Callers() func(*Call) string {
	names := map[uint64]string{}
	return func(c *Call) string {
		if c.Ret == 0 {
			return ""
		}
		name, ok := names[c.Ret]
		if !ok {
			l := v.Names.Resolve(event.WordOf(&stack.Frame{PC: c.Ret}), c.Enter)
			name = v.FuncName(l.Frames[0].Func)
			if len(names) < maxCallers {
				names[c.Ret] = name
			}
		}
		return name
	}
}

// maxCallers bounds the return addresses whose names are kept.
const maxCallers = 1 << 16

// TracedName is the name of a traced function by its number.
func (v *View) TracedName(fn int) string { return Text(v.Rec.Traced.Functions[fn].Name, MaxName) }

// noticedError is the error, in ns, of the times of traced calls from which on it is reported.
const noticedError = 100_000

// tracedLosses describes missing traced calls, one line each.
func tracedLosses(t *trace.Traced) (out []string) {
	if t == nil {
		return nil
	}
	if t.Lost > 0 {
		out = append(out, fmt.Sprintf("%s of traced functions lost: calls are missing, and some ends are wrong", plural.Either(t.Lost, "entry or exit", "entries and exits")))
	}
	if t.Dropped > 0 {
		out = append(out, fmt.Sprintf("%s in a recursion deeper than %d left out", plural.Of(t.Dropped, "traced call"), calls.MaxOpen))
	}
	if t.LostBytes > 0 {
		out = append(out, fmt.Sprintf("%d bytes of records of traced calls lost, since the buffers of the runtime were full: calls are missing", t.LostBytes))
	}
	if t.Missing > 0 {
		out = append(out, fmt.Sprintf("traced calls of %v missing: the runtime had removed their records, or it was killed", time.Duration(t.Missing)))
	}
	if t.ClockError > noticedError {
		out = append(out, fmt.Sprintf("times of traced calls are off by up to about %v", time.Duration(t.ClockError)))
	}
	hot, later := 0, 0
	for i := range t.Functions {
		f := &t.Functions[i]
		if f.Since > 0 {
			later++
		}
		if f.Hot <= 0 {
			continue
		}
		if hot++; hot <= maxReasons {
			out = append(out, fmt.Sprintf("%s no longer traced: %.0f entries and exits a second", Text(f.Name, 200), f.Hot))
		}
	}
	if hot > maxReasons {
		out = append(out, fmt.Sprintf("%s no longer traced", plural.Of(hot-maxReasons, "more function")))
	}
	if later > 0 {
		out = append(out, fmt.Sprintf("%s of files that were loaded later: their first calls may be missing", plural.Of(later, "traced function")))
	}
	return out
}
