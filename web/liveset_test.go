package web_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
)

// sharing is a namer of processes that have all files in common.
type sharing struct {
	synth.Namer
	asked *[]web.Word
}

func (s sharing) Shared(w web.Word) (file any, vaddr uint64, ok bool) {
	return "the program", w.Word.Lookup(), true
}

func (s sharing) Name(ctx context.Context, words []web.Word, answer func(int, []web.NameFrame)) {
	*s.asked = append(*s.asked, words...)
	s.Namer.Name(ctx, words, answer)
}

// member begins a process of a LiveSet.
func member(t *testing.T, l *web.LiveSet, seed uint64, threads int, asked *[]web.Word) (*synth.Feed, *web.LiveProcess) {
	t.Helper()
	f, err := synth.NewFeed(seed, threads, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(id int) (trace.Wait, bool) {
		return trace.Wait{ID: id, Symbol: fmt.Sprint("lock of seed ", seed)}, true
	}
	return f, l.Join(f.Rec, web.LiveOptions{Namer: sharing{asked: asked}, Wait: wait})
}

// waited adds a wait with description 3 of the process to its first thread.
func waited(f *synth.Feed) {
	at, sink := f.Now(), f.Rec.Sinks()[0]
	sink.Event(at, event.State, event.StateOf(stack.StateBlocked, -1))
	sink.Event(at, event.Wait, 3)
	sink.Event(at, event.Seen, event.SeenOf(stack.WayRead, 1, 0))
	sink.Event(at+1_000_000, event.State, event.StateOf(stack.StateRunning, -1))
	sink.Event(at+1_000_000, event.Seen, event.SeenOf(stack.WayStop, 1, 0)) // the scheduler agrees
}

// TestLiveSet: processes join a live timeline and end. Each thread has a number of its own and its process, waits
// are described by their process also after its end, and a place that processes share is named once.
func TestLiveSet(t *testing.T) {
	var asked []web.Word
	left := &trace.LeftOut{Count: 1, Processes: []trace.LeftProcess{{PID: 9, Name: "late", Why: "over the limit"}}}
	l := web.NewLiveSet(web.LiveSetOptions{Poll: time.Millisecond, Left: func() *trace.LeftOut { return left }})
	one, _ := member(t, l, 5, 3, &asked)
	s := serve(t, web.Options{Source: l})
	c := dial(t, s)
	for range 400 {
		one.Round()
	}
	w, err := c.Watch(t.Context(), client.View{Follow: true, T0: -1e18, Bin: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next := func(until func() bool) {
		t.Helper()
		for !until() {
			if _, err := w.Next(); err != nil {
				t.Fatal(err)
			}
		}
	}
	next(func() bool { return w.Status != nil && len(w.Status.Threads) == 3 })
	if len(w.Processes) != 1 || w.Processes[0].Ended {
		t.Fatalf("processes %+v", w.Processes)
	}
	two, second := member(t, l, 6, 2, &asked)
	for range 400 {
		one.Round()
		two.Round()
	}
	next(func() bool { return len(w.Status.Threads) == 5 })
	if len(w.Processes) != 2 {
		t.Errorf("processes %+v", w.Processes)
	}
	waited(one)
	waited(two)
	second.End(true, &trace.Exit{Signal: "SIGKILL"})
	next(func() bool { return w.Processes[1].Ended })
	if end := w.Processes[1].Exit; end != "killed by SIGKILL" || w.Processes[0].Exit != "" {
		t.Errorf("the second process ended with %q", end)
	}
	three, _ := member(t, l, 7, 1, &asked)
	for range 400 {
		three.Round()
	}
	next(func() bool { return len(w.Status.Threads) == 6 })
	waited(three)
	l.End("that is all")
	next(func() bool { return w.Status.Done })
	by := map[int][]int{}
	for _, th := range w.Status.Threads {
		by[th.Process] = append(by[th.Process], th.Seq)
		if th.Samples == 0 || !th.Ended {
			t.Errorf("thread %+v", th)
		}
	}
	for i, want := range [][]int{{0, 1, 2}, {3, 4}, {5}} {
		if slices.Sort(by[i]); !slices.Equal(by[i], want) {
			t.Errorf("process %d has threads %v, want %v", i, by[i], want)
		}
	}
	if in, err := c.Info(t.Context()); err != nil || len(in.Processes) != 3 || !in.Processes[1].Ended || in.Processes[2].Ended || len(in.Notes) != 1 {
		t.Errorf("%+v, %v", in, err)
	}
	var waits []struct {
		Thread int
		Wait   string
		Lock   any
	}
	if err := c.Ask(t.Context(), client.Query{Op: "waits"}, &waits); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, x := range waits {
		text := x.Wait
		if x.Lock != nil || text == "" {
			continue
		}
		seed := map[bool]int{true: 5}[x.Thread < 3] + map[bool]int{true: 6}[x.Thread == 3 || x.Thread == 4] + map[bool]int{true: 7}[x.Thread == 5]
		if want := fmt.Sprint("lock of seed ", seed); text != want {
			t.Errorf("a wait of thread %d is %q, want %q", x.Thread, text, want)
		}
		seen[text] = true
	}
	if len(seen) != 3 {
		t.Errorf("waits %v", seen)
	}
	words := map[uint64]int{}
	for _, x := range asked {
		if words[x.Word.Lookup()]++; words[x.Word.Lookup()] > 1 {
			t.Fatalf("%#x was named twice", x.Word.Lookup())
		}
	}
	if len(words) < 10 {
		t.Errorf("%d places were named", len(words))
	}
}

// TestLiveSetForgets: of too many threads those of the process that ended first leave the timeline, and the
// slices that they held are free. Those of running processes stay.
func TestLiveSetForgets(t *testing.T) {
	var asked []web.Word
	l := web.NewLiveSet(web.LiveSetOptions{Poll: time.Millisecond})
	one, _ := member(t, l, 5, 1500, &asked)
	s := serve(t, web.Options{Source: l})
	c := dial(t, s)
	status := func(until func(*client.Status) bool) (st client.Status) {
		t.Helper()
		for begin := time.Now(); ; <-time.After(5 * time.Millisecond) {
			st = client.Status{}
			if err := c.Ask(t.Context(), client.Query{Op: "status"}, &st); err != nil {
				t.Fatal(err)
			}
			if until(&st) {
				return st
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("%d threads, %d slices", len(st.Threads), st.Held)
			}
		}
	}
	threads := func(n int) func(*client.Status) bool {
		return func(st *client.Status) bool { return len(st.Threads) == n }
	}
	two, second := member(t, l, 6, 1500, &asked)
	three, third := member(t, l, 7, 1500, &asked)
	for _, f := range []*synth.Feed{one, two, three} {
		for range 30 {
			f.Round()
		}
	}
	status(threads(4500))
	second.End(true, nil)
	st := status(threads(3000))
	third.End(true, nil) // that many threads may stay
	for _, th := range st.Threads {
		if th.Process == 1 {
			t.Fatalf("a thread of the process that ended first is still there: %+v", th)
		}
	}
	if l.Forgotten() != 1 || st.Dropped == 0 {
		t.Errorf("%d processes are forgotten, %d slices dropped", l.Forgotten(), st.Dropped)
	}
	l.End("that is all")
	status(func(st *client.Status) bool { return st.Done && len(st.Threads) == 3000 })
}
