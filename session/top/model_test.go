package top

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = stack.Time(time.Millisecond)

// fake names places "f" and their address; places at 0x1000 and above have "inner"
// inlined into them. Nothing has a name in program 9.
type fake struct{ waits map[int]trace.Wait }

func (fake) Frames(prog int, w event.Word) []Frame {
	if prog == 9 {
		return nil
	}
	f := Frame{Func: fmt.Sprintf("f%x", w.Addr()), Module: fmt.Sprintf("/lib/prog%d.so", prog), File: "/src/f.c", Line: int(w.Addr())}
	if w.Addr() >= 0x1000 {
		return []Frame{{Func: "inner", Module: f.Module, Inlined: true}, f}
	}
	return []Frame{f}
}

func (f fake) Wait(id int) (trace.Wait, bool) {
	w, ok := f.waits[id]
	return w, ok
}

func (fake) Call(nr int32) string { return fmt.Sprintf("call%d", nr) }

// recorded is a thread's recording: samples through the differ that records them.
type recorded struct {
	t   *Thread
	d   diff.Differ
	cpu int64
}

// sample records a stack, outermost first, at a time, after cpu ns more on a CPU.
func (r *recorded) sample(at stack.Time, s stack.State, cpu int64, funcs ...uint64) {
	r.sampleBy(stack.WayRead, at, s, cpu, funcs...)
}

func (r *recorded) sampleBy(w stack.Way, at stack.Time, s stack.State, cpu int64, funcs ...uint64) {
	r.cpu += cpu
	x := &stack.Sample{Time: at, State: s, Way: w, CPU: r.cpu, Call: stack.Call{Nr: -1}}
	if s == stack.StateBlocked {
		x.Call.Nr = 7
	}
	for i := len(funcs) - 1; i >= 0; i-- {
		x.Stack = append(x.Stack, stack.Frame{Func: funcs[i], PC: funcs[i], CFA: uint64(1<<20 - i*64), Exact: true})
	}
	for _, e := range r.d.Step(x, nil) {
		r.t.Apply(e)
	}
}

func (r *recorded) event(at stack.Time, k event.Kind, payload uint64) {
	for _, e := range r.d.Event(at, k, payload, nil) {
		r.t.Apply(e)
	}
}

func (r *recorded) flush() {
	for _, e := range r.d.Flush(nil) {
		r.t.Apply(e)
	}
}

func thread(m *Model, tid stack.TID, name string) *recorded {
	return &recorded{t: m.Thread(stack.ThreadInfo{TID: tid, Name: name})}
}

