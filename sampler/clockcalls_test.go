package sampler

import (
	"math"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Places of a clockThread.
const (
	inOwnCode = iota
	inCall
	inPageFault
)

// TestOwnCode: with a clock that copies a thread in its own code alone, calls have the share of the samples that they have of
// the CPU time, although no copy is made in them. So have page faults, in which a stop looks like one in own
// code. The limit for calls is 4.5 standard deviations of the number of stops in calls, and 3 points for
// the part of faults that is left out on purpose: a verdict is wrong by chance in less than 1 of 100,000 runs.
func TestOwnCode(t *testing.T) {
	const us = 1000
	for _, c := range []struct {
		name                   string
		own, call, fault, rest int64 // us, of one turn of the program
	}{
		{"no calls", 9000, 0, 0, 0},
		{"calls, half of the time", 4700, 4700, 0, 0},
		{"a few calls", 1900, 100, 0, 0},
		{"nearly all calls", 1000, 9000, 0, 0},
		{"long turns", 90_000, 60_000, 0, 0},
		{"faults", 700, 0, 700, 0},
		{"calls and faults", 1000, 500, 1000, 0},
		{"half asleep", 3000, 1000, 0, 4000},
		{"mostly asleep", 600, 600, 0, 12_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			const d = 120 * time.Second
			on := (c.own + c.call + c.fault) * us
			th := worker(on, 0, c.rest*us)
			th.place = func(at stack.Time) int {
				switch in := int64(at) % (on + c.rest*us) / us; {
				case in < c.own:
					return inOwnCode
				case in < c.own+c.call:
					return inCall
				}
				return inPageFault
			}
			sink, acc := clockSample(t, th, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true}, d)
			if !th.ever || th.machine {
				t.Fatalf("a clock was started: %v, of all CPUs: %v", th.ever, th.machine)
			}
			var n [3]float64
			outside, next := 0.0, stack.Sample{Time: math.MaxInt64, CPU: math.MaxInt64}
			for i := len(sink.samples) - 1; i >= 0; i-- {
				s := sink.samples[i]
				if s.Time > next.Time || s.CPU > next.CPU {
					t.Fatalf("%v, %d ns of CPU time before %v, %d", s.Time, s.CPU, next.Time, next.CPU)
				}
				if s.State != stack.StateRunning {
					next = s
					continue
				}
				place := th.place(s.Time)
				if place != inCall && th.stoppedBy(s.Time) {
					outside++
				}
				n[place]++
				next = s
			}
			all := n[inOwnCode] + n[inCall] + n[inPageFault]
			cpu := float64(on) / float64(on+c.rest*us)
			if want := cpu * d.Seconds() * 100; all < .9*want || all > 4.3*want {
				t.Errorf("%.0f samples on a CPU, want %.0f to %.0f", all, want, 4*want)
			}
			want := float64(c.call*us) / float64(on)
			stops := float64(acc.Stops) + 1
			slack := 4.5*math.Sqrt(want*(1-want)*(1/stops+1/all)) + .03
			if got := n[inCall] / all; math.Abs(got-want) > slack {
				t.Errorf("calls have %.1f %% of the samples and %.1f of the CPU time", 100*got, 100*want)
			}
			want = float64(c.fault) / float64(c.own+c.call+c.fault)
			if got := outside / all; got > want+.05 || got < want-.1 {
				t.Errorf("%.1f %% of the samples are of faults, want %.1f", 100*got, 100*want)
			}
			// A stop at each tick that finds it owing, and fewer if it is rarely in the kernel.
			if most := cpu*d.Seconds()*100*min(1, callTries*float64(on-c.own*us)/float64(on)+leastTries) + 100; stops > most {
				t.Errorf("%.0f stops, want at most %.0f", stops, most)
			}
			t.Logf("%.0f samples: %.3f in calls, %.3f of faults, by %.0f stops", all, n[inCall]/all, outside/all, stops)
		})
	}
}

// TestOwnCodeLost: copies that a full buffer had no room for are not periods in the kernel. That they are lost is known from the next
// copy.
func TestOwnCodeLost(t *testing.T) {
	const period = 1_000_000
	var c callTime
	c.start(true, 0, period)
	for i := range 12 {
		c.copied(int64(i+1)*period, 0)
	}
	c.full = true
	if owed := c.owes(60 * period); owed != 0 {
		t.Errorf("%d periods are owed after a full buffer", owed/period)
	}
	c.copied(61*period, 40) // 48 periods since, of which 8 ended in the kernel
	if owed := c.owes(61 * period); owed != 8*period {
		t.Errorf("%d periods are owed, want 8", owed/period)
	}
	if owed := c.owes(63 * period); owed != 10*period {
		t.Errorf("%d periods are owed, want 10", owed/period)
	}
}

// stoppedBy reports whether a sample is one of a stop: those are at its time or up to mostCalls before it.
func (t *clockThread) stoppedBy(at stack.Time) bool {
	for i := range stack.Time(mostCalls + 1) {
		if t.stopped[at+i] {
			return true
		}
	}
	return false
}

// TestOwnCodeStarved: where others use the CPUs, a thread with such a clock waits most of the time, and ticks hardly ever meet it running.
// Its calls have their share of the CPU time nevertheless. What samples of waits have of the CPU time would be lost to the
// samples that it owes. The limit is 4.5 standard deviations of the number of stops, of which each pays some samples, and 3 points for
// what it owes at the end: a verdict is wrong by chance in less than 1 of 100,000 runs.
func TestOwnCodeStarved(t *testing.T) {
	const us, d = 1000, 60 * time.Second
	for _, c := range []struct {
		own, call    int64 // us of CPU time in one turn of the program
		slice, queue int64 // us that it runs, and that it waits for a CPU then
		nap          int64 // us that it sleeps after that
	}{
		{2100, 900, 1700, 8000, 0},
		{3000, 1000, 2900, 31_000, 0},
		{700, 1300, 1300, 13_000, 0},
		{3000, 1000, 1700, 23_000, 3000},
		{3000, 3000, 700, 9000, 500},
	} {
		th := worker(c.slice*us, c.queue*us, c.nap*us)
		turn := (c.own + c.call) * us
		th.place = func(at stack.Time) int {
			if th.cpu(at)%turn < c.own*us {
				return inOwnCode
			}
			return inCall
		}
		sink, acc := clockSample(t, th, Config{Interval: 5 * time.Millisecond, Jitter: .5, Clock: true}, d)
		// As in export/view: the samples on a CPU of a window share its CPU time.
		const window = 16
		var in [2]float64
		inCalls, runs, last := 0, 0, int64(0)
		for _, s := range sink.samples {
			if s.State == stack.StateRunning {
				runs++
				if th.place(s.Time) == inCall {
					inCalls++
				}
			}
			if runs == window {
				calls := float64(s.CPU-last) * float64(inCalls) / window
				in[0], in[1] = in[0]+float64(s.CPU-last)-calls, in[1]+calls
				inCalls, runs, last = 0, 0, s.CPU
			}
		}
		want, got := float64(c.call*us)/float64(turn), in[1]/(in[0]+in[1])
		t.Logf("calls have %.3f of the CPU time, want %.3f, by %d stops", got, want, acc.Stops)
		if acc.Stops < 100 || math.Abs(got-want) > .03+4.5*math.Sqrt(want*(1-want)/float64(acc.Stops)) {
			t.Errorf("calls have %.3f of the CPU time by %d stops, want %.3f", got, acc.Stops, want)
		}
	}
}
