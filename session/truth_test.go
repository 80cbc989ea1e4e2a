package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// seen is one slice of a function that the program reports about.
type seen struct {
	tid   int
	fn    string
	depth int // among such functions
	// Its start lies in (notYet, first], its end in (last, gone].
	notYet, first, last, gone stack.Time
	open                      bool
	matched                   bool
}

// watcher picks the reported functions out of a thread's timeline.
type watcher struct {
	n     *trace.Names
	tid   int
	names map[string]bool
	at    stack.Time // last sample so far
	stack []*seen    // of all depths; nil for other functions
	out   []*seen
	gaps  [][2]stack.Time // no sample in between
	lost  stack.Time      // since when events are missing; 0: none are
}

func (w *watcher) Begin(t stack.Time, depth int, s *trace.Slice) {
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
	if x := w.stack[depth]; x != nil {
		x.last, x.gone = w.at, t
		x.open = t == w.at // the recording ends in it
	}
	w.stack = w.stack[:depth]
}

func (w *watcher) Other(e event.Event) {
	switch e.Kind() {
	case event.Seen:
		if way, _, _ := event.SeenFields(e.Payload()); way != stack.WayPart {
			w.at = max(w.at, e.Time)
		}
		if w.lost > 0 {
			w.gaps = append(w.gaps, [2]stack.Time{w.lost, e.Time})
			w.lost = 0
		}
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		if why == stack.WhyLost {
			w.lost = e.Time // up to what the next Sync brings back
		}
		w.gaps = append(w.gaps, [2]stack.Time{min(w.at, e.Time-stack.Time(ns)), e.Time})
	}
}

// plain leaves parameters out of a name, those of enclosing functions too: the
// reports and the symbols differ in them.
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

// checkTruth holds a recording against what the program says it did. It
// returns false if the machine was too busy to tell: more than a tenth of the
// long calls fell into gaps that the recording admits. faults are what does not
// agree.
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
	for i := range rec.Threads {
		th := &rec.Threads[i]
		w := &watcher{n: n, tid: int(th.TID), names: names}
		rec.Replay(th.Seq, n, w)
		got = append(got, w.out...)
		since[int(th.TID)], newest[int(th.TID)] = int64(th.Since), int64(w.at)
		gaps[int(th.TID)] = append(gaps[int(th.TID)], w.gaps...)
	}
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
	report := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	for i := range calls {
		c := &calls[i]
		var hits []*seen
		for _, s := range at[place{c.TID, c.Depth, c.Func}] {
			// The call's edges lie between the samples that enclose the slice's.
			if int64(s.notYet) <= c.Begin && int64(s.first) >= c.Call-early(c, interval) && int64(s.last) <= c.Return &&
				(int64(s.gone) >= c.End || s.open) {
				hits = append(hits, s)
			}
		}
		for _, s := range hits {
			s.matched = true
		}
		if c.Duration() < 3*interval || c.Begin < since[c.TID] {
			continue // too short to be seen for sure, or before the thread was found
		}
		long++
		if len(hits) == 1 {
			continue
		}
		// On a busy machine the recording may end before another sample was had.
		if len(hits) == 0 && (lateDuring(gaps[c.TID], c) || c.Begin > newest[c.TID]) {
			excused++
			continue
		}
		missing++
		if missing <= 10 {
			faults = append(faults, fmt.Sprintf("call of %s at depth %d, %v long, in thread %d at %d: %d slices%s", c.Func, c.Depth, c.Duration(), c.TID, c.Begin,
				len(hits), near(got, c)))
		}
	}
	for _, s := range got {
		if !s.matched && s.last > s.first && !lateDuring(gaps[s.tid], &testprog.Call{Begin: int64(s.notYet), End: int64(s.gone)}) {
			report("slice of %s at depth %d, thread %d, %d…%d: no such call%s", s.fn, s.depth, s.tid, s.first, s.last, nearCalls(calls, s))
		}
	}
	if long == 0 {
		t.Error("the program made no long call")
	}
	if short, all := truncated(rec); short*200 > all {
		t.Errorf("%d of %d stacks are not complete%s", short, all, errorFrames(rec))
	}
	if excused*10 > long {
		t.Logf("%d of %d long calls fell into gaps of the sampling%s", excused, long, gapList(rec))
	}
	return excused*10 <= long, faults
}

// early is how long before its reported time a call may have begun. Nobody
// reads a clock before the kernel enters a signal handler.
func early(c *testprog.Call, interval time.Duration) int64 {
	if c.Func == "chain_on_signal" {
		return int64(interval)
	}
	return 0
}