func find(t *testing.T, tb *Table, name string) Func {
	t.Helper()
	for _, f := range tb.Funcs {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no %s in %+v", name, tb.Funcs)
	return Func{}
}

// TestStrata: samples by stops may be rarer than those by a clock, and have their own CPU time.
func TestStrata(t *testing.T) {
	m := New(10 * time.Second)
	a := thread(m, 11, "main")
	at := 10_000 * ms
	a.sample(at, stack.StateRunning, 0, 1, 2)
	for range 10 {
		for range 40 {
			at += 5 * ms
			a.sampleBy(stack.WayClock, at, stack.StateRunning, int64(5*ms), 1, 2)
		}
		for range 5 {
			at += 40 * ms
			a.sample(at, stack.StateRunning, int64(40*ms), 1, 3)
		}
	}
	tb := m.Table(at+stack.Time(settle), fake{})
	if f2, f3 := find(t, tb, "f2").Self.CPU, find(t, tb, "f3").Self.CPU; float64(f3) < .45*float64(f2+f3) {
		t.Errorf("stopped %d ms, copied %d ms, want equal times", f3/int64(ms), f2/int64(ms))
	}
}

// Two threads with known times: checks every number of the table.
func TestTable(t *testing.T) {
	m := New(time.Second)
	a, b := thread(m, 11, "main"), thread(m, 12, "worker")
	const base = 10_000 * ms
	// a runs f1 > f2 for 300 of every 500 ms, then f1 > f3; all on a CPU.
	// b sleeps in f4 > f4 (recursion), on no CPU.
	for at := base; at <= base+5000*ms; at += 10 * ms {
		cpu := int64(10 * ms)
		if at == base {
			cpu = 0
		}
		if (at-base)%(500*ms) < 300*ms {
			a.sample(at, stack.StateRunning, cpu, 1, 2)
		} else {
			a.sample(at, stack.StateRunning, cpu, 1, 3)
		}
		b.sample(at, stack.StateBlocked, 0, 4, 4)
	}
	fresh := map[event.Word]int{}
	for range 2 { // the second time there is nothing new
		m.Fresh(func(prog int, w event.Word) { fresh[w]++ })
	}
	if len(fresh) != 4 || toldOf(fresh) != 5 { // f4 is called from f4, and by itself
		t.Errorf("fresh places: %v", fresh)
	}
	tb := m.Table(base+3700*ms+stack.Time(settle), fake{})
	if tb.Span != time.Second || tb.To != base+3700*ms || tb.From != tb.To-1000*ms || tb.Lost != 0 || len(tb.Funcs) != 4 {
		t.Fatalf("%v from %v to %v: %+v", tb.Span, tb.From-base, tb.To-base, tb.Funcs)
	}
	sec := int64(time.Second)
	want := []Func{
		{"f1", "/lib/prog0.so", Values{}, Values{sec, sec}},
		{"f2", "/lib/prog0.so", Values{sec * 6 / 10, sec * 6 / 10}, Values{sec * 6 / 10, sec * 6 / 10}},
		{"f3", "/lib/prog0.so", Values{sec * 4 / 10, sec * 4 / 10}, Values{sec * 4 / 10, sec * 4 / 10}},
		{"f4", "/lib/prog0.so", Values{sec, 0}, Values{sec, 0}},
	}
	for _, w := range want {
		// CPU time between two samples belongs to the stack of the second.
		if g := find(t, tb, w.Name); g.Module != w.Module || g.Self.Wall != w.Self.Wall || g.Total.Wall != w.Total.Wall ||
			abs(g.Self.CPU-w.Self.CPU) > int64(20*ms) || abs(g.Total.CPU-w.Total.CPU) > 1000 {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
	if r := tb.Threads[0]; r.TID != 11 || r.Name != "main" || r.State != stack.StateRunning || r.Wall != sec ||
		abs(r.CPU-sec) > 1000 || r.Top != "f2" || r.Waits != "" || r.Doing() != "f2" {
		t.Errorf("%+v", r)
	}
	if r := tb.Threads[1]; r.TID != 12 || r.State != stack.StateBlocked || r.CPU != 0 || r.Waits != "call7" || r.Since != base {
		t.Errorf("%+v", r)
	}
	st, ok := m.Stack(tb.Threads[0].Seq, fake{})
	if !ok || len(st.Frames) != 2 || st.Frames[0].Func != "f2" || st.Frames[1].Func != "f1" || st.Top != "f2" || st.TID != 11 {
		t.Errorf("%+v", st)
	}
	if _, ok := m.Stack(99, fake{}); ok {
		t.Error("a stack of no thread")
	}
}

// toldOf returns how often places were yielded.
func toldOf(fresh map[event.Word]int) (n int) {
	for _, k := range fresh {
		n += k
	}
	return n
}

func abs(x int64) int64 { return max(x, -x) }

// Random samples: the table agrees with sums computed directly.
func TestTableAgreesWithSamples(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		window := time.Duration(200+rnd.IntN(3000)) * time.Millisecond
		m := New(window)
		type look struct {
			at    stack.Time
			funcs []uint64
		}
		var all [][]look
		end := stack.Time(0)
		cpu := int64(0)
		for i := range 1 + rnd.IntN(4) {
			r := thread(m, stack.TID(i+1), "t")
			at := stack.Time(1+rnd.IntN(3000)) * ms
			var looks []look
			for range 50 + rnd.IntN(500) {
				funcs := make([]uint64, 1+rnd.IntN(4))
				for j := range funcs {
					funcs[j] = uint64(j*4 + rnd.IntN(3) + 1)
				}
				if len(looks) > 0 && rnd.IntN(3) > 0 {
					funcs = looks[len(looks)-1].funcs
				}
				ran := rnd.Int64N(int64(5 * ms))
				if len(looks) > 0 {
					cpu += ran
				}
				r.sample(at, stack.StateRunning, ran, funcs...)
				looks = append(looks, look{at, funcs})
				at += stack.Time(1 + rnd.Int64N(int64(20*ms)))
			}
			r.flush()
			all = append(all, looks)
			end = max(end, at)
		}
		now := stack.Time(rnd.Int64N(int64(end))) + 500*ms
		if m.begin > now {
			continue
		}
		if rnd.IntN(2) == 0 {
			m.compact(0)
		}
		now = max(now, end-ms) // older time is forgotten gradually
		tb := m.Table(now, fake{})
		want := map[string]*Func{}
		for _, looks := range all {
			for i, l := range looks {
				to := tb.To // the last sample holds from then on
				if i+1 < len(looks) {
					to = min(to, looks[i+1].at)
				}
				if ns := int64(to - max(l.at, tb.From)); ns > 0 {
					seen := map[string]bool{}
					for j := range l.funcs {
						n := fmt.Sprintf("f%x", l.funcs[j])
						if want[n] == nil {
							want[n] = &Func{}
						}
						if j == len(l.funcs)-1 {
							want[n].Self.Wall += ns
						}
						if !seen[n] {
							want[n].Total.Wall += ns
						}
						seen[n] = true
					}
				}
			}
		}
		got := SortFuncs(slices.Clone(tb.Funcs), Wall, BySelf)
		if len(got) != len(want) {
			t.Fatalf("%d functions, want %d", len(got), len(want))
		}
		sum := int64(0)
		for _, f := range got {
			if w := want[f.Name]; f.Self.Wall != w.Self.Wall || f.Total.Wall != w.Total.Wall {
				t.Fatalf("window %v: %+v, want %+v", window, f, *w)
			}
			sum += f.Self.CPU
		}
		rows := int64(0)
		for _, r := range tb.Threads {
			rows += r.CPU
		}
		if sum != rows || sum > cpu {
			t.Fatalf("CPU: functions %d, threads %d, of %d", sum, rows, cpu)
		}
	}
}

// The sum of CPU time is complete if the window covers everything.
func TestCPUIsWhole(t *testing.T) {
	m := New(MaxWindow)
	r := thread(m, 1, "t")
	at, cpu := 5*ms, int64(0)
	for i := range 3000 {
		ran := int64(i%7) * int64(ms) / 3
		if i > 0 {
			cpu += ran
		}
		r.sample(at, stack.StateRunning, ran, 1, uint64(2+i%3))
		at += 7 * ms
	}
	r.flush()
	tb := m.Table(at+MaxWindowTime/10, fake{})
	if got := find(t, tb, "f1").Total.CPU; got != cpu {
		t.Errorf("%d, want %d", got, cpu)
	}
}

const MaxWindowTime = stack.Time(MaxWindow)

func TestInlinedAndErrors(t *testing.T) {
	m := New(time.Second)
	r := thread(m, 1, "t")
	for at := 0 * ms; at < 2000*ms; at += 10 * ms {
		r.sample(at+ms, stack.StateRunning, 0, 1, 0x1000)
	}
	e := thread(m, 2, "e")
	x := &stack.Sample{Time: ms, State: stack.StateRunning, CPU: -1, Reason: stack.ReasonNoRule,
		Stack: []stack.Frame{{PC: 5, Func: 5, CFA: 99, Exact: true}, {Kind: stack.KindError, PC: uint64(stack.ReasonNoRule)}}}
	for _, ev := range e.d.Step(x, nil) {
		e.t.Apply(ev)
	}
	tb := m.Table(2000*ms, fake{})
	inner, outer := find(t, tb, "inner"), find(t, tb, "f1000")
	if inner.Self.Wall == 0 || inner.Self != inner.Total || outer.Self != (Values{}) || outer.Total != inner.Total {
		t.Errorf("%+v, %+v", inner, outer)
	}
	if f := find(t, tb, "[no unwind rule]"); f.Self.Wall != 0 || f.Total.Wall != int64(tb.Span) || f.Module != "" {
		t.Errorf("%+v", f)
	}
	st, _ := m.Stack(0, fake{})
	if len(st.Frames) != 3 || !st.Frames[0].Inlined {
		t.Errorf("%+v", st.Frames)
	}
	m.gen = 9
	u := thread(m, 3, "u")
	u.sample(3000*ms, stack.StateRunning, 0, 0x77)
	if tb = m.Table(3001*ms, fake{}); tb.Threads[2].Top != "0x77" {
		t.Errorf("a place without a name: %+v", tb.Threads[2])
	}
}

// After an exec the same addresses belong to other functions.
func TestExec(t *testing.T) {
	m := New(time.Second)
	r, other := thread(m, 1, "t"), thread(m, 2, "o")
	for at := ms; at < 1000*ms; at += 10 * ms {
		r.sample(at, stack.StateRunning, 0, 1)
		other.sample(at, stack.StateRunning, 0, 1)
	}
	for _, x := range []*recorded{r, other} { // both report the one exec
		for _, e := range x.d.End(1000*ms, stack.WhyExec, nil) {
			x.t.Apply(e)
		}
	}
	for at := 1000 * ms; at < 1500*ms; at += 10 * ms {
		r.sample(at, stack.StateRunning, 0, 1)
	}
	if m.Program() != 1 {
		t.Errorf("program %d", m.Program())
	}
	tb := m.Table(1300*ms+stack.Time(settle), fake{})
	got := map[string]int64{}
	for _, f := range tb.Funcs {
		got[f.Name+f.Module] += f.Self.Wall
	}
	// The window is from 300 to 1300.
	if w := map[string]int64{"f1/lib/prog0.so": int64(1400 * ms), "f1/lib/prog1.so": int64(300 * ms)}; !reflect.DeepEqual(got, w) {
		t.Errorf("%v, want %v", got, w)
	}
}

// A thread that ends stays for a window; one that lost events is counted from its next
// whole stack on.
func TestEndAndLoss(t *testing.T) {
	m := New(time.Second)
	r, gone := thread(m, 1, "t"), thread(m, 2, "gone")
	var skipped []event.Event
	for at := ms; at < 6000*ms; at += 10 * ms {
		if at < 1000*ms {
			gone.sample(at, stack.StateBlocked, 0, 9)
		} else if gone.d.Depth() > 0 {
			gone.event(at, event.Lock, 0x10)
			for _, e := range gone.d.End(at, stack.WhyGone, nil) {
				gone.t.Apply(e)
			}
		}
		if at > 2000*ms && at < 2500*ms { // these events are overwritten
			skipped = r.d.Step(&stack.Sample{Time: at, State: stack.StateRunning, Call: stack.Call{Nr: -1},
				Stack: []stack.Frame{{Func: uint64(at), PC: 1, CFA: 8}}}, skipped)
			continue
		}
		if len(skipped) > 0 {
			r.t.Lost(uint64(len(skipped)))
			skipped = nil
			if tb := m.Table(at, fake{}); tb.Lost == 0 || tb.Threads[0].State != stack.StateUnknown || tb.Threads[0].Top != "" {
				t.Errorf("after a loss: %+v", tb)
			}
			r.sample(at, stack.StateRunning, 0, 1)
			if tb := m.Table(at, fake{}); tb.Threads[0].Top != "" {
				t.Error("half of a stack is taken for one")
			}
			for _, e := range r.d.Sync(nil) {
				r.t.Apply(e)
			}
		}
		r.sample(at, stack.StateRunning, 0, 1)
		if at == 1501*ms {
			tb := m.Table(at, fake{})
			if len(tb.Threads) != 2 || tb.Threads[1].State != stack.StateDead || tb.Threads[1].Waits != "" || tb.Threads[1].Doing() != "" ||
				!gone.t.Ended() || find(t, tb, "f9").Self.Wall == 0 {
				t.Errorf("a thread that has just ended: %+v", tb.Threads)
			}
		}
	}
	tb := m.Table(6000*ms, fake{})
	if len(tb.Threads) != 1 || len(tb.Funcs) != 1 || tb.Lost == 0 || tb.Threads[0].Wall != int64(time.Second) {
		t.Errorf("%+v", tb)
	}
	m.End()
	if tb = m.Table(m.Last(), fake{}); tb.Threads[0].State != stack.StateDead || len(tb.Funcs) != 1 {
		t.Errorf("the process ended: %+v", tb)
	}
	if tb = New(time.Second).Table(5*ms, fake{}); tb.Span != 0 || len(tb.Funcs) != 0 || tb.Threads != nil {
		t.Errorf("an empty model: %+v", tb)
	}
}

// Rare samples make the window end earlier instead of being empty.
func TestRareSamples(t *testing.T) {
	m := New(time.Second)
	r := thread(m, 1, "t")
	r.event(ms, event.Rate, uint64(500*ms))
	for at := ms; at < 5000*ms; at += 500 * ms {
		r.sample(at, stack.StateRunning, int64(250*ms), 1)
	}
	if tb := m.Table(4700*ms+stack.Time(settle), fake{}); tb.To != 3700*ms || abs(tb.Threads[0].CPU-int64(500*ms)) > int64(2*ms) {
		t.Errorf("to %v: %+v", tb.To, tb.Threads)
	}
}

func TestWaits(t *testing.T) {
	m := New(time.Second)
	r, h := thread(m, 1, "waiter"), thread(m, 22, "holder")
	h.sample(ms, stack.StateRunning, 0, 1)
	r.sample(ms, stack.StateBlocked, 0, 1)
	names := fake{map[int]trace.Wait{
		1: {Call: "futex", Kind: "lock", Symbol: "cache_lock"}, 2: {Call: "read", Kind: "file", File: "/tmp/x"},
		3: {Call: "poll", Kind: "poll", Args: "2 descriptors", Timeout: 5e9}, 4: {Call: "clock_nanosleep", Kind: "sleep", Args: "2ms", Timeout: 2e6},
		5: {Kind: "page fault"}, 6: {Call: "pause"},
		11: {Call: "futex", Kind: "lock", Lock: "GIL"}, 12: {Call: "futex", Kind: "lock", Lock: "condition variable", LockType: "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject"},
		13: {Call: "futex", Kind: "lock", Lock: "synchronizer", LockType: "java.util.concurrent.locks.ReentrantLock$NonfairSync"},
		14: {Call: "futex", Kind: "lock", Lock: "monitor", LockType: "app.Shop$Shelf"}, 15: {Call: "futex", Kind: "lock", Lock: "mutex", Symbol: "stdout_lock"},
	}}
	at := ms
	check := func(want string, holder stack.TID) {
		t.Helper()
		tb := m.Table(at+ms, names)
		if g := tb.Threads[0]; g.Waits != want || g.Holder != holder || g.Doing() != want {
			t.Errorf("%q of %d, want %q", g.Waits, g.Holder, want)
		}
		if st, _ := m.Stack(0, names); st.Waits != want {
			t.Errorf("the stack's: %q", st.Waits)
		}
		at += ms
	}
	check("call7", 0)
	r.event(at, event.Wait, 1)
	r.event(at, event.Lock, 0xabc)
	check("lock cache_lock", 0)
	r.event(at, event.Holder, event.HolderOf(22, event.KnownByWord))
	check("lock cache_lock, held by 22 holder", 22)
	r.event(at, event.Holder, event.HolderOf(23, event.KnownByInferred))
	check("lock cache_lock, held by 23 (inferred)", 23)
	r.event(at, event.Wait, 77) // no description yet
	check("lock at 0xabc, held by 23 (inferred)", 23)
	for i, want := range []string{"GIL", "condition variable at 0xabc", "ReentrantLock at 0xabc", "Shop$Shelf monitor at 0xabc", "mutex stdout_lock"} {
		r.event(at, event.Wait, uint64(11+i))
		check(want+", held by 23 (inferred)", 23)
	}
	r.event(at, event.Lock, 0)
	for i, want := range []string{"read /tmp/x", "poll(2 descriptors), timeout 5s", "clock_nanosleep(2ms)", "page fault", "pause"} {
		r.event(at, event.Wait, uint64(i+2))
		if i == 3 { // no call: none is named
			names.waits[5] = trace.Wait{Kind: "page fault"}
			r.t.call = -1
		}
		check(want, 0)
		r.t.call = 7
	}
	r.sample(at, stack.StateRunning, 0, 1)
	if tb := m.Table(at+ms, names); tb.Threads[0].Waits != "" || tb.Threads[0].Top != "f1" {
		t.Errorf("it runs: %+v", tb.Threads[0])
	}
}

// Many stacks: those in no bucket are dropped, and the table does not change.
func TestCompact(t *testing.T) {
	m := New(time.Second)
	r := thread(m, 1, "t")
	at, leaf := ms, uint64(0x10000)
	nodes := 0
	for len(m.tree.nodes) <= maxNodes/2 {
		nodes = len(m.tree.nodes)
		leaf += 16
		r.sample(at, stack.StateRunning, 0, 1, leaf, leaf+1, leaf+2)
		at += ms / 10
	}
	before := m.Table(at, fake{})
	if len(m.tree.nodes) > nodes/4 {
		t.Errorf("%d nodes are left of %d", len(m.tree.nodes), nodes)
	}
	after := m.Table(at, fake{})
	byName := func(tb *Table) []Func { return SortFuncs(tb.Funcs, Wall, ByFunc) }
	if !reflect.DeepEqual(byName(before), byName(after)) || before.Folded != 0 || len(before.Funcs) < 1000 {
		t.Errorf("%d functions became %d", len(before.Funcs), len(after.Funcs))
	}
	r.sample(at, stack.StateRunning, 0, 1, leaf, leaf+1, leaf+2) // continues the previous stack
	if st, _ := m.Stack(0, fake{}); len(st.Frames) != 7 || st.Frames[6].Func != "f1" {
		t.Errorf("%+v", st.Frames)
	}
	// More than fit, all at once: the excess is counted.
	for i := range uint64(maxNodes) {
		m.tree.on(m.tree.root(0), event.Word(i+1<<30))
	}
	r.sample(at+ms, stack.StateRunning, 0, 2)
	if m.folded == 0 {
		t.Error("frames that found no place are not counted")
	}
}

func FuzzApply(f *testing.F) {
	seed := func(es ...event.Event) {
		var b []byte
		for _, e := range es {
			b = binary.LittleEndian.AppendUint64(b, uint64(e.Time))
			b = binary.LittleEndian.AppendUint64(b, e.Value)
		}
		f.Add(b)
	}
	seed(event.Make(5, event.Sync, 1), event.Make(5, event.Enter, 3), event.Make(9e9, event.Seen, event.SeenOf(0, 3, 5e8)),
		event.Make(9e9, event.Move, 4), event.Make(9e9, event.Mark, uint64(stack.WhyExec)), event.Make(9e9, event.Move, 5))
	seed(event.Make(-1, event.Sync, 0), event.Make(-1<<62, event.Enter, 3), event.Make(1<<62, event.Exit, 0), event.Make(3, event.Gap, event.GapOf(stack.WhyLost, 1)))
	seed(event.Make(5, event.Sync, 1), event.Make(5, event.Enter, 3), event.Make(1<<63-1, event.State, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New(time.Second)
		th := m.Thread(stack.ThreadInfo{TID: 1})
		for ; len(b) >= 16; b = b[16:] {
			th.Apply(event.Event{Time: stack.Time(binary.LittleEndian.Uint64(b)), Value: binary.LittleEndian.Uint64(b[8:])})
		}
		for _, now := range []stack.Time{0, 1e9, m.Last(), 1 << 62} {
			tb := m.Table(now, fake{})
			var self, wall int64
			for _, f := range tb.Funcs {
				self += f.Self.Wall
			}
			for _, r := range tb.Threads {
				wall += r.Wall
			}
			if self != wall || wall < 0 || tb.Span < 0 || tb.Span > time.Second {
				t.Fatalf("self %d, threads %d, span %v", self, wall, tb.Span)
			}
		}
		m.compact(0)
		m.Stack(0, fake{})
	})
}
