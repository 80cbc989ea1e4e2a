package trigger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

const (
	ms       = stack.Time(time.Millisecond)
	interval = 20 * ms
	epoll    = 232
	futex    = 202
)

// world is a process with a simulated clock.
type world struct {
	t       *testing.T
	set     *Set
	now     stack.Time
	threads []*simThread
	usage   Usage
	written Written
	fired   []Fired
	at      []stack.Time // when they fired
}

type simThread struct {
	track  *Track
	differ diff.Differ
	events []event.Event
	cpu    int64
	runs   uint64
}

// Funcs implements Namer: function n is at n<<16.
func (w *world) Funcs(x event.Word, _ stack.Time) []string {
	if x.Addr()>>16 == 99 {
		return []string{"inlined", "f99"}
	}
	return []string{fmt.Sprintf("f%d", x.Addr()>>16)}
}

func newWorld(t *testing.T, threads int, rules ...string) *world {
	t.Helper()
	var rs []*Rule
	for _, r := range rules {
		kind, text, _ := strings.Cut(r, " ")
		x, err := Parse(Kind(kind), text)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, x)
	}
	w := &world{t: t, now: 1000 * ms}
	var err error
	if w.set, err = NewSet(rs, w, func(nr int32) bool { return nr == epoll }); err != nil {
		t.Fatal(err)
	}
	for i := range threads {
		name := "main"
		if i > 0 {
			name = fmt.Sprintf("worker-%d", i)
		}
		w.threads = append(w.threads, &simThread{track: w.set.Add(stack.TID(100+i), name, i == 0)})
	}
	return w
}

// fn is a function on the stack, called from a site in its caller.
type fn struct{ n, site int }

// queued is the nr of a sample of a thread that waits for a CPU.
const queued = -2

// sample observes thread i in the functions fs, outermost first. nr < 0: it runs.
func (w *world) sample(i int, nr int32, unrun bool, fs ...fn) {
	th := w.threads[i]
	x := &stack.Sample{Time: w.now, State: stack.StateRunning, Call: stack.Call{Nr: nr}, CPU: th.cpu}
	if nr >= 0 {
		x.State = stack.StateBlocked
	}
	if nr == queued {
		x.State, x.Call.Nr = stack.StateRunnable, -1
	}
	if !unrun {
		th.runs++
	} else {
		x.Way = stack.WayUnrun
	}
	x.Switches = th.runs
	for d, f := range fs {
		pc := uint64(f.n)<<16 + 8
		if d+1 < len(fs) {
			pc += uint64(fs[d+1].site) * 16
		}
		x.Stack = slices.Insert(x.Stack, 0, stack.Frame{Func: uint64(f.n) << 16, PC: pc, CFA: 0x7fff0000 - uint64(d)*0x100, Exact: d+1 == len(fs)})
	}
	th.events = th.differ.Step(x, th.events[:0])
	for _, e := range th.events {
		th.track.Feed(e)
	}
}

func (w *world) event(i int, k event.Kind, payload uint64) {
	th := w.threads[i]
	th.events = th.differ.Event(w.now, k, payload, th.events[:0])
	for _, e := range th.events {
		th.track.Feed(e)
	}
}

// tick advances by an interval, with a look at every fifth.
func (w *world) tick() {
	w.now += interval
	if w.now/interval%5 == 0 {
		w.check()
	}
}

func (w *world) check() {
	l := &Look{Now: w.now, Usage: func(Kind) (Usage, bool) { return w.usage, true }, Files: func(string) Written { return w.written },
		Tails: func(t *Track) (event.Event, bool) {
			for _, th := range w.threads {
				if th.track == t {
					return th.differ.Unsaid()
				}
			}
			return event.Event{}, false
		},
		Name: func(x event.Word, t stack.Time) string { return w.Funcs(x, t)[0] }}
	for _, th := range w.threads {
		l.Threads = append(l.Threads, th.track)
	}
	for _, f := range w.set.Check(l) {
		w.fired = append(w.fired, f)
		w.at = append(w.at, w.now)
	}
}

func (w *world) want(n int, says ...string) {
	w.t.Helper()
	if len(w.fired) != n {
		w.t.Fatalf("%d fired, want %d: %+v", len(w.fired), n, w.fired)
	}
	for _, s := range says {
		if !strings.Contains(w.fired[n-1].Text, s) {
			w.t.Errorf("%q does not say %q", w.fired[n-1].Text, s)
		}
	}
}

