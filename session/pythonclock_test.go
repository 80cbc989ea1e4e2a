package session

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// pythonWays are the functions of shares.py, in the order of its account.
var pythonWays = [...]string{"loop", "calls", "keyed", "generators", "recursion", "encoding"}

// wayCount adds up the CPU time of samples on a CPU by pythonWays.
type wayCount struct {
	misplaced
	from    stack.Time
	ns      [len(pythonWays)]int64
	other   int64 // ns
	clocked int
}

func (c *wayCount) Other(e event.Event) {
	if e.Kind() != event.Seen || e.Time < c.from {
		return
	}
	way, _, cpu := event.SeenFields(e.Payload())
	if cpu == 0 {
		return
	}
	if way == stack.WayClock {
		c.clocked++
	}
	if i := slices.IndexFunc(pythonWays[:], func(w string) bool { return slices.Contains(c.names, w) }); i >= 0 {
		c.ns[i] += cpu
	} else {
		c.other += cpu
	}
}

func (c *wayCount) End(t stack.Time, depth int, s *trace.Slice) {
	c.misplaced.End(t, depth, s)
	c.names = c.names[:depth]
}

// TestPythonClock: copies by a clock of the kernel, which follows the interpreter's list of frames, have the program's own
// shares of CPU time, no gaps, and each frame on the function that runs it. The limit is 4.5 standard deviations above a
// bias of 1 point: chance exceeds it in less than 1 of 100,000 recordings.
func TestPythonClock(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	needAsides(t, true)
	want := uint64(1000)
	if long() {
		want = 10_000
	}
	for _, v := range pythons {
		t.Run(v.version, func(t *testing.T) {
			if testing.Short() && !v.always {
				t.Skip("the short form takes some versions only")
			}
			p := testprog.Start(t, testprog.Tool(t, v.version), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "shares.py"))
			p.Ready()
			p.Go()
			tid := strings.TrimPrefix(p.Line("go "), "go ")
			c := &wayCount{misplaced: misplaced{wrong: map[string]int{}}}
			var before stack.ThreadStats // the clock
			var began time.Time
			var switches int
			rec := recordWith(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2, Clock: true}, func(s stack.ThreadStats) bool {
				if s.Clocked > 0 && c.from == 0 {
					before, began, switches = s, time.Now(), preempted(t, p.PID, tid)
					p.Say("count")
					if _, err := fmt.Sscan(strings.TrimPrefix(p.Line("from "), "from "), &c.from); err != nil {
						t.Fatal(err)
					}
				}
				return s.Clocked > 2*want && s.CPUNS > int64(2*want)*int64(time.Millisecond)
			})
			switches = preempted(t, p.PID, tid) - switches
			often := float64(switches) > 500*time.Since(began).Seconds() // then it may be stopped instead
			p.Say("end")
			var truth [len(pythonWays)]int64
			if n, err := fmt.Sscan(strings.TrimPrefix(p.Line("shares "), "shares "), &truth[0], &truth[1], &truth[2], &truth[3], &truth[4], &truth[5]); err != nil {
				t.Fatal(n, err)
			}
			p.Finish()
			c.n = trace.NewNames(rec)
			for i := range rec.Threads {
				rec.Replay(rec.Threads[i].Seq, c.n, c)
			}
			all, sum := int64(0), c.other
			for i := range truth {
				all += truth[i]
				sum += c.ns[i]
			}
			total := rec.Stats.Total()
			samples, stopped := total.Samples-before.Samples, total.Stopped()-before.Stopped()
			t.Logf("%d samples, %d by the clock and %d by stops, %d with gaps%s", samples, total.Clocked, stopped, total.Truncated, errorFrames(rec))
			if uint64(c.clocked) < want || sum == 0 || all == 0 {
				t.Fatalf("%d copies on a CPU, want %d; %+v", c.clocked, want, total)
			}
			for i, name := range pythonWays {
				got, is := float64(c.ns[i])/float64(sum), float64(truth[i])/float64(all)
				t.Logf("%s: %.3f of the samples, %.3f by its own account", name, got, is)
				if limit := .01 + 4.5*math.Sqrt(is*(1-is)/float64(c.clocked)); math.Abs(got-is) > limit {
					t.Errorf("%s: %.3f of the samples, %.3f by its own account", name, got, is)
				}
			}
			gaps := float64(total.Samples) / 500
			if float64(total.Truncated) > gaps+4.5*math.Sqrt(gaps) || c.other > sum/20+int64(switches)*afterSwitch || len(c.wrong) > 0 || stopped*5 > samples && !often {
				t.Errorf("of %d samples %d have gaps and %d stopped a thread; %d of %d ns are elsewhere; frames on %v%s",
					total.Samples, total.Truncated, stopped, c.other, sum, c.wrong, errorFrames(rec))
			}
		})
	}
}

// afterSwitch is the CPU time, in ns, that a thread may take until its own clock and caches are as before after another one
// had the CPU. Programs that read their clock are switched while they do, and so count none of it.
const afterSwitch = 100_000

// preempted returns how often a CPU was taken from a thread.
func preempted(t *testing.T, pid int, tid string) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "nonvoluntary_ctxt_switches:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPythonClockDeep: a thread whose frames are more than the kernel copies, or many different ones, is sampled without
// gaps all the same, and functions that never return are one slice.
func TestPythonClockDeep(t *testing.T) {
	testprog.Whole(t, "TestPythonClock has the usual depths")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	needAsides(t, true)
	const want = 800
	for _, v := range pythons {
		for _, program := range []string{"busy.py", "tight.py"} {
			t.Run(v.version+"/"+program, func(t *testing.T) {
				if testing.Short() && !v.always {
					t.Skip("the short form takes some versions only")
				}
				args := []string{filepath.Join(testprog.Root(t), "testdata", "targets", "python", program)}
				if program == "busy.py" {
					args = append(args, "recursion", "generators", "matching")
				}
				p := testprog.Start(t, testprog.Tool(t, v.version), args...)
				p.Ready()
				p.Go()
				p.Line("busy")
				rec := recordWith(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2, Clock: true}, func(s stack.ThreadStats) bool {
					return s.Clocked+s.Stopped() > want && s.Clocked > want/4
				})
				total := rec.Stats.Total()
				n := trace.NewNames(rec)
				m, all := &misplaced{n: n, wrong: map[string]int{}}, map[string]int{}
				for i := range rec.Threads {
					rec.Replay(rec.Threads[i].Seq, n, m)
					x := &pieces{n: n, begun: all}
					rec.Replay(rec.Threads[i].Seq, n, x)
					x.step(-1)
					for _, s := range x.out {
						t.Error(s)
					}
				}
				t.Logf("%d samples, %d by the clock and %d by stops, %d with gaps%s", total.Samples, total.Clocked, total.Stopped(), total.Truncated, errorFrames(rec))
				if total.Truncated*200 > total.Samples || m.python < 500 || len(m.wrong) > 0 {
					t.Errorf("of %d samples %d have gaps; of %d frames some are on %v%s", total.Samples, total.Truncated, m.python, m.wrong, errorFrames(rec))
				}
			})
		}
	}
}
