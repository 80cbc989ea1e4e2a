package trace

import (
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// turns is a program that works and sleeps in turns, as samples find it.
type turns struct {
	work, nap int64   // ns on average
	tasks     bool    // each turn is another task's
	clock     int64   // ns on a CPU from one copy by a clock to the next, which replace the samples at work; 0: it has none
	woken     float64 // share of the samples that find it waiting for a CPU, for 5 µs, since their own timer woke it
	delay     int64
	rnd       *rand.Rand
	ends      []int64 // of its turns, in ns; the first one is work
	worked    []int64 // CPU time until then
}

func (p *turns) until(t int64) {
	for len(p.ends) == 0 || p.ends[len(p.ends)-1] <= t {
		last, cpu := int64(0), int64(0)
		if n := len(p.ends); n > 0 {
			last, cpu = p.ends[n-1], p.worked[n-1]
		}
		of := p.work
		if len(p.ends)%2 == 1 {
			of = p.nap
		}
		took := of/2 + p.rnd.Int64N(of)
		if len(p.ends)%2 == 0 {
			cpu += took
		}
		p.ends, p.worked = append(p.ends, last+took), append(p.worked, cpu)
	}
}

// at returns the number of the turn at t and the CPU time so far.
func (p *turns) at(t int64) (turn int, cpu int64) {
	p.until(t)
	turn = sort.Search(len(p.ends), func(i int) bool { return t < p.ends[i] })
	if turn == 0 {
		return 0, t
	}
	cpu = p.worked[turn-1]
	if turn%2 == 0 {
		cpu += t - p.ends[turn-1]
	}
	return turn, cpu
}

// when returns the time at which the program has worked for ns more than at t.
func (p *turns) when(t, ns int64) int64 {
	for {
		turn, _ := p.at(t)
		end := p.ends[turn]
		if turn%2 == 0 {
			if t+ns < end {
				return t + ns
			}
			ns -= end - t
		}
		t = end
	}
}

// sampled returns the events of a recording of length ns, with samples at every interval. Of those that find the
// program at work, the given part is left out.
func (p *turns) sampled(ns, interval int64, leftOut float64) (out []event.Event) {
	const start = 1_000_000_000
	var d diff.Differ
	frame := func(pc uint64) stack.Frame { return stack.Frame{PC: pc, Func: pc, CFA: 1<<40 - pc, Exact: true} }
	copied, known := int64(0), int64(0) // time of the next copy, and the CPU time that the last sample had
	if p.clock > 0 {
		copied = p.when(0, p.clock/2)
	}
	for t := int64(0); t < ns; t += interval/2 + p.rnd.Int64N(interval) {
		turn, cpu := p.at(t)
		if p.clock > 0 {
			for ; copied < t; copied = p.when(copied, p.clock/2+p.rnd.Int64N(p.clock)) {
				s := stack.Sample{Time: stack.Time(start + copied), CPU: known, Delay: p.delay, State: stack.StateRunning, Call: stack.Call{Nr: -1}, Way: stack.WayClock,
					Stack: []stack.Frame{frame(0x2000), frame(0x1000)}}
				out = d.Step(&s, out)
			}
			if turn%2 == 0 {
				continue
			}
		}
		known = cpu
		s := stack.Sample{Time: stack.Time(start + t), CPU: cpu, State: stack.StateRunning, Call: stack.Call{Nr: -1}, Switches: uint64(turn / 2), Way: stack.WayStop,
			Stack: []stack.Frame{frame(0x2000), frame(0x1000)}}
		if turn%2 == 0 && p.rnd.Float64() < leftOut {
			out = d.Gap(s.Time, stack.WhyLate, interval, out)
			out = d.Event(s.Time, event.Mark, uint64(stack.WhyLate), out)
			out = d.Event(s.Time, event.Rate, uint64(interval), out)
			continue
		}
		if turn%2 == 1 {
			s.State, s.Call.Nr, s.Way, s.Stack[0] = stack.StateBlocked, 230, stack.WayRead, frame(0x3000)
			s.Call.Args[0] = uint64(turn)
			if p.rnd.Float64() < p.woken {
				s.State, s.Call, s.Way = stack.StateRunnable, stack.Call{Nr: -1}, stack.WayStop
				p.delay += 5000
			}
		}
		s.Delay = p.delay
		if p.tasks {
			out = d.Event(s.Time, event.Task, event.TaskOf(stack.Task{ID: uint64(turn + 1), State: stack.TaskRunning}), out)
		}
		out = d.Step(&s, out)
	}
	return d.Flush(out)
}

// spent sums the time of events by state.
func spent(events []event.Event) map[stack.State]int64 {
	sum := map[stack.State]int64{}
	var s stack.State
	at := stack.Time(0)
	for _, e := range events {
		if e.Kind() == event.Enter && e.Time < at {
			continue
		}
		if at != 0 {
			sum[s] += int64(e.Time - at)
		}
		at = e.Time
		if e.Kind() == event.State {
			s, _ = event.StateFields(e.Payload())
		}
	}
	return sum
}

// TestFit compares the time of waits with the program's own account, where samples are missing at random, and
// where most of those at work are missing.
func TestFit(t *testing.T) {
	const length, interval = 60_000_000_000, 10_000_000
	for i, c := range []struct {
		work, nap int64
		leftOut   float64
		tasks     bool
		clock     int64
		woken     float64
	}{
		{13_000_000, 10_000_000, 0, false, 0, 0}, {13_000_000, 10_000_000, .6, false, 0, 0}, {50_000_000, 2_000_000, 0, false, 0, 0}, {2_000_000, 60_000_000, 0, false, 0, 0},
		{2_000_000, 60_000_000, .5, false, 0, 0}, {200_000, 200_000, 0, false, 0, 0}, {20_000, 380_000, 0, false, 0, 0}, {300_000_000, 400_000_000, .5, false, 0, 0},
		{13_000_000, 10_000_000, .6, true, 0, 0}, {2_000_000, 60_000_000, .5, true, 0, 0},
		{4_000_000, 5_000_000, 0, false, 5_000_000, 0}, {1_000_000, 30_000_000, 0, false, 2_500_000, 0}, {100_000_000, 20_000_000, 0, false, 10_000_000, 0},
		{3_000_000, 1_000_000, 0, false, 10_000_000, 0}, {80_000, 320_000, 0, false, 1_000_000, 0},
		{4_000_000, 5_000_000, 0, false, 5_000_000, .03}, {4_000_000, 5_000_000, 0, false, 0, .1},
	} {
		if testing.Short() && i%4 != 1 && i != 10 {
			continue
		}
		p := &turns{work: c.work, nap: c.nap, tasks: c.tasks, clock: c.clock, woken: c.woken, rnd: rand.New(rand.NewPCG(uint64(c.work), uint64(c.nap)))}
		raw := p.sampled(length, interval, c.leftOut)
		events := slices.Collect(fit(slices.Values(raw), nil))
		last := raw[len(raw)-1].Time - 1_000_000_000
		_, cpu := p.at(int64(last))
		truth := int64(last) - cpu
		was, is := spent(raw)[stack.StateBlocked], spent(events)[stack.StateBlocked]
		off := func(ns int64) float64 { return 100 * float64(ns-truth) / float64(last) }
		t.Logf("%v / %v ns, %.0f%% left out: waits %+.1f points of the time off, without fit %+.1f", c.work, c.nap, 100*c.leftOut, off(is), off(was))
		if x := off(is); x > 1 || x < -1 {
			t.Errorf("%v / %v ns, %.0f%% left out: %.1f points off", c.work, c.nap, 100*c.leftOut, x)
		}
		if ready := spent(events)[stack.StateRunnable]; ready > int64(last)/100 {
			t.Errorf("%v / %v ns: ready to run for %v ns of %v", c.work, c.nap, ready, last)
		}
		checkFit(t, raw, events)
		// While it is recorded: in batches of 200 ms.
		var soon []event.Event
		f := NewFitter(func(e event.Event) { soon = append(soon, e) })
		flushed := stack.Time(0)
		for _, e := range raw {
			f.Apply(e)
			if e.Time-flushed > 200_000_000 {
				f.Flush()
				flushed = e.Time
			}
		}
		f.Flush()
		if x := off(spent(soon)[stack.StateBlocked]); x > 1.5 || x < -1.5 {
			t.Errorf("%v / %v ns, %.0f%% left out, in batches: %.1f points off", c.work, c.nap, 100*c.leftOut, x)
		} else {
			t.Logf("in batches %+.1f", x)
		}
		checkFit(t, raw, soon)
	}
}

// checkFit checks what fit must keep: the order of times, each sample at its time in the state that it found, and
// the stacks.
func checkFit(t *testing.T, raw, events []event.Event) {
	t.Helper()
	type found struct {
		e     event.Event
		state stack.State
		top   event.Word
	}
	seen := func(events []event.Event) (all []found) {
		var r diff.Replayer
		at := stack.Time(0)
		for _, e := range events {
			if e.Time < at && e.Kind() != event.Enter {
				t.Fatalf("%s at %d follows an event at %d", e.Kind(), e.Time, at)
			}
			at = max(at, e.Time)
			r.Apply(e, quiet{})
			if e.Kind() == event.Seen && len(r.Stack) > 0 {
				w := r.Waiting()
				s, _ := w.State()
				all = append(all, found{e, s, r.Stack[len(r.Stack)-1].Word})
			}
		}
		if r.Odd != 0 {
			t.Errorf("%d invalid events", r.Odd)
		}
		return all
	}
	if a, b := seen(raw), seen(events); !slices.Equal(a, b) {
		t.Errorf("%d samples, %d after fit, or not the same", len(a), len(b))
	}
}

type quiet struct{}

func (quiet) Other(event.Event)                 {}
func (quiet) Enter(stack.Time, int, diff.Frame) {}
func (quiet) Exit(stack.Time, int, diff.Frame)  {}
func (quiet) Move(stack.Time, int, diff.Frame)  {}

// TestFitBound reads events without samples: the buffer is bounded.
func TestFitBound(t *testing.T) {
	most := 0
	f := &fitter{yield: func(event.Event) bool { return true }}
	for i := range 10 * fitEvents {
		f.apply(event.Make(stack.Time(i), event.State, event.StateOf(stack.State(1+i%3), -1)))
		most = max(most, len(f.buf), len(f.changes))
	}
	if most > 2*fitEvents {
		t.Errorf("%d events in the buffer", most)
	}
}

// Without an account nothing moves, and any events are yielded in full: fit drops none and adds only naps and states.
func FuzzFit(f *testing.F) {
	f.Add(uint64(1), uint16(100))
	f.Add(uint64(2), uint16(3000))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var raw []event.Event
		at := stack.Time(1_000_000)
		for range n {
			if rnd.IntN(3) == 0 {
				at += stack.Time(rnd.Int64N(20_000_000))
			}
			k := event.Kind(rnd.IntN(int(event.Parked) + 1))
			payload := rnd.Uint64()
			switch k {
			case event.State:
				payload = event.StateOf(stack.State(rnd.IntN(9)), int32(rnd.IntN(5)))
			case event.Seen:
				payload = event.SeenOf(stack.Way(rnd.IntN(int(stack.WayClock)+1)), rnd.IntN(4), rnd.Int64N(20_000_000))
			case event.Sync:
				payload = rnd.Uint64N(4)
			case event.Exit:
				payload = 0
			}
			raw = append(raw, event.Make(at, k, payload))
		}
		got := slices.Collect(fit(slices.Values(raw), []Maps{{At: 5_000_000}}))
		count := func(events []event.Event) map[uint64]int {
			m := map[uint64]int{}
			for _, e := range events {
				m[e.Value]++
			}
			return m
		}
		a, b := count(raw), count(got)
		for v, n := range a {
			if b[v] < n {
				t.Fatalf("%d of %d events %#x", b[v], n, v)
			}
		}
		for v, n := range b {
			switch k := (event.Event{Value: v}).Kind(); {
			case k == event.State || a[v] == n:
			case k == event.Exit || k == event.Enter || k == event.Move || k == event.Wait || k == event.Lock: // of naps
			default:
				t.Fatalf("%d events %#x, want %d", n, v, a[v])
			}
		}
		last := stack.Time(0)
		for _, e := range got {
			if e.Time < last {
				t.Fatalf("%s at %d follows an event at %d", e.Kind(), e.Time, last)
			}
			last = e.Time
		}
	})
}

