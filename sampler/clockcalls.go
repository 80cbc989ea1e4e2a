package sampler

import (
	"math"
	"math/rand/v2"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// With kernel.perf_event_paranoid of 2, a user without CAP_PERFMON gets clocks that copy a thread in its own code alone: a
// period that ends in the kernel makes no copy. The CPU time between copies gives the number of those periods, and
// stops show the calls: a stop takes effect at the end of the call that it meets. So a tick that finds the thread
// running, and owing samples, stops it, and the stop gets these samples.
//
// Time in the kernel outside of calls is that of page faults and interrupts. A stop during a fault looks like one in the
// thread's own code. But code with faults has more such stops than its copies predict, and that part of
// them gets samples, too.

const (
	// A stop gets at most fewCalls samples at once, or twice the mean of all stops, up to mostCalls. This spreads a debt
	// from a time without stops over several places.
	fewCalls, mostCalls = 8, 64
	// A thread that runs little, or naps, is hardly met running. Stops that find the thread waiting for a CPU therefore get the debt
	// beyond leftCalls periods. What a thread that is found blocked owes beyond leftWaiting is in an unknown place.
	leftCalls, leftWaiting = 16, 64
	// After callStops stops, all sums over them count half.
	callStops = 256
	// callShare is the share of time in the kernel above which at most callTicks ticks in a row are left out.
	callShare, callTicks = 1.0 / 16, 3
	// See tries.
	callTries, leastTries = 4, 1.0 / 16
	// mostPlaces limits the places of a thread. likeAll is the weight, in stops, of the whole thread's share of faults
	// in the estimate for a place.
	mostPlaces, likeAll = 256, 4
)

// callTime is the state of a clock that makes no copies while the thread is in the kernel. Times are ns of CPU time.
type callTime struct {
	on     bool
	period int64 // the present one
	began  int64 // CPU time of the thread at the start
	base   int64 // CPU time of the thread when the present period began, or at the last copy
	missed int64 // periods without a copy before that, since the start
	paid   int64 // samples made for those
	stops  int64 // that had some
	at     int64 // CPU time of the thread at the last of all
	full   bool  // the buffer may have had no room for copies after the last one: the next one says how many

	recent stopShares
}

// stopShares are sums over recent stops, from which faults estimates the share of page faults.
type stopShares struct {
	in, out     float64 // stops in calls, and others
	copied, all float64 // ns of periods with a copy, and of all
	copies      int64   // periods with a copy since the last stop
	missed      int64   // those without, as of the last stop
	places      map[uint64]placeShare
}

// placeShare is what there is of one place in the code.
type placeShare struct {
	copied float64 // ns
	out    float64 // stops
}

// placeOf identifies some code, as called from one place.
func placeOf(frames []stack.Frame) (place uint64) {
	if len(frames) > 0 {
		place = frames[0].PC >> 8
	}
	if len(frames) > 1 {
		place ^= frames[1].PC << 24
	}
	return place
}

// add adds to a place. Places beyond the limit are one.
func (r *stopShares) add(place uint64, copied, out float64) placeShare {
	if r.places == nil {
		r.places = map[uint64]placeShare{}
	}
	x, ok := r.places[place]
	if !ok && len(r.places) >= mostPlaces {
		place = 0
		x = r.places[place]
	}
	x.copied, x.out = x.copied+copied, x.out+out
	r.places[place] = x
	return x
}

// halve makes all sums count half.
func (r *stopShares) halve() {
	r.in, r.out, r.copied, r.all = r.in/2, r.out/2, r.copied/2, r.all/2
	for place, x := range r.places {
		if x.copied, x.out = x.copied/2, x.out/2; x.copied < 1e6 && x.out < .5 {
			delete(r.places, place)
		} else {
			r.places[place] = x
		}
	}
}

// start begins the account of a new clock.
func (t *callTime) start(on bool, cpu, period int64) {
	*t = callTime{on: on, period: period, began: cpu, base: cpu, recent: t.recent}
	t.recent.copies, t.recent.missed = 0, 0
}

// copiedAt notes the frames of a copy.
func (t *callTime) copiedAt(frames []stack.Frame) {
	if t.on {
		t.recent.add(placeOf(frames), float64(t.period), 0)
	}
}

// copied notes a copy, and lost ones before it, for which the buffer had no room.
func (t *callTime) copied(cpu int64, lost uint64) {
	if !t.on {
		return
	}
	n := int64(math.Round(float64(cpu-t.base)/float64(t.period))) - 1
	t.missed += max(n-int64(lost), 0) * t.period
	t.base, t.full = max(cpu, t.base), false
	t.recent.copies += t.period
}

// draw notes a new period, which begins at once.
func (t *callTime) draw(cpu, period int64) {
	if t.on {
		t.missed += t.open(cpu)
		t.base, t.period = max(cpu, t.base), period
	}
}

// silent reports whether a new period is due although no copy was made: a program in step with the present one is in a
// call at each of its ends.
func (t *callTime) silent(cpu int64) bool { return t.on && cpu-t.base >= clockDraw*t.period }

// open returns the time of the periods that have ended without a copy since the last one, as far as that is known.
func (t *callTime) open(cpu int64) int64 {
	if t.full {
		return 0
	}
	return max(cpu-t.base, 0) / t.period * t.period
}

// owes returns the CPU time without samples.
func (t *callTime) owes(cpu int64) int64 {
	if !t.on {
		return 0
	}
	return t.missed + t.open(cpu) - t.paid
}

// stopped notes a stop of the running thread. It reports whether the sample is one of the time in the kernel.
func (t *callTime) stopped(inCall bool, cpu int64, frames []stack.Frame) bool {
	r, missed := &t.recent, t.missed+t.open(cpu)
	r.copied += float64(r.copies)
	r.all += float64(r.copies + missed - r.missed)
	r.copies, r.missed = 0, missed
	if r.in+r.out >= callStops {
		r.halve()
	}
	if inCall {
		r.in++
		return true
	}
	r.out++
	return rand.Float64() < r.faults(r.add(placeOf(frames), 0, 1))
}

// faults returns the probability that a stop outside of calls, at a place, met the kernel. By chance alone, such stops are more
// than the copies let expect half of the times: a standard deviation is left out.
func (r *stopShares) faults(x placeShare) float64 {
	n, own := r.in+r.out, min(r.copied/max(r.all, 1), 1)
	outside := min((own+math.Sqrt(own*(1-own)/n))*n/r.out, 1) // share of such stops that met its own code
	expected := x.copied * n / max(r.all, 1)
	return max(0, 1-(expected+math.Sqrt(expected)+likeAll*outside)/(x.out+likeAll))
}

// much reports whether the thread is often in the kernel. Few ticks are left out then.
func (t *callTime) much() bool {
	r := &t.recent
	return t.on && r.copied < (1-callShare)*r.all
}

// owesCalls reports whether a tick that finds the thread running, with counters c, has to stop it for samples of its time
// in the kernel.
func (g *group) owesCalls(th *thread, c *Counters) bool {
	t := &th.clock.calls
	return t.on && !g.cur.spent && t.owes(c.CPU) >= t.period && rand.Float64() < t.tries(c.CPU)
}

// owesMuch reports whether the thread owes samples that a stop pays even if it finds the thread waiting for a CPU. A wait is stopped
// once: places that pay nothing would be met again at each tick of it.
func (t *callTime) owesMuch(cpu int64) bool {
	return t.on && t.owes(cpu) > leftCalls*t.period && cpu-t.at >= t.period
}

// tries returns the probability of a stop at a tick that finds the thread owing samples. Few stops meet a thread in the kernel that is
// rarely in it.
func (t *callTime) tries(cpu int64) float64 {
	share := float64(t.missed+t.open(cpu)) / float64(max(cpu-t.began, t.period))
	return min(max(callTries*share, leastTries), 1)
}

// payCalls records the samples that the thread owes, with the stack of the stop at hand, which was made for owesCalls. They count as
// copies, since each is for a period of CPU time, too. A thread that waited for a CPU gets those beyond leftCalls: where CPUs are short, it
// is hardly ever met on one, and it lost its CPU at a random place. done is false if the thread turned out to be blocked, which
// is a sample of its own.
func (g *group) payCalls(th *thread) (done bool) {
	t, s := &th.clock.calls, &g.sample
	owed, left := t.owes(s.CPU)/t.period, int64(0)
	switch s.State {
	case stack.StateRunning:
	case stack.StateRunnable:
		left = leftCalls
	default:
		return false
	}
	th.sink.Event(s.Begin, event.Pause, uint64(s.Pause))
	s.Pause, t.at = 0, s.CPU
	if owed <= left || !t.stopped(g.view.Call.Nr >= 0, s.CPU, s.Stack) {
		return true
	}
	t.stops++
	mean := (t.missed + t.open(s.CPU)) / t.period / t.stops
	n := min(owed-left, max(fewCalls, 2*mean), mostCalls)
	t.paid += n * t.period
	g.makeUp(th, n)
	return true
}

// owedWaiting records the samples that the thread owes beyond leftWaiting. The sample at hand found it blocked.
func (g *group) owedWaiting(th *thread) {
	t := &th.clock.calls
	if n := t.owes(g.sample.CPU)/t.period - leftWaiting; n > 0 {
		n = min(n, mostCalls)
		t.paid += n * t.period
		g.makeUnknown(th, n)
	}
}

// makeUnknown records n samples on a CPU in an unknown place of the kernel, right before the sample at hand. They have
// the outer frames that this one and the last copy share.
func (g *group) makeUnknown(th *thread, n int64) {
	s, last := &g.sample, th.clock.stack
	was, i := s.Stack, len(s.Stack)
	for j := len(last); i > 0 && j > 0; {
		f, of := &s.Stack[i-1], &last[j-1]
		if f.Func != of.Func || f.CFA != of.CFA || f.Kind != of.Kind {
			break
		}
		i, j = i-1, j-1
	}
	if i = min(i, len(was)-1); i < 0 {
		return
	}
	at := stack.Frame{Kind: stack.KindError, PC: uint64(stack.ReasonKernel), CFA: was[i].CFA - 1}
	s.Stack = append([]stack.Frame{at}, was[i:]...)
	g.makeUp(th, n)
	s.Stack = was
}

// makeUp records n samples of the stack at hand, on a CPU, right before its sample. Each has a period of CPU time, if there is as much.
func (g *group) makeUp(th *thread, n int64) {
	k, s := &th.clock, &g.sample
	was := *s
	for i := range n {
		at := was.Time - stack.Time(n-i)
		if at <= stack.Time(th.acc.to.Load()) {
			continue
		}
		s.Time, s.Way, s.State, s.Call, s.Pause = at, stack.WayClock, stack.StateRunning, stack.Call{Nr: -1}, 0
		s.CPU = min(th.lastCPU()+k.every, was.CPU)
		g.write(th)
	}
	*s = was
}