// lateDuring reports whether the sampler itself says that it missed samples
// while c ran.
func lateDuring(gaps [][2]stack.Time, c *testprog.Call) bool {
	for _, g := range gaps {
		if int64(g[0]) <= c.End && int64(g[1]) >= c.Begin {
			return true
		}
	}
	return false
}

func near(got []*seen, c *testprog.Call) string {
	var b strings.Builder
	for _, s := range got {
		if s.tid == c.TID && int64(s.first) <= c.End+20e6 && int64(s.last) >= c.Begin-20e6 && s.fn == c.Func {
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

// errorFrames shows a few of the stacks that ended early.
func errorFrames(rec *trace.Recording) string {
	n := trace.NewNames(rec)
	l := &errorLog{n: n, count: map[string]int{}}
	for i := range rec.Threads {
		l.stack = nil
		rec.Replay(rec.Threads[i].Seq, n, l)
	}
	var keys []string
	for k, c := range l.count {
		keys = append(keys, fmt.Sprintf("\n  %4d %s", c, k))
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	return strings.Join(keys[:min(len(keys), 8)], "")
}

// gapList shows where samples are missing, and why.
func gapList(rec *trace.Recording) string {
	var b strings.Builder
	n := trace.NewNames(rec)
	for i := range rec.Threads {
		l := gapLog{}
		rec.Replay(rec.Threads[i].Seq, n, &l)
		for _, g := range l {
			fmt.Fprintf(&b, "\n  thread %d: %s", rec.Threads[i].TID, g)
		}
	}
	return b.String()
}

type gapLog []string

func (l *gapLog) Begin(stack.Time, int, *trace.Slice) {}
func (l *gapLog) End(stack.Time, int, *trace.Slice)   {}
func (l *gapLog) Other(e event.Event) {
	if e.Kind() == event.Gap && len(*l) < 10 {
		why, ns := event.GapFields(e.Payload())
		*l = append(*l, fmt.Sprintf("%v before %d: %s", time.Duration(ns), e.Time, why))
	}
}

type errorLog struct {
	n     *trace.Names
	stack []string
	bad   bool
	count map[string]int
}

func (l *errorLog) Begin(_ stack.Time, depth int, s *trace.Slice) {
	l.stack = append(l.stack[:depth], l.n.Func(&s.Frame).Name)
	l.bad = l.bad || s.Loc.Word.Kind() == stack.KindError
}

func (l *errorLog) End(_ stack.Time, depth int, _ *trace.Slice) {
	if l.bad && depth == len(l.stack)-1 {
		l.count[strings.Join(l.stack, " > ")]++
		l.bad = false
	}
	l.stack = l.stack[:depth]
}

func (l *errorLog) Other(event.Event) {}

// without leaves out the calls of a function that cannot be named: those in
// them are then less deep.
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

// truths are the programs and variants whose timeline is held against their
// own account; args come on top of the usual ones.
var truths = []struct {
	program, variant string
	args             []string
	always           bool   // part of the short form, and at 1 ms of the usual one
	hidden           string // function that the file keeps no name of
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
	testprog.Need(t, "ptrace")
	for _, rate := range []struct {
		interval time.Duration
		unit     int // of the program's times, in sixths
	}{{10 * time.Millisecond, 6}, {time.Millisecond, 1}} {
		for _, x := range truths {
			name := fmt.Sprintf("%v/%s/%s", rate.interval, x.program, x.variant)
			if len(x.args) > 0 {
				name += "," + strings.TrimPrefix(x.args[0], "--")
			}
			t.Run(name, func(t *testing.T) {
				if (testing.Short() || rate.interval < 10*time.Millisecond && !long()) && !x.always {
					t.Skip("this form takes some variants only")
				}
				if slices.Contains(x.args, "--deep") && rate.interval < 10*time.Millisecond {
					t.Skip("a megabyte of stack takes longer than a tick: its samples are late, and counted so")
				}
				own := slices.Clone(x.args)
				if i := slices.Index(own, "--library"); i >= 0 {
					own[i+1] = testprog.Build(t, own[i+1], x.variant)
				}
				// A machine that is too busy for an interval has each further try at twice that, of
				// a program that takes twice as long for everything.
				for try := range tries {
					interval := rate.interval << try
					args := append([]string{"--seconds", strconv.Itoa(1 << try), "--threads", "2", "--seed", "7", "--unit", strconv.Itoa(rate.unit << try)}, own...)
					rec, calls := recordChain(t, testprog.Build(t, x.program, x.variant), interval,
						strings.HasPrefix(x.program, "go/"), args...) // reports of Go programs have its type arguments
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
