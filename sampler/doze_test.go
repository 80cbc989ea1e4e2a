package sampler

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// RestCPU returns the CPU time that the kernel reports: see fakeThread.knownCPU.
func (f *fakeTarget) RestCPU(but []Thread) (sum int64, ok bool) {
	if !f.doze {
		return 0, false
	}
	f.asked++
	for _, th := range f.threads {
		if slices.Contains(but, Thread(th)) {
			continue
		}
		sum += th.knownCPU(th.tr.now)
	}
	return sum, true
}

// With many sleeping threads next to some running ones, most ticks are sampled by a clock. The
// samples are still correct, no running thread gets late samples because of it, and uncertain
// ticks of a thread that wakes are counted as late.
func TestDoze(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		const until = 6000 * ms
		f := &fakeTarget{until: until, doze: true}
		if seed%2 == 1 { // threads that sleep at first doze from their first look
			f.born, f.cpu = -100_000*ms, 1000
		}
		scripts := map[stack.TID][]stack.Time{}
		sleepers := fewSleep + 1 + r.IntN(30)
		for i := range sleepers {
			times := []stack.Time{0}
			for t := stack.Time(0); r.IntN(4) == 0 && t < until; {
				t += stack.Time(r.Int64N(int64(3000 * ms)))
				times = append(times, t)
				t += stack.Time(r.Int64N(int64(40 * ms)))
				times = append(times, t)
			}
			scripts[stack.TID(i+2)] = times
		}
		runners := 1 + r.IntN(3)
		for i := range runners {
			scripts[stack.TID(sleepers+i+2)] = []stack.Time{0, 0} // without end
		}
		if r.IntN(2) == 0 { // and one that changes between the two all the time
			runners++
			times := []stack.Time{0}
			for t := 7 * ms; t < until; t += 7 * ms {
				times = append(times, t)
			}
			scripts[stack.TID(sleepers+runners+1)] = times
		}
		for tid := range stack.TID(len(scripts)) {
			f.threads = append(f.threads, turns(tid+2, scripts[tid+2]))
		}
		cfg := Config{Interval: time.Duration(1+r.IntN(15)) * time.Millisecond}
		_, sinks, accounts := sampleAll(t, f, cfg)
		ticks := int64(until) / int64(cfg.Interval)
		if f.asked*2 < int(ticks) {
			t.Errorf("seed %d: the clock was asked in %d of %d ticks", seed, f.asked, ticks)
		}
		for _, th := range f.threads {
			holdTrue(t, seed, th, sinks[th.tid].samples)
			a := accounts[th.tid]
			if got := int64(a.Samples + a.Late + a.Rested); got < ticks-1 || got > ticks+3 {
				t.Errorf("seed %d: thread %d: %d samples and %d late of %d ticks", seed, th.tid, a.Samples, a.Late, ticks)
			}
			wakes := uint64(len(scripts[th.tid]) / 2)
			if int(th.tid) > sleepers+1 {
				wakes = uint64(seed % 2) // it may sleep at its first look
			}
			blind := uint64(blindFor/int64(cfg.Interval)) + 2
			if a.Late > wakes*blind {
				t.Errorf("seed %d: thread %d woke %d times, and %d ticks are late", seed, th.tid, wakes, a.Late)
			}
			if g := sinks[th.tid].gaps[stack.WhyLate]; g != int64(a.Late)*int64(cfg.Interval) {
				t.Errorf("seed %d: thread %d: gaps of %d ns for %d late ticks", seed, th.tid, g, a.Late)
			}
		}
	}
}

// A group whose threads all doze sleeps through the ticks for which a reading of the clock serves, here for the sixteenth part
// of the longest nap. Their samples are as complete and as correct.
func TestDozeRests(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		const until, ticks = 6000 * ms, 600
		f := &fakeTarget{until: until, doze: true, born: -100_000 * ms, cpu: 1000}
		sleeps, wakes := 0, 0
		f.steer = func(s *Sampler, _ stack.Time) { s.gov.napLeast.Store(mostNap); sleeps++ }
		scripts := map[stack.TID][]stack.Time{}
		for tid := stack.TID(2); len(scripts) <= fewSleep+r.IntN(30); tid++ {
			scripts[tid] = []stack.Time{0}
			for t := stack.Time(0); seed%2 == 1 && r.IntN(8) == 0 && t < until; {
				t += stack.Time(r.Int64N(int64(3000 * ms)))
				scripts[tid] = append(scripts[tid], t, t+stack.Time(r.Int64N(int64(40*ms))))
				wakes++
			}
			f.threads = append(f.threads, turns(tid, scripts[tid]))
		}
		_, sinks, accounts := sampleAll(t, f, Config{Interval: 10 * time.Millisecond})
		if most := ticks/4 + 40; f.asked > most || wakes == 0 && sleeps > most {
			t.Errorf("seed %d: the group woke %d times and read the clock %d times in %d ticks, want at most %d", seed, sleeps, f.asked, ticks, most)
		}
		for _, th := range f.threads {
			holdTrue(t, seed, th, sinks[th.tid].samples)
			a, n := accounts[th.tid], uint64(len(scripts[th.tid])/2)
			if got := int64(a.Samples + a.Late + a.Rested); got < ticks-1 || got > ticks+8 { // the last sleep is a long one
				t.Errorf("seed %d: thread %d: %d samples, %d late and %d rested of %d ticks", seed, th.tid, a.Samples, a.Late, a.Rested, ticks)
			}
			if a.Late+a.Rested > n*(1<<mostNap+8) {
				t.Errorf("seed %d: thread %d woke %d times, %d ticks are late and %d rested", seed, th.tid, n, a.Late, a.Rested)
			}
		}
	}
}
