package web_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/wire"
)

// Functions of the thread in TestLiveExact: the second last one is traced.
var exactStack = []string{"_start", "main", "EventLoop::run()", "http::Server::handle(Request const&)", "sql::Connection::query(std::string const&)", "__libc_recv"}

const exactTraced = 4

// slicesOf returns the calls of the first thread that have ended until a time, in ns since its first sample, with depth,
// name and times, and the newest time. Several with the same are counted.
func slicesOf(t *testing.T, s *web.Server, until float64) (got map[string]int, last float64) {
	t.Helper()
	w, err := dial(t, s).Watch(t.Context(), client.View{T0: -1e18, T1: 1e18, Bin: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var fr *wire.Frame
	for fr == nil || fr.Type != wire.TypeView {
		if fr, err = w.Next(); err != nil {
			t.Fatal(err)
		}
	}
	got = map[string]int{}
	for _, th := range fr.Threads {
		base := math.Inf(1)
		for _, r := range th.Rows {
			for _, x := range r.Items {
				if r.Depth == 0 {
					base = min(base, x.Start)
				}
			}
		}
		last = th.Last - base
		for _, r := range th.Rows {
			for _, x := range r.Items {
				if r.Depth < wire.FirstLane && x.End-base <= until {
					got[fmt.Sprintf("%d %s %.0f..%.0f", r.Depth, w.Name(x.Value), x.Start-base, x.End-base)] += int(x.Count)
				}
			}
		}
	}
	return got, last
}

// TestLiveExact: the timeline of a recording in progress has the edges of traced calls, and the calls between samples,
// as the finished one has them, and waits for the calls of the time that it shows.
func TestLiveExact(t *testing.T) {
	const ms = 1_000_000
	f, err := synth.NewFeed(5, 0, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	sink := f.Rec.Thread(f.Program.Describe(0, 1))
	l := web.NewLive(f.Rec, web.LiveOptions{Namer: synth.Namer{}, Poll: 2 * time.Millisecond, Traced: true})
	s := serve(t, web.Options{Source: l})
	start := f.Now()
	query := synth.Frame(exactStack[exactTraced], 0, true)
	traced := &trace.Traced{Began: start, Engine: "cpu", Functions: []trace.TracedFunction{{Name: exactStack[exactTraced], Module: "/usr/bin/shopd",
		Addr: query.Func, Ranges: [][2]uint64{{query.Func, query.Func + 0x100}}}}}
	f.Rec.Traced(traced)

	// Calls of 0.1 to 30 ms in turn, made by the function before, with pauses in between.
	rnd := rand.New(rand.NewPCG(7, 7))
	var all []calls.Call
	for at := stack.Time(3 * ms); at < 900*ms; {
		c := calls.Call{TID: 4242, Enter: start + at, CFA: 0x7ffe00000000, Ret: synth.Frame(exactStack[exactTraced-1], 0x30, false).PC}
		at += stack.Time(ms / 10 * (1 + rnd.Int64N(1+rnd.Int64N(300))))
		c.Exit = start + at
		all = append(all, c)
		at += stack.Time(ms / 10 * (1 + rnd.Int64N(100)))
	}
	f.Rec.Calls(slices.Clone(all))
	sample := func(at stack.Time) {
		n := exactTraced
		for i := range all {
			if all[i].Enter <= at && at < all[i].Exit {
				n = len(exactStack)
			}
		}
		x := stack.Sample{Time: at, Begin: at - 1000, CPU: int64(at - start), State: stack.StateRunning, Way: stack.WayStop, Call: stack.Call{Nr: -1}}
		for i := n - 1; i >= 0; i-- {
			fr := synth.Frame(exactStack[i], 0x80, i == n-1)
			fr.CFA = uint64(0x7ffe00001000 - 64*i)
			x.Stack = append(x.Stack, fr)
		}
		sink.Sample(&x)
	}
	var seen []map[string]int // of the live page, by step
	var upTo []float64
	from := stack.Time(0)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for to := start + 257*ms; to < start+1000*ms; to += 97 * ms {
		for at := start + (from-start+10*ms-1)/(10*ms)*10*ms; at < to; at += 10 * ms {
			if at >= max(from, start) {
				sample(at)
			}
		}
		b := &trace.CallBatch{Until: to}
		if from == 0 {
			b.Traced = traced
		}
		for _, c := range all {
			switch {
			case c.Exit > from && c.Exit <= to:
				b.Ended = append(b.Ended, c)
			case c.Enter > from && c.Enter <= to && c.Exit > to:
				c.Exit = 0 // not known
				b.Open = append(b.Open, c)
			}
		}
		l.Calls(b)
		from = to
		// All samples but those that the next one confirms are on the page then.
		want := float64(to-start) - diff.DefaultSeenEvery - 20*ms
		for _, last := slicesOf(t, s, 0); last < want; _, last = slicesOf(t, s, 0) {
			<-tick.C
		}
		got, last := slicesOf(t, s, want)
		if last > float64(to-start) {
			t.Errorf("the page shows %.0f ns, and calls until %d are known", last, to-start)
		}
		seen, upTo = append(seen, got), append(upTo, want)
	}
	sink.End(start+1000*ms, stack.WhyGone)
	l.Calls(&trace.CallBatch{Until: math.MaxInt64})
	l.End("over")
	loaded(t, s)

	rec, release, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if rec.Traced == nil {
		t.Fatal("the recording has no calls")
	}
	whole := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, whole)
	for i := range seen {
		want, _ := slicesOf(t, whole, upTo[i])
		if !maps.Equal(seen[i], want) {
			t.Errorf("until %.0f ns the live page shows\n%v, the recording\n%v", upTo[i], seen[i], want)
		}
	}
	want, _ := slicesOf(t, whole, 1e18)
	got, _ := slicesOf(t, s, 1e18)
	if !maps.Equal(got, want) {
		t.Errorf("in the end the live page shows\n%v, the recording\n%v", got, want)
	}
	// Each call is one slice with its times.
	for i := range all {
		key := fmt.Sprintf("%d %s %d..%d", exactTraced, exactStack[exactTraced], all[i].Enter-start, all[i].Exit-start)
		if got[key] != 1 {
			t.Errorf("the page has call %d %d times: %s", i, got[key], key)
		}
	}
}
