package calls

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

func pairAll(p *Pairer, hits []Hit) (out []Call) {
	p.Yield = func(c Call) { out = append(out, c) }
	for i := range hits {
		if hits[i].TID == 0 {
			hits[i].TID = 7
		}
		p.Hit(&hits[i])
	}
	return out
}

func TestPairs(t *testing.T) {
	in := func(at stack.Time, fn int, cfa uint64) Hit { return Hit{Time: at, Fn: fn, CFA: cfa, Ret: 0x40} }
	ret := func(at stack.Time, fn int, cfa uint64) Hit { return Hit{Time: at, Fn: fn, CFA: cfa, Where: Return} }
	jump := func(at stack.Time, fn int, cfa uint64) Hit { return Hit{Time: at, Fn: fn, CFA: cfa, Where: Jump} }
	call := func(fn int, enter, exit stack.Time, cfa uint64, how How) Call {
		return Call{Fn: fn, TID: 7, Enter: enter, Exit: exit, CFA: cfa, Ret: 0x40, How: how}
	}
	for _, c := range []struct {
		name string
		hits []Hit
		want []Call
		odd  uint64
	}{
		{name: "recursion", hits: []Hit{in(1, 0, 300), in(2, 0, 200), ret(3, 0, 200), in(4, 0, 200), ret(5, 0, 200), ret(6, 0, 300)},
			want: []Call{call(0, 2, 3, 200, Returned), call(0, 4, 5, 200, Returned), call(0, 1, 6, 300, Returned)}},
		{name: "exception through two", hits: []Hit{in(1, 0, 300), in(2, 1, 200), in(3, 2, 100), ret(9, 0, 300)},
			want: []Call{call(2, 3, 9, 100, Left), call(1, 2, 9, 200, Left), call(0, 1, 9, 300, Returned)}},
		{name: "longjmp to the same place", hits: []Hit{in(1, 0, 300), in(2, 0, 300), in(3, 0, 300), ret(4, 0, 300)},
			want: []Call{call(0, 1, 2, 300, Left), call(0, 2, 3, 300, Left), call(0, 3, 4, 300, Returned)}},
		{name: "tail call of a traced function", hits: []Hit{in(1, 0, 300), jump(2, 0, 300), in(3, 1, 300), ret(4, 1, 300)},
			want: []Call{call(0, 1, 2, 300, Jumped), call(1, 3, 4, 300, Returned)}},
		{name: "jump of a switch", hits: []Hit{in(1, 0, 300), jump(2, 0, 250), ret(4, 0, 300)},
			want: []Call{call(0, 1, 4, 300, Returned)}, odd: 1},
		{name: "began before", hits: []Hit{ret(5, 0, 300), in(6, 0, 300), ret(7, 0, 300)},
			want: []Call{{Fn: 0, TID: 7, Exit: 5, CFA: 300, Before: true}, call(0, 6, 7, 300, Returned)}},
	} {
		p := &Pairer{}
		if got := pairAll(p, c.hits); !reflect.DeepEqual(got, c.want) || p.Odd != c.odd {
			t.Errorf("%s: %+v (odd %d), want %+v", c.name, got, p.Odd, c.want)
		}
		p.Under(func(c Call) { t.Errorf("%+v is still open", c) })
	}
}

func TestPairsByRegion(t *testing.T) {
	// A handler on a signal stack at a higher address does not end what it interrupted.
	p := &Pairer{Region: func(_ stack.TID, a uint64) uint64 { return a / 1000 }}
	got := pairAll(p, []Hit{{Time: 1, CFA: 500, Ret: 1}, {Time: 2, CFA: 5500, Ret: 2}, {Time: 3, CFA: 5500, Where: Return}, {Time: 4, CFA: 500, Where: Return}})
	if len(got) != 2 || got[0].Enter != 2 || got[0].How != Returned || got[1].Enter != 1 || got[1].Exit != 4 || got[1].How != Returned {
		t.Errorf("%+v", got)
	}
}

func TestPairsByTask(t *testing.T) {
	// A goroutine changes threads, and its stack moves to a higher address, during a call.
	p := &Pairer{}
	got := pairAll(p, []Hit{
		{Time: 1, TID: 1, Task: 9, CFA: 500, Ret: 1, Moves: true},
		{Time: 2, TID: 2, Task: 9, CFA: 9400, Ret: 2, Moves: true},
		{Time: 3, TID: 2, Task: 9, CFA: 9400, Where: Return, Moves: true},
		{Time: 4, TID: 3, Task: 9, CFA: 9500, Where: Return, Moves: true}})
	if len(got) != 2 || got[0].Enter != 2 || got[1].Enter != 1 || got[1].Exit != 4 || got[1].How != Returned {
		t.Errorf("%+v", got)
	}
}

