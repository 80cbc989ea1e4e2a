package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// loggedCall is a call of a method by the program's log: ns of CLOCK_MONOTONIC, of its caller and of the method itself.
type loggedCall struct{ before, first, last, after int64 }

// logged are the methods of the Java program that logs its calls, and passes, whose calls JFR does not record.
var logged = []string{"shortly", "computes", "sleeps", "fails", "catches", "deep"}

// recordLogged records the calls of the Java program's methods into run.sliver, and returns its log by thread and method.
func recordLogged(t *testing.T, dir string) (truth map[[2]string][]loggedCall, summary string) {
	t.Helper()
	testprog.Need(t, "ptrace")
	java := testprog.Tool(t, "java25")
	if out, err := exec.Command(java, "--list-modules").Output(); err != nil || !strings.Contains(string(out), "jdk.jfr@") {
		testprog.Lack(t, "java25", "it has no module jdk.jfr")
	}
	p := testprog.Start(t, java, "-Xmx64m", "-cp", testprog.JavaClasses(t, "Logged"), "shop.Logged", "20")
	p.Line("ready")
	args := []string{"record", "-p", pidOf(p), "-i", "2ms", "-o", "run.sliver"}
	for _, m := range append(slices.Clone(logged), "passes") {
		args = append(args, "--trace", "shop.Logged$Log::"+m)
	}
	s := testprog.StartCmd(t, slivercmd(t, dir, args...))
	waitFor(t, func() bool { // until samples are written: tracing begins before that
		select {
		case <-s.Exited():
			t.Fatalf("sliver ended: %q", s.Errors())
		default:
		}
		return wroteSamples(t, dir)
	})
	p.Go()
	p.Line("done")
	if err := syscall.Kill(s.PID, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if st := s.Wait(); !st.Success() {
		t.Fatalf("%v: %q", st, s.Errors())
	}
	truth = map[[2]string][]loggedCall{}
	for _, line := range p.Output() {
		var thread, method string
		var c loggedCall
		if n, _ := fmt.Sscanf(line, "call %s %s %d %d %d %d", &thread, &method, &c.before, &c.first, &c.last, &c.after); n == 6 {
			truth[[2]string{thread, method}] = append(truth[[2]string{thread, method}], c)
		}
	}
	if left, _ := filepath.Glob(fmt.Sprintf("/tmp/.sliver-%d-*", s.PID)); len(left) > 0 {
		t.Errorf("left in /tmp: %q", left)
	}
	return truth, strings.Join(s.Errors(), "\n")
}

// wroteSamples reports whether a recording in a folder has samples.
func wroteSamples(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(name string) bool {
		b, err := os.ReadFile(name)
		return err == nil && bytes.Contains(b, []byte("EVNT"))
	})
}

