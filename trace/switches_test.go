package trace

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

var twoWakers = []Waker{{TID: 100, PID: 1, Name: "main"}, {TID: 7, PID: 7, Name: "other"}}

func someSwitches(n int) []Switch {
	r := rand.New(rand.NewPCG(1, 2))
	at := [3]stack.Time{1e12, 1e12, 1e12}
	var out []Switch
	for range n {
		k := r.IntN(3)
		s := Switch{TID: stack.TID(100 + k), Out: at[k] + stack.Time(r.IntN(5000)), State: switchStates[r.IntN(5)], Waker: r.IntN(3) - 1}
		s.In = s.Out + stack.Time(r.IntN(1e6)+1)
		if s.State == stack.StateRunnable {
			s.Wake, s.Waker = s.Out, -1
		} else if s.Wake = s.Out + stack.Time(r.Int64N(int64(s.In-s.Out))); s.Waker < 0 {
			s.By = event.ByHard | event.ByTimer
		}
		if r.IntN(9) == 0 {
			s.Skipped, s.Asleep, s.Queued, s.Why = uint64(1+r.IntN(99)), uint64(r.IntN(1e6)), uint64(r.IntN(1e6)), SwitchFull
		}
		s.Stack = r.IntN(len(twoStacks) + 1)
		at[k] = s.In
		out = append(out, s)
	}
	return out
}

// twoStacks are kernel stacks.
var twoStacks = [][]string{{"pipe_read", "vfs_read"}, {"futex_wait"}}

