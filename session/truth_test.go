package session

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// seen is one slice of a function that the program logs.
type seen struct {
	tid   int
	fn    string
	depth int // among such functions
	// Its start is in (notYet, first], its end in (last, gone].
	notYet, first, last, gone stack.Time
	open                      bool
	matched                   bool
}

// watcher extracts the logged functions from a thread's timeline.
type watcher struct {
	n       *trace.Names
	tid     int
	names   map[string]bool
	at      stack.Time // last sample so far
	samples []stack.Time
	used    []int64 // CPU time in ns up to each of samples
	cpu     int64   // the last of these, with samples that are not in the list
	stack   []*seen // of all depths; nil for other functions
	out     []*seen
	gaps    [][2]stack.Time // no complete sample in between
	lost    stack.Time      // since when events or complete stacks are missing; 0: none are
	cut     []int           // depths at which the stack is incomplete
}

func (w *watcher) Begin(t stack.Time, depth int, s *trace.Slice) {
	if s.Loc.Word.Kind() == stack.KindError {
		w.cut = append(w.cut, depth)
	}
	var x *seen
	if fn := plain(w.n.Func(&s.Frame).Name); w.names[fn] {
		d := 0
		for _, y := range w.stack {
			if y != nil {
				d++
			}
		}
		x = &seen{tid: w.tid, fn: fn, depth: d, notYet: w.at, first: t, open: true}
		w.out = append(w.out, x)
	}
	w.stack = append(w.stack[:depth], x)
}

func (w *watcher) End(t stack.Time, depth int, _ *trace.Slice) {
	if n := len(w.cut); n > 0 && w.cut[n-1] == depth {
		w.cut = w.cut[:n-1]
	}
	if x := w.stack[depth]; x != nil {
		x.last, x.gone = w.at, t
		x.open = t == w.at // the recording ends in it
	}
	w.stack = w.stack[:depth]
}

func (w *watcher) Other(e event.Event) {
	switch e.Kind() {
	case event.Seen:
		way, n, cpu := event.SeenFields(e.Payload())
		before := w.cpu
		w.cpu += cpu
		if len(w.cut) > 0 { // a function missing from it may still have been running
			if w.lost == 0 {
				w.lost = cmp.Or(w.at, e.Time)
			}
			return
		}
		if way != stack.WayPart {
			// Only the last of several equal samples has a time: the others are spread out evenly.
			from := cmp.Or(w.at, e.Time)
			for i := 1; i <= n; i++ {
				w.samples = append(w.samples, from+(e.Time-from)*stack.Time(i)/stack.Time(n))
				w.used = append(w.used, before+cpu*int64(i)/int64(n))
			}
			w.at = max(w.at, e.Time)
		}
		if w.lost > 0 {
			w.gaps = append(w.gaps, [2]stack.Time{w.lost, e.Time})
			w.lost = 0
		}
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		if why == stack.WhyLost {
			w.lost = e.Time // until the next Sync restores the stack
		}
		w.gaps = append(w.gaps, [2]stack.Time{min(w.at, e.Time-stack.Time(ns)), e.Time})
	}
}