// A goroutine that is preempted at a breakpoint hits it twice, in recursions and around panics, too.
func TestPairsPreempted(t *testing.T) {
	hit := func(at stack.Time, w Where, cfa uint64, regs uint64) Hit {
		return Hit{Time: at, TID: stack.TID(at), Task: 9, Where: w, CFA: cfa, Ret: 3, Moves: true, Regs: regs}
	}
	call := func(enter, exit stack.Time, cfa uint64, how How, unsure bool) Call {
		return Call{TID: stack.TID(enter), Task: 9, Enter: enter, Exit: exit, CFA: cfa, Ret: 3, How: how, Unsure: unsure}
	}
	in := func(at stack.Time) Hit { return hit(at, Inside, 1, 0) }
	for _, c := range []struct {
		name   string
		inside bool
		hits   []Hit
		want   []Call
		odd    uint64
	}{
		{"at the entry, inside and at the exit", true, []Hit{hit(1, Enter, 50, 0), hit(2, Enter, 50, 0), in(3), in(4), hit(5, Return, 50, 0), hit(6, Return, 50, 0)},
			[]Call{call(1, 5, 50, Returned, false)}, 2},
		{"two calls, of which the first panics", true, []Hit{hit(1, Enter, 50, 0), in(2), hit(3, Enter, 50, 0), in(4), hit(5, Return, 50, 0)},
			[]Call{call(1, 3, 50, Left, false), call(3, 5, 50, Returned, false)}, 0},
		{"at the exit of an inner call", true, []Hit{hit(1, Enter, 50, 0), in(2), hit(3, Enter, 40, 0), in(4), hit(5, Return, 40, 0), hit(6, Return, 40, 0), hit(7, Return, 50, 0)},
			[]Call{call(3, 5, 40, Returned, false), call(1, 7, 50, Returned, false)}, 1},
		{"an inner call panics", true, []Hit{hit(1, Enter, 50, 0), in(2), hit(3, Enter, 40, 0), in(4), hit(5, Return, 50, 0)},
			[]Call{call(3, 5, 40, Left, false), call(1, 5, 50, Returned, false)}, 0},
		{"equal registers", false, []Hit{hit(1, Enter, 50, 5), hit(2, Enter, 50, 5), hit(3, Return, 50, 0)},
			[]Call{call(1, 3, 50, Returned, true)}, 1},
		{"another register", false, []Hit{hit(1, Enter, 50, 5), hit(2, Enter, 50, 7), hit(3, Return, 50, 0)},
			[]Call{call(1, 2, 50, Left, false), call(2, 3, 50, Returned, false)}, 0},
		{"no registers", false, []Hit{hit(1, Enter, 50, 0), hit(2, Enter, 50, 0), hit(3, Return, 50, 0)},
			[]Call{call(1, 2, 50, Left, true), call(2, 3, 50, Returned, false)}, 0},
	} {
		p := &Pairer{Inside: func(int) bool { return c.inside }}
		if got := pairAll(p, c.hits); !reflect.DeepEqual(got, c.want) || p.Odd != c.odd {
			t.Errorf("%s: %+v (odd %d), want %+v", c.name, got, p.Odd, c.want)
		}
		p.Under(func(c Call) { t.Errorf("%+v is still open", c) })
	}
	// A hit of Inside may be among those that are lost: the next entry is another call's.
	var got []Call
	p := &Pairer{Inside: func(int) bool { return true }, Yield: func(c Call) { got = append(got, c) }}
	first, next := hit(1, Enter, 50, 0), hit(2, Enter, 50, 0)
	p.Hit(&first)
	p.Lost()
	p.Hit(&next)
	if want := []Call{call(1, 2, 50, Left, true)}; !reflect.DeepEqual(got, want) {
		t.Errorf("after a loss: %+v, want %+v", got, want)
	}
}

func TestPairsLoops(t *testing.T) {
	p := &Pairer{Loops: func(int) bool { return true }}
	got := pairAll(p, []Hit{{Time: 1, CFA: 500, Ret: 1}, {Time: 2, CFA: 500, Ret: 1}, {Time: 3, CFA: 500, Where: Return}})
	if len(got) != 1 || got[0].Enter != 1 || got[0].Exit != 3 {
		t.Errorf("%+v", got)
	}
}

