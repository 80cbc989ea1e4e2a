package session

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/lang/v8"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// nodes are the versions of Node that are recorded; the first is the system's.
var nodes = []string{"node", "node18", "node22", "node24"}

func nodeTarget(t *testing.T, program string) string {
	return filepath.Join(testprog.Root(t), "testdata", "targets", "node", program)
}

// TestNodeFresh: functions that replace each other in memory, which V8 collects and
// moves all the time, must have their own names, files and lines, at the times at which
// they ran.
func TestNodeFresh(t *testing.T) {
	testprog.Need(t, "ptrace")
	for i, v := range nodes {
		t.Run(v, func(t *testing.T) {
			seconds := "3"
			if long() {
				seconds = map[bool]string{true: "600", false: "60"}[i == 0] // one version for ten minutes without a break
			}
			if !long() && i > 0 {
				t.Skip("the short form takes the system's version only")
			}
			out := filepath.Join(t.TempDir(), "ran")
			p := testprog.Start(t, testprog.Tool(t, v), nodeTarget(t, "fresh.js"), seconds, "2", out)
			p.Ready()
			rec := recordWhole(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2}, func(s *Session) {
				await(t, "V8", func() bool { return v8.Of(s.live.Space()) != nil }) // it is found while the first samples are taken
				p.Go()
				p.Done()
			})
			p.Finish()
			l := &freshLog{n: trace.NewNames(rec), ran: ranOf(t, out)}
			for i := range rec.Threads {
				l.at, l.open = 0, nil
				rec.Replay(rec.Threads[i].Seq, l.n, l)
			}
			for _, w := range l.wrong {
				t.Error(w)
			}
			total := rec.Stats.Total()
			// How much two threads do in three seconds, and how much of it is sampled,
			// depends on the machine's load: a small amount is enough for the check.
			if few := map[bool]int{false: 30, true: 1000}[long()]; l.samples < few || len(l.ran) < 3*few {
				t.Errorf("%d slices of %d functions", l.samples, len(l.ran))
			}
			if total.Truncated*1000 > 3*total.Stops+1000 {
				t.Errorf("%d of %d samples have gaps%s", total.Truncated, total.Stops, errorFrames(rec))
			}
			t.Logf("%d slices of %d functions; %d samples, %d stops, %d with gaps (%d error frames)", l.samples, len(l.ran), total.Samples, total.Stops, total.Truncated, l.lost)
		})
	}
}

// made counts frames of JavaScript, and frames of V8's generated code without a name.
type made struct {
	n       *trace.Names
	js, bad int
	under   map[string]int
}

func (m *made) Begin(_ stack.Time, depth int, s *trace.Slice) {
	name := m.n.Func(&s.Frame).Name
	switch {
	case s.Loc.Word.Kind() == stack.KindJS:
		m.js++
	case strings.Contains(name, "[anon]"):
		m.bad++
		m.under[name]++
	}
}

func (m *made) End(stack.Time, int, *trace.Slice) {}
func (m *made) Other(event.Event)                 {}

// TestNodeBusy: of threads that run JavaScript and V8's own code in turns, 997 of 1,000
// samples must have no gap (999 in the long form). Of 100 frames of JavaScript at most
// two may have no name (code dropped between the stop and the read), and no sample may
// take more than one stop.
func TestNodeBusy(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	busy := func(t *testing.T, node string, ways ...string) *testprog.Proc {
		return testprog.Start(t, testprog.Tool(t, node), append([]string{nodeTarget(t, "busy.js")}, ways...)...)
	}
	loads := []struct {
		name  string
		short bool // part of the short form
		start func(t *testing.T, node string) *testprog.Proc
	}{
		{"all", true, func(t *testing.T, node string) *testprog.Proc {
			return busy(t, node, "json", "zlib", "recursion", "async", "regexp", "sorting", "making")
		}},
		{"bundler", true, func(t *testing.T, node string) *testprog.Proc {
			return testprog.Start(t, testprog.Tool(t, node), nodeTarget(t, "bundle.js"), filepath.Dir(testprog.Tool(t, "ncc")))
		}},
		{"json", false, func(t *testing.T, node string) *testprog.Proc { return busy(t, node, "json") }},
		{"zlib", false, func(t *testing.T, node string) *testprog.Proc { return busy(t, node, "zlib") }},
	}
	want := uint64(1500)
	if long() {
		want = 20000
	}
	for i, v := range nodes {
		for _, load := range loads {
			t.Run(v+"/"+load.name, func(t *testing.T) {
				if !long() && (i > 0 || !load.short) {
					t.Skip("the short form takes the system's version and two loads only")
				}
				nodeBusy(t, load.start(t, v), want)
			})
		}
	}
}

