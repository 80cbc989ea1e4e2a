package session

import (
	"math"
	"os/exec"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/lang/v8"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestClockWhole: copies by a clock of the kernel have no more gaps than samples of the same program by stops, and 1 of
// 200 in addition. The limit is 4.5 standard deviations above that: chance exceeds it in less than 1 of 100,000 runs.
func TestClockWhole(t *testing.T) {
	testprog.Whole(t, "TestClockDeep and TestPythonClock have complete copies")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	want := uint64(1000)
	if long() {
		want = 10_000
	}
	for _, c := range []struct {
		name    string
		threads string
		start   func(t *testing.T) *testprog.Proc
	}{
		{"c", "all", func(t *testing.T) *testprog.Proc {
			return testprog.StartChain(t, testprog.Build(t, "c/chain", "O2"), "--seconds", "300", "--unit", "200")
		}},
		{"java", "recursion,sorting,maps,copying,objects", func(t *testing.T) *testprog.Proc {
			p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, "java25"), "-Xmx128m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "Work"), "Work"))
			p.Line("busy")
			return p
		}},
		{"node", "all", func(t *testing.T) *testprog.Proc {
			return testprog.Start(t, testprog.Tool(t, nodes[0]), nodeTarget(t, "busy.js"), "recursion", "sorting", "json", "async")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			only, err := sampler.ParseSelection(c.threads)
			if err != nil {
				t.Fatal(err)
			}
			p := c.start(t)
			if c.name != "java" {
				p.Ready()
			}
			record := func(clock bool) stack.ThreadStats {
				rec := recordWhole(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2, Clock: clock, Selection: only}, func(s *Session) {
					if !clock && c.name == "node" {
						await(t, "V8", func() bool { return v8.Of(s.live.Space()) != nil }) // it is found while the first samples are taken
					}
					if !clock && c.name != "java" {
						p.Go()
					}
					for n := uint64(0); n < want; n += 250 { // each in a minute, however busy the machine is
						await(t, "samples", func() bool {
							x := s.Status().Total
							if clock {
								return x.Clocked > n+250
							}
							return x.Stopped() > n+250
						})
					}
				})
				total := rec.Stats.Total()
				t.Logf("clock %v: %d samples, %d by the clock and %d by stops, %d with gaps%s", clock, total.Samples, total.Clocked, total.Stopped(), total.Truncated, errorFrames(rec))
				return total
			}
			stops, clocks := record(false), record(true)
			n := float64(clocks.Clocked + clocks.Stopped())
			limit := n * (float64(stops.Truncated)/float64(stops.Stopped()) + .005)
			if got := float64(clocks.Truncated); got > limit+4.5*math.Sqrt(limit) {
				t.Errorf("%.0f of %.0f samples have gaps, with stops %d of %d", got, n, stops.Truncated, stops.Stopped())
			}
			if stops.Clocked > 0 || clocks.Stopped() > clocks.Clocked {
				t.Errorf("%d samples by clocks, and %d by stops; without clocks %d and %d", clocks.Clocked, clocks.Stopped(), stops.Clocked, stops.Stopped())
			}
		})
	}
}

// deepStacks counts samples in a recursion, and those with all of its frames.
type deepStacks struct {
	n           *trace.Names
	names       []string
	in          int // frames of the recursion
	seen, whole int
}

func (d *deepStacks) Begin(_ stack.Time, depth int, s *trace.Slice) {
	d.cut(depth)
	name := d.n.Func(&s.Frame).Name
	d.names = append(d.names, name)
	if name == "chain_deep" {
		d.in++
	}
}

func (d *deepStacks) cut(depth int) {
	for ; len(d.names) > depth; d.names = d.names[:len(d.names)-1] {
		if d.names[len(d.names)-1] == "chain_deep" {
			d.in--
		}
	}
}

func (d *deepStacks) End(_ stack.Time, depth int, _ *trace.Slice) { d.cut(depth) }

func (d *deepStacks) Other(e event.Event) {
	if e.Kind() != event.Seen || d.in == 0 {
		return
	}
	_, n, _ := event.SeenFields(e.Payload())
	d.seen += int(n)
	if d.in == deepFrames && d.names[0] != "chain_deep" {
		d.whole += int(n)
	}
}

const deepFrames = 2000

// TestClockDeep: a thread whose stack is deeper than what a clock copies is sampled as a whole all the same, if need be
// by stops.
func TestClockDeep(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	const want = 600
	p := testprog.StartChain(t, testprog.Build(t, "c/chain", "O2"), "--seconds", "300", "--deep", "2000") // a third of the time it runs in the innermost call
	p.Ready()
	p.Go()
	rec := recordWith(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2, Clock: true}, func(s stack.ThreadStats) bool { return s.Clocked+s.Stopped() > want })
	total := rec.Stats.Total()
	d := &deepStacks{n: trace.NewNames(rec)}
	for i := range rec.Threads {
		d.names, d.in = nil, 0
		rec.Replay(rec.Threads[i].Seq, d.n, d)
	}
	t.Logf("%d samples, %d by the clock and %d by stops, %d with gaps; %d in the recursion, %d with all of it%s", total.Samples, total.Clocked, total.Stopped(), total.Truncated, d.seen, d.whole, errorFrames(rec))
	// A busy machine may leave the thread without a CPU for some samples while it calls itself.
	if total.Clocked+total.Stopped() < want || total.Truncated*200 > total.Samples || d.seen < want/2 || d.whole*10 < d.seen*9 {
		t.Errorf("%d samples, %d by the clock and %d by stops, %d with gaps; %d in the recursion, %d with all of it%s", total.Samples, total.Clocked, total.Stopped(), total.Truncated, d.seen, d.whole, errorFrames(rec))
	}
}