// A call whose entry may be lost is marked: before the loss none is.
func TestPairsLostEntry(t *testing.T) {
	var got []Call
	p := &Pairer{Began: 1, Yield: func(c Call) { got = append(got, c) }}
	p.Hit(&Hit{Time: 2, TID: 1, CFA: 500, Where: Return})
	p.Lost()
	p.Hit(&Hit{Time: 3, TID: 1, CFA: 500, Where: Return})
	p.Hit(&Hit{Time: 4, TID: 1, CFA: 500, Ret: 1})
	p.Hit(&Hit{Time: 5, TID: 1, CFA: 500, Where: Return})
	var unsure [3]bool
	if len(got) == 3 {
		unsure = [3]bool{got[0].Unsure, got[1].Unsure, got[2].Unsure}
	}
	if unsure != [3]bool{false, true, false} || !got[1].Before || got[2].Before {
		t.Errorf("%+v", got)
	}
}

func TestPairsOpenAndGone(t *testing.T) {
	var got []Call
	p := &Pairer{Yield: func(c Call) { got = append(got, c) }}
	for _, h := range []Hit{{Time: 1, TID: 1, CFA: 500}, {Time: 2, TID: 2, CFA: 700}, {Time: 3, TID: 1, CFA: 400, Fn: 1}} {
		p.Hit(&h)
	}
	p.Lost()
	p.Gone(2, 4)
	if len(got) != 1 || got[0].TID != 2 || got[0].How != Open || got[0].Exit != 4 || !got[0].Unsure {
		t.Fatalf("%+v", got)
	}
	p.Detach(0, 5)
	if len(got) != 2 || got[1].Fn != 0 || got[1].How != Open {
		t.Fatalf("%+v", got)
	}
	p.Close(6)
	if len(got) != 3 || got[2].Fn != 1 || got[2].Exit != 6 {
		t.Fatalf("%+v", got)
	}
}