// TestFitQueues: a thread that waits for a CPU between copies by a clock is ready to run for as long as the scheduler says.
func TestFitQueues(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct{ cpu, delay int64 }{{8, 20}, {20, 8}, {2, 30}, {10, 0}, {30, 5}} {
		var d diff.Differ
		var raw []event.Event
		frame := func(pc uint64) stack.Frame { return stack.Frame{PC: pc, Func: pc, CFA: 1<<40 - pc, Exact: true} }
		for i := range int64(50) {
			at := stack.Time(1_000_000_000 + i*40*ms)
			s := stack.Sample{Time: at, CPU: i * c.cpu * ms, Delay: i * c.delay * ms, Switches: uint64(i), State: stack.StateBlocked, Call: stack.Call{Nr: 0},
				Way: stack.WayRead, Stack: []stack.Frame{frame(0x3000), frame(0x1000)}}
			raw = d.Step(&s, raw)
			for k := range stack.Time(4) {
				s.Time, s.State, s.Call.Nr, s.Way = at+(1+10*k)*ms, stack.StateRunning, -1, stack.WayClock
				s.Stack[0] = frame(0x2000)
				raw = d.Step(&s, raw)
			}
		}
		raw = d.Flush(raw)
		events := slices.Collect(fit(slices.Values(raw), nil))
		got := spent(events)
		all := float64(got[stack.StateRunning]+got[stack.StateRunnable]+got[stack.StateBlocked]) / 100
		cpu, ready := float64(got[stack.StateRunning])/all, float64(got[stack.StateRunnable])/all
		if x := cpu - float64(c.cpu)*2.5; x > 3 || x < -3 {
			t.Errorf("%d and %d of 40 ms: on a CPU for %.1f%%", c.cpu, c.delay, cpu)
		}
		if x := ready - float64(c.delay)*2.5; x > 3 || x < -3 {
			t.Errorf("%d and %d of 40 ms: ready for %.1f%%", c.cpu, c.delay, ready)
		}
		checkFit(t, raw, events)
	}
}

