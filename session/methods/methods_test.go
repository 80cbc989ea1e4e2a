package methods

//sliver:layer live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/target"
)

// java25 returns a Java 25 with JFR.
func java25(t *testing.T) string {
	t.Helper()
	java := testprog.Tool(t, "java25")
	if out, err := exec.Command(java, "--list-modules").Output(); err != nil || !strings.Contains(string(out), "jdk.jfr@") {
		testprog.Lack(t, "java25", "it has no module jdk.jfr")
	}
	return java
}

// shop starts the program whose calls are counted.
func shop(t *testing.T, java string, calls int) (*program, *target.Process) {
	t.Helper()
	p := testprog.Start(t, java, "-Xmx64m", "-cp", testprog.JavaClasses(t, "Traced"), "shop.Traced", fmt.Sprint(calls))
	p.Line("ready")
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Close() })
	return &program{Proc: p}, proc
}

// program is the one whose calls are counted.
type program struct {
	*testprog.Proc
	rounds int
}

// truth is what the program counted since it began.
type truth struct{ totals, thrown, deeps, sleeps, longest uint64 }

// goOn lets it make its calls.
func goOn(t *testing.T, p *program) (x truth) {
	t.Helper()
	p.rounds++
	p.Go()
	round := fmt.Sprintf("truth %d ", p.rounds)
	if _, err := fmt.Sscan(strings.TrimPrefix(p.Line(round), round), &x.totals, &x.thrown, &x.deeps, &x.sleeps, &x.longest); err != nil {
		t.Fatal(err)
	}
	return x
}

