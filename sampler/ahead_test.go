package sampler

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// foreseer is a fakeEngine that can run ticks ahead.
type foreseer struct {
	*fakeEngine
	views []View
	ticks int // completed in total
}

func (tr *foreseer) GoAhead(a *Ahead) bool {
	a.At, a.Ticks, a.Done, a.Stops, a.Stood, a.Err, a.Asleep = a.At[:0], 0, 0, 0, tr.now, nil, false
	tr.views = tr.views[:0]
	cpu := tr.clock()
	for i, due := range a.Due {
		if tr.now >= tr.f.until {
			tr.SleepUntil(due) // until a wake
			return true
		}
		if tr.now = max(tr.now, due); tr.now >= a.End[i] {
			return true
		}
		if a.ByClock {
			if tr.clock() != cpu {
				return true
			}
			a.Stood = tr.now
		}
		a.At = append(a.At, tr.now)
		for j := range a.Items {
			it := &a.Items[j]
			th := it.Thread.(*fakeThread)
			c, running, _ := th.at(tr.now)
			if running != it.Runs || !running && c != it.Counters || running && a.Slept > 0 &&
				int64(tr.now-it.At)-(c.CPU-it.Counters.CPU)-(c.Delay-it.Counters.Delay) > a.Slept {
				a.Done, a.Asleep = j, it.Runs && !running
				return true
			}
			it.At, it.Counters = tr.now, c
			if running {
				v := View{Deadline: it.Deadline}
				if a.Err = tr.Stop(th, &v); a.Err != nil {
					a.Done = j
					return true
				}
				v.Counters = c
				tr.views = append(tr.views, v)
				a.Stops++
			}
		}
		a.Ticks++
		tr.ticks++
	}
	return true
}

func (tr *foreseer) Taken(n int, v *View) { *v = tr.views[n] }
func (tr *foreseer) Can() Abilities       { return Abilities{Stops: true, Ahead: true} }

// clock is the CPU time of the process as the kernel reports it. It lacks the time of a thread
// that began to run within the last 10 ms and still runs.
func (tr *foreseer) clock() (sum int64) {
	for _, th := range tr.f.threads {
		sum += th.knownCPU(tr.now)
	}
	return sum
}

// knownCPU is the thread's part of that.
func (t *fakeThread) knownCPU(now stack.Time) int64 {
	c, running, _ := t.at(now)
	if before, ran, _ := t.at(now - 10*ms); running && !ran {
		c = before
	}
	return c.CPU
}

// holdTrue compares samples with the thread's actual states: at each sample that shows it asleep,
// it slept, and it had not run since the sample before.
func holdTrue(t *testing.T, seed uint64, th *fakeThread, samples []stack.Sample) {
	t.Helper()
	last := stack.Time(0)
	for i, x := range samples {
		c, running, _ := th.at(x.Time)
		if x.Time <= last {
			t.Fatalf("seed %d: thread %d: sample %d at %d, after one at %d", seed, th.tid, i, x.Time, last)
		}
		last = x.Time
		if x.Way == stack.WayUnrun && (running || c.Switches != x.Switches) {
			t.Fatalf("seed %d: thread %d: at %v it is said not to have run", seed, th.tid, time.Duration(x.Time))
		}
	}
}

// turns returns a thread that runs from each time with an odd index to the next one, and sleeps
// otherwise.
func turns(tid stack.TID, times []stack.Time) *fakeThread {
	return &fakeThread{tid: tid, at: func(now stack.Time) (c Counters, running bool, st stack.State) {
		c.CPU = 1000
		for i, t := range times {
			if t > now {
				break
			}
			running = i%2 == 1
			if running {
				c.Switches++
				end := now
				if i+1 < len(times) {
					end = min(end, times[i+1])
				}
				c.CPU += int64(end - t)
			}
		}
		if running {
			return c, true, stack.StateRunning
		}
		return c, false, stack.StateBlocked
	}}
}

// randomTurns returns times for turns, with an average distance of apart.
func randomTurns(r *rand.Rand, apart, until stack.Time) (times []stack.Time) {
	times = append(times, 0)
	if r.IntN(2) == 0 {
		times = append(times, 0) // it runs at first
	}
	for t := stack.Time(0); t < until; {
		t += stack.Time(r.ExpFloat64() * float64(apart))
		times = append(times, t)
	}
	return times
}

// sameStart reports whether two runs took up their threads at the same times. Whether a thread is
// present at the first tick is random.
func sameStart(sinks [2]map[stack.TID]*memorySink) bool {
	for tid, a := range sinks[0] {
		b := sinks[1][tid]
		if b == nil || len(a.samples) == 0 || len(b.samples) == 0 || a.samples[0].Time != b.samples[0].Time {
			return false
		}
	}
	return true
}

