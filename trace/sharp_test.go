package trace_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const us, ms = 1_000, exporttest.Ms

// timeline describes the slices of a thread with its traced calls, one a line by begin: depth, name, from and to in
// µs, and for traced calls how they ended.
type timeline struct {
	t     testing.TB
	names *trace.Names
	open  []int
	lines []string
	begin []stack.Time
	last  stack.Time
}

func (x *timeline) us(t stack.Time) string { return fmt.Sprint(int64(t-exporttest.Start) / us) }

func (x *timeline) at(t stack.Time, depth, want int) {
	if t < x.last || depth != want {
		x.t.Errorf("at %s, after %s: depth %d, not %d", x.us(t), x.us(x.last), depth, want)
	}
	x.last = t
}

func (x *timeline) Begin(t stack.Time, depth int, s *trace.Slice) {
	x.at(t, depth, len(x.open))
	x.open = append(x.open, len(x.lines))
	x.lines = append(x.lines, fmt.Sprintf("%d %s %s..", depth, x.names.Func(&s.Frame).Name, x.us(t)))
	x.begin = append(x.begin, t)
}

func (x *timeline) End(t stack.Time, depth int, s *trace.Slice) {
	x.at(t, depth, len(x.open)-1)
	l := &x.lines[x.open[depth]]
	x.open = x.open[:depth]
	*l += x.us(t)
	if e := s.Exact; e != nil {
		*l += " " + e.How.String()
		for flag, is := range map[string]bool{" before": e.Before, " orphan": e.Orphan, " unsure": e.Unsure} {
			if is {
				*l += flag
			}
		}
	}
}

func (x *timeline) Other(event.Event) {}

// sharp replays a thread with its traced calls.
func sharp(t testing.TB, rec *trace.Recording, i int) (lines []string, placed []uint64) {
	names := trace.NewNames(rec)
	x := &timeline{t: t, names: names}
	s := trace.NewSharp(rec, i, trace.NewSlices(names, x))
	for e := range rec.Fitted(rec.Threads[i].Seq) {
		s.Apply(e)
	}
	s.Close()
	if len(x.open) > 0 {
		t.Errorf("%d slices are open", len(x.open))
	}
	return x.lines, s.Placed()
}

// look is a sample of the only thread of a sharpCase.
type look struct {
	at    int64 // ms
	stack string
}

// sharpCase is a thread's samples and calls, and the slices that follow from both.
type sharpCase struct {
	name   string
	looks  []look
	calls  func(*exporttest.Builder)
	want   string
	placed uint64 // bits of the calls that are slices
}

// check makes a recording of 40 ms of c, compares its slices, and returns it.
func (c *sharpCase) check(t *testing.T) *trace.Recording {
	t.Helper()
	b := exporttest.New(t)
	th := b.Thread(1, "main")
	for _, l := range c.looks {
		th.Look(exporttest.Look{At: l.at * ms, State: stack.StateRunning, Stack: l.stack})
	}
	c.calls(b)
	rec := b.Finish(40 * ms)
	lines, placed := sharp(t, rec, 0)
	if got := strings.Join(lines, "|"); got != c.want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.ReplaceAll(c.want, "|", "\n"))
	}
	if len(placed) != 1 || placed[0] != c.placed {
		t.Errorf("placed %b, want %b", placed, c.placed)
	}
	return rec
}