// plain removes parameters from a name, those of enclosing functions too: logs and
// symbols differ in them.
func plain(name string) string {
	var b strings.Builder
	depth := 0
	for i, r := range name {
		switch {
		case r == '(' && depth == 0 && strings.HasPrefix(name[i:], "(*") && !strings.HasPrefix(name[i:], "(*)"):
			b.WriteRune(r) // a Go receiver
			depth = -1
		case r == ')' && depth == -1:
			b.WriteRune(r)
			depth = 0
		case depth == -1:
			b.WriteRune(r)
		case r == '(':
			depth++
		case r == ')' && depth > 0:
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func truncated(rec *trace.Recording) (short, all uint64) {
	t := rec.Stats.Total()
	return t.Truncated, t.Samples
}

// recordChain records a chain program while it runs its script.
func recordChain(t *testing.T, path string, interval time.Duration, fullNames bool, args ...string) (*trace.Recording, []testprog.Call) {
	t.Helper()
	p := testprog.StartChain(t, path, args...)
	p.Ready()
	tp, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer tp.Close()
	file := filepath.Join(t.TempDir(), "run.sliver")
	out, err := export.ParseOutput(file, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(tp, Options{Interval: interval, Jitter: .1, Outputs: []export.Output{out}, FullNames: fullNames})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ended := make(chan error, 1)
	var reason string
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		var err error
		reason, err = s.Run(ctx)
		ended <- err
	}()
	p.Go()
	p.Done()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	res, err := s.Finish(reason)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Files) != 1 || res.Files[0].Path != file {
		t.Fatalf("files %+v", res.Files)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	rec, err := openRecording(f)
	if err != nil {
		t.Fatal(err)
	}
	calls, sum := p.Calls()
	p.Finish()
	if sum.Interrupted != 0 && !slices.Contains(args, "--signals") && !fullNames { // its own signals, or the Go runtime's, interrupt it
		t.Errorf("the program saw %d interrupted calls", sum.Interrupted)
	}
	return rec, calls
}

// checkTruth compares a recording with the program's log. It returns false if the
// machine was too busy: more than a tenth of the long calls are in gaps that the
// recording reports. faults are the differences.
func checkTruth(t *testing.T, rec *trace.Recording, calls []testprog.Call, interval time.Duration) (telling bool, faults []string) {
	t.Helper()
	if len(rec.Problems) > 0 || rec.End == nil {
		t.Errorf("recording: %v, end %v", rec.Problems, rec.End)
	}
	names := map[string]bool{}
	for i := range calls {
		calls[i].Func = plain(calls[i].Func)
		names[calls[i].Func] = true
	}
	n := trace.NewNames(rec)
	var got []*seen
	since := map[int]int64{}
	gaps := map[int][][2]stack.Time{}
	newest := map[int]int64{} // sample
	samples := map[int][]stack.Time{}
	watchers := map[int]*watcher{}
	for i := range rec.Threads {
		th := &rec.Threads[i]
		w := &watcher{n: n, tid: int(th.TID), names: names}
		rec.Replay(th.Seq, n, w)
		if w.lost > 0 {
			w.gaps = append(w.gaps, [2]stack.Time{w.lost, math.MaxInt64})
		}
		got = append(got, w.out...)
		since[int(th.TID)], newest[int(th.TID)] = int64(th.Since), int64(w.at)
		gaps[int(th.TID)] = append(gaps[int(th.TID)], w.gaps...)
		samples[int(th.TID)] = append(samples[int(th.TID)], w.samples...)
		watchers[int(th.TID)] = w
	}
	calls = joined(calls, samples)
	type place struct {
		tid, depth int
		fn         string
	}
	at := map[place][]*seen{}
	for _, s := range got {
		k := place{s.tid, s.depth, s.fn}
		at[k] = append(at[k], s)
	}
	long, missing, wrong, excused := 0, 0, 0, 0
	var shown *seen // the first of the differences
	report := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	for i := range calls {
		c := &calls[i]
		var hits []*seen
		for _, depth := range depths(calls, c) {
			for _, s := range at[place{c.TID, depth, c.Func}] {
				// The call's edges are between the samples that enclose the slice's.
				if int64(s.notYet) <= c.Begin && watchers[c.TID].within(s, c, interval) && (int64(s.gone) >= c.End || s.open) {
					hits = append(hits, s)
				}
			}
		}
		for _, s := range hits {
			s.matched = true
		}
		if c.Duration() < 3*interval || c.Begin < since[c.TID] {
			continue // too short to be seen for certain, or before the thread was found
		}
		long++
		if len(hits) == 1 {
			continue
		}
		// On a busy machine the recording may end before the next sample.
		if len(hits) == 0 && (lateDuring(gaps[c.TID], c) || c.Begin > newest[c.TID]) {
			excused++
			continue
		}
		missing++
		if missing <= 10 {
			faults = append(faults, fmt.Sprintf("call of %s at depth %d, %v long, in thread %d at %d: %d slices%s", c.Func, c.Depth, c.Duration(), c.TID, c.Begin,
				len(hits), near(got, c)))
			if shown == nil {
				shown = &seen{tid: c.TID, notYet: stack.Time(c.Begin), first: stack.Time(c.End)}
			}
		}
	}
	for _, s := range got {
		if !s.matched && s.last > s.first && !lateDuring(gaps[s.tid], &testprog.Call{Begin: int64(s.notYet), End: int64(s.gone)}) {
			report("slice of %s at depth %d, thread %d, %d…%d: no such call%s", s.fn, s.depth, s.tid, s.first, s.last, nearCalls(calls, s))
			if shown == nil {
				shown = s
			}
		}
	}
	if shown != nil {
		faults = append(faults, fmt.Sprintf("thread %d from %d to %d:%s", shown.tid, shown.notYet, shown.first, samplesNear(rec, shown)))
	}
	if long == 0 {
		t.Error("the program made no long call")
	}
	// A thread's first sample finds out how long its stack is. On a busy machine that stop may come too late for another.
	if short, all := truncated(rec); short*200 > all && short > uint64(len(rec.Threads)) {
		t.Errorf("%d of %d stacks are not complete%s", short, all, errorFrames(rec))
	}
	if excused*10 > long {
		t.Logf("%d of %d long calls fell into gaps of the sampling%s", excused, long, gapList(rec))
	}
	return excused*10 <= long, faults
}

// joined merges calls that no sample can distinguish: if a handler's next signal is
// pending when it ends, it is called again at once at the same place.
func joined(calls []testprog.Call, samples map[int][]stack.Time) []testprog.Call {
	var out []testprog.Call
	last := map[[2]int]int{} // by thread and function: index in out
	for i := range calls {
		c := &calls[i]
		handler := slices.Index([]string{"chain_on_signal", "chain_handler"}, c.Func)
		if handler < 0 {
			out = append(out, *c)
			continue
		}
		k := [2]int{c.TID, handler}
		if n, ok := last[k]; ok && out[n].Depth == c.Depth && !between(samples[c.TID], out[n].Return, c.Call) &&
			!slices.ContainsFunc(calls, func(o testprog.Call) bool { // the interrupted code has continued
				return o.TID == c.TID && o.Func != "chain_on_signal" && o.Depth < c.Depth &&
					(o.Begin > out[n].End && o.Begin < c.Begin || o.End > out[n].End && o.End < c.Begin)
			}) {
			out[n].End, out[n].Return = c.End, c.Return
			continue
		}
		last[k] = len(out)
		out = append(out, *c)
	}
	return out
}

// depths returns the depths that a call may have. A function of the program is noted after it was entered, and its end before
// it returns. A signal in between has a depth in the log that is one level off: a busy machine delivers many of them there,
// as the thread gets a CPU again.
func depths(calls []testprog.Call, c *testprog.Call) []int {
	out := []int{c.Depth}
	signal := c.Depth
	switch c.Func {
	case "chain_on_signal":
	case "chain_handler":
		signal--
	default:
		return out
	}
	for i := range calls {
		x := &calls[i]
		switch {
		case x.TID != c.TID || x.Func == "chain_on_signal" || x.Func == "chain_handler":
		case x.Depth == signal && x.Call <= c.Call && c.Call <= x.Begin && !slices.Contains(out, c.Depth+1):
			out = append(out, c.Depth+1)
		case x.Depth == signal-1 && x.End <= c.Call && c.Call <= x.Return && !slices.Contains(out, c.Depth-1):
			out = append(out, c.Depth-1)
		}
	}
	return out
}

// between reports whether one of the sorted times is in [from, to].
func between(times []stack.Time, from, to int64) bool {
	i, _ := slices.BinarySearch(times, stack.Time(from))
	return i < len(times) && int64(times[i]) <= to
}

// within reports whether the slice is within the call. A handler of signals is entered and left by the
// kernel, without code of the program that could read a clock: up to an interval of CPU time at either
// edge is not in the log, and longer by the clock if the thread waits for a CPU there.
func (w *watcher) within(s *seen, c *testprog.Call, interval time.Duration) bool {
	if c.Func != "chain_on_signal" {
		return int64(s.first) >= c.Call && int64(s.last) <= c.Return
	}
	edge := int64(interval)
	return (int64(s.first) >= c.Call-edge || w.ran(s.first, stack.Time(c.Call)) <= edge) &&
		(int64(s.last) <= c.Return+edge || w.ran(stack.Time(c.Return), s.last) <= edge)
}

// ran returns the least CPU time that the thread used from one time to the other: what it used between
// the samples around them, less what it can have used outside of them.
func (w *watcher) ran(from, to stack.Time) int64 {
	a, _ := slices.BinarySearch(w.samples, from+1)
	b, _ := slices.BinarySearch(w.samples, to)
	if a == 0 || b == len(w.samples) {
		return math.MaxInt64
	}
	a--
	return w.used[b] - w.used[a] - int64(from-w.samples[a]) - int64(w.samples[b]-to)
}

// lateDuring reports whether the sampler itself reports missed samples while c ran.
func lateDuring(gaps [][2]stack.Time, c *testprog.Call) bool {
	for _, g := range gaps {
		if int64(g[0]) <= c.End && int64(g[1]) >= c.Begin {
			return true
		}
	}
	return false
}

// nearest bounds the slices or samples that are printed.
const nearest = 60

func near(got []*seen, c *testprog.Call) string {
	var b strings.Builder
	n := 0
	for _, s := range got {
		if n < nearest && s.tid == c.TID && int64(s.first) <= c.End+20e6 && int64(s.last) >= c.Begin-20e6 && s.fn == c.Func {
			n++
			fmt.Fprintf(&b, "\n  near: %s depth %d (%d,%d]…(%d,%d]", s.fn, s.depth, int64(s.notYet)-c.Begin, int64(s.first)-c.Begin,
				int64(s.last)-c.Begin, int64(s.gone)-c.Begin)
		}
	}
	return b.String()
}

func nearCalls(calls []testprog.Call, s *seen) string {
	var b strings.Builder
	for i := range calls {
		if c := &calls[i]; c.TID == s.tid && c.Func == s.fn && c.Depth == s.depth && c.Return > int64(s.first) && c.Call < int64(s.last) {
			fmt.Fprintf(&b, "\n  near: call %d, begin %d in (0,%d], end %d in (0,%d]", c.Call, c.Begin-int64(s.notYet), s.first-s.notYet,
				c.End-int64(s.last), s.gone-s.last)
		}
	}
	return b.String()
}

// without removes the calls of a function that cannot be named, and reduces the depth
// of the calls in them.
func without(calls []testprog.Call, fn string) []testprog.Call {
	var out []testprog.Call
	for _, c := range calls {
		if c.Func == fn {
			continue
		}
		depth := c.Depth
		for _, h := range calls {
			if h.Func == fn && h.TID == c.TID && h.Begin <= c.Begin && h.End >= c.End && h.Depth < c.Depth {
				depth--
			}
		}
		c.Depth = depth
		out = append(out, c)
	}
	return out
}

// truths are the programs and variants whose timeline is compared with their own log;
// args are added to the usual ones.
var truths = []struct {
	program, variant string
	args             []string
	always           bool   // part of the short form, and at 1 ms of the usual one
	hidden           string // function without a name in the file
}{
	{program: "c/chain", variant: "O0", always: true},
	{program: "c/chain", variant: "O2", always: true},
	{program: "c/chain", variant: "pie"},
	{program: "c/chain", variant: "nopie"},
	{program: "c/chain", variant: "static", always: true},
	{program: "c/chain", variant: "static-pie"},
	{program: "c/chain", variant: "fp", always: true},
	{program: "c/chain", variant: "nohdr"},
	{program: "c/chain", variant: "debugframe"},
	{program: "c/chain", variant: "debuglink"},
	{program: "c/chain", variant: "minidebug"},
	{program: "c/chain", variant: "musl", always: true},
	{program: "c/chain", variant: "musl-static"},
	{program: "c/chain", variant: "O2", args: []string{"--signals", "normal"}, always: true},
	{program: "c/chain", variant: "O0", args: []string{"--signals", "alt"}, always: true},
	{program: "c/chain", variant: "O0", args: []string{"--library", "c/chainlib"}, always: true},
	{program: "c/chain", variant: "O0", args: []string{"--deep", "10000"}, always: true},
	{program: "cpp/chain", variant: "O0"},
	{program: "cpp/chain", variant: "O2", always: true},
	{program: "cpp/chain", variant: "static"},
	{program: "rust/chain", variant: "debug"},
	{program: "rust/chain", variant: "release", always: true},
	{program: "go/chain", variant: "default", always: true},
	{program: "go/chain", variant: "noopt"},
	{program: "go/chain", variant: "stripped", always: true},
	{program: "go/chain", variant: "pie-stripped"},
	{program: "go/chain", variant: "external"},
	{program: "go/chain", variant: "cgo", always: true},
	{program: "go/chain", variant: "cgo-stripped", hidden: "chain_zeta_c"},
	{program: "go/chain", variant: "cgo-pie"},
}

// tries is how often a recording is made on a machine that is too busy for it.
const tries = 4

func TestTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	for _, rate := range []struct {
		interval time.Duration
		unit     int // of the program's times, in sixths
	}{{10 * time.Millisecond, 6}, {time.Millisecond, 1}} {
		for i, x := range truths {
			name := fmt.Sprintf("%v/%s/%s", rate.interval, x.program, x.variant)
			if len(x.args) > 0 {
				name += "," + strings.TrimPrefix(x.args[0], "--")
			}
			t.Run(name, func(t *testing.T) {
				if (testing.Short() || rate.interval < 10*time.Millisecond && !long()) && !x.always {
					t.Skip("this form takes some variants only")
				}
				deep := slices.Contains(x.args, "--deep")
				if testing.Short() && rate.interval == 10*time.Millisecond && i > 0 && !deep {
					t.Skip("this form takes most variants at 1 ms only")
				}
				if deep && rate.interval < 10*time.Millisecond {
					t.Skip("a megabyte of stack takes longer than a tick: its samples are late, and counted so")
				}
				own := slices.Clone(x.args)
				if i := slices.Index(own, "--library"); i >= 0 {
					own[i+1] = testprog.Build(t, own[i+1], x.variant)
				}
				// If a machine is too busy for an interval, each further try doubles
				// it, with a program that takes twice as long for everything.
				for try := range tries {
					interval := rate.interval << try
					args := append([]string{"--seconds", strconv.Itoa(1 << try), "--threads", "2", "--seed", "7", "--unit", strconv.Itoa(rate.unit << try)}, own...)
					rec, calls := recordChain(t, testprog.Build(t, x.program, x.variant), interval,
						strings.HasPrefix(x.program, "go/"), args...) // logs of Go programs contain its type arguments
					telling, faults := checkTruth(t, rec, without(calls, x.hidden), interval)
					if telling && len(faults) == 0 || t.Failed() {
						return
					}
					for _, f := range faults {
						t.Error(f)
					}
					if len(faults) > 0 {
						return
					}
					t.Logf("most samples at %v came too late", interval)
				}
				t.Errorf("most samples came too late, %d times", tries)
			})
		}
	}
}