// TestRecordJavaMethods: the recorded calls of Java methods are those of the program's log, with its times as far as JFR's
// clock shows them, and durations without that error; the slices of each method are its calls, each once as far as samples agree; and no format
// counts them twice.
func TestRecordJavaMethods(t *testing.T) {
	testprog.Whole(t, "TestTraceJavaMethods has the same calls")
	dir := t.TempDir()
	truth, summary := recordLogged(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, "run.sliver"))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	if x := rec.Traced; x == nil || x.Engine != "jfr" || x.ClockError > 3e6 || x.LostBytes != 0 || x.Missing != 0 {
		t.Fatalf("%+v", x)
	}
	t.Logf("JFR's clock is off by %d ns", rec.Traced.ClockError)

	got := map[[2]string][]calls.Call{}
	placed := 0 // calls of threads
	for c, err := range rec.Calls() {
		if err != nil {
			t.Fatal(err)
		}
		thread := "virtual"
		if c.TID != 0 {
			placed++
			thread = rec.Threads[rec.ThreadOf(c.TID, c.Exit)].Name
		}
		key := [2]string{thread, strings.TrimPrefix(rec.Traced.Functions[c.Fn].Name, "shop.Logged$Log.")}
		got[key] = append(got[key], c)
	}
	const slack = 20_000 // of the nearest two readings of JFR's clock, in ns
	off := rec.Traced.ClockError + slack
	for key, want := range truth {
		have := got[key]
		slices.SortFunc(have, func(a, b calls.Call) int { return cmp.Compare(a.Enter, b.Enter) })
		slices.SortFunc(want, func(a, b loggedCall) int { return cmp.Compare(a.before, b.before) })
		if len(have) != len(want) {
			t.Errorf("%v: %d calls, the program made %d", key, len(have), len(want))
			continue
		}
		for i, c := range have {
			w := want[i]
			if enter, exit := int64(c.Enter), int64(c.Exit); enter < w.before-off || enter > w.first+off || exit < w.last-off || exit > w.after+off {
				t.Errorf("%v: call %d from %d to %d, by the log %+v", key, i, enter, exit, w)
			}
			if d := c.Duration(); d < w.last-w.first-1000 || d > w.after-w.before+1000 {
				t.Errorf("%v: call %d took %d ns, by the log %+v", key, i, d, w)
			}
		}
	}
	if len(got) != len(truth) || len(truth) != 3*len(logged) {
		t.Errorf("calls of %d threads and methods, the program logged %d", len(got), len(truth))
	}
	if !strings.Contains(summary, "no call seen of shop.Logged$Log::passes: ") || !strings.Contains(summary, "calls are by JFR's clock") {
		t.Errorf("summary: %s", summary)
	}

	// SQL: calls, and slices.
	sql := func(query string) (rows []map[string]any) {
		t.Helper()
		r := sliver(t, dir, "sql", "--format", "json", "run.sliver", query)
		if err := json.Unmarshal([]byte(r.out), &rows); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		return rows
	}
	for _, row := range sql("select function, count(*) n, sum(dur) total from calls group by function") {
		n, total := 0, int64(0)
		for key, cs := range got {
			if "shop.Logged$Log."+key[1] == row["function"] {
				for i := range cs {
					n, total = n+1, total+cs[i].Duration()
				}
			}
		}
		if row["n"] != float64(n) || row["total"] != float64(total) {
			t.Errorf("%v, want %d calls and %d ns", row, n, total)
		}
	}
	// Of threads, while samples show them. A sample of a thread that has waited for a CPU since may be older than it seems:
	// it can cut a slice in two, or show a call that is over.
	row := sql(`with span as (select s.thread, min(s.ts) a, max(s.ts) b from samples s join threads t on t.id = s.thread where t.name like 'worker-%' group by 1),
		m as (select distinct function name from calls)
		select (select count(*) from calls c join span on span.thread = c.thread where c.ts > a and c.ts + c.dur < b) calls,
			(select count(*) from slices s join span on span.thread = s.thread join functions f on f.id = s.function join m on m.name = f.name where s.ts > a and s.ts + s.dur < b and s.exact is not null) exact,
			(select count(*) from slices s join span on span.thread = s.thread join functions f on f.id = s.function join m on m.name = f.name where s.exact is null) sampled`)[0]
	exact, called, few := row["exact"].(float64), row["calls"].(float64), float64(placed)/20
	if math.Abs(exact-called) > few || called < float64(placed)/2 || row["sampled"].(float64) > few {
		t.Errorf("slices of threads: %v, of %d calls", row, placed)
	}
	if row := sql("select count(*) n from slices s join functions f on f.id = s.function join slices p on p.id = s.parent join functions g on g.id = p.function where f.name = 'shop.Logged$Log.add' and g.name = 'shop.Logged$Log.computes' and p.exact is not null")[0]; row["n"] == 0. {
		t.Error("no sampled frame is inside a traced call")
	}

	// The same samples without the calls.
	plain := without(t, whole, "call", "trac")
	if err := os.WriteFile(filepath.Join(dir, "plain.sliver"), plain, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := sums(t, dir, "run.sliver"), sums(t, dir, "plain.sliver"); !slices.Equal(a, b) {
		t.Errorf("pprof: sums %v, without the calls %v", a, b)
	}
	nests(t, dir)
}

// without returns a recording without the chunks of some types.
func without(t *testing.T, b []byte, types ...string) []byte {
	t.Helper()
	const header, head = 16, 12
	out := slices.Clone(b[:header])
	for b = b[header:]; len(b) >= head; {
		n := head + int(binary.LittleEndian.Uint32(b[4:]))
		if !slices.Contains(types, string(b[:4])) {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}

// sums exports a recording to pprof, and returns the sums of its samples.
func sums(t *testing.T, dir, name string) (out []int64) {
	t.Helper()
	to := filepath.Join(dir, name+".pb.gz")
	if r := sliver(t, dir, "export", name, "-o", to); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	p := readProfile(t, to)
	out = make([]int64, len(p.SampleType))
	for _, s := range p.Sample {
		for i, v := range s.Value {
			out[i] += v
		}
	}
	return out
}

// nests exports run.sliver to Perfetto's format, and checks with Perfetto's own reader that the slices of each track are
// inside each other.
func nests(t *testing.T, dir string) {
	t.Helper()
	if r := sliver(t, dir, "export", "run.sliver", "-o", "run.pftrace"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	rows := exporttest.Ask(t, filepath.Join(dir, "run.pftrace"),
		"select count(*) n from slice where name like 'shop.Logged$Log.%' and dur >= 0",
		"select count(*) n from slice s join slice p on p.id = s.parent_id where s.ts < p.ts or s.ts + s.dur > p.ts + p.dur",
		"select sum(value) n from stats where severity in ('error', 'data_loss') and value > 0")
	if rows[0][0].Int("n") == 0 || rows[1][0].Int("n") != 0 || rows[2][0].Int("n") != 0 {
		t.Errorf("Perfetto: %v", rows)
	}
}
