package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// tracing is 'sliver trace' of a program, begun before the program makes a call.
type tracing struct {
	t    *testing.T
	p    *testprog.Proc
	proc *testprog.Proc // sliver
}

// traceProgram starts both. It skips the test on a machine without breakpoints.
func traceProgram(t *testing.T, program string, args []string, trace ...string) *tracing {
	t.Helper()
	testprog.Need(t, "gcc", "g++", "ptrace")
	p := testprog.Start(t, testprog.Build(t, program, "O2"), args...)
	p.Ready()
	cmd := slivercmd(t, t.TempDir(), append([]string{"trace", "-p", pidOf(p)}, trace...)...)
	cmd.SysProcAttr = nil
	if out, err := exec.Command(cmd.Path, append([]string{"trace", "-p", pidOf(p), "-d", "1ms", "-q"}, trace...)...).CombinedOutput(); err != nil &&
		(strings.Contains(string(out), "breakpoint registers") || strings.Contains(string(out), "not allowed")) {
		testprog.Missing(t, "perf", string(out))
	}
	s := testprog.StartCmd(t, cmd)
	return &tracing{t, p, s}
}

// ready waits until sliver traces. Before that it says so on standard error.
func (x *tracing) ready() {
	x.t.Helper()
	for !strings.Contains(strings.Join(x.proc.Errors(), "\n"), "tracing ") {
		select {
		case <-x.proc.Exited():
			x.t.Fatalf("sliver ended: %v", x.proc.Errors())
		default:
		}
	}
}

// end interrupts sliver and returns what it printed.
func (x *tracing) end() []string {
	x.t.Helper()
	if err := syscall.Kill(x.proc.PID, syscall.SIGINT); err != nil {
		x.t.Fatal(err)
	}
	if st := x.proc.Wait(); !st.Success() {
		x.t.Fatalf("sliver trace: %v: %v", st, x.proc.Errors())
	}
	return x.proc.Output()
}

func (x *tracing) truth() (all, returned, left uint64) {
	x.t.Helper()
	x.p.Go()
	if _, err := fmt.Sscanf(x.p.Line("truth "), "truth %d %d %d", &all, &returned, &left); err != nil {
		x.t.Fatal(err)
	}
	return all, returned, left
}

func TestTraceCountsEveryCall(t *testing.T) {
	for _, c := range []struct {
		program string
		args    []string
		pattern string
	}{
		{"c/traced", []string{"return", "2000"}, "probed"},
		{"c/traced", []string{"deep", "150"}, "traced.c:deep"},
		{"c/traced", []string{"threads", "2000"}, "prob?d"},
		{"cpp/throwing", []string{"2000"}, "shop::order::total"},
	} {
		x := traceProgram(t, c.program, c.args, "-f", c.pattern, "--trace-engine", "cpu", "--trace-limit", "0")
		x.ready()
		all, returned, left := x.truth()
		lines := x.end()
		if cost := lines[len(lines)-1]; strings.HasPrefix(cost, "tracing cost the program about ") {
			lines = lines[:len(lines)-1]
		} else {
			t.Errorf("%s: no cost of tracing: %q", c.pattern, cost)
		}
		last := strings.Fields(lines[len(lines)-1])
		var calls, gone uint64
		if len(last) != 8 {
			t.Fatalf("%s: %q", c.pattern, lines[max(0, len(lines)-4):])
		}
		fmt.Sscan(last[0], &calls)
		fmt.Sscan(last[6], &gone)
		open := 0
		for _, l := range lines {
			if strings.HasSuffix(l, "(open)") {
				open++
			}
		}
		if calls != all || gone+uint64(open) != left {
			t.Errorf("%s: %d calls, %d left, %d open; the program counted %d, %d returned, %d left", c.pattern, calls, gone, open, all, returned, left)
		}
		if n := strings.Count(strings.Join(lines, "\n"), last[7]+"\n"); n < int(returned) {
			t.Errorf("%s: %d lines of calls that returned, want %d", c.pattern, n, returned)
		}
	}
}