func switchRecording(t testing.TB, all []Switch, wakers []Waker, events []event.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Process(Process{PID: 1}), w.Thread(Thread{TID: 100, Born: 1}), w.Thread(Thread{TID: 101, Seq: 1, Born: 1}), w.Events(0, events),
		w.Wakers(0, wakers), w.KernelStacks(0, twoStacks), w.Switched(slices.Clone(all)), w.Switches(&Switches{At: 9, Began: 3, Records: uint64(len(all)), Rate: 4, Lost: []string{}}), w.End(End{At: 2e12, Reason: "duration"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func openSwitches(t testing.TB, b []byte) *Recording {
	t.Helper()
	rec, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func switchesOf(rec *Recording, tid stack.TID) (got []Switch, bad error) {
	for s, err := range rec.Switched(tid) {
		if err != nil {
			bad = err
			continue
		}
		got = append(got, s)
	}
	return got, bad
}

func TestSwitchesRoundTrip(t *testing.T) {
	all := someSwitches(60_000)
	b := switchRecording(t, all, twoWakers, nil)
	rec := openSwitches(t, b)
	if len(rec.Problems) > 0 || !reflect.DeepEqual(rec.Wakers, twoWakers) || !reflect.DeepEqual(rec.KernelStacks, twoStacks) || rec.Switches == nil || rec.Switches.Records != uint64(len(all)) || rec.Switches.Rate != 4 {
		t.Fatalf("%q, %+v, %+v", rec.Problems, rec.Wakers, rec.Switches)
	}
	for tid := stack.TID(100); tid < 103; tid++ {
		want := slices.DeleteFunc(slices.Clone(all), func(s Switch) bool { return s.TID != tid })
		if got, err := switchesOf(rec, tid); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("thread %d: %d switches of %d, %v", tid, len(got), len(want), err)
		}
	}
	if n := float64(len(b)) / float64(len(all)); n > 14 {
		t.Errorf("%.1f bytes a switch", n)
	}
}

// TestSwitchesOfFormat14: readers of format 1.4, which know no kernel stacks, find the same records without them.
func TestSwitchesOfFormat14(t *testing.T) {
	older := switchRecords
	older.tail, older.taken = nil, nil
	all := slices.DeleteFunc(someSwitches(3000), func(s Switch) bool { return s.TID != 100 })
	var got []Switch
	if more, err := older.decode(switchRecords.append(nil, all), func(s Switch) bool { got = append(got, s); return true }); !more || err != nil {
		t.Fatal(more, err)
	}
	for i := range all {
		all[i].Stack = 0
	}
	if !reflect.DeepEqual(got, all) {
		t.Errorf("%d of %d records, or others", len(got), len(all))
	}
}

// TestSwitchesDamage: a damaged chunk is left out. The record after it says that some are missing.
func TestSwitchesDamage(t *testing.T) {
	var all []Switch
	for i := range 3 * maxRecords {
		at := stack.Time(1e12 + i*1000)
		all = append(all, Switch{TID: 100, Out: at, In: at + 500, Wake: at + 400, State: stack.StateBlocked, Waker: -1})
	}
	b := switchRecording(t, all, nil, nil)
	rec := openSwitches(t, b)
	refs := rec.switches[100]
	if len(refs) != 3 {
		t.Fatalf("%d chunks", len(refs))
	}
	b[refs[1].off+chunkHead+50] ^= 0xff
	got, err := switchesOf(openSwitches(t, b), 100)
	if err == nil || len(got) != 2*maxRecords || got[maxRecords-1].Skipped != 0 || got[maxRecords].Skipped == 0 {
		t.Errorf("%v, %d switches, then %+v", err, len(got), got[min(maxRecords, len(got)-1)])
	}
}

// TestSwitchFormat holds the bytes of a chunk to docs/recording-format.md.
func TestSwitchFormat(t *testing.T) {
	all := []Switch{
		{TID: 100, Out: 1000, Wake: 1100, In: 1103, State: stack.StateBlocked, Waker: 1},
		{TID: 100, Out: 1203, Wake: 1203, In: 1204, State: stack.StateRunnable, Waker: -1},
		{TID: 100, Out: 1404, Wake: 1414, In: 1424, State: stack.StateDisk, Waker: -1, By: event.ByHard | event.ByTimer, Skipped: 3, Asleep: 4, Queued: 5, Why: SwitchRate},
		{TID: 100, Out: 1500, In: 1600, State: stack.StateBlocked, Waker: -1, Open: true},
	}
	const want = "6404e807" + "1900676401" + "08c8010100" + "ca9003140a0503040502" + "21980164"
	if got := hex.EncodeToString(switchRecords.append(nil, all)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// exactOf merges events with switches.
func exactOf(events []event.Event, all ...Switch) (out []event.Event) {
	for e := range exactly(slices.Values(events), func(yield func(Switch, error) bool) {
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}, 0) {
		out = append(out, e)
	}
	return out
}

func stateAt(at stack.Time, s stack.State, nr int32) event.Event {
	return event.Make(at, event.State, event.StateOf(s, nr))
}

func exactAt(at stack.Time, s stack.State, nr int32, sampled stack.State) event.Event {
	return event.Make(at, event.State, event.StateOfSwitch(s, nr, event.StateOf(sampled, -1)))
}

// TestExactly: what a sample found in a time off the CPUs holds from its beginning, times without a sample have
// their state, and times without records keep the states of the samples.
func TestExactly(t *testing.T) {
	const us = 1000
	seen := func(at stack.Time) event.Event { return event.Make(at, event.Seen, event.SeenOf(stack.WayRead, 1, 0)) }
	frame := func(at stack.Time, pc uint64) event.Event {
		return event.Make(at, event.Enter, uint64(event.WordOf(&stack.Frame{PC: pc, Func: 1})))
	}
	run, blocked, ready := stack.StateRunning, stack.StateBlocked, stack.StateRunnable
	first := Switch{Out: 10_000 * us, Wake: 11_000 * us, In: 11_100 * us, State: blocked, Waker: 0}
	second := Switch{Out: 20_000 * us, Wake: 40_000 * us, In: 40_200 * us, State: blocked, Waker: 1}
	preempted := Switch{Out: 50_000 * us, Wake: 50_000 * us, In: 51_000 * us, State: ready, Waker: -1}
	skip := Switch{Out: 80_000 * us, Wake: 81_000 * us, In: 82_000 * us, State: blocked, Waker: -1, Skipped: 2}
	events := []event.Event{
		event.Make(5_000*us, event.Sync, 1), frame(5_000*us, 16), stateAt(5_000*us, run, -1), seen(15_000 * us),
		stateAt(25_000*us, blocked, 202), frame(25_000*us, 32), event.Make(25_000*us, event.Wait, 3), seen(35_000 * us),
		event.Make(45_000*us, event.Exit, 0), stateAt(45_000*us, run, -1), seen(55_000 * us),
		stateAt(65_000*us, blocked, 7), seen(65_000 * us),
		stateAt(90_000*us, run, -1), seen(90_000 * us),
	}
	waker := func(at stack.Time, n int) event.Event { return event.Make(at, event.Waker, event.WakerOf(n, 0)) }
	want := []event.Event{
		events[0], events[1], events[2], // before the first record
		exactAt(10_000*us, blocked, -1, run), waker(11_000*us, 0), exactAt(11_000*us, ready, -1, run), exactAt(11_100*us, run, -1, run), seen(15_000 * us),
		exactAt(20_000*us, blocked, 202, blocked), frame(20_000*us, 32), event.Make(20_000*us, event.Wait, 3), seen(35_000 * us),
		waker(40_000*us, 1), exactAt(40_000*us, ready, 202, run), exactAt(40_200*us, run, -1, run),
		event.Make(45_000*us, event.Exit, 0),
		exactAt(50_000*us, ready, -1, run), stateAt(51_000*us, run, -1), seen(55_000 * us),
		stateAt(65_000*us, blocked, 7), seen(65_000 * us),
		exactAt(80_000*us, blocked, -1, run), waker(81_000*us, -1), exactAt(81_000*us, ready, -1, run), stateAt(82_000*us, blocked, 7),
		stateAt(90_000*us, run, -1), seen(90_000 * us),
	}
	got := exactOf(events, first, second, preempted, skip)
	if !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			var g, w event.Event
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			t.Errorf("%v: %6d %-6s %#x, want %6d %-6s %#x", g == w, g.Time/us, g.Kind(), g.Payload(), w.Time/us, w.Kind(), w.Payload())
		}
	}
}

// TestExactlyAny: whatever the events and the switches are, no event goes back in time, none but states, waits and
// wakers is added or lost, and the frames and accounts stay.
func TestExactlyAny(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var events []event.Event
		at := stack.Time(1e12)
		for range rnd.IntN(60) {
			at += stack.Time(rnd.IntN(2) * rnd.IntN(3e5))
			k := event.Kind(rnd.IntN(int(event.Parked) + 1))
			p := rnd.Uint64N(4)
			switch k {
			case event.State:
				p = event.StateOf(stack.State(rnd.IntN(9)), int32(rnd.IntN(3)))
			case event.Gap:
				p = event.GapOf(stack.Why(rnd.IntN(8)), 5)
			}
			events = append(events, event.Make(at, k, p))
		}
		all := slices.DeleteFunc(someSwitches(rnd.IntN(90)), func(s Switch) bool { return s.TID != 100 })
		got := exactOf(events, all...)
		counts := map[uint64]int{}
		last := stack.Time(0)
		for _, e := range got {
			switch k := e.Kind(); k {
			case event.State, event.Wait, event.Lock, event.Holder, event.Waker, event.Kernel:
			case event.Enter:
				counts[e.Value]++
				continue // frames of a Sync have earlier times
			default:
				counts[e.Value]++
			}
			if e.Time < last {
				t.Fatalf("%s at %d follows an event at %d", e.Kind(), e.Time, last)
			}
			last = e.Time
		}
		for _, e := range events {
			switch e.Kind() {
			case event.State, event.Wait, event.Lock, event.Holder:
			default:
				counts[e.Value]--
			}
		}
		for v, n := range counts {
			if n != 0 {
				t.Fatalf("%s %#x: %d more than before", event.Event{Value: v}.Kind(), v, n)
			}
		}
	}
}

// TestCutSwitches: a part has the switches of its time, and the one before it.
func TestCutSwitches(t *testing.T) {
	all := slices.DeleteFunc(someSwitches(3000), func(s Switch) bool { return s.TID != 100 })
	from, to := all[100].Out+1, all[200].Out
	rec := openSwitches(t, switchRecording(t, all, twoWakers, []event.Event{stateAt(1e12, stack.StateRunning, -1), event.Make(all[len(all)-1].In, event.Seen, 0)}))
	var b bytes.Buffer
	if err := Cut(&b, rec, Part{From: from, To: to}); err != nil {
		t.Fatal(err)
	}
	got, err := switchesOf(openSwitches(t, b.Bytes()), 100)
	if err != nil || len(got) < 100 || got[0].Out > from || got[len(got)-1].In < to || len(got) > 104 {
		t.Errorf("%d switches, %v", len(got), err)
	}
}

func FuzzSwitches(f *testing.F) {
	f.Add(switchRecords.append(nil, slices.DeleteFunc(someSwitches(200), func(s Switch) bool { return s.TID != 100 })))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_, _ = switchRecords.decode(b, func(s Switch) bool {
			if n++; s.In < s.Out || s.Out < 0 || s.Wake != 0 && (s.Wake < s.Out || s.Wake > s.In) || s.Waker < -1 || s.Waker > MaxWakers {
				t.Fatalf("%+v", s)
			}
			return true
		})
		if n > len(b) {
			t.Fatalf("%d switches in %d bytes", n, len(b))
		}
	})
}