// The places of a server: main → loop → wait for events, or a handler.
var (
	polling = []fn{{1, 0}, {2, 1}, {3, 1}, {4, 1}}
	handleA = []fn{{1, 0}, {2, 1}, {5, 2}}
	deepA   = []fn{{1, 0}, {2, 1}, {5, 2}, {6, 1}}
	handleB = []fn{{1, 0}, {2, 1}, {7, 3}}
)

// serve simulates a busy server: duty is the share of samples outside of its poll, in one
// of two handlers that each take less than an interval.
func (w *world) serve(rnd *rand.Rand, until stack.Time, duty float64) {
	for w.now < until {
		switch x := rnd.Float64(); {
		case x > duty:
			w.sample(0, epoll, false, polling...)
		case x > duty/2:
			w.sample(0, -1, false, handleA...)
		case x > duty/4:
			w.sample(0, -1, false, deepA...)
		default:
			w.sample(0, -1, false, handleB...)
		}
		w.threads[0].cpu += int64(float64(interval) * duty)
		w.tick()
	}
}

// A healthy server fires nothing, however busy it is. A stall in one of its handlers is
// then detected in time, once.
func TestStallIsToldFromBusy(t *testing.T) {
	for _, duty := range []float64{.01, .3, .6, .9, .97} {
		for _, how := range []string{"spins", "sleeps"} {
			t.Run(fmt.Sprintf("%g/%s", duty, how), func(t *testing.T) {
				w := newWorld(t, 1, "stall 3s", "slow f5>2s", "stall f7>3s", "stall 3s,loop=f2")
				rnd := rand.New(rand.NewPCG(1, uint64(duty*100)))
				w.serve(rnd, 600_000*ms, duty)
				w.want(0)
				begin := w.now
				for w.now < begin+10_000*ms {
					if how == "sleeps" {
						w.sample(0, 230, w.now > begin, deepA...)
					} else {
						w.sample(0, -1, false, deepA...)
						w.threads[0].cpu += int64(interval)
					}
					w.tick()
				}
				w.want(3) // the call, and the loop in both ways
				late := 600 * ms
				if duty > .8 && how == "spins" {
					late = 5000 * ms // it takes longer to be certain
				}
				for i, f := range w.fired {
					if d := w.at[i] - begin; d > 3000*ms+late || d < 2000*ms || f.TID != 100 {
						t.Errorf("%s: after %v", f.Text, time.Duration(d))
					}
					if f.At > begin+2*interval || begin-f.At > 20*interval {
						t.Errorf("%s: since %v before its begin", f.Text, time.Duration(begin-f.At))
					}
				}
				w.want(3, "f5")
				w.serve(rnd, w.now+60_000*ms, duty)
				w.want(3)
			})
		}
	}
}

// A thread that never polls has no loop to leave. One that polls inside a handler is out
// of its loop if the loop is named.
func TestLoops(t *testing.T) {
	w := newWorld(t, 1, "stall 1s", "stall 1s,loop=f2,cool=0s")
	for range 1000 {
		w.sample(0, -1, false, fn{1, 0}, fn{8, 1})
		w.tick()
	}
	w.want(0)
	rnd := rand.New(rand.NewPCG(1, 1))
	w.serve(rnd, w.now+20_000*ms, .2)
	w.want(0)
	begin := w.now
	for i := range 100 {
		w.sample(0, epoll, i > 0, fn{1, 0}, fn{2, 1}, fn{5, 2}, fn{9, 1}, fn{4, 1})
		w.tick()
	}
	w.want(1, "f2", "f5")
	if d := w.at[0] - begin; d > 1500*ms {
		t.Errorf("after %v", time.Duration(d))
	}
	// An idle server polls for hours.
	for i := range 5000 {
		w.sample(0, epoll, i > 0, polling...)
		w.tick()
	}
	w.want(1)
	// It leaves its loop for good and computes something.
	for range 1000 {
		w.sample(0, -1, false, fn{1, 0}, fn{8, 5})
		w.tick()
	}
	w.want(1)
}

func TestSlowCallsEndTimes(t *testing.T) {
	w := newWorld(t, 2, "slow f5>200ms,times=3/1m,cool=10m")
	rnd := rand.New(rand.NewPCG(1, 1))
	slow := func() {
		for i := range 20 {
			w.sample(1, 230, i > 0, handleA...)
			w.tick()
		}
		for range 20 {
			w.sample(1, epoll, false, polling...)
			w.tick()
		}
	}
	slow()
	slow()
	w.want(0)
	w.serve(rnd, w.now+90_000*ms, .1) // that was too long ago
	slow()
	slow()
	w.want(0)
	slow()
	w.want(1, "worker-1", "f5")
	for range 10 {
		slow() // the cool-down
	}
	w.want(1)
}

