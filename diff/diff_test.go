package diff

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// act is one activation of the model program: it has an identity that a sampler cannot see.
type act struct {
	id    int
	frame stack.Frame
}

// model is a program that calls and returns at random.
type model struct {
	rnd    *rand.Rand
	acts   []act // outermost first
	nextID int
}

// site returns the return address of call site n in the function at fn.
func site(fn uint64, n int) uint64 { return fn + 0x10 + uint64(n)*8 }

func (m *model) push() {
	fn := uint64(0x1000 * (1 + m.rnd.IntN(5)))
	cfa := uint64(0x7fff_0000)
	if n := len(m.acts); n > 0 {
		top := &m.acts[n-1].frame
		top.PC, top.Exact, top.Trust = site(top.Func, m.rnd.IntN(3)), false, stack.TrustCFI
		cfa = top.CFA - 0x20 - uint64(m.rnd.IntN(2))*0x10
	}
	m.acts = append(m.acts, act{m.nextID, stack.Frame{Func: fn, PC: fn + uint64(m.rnd.IntN(8)), CFA: cfa, Exact: true}})
	m.nextID++
}

func (m *model) pop() {
	m.acts = m.acts[:len(m.acts)-1]
	m.work()
}

func (m *model) work() {
	if n := len(m.acts); n > 0 {
		top := &m.acts[n-1].frame
		top.PC, top.Exact = top.Func+uint64(m.rnd.IntN(100)), true
	}
}

// step lets the program run for a while.
func (m *model) step() {
	for range m.rnd.IntN(6) {
		switch k := m.rnd.IntN(3); {
		case k == 0 && len(m.acts) < 12 || len(m.acts) == 0:
			m.push()
		case k == 1 && len(m.acts) > 1:
			m.pop()
		default:
			m.work()
		}
	}
}

func (m *model) sample(t stack.Time) *stack.Sample {
	s := &stack.Sample{Time: t, CPU: int64(t) / 2, State: stack.StateRunning, Call: stack.Call{Nr: -1}}
	for i := len(m.acts) - 1; i >= 0; i-- {
		s.Stack = append(s.Stack, m.acts[i].frame)
	}
	return s
}

// recorder is a Handler that records its calls.
type recorder struct {
	open   []Frame
	closed [][2]stack.Time
	others []event.Event
	enters int
}

func (r *recorder) Enter(_ stack.Time, depth int, f Frame) {
	if depth != len(r.open) {
		panic("enter not on top")
	}
	r.enters++
	r.open = append(r.open, f)
}

func (r *recorder) Exit(t stack.Time, depth int, _ Frame) {
	if depth != len(r.open)-1 {
		panic("exit not of the top")
	}
	r.closed = append(r.closed, [2]stack.Time{r.open[depth].Entered, t})
	r.open = r.open[:depth]
}

func (r *recorder) Move(_ stack.Time, depth int, f Frame) {
	if depth != len(r.open)-1 {
		panic("move not of the top")
	}
	r.open[depth].Word = f.Word
}

func (r *recorder) Other(e event.Event) { r.others = append(r.others, e) }

func words(fs []Frame) (w []event.Word) {
	for _, f := range fs {
		w = append(w, f.Word)
	}
	return w
}

func wordsOf(s *stack.Sample) (w []event.Word) {
	for i := len(s.Stack) - 1; i >= 0; i-- {
		w = append(w, event.WordOf(&s.Stack[i]))
	}
	return w
}

// same is the identity that a sampler can see: two samples have the same activation if function,
// CFA and return address agree in it and all its callers.
func same(a, b []act, i int) bool {
	for k := 0; k <= i; k++ {
		f, g := &a[k].frame, &b[k].frame
		if f.Func != g.Func || f.CFA != g.CFA || k > 0 && a[k-1].frame.PC != b[k-1].frame.PC {
			return false
		}
	}
	return true
}