// TestSharp: traced calls give sampled frames their exact edges, and calls between samples are slices of their own.
func TestSharp(t *testing.T) {
	type b = exporttest.Builder
	for _, c := range []sharpCase{
		{
			name:   "the edges of a frame, its caller's begin and its callee's end follow",
			looks:  []look{{0, "main"}, {10, "main serve handle work"}, {20, "main serve handle work"}, {30, "main"}},
			calls:  func(b *b) { b.Exact(1, "handle", "serve", 3*ms, 24*ms, calls.Returned) },
			want:   "0 main 0..30000|1 serve 3000..30000|2 handle 3000..24000 returned|3 work 10000..24000",
			placed: 1,
		},
		{
			name:  "a short call between two samples is on top of its caller",
			looks: []look{{0, "main serve"}, {10, "main serve"}},
			calls: func(b *b) { b.Exact(1, "handle", "serve", 3*ms, 3*ms+us, calls.Returned) },
			want:  "0 main 0..10000|1 serve 0..10000|2 handle 3000..3001 returned", placed: 1,
		},
		{
			name:  "and the sampled callee of its caller is not there then",
			looks: []look{{0, "main work libread"}, {10, "main work libread"}},
			calls: func(b *b) { b.Exact(1, "handle", "main", 3*ms, 4*ms, calls.Returned) },
			want:  "0 main 0..10000|1 work 0..3000|2 libread 0..3000|1 handle 3000..4000 returned|1 work 4000..10000|2 libread 4000..10000", placed: 1,
		},
		{
			name:  "calls in turn at one place are one sampled frame",
			looks: []look{{0, "main handle work"}, {10, "main handle work"}, {20, "main handle work"}},
			calls: func(b *b) {
				b.Exact(1, "handle", "main", -2*ms, 4*ms, calls.Returned)
				b.Exact(1, "handle", "main", 6*ms, 14*ms, calls.Returned)
				b.Exact(1, "handle", "main", 16*ms, 25*ms, calls.Returned)
			},
			want: "0 main 0..20000|1 handle 0..4000 returned|2 work 0..4000|1 handle 6000..14000 returned|2 work 6000..14000|1 handle 16000..20000 returned|2 work 16000..20000", placed: 7,
		},
		{
			name:  "a call after the last sample of a frame has not what the sample saw",
			looks: []look{{0, "main handle work"}, {10, "main idle"}},
			calls: func(b *b) {
				b.Exact(1, "handle", "main", -2*ms, 4*ms, calls.Returned)
				b.Exact(1, "handle", "main", 6*ms, 7*ms, calls.Returned)
			},
			want: "0 main 0..10000|1 handle 0..4000 returned|2 work 0..4000|1 handle 6000..7000 returned|1 idle 10000..10000", placed: 3,
		},
		{
			name:  "recursion",
			looks: []look{{0, "main"}, {10, "main handle handle work"}, {20, "main handle"}, {30, "main"}},
			calls: func(b *b) {
				b.Exact(1, "handle", "handle", 4*ms, 12*ms, calls.Returned)
				b.Exact(1, "handle", "handle", 23*ms, 24*ms, calls.Returned)
				b.Exact(1, "handle", "main", 2*ms, 28*ms, calls.Returned)
			},
			want: "0 main 0..30000|1 handle 2000..28000 returned|2 handle 4000..12000 returned|3 work 10000..12000|2 handle 23000..24000 returned", placed: 7,
		},
		{
			name:  "the caller is new in the next sample",
			looks: []look{{0, "main read"}, {10, "main serve work"}},
			calls: func(b *b) {
				b.Exact(1, "libparse", "serve", 6*ms, 7*ms, calls.Returned)
				b.Exact(1, "libparse", "serve", 8*ms, 9*ms, calls.Returned)
			},
			want: "0 main 0..10000|1 read 0..6000|1 serve 6000..10000|2 libparse 6000..7000 returned|2 libparse 8000..9000 returned|2 work 10000..10000", placed: 3,
		},
		{
			name:  "no frame is the caller's: what both samples have",
			looks: []look{{0, "main read"}, {10, "main work"}},
			calls: func(b *b) { b.Exact(1, "libparse", "other", 6*ms, 7*ms, calls.Returned) },
			want:  "0 main 0..10000|1 read 0..6000|1 libparse 6000..7000 returned orphan|1 read 7000..10000|1 work 10000..10000", placed: 1,
		},
		{
			name:  "calls in calls between two samples",
			looks: []look{{0, "main"}, {10, "main"}},
			calls: func(b *b) {
				b.Exact(1, "libinner", "handle", 4*ms, 5*ms, calls.Jumped)
				b.Exact(1, "libfar", "unknown", 5*ms, 6*ms, calls.Returned)
				b.Exact(1, "handle", "main", 3*ms, 7*ms, calls.Returned)
			},
			want: "0 main 0..10000|1 handle 3000..7000 returned|2 libinner 4000..5000 tail call|2 libfar 5000..6000 returned orphan", placed: 7,
		},
		{
			name:  "a call that began before goes on as the sampled frame",
			looks: []look{{0, "main handle"}, {10, "main handle"}, {20, "main"}},
			calls: func(b *b) { b.Exact(1, "handle", "main", 5*ms, 15*ms, calls.Returned).Before = true },
			want:  "0 main 0..20000|1 handle 0..15000 returned before", placed: 1,
		},
		{
			name:  "a frame goes on where tracing ended",
			looks: []look{{0, "main"}, {10, "main handle"}, {20, "main handle"}, {30, "main"}},
			calls: func(b *b) { b.Exact(1, "handle", "main", 5*ms, 15*ms, calls.Open) },
			want:  "0 main 0..30000|1 handle 5000..30000 open", placed: 1,
		},
		{
			name:  "a call left without return is over when a sample does not show it",
			looks: []look{{0, "main"}, {10, "main handle"}, {20, "main"}, {30, "main"}},
			calls: func(b *b) { b.Exact(1, "handle", "main", 5*ms, 29*ms, calls.Left) },
			want:  "0 main 0..30000|1 handle 5000..20000 left", placed: 1,
		},
		{
			name:  "frames without a call stay as they were sampled",
			looks: []look{{0, "main"}, {10, "main handle work"}, {20, "main handle work"}, {30, "main"}},
			calls: func(b *b) { b.Exact(1, "handle", "main", 24*ms, 25*ms, calls.Returned).Unsure = true },
			want:  "0 main 0..30000|1 handle 10000..24000|2 work 10000..24000|1 handle 24000..25000 returned unsure", placed: 1,
		},
		{
			name:  "a thread that waits for a CPU in the trap at the end of a call is not in it",
			looks: []look{{0, "main"}, {10, "main handle work"}, {20, "main handle"}, {30, "main handle"}, {40, "main"}},
			calls: func(b *b) {
				b.Exact(1, "handle", "main", 5*ms, 15*ms, calls.Returned)
				b.Exact(1, "handle", "main", 35*ms, 36*ms, calls.Returned)
			},
			want: "0 main 0..40000|1 handle 5000..15000 returned|2 work 10000..15000|1 handle 35000..36000 returned", placed: 3,
		},
		{
			name:  "calls of tasks and of another thread are not placed",
			looks: []look{{0, "main"}, {10, "main"}},
			calls: func(b *b) {
				b.Exact(1, "handle", "main", 3*ms, 4*ms, calls.Returned).Task = 7
				b.Exact(2, "handle", "main", 5*ms, 6*ms, calls.Returned)
				b.Exact(1, "handle", "main", 7*ms, 8*ms, calls.Returned)
			},
			want: "0 main 0..10000|1 handle 7000..8000 returned", placed: 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t) })
	}
}