func TestLocks(t *testing.T) {
	w := newWorld(t, 3, "blocked 2s", "deadlock 1s")
	for i := range 3 {
		w.sample(i, -1, false, handleA...)
	}
	w.tick()
	begin := w.now
	for i := range 2 {
		w.sample(i, futex, false, append(slices.Clone(handleA), fn{10, 1})...)
		w.event(i, event.Lock, uint64(0xa000+i))
		w.event(i, event.Holder, event.HolderOf(stack.TID(101-i), event.KnownByWord))
	}
	for w.now < begin+5000*ms {
		w.tick()
		for i := range 2 {
			w.sample(i, futex, true)
		}
		w.sample(2, -1, false, handleA...)
	}
	w.want(2, "held by")
	if w.fired[0].Kind != Deadlock || w.fired[0].TID != 100 || w.at[0] > begin+1200*ms || w.fired[1].Kind != Blocked || w.at[1] > begin+2200*ms {
		t.Errorf("%v %v", w.fired, w.at)
	}
	// Threads that no longer wait for each other are not a deadlock.
	w.event(0, event.Lock, 0)
	w.sample(0, -1, false, handleA...)
	for range 300 {
		w.sample(0, -1, false, handleB...)
		w.tick()
	}
	w.want(2)
}

func TestCPU(t *testing.T) {
	w := newWorld(t, 2, "cpu 90%,checks=3,threads=worker-*", "cpu 150%,of=process,checks=2,every=500ms")
	w.usage.CPU = 1
	run := func(seconds int, share float64) {
		for range seconds * 50 {
			for i := range w.threads {
				w.threads[i].cpu += int64(float64(interval) * share)
				w.sample(i, -1, false, handleA...)
			}
			w.usage.CPU += int64(2 * float64(interval) * share)
			w.tick()
		}
	}
	run(10, .7)
	w.want(0)
	run(2, .99)
	run(1, .1)
	w.want(1, "the process uses 198%")
	run(6, .99)
	w.want(2, "worker-1", "over 90%")
	run(30, .99) // it continues, which is not a new event
	w.want(2)
}

// A thread whose samples are rare and irregular is judged by its CPU time between them:
// one over the share fires, one with bursts below it does not.
func TestCPUOfRareSamples(t *testing.T) {
	for _, c := range []struct {
		share float64
		fires int
	}{{.5, 1}, {.2, 0}} {
		w := newWorld(t, 2, "cpu 30%,checks=3,every=400ms,threads=worker-*")
		r := rand.New(rand.NewPCG(1, 2))
		next := w.now
		for range 60 * 50 {
			w.threads[1].cpu += int64(float64(interval) * c.share)
			if w.now >= next {
				w.sample(1, -1, false, handleA...)
				next = w.now + stack.Time(40+r.IntN(1000))*ms
			}
			w.tick()
		}
		w.want(c.fires)
	}
}

func TestNearALimit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		limit float64 // MiB
		share []float64
		fires bool
	}{
		{1024, []float64{.81, .82, .83}, true},
		{1024, []float64{.79, .79, .79, .79}, false},
		{1024, []float64{.81, .79, .81, .81}, false},
		{1024, []float64{.98, .90, .84, .81}, false}, // it falls each time
		{1024, []float64{.95, .92, .89}, true},       // by less than the gap
		{512, []float64{.81, .81, .81}, true},
		{511, []float64{.81, .82, .83, .84}, false},
		{256, []float64{.86, .86, .86}, true},
		{200, []float64{.89, .89, .89, .89}, false},
		{128, []float64{.91, .91, .91}, true},
	} {
		w := newWorld(t, 1, "memory auto", "fds auto")
		w.usage.MemoryMax, w.usage.MemoryOf, w.usage.FDsMax, w.usage.FDs = c.limit*mib, "control group", 1024, -1
		for _, s := range c.share {
			w.usage.Memory = s * c.limit * mib
			for range 250 {
				w.tick()
			}
		}
		if got := len(w.fired) > 0; got != c.fires || len(w.fired) > 1 {
			t.Errorf("%+v: %v", c, w.fired)
		}
		if c.fires && (!strings.Contains(w.fired[0].Text, "control group") || w.fired[0].Kind != Memory) {
			t.Errorf("%+v", w.fired[0])
		}
	}
	w := newWorld(t, 1, "threads 50%,checks=2,every=1s")
	w.usage.Threads, w.usage.ThreadsMax, w.usage.ThreadsOf = 60, 100, "user"
	for range 200 {
		w.tick()
	}
	w.want(1, "threads: 60 of 100", "of the user's limit")
}

