package trace

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// wordsOf replays events and records the words of the stack at each Seen, nil if the
// stack is unknown.
type wordsOf struct {
	stack []event.Word
	out   [][]event.Word
	times []stack.Time
}

func (w *wordsOf) Enter(_ stack.Time, depth int, f diff.Frame) {
	w.stack = append(w.stack[:depth], f.Word)
}
func (w *wordsOf) Exit(_ stack.Time, depth int, _ diff.Frame) { w.stack = w.stack[:depth] }
func (w *wordsOf) Move(_ stack.Time, depth int, f diff.Frame) { w.stack[depth] = f.Word }
func (w *wordsOf) Other(e event.Event) {
	if e.Kind() == event.Seen {
		w.out, w.times = append(w.out, slices.Clone(w.stack)), append(w.times, e.Time)
	}
}

// TestOnly: filtering a thread's events equals filtering its stacks.
func TestOnly(t *testing.T) {
	kinds := []stack.Kind{stack.KindNative, stack.KindPython, stack.KindGo, stack.KindError}
	only, err := ParseKinds("python, go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseKinds("python,cobol"); err == nil {
		t.Error("a kind that is none is taken")
	}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		d := &diff.Differ{}
		var events []event.Event
		var st []stack.Frame // leaf first
		for n := range 60 {
			for range rnd.IntN(3) {
				st = st[min(len(st), 1):]
			}
			for range rnd.IntN(4) {
				f := stack.Frame{Func: uint64(1 + rnd.IntN(3)), CFA: uint64(1000 - 8*len(st)), Kind: kinds[rnd.IntN(len(kinds))], PC: uint64(1 + rnd.IntN(5))}
				st = append([]stack.Frame{f}, st...)
			}
			if len(st) > 0 && rnd.IntN(2) == 0 && st[0].Kind != stack.KindError {
				st[0].PC++
			}
			at := stack.Time(10 * (n + 1))
			events = d.Step(&stack.Sample{Time: at, Stack: slices.Clone(st), State: stack.StateRunning, CPU: int64(n)}, events)
			switch rnd.IntN(12) {
			case 0:
				events = d.Sync(events)
			case 1:
				events = append(d.Flush(events), event.Make(at, event.Gap, event.GapOf(stack.WhyLost, 5)))
				events = d.Sync(events)
			}
		}
		events = d.Flush(events)
		if rnd.IntN(2) == 0 { // a reader that started late
			events = events[rnd.IntN(len(events)):]
		}
		var whole, part wordsOf
		play := func(h diff.Handler, es []event.Event) {
			var r diff.Replayer
			for _, e := range es {
				r.Apply(e, h)
			}
		}
		play(&whole, events)
		var less []event.Event
		for e := range sift(slices.Values(events), only, nil) {
			less = append(less, e)
		}
		play(&part, less)
		if !slices.Equal(whole.times, part.times) {
			t.Fatalf("seed %d: %d confirmations, not %d", seed, len(part.times), len(whole.times))
		}
		for i, want := range whole.out {
			want = slices.DeleteFunc(want, func(w event.Word) bool { return !only.Has(w.Kind()) })
			for len(want) > 0 && want[len(want)-1].Kind() == stack.KindError { // it is not a function
				want = want[:len(want)-1]
			}
			if !slices.Equal(want, part.out[i]) {
				t.Fatalf("seed %d at %d: %x, not %x", seed, whole.times[i], part.out[i], want)
			}
		}
	}
}

// TestOwnKinds: the frames of a runtime are left out above those of functions that it runs, and nowhere else.
func TestOwnKinds(t *testing.T) {
	kinds := []stack.Kind{stack.KindNative, stack.KindNative, stack.KindPython, stack.KindRuby}
	own := func(w event.Word, _ stack.Time) bool { return w.Kind() == stack.KindNative && w.Addr()>>4&1 != 0 }
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		d := &diff.Differ{}
		var events []event.Event
		var st []stack.Frame // leaf first
		for n := range 60 {
			st = st[min(len(st), rnd.IntN(3)):]
			for range rnd.IntN(4) {
				f := stack.Frame{Func: uint64(16 + 16*rnd.IntN(3)), CFA: uint64(1000 - 8*len(st)), Kind: kinds[rnd.IntN(len(kinds))]}
				f.PC = f.Func + uint64(1+rnd.IntN(5)) // a function is a runtime's as a whole
				if start, _, ok := f.Kind.Range(); ok {
					f.PC += start
					f.Func += start
				}
				st = append([]stack.Frame{f}, st...)
			}
			events = d.Step(&stack.Sample{Time: stack.Time(10 * (n + 1)), Stack: slices.Clone(st), State: stack.StateRunning}, events)
		}
		events = d.Flush(events)
		if rnd.IntN(2) == 0 { // a reader that started late
			events = events[rnd.IntN(len(events)):]
		}
		play := func(es iter.Seq[event.Event]) (w wordsOf) {
			var r diff.Replayer
			for e := range es {
				r.Apply(e, &w)
			}
			return w
		}
		whole, part := play(slices.Values(events)), play(sift(slices.Values(events), OwnKinds, own))
		for i, all := range whole.out {
			var want []event.Word
			runs := false
			for _, w := range all {
				if runs = runs || w.Kind().Managed(); !runs || !own(w, 0) {
					want = append(want, w)
				}
			}
			if !slices.Equal(want, part.out[i]) {
				t.Fatalf("seed %d at %d: %x, not %x of %x", seed, whole.times[i], part.out[i], want, all)
			}
		}
		if same := play(sift(slices.Values(events), AllKinds, own)); !slices.EqualFunc(same.out, whole.out, slices.Equal[[]event.Word]) {
			t.Fatalf("seed %d: all kinds are fewer", seed)
		}
	}
}

// Words of --kinds: all kinds, and kinds to remove.
func TestParseKindsWords(t *testing.T) {
	for list, want := range map[string]Kinds{
		"all":                AllKinds,
		"no-native":          AllKinds.Without(stack.KindNative),
		"all, no-js":         AllKinds.Without(stack.KindJS),
		"python,go,no-go":    1<<stack.KindError | 1<<stack.KindPython,
		"no-runtime":         OwnKinds,
		"native":             1<<stack.KindError | 1<<stack.KindNative | Runtime,
		"native,no-runtime":  1<<stack.KindError | 1<<stack.KindNative,
		"no-native,no-error": 0,
		"no-":                0,
	} {
		got, err := ParseKinds(list)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("ParseKinds(%q) = %#x, %v; want %#x", list, got, err, want)
		}
	}
}