// TestSharpLosses: calls that cross gaps, and calls from times in which the stack is not known.
func TestSharpLosses(t *testing.T) {
	b := exporttest.New(t)
	look := func(th *exporttest.Thread, at int64, stacks string) {
		th.Look(exporttest.Look{At: at * ms, State: stack.StateRunning, Stack: stacks})
	}
	th, other := b.Thread(1, "main"), b.Thread(2, "worker")
	look(th, 0, "main handle")
	th.Gap(8*ms, stack.WhyLate, 5*ms)
	look(th, 10, "main handle")
	th.Lose(15 * ms)
	look(th, 30, "main handle")
	th.Sync()
	look(th, 40, "main handle")
	th.End(45*ms, stack.WhyGone)
	look(other, 0, "start")
	look(other, 10, "start handle")
	look(other, 20, "start")
	b.Exact(1, "libparse", "main", 17*ms, 18*ms, calls.Returned) // the stack is not known
	b.Exact(1, "handle", "main", -1*ms, 50*ms, calls.Open)
	b.Exact(1, "libparse", "main", 46*ms, 47*ms, calls.Returned) // nor is it here
	b.Exact(2, "handle", "start", 9*ms, 12*ms, calls.Returned)
	rec := b.Finish(60 * ms)
	for i, want := range []string{
		"0 main 0..15000|1 handle 0..15000 open|0 main 30000..45000|1 handle 30000..45000 open",
		"0 start 0..20000|1 handle 9000..12000 returned",
	} {
		lines, placed := sharp(t, rec, i)
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("thread %d:\n%s\nwant\n%s", i, got, want)
		}
		if want := []uint64{2, 1}[i]; len(placed) != 1 || placed[0] != want {
			t.Errorf("thread %d: placed %b, want %b", i, placed, want)
		}
	}
}

// program makes random calls on one thread.
type program struct {
	rnd   *rand.Rand
	now   int64
	stack []activation
	done  []activation
	at    []int64 // of samples
	want  [][]string
}

type activation struct {
	name, caller string
	line         int // of its present place
	enter, exit  int64
}

func (p *program) frames() (out []string) {
	for i := range p.stack {
		out = append(out, fmt.Sprintf("%s:%d", p.stack[i].name, p.stack[i].line))
	}
	return out
}

// step makes a call, or ends one, at an odd number of ns.
func (p *program) step() {
	p.now += 2*p.rnd.Int64N(1+p.rnd.Int64N(2*ms)) + 2
	n := len(p.stack)
	if n > 1 && (n > 7 || p.rnd.IntN(2) == 0) {
		p.end()
		return
	}
	top := &p.stack[n-1]
	top.line = 1 + p.rnd.IntN(3)
	p.stack = append(p.stack, activation{name: fmt.Sprint("f", p.rnd.IntN(4)), caller: fmt.Sprintf("%s:%d", top.name, top.line), line: 1, enter: p.now})
}