func TestTraceAsJSONSlower(t *testing.T) {
	x := traceProgram(t, "c/traced", []string{"edges", "100"}, "-f", "timed", "--json", "--slower", "290us", "--trace-engine", "cpu")
	x.ready()
	if all, _, _ := x.truth(); all != 100 {
		t.Fatalf("%d calls", all)
	}
	lines := x.end()
	var sum traceSummary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[:len(lines)-1] {
		var c callLine
		if err := json.Unmarshal([]byte(l), &c); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if c.Function != "timed" || c.Duration < 290_000 || c.TID != int32(x.p.PID) || c.Thread == "" {
			t.Fatalf("%+v", c)
		}
	}
	f := sum.Functions[0]
	if x := sum.Tracing; x == nil || x.Engine != "cpu" || x.Hits != 200 || x.EnterNS <= 0 || x.ExitNS <= 0 || x.CostNS != 100*(x.EnterNS+x.ExitNS) || f.Cost != x.CostNS || x.Share <= 0 {
		t.Errorf("the cost of tracing is %+v, of the function %d ns", x, f.Cost)
	}
	if sum.Engine != "cpu" || f.Function != "timed" || f.Calls != 100 || f.P50 < 200_000 || f.P99 < f.P90 || f.P90 < f.P50 || f.Max < f.P99 || f.Total < f.Max {
		t.Errorf("%+v", sum)
	}
}

func TestTraceStopsWhereItIsTooHot(t *testing.T) {
	testprog.Whole(t, "TestTraceCountsEveryCall traces within the limit")
	x := traceProgram(t, "c/traced", []string{"hot", "1"}, "-f", "probed", "-d", "2s", "--trace-limit", "500", "--trace-engine", "cpu")
	if st := x.proc.Wait(); !st.Success() {
		t.Fatalf("%v: %v", st, x.proc.Errors())
	}
	out := strings.Join(x.proc.Output(), "\n")
	hot := lineOf(out, "probed was called too often to trace: ")
	if !strings.Contains(hot, " times a second, which cost ") || !strings.Contains(hot, "(limit 500 entries and exits a second, --trace-limit)") || !strings.Contains(hot, "only samples show it from then on") {
		t.Errorf("%.2000s", out)
	}
}

func TestTraceLists(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/traced", "O2"), "return", "1")
	p.Ready()
	r := sliver(t, t.TempDir(), "trace", "-p", pidOf(p), "-f", "traced.c:*", "--list")
	for _, want := range []string{"probed  ", "traced.c:", "2 places", "now  inlined into "} {
		if r.status != 0 || !strings.Contains(r.out, want) {
			t.Errorf("no %q: %+v", want, r)
		}
	}
	if strings.Contains(r.out, "malloc") {
		t.Errorf("functions of other files: %s", r.out)
	}
	r = sliver(t, t.TempDir(), "trace", "-p", pidOf(p), "-f", "probed", "--list", "--json")
	var l listed
	if err := json.Unmarshal([]byte(r.out), &l); err != nil || l.Name != "probed" || l.Places != 2 || l.Addr == "" || !strings.HasSuffix(l.File, "traced.c") {
		t.Errorf("%v: %+v", err, l)
	}
	for args, want := range map[string]string{
		"-f now":                         "was inlined into",
		"-f no_such_function":            "no function of process",
		"-f choosing --trace-engine cpu": "4 breakpoints",
		"-f /(/":                         "error parsing regexp",
		"-f x --trace-engine y":          "invalid engine",
		"-f x --trace-limit -1":          "out of range",
		"-f x -d -1s":                    "negative",
		"":                               "give a function",
	} {
		r := sliver(t, t.TempDir(), append([]string{"trace", "-p", pidOf(p)}, strings.Fields(args)...)...)
		if r.status == 0 || !strings.Contains(r.errors, want) || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
}

// TestTraceManaged: a function that an interpreter runs cannot be traced. A line says so, and it is sampled.
func TestTraceManaged(t *testing.T) {
	testprog.Whole(t, "a runtime of each kind for one line")
	for _, c := range []struct {
		runtime, tool, program string
		args                   []string
		runs, function         string
	}{
		{"Python", "python3.11", "python/gil.py", nil, "fighting", "deep"},
		{"JavaScript", "node", "node/busy.js", []string{"recursion"}, "busy", "fib"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			testprog.Need(t, c.tool, "ptrace")
			p := testprog.Start(t, testprog.Tool(t, c.tool), append([]string{filepath.Join(testprog.Root(t), "testdata", "targets", c.program)}, c.args...)...)
			if c.args != nil {
				p.Ready()
				p.Go()
			}
			p.Line(c.runs)
			dir := t.TempDir()
			why := "functions in " + c.runtime + " are sampled and cannot be traced"
			r := sliver(t, dir, "record", "-q", "-p", pidOf(p), "--trace", c.function, "-d", "1s", "-o", "x.sliver")
			if r.status != 0 || !strings.Contains(r.errors, why+"; this recording has samples alone\n") || strings.Count(r.errors, "\n") != 1 {
				t.Errorf("%+v", r)
			}
			if r := sliver(t, dir, "report", "x.sliver"); r.status != 0 || !strings.Contains(r.out, filepath.Base(c.program)) {
				t.Errorf("%+v", r)
			}
			for _, args := range [][]string{
				{"record", "-p", pidOf(p), "--trace", c.function, "--trace-engine", "kernel", "-d", "1s"}, {"trace", "-p", pidOf(p), "-f", c.function},
			} {
				if r := sliver(t, dir, args...); r.status != 1 || !strings.Contains(r.errors, why) || strings.Count(r.errors, "\n") != 1 {
					t.Errorf("%q: %+v", args, r)
				}
			}
		})
	}
}