// A group that runs ticks ahead gets the same samples at the same times as one that does not, for
// threads that run and sleep at random.
func TestAheadIsTheSame(t *testing.T) {
	went, again := 0, 0
	for seed := uint64(0); seed < 60; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		var scripts [][]stack.Time
		for range 1 + r.IntN(8) {
			apart := []stack.Time{30, 200, 2000}[r.IntN(3)] * ms
			scripts = append(scripts, randomTurns(r, apart, 3000*ms))
		}
		cfg := Config{Interval: time.Duration(1+r.IntN(20)) * time.Millisecond}
		var sinks [2]map[stack.TID]*memorySink
		var accounts [2]map[stack.TID]stack.ThreadStats
		for i, ahead := range []bool{false, true} {
			f := &fakeTarget{until: 3000 * ms, ahead: ahead}
			for i, times := range scripts {
				f.threads = append(f.threads, turns(stack.TID(i+2), times))
			}
			var s *Sampler
			s, sinks[i], accounts[i] = sampleAll(t, f, cfg)
			for _, g := range s.groups {
				if x, ok := g.engine.(*foreseer); ok {
					went += x.ticks
				}
			}
		}
		if !sameStart(sinks) {
			if again++; again > 1000 {
				t.Fatal("no two runs begin alike")
			}
			seed--
			continue
		}
		for tid, plain := range sinks[0] {
			ahead := sinks[1][tid]
			if len(plain.samples) != len(ahead.samples) || !reflect.DeepEqual(plain.gaps, ahead.gaps) || !reflect.DeepEqual(plain.events, ahead.events) {
				t.Fatalf("seed %d: thread %d: %d samples, gaps %v; ahead %d samples, gaps %v", seed, tid, len(plain.samples), plain.gaps, len(ahead.samples), ahead.gaps)
			}
			for i := range plain.samples {
				if a, b := fmt.Sprintf("%+v", plain.samples[i]), fmt.Sprintf("%+v", ahead.samples[i]); a != b {
					t.Fatalf("seed %d: thread %d, sample %d:\n%s\nahead:\n%s", seed, tid, i, a, b)
				}
			}
			a, b := accounts[0][tid], accounts[1][tid]
			a.WalkNS, b.WalkNS = 0, 0
			if a != b {
				t.Errorf("seed %d: thread %d: %+v, ahead %+v", seed, tid, a, b)
			}
		}
	}
	if went < 1000 {
		t.Errorf("it went ahead for %d ticks in all", went)
	}
}

// If only the process's clock is read, each sample is still correct: at its time the thread
// slept, and it had not run since the last one. Uncertain ticks are counted as late, two or three
// for each wakeup of a thread.
func TestAheadByClock(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		const until = 4000 * ms
		f := &fakeTarget{until: until, ahead: true}
		scripts := map[stack.TID][]stack.Time{}
		for i := range fewSleep + 1 + r.IntN(30) {
			tid := stack.TID(i + 2)
			times := []stack.Time{0}
			for t := stack.Time(0); r.IntN(3) == 0 && t < until; {
				t += stack.Time(r.Int64N(int64(2000 * ms)))
				times = append(times, t)
				t += stack.Time(r.Int64N(int64(15 * ms)))
				times = append(times, t)
			}
			scripts[tid] = times
			f.threads = append(f.threads, turns(tid, times))
		}
		cfg := Config{Interval: time.Duration(1+r.IntN(15)) * time.Millisecond}
		s, sinks, accounts := sampleAll(t, f, cfg)
		went := 0
		for _, g := range s.groups {
			went += g.engine.(*foreseer).ticks
		}
		if went*3 < int(until)/int(cfg.Interval) {
			t.Errorf("seed %d: ahead for %d ticks only", seed, went)
		}
		for _, th := range f.threads {
			holdTrue(t, seed, th, sinks[th.tid].samples)
			a := accounts[th.tid]
			ticks := int64(until) / int64(cfg.Interval)
			if got := int64(a.Samples + a.Late + a.Rested); got < ticks || got > ticks+3 { // it ends some ticks late
				t.Errorf("seed %d: thread %d: %d samples and %d late of %d ticks", seed, th.tid, a.Samples, a.Late, ticks)
			}
			// The number of ticks during which the clock may be blind, plus one at each end.
			blind := uint64(blindFor/int64(cfg.Interval)) + 2
			if a.Late > uint64(len(scripts[th.tid])/2)*blind {
				t.Errorf("seed %d: thread %d woke %d times, and %d ticks are late", seed, th.tid, len(scripts[th.tid])/2, a.Late)
			}
			if g := sinks[th.tid].gaps[stack.WhyLate]; g != int64(a.Late)*int64(cfg.Interval) {
				t.Errorf("seed %d: thread %d: gaps of %d ns for %d late ticks", seed, th.tid, g, a.Late)
			}
		}
	}
}