// TestFitQueuesBetween: a thread that no sample finds on a CPU, as those would need a stop, runs and waits for a CPU between its
// waits for as long as the scheduler says.
func TestFitQueuesBetween(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct{ cpu, delay int64 }{{8, 20}, {20, 8}, {2, 30}, {10, 0}, {0, 12}} {
		var d diff.Differ
		var raw []event.Event
		frame := func(pc uint64) stack.Frame { return stack.Frame{PC: pc, Func: pc, CFA: 1<<40 - pc, Exact: true} }
		for i := range int64(50) {
			s := stack.Sample{Time: stack.Time(1_000_000_000 + i*40*ms), CPU: i * c.cpu * ms, Delay: i * c.delay * ms, Switches: uint64(2 * i), State: stack.StateBlocked,
				Call: stack.Call{Nr: 202, Args: [6]uint64{uint64(i)}}, Way: stack.WayRead, Stack: []stack.Frame{frame(0x3000 + uint64(i%2)), frame(0x1000)}}
			raw = d.Step(&s, raw)
		}
		raw = d.Flush(raw)
		events := slices.Collect(fit(slices.Values(raw), nil))
		got := spent(events)
		all := float64(got[stack.StateRunning]+got[stack.StateRunnable]+got[stack.StateBlocked]) / 100
		cpu, ready := float64(got[stack.StateRunning])/all, float64(got[stack.StateRunnable])/all
		if x := cpu - float64(c.cpu)*2.5; x > 3 || x < -3 {
			t.Errorf("%d and %d of 40 ms: on a CPU for %.1f%%", c.cpu, c.delay, cpu)
		}
		if x := ready - float64(c.delay)*2.5; x > 3 || x < -3 {
			t.Errorf("%d and %d of 40 ms: ready for %.1f%%", c.cpu, c.delay, ready)
		}
		checkFit(t, raw, events)
	}
}
