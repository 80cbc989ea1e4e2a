package diff

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// sleeper is a thread that runs and waits at random, with a sampler's samples and findings.
type sleeper struct {
	rnd      *rand.Rand
	s        stack.Sample
	switches uint64
}

func (w *sleeper) step(t stack.Time) *stack.Sample {
	w.s.Time = t
	if w.rnd.IntN(3) == 0 {
		w.switches++
		w.s.Switches = w.switches
		w.s.State, w.s.Call = stack.StateRunning, stack.Call{Nr: -1}
		if w.rnd.IntN(3) > 0 {
			w.s.State, w.s.Call = stack.StateBlocked, stack.Call{Nr: int32(w.rnd.IntN(2)), Args: [6]uint64{uint64(w.rnd.IntN(2))}}
		}
		w.s.Way = stack.WayRead
	} else if w.s.State == stack.StateBlocked {
		w.s.Way = stack.WayUnrun
	}
	w.s.Stack = []stack.Frame{{Func: 2, PC: 20 + uint64(w.rnd.IntN(2)), CFA: 90, Exact: true}, {Func: 1, PC: 10, CFA: 100}}
	return &w.s
}

// Adds the events that sliver's other parts append after a sample.
func (w *sleeper) told(d *Differ, t stack.Time, out []event.Event) []event.Event {
	if w.s.State != stack.StateBlocked || w.rnd.IntN(2) == 0 {
		return out
	}
	out = d.Event(t, event.Wait, uint64(1+w.rnd.IntN(3)), out)
	out = d.Event(t, event.Lock, uint64(w.rnd.IntN(3))<<12, out)
	return d.Event(t, event.Holder, event.HolderOf(stack.TID(w.rnd.IntN(3)), event.KnownByWord), out)
}

// TestSyncKeepsTheWait: a reader that begins at a Sync has the same wait as one that read
// everything, and for the latter a Sync changes nothing.
func TestSyncKeepsTheWait(t *testing.T) {
	for seed := range uint64(200) {
		record := func(sync bool) (all []event.Event, syncs []int) {
			w := &sleeper{rnd: rand.New(rand.NewPCG(seed, 11))}
			w.s.Call.Nr = -1
			var d Differ
			for i := range 150 {
				at := stack.Time(1000 + 10*i)
				all = d.Step(w.step(at), all)
				all = w.told(&d, at, all)
				if i%13 == 12 {
					// With and without a Sync, the same events have the same times.
					all = d.Flush(all)
					if sync {
						syncs = append(syncs, len(all))
						all = d.Sync(all)
					}
				}
			}
			return all, syncs
		}
		plain, _ := record(false)
		synced, syncs := record(true)
		replay := func(es []event.Event) (*Replayer, *recorder) {
			var r Replayer
			rec := &recorder{}
			for _, e := range es {
				r.Apply(e, rec)
			}
			return &r, rec
		}
		r, a := replay(plain)
		_, b := replay(synced)
		if !slices.Equal(a.others, b.others) || !slices.Equal(a.closed, b.closed) {
			t.Fatalf("seed %d: a Sync in between is told of\nwithout %v\nwith    %v", seed, a.others, b.others)
		}
		for _, at := range syncs {
			late, rec := replay(synced[at:])
			if late.Waiting() != r.Waiting() {
				t.Fatalf("seed %d: from the Sync at %d: %+v, want %+v", seed, at, late.Waiting(), r.Waiting())
			}
			var w Waiting
			for _, e := range rec.others {
				w.Apply(e)
			}
			if w != r.Waiting() {
				t.Fatalf("seed %d: told %+v, want %+v", seed, w, r.Waiting())
			}
			// A reader that was cut off at the Sync and continues there.
			cut, rec := replay(synced[:at])
			cut.Desync(1, rec)
			for _, e := range synced[at:] {
				cut.Apply(e, rec)
			}
			if cut.Waiting() != r.Waiting() || cut.Odd != 0 {
				t.Fatalf("seed %d: on from the Sync at %d: %+v, %d odd; want %+v", seed, at, cut.Waiting(), cut.Odd, r.Waiting())
			}
		}
	}
}

// TestWaitsAreSlices: two identical stacks that belong to different waits are two slices and two
// States, regardless of the difference.
func TestWaitsAreSlices(t *testing.T) {
	base := stack.Sample{State: stack.StateBlocked, Way: stack.WayRead, Switches: 5, Call: stack.Call{Nr: 202, Args: [6]uint64{0x1000, 128}}}
	leaf := stack.Frame{Func: 2, PC: 20, CFA: 90, Exact: true}
	none := func(*stack.Sample) {}
	for _, c := range []struct {
		name          string
		first, second func(s *stack.Sample)
		slices        int
	}{
		{"nothing", none, none, 1},
		{"switched in", none, func(s *stack.Sample) { s.Switches++ }, 2},
		{"switched in by a stop", func(s *stack.Sample) { s.Way = stack.WayStop }, func(s *stack.Sample) { s.Switches++ }, 1},
		{"another lock, after a stop", func(s *stack.Sample) { s.Way = stack.WayStop },
			func(s *stack.Sample) { s.Switches++; s.Call.Args[0] = 0x2000 }, 2},
		{"another place in the same function", none, func(s *stack.Sample) { s.Switches++; s.Stack[0].PC = 24 }, 2},
		{"not looked at", none, func(s *stack.Sample) { s.Way = stack.WayUnrun; s.Stack = nil }, 1},
		{"a long read", func(s *stack.Sample) { s.State = stack.StateDisk },
			func(s *stack.Sample) { s.State = stack.StateDisk; s.Switches++ }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Differ
			var r Replayer
			rec := &recorder{}
			states := 0
			for i, change := range []func(*stack.Sample){c.first, c.second} {
				s := base
				s.Time, s.Stack = stack.Time(i+1), []stack.Frame{leaf, {Func: 1, PC: 10, CFA: 100}}
				change(&s)
				for _, e := range d.Step(&s, nil) {
					r.Apply(e, rec)
				}
				for _, e := range d.Event(s.Time, event.Lock, 0x1000, nil) {
					r.Apply(e, rec)
				}
			}
			locks := 0
			for _, e := range rec.others {
				switch e.Kind() {
				case event.State:
					states++
				case event.Lock:
					locks++
				}
			}
			if len(rec.closed) != c.slices-1 || states != c.slices || locks != c.slices {
				t.Errorf("%d slices of the leaf, %d states, %d locks; want %d\n%v", len(rec.closed)+1, states, locks, c.slices, rec.others)
			}
		})
	}
}