func TestCallsAndFiles(t *testing.T) {
	w := newWorld(t, 1, "call f9*,cool=0s", "call inlined,cool=1h", "file /tmp/x,cool=0s")
	rnd := rand.New(rand.NewPCG(1, 1))
	w.serve(rnd, w.now+1000*ms, .5)
	w.written = Written{time.Unix(1, 0), 5}
	w.serve(rnd, w.now+1000*ms, .5)
	w.want(1, "/tmp/x", "5 bytes")
	w.serve(rnd, w.now+1000*ms, .5)
	w.sample(0, -1, false, fn{1, 0}, fn{2, 1}, fn{99, 4})
	w.serve(rnd, w.now+1000*ms, .5)
	w.want(3, "calls inlined")
	w.written = Written{}
	w.serve(rnd, w.now+1000*ms, .5)
	w.want(3)
	w.written = Written{time.Unix(1, 1), 5}
	w.serve(rnd, w.now+1000*ms, .5)
	w.want(4)
}

func TestCrash(t *testing.T) {
	w := newWorld(t, 1, "crash yes")
	if f := w.set.Crashed(w.now, "killed by SIGSEGV"); len(f) != 1 || !strings.Contains(f[0].Text, "SIGSEGV") {
		t.Errorf("%v", f)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		text string
		want Rule
	}{
		{Stall, "5s", Rule{Limit: 5 * time.Second, Threads: "main", Checks: 3, Times: 1, CoolDown: time.Minute}},
		{Stall, "std::map<int, int>::find(int)>100ms, threads=all,cool=0s", Rule{Function: "std::map<int, int>::find(int)", Limit: 100 * time.Millisecond,
			Threads: "all", Checks: 3, Times: 1}},
		{Slow, "handle_request>50ms,times=3/1m,cool-down=5m", Rule{Function: "handle_request", Limit: 50 * time.Millisecond, Threads: "all", Checks: 3,
			Times: 3, Within: time.Minute, CoolDown: 5 * time.Minute}},
		{CPU, "250%,of=process,checks=5,every=2s", Rule{Share: 2.5, Process: true, Checks: 5, Every: 2 * time.Second, Threads: "all", Times: 1, CoolDown: time.Minute}},
		{Memory, "auto", Rule{Checks: 3, Every: 5 * time.Second, Threads: "all", Times: 1, CoolDown: time.Minute}},
	} {
		got, err := Parse(c.kind, c.text)
		if err != nil {
			t.Errorf("%s %s: %v", c.kind, c.text, err)
			continue
		}
		c.want.Kind, c.want.text = c.kind, got.text
		if *got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.kind, c.text, *got, c.want)
		}
	}
	for _, c := range []struct{ kind, text, says string }{
		{"stall", "", `invalid time ""`},
		{"stall", "5", `invalid time "5"`},
		{"stall", "1ms", "out of range"},
		{"stall", "5s,frob=1", "stall has no such option; it has threads, loop, times, cool"},
		{"stall", "5s,threads", `invalid option "threads"`},
		{"stall", "5s,times=3", "3/1m"},
		{"stall", "5s,cool=-1s", "invalid time"},
		{"slow", "f", "FUNCTION>TIME"},
		{"slow", ">5s", "FUNCTION>TIME"},
		{"cpu", "90", "write 90% for percent"},
		{"cpu", "x", `invalid percentage "x"`},
		{"cpu", "50%,of=cat", "none of thread, process"},
		{"cpu", "50%,checks=0", "1 to 1000"},
		{"cpu", "50%,every=1us", "out of range"},
		{"memory", "101%", "out of range"},
		{"memory", "auto,threads=main", "no such option"},
		{"call", "", "name of a function"},
		{"file", "", "path of a file"},
		{"frob", "1", "no such trigger"},
	} {
		if _, err := Parse(Kind(c.kind), c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v; want %q", c.kind, c.text, err, c.says)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		want, name string
		is         bool
	}{
		{"handle", "handle", true}, {"handle", "handle_request", false}, {"handle*", "handle_request", true},
		{"handle", "server::handle(int)", true}, {"handle", "main.handle", true}, {"handle", "main.(*T).handle", true},
		{"handle", "rehandle", false}, {"handle", "re_handle", false}, {"net/http.(*conn).serve", "net/http.(*conn).serve", true},
		{"net/*serve", "net/http.(*conn).serve", true}, {"a[b]*", "a[b]c", true}, {"handle", "", false},
	} {
		if got := Names(c.want, c.name); got != c.is {
			t.Errorf("Names(%q, %q) = %v", c.want, c.name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, k := range Kinds() {
		f.Add(string(k), "f>5s,times=3/1m")
		f.Add(string(k), "80%,checks=2")
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		r, err := Parse(Kind(kind), text)
		if err == nil && (r.Times < 1 || r.Checks < 1 || r.CoolDown < 0) {
			t.Errorf("%+v", r)
		}
	})
}

// Counted calls fire even if no sample found them, and only for the threads and rule that
// they belong to. Samples of such a function then add nothing, except for a call that
// began before counting did.
func TestHits(t *testing.T) {
	r, err := Parse(Call, "marker,cool=0s,threads=work*")
	if err != nil {
		t.Fatal(err)
	}
	other, err := Parse(Call, "other,cool=0s")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSet([]*Rule{r, other}, &world{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	counts := false
	l := &Look{Now: 1000, Counted: func(x *Rule, tid stack.TID) bool { return x == r && tid == 7 && counts }}
	tr := s.Add(7, "worker", false)
	l.Threads = []*Track{tr}
	if got := s.Check(l); len(got) != 0 {
		t.Errorf("fires without a call: %+v", got)
	}
	tr.calls = append(tr.calls, called{bit: 0, at: 850})
	if got := s.Check(l); len(got) != 1 || got[0].At != 850 {
		t.Errorf("a call from before the first count: %+v", got)
	}
	counts = true
	l.Hits = []Hit{{Rule: r, TID: 7, Since: 900}, {Rule: r, TID: 8, Since: 900}}
	got := s.Check(l)
	if len(got) != 1 || got[0].Rule != r || got[0].TID != 7 || got[0].At != 900 || got[0].Text != "thread 7 (worker) calls marker" {
		t.Errorf("%+v", got)
	}
	l.Hits = nil
	if tr.calls = append(tr.calls, called{bit: 0, at: 950}); len(s.Check(l)) != 0 {
		t.Error("a sample says again what was counted")
	}
}

// The Java heap: near its maximum as memory, and growth from one check to the next.
func TestJavaHeap(t *testing.T) {
	const mib = 1 << 20
	w := newWorld(t, 1, "java-heap 80%,3x,every=1s")
	w.usage.JavaHeapMax = 1024 * mib
	for _, share := range []float64{.5, .81, .82, .83} {
		w.usage.JavaHeap = share * 1024 * mib
		for range 50 {
			w.tick()
		}
	}
	w.want(1, "Java heap: ", "of 1024.0 MiB in use", "of the maximum")

	w = newWorld(t, 1, "java-growth 350MB,every=1s")
	w.usage.JavaHeapMax = 4096 * mib
	for _, used := range []float64{100, 400, 420, 800, 810, 300} {
		w.usage.JavaHeap = used * mib
		for range 50 {
			w.tick()
		}
	}
	w.want(1, "Java heap: grew by 380.0 MiB to 800.0 MiB")

	for text, want := range map[string]HeapFiles{"auto": {Dump: true}, "auto,heap=leaks": {Leaks: true}, "auto,heap=koom+dump": {Dump: true, KOOM: true}, "auto,heap=none": {}} {
		if r, err := Parse(JavaHeap, text); err != nil || r.Heap != want || r.Heap.Any() != (want != HeapFiles{}) {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	for kind, texts := range map[Kind][]string{JavaHeap: {"80", "auto,x", "auto,0x", "120%"}, JavaGrowth: {"350", "0MB", "-5MB", "xMB", "350MB,3x", "350MB,heap=", "350MB,heap=dump+json"}, Memory: {"auto,heap=dump"}} {
		for _, text := range texts {
			if r, err := Parse(kind, text); err == nil {
				t.Errorf("%s %q is taken: %+v", kind, text, r)
			}
		}
	}
}