func begin(t *testing.T, proc *target.Process, limit float64, patterns ...string) *Tracer {
	t.Helper()
	var ps []calls.Pattern
	for _, s := range patterns {
		p, err := calls.ParsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	x, err := New(proc, ps, Options{Limit: exact.Limit{Hits: limit}})
	if err == nil {
		err = x.Start(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// running traces until end is called.
type running struct {
	x    *Tracer
	all  []calls.Call
	who  map[string]int // calls by thread
	stop context.CancelFunc
	done chan error
}

func run(x *Tracer) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{x: x, stop: stop, done: make(chan error, 1), who: map[string]int{}}
	go func() {
		r.done <- x.Run(ctx, func(cs []calls.Call) {
			for i := range cs {
				r.who[x.Thread(&cs[i])]++
			}
			r.all = append(r.all, cs...)
		})
	}()
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	r.wait(t)
}

func (r *running) wait(t *testing.T) {
	t.Helper()
	defer r.stop()
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
}

// count returns the calls of a method, and checks that they agree with the accounts.
func (r *running) count(t *testing.T, name string) (n uint64) {
	t.Helper()
	st := r.x.Stats()
	for i := range r.x.Functions {
		if r.x.Functions[i].Name != name {
			continue
		}
		for _, c := range r.all {
			if c.Fn == i {
				n++
			}
		}
		if st.Funcs[i].Calls != n || st.Funcs[i].Times.N != n {
			t.Errorf("%s: %d calls in the accounts, %d delivered", name, st.Funcs[i].Calls, n)
		}
	}
	if st.LostBytes != 0 || st.Missing != 0 {
		t.Errorf("lost %d bytes, %v missing", st.LostBytes, st.Missing)
	}
	return n
}

// clean fails if JFR still runs for sliver, or a file is left.
func clean(t *testing.T, proc *target.Process) {
	t.Helper()
	if answer, err := proc.JavaCommand(context.Background(), "JFR.check"); err != nil || strings.Contains(answer, "sliver-") || !strings.Contains(answer, "name=own") {
		t.Errorf("JFR.check: %q, %v", answer, err)
	}
	if left, _ := filepath.Glob(fmt.Sprintf("/tmp/.sliver-%d-*", os.Getpid())); len(left) > 0 {
		t.Errorf("left in /tmp: %q", left)
	}
}

// TestEveryCall: counts are those of the program, which counts itself, with exceptions, recursion and several threads;
// a recording of another user of JFR goes on.
func TestEveryCall(t *testing.T) {
	p, proc := shop(t, java25(t), 1000)
	if _, err := proc.JavaCommand(context.Background(), "JFR.start name=own settings=none +jdk.CPULoad#enabled=true"); err != nil {
		t.Fatal(err)
	}
	before := goOn(t, p)

	r := run(begin(t, proc, 0, "shop.Traced$Cart::total", "Traced$Cart.deep", "sleepy", "shop.Traced::never"))
	if answer, err := proc.JavaCommand(context.Background(), "JFR.check"); err != nil || strings.Count(answer, "duration=1m maxsize=256.0MB (running)") == 0 {
		t.Errorf("after a kill the recording goes on: %q, %v", answer, err)
	}
	goOn(t, p)
	after := goOn(t, p)
	r.end(t)
	for name, want := range map[string]uint64{
		"shop.Traced$Cart.total":  after.totals - before.totals,
		"shop.Traced$Cart.deep":   after.deeps - before.deeps,
		"shop.Traced$Cart.sleepy": after.sleeps - before.sleeps,
		"shop.Traced.never":       0,
	} {
		if got := r.count(t, name); got != want {
			t.Errorf("%s: %d calls, the program counted %d", name, got, want)
		}
	}
	for _, c := range r.all {
		if c.Exit < c.Enter || c.Enter < r.x.Began || c.Exit > target.Now() || c.How != calls.Ended || (c.TID == 0) == (c.Task == 0) {
			t.Fatalf("%+v, tracing began at %d", c, r.x.Began)
		}
		if name := r.x.Functions[c.Fn].Name; name == "shop.Traced$Cart.sleepy" && (c.Duration() < 3e6 || c.Duration() > int64(after.longest)) {
			t.Errorf("sleepy took %d ns; 3 ms are the least, the program saw at most %d", c.Duration(), after.longest)
		}
	}
	for _, name := range []string{"worker-0", "worker-1", "worker-2", "virtual thread"} {
		if r.who[name] != len(r.all)/4 {
			t.Errorf("%s has %d of %d calls, want a quarter: %v", name, r.who[name], len(r.all), r.who)
		}
	}
	if n := r.x.Notes; len(n) != 1 || !strings.Contains(n[0], "another JFR recording") {
		t.Errorf("notes %q", n)
	}
	if s := r.x.Silent(); len(s) != 1 || s[0] != "shop.Traced::never" {
		t.Errorf("silent: %q", s)
	}
	clean(t, proc)

	// More calls than the limit: tracing of the class stops, and with nothing else to trace that is the end.
	r = run(begin(t, proc, 100, "Traced$Cart::*"))
	after = goOn(t, p)
	r.wait(t)
	if st := r.x.Stats(); len(st.Hot) != 1 || r.x.Functions[st.Hot[0].Fn].Name != "shop.Traced$Cart.deep" || len(st.Untraced) != 1 {
		t.Errorf("hot: %+v, %q", st.Hot, st.Untraced)
	}
	clean(t, proc)

	// An exit that does not wait.
	x := begin(t, proc, 0, "Traced$Cart::total")
	x.Abandon()
	clean(t, proc)

	// The process ends: the calls up to then are there.
	r = run(begin(t, proc, 0, "Traced$Cart::total"))
	before, after = after, goOn(t, p)
	p.CloseInput()
	r.wait(t)
	if got, want := r.count(t, "shop.Traced$Cart.total"), after.totals-before.totals; got != want {
		t.Errorf("until the end: %d calls, want %d", got, want)
	}
	if left, _ := filepath.Glob(fmt.Sprintf("/tmp/.sliver-%d-*", os.Getpid())); len(left) > 0 {
		t.Errorf("left in /tmp: %q", left)
	}
}

// TestKilled: of a process that is killed, the time whose calls are missing is shown.
func TestKilled(t *testing.T) {
	testprog.Whole(t, "TestEveryCall traces a process to its end")
	p, proc := shop(t, java25(t), 10)
	r := run(begin(t, proc, 0, "Traced$Cart::total"))
	goOn(t, p)
	for begin := time.Now(); time.Since(begin) < 2*chunkSlack; { // less is not reported
		goOn(t, p)
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.wait(t)
	if st := r.x.Stats(); st.Missing == 0 {
		t.Errorf("%+v", st)
	}
	if left, _ := filepath.Glob(fmt.Sprintf("/tmp/.sliver-%d-*", os.Getpid())); len(left) > 0 {
		t.Errorf("left in /tmp: %q", left)
	}
}

// TestOldJava: a virtual machine that cannot trace methods is named.
func TestOldJava(t *testing.T) {
	_, proc := shop(t, testprog.Tool(t, "java17"), 1)
	pattern, err := calls.ParsePattern("Cart::total")
	if err != nil {
		t.Fatal(err)
	}
	start := func(proc *target.Process) error {
		x, err := New(proc, []calls.Pattern{pattern}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return x.Start(context.Background())
	}
	err = start(proc)
	if !errors.Is(err, ErrOld) || !strings.Contains(err.Error(), "runs Java 17: ") {
		t.Error(err)
	}
	other, err := target.Open(testprog.StartCmd(t, exec.Command("sleep", "600")).PID)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err = start(other); !errors.Is(err, ErrOld) {
		t.Error(err)
	}
}
