package session

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// shareWays are the functions of go/shares, in the order of its account.
var shareWays = [...]string{"main.spin", "main.churn", "main.clocks", "main.calls"}

// shareCount adds up the CPU time of a thread's samples by shareWays.
type shareCount struct {
	n       *trace.Names
	id      uint64 // goroutine
	from    stack.Time
	names   []string
	now     stack.Task
	ns      [len(shareWays)]int64
	other   int64 // ns
	clocked int   // copies of a clock that were made on a CPU
	system  [len(shareWays)]int
	wrong   int // copies with another goroutine
	unknown int // with none
	cut     int
	taken   int // in the scheduler, without the goroutine
}

func (c *shareCount) Begin(_ stack.Time, depth int, s *trace.Slice) {
	name := c.n.Func(&s.Frame).Name
	if s.Loc.Word.Kind() == stack.KindError {
		name = "error"
	}
	c.names = append(c.names[:depth], name)
}

func (c *shareCount) End(_ stack.Time, depth int, _ *trace.Slice) { c.names = c.names[:depth] }

func (c *shareCount) Other(e event.Event) {
	switch e.Kind() {
	case event.Task:
		c.now = event.TaskFields(e.Payload())
	case event.Seen:
		way, _, cpu := event.SeenFields(e.Payload())
		if way != stack.WayClock || cpu == 0 || e.Time < c.from {
			return
		}
		c.clocked++
		switch c.now.ID {
		case c.id:
		case 0:
			c.unknown++
		default:
			c.wrong++
		}
		if slices.Contains(c.names, "runtime.goschedImpl") {
			// The scheduler has taken the goroutine off the thread, which is locked to it, to let others run on the CPUs: its
			// stack is then not copied. How often that happens depends on what else the machine does.
			c.taken++
			return
		}
		found, system := -1, false
		for _, name := range c.names {
			for i, x := range shareWays {
				if name == x {
					found = i
				}
			}
			system = system || strings.HasPrefix(name, "runtime.systemstack")
			if name == "error" {
				c.cut++
			}
		}
		if found < 0 {
			c.other += cpu
			return
		}
		c.ns[found] += cpu
		if system {
			c.system[found]++
		}
	}
}

// needAsides skips a test where the kernel copies no memory beside stacks.
func needAsides(t *testing.T, lists bool) {
	t.Helper()
	asides, err := kernel.OpenAsides(lists)
	if err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	asides.Close()
}

// TestGoClock: what the report makes of a clock's copies has the program's own shares of CPU time, also where the runtime
// works on the system stack, and the copies have the program's goroutine. Copies alone lack the time before each switch,
// which is mostly of one function. The limit is 4.5 standard deviations above a bias of 1 point: chance exceeds it in less
// than 1 of 100,000 recordings.
func TestGoClock(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	needAsides(t, false)
	const want = 1000
	for _, variant := range []string{"default", "pie-stripped", "external"} {
		t.Run(variant, func(t *testing.T) {
			if testing.Short() && variant != "default" {
				t.Skip("the short form takes one variant")
			}
			p := testprog.Start(t, testprog.Build(t, "go/shares", variant))
			p.Ready()
			p.Go()
			thread := strings.TrimPrefix(p.Line("go "), "go ")
			only, err := sampler.ParseSelection(thread)
			if err != nil {
				t.Fatal(err)
			}
			c, switches := &shareCount{}, 0
			// Clocks need some samples first, and a young heap is collected more often.
			rec := recordWith(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2, Clock: true, Selection: only}, func(s stack.ThreadStats) bool {
				if s.Clocked > 0 && c.from == 0 {
					switches = preempted(t, p.PID, thread)
					p.Say("count")
					if _, err := fmt.Sscan(strings.TrimPrefix(p.Line("from "), "from "), &c.from); err != nil {
						t.Fatal(err)
					}
				}
				return s.Clocked > 2*want && s.CPUNS > 2*want*int64(time.Millisecond) // copies also show the thread while it waits for a CPU
			})
			switches = preempted(t, p.PID, thread) - switches
			p.Say("end")
			var tid stack.TID
			var truth [len(shareWays)]int64
			c.n = trace.NewNames(rec)
			if n, err := fmt.Sscan(strings.TrimPrefix(p.Line("shares "), "shares "), &tid, &c.id, &truth[0], &truth[1], &truth[2], &truth[3]); err != nil {
				t.Fatal(n, err)
			}
			p.Finish()
			reported, own := map[string]int64{}, int64(0) // CPU time in ns, with calls
			for i := range rec.Threads {
				if seq := rec.Threads[i].Seq; rec.Threads[i].TID == tid {
					rec.Replay(seq, c.n, c)
					for _, f := range report.Of(rec, view.Options{From: c.from, Threads: []int{seq}}, 1000).OnCPU {
						reported[f.Name] += f.Total
						own += f.Self
					}
				}
			}
			all, sum := int64(0), c.other
			for i := range truth {
				all += truth[i]
				sum += c.ns[i]
			}
			if c.clocked < want || sum == 0 || all == 0 || own == 0 {
				t.Fatalf("%d copies on a CPU, want %d; %+v", c.clocked, want, rec.Stats.Total())
			}
			for i, name := range shareWays {
				got, is := float64(reported[name])/float64(own), float64(truth[i])/float64(all)
				t.Logf("%s: %.3f of the CPU time, %.3f by its own account; %d copies on the system stack", name, got, is, c.system[i])
				if limit := .01 + 4.5*math.Sqrt(is*(1-is)/float64(c.clocked)); math.Abs(got-is) > limit {
					t.Errorf("%s: %.3f of the CPU time, %.3f by its own account", name, got, is)
				}
			}
			total := rec.Stats.Total()
			t.Logf("%d copies, %d with an incomplete stack, %d with an unknown goroutine, %d with a wrong one, %d without one that was taken off; %d of all samples stopped the thread", c.clocked, c.cut, c.unknown, c.wrong, c.taken, total.Stops)
			if c.wrong > 0 || c.unknown*50 > c.clocked || c.cut*50 > c.clocked || c.other > sum/50+int64(switches)*afterSwitch {
				t.Errorf("of %d copies %d have a wrong goroutine, %d none, %d an incomplete stack; %d of %d ns elsewhere%s", c.clocked, c.wrong, c.unknown, c.cut, c.other, sum, errorFrames(rec))
			}
			if c.system[1] == 0 {
				t.Errorf("no copy of %s on the system stack", shareWays[1])
			}
		})
	}
}