// edge is a call by the program's own clock.
type edge struct{ enter, leave int64 }

// recordEdges records 300 calls of which the program keeps the times, with engine cpu and more arguments, into
// run.sliver in dir. It returns these times and the output of sliver.
func recordEdges(t *testing.T, dir string, args ...string) (truth []edge, out string) {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/traced", "O2"), "edges", "300")
	p.Ready()
	cmd := slivercmd(t, dir, append([]string{"record", "-p", pidOf(p), "--trace", "timed", "--trace-engine", "cpu", "-o", "run.sliver"}, args...)...)
	cmd.SysProcAttr = nil
	s := testprog.StartCmd(t, cmd)
	// It traces before it samples.
	for waiting := true; waiting; {
		select {
		case <-s.Exited():
			out := strings.Join(s.Errors(), "\n")
			if strings.Contains(out, "breakpoint registers") || strings.Contains(out, "not allowed") {
				testprog.Missing(t, "perf", out)
			}
			t.Fatal(out)
		default:
			waiting = !traces(s.PID) || !wroteSamples(t, dir)
		}
	}
	p.Go()
	p.Done()
	for _, line := range p.Output() {
		var x edge
		if n, _ := fmt.Sscanf(line, "call %d %d", &x.enter, &x.leave); n == 2 {
			truth = append(truth, x)
		}
	}
	if err := syscall.Kill(s.PID, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if st := s.Wait(); !st.Success() {
		t.Fatalf("%v: %v", st, s.Errors())
	}
	return truth, strings.Join(append(s.Errors(), s.Output()...), "\n")
}

// TestExactSlices: a traced function's slices are its calls, with the times of the program's own log, each once; and
// what it calls is inside of them.
func TestExactSlices(t *testing.T) {
	dir := t.TempDir()
	truth, out := recordEdges(t, dir, "-i", "1ms", "--json", "-q")
	var sum summaryJSON
	if err := json.Unmarshal([]byte(out), &sum); err != nil || sum.Tracing == nil {
		t.Fatalf("%v: %s", err, out)
	}
	cost := sum.Tracing
	if cost.Engine != "cpu" || cost.Hits < 400 || cost.EnterNS <= 0 || cost.ExitNS <= 0 || cost.CostNS < int64(cost.Hits)*min(cost.EnterNS, cost.ExitNS) || cost.Share <= 0 {
		t.Errorf("%+v", *cost)
	}
	r := sliver(t, dir, "sql", "--format", "json", "run.sliver", `select s.ts at, s.dur, s.exact, p.name parent, (select count(*) from slices c where c.parent = s.id) inside
		from slices s join functions f on f.id = s.function left join slices o on o.id = s.parent left join functions p on p.id = o.function,
			(select min(ts) a, max(ts) b from samples), (select max(s.ts + s.dur) e from slices s join functions f on f.id = s.function where f.name = 'run')
			where f.name = 'timed' and s.ts > a and s.ts + s.dur < min(b, e) order by s.ts`) // later calls than the last sample of run have no caller
	var slices []struct {
		At, Dur       int64
		Inside        int
		Exact, Parent string
	}
	if err := json.Unmarshal([]byte(r.out), &slices); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	f, err := os.Open(filepath.Join(dir, "run.sliver"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(f, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	begin := int64(rec.Begin())
	if len(slices) > len(truth) {
		t.Fatalf("%d slices of %d calls: %+v", len(slices), len(truth), slices)
	}
	var before, after calls.Histogram
	inside, last := 0, -1
	for i, x := range slices {
		enter, leave := begin+x.At, begin+x.At+x.Dur
		at := sort.Search(len(truth), func(k int) bool { return truth[k].leave >= enter })
		if at == len(truth) || i > 0 && at <= last {
			t.Fatalf("slice %d of %d: %+v: the program was in no call, or in that of the slice before", i, len(slices), x)
		}
		c := truth[at] // some may be before the first sample
		last = at
		if enter > c.enter || leave < c.leave || x.Exact != "returned" || x.Parent != "run" {
			t.Fatalf("slice %d of %d: %+v, from %d to %d; the program was in it from %d to %d", i, len(slices), x, enter, leave, c.enter, c.leave)
		}
		before.Add(c.enter - enter)
		after.Add(leave - c.leave)
		inside += x.Inside
	}
	seen := fmt.Sprintf("%d slices of %d calls, %d slices in them; median %d ns before the program's reading (p90 %d), and %d ns after it (p90 %d); %+v", len(slices), len(truth), inside,
		before.Percentile(.5), before.Percentile(.9), after.Percentile(.5), after.Percentile(.9), *cost)
	t.Log(seen)
	// Half of the edges are off by at most the cost of the probe and 5 µs; a busy machine interrupts some.
	const slack = 5_000
	if len(slices) < 200 || inside < len(slices)/20 || before.Percentile(.5) > cost.EnterNS+slack || after.Percentile(.5) > cost.ExitNS+slack {
		t.Error(seen)
	}
}

// TestRecordTrace compares the calls in a recording, and the reports of them, with the program's
// own account.
func TestRecordTrace(t *testing.T) {
	dir := t.TempDir()
	truth, out := recordEdges(t, dir, "--slower", "290us")
	var slow int
	for _, x := range truth {
		if x.leave-x.enter >= 290_000 {
			slow++
		}
	}
	if !strings.Contains(out, "timed: 300 calls, p50 ") || !strings.Contains(lineOf(out, "tracing cost the program about "), " of a CPU: 600 entries and exits, ") {
		t.Errorf("the summary: %s", out)
	}
	r := sliver(t, dir, "sql", "--format", "csv", "run.sliver", "select count(*), min(dur) >= 290000, sum(how = 'returned'), count(distinct caller), max(caller) from calls")
	_, row, _ := strings.Cut(strings.ReplaceAll(r.out, "\r", ""), "\n")
	var recorded, long, returned, callers int
	var caller string
	if _, err := fmt.Sscanf(strings.ReplaceAll(row, ",", " "), "%d %d %d %d %s", &recorded, &long, &returned, &callers, &caller); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	// A call is a little longer than what the program measures inside of it.
	if recorded < slow || recorded > 300 || long != 1 || returned != recorded || callers != 1 || caller != "run" {
		t.Errorf("%s, the program made %d slow calls", row, slow)
	}
	r = sliver(t, dir, "report", "--json", "run.sliver")
	var rep struct {
		Traced []struct {
			Name  string
			Calls uint64
			All   uint64 `json:"all_calls"`
			P50   int64  `json:"p50_ns"`
		}
	}
	if err := json.Unmarshal([]byte(r.out), &rep); err != nil || len(rep.Traced) != 1 || rep.Traced[0].All != 300 || rep.Traced[0].Calls != uint64(recorded) || rep.Traced[0].P50 < 290_000 {
		t.Errorf("%v: %+v", err, rep)
	}
}

// traces reports whether a process has breakpoints set, by its descriptors.
func traces(pid int) bool {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	n := 0
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == "anon_inode:[perf_event]" {
			n++
		}
	}
	// A buffer for each CPU, and two places on each.
	return n >= 3*runtime.NumCPU()
}