// TestReplayInvertsDiff: after each sample's events, the replayed stack equals the sample's, and
// slices begin and end exactly with the visible identity of their activation.
func TestReplayInvertsDiff(t *testing.T) {
	for seed := range uint64(300) {
		m := &model{rnd: rand.New(rand.NewPCG(seed, 7))}
		m.push()
		var d Differ
		var r Replayer
		rec := &recorder{}
		var before []act
		var entered []stack.Time
		var want [][2]stack.Time
		for i := range 120 {
			now := stack.Time(1000 + 10*i)
			s := m.sample(now)
			evs := d.Step(s, nil)
			for _, e := range evs {
				r.Apply(e, rec)
			}
			if got := words(r.Stack); !slices.Equal(got, wordsOf(s)) {
				t.Fatalf("seed %d sample %d: replayed %x, want %x\nevents %v", seed, i, got, wordsOf(s), evs)
			}
			if !slices.Equal(words(rec.open), words(r.Stack)) {
				t.Fatalf("seed %d sample %d: handler saw another stack", seed, i)
			}
			common := 0
			for common < len(before) && common < len(m.acts) && same(before, m.acts, common) {
				common++
			}
			for k := len(before) - 1; k >= common; k-- {
				want = append(want, [2]stack.Time{entered[k], now})
			}
			entered = entered[:common]
			for range len(m.acts) - common {
				entered = append(entered, now)
			}
			if !slices.Equal(rec.closed, want) {
				t.Fatalf("seed %d sample %d: slices %v, want %v", seed, i, rec.closed, want)
			}
			before = append(before[:0:0], m.acts...)
			m.step()
		}
		if r.Odd != 0 {
			t.Fatalf("seed %d: %d odd events", seed, r.Odd)
		}
	}
}

// TestAccountsAddUp: the Seen events contain all samples and all CPU time, regardless of other
// changes.
func TestAccountsAddUp(t *testing.T) {
	m := &model{rnd: rand.New(rand.NewPCG(1, 7))}
	m.push()
	var d Differ
	rec := &recorder{}
	var r Replayer
	apply := func(es []event.Event) {
		for _, e := range es {
			r.Apply(e, rec)
		}
	}
	const n = 20_000
	var s *stack.Sample
	for i := range n {
		s = m.sample(stack.Time(1000 + 1000*i))
		s.CPU = int64(i) * 700
		s.Way = stack.Way(m.rnd.IntN(20) / 18)
		if s.Way == stack.WayUnrun {
			s.Stack = nil
		} else if m.rnd.IntN(3) == 0 {
			m.step()
			s = m.sample(s.Time)
			s.CPU = int64(i) * 700
		}
		apply(d.Step(s, nil))
	}
	apply(d.Flush(nil))
	var samples int
	var cpu int64
	for _, e := range rec.others {
		if e.Kind() == event.Seen {
			_, k, c := event.SeenFields(e.Payload())
			samples += k
			cpu += c
		}
	}
	if samples != n || cpu != 700*(n-1) {
		t.Fatalf("%d samples and %d ns, want %d and %d", samples, cpu, n, 700*(n-1))
	}
}

func TestFourCases(t *testing.T) {
	f := func(fn, pc, cfa uint64, exact bool) stack.Frame {
		return stack.Frame{Func: fn, PC: pc, CFA: cfa, Exact: exact}
	}
	root := f(1, 10, 100, false)
	cases := []struct {
		name  string
		stack []stack.Frame // leaf first
		kinds []event.Kind  // in addition to Seen
	}{
		{"first", []stack.Frame{f(2, 20, 90, true), root}, []event.Kind{event.State, event.Sync, event.Enter, event.Enter, event.State}},
		{"unchanged", []stack.Frame{f(2, 20, 90, true), root}, nil},
		{"moved", []stack.Frame{f(2, 21, 90, true), root}, []event.Kind{event.Move}},
		{"entered", []stack.Frame{f(3, 30, 80, true), f(2, 22, 90, false), root}, []event.Kind{event.Move, event.Enter}},
		{"left", []stack.Frame{f(2, 23, 90, true), root}, []event.Kind{event.Exit, event.Move}},
		{"left then entered", []stack.Frame{f(4, 40, 90, true), root}, []event.Kind{event.Exit, event.Enter}},
		{"same function and place, another caller", []stack.Frame{f(4, 40, 90, true), f(1, 11, 100, false)},
			[]event.Kind{event.Exit, event.Move, event.Enter}},
	}
	var d Differ
	for i, c := range cases {
		var got []event.Kind
		for _, e := range d.Step(&stack.Sample{Time: stack.Time(i + 1), Stack: c.stack, State: stack.StateRunning, Call: stack.Call{Nr: -1}}, nil) {
			if e.Kind() != event.Seen {
				got = append(got, e.Kind())
			}
		}
		if !slices.Equal(got, c.kinds) {
			t.Errorf("%s: %v, want %v", c.name, got, c.kinds)
		}
	}
}

