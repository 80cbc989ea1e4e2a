package view

import (
	"github.com/sliverprof/sliver/stack"
)

// StateRun is a time that a thread spent in one state. Runs of a thread are consecutive.
type StateRun struct {
	At    stack.Time
	NS    int64
	State stack.State
}

// AgreeRuns is the number of runs that exports buffer for one call of Agree.
const AgreeRuns = 1024

// Agree is the function Agree for runs of a thread in the view. It changes nothing if the recording has no
// account (cpu and delay are 0), or the view shows only a part of what the account covers.
func (v *View) Agree(runs []StateRun, cpu, delay int64) {
	if v.Whole() && cpu+delay > 0 {
		Agree(runs, cpu, delay, v.Rec.Process.Interval)
	}
}

// Agree moves the boundaries between runs so that running ones add up to cpu and runnable ones to delay, the
// scheduler's account of the same time. Samples give the order of states; a boundary between two samples may
// be anywhere between them, so it moves by at most one sampling interval if that is enough. The runs stay in
// order, and none becomes negative. A state without a run gets none.
func Agree(runs []StateRun, cpu, delay, interval int64) {
	move(runs, stack.StateRunning, stack.StateUnknown, cpu, interval)
	move(runs, stack.StateRunnable, stack.StateRunning, delay, interval)
}

// move adjusts the runs of one state to add up to want. Runs of state keep do not change.
func move(runs []StateRun, state, keep stack.State, want, interval int64) {
	// Boundaries between such a run and an adjacent one.
	var at []int
	sum := int64(0)
	for i := range runs {
		if runs[i].State == state {
			sum += runs[i].NS
		}
		if i == 0 || runs[i-1].At+stack.Time(runs[i-1].NS) != runs[i].At {
			continue
		}
		a, b := runs[i-1].State, runs[i].State
		if a != b && (a == state || b == state) && (keep == stack.StateUnknown || a != keep && b != keep) {
			at = append(at, i)
		}
	}
	grow := want - sum
	if grow == 0 || len(at) == 0 {
		return
	}
	ends := make(map[int]int64, 2*len(at)) // movable boundaries per run
	for _, i := range at {
		ends[i-1]++
		ends[i]++
	}
	// A run that shrinks at both boundaries gives up at most half of its length at each.
	room := func(i int, limit int64) int64 {
		giver := i
		if (runs[i].State == state) == (grow > 0) {
			giver = i - 1
		}
		return min(runs[giver].NS/ends[giver], limit)
	}
	limit, total := max(interval, 1), int64(0)
	for {
		total = 0
		for _, i := range at {
			total += room(i, limit)
		}
		if total >= abs(grow) || limit > maxGap {
			break
		}
		limit *= 2
	}
	if total == 0 {
		return
	}
	left := min(abs(grow), total)
	// Compute all moves before applying any.
	moves := make([]int64, len(at))
	for k, i := range at {
		r := room(i, limit)
		moves[k] = share(left, r, total)
		left -= moves[k]
		total -= r
		if total == 0 {
			break
		}
	}
	for k, i := range at {
		ns := moves[k]
		if (runs[i].State == state) != (grow > 0) { // to the right
			runs[i-1].NS += ns
			runs[i].NS -= ns
			runs[i].At += stack.Time(ns)
		} else {
			runs[i-1].NS -= ns
			runs[i].NS += ns
			runs[i].At -= stack.Time(ns)
		}
	}
}

func abs(x int64) int64 { return max(x, -x) }
