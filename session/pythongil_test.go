package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// held is a time range in which a thread certainly had the lock.
type held struct {
	tid      stack.TID
	from, to stack.Time
}

// gilLog compares a thread's waits for the lock on a timeline with the actual holders.
type gilLog struct {
	rec  *trace.Recording
	tid  stack.TID
	held []held // sorted by time

	gil    bool
	holder stack.TID
	known  stack.Time // when the holder was reported
	t      *testing.T

	looks, none, wrong int
}

func (g *gilLog) Begin(stack.Time, int, *trace.Slice) {}
func (g *gilLog) End(stack.Time, int, *trace.Slice)   {}
func (g *gilLog) Other(e event.Event) {
	switch e.Kind() {
	case event.State:
		g.gil, g.holder = false, 0
	case event.Wait:
		g.gil, g.holder = g.rec.Waits[int(e.Payload())].Lock == "GIL", 0
	case event.Holder:
		g.holder, _ = event.HolderFields(e.Payload())
		g.known = e.Time
		g.check(e.Time, g.holder)
	case event.Seen:
		g.check(e.Time, g.holder)
	}
}

// check records that at time at the thread was reported to wait for holder.
func (g *gilLog) check(at stack.Time, holder stack.TID) {
	const slack = stack.Time(1500 * time.Microsecond) // the holder may be read this much later
	i, _ := slices.BinarySearchFunc(g.held, at, func(h held, t stack.Time) int {
		if h.to < t {
			return -1
		}
		return 1
	})
	if !g.gil || i == len(g.held) || at < g.held[i].from+slack || at > g.held[i].to-slack || g.held[i].tid == g.tid {
		return
	}
	switch g.looks++; {
	case holder == 0:
		g.none++
	case holder != g.held[i].tid && g.known > g.held[i].from:
		if g.wrong++; g.wrong < 5 {
			g.t.Errorf("TID %d at %d: %d holds the lock, and not %d", g.tid, at, g.held[i].tid, holder)
		}
	}
}

// TestPythonGIL: waits for the global interpreter lock, and its holder, must be
// reported.
func TestPythonGIL(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	seconds := "1"
	if os.Getenv("SLIVER_LONG") != "" {
		seconds = "60"
	}
	for _, v := range pythons {
		t.Run(v.version, func(t *testing.T) {
			if testing.Short() && !v.always {
				t.Skip("the short form takes some versions only")
			}
			var looks, none int
			for try := 0; try == 0 || try < tries && none*100 > looks; try++ { // on a busy machine another try decides
				looks, none = gilLooks(t, v.version, seconds)
			}
			if looks < 300 || none*100 > looks {
				t.Errorf("of %d looks at waits for the lock %d do not tell its holder", looks, none)
			}
		})
	}
}

// gilLooks records a program that contends for the lock. It returns the number of
// samples of a thread that waits for it, and of those without a holder.
func gilLooks(t *testing.T, version, seconds string) (looks, none int) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "held")
	p := testprog.Start(t, testprog.Tool(t, version), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "hold.py"), seconds, out)
	p.Ready()
	rec := recordWhole(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .1}, func(*Session) {
		p.Go()
		p.Done()
	})
	p.Finish()
	times := heldOf(t, out)
	n := trace.NewNames(rec)
	for i := range rec.Threads {
		g := &gilLog{rec: rec, tid: rec.Threads[i].TID, held: times, t: t}
		rec.Replay(rec.Threads[i].Seq, n, g)
		looks += g.looks
		none += g.none
	}
	t.Logf("%d looks at waits for the lock, in %d without its holder; %d times of holding it", looks, none, len(times))
	return looks, none
}

// heldOf reads a program's log. It omits overlapping ranges of two threads: if a thread
// has no CPU right before its sleep while others request the lock, it gives the lock
// away without noticing.
func heldOf(t *testing.T, path string) (all []held) {
	t.Helper()
	for line := range logLines(t, path) {
		var h held
		if n, _ := fmt.Sscan(line, &h.tid, &h.from, &h.to); n != 3 {
			t.Fatalf("%q", line)
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b held) int { return int(a.from - b.from) })
	said, to := 0, stack.Time(0) // number of ranges, and their latest end
	for i, h := range all {
		alone := h.from >= to && (i+1 == len(all) || all[i+1].from >= h.to)
		if to = max(to, h.to); alone {
			all[said] = h
			said++
		}
	}
	t.Logf("%d of %d times of holding the lock contradict each other", len(all)-said, len(all))
	if said < len(all)*9/10 {
		t.Error("too many of them")
	}
	return all[:said]
}