// TestDenied: a state ends where the kernel begins to refuse access, and the next sample shows it again.
func TestDenied(t *testing.T) {
	var d Differ
	st := []stack.Frame{{Func: 2, PC: 20, CFA: 90, Exact: true}}
	var all []event.Event
	for _, at := range []stack.Time{10, 20} {
		all = d.Step(&stack.Sample{Time: at, Stack: st, State: stack.StateRunning, Call: stack.Call{Nr: -1}}, all)
		for i := range stack.Time(2) {
			all = d.Gap(at+3+i, stack.WhyDenied, 1, all)
		}
	}
	all = d.Gap(30, stack.WhyLate, 1, all)
	type change struct {
		at    stack.Time
		state stack.State
	}
	var got []change
	for _, e := range all {
		if e.Kind() == event.State {
			s, _ := event.StateFields(e.Payload())
			if n := len(got); n == 0 || got[n-1] != (change{e.Time, s}) { // a Sync repeats it
				got = append(got, change{e.Time, s})
			}
		}
	}
	want := []change{{10, stack.StateRunning}, {13, stack.StateUnknown}, {20, stack.StateRunning}, {23, stack.StateUnknown}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAnotherWait: a thread that ran and blocked again in the same call shows two slices of its
// leaf.
func TestAnotherWait(t *testing.T) {
	st := []stack.Frame{{Func: 2, PC: 20, CFA: 90, Exact: true}, {Func: 1, PC: 10, CFA: 100}}
	s := func(i int, switches uint64) *stack.Sample {
		return &stack.Sample{Time: stack.Time(i), Stack: st, State: stack.StateBlocked, Call: stack.Call{Nr: 7},
			Switches: switches, Way: stack.WayRead}
	}
	var d Differ
	var r Replayer
	rec := &recorder{}
	for i, sw := range []uint64{5, 5, 6, 6} {
		for _, e := range d.Step(s(i+1, sw), nil) {
			r.Apply(e, rec)
		}
	}
	if want := [][2]stack.Time{{1, 3}}; !slices.Equal(rec.closed, want) || len(rec.open) != 2 || rec.open[1].Entered != 3 {
		t.Fatalf("closed %v open %v", rec.closed, rec.open)
	}
}

// TestTruncatedGoesOn: an incomplete walk keeps the callers of the activation in which it ends;
// if that is unknown, the error is shown.
func TestTruncatedGoesOn(t *testing.T) {
	errf := stack.Frame{PC: uint64(stack.ReasonShort), Kind: stack.KindError}
	full := []stack.Frame{{Func: 3, PC: 30, CFA: 80, Exact: true}, {Func: 2, PC: 20, CFA: 90}, {Func: 1, PC: 10, CFA: 100}}
	short := []stack.Frame{{Func: 4, PC: 40, CFA: 80, Exact: true}, {Func: 2, PC: 20, CFA: 90}, errf}
	other := []stack.Frame{{Func: 4, PC: 40, CFA: 80, Exact: true}, {Func: 9, PC: 20, CFA: 90}, errf}
	var d Differ
	var r Replayer
	rec := &recorder{}
	step := func(i int, st []stack.Frame, why stack.Reason) []event.Word {
		for _, e := range d.Step(&stack.Sample{Time: stack.Time(i), Stack: st, Reason: why, Reach: 100}, nil) {
			r.Apply(e, rec)
		}
		return words(r.Stack)
	}
	step(1, full, 0)
	got := step(2, short, stack.ReasonShort)
	if len(got) != 3 || got[0].Addr() != 10 || got[2].Addr() != 40 || len(rec.closed) != 1 {
		t.Fatalf("short stack replayed as %x, closed %v", got, rec.closed)
	}
	got = step(3, other, stack.ReasonShort)
	if len(got) != 4 || got[0].Addr() != 10 || got[1].Kind() != stack.KindError {
		t.Fatalf("unknown short stack replayed as %x", got)
	}
	if got = step(4, full, 0); len(got) != 3 || got[0].Addr() != 10 {
		t.Fatalf("full stack again: %x", got)
	}
}

// TestTruncatedOverOthers: an incomplete walk keeps those frames of the stack before whose return
// addresses still exist.
func TestTruncatedOverOthers(t *testing.T) {
	errf := stack.Frame{PC: uint64(stack.ReasonRegister), Kind: stack.KindError}
	full := []stack.Frame{{Func: 5, PC: 50, CFA: 400, Exact: true}, {Func: 4, PC: 40, CFA: 500}, {Func: 3, PC: 30, CFA: 600},
		{Func: 2, PC: 20, CFA: 700}, {Func: 1, PC: 10, CFA: 800}}
	part := []stack.Frame{{Func: 9, PC: 90, CFA: 100, Exact: true}, {Func: 8, PC: 80, CFA: 200}, errf}
	for _, c := range []struct {
		name string
		mem  map[uint64]uint64 // nil: nothing was copied
		want []uint64          // outermost first
		at   uint64            // CFA of the frame before the last, if that of the last is unknown
	}{
		{"none was copied", nil, []uint64{10, 20, 30, 40, 50, 80, 90}, 0},
		{"all are there", map[uint64]uint64{392: 40, 492: 30, 592: 20, 692: 10}, []uint64{10, 20, 30, 40, 50, 80, 90}, 0},
		{"the leaf was not copied", map[uint64]uint64{492: 30, 592: 20, 692: 10}, []uint64{10, 20, 30, 40, 50, 80, 90}, 0},
		{"the leaf has returned", map[uint64]uint64{392: 7, 492: 30, 592: 20, 692: 10}, []uint64{10, 20, 30, 40, 80, 90}, 0},
		{"one in the middle has returned", map[uint64]uint64{392: 40, 492: 30, 592: 7, 692: 10}, []uint64{10, 20, 80, 90}, 0},
		{"what it called lies further out", nil, []uint64{10, 20, 80, 90}, 600},
	} {
		var d Differ
		var r Replayer
		rec := &recorder{}
		in := slices.Clone(part)
		if c.at > 0 {
			in[0].CFA, in[1].CFA = c.at, 0
		}
		s := stack.Sample{Time: 2, Stack: in, Reason: stack.ReasonRegister, Reach: 800}
		if c.mem != nil {
			s.Word = func(a uint64) (uint64, bool) { v, ok := c.mem[a]; return v, ok }
		}
		for _, e := range append(d.Step(&stack.Sample{Time: 1, Stack: full}, nil), d.Step(&s, nil)...) {
			r.Apply(e, rec)
		}
		var got []uint64
		for _, w := range words(r.Stack) {
			if w.Kind() != stack.KindError {
				got = append(got, w.Addr())
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestOtherStack: an incomplete walk keeps no frame of another stack, and none whose return
// address was overwritten.
func TestOtherStack(t *testing.T) {
	errf := stack.Frame{PC: uint64(stack.ReasonNoRule), Kind: stack.KindError}
	main := []stack.Frame{{Func: 3, PC: 30, CFA: 780, Exact: true}, {Func: 2, PC: 20, CFA: 790}, {Func: 1, PC: 10, CFA: 800}}
	below := []stack.Frame{{Func: 9, PC: 90, CFA: 100, Exact: true}, {Func: 8, PC: 80, CFA: 200}, errf}
	same := []stack.Frame{{Func: 9, PC: 90, CFA: 770, Exact: true}, {Func: 2, PC: 20, CFA: 790}, errf}
	for _, c := range []struct {
		name  string
		now   []stack.Frame
		reach uint64
		mem   map[uint64]uint64
		want  []uint64 // outermost first; 0: an error
	}{
		{"a coroutine's stack below", below, 256, nil, []uint64{0, 80, 90}},
		{"nothing is known of the stack", below, 0, nil, []uint64{0, 80, 90}},
		{"deeper calls of the same stack", below, 800, nil, []uint64{10, 20, 30, 0, 80, 90}},
		{"the caller's return address is there", same, 0, map[uint64]uint64{782: 10}, []uint64{10, 20, 90}},
		{"another stack was copied over the caller's", same, 0, map[uint64]uint64{782: 77}, []uint64{0, 20, 90}},
	} {
		var d Differ
		var r Replayer
		s := stack.Sample{Time: 2, Stack: c.now, Reason: stack.ReasonNoRule, Reach: c.reach,
			Word: func(a uint64) (uint64, bool) { v, ok := c.mem[a]; return v, ok }}
		for _, e := range append(d.Step(&stack.Sample{Time: 1, Stack: main}, nil), d.Step(&s, nil)...) {
			r.Apply(e, nothing{})
		}
		var got []uint64
		for _, w := range words(r.Stack) {
			a := w.Addr()
			if w.Kind() == stack.KindError {
				a = 0
			}
			got = append(got, a)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestResync: a reader that lost events shows no frame until the next Sync, which has the frames'
// start times.
func TestResync(t *testing.T) {
	m := &model{rnd: rand.New(rand.NewPCG(3, 7))}
	m.push()
	m.push()
	var d Differ
	var r Replayer
	rec := &recorder{}
	for i := range 50 {
		s := m.sample(stack.Time(i + 1))
		evs := d.Step(s, nil)
		if i == 40 {
			evs = d.Sync(evs)
		}
		m.step()
		if i >= 20 && i < 30 {
			continue // lost
		}
		if i == 30 {
			r.Desync(20, rec)
		}
		for _, e := range evs {
			r.Apply(e, rec)
		}
		if i >= 30 && i < 40 && len(r.Stack) != 0 {
			t.Fatalf("sample %d: something is drawn before the sync", i)
		}
		if i >= 40 && !slices.Equal(words(r.Stack), wordsOf(s)) {
			t.Fatalf("sample %d: %x, want %x", i, words(r.Stack), wordsOf(s))
		}
	}
	if r.Odd != 0 {
		t.Fatalf("%d odd events", r.Odd)
	}
}

// FuzzReplay: no sequence of events breaks the replay.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{7, 2, 1, 1, 1, 2, 0, 0, 0, 8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Replayer
		rec := &recorder{}
		for i, x := range b {
			r.Apply(event.Make(stack.Time(i), event.Kind(x&31), uint64(x>>5)<<(x&48)), rec)
			if len(r.Stack) != len(rec.open) {
				t.Fatal("handler and stack disagree")
			}
		}
		r.CloseAll(stack.Time(len(b)), rec)
		if rec.enters != len(rec.closed) {
			t.Fatalf("%d entered, %d left", rec.enters, len(rec.closed))
		}
	})
}

func benchSamples(depth int) []*stack.Sample {
	m := &model{rnd: rand.New(rand.NewPCG(9, 7))}
	var base []stack.Frame
	for i := range depth {
		base = append(base, stack.Frame{Func: uint64(i + 1), PC: uint64(i + 2), CFA: uint64(1<<40 - i*32)})
	}
	slices.Reverse(base)
	m.push()
	var out []*stack.Sample
	for i := range 256 {
		m.step()
		s := m.sample(stack.Time(i+1) * 1_000_000)
		s.Stack = append(s.Stack, base...)
		out = append(out, s)
	}
	return out
}

func BenchmarkStep30(b *testing.B) {
	ss := benchSamples(30)
	var d Differ
	var out []event.Event
	for i := range b.N {
		out = d.Step(ss[i%len(ss)], out[:0])
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	ss := benchSamples(30)
	var d Differ
	out := make([]event.Event, 0, 1024)
	for _, s := range ss {
		out = d.Step(s, out[:0])
	}
	i := 0
	if n := testing.AllocsPerRun(200, func() { out = d.Step(ss[i%len(ss)], out[:0]); i++ }); n != 0 {
		t.Fatalf("%v allocations a sample", n)
	}
}
