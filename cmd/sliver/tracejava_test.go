package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// javaShop starts the Java program that counts its own calls.
func javaShop(t *testing.T, version string) *testprog.Proc {
	t.Helper()
	java := testprog.Tool(t, "java"+version)
	if out, err := exec.Command(java, "--list-modules").Output(); err != nil || !strings.Contains(string(out), "jdk.jfr@") {
		testprog.Lack(t, "java"+version, "it has no module jdk.jfr")
	}
	p := testprog.Start(t, java, "-Xmx64m", "-cp", testprog.JavaClasses(t, "Traced"), "shop.Traced", "700")
	p.Line("ready")
	return p
}

// TestTraceJavaMethods: the calls and the table have every call of a method that the program counted, by thread; an
// interrupt ends JFR's recording and removes all files.
func TestTraceJavaMethods(t *testing.T) {
	p := javaShop(t, "25")
	x := &tracing{t, p, testprog.StartCmd(t, slivercmd(t, t.TempDir(), "trace", "-p", pidOf(p), "-f", "shop.Traced$Cart::total", "-f", "shop.Traced$Cart.sleepy", "-f", "nowhere", "--json"))}
	x.ready()
	p.Go()
	var totals, thrown, deeps, sleeps, longest uint64
	if _, err := fmt.Sscan(strings.TrimPrefix(p.Line("truth 1 "), "truth 1 "), &totals, &thrown, &deeps, &sleeps, &longest); err != nil {
		t.Fatal(err)
	}
	lines := x.end()
	threads, n := map[string]uint64{}, map[string]uint64{}
	for _, l := range lines[:len(lines)-1] {
		var c callLine
		if err := json.Unmarshal([]byte(l), &c); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if c.How != "ended" || c.Duration < 0 || (c.TID == 0) != (c.Task != "") {
			t.Fatalf("%+v", c)
		}
		n[c.Function]++
		threads[c.Thread]++
	}
	if n["shop.Traced$Cart.total"] != totals || n["shop.Traced$Cart.sleepy"] != sleeps || threads["worker-1"] != (totals+sleeps)/4 || threads["virtual thread"] != threads["worker-1"] {
		t.Errorf("%v by %v; the program counted %d and %d", n, threads, totals, sleeps)
	}
	var sum traceSummary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil {
		t.Fatal(err)
	}
	f := sum.Functions
	if sum.Engine != "jfr" || len(f) != 2 || f[0].Calls != totals || f[0].Left != nil || f[1].Calls != sleeps || f[1].P50 < 3e6 || f[1].Max > int64(longest) || sum.Lost != 0 {
		t.Errorf("%+v", sum)
	}
	if len(sum.Losses) != 1 || !strings.HasPrefix(sum.Losses[0], "no call seen of nowhere: ") {
		t.Errorf("%q", sum.Losses)
	}

	// As text, and only those of 3 ms and more.
	x.proc = testprog.StartCmd(t, slivercmd(t, t.TempDir(), "trace", "-p", pidOf(p), "-f", "Traced$Cart::*", "--slower", "3ms"))
	x.ready()
	p.Go()
	p.Line("truth 2 ")
	lines = x.end()
	slow := 0
	for _, l := range lines {
		if strings.Contains(l, "virtual thread (virtual ") || strings.Contains(l, "worker-") {
			slow++
		}
	}
	text := strings.Join(lines, "\n")
	if slow < int(sleeps) || !strings.Contains(text, fmt.Sprintf("%10d ", deeps)) || !strings.Contains(text, "        -  shop.Traced$Cart.deep") {
		t.Errorf("%d slow calls, want %d at least and %d of deep:\n%.3000s", slow, sleeps, deeps, text)
	}
	free(t, p.PID)

	// The process ends: so does sliver, with all calls.
	x.proc = testprog.StartCmd(t, slivercmd(t, t.TempDir(), "trace", "-p", pidOf(p), "-f", "total", "--trace-engine", "jfr"))
	x.ready()
	p.Go()
	p.Line("truth 3 ")
	p.CloseInput()
	if st := x.proc.Wait(); !st.Success() || !strings.Contains(strings.Join(x.proc.Output(), "\n"), "shop.Traced$Cart.total") {
		t.Errorf("%v: %q %q", st, x.proc.Output(), x.proc.Errors())
	}
	if left, _ := filepath.Glob("/tmp/.sliver-" + fmt.Sprint(x.proc.PID) + "-*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestTraceJavaStartInterrupted: two signals at any moment of the start leave no recording and no file.
func TestTraceJavaStartInterrupted(t *testing.T) {
	testprog.Whole(t, "TestTraceJavaRefused has another way out")
	exists := func(name string) func(x *testprog.Proc) bool {
		return func(x *testprog.Proc) bool {
			found, _ := filepath.Glob(fmt.Sprintf("/tmp/.sliver-%d-*%s", x.PID, name))
			return len(found) > 0
		}
	}
	p := javaShop(t, "25") // its first recording takes longer than others: JFR has to begin
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	for _, c := range []struct {
		moment string
		record bool
		come   func(x *testprog.Proc) bool
	}{
		{"settings", false, exists("/settings.jfc")},
		{"folder", false, exists("")},
		{"file", false, exists("/1.jfr")},
		{"begin", false, func(*testprog.Proc) bool { return true }},
		{"folder", true, exists("")},
		{"settings", true, exists("/settings.jfc")},
		{"file", true, exists("/1.jfr")},
		{"tracing", false, func(x *testprog.Proc) bool { return strings.Contains(strings.Join(x.Errors(), "\n"), "tracing ") }},
	} {
		args := []string{"trace", "-p", pidOf(p), "-f", "shop.Traced$Cart::total"}
		if c.record {
			args = []string{"record", "-p", pidOf(p), "--trace", "shop.Traced$Cart::total", "-o", "run.sliver"}
		}
		x := testprog.StartCmd(t, slivercmd(t, t.TempDir(), args...))
		waitFor(t, func() bool {
			select {
			case <-x.Exited():
				t.Fatalf("%s: sliver ended: %q", c.moment, x.Errors())
			default:
			}
			return c.come(x)
		})
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			if err := syscall.Kill(x.PID, sig); err != nil {
				t.Fatal(err)
			}
		}
		if st := x.Wait(); st.Success() {
			t.Errorf("%s: %v", c.moment, st)
		}
		if left, _ := filepath.Glob(fmt.Sprintf("/tmp/.sliver-%d-*", x.PID)); len(left) > 0 {
			t.Errorf("%s: left %q: %q", c.moment, left, x.Errors())
		}
		// The virtual machine carries out commands one after another: this one after those of sliver.
		recordings, err := proc.JavaCommand(context.Background(), "JFR.check")
		if err != nil || strings.Contains(recordings, "sliver-") {
			t.Errorf("%s: %q, %v", c.moment, recordings, err)
		}
	}
}

// TestTraceJavaRefused: one clear line where Java methods cannot be traced.
func TestTraceJavaRefused(t *testing.T) {
	p := javaShop(t, "17")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"trace", "-p", pidOf(p), "-f", "Traced$Cart::total"}, "runs Java 17: exact calls of Java methods need HotSpot of Java 25 or later"},
		{[]string{"trace", "-p", pidOf(p), "-f", "/^shop.Traced/"}, "not by a regular expression"},
		{[]string{"trace", "-p", pidOf(p), "-f", "shop.Traced$Cart::total", "--list"}, "traced exactly with --trace-engine jfr (Java 25 or later)"},
		{[]string{"record", "-p", pidOf(p), "--trace", "shop.Traced$Cart::total", "--trace-engine", "jfr", "-d", "1s"}, "runs Java 17: exact calls of Java methods need HotSpot of Java 25 or later"},
		{[]string{"record", "-p", pidOf(p), "--trace", "x", "--trace-engine", "kernel", "-d", "1s"}, "Java methods are sampled, and traced exactly with --trace-engine jfr"},
		{[]string{"record", "--trace", "x", "--trace-engine", "jfr", "--", "true"}, "engine jfr is for a process"},
		{[]string{"trace", "-f", "x", "--trace-engine", "jfr", "--", "true"}, "engine jfr is for a process"},
		{[]string{"trace", "-p", pidOf(p), "-f", "x", "--trace-engine", "jfr", "--list"}, "--list is for native functions"},
		{[]string{"trace", "-p", pidOf(p), "-f", "x", "--trace-engine", "none"}, "use auto, cpu, kernel or jfr"},
	} {
		r := sliver(t, t.TempDir(), c.args...)
		if r.status == 0 || !strings.Contains(r.errors, c.want) || strings.Count(r.errors, "\n") > 2 {
			t.Errorf("%q: %d %q, want %q", c.args, r.status, r.errors, c.want)
		}
	}
	// A recording has the samples.
	r := sliver(t, t.TempDir(), "record", "-q", "-p", pidOf(p), "--trace", "shop.Traced$Cart::total", "-d", "500ms", "-o", "x.sliver")
	if r.status != 0 || !strings.Contains(r.errors, "runs Java 17: exact calls of Java methods need HotSpot of Java 25 or later") ||
		!strings.HasSuffix(r.errors, "; this recording has samples alone\n") || strings.Count(r.errors, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, t.TempDir(), "doctor", pidOf(p)); !strings.Contains(lineOf(r.out, "  exact calls "), "; Java methods by JFR, from Java 25 on") {
		t.Errorf("%+v", r)
	}
	if err := syscall.Kill(p.PID, 0); err != nil {
		t.Error(err)
	}
}