func nodeBusy(t *testing.T, p *testprog.Proc, want uint64) {
	p.Ready()
	rec := recordWhole(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2}, func(s *Session) {
		await(t, "V8", func() bool { return v8.Of(s.live.Space()) != nil }) // it is found while the first samples are taken
		p.Go()
		p.Line("busy")
		for n := uint64(0); n < want; n += 500 { // each in a minute, however busy the machine is
			await(t, "samples", func() bool { return s.Status().Total.Stopped() > min(n+500, want) })
		}
	})
	total := rec.Stats.Total()
	m := &made{n: trace.NewNames(rec), under: map[string]int{}}
	for i := range rec.Threads {
		rec.Replay(rec.Threads[i].Seq, m.n, m)
	}
	most := uint64(8) // of 1,000: about 2 are usual (the deoptimizer at work, new scripts), and 13 of 1,500 come by chance once in a million runs
	if long() {
		most = 1
	}
	if total.Truncated*1000 > most*total.Stopped()+1000 {
		t.Errorf("%d of %d samples have gaps%s", total.Truncated, total.Stopped(), errorFrames(rec))
	}
	if m.js < 50 || m.bad*50 > m.js+50 { // JSON alone is one call most of the time, and the longer the busier the machine is
		t.Errorf("%d slices of JavaScript, %d of code without a name: %v", m.js, m.bad, m.under)
	}
	per := float64(total.Stops) / float64(total.Stopped())
	t.Logf("%d samples, %d by a stop, %.3f stops each; %d with gaps; %d slices of JavaScript, %d of code without a name; pauses %v mean, walks %v",
		total.Samples, total.Stopped(), per, total.Truncated, m.js, m.bad, time.Duration(total.PauseNS/int64(total.Stops)), time.Duration(total.WalkNS/int64(total.Samples-total.Unrun)))
	if per > 1.1 {
		t.Errorf("%.3f stops a sample", per)
	}
	checkReads(t, total, 1.1)
}

// If V8 has no metadata for its layout, its compiled code must have the names from
// --perf-basic-prof, also while it compiles the same functions again, and a message
// must give the reason for the missing names.
func TestNodeNames(t *testing.T) {
	testprog.Need(t, "ptrace")
	b, err := os.ReadFile(testprog.Tool(t, "node"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mute := filepath.Join(dir, "node")
	if err := os.WriteFile(mute, bytes.ReplaceAll(b, []byte("\x00v8dbg_"), []byte("\x00x8dbg_")), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(mute, "--perf-basic-prof", "--no-turbo-inlining", "-e", `
		function innermost(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
		function outermost() { let s = 0; for (let i = 0; i < 1000; i++) s += innermost(20000); return s; }
		console.log("ready");
		process.stdin.once("data", () => {
			const used = () => process.cpuUsage().user / 1e3, end = used() + 800;
			while (used() < end) outermost();
			process.exit(0);
		});`)
	cmd.Dir = dir // it writes a log there
	prog := testprog.StartCmd(t, cmd)
	t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", prog.PID)) })
	prog.Line("ready")
	var problems []string
	rec := recordWhole(t, prog.PID, Options{Interval: 2 * time.Millisecond, Groups: 2}, func(s *Session) {
		prog.Go()
		prog.Wait()
		problems = s.runtimes.Problems()
	})
	if len(problems) != 1 || !strings.Contains(problems[0], "V8 ") {
		t.Errorf("problems: %q", problems)
	}
	had := map[string]stack.Time{}
	for _, c := range callsOf(rec, "JS:") {
		for _, name := range []string{"innermost", "outermost"} {
			if strings.Contains(c.name, name) {
				had[name] += c.to - c.from
			}
		}
	}
	if ms := stack.Time(time.Millisecond); had["innermost"] < 300*ms || had["outermost"] < 100*ms {
		all := map[string]stack.Time{}
		for _, c := range callsOf(rec, "") {
			all[c.name] += c.to - c.from
		}
		fi, err := os.Stat(fmt.Sprintf("/tmp/perf-%d.map", prog.PID))
		size := 0
		for _, c := range rec.Captured {
			if c.What == "perf-map" {
				size += len(c.Data)
			}
		}
		t.Errorf("%v of %v; %d bytes of a perf map are kept of %+v, %v", had, all, size, fi, err)
	}
}