// A random program with calls, returns, tail calls, exceptions and longjmp: the pairs are those of
// the program's own account.
func TestPairsRandomPrograms(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var want, got []Call
		p := &Pairer{Yield: func(c Call) { got = append(got, c) }}
		type frame struct {
			c      Call
			traced bool
		}
		var frames []frame // the program's
		sp, at := uint64(1<<20), stack.Time(0)
		// An untraced frame hides nothing; left ones end at the next hit that shows it.
		var left []Call
		show := func(to uint64) { // frames at or below to are known to be gone
			for i := len(left) - 1; i >= 0; i-- {
				left[i].Exit = at
				want = append(want, left[i])
			}
			left = left[:0]
		}
		for range 400 {
			at++
			switch n := len(frames); {
			case n < 2 || n < 60 && r.IntN(100) < 45:
				sp -= 16 * uint64(1+r.IntN(8))
				f := frame{Call{Fn: r.IntN(3), TID: 7, Enter: at, CFA: sp, Ret: 1 + sp + uint64(at)}, r.IntN(4) > 0}
				if f.traced {
					if len(left) > 0 && left[0].CFA <= sp {
						show(sp)
					} else if len(left) > 0 { // not provable yet: make the program return higher first
						f.traced = false
					}
				}
				if f.traced {
					h := Hit{Time: at, TID: 7, Fn: f.c.Fn, CFA: sp, Ret: f.c.Ret}
					p.Hit(&h)
				}
				frames = append(frames, f)
			case r.IntN(100) < 85: // return or tail call
				f := frames[n-1]
				frames = frames[:n-1]
				if f.traced {
					where, how := Return, Returned
					if r.IntN(5) == 0 {
						where, how = Jump, Jumped
					}
					show(f.c.CFA)
					h := Hit{Time: at, TID: 7, Fn: f.c.Fn, CFA: f.c.CFA, Where: where}
					p.Hit(&h)
					f.c.Exit, f.c.How = at, how
					want = append(want, f.c)
				}
				sp = f.c.CFA + 16
			default: // an exception through some frames
				k := 1 + r.IntN(n-1)
				var gone []Call
				for _, f := range frames[n-k:] {
					if f.traced {
						f.c.How = Left
						gone = append(gone, f.c)
					}
				}
				left = append(gone, left...)
				sp = frames[n-k].c.CFA + 16
				frames = frames[:n-k]
			}
		}
		at++
		p.Close(at)
		for i := len(left) - 1; i >= 0; i-- {
			left[i].Exit, left[i].How = at, Open // nothing showed that they were over
			want = append(want, left[i])
		}
		for i := len(frames) - 1; i >= 0; i-- {
			if frames[i].traced {
				frames[i].c.Exit, frames[i].c.How = at, Open
				want = append(want, frames[i].c)
			}
		}
		if !reflect.DeepEqual(got, want) {
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("seed %d, call %d of %d and %d:\n%+v\n%+v", seed, i, len(got), len(want), got[i:min(i+2, len(got))], want[i:min(i+2, len(want))])
				}
			}
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for i := range int64(10_000) {
		h.Add(i * 1000)
	}
	for _, q := range []struct {
		q    float64
		want int64
	}{{.5, 4_999_000}, {.99, 9_899_000}, {.999, 9_989_000}, {1, 9_999_000}} {
		if got := h.Percentile(q.q); got < q.want || float64(got) > 1.04*float64(q.want) {
			t.Errorf("p%v = %d, want %d", q.q*100, got, q.want)
		}
	}
	if h.Min != 0 || h.Max != 9_999_000 || h.Mean() != 4_999_500 || h.N != 10_000 {
		t.Errorf("%+v", h)
	}
	last := int64(-1)
	for upTo := range h.Buckets {
		if upTo <= last {
			t.Fatalf("bucket %d after %d", upTo, last)
		}
		last = upTo
	}
	for v := int64(1); v > 0; v <<= 1 {
		for _, x := range []int64{v - 1, v, v + 1} {
			if b := bucketOf(x); most(b) < x || b > 0 && most(b-1) >= x {
				t.Errorf("%d: bucket %d from %d to %d", x, b, most(b-1), most(b))
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"handle", "handle", true},
		{"handle", "handle_request", false},
		{"handle", "request::handle", true},
		{"handle", "main.handle", true},
		{"handle", "example.com/a/b.handle", true},
		{"handle", "rehandle", false},
		{"b.handle", "example.com/a/b.handle", true},
		{"(*T).Do", "main.(*T).Do", false},
		{"main.(*T).Do", "main.(*T).Do", true},
		{"ns::*", "ns::f", true},
		{"ns::*", "other::ns::f", false},
		{"parse_?", "parse_a", true},
		{"parse_?", "parse_ab", false},
		{"/^get_(user|item)$/", "get_user", true},
		{"/^get_(user|item)$/", "get_users", false},
		{"server.c:handle", "handle", true},
		{"std::vector", "std::vector", true},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(c.name); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.name, got)
		}
	}
	p, _ := ParsePattern("net/server.c:handle")
	if p.file != "net/server.c" || !p.MatchFile("/src/net/server.c") || p.MatchFile("/src/other/server.c") || p.MatchFile("/src/xnet/server.c") || p.Core() != "handle" {
		t.Errorf("%+v", p)
	}
	for _, bad := range []string{"", "/(/", "file.c:"} {
		if _, err := ParsePattern(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestRegions(t *testing.T) {
	now, maps := stack.Time(1e9), []stack.Mapping{{Start: 0x1000, End: 0x9000}, {Start: 0xa000, End: 0xf000}}
	read := 0
	r := &Regions{Maps: func() []stack.Mapping { read++; return maps }, Now: func() stack.Time { return now }}
	main, alt := r.Of(1, 0x8000), r.Of(1, 0xb000)
	if main == alt || r.Of(1, 0x1000) != main || read != 1 {
		t.Fatalf("%#x, %#x, %d readings", main, alt, read)
	}
	// The stack grew, so its mapping has another start.
	maps, now = []stack.Mapping{{Start: 0x800, End: 0x9000}}, now+1e9
	if got := r.Of(1, 0x900); got != main {
		t.Errorf("%#x, want %#x", got, main)
	}
	// The other one is gone; late hits still belong to it.
	if got := r.Of(1, 0xb100); got != alt {
		t.Errorf("%#x, want %#x", got, alt)
	}
	// A thread whose stack is gone already has one all the same.
	if a, b := r.Of(2, 0x7f0000001000), r.Of(2, 0x7f0000000800); a != b || a == r.Of(2, 0x8000) {
		t.Errorf("%#x and %#x", a, b)
	}
	n := read
	for i := range uint64(100) {
		r.Of(3, 0x7f0000000000+i<<32)
	}
	if read > n+1 {
		t.Errorf("the maps were read %d times at one moment", read-n)
	}
	r.Gone(1)
	if len(r.threads[1]) != 0 {
		t.Error("a thread that is gone is kept")
	}
}