func (p *program) end() {
	n := len(p.stack) - 1
	a := p.stack[n]
	a.exit, p.stack = p.now, p.stack[:n]
	p.done = append(p.done, a)
}

// randomProgram records 40 samples of a program at random times, and its calls of traced functions.
func randomProgram(t *testing.T, seed uint64, traced map[string]bool) (*trace.Recording, *program) {
	t.Helper()
	b := exporttest.New(t)
	th := b.Thread(1, "main")
	p := &program{rnd: rand.New(rand.NewPCG(seed, 1)), now: -ms + 1, stack: []activation{{name: "main", line: 1}}}
	before := p.frames() // the last step
	for sample := int64(0); len(p.at) < 40; sample += 2 * (1 + p.rnd.Int64N(3*ms)) {
		for p.now < sample {
			before = p.frames()
			p.step()
		}
		th.LookAt(exporttest.Look{At: sample, State: stack.StateRunning}, before...)
		p.at, p.want = append(p.at, sample), append(p.want, before)
	}
	for len(p.stack) > 1 {
		p.now += 2
		p.end()
	}
	for _, a := range p.done {
		if traced[a.name] {
			b.Exact(1, a.name, a.caller, a.enter, a.exit, calls.Returned)
		}
	}
	return b.Finish(p.at[len(p.at)-1] + ms), p
}

// TestSharpRandom replays random programs, of which two functions are traced, from samples at random times. At the
// time of a sample the timeline shows what the sample did, and all time between the first sample and the last is in a
// slice of a traced function exactly while a call of it is open.
func TestSharpRandom(t *testing.T) {
	traced := map[string]bool{"f0": true, "f1": true}
	for seed := range uint64(300) {
		rec, p := randomProgram(t, seed, traced)
		at, want := p.at, p.want
		end := at[len(at)-1]
		open := map[[2]int64]bool{}
		for _, a := range p.done {
			if traced[a.name] {
				open[[2]int64{a.enter, a.exit}] = a.exit > at[0] && a.enter < end
			}
		}
		names := trace.NewNames(rec)
		x := &spans{timeline: timeline{t: t, names: names}, at: at, exact: map[[2]int64]int64{}}
		s := trace.NewSharp(rec, 0, trace.NewSlices(names, x))
		for e := range rec.Fitted(rec.Threads[0].Seq) {
			s.Apply(e)
		}
		s.Close()
		for i := range x.got {
			var names []string
			for _, w := range want[i] {
				name, _, _ := strings.Cut(w, ":")
				names = append(names, name)
			}
			if got := strings.Join(x.got[i], " "); got != strings.Join(names, " ") {
				t.Errorf("seed %d, sample %d at %d: %s, want %v", seed, i, at[i], got, names)
			}
		}
		for edge, is := range open {
			from, to := max(edge[0], at[0]), min(edge[1], end)
			if got := x.exact[edge]; is && got != to-from {
				t.Errorf("seed %d: call %v is %d ns of slices, not %d", seed, edge, got, to-from)
			}
		}
		if x.sampled > 0 || len(x.got) < len(at)-1 {
			t.Errorf("seed %d: %d ns of traced functions are sampled; %d of %d samples", seed, x.sampled, len(x.got), len(at))
		}
		if t.Failed() {
			t.Fatalf("%d calls", len(open))
		}
	}
}

// spans notes the stacks at given times, and the time of traced calls by their edges, all in ns.
type spans struct {
	timeline
	at      []int64
	got     [][]string
	stack   []string
	begins  []int64
	exact   map[[2]int64]int64
	sampled int64
}

func (x *spans) to(t stack.Time) {
	for len(x.got) < len(x.at) && x.at[len(x.got)] < int64(t-exporttest.Start) {
		x.got = append(x.got, append([]string(nil), x.stack...))
	}
}

func (x *spans) Begin(t stack.Time, depth int, s *trace.Slice) {
	x.to(t)
	x.timeline.Begin(t, depth, s)
	x.stack = append(x.stack, x.names.Func(&s.Frame).Name)
	x.begins = append(x.begins, int64(t-exporttest.Start))
}

func (x *spans) End(t stack.Time, depth int, s *trace.Slice) {
	x.to(t)
	x.timeline.End(t, depth, s)
	ns := int64(t-exporttest.Start) - x.begins[depth]
	if e := s.Exact; e != nil {
		x.exact[[2]int64{int64(e.Enter - exporttest.Start), int64(e.Exit - exporttest.Start)}] += ns
	} else if n := x.stack[depth]; n == "f0" || n == "f1" {
		x.sampled += ns
	}
	x.stack, x.begins = x.stack[:depth], x.begins[:depth]
}
