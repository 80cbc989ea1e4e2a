package store_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/store"
)

// counter computes the expected results from a plain replay.
type counter struct {
	calls []trueCall
	open  []trueCall
}

type trueCall struct {
	depth      int
	start, end stack.Time
}

func (c *counter) Begin(t stack.Time, depth int, _ *trace.Slice) {
	c.open = append(c.open[:depth], trueCall{depth: depth, start: t})
}

func (c *counter) End(t stack.Time, depth int, _ *trace.Slice) {
	x := c.open[depth]
	x.end = t
	c.calls = append(c.calls, x)
}

func (c *counter) Other(event.Event) {}

// loaded returns a store with one thread and the expected results.
func loaded(t *testing.T, seed uint64, samples int) (*store.Store, *store.Thread, *counter) {
	t.Helper()
	return loadedInto(t, store.New(0), seed, samples)
}

func loadedInto(t *testing.T, st *store.Store, seed uint64, samples int) (*store.Store, *store.Thread, *counter) {
	t.Helper()
	var b bytes.Buffer
	if _, err := synth.Write(&b, synth.Options{Seed: seed, Threads: 1, Interval: 1_000_000, Samples: samples}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	truth := &counter{}
	rec.Replay(0, trace.NewNames(rec), truth)
	th := st.Thread(store.Info{Seq: 0, TID: 1, Main: true})
	fill(rec, st, th)
	return st, th, truth
}

type feeder struct {
	f *store.Feed
	p map[int]uint32
	n *store.Names
	m *trace.Names
}

func (f *feeder) place(s *trace.Slice) uint32 {
	id, ok := f.p[s.Frame.Func]
	if !ok {
		id = f.n.Add(store.Place{Func: f.n.Func(store.Func{Name: f.m.Func(&s.Frame).Name})})
		f.p[s.Frame.Func] = id
	}
	return id
}

func (f *feeder) Begin(t stack.Time, _ int, s *trace.Slice) { f.f.Begin(t, f.place(s)) }
func (f *feeder) End(t stack.Time, _ int, s *trace.Slice)   { f.f.End(t, f.place(s)) }
func (f *feeder) Other(e event.Event)                       { f.f.Other(e) }

func fill(rec *trace.Recording, st *store.Store, th *store.Thread) {
	names := trace.NewNames(rec)
	f := &feeder{p: map[int]uint32{}, n: st.Names, m: names}
	s := trace.NewSlices(names, f)
	for batch := range slices.Chunk(slices.Collect(rec.Events(0)), 1024) {
		th.Feed(func(x *store.Feed) {
			f.f = x
			for _, e := range batch {
				s.Apply(e)
			}
		})
	}
	th.Feed(func(x *store.Feed) {
		f.f = x
		s.Close(0)
		x.Close(x.Last())
	})
}

// TestViewCountsAddUp compares every level of detail with the replay: merging neither
// loses nor duplicates calls, and single ones are unchanged.
func TestViewCountsAddUp(t *testing.T) {
	t.Run("memory", func(t *testing.T) { viewCountsAddUp(t, store.New(0)) })
	t.Run("file", func(t *testing.T) {
		st := store.New(0)
		st.Overflow(filepath.Join(t.TempDir(), "made"), 2000)
		viewCountsAddUp(t, st)
		if n, err := st.InFile(); err != nil || n < st.Held()/2 {
			t.Errorf("%d of %d slices are in the file: %v", n, st.Held(), err)
		}
	})
}

func viewCountsAddUp(t *testing.T, st *store.Store) {
	st, th, truth := loadedInto(t, st, 7, 20_000)
	from, to := st.Span()
	rnd := rand.New(rand.NewPCG(1, 2))
	byStart := map[trueCall]bool{}
	for _, c := range truth.calls {
		byStart[c] = true
	}
	if len(truth.calls) < 10_000 {
		t.Fatalf("only %d calls: this shows nothing", len(truth.calls))
	}
	merged := 0
	for round := range 60 {
		t0, t1 := from-10, to+10
		if round > 0 {
			t0 = from + stack.Time(rnd.Int64N(int64(to-from)))
			t1 = t0 + stack.Time(rnd.Int64N(int64(to-t0))) + 1
		}
		bin := int64(1) << rnd.IntN(36)
		want := map[int]int{}
		for _, c := range truth.calls {
			if c.end > t0 && c.start < t1 {
				want[c.depth]++
			}
		}
		var p store.Position
		got := map[int]int{}
		for _, r := range th.View(t0, t1, bin, nil, &p).Rows {
			if r.Depth >= 0xff00 {
				continue
			}
			last := stack.Time(math.MinInt64)
			for _, x := range r.Items {
				got[r.Depth] += int(x.Count)
				if x.Start < last {
					t.Fatalf("row %d is out of order at %d", r.Depth, x.Start)
				}
				last = x.End
				if x.Count == 1 && !byStart[trueCall{r.Depth, x.Start, x.End}] {
					t.Fatalf("row %d shows a call %d–%d that never was", r.Depth, x.Start, x.End)
				}
				if x.Count > 1 {
					merged++
					if x.Busy <= 0 || x.Busy > int64(x.End-x.Start) {
						t.Fatalf("%d calls within %d ns are said to take %d ns", x.Count, x.End-x.Start, x.Busy)
					}
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("[%d, %d) in bins of %d: counted %v, want %v", t0, t1, bin, got, want)
		}
	}
	if merged == 0 {
		t.Error("nothing was ever merged")
	}
}

// TestMoreContinues feeds a thread in pieces and compares a follower's sums with the
// whole.
func TestMoreContinues(t *testing.T) {
	st := store.New(0)
	th := st.Thread(store.Info{Seq: 3})
	place := st.Names.Add(store.Place{Func: st.Names.Func(store.Func{Name: "f"})})
	rnd := rand.New(rand.NewPCG(3, 4))
	at, want := stack.Time(1000), 0
	var p store.Position
	if v := th.View(0, store.Open, 64, nil, &p); len(v.Rows) != 0 {
		t.Fatalf("an empty thread shows %+v", v)
	}
	got, open := 0, 0
	for range 400 {
		th.Feed(func(f *store.Feed) {
			for range rnd.IntN(20) {
				at += stack.Time(rnd.IntN(200) + 1)
				if f.Depth() < 6 && (f.Depth() == 0 || rnd.IntN(2) == 0) {
					f.Begin(at, place)
				} else {
					f.End(at, place)
					want++
				}
			}
			open = f.Depth()
		})
		v, ok := th.More(64, nil, &p)
		if !ok {
			t.Fatal("a change was not noticed")
		}
		opened := 0
		for _, r := range v.Rows {
			if r.Lost != 0 {
				t.Fatalf("%d slices were lost", r.Lost)
			}
			for _, x := range r.Items {
				if x.End == store.Open {
					opened++
				} else {
					got += int(x.Count)
				}
			}
		}
		if got != want || opened != open {
			t.Fatalf("at %d: %d ended and %d open, want %d and %d", at, got, opened, want, open)
		}
		if _, again := th.More(64, nil, &p); again {
			t.Fatal("something is new although nothing happened")
		}
	}
}

// TestLitSlicesShow: among merged slices, one that matches the search is shown.
func TestLitSlicesShow(t *testing.T) {
	st := store.New(0)
	th := st.Thread(store.Info{Seq: 0})
	dull, lit := st.Names.Add(store.Place{Func: 1}), st.Names.Add(store.Place{Func: 2})
	th.Feed(func(f *store.Feed) {
		for i := range 2000 {
			at := stack.Time(1000 + 10*i)
			p, n := dull, stack.Time(9)
			if i%100 == 50 {
				p, n = lit, 2
			}
			f.Begin(at, p)
			f.End(at+n, p)
		}
	})
	for _, c := range []struct {
		lit  []bool
		want bool
	}{{nil, false}, {[]bool{false, true}, true}, {[]bool{false}, false}} {
		var p store.Position
		shown := 0
		for _, x := range th.View(0, store.Open, 1000, c.lit, &p).Rows[0].Items {
			if x.Place == lit && x.Count > 1 {
				shown++
			}
		}
		if (shown > 15) != c.want || shown > 0 && !c.want {
			t.Errorf("lit %v: %d blocks show it", c.lit, shown)
		}
	}
}

func TestDropTellsWhatIsLost(t *testing.T) {
	st := store.New(5000)
	th := st.Thread(store.Info{Seq: 0})
	place := st.Names.Add(store.Place{Func: st.Names.Func(store.Func{Name: "f"})})
	var p store.Position
	th.View(0, store.Open, 1, nil, &p)
	const n = 40_000
	for i := range n {
		th.Feed(func(f *store.Feed) {
			f.Begin(stack.Time(1000+2*i), place)
			f.End(stack.Time(1001+2*i), place)
		})
		if i%1000 == 0 {
			st.Trim()
		}
	}
	st.Trim()
	if st.Held() > 5000 {
		t.Errorf("%d slices are held, the limit is 5000", st.Held())
	}
	v, ok := th.More(1, nil, &p)
	if !ok || len(v.Rows) != 1 {
		t.Fatalf("got %+v", v)
	}
	got := 0
	for _, x := range v.Rows[0].Items {
		got += int(x.Count)
	}
	if v.Rows[0].Lost == 0 || v.Rows[0].Lost+got != n || uint64(v.Rows[0].Lost) != st.Dropped() {
		t.Errorf("%d lost (%d dropped) and %d read of %d", v.Rows[0].Lost, st.Dropped(), got, n)
	}
}

// TestTreeAddsUp compares a merged tree with the replay.
func TestTreeAddsUp(t *testing.T) {
	st, _, truth := loaded(t, 9, 6000)
	from, to := st.Span()
	t0, t1 := from+(to-from)/3, from+2*(to-from)/3
	var calls int
	var wall float64
	for _, c := range truth.calls {
		if c.end > t0 && c.start < t1 {
			calls++
			wall += float64(min(c.end, t1) - max(c.start, t0))
		}
	}
	for _, o := range []store.TreeOptions{{}, {InTime: true, Max: store.MaxNodes}, {ByThread: true}} {
		tr := st.Tree(t0, t1, nil, o)
		var n uint32
		var sum float64
		for i := range tr.Parent {
			if i > 0 && int(tr.Parent[i]) >= i {
				t.Fatalf("node %d comes before its parent %d", i, tr.Parent[i])
			}
			n += tr.Count[i]
			if i > 0 && tr.Func[i] < store.ThreadFunc {
				sum += tr.Wall[i]
			}
		}
		if int(n)+tr.Folded != calls || math.Abs(sum-wall) > 1 {
			t.Errorf("%+v: %d calls (%d folded) and %.0f ns, want %d and %.0f", o, n, tr.Folded, sum, calls, wall)
		}
		if tr.CPU[0] <= 0 || tr.Wait[0] <= 0 || tr.CPU[0]+tr.Wait[0] > 1.2*tr.Wall[0] {
			t.Errorf("%+v: CPU %.0f and waiting %.0f of %.0f ns", o, tr.CPU[0], tr.Wait[0], tr.Wall[0])
		}
	}
	if small := st.Tree(t0, t1, nil, store.TreeOptions{Max: 10}); len(small.Parent) > 10 || small.Folded == 0 {
		t.Errorf("a tree of 10 nodes has %d, %d calls folded", len(small.Parent), small.Folded)
	}
}

// A call cut by the end of the recording does not count as a short call.
func TestCutCallsAreNotShort(t *testing.T) {
	st := store.New(0)
	th := st.Thread(store.Info{Seq: 1})
	f := st.Names.Func(store.Func{Name: "f"})
	p := st.Names.Add(store.Place{Func: f})
	th.Feed(func(x *store.Feed) {
		x.Begin(100, p) // from before the first sample
		x.End(130, p)
		x.Begin(200, p)
		x.End(400, p)
		x.Begin(500, p)
		x.End(900, p)
		x.Begin(1000, p) // observed once, at the end
	})
	check := func() {
		t.Helper()
		c := st.CallsOf(f, 0, store.Open, nil, nil, 0)
		n := 0
		for _, b := range c.Hist {
			n += b
		}
		if c.Count != 4 || c.Total != 630 || c.Max != 400 || c.Min != 200 || c.Median != 400 || n != 2 {
			t.Errorf("%d calls in %d, %d to %d, median %d, %d in the histogram", c.Count, c.Total, c.Min, c.Max, c.Median, n)
		}
	}
	check()
	th.Feed(func(x *store.Feed) { x.Close(1000) })
	check()
	if c := st.CallsOf(f, 0, 150, nil, nil, 0); c.Count != 1 || c.Min != 30 || c.Median != 30 {
		t.Errorf("only one that was cut: %+v", c)
	}
}

func TestCallsHitsAndWaits(t *testing.T) {
	st := store.New(0)
	th := st.Thread(store.Info{Seq: 5})
	f := st.Names.Func(store.Func{Name: "f"})
	g := st.Names.Func(store.Func{Name: "g"})
	pf, pg := st.Names.Add(store.Place{Func: f}), st.Names.Add(store.Place{Func: g})
	th.Feed(func(x *store.Feed) {
		ev := func(at stack.Time, k event.Kind, p uint64) { x.Other(event.Make(at, k, p)) }
		ev(100, event.State, event.StateOf(stack.StateRunning, -1))
		x.Begin(100, pg) // g 100–1000
		x.Begin(200, pf) // f 200–300
		x.End(300, pf)
		x.Begin(400, pf) // f 400–900
		x.Begin(500, pf) // f 500–550, inside the other
		x.End(550, pf)
		ev(600, event.State, event.StateOf(stack.StateBlocked, 202))
		ev(600, event.Lock, 0xabc0)
		ev(600, event.Holder, event.HolderOf(77, event.KnownByWord))
		ev(800, event.Lock, 0)
		ev(800, event.State, event.StateOf(stack.StateRunning, -1))
		ev(850, event.Seen, event.SeenOf(stack.WayStop, 4, 120))
		x.End(900, pf)
		x.End(1000, pg)
		x.Close(1000)
	})
	c := st.CallsOf(f, 0, store.Open, nil, &store.Where{Seq: 5, Depth: 1, Start: 400}, 0)
	if c.Count != 3 || c.Total != 650 || c.Min != 50 || c.Max != 500 || c.Median != 100 {
		t.Errorf("calls %+v", c)
	}
	if c.Prev == nil || c.Prev.Start != 200 || c.Next == nil || c.Next.Start != 500 || c.Longest.Start != 400 {
		t.Errorf("neighbours %+v %+v, longest %+v", c.Prev, c.Next, c.Longest)
	}
	n := 0
	for _, b := range c.Hist {
		n += b
	}
	if n != 3 {
		t.Errorf("histogram of %d calls", n)
	}
	if h := st.HitsOf(map[uint32]bool{f: true}, 0, store.Open, nil, nil, 0); h.Count != 3 || h.Total != 600 || h.First.Start != 200 {
		t.Errorf("hits %+v: time inside an outer hit counts once", h)
	}
	at := func(near *store.Where) (prev, next stack.Time) {
		h := st.HitsOf(map[uint32]bool{f: true}, 0, store.Open, nil, near, 0)
		if h.First.Start != 200 || h.Last.Start != 500 {
			t.Errorf("first %v, last %v", h.First, h.Last)
		}
		if h.Prev != nil {
			prev = h.Prev.Start
		}
		if h.Next != nil {
			next = h.Next.Start
		}
		return prev, next
	}
	for _, c := range []struct {
		near       store.Where
		prev, next stack.Time
	}{{store.Where{Seq: 5, Depth: 1, Start: 400}, 200, 500}, {store.Where{Seq: -1, Depth: -1, Start: 400}, 200, 400}, {store.Where{Seq: 5, Depth: 2, Start: 500}, 400, 0}} {
		if p, n := at(&c.near); p != c.prev || n != c.next {
			t.Errorf("beside %v: %d and %d, want %d and %d", c.near, p, n, c.prev, c.next)
		}
	}
	w := st.Waits(0, store.Open, nil)
	if len(w) != 2 {
		t.Fatalf("waits %+v", w)
	}
	for _, x := range w {
		if x.Total != 200 || x.Count != 1 || x.Kind == "lock" && (x.Lock.Addr != 0xabc0 || x.Lock.Holder != 77) || x.Kind == "call" && x.State.Call != 202 {
			t.Errorf("wait %+v", x)
		}
	}
	calls, lanes := th.Stack(520, -1, 0)
	if len(calls) != 3 || calls[1].Self != 450 || calls[0].Self != 900-600 || calls[1].Samples != 4 || calls[1].CPU != 120 || calls[1].Wait != 200 {
		t.Errorf("stack %+v", calls)
	}
	if s := lanes[store.LaneState]; s == nil || st.State(s.Place).State != stack.StateRunning {
		t.Errorf("state %+v", s)
	}
	if _, l := th.Stack(700, 0, 0); l[store.LaneLock] == nil || st.Lock(l[store.LaneLock].Place).Holder != 77 {
		t.Errorf("lock lane %+v", l)
	}
}

// FuzzFeed feeds hostile events: decreasing times, exits without calls, endless depth.
// Rows must stay in order and the counts must add up.
func FuzzFeed(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 0, 200, 100, 7, 9, 0})
	f.Add(bytes.Repeat([]byte{9, 250}, 300))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := store.New(0)
		th := st.Thread(store.Info{Seq: 0})
		place := st.Names.Add(store.Place{})
		at, ended := int64(0), 0
		th.Feed(func(x *store.Feed) {
			for i, c := range b {
				at += (int64(c) - 100) << (i % 50)
				switch c % 5 {
				case 0:
					x.Begin(stack.Time(at), place)
				case 1:
					if x.Depth() > 0 && x.Depth() <= store.MaxDepth {
						ended++
					}
					x.End(stack.Time(at), place)
				default:
					x.Other(event.Make(stack.Time(at), event.Kind(c%16), uint64(at)*uint64(c)))
				}
			}
			ended += min(x.Depth(), store.MaxDepth)
			x.Close(stack.Time(at))
		})
		var p store.Position
		n := 0
		for _, r := range th.View(math.MinInt64, store.Open, 1000, nil, &p).Rows {
			last := stack.Time(math.MinInt64)
			for _, x := range r.Items {
				if x.Start < last || x.End < x.Start {
					t.Fatalf("row %d out of order at %d–%d", r.Depth, x.Start, x.End)
				}
				last = x.End
				if r.Depth < 0xff00 {
					n += int(x.Count)
				}
			}
		}
		if n > ended {
			t.Fatalf("%d calls shown, %d were made", n, ended)
		}
	})
}

// TestReadersDoNotDisturb queries a thread that is being fed, under the race detector.
func TestReadersDoNotDisturb(t *testing.T) {
	st := store.New(3000)
	th := st.Thread(store.Info{Seq: 0})
	place := st.Names.Add(store.Place{Func: st.Names.Func(store.Func{Name: "f"})})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20_000 {
			th.Feed(func(f *store.Feed) {
				f.Begin(stack.Time(10*i+1), place)
				f.Other(event.Make(stack.Time(10*i+2), event.Seen, event.SeenOf(stack.WayStop, 1, 1)))
				f.End(stack.Time(10*i+5), place)
			})
			st.Trim()
		}
	}()
	var p store.Position
	th.View(0, store.Open, 64, nil, &p)
	for {
		th.More(64, nil, &p)
		st.Tree(0, store.Open, nil, store.TreeOptions{})
		st.CallsOf(0, 0, store.Open, nil, nil, 0)
		st.Loads(0, 100_000, 10)
		th.Stack(500, -1, 0)
		select {
		case <-done:
			return
		default:
		}
	}
}
