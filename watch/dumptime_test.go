package watch

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
)

// A dump of 64 threads is on disk within 300 ms, with its names, and costs no sample: while dumps are
// made, no more ticks are late than in equally long times right before or after, in a random order.
// With SLIVER_LONG=1 it covers 30 seconds, with enough pairs of times to estimate the largest
// possible difference; otherwise a few, with -short two. On a busy machine the times are meaningless.
// The long form compares them with a limit that is scaled by the slowdown of a thread that only
// computes.
func TestDumpInTime(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	lasts, pairs, long := 3*time.Second, 5, os.Getenv("SLIVER_LONG") != ""
	if long {
		lasts, pairs = 32*time.Second, 60
	} else if testing.Short() {
		pairs = 2
	}
	p := testprog.Start(t, testprog.Build(t, "c/requests", "O2"), "64", "12600")
	r := begin(t, fixed(t, p.PID), func(o *Options) { o.Session.Groups, o.Store.Max = 5, 8 })
	r.samples(1)
	r.until("for so long a time to be kept", func(s *control.Status) bool { return time.Since(s.Targets[0].Since) > lasts })
	var all, late [2]uint64
	var took []float64
	var files []string
	// window waits for some samples and returns the percentage of ticks that were late.
	window := func(which int) float64 {
		s := r.Status().Targets[0]
		if which == 1 {
			ds, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			d := ds[0]
			if d.Threads != 65 || d.Seconds < lasts.Seconds()-2.5 || long && d.Seconds < 29 {
				t.Errorf("a dump of %d threads and %.1f s", d.Threads, d.Seconds)
			}
			took = append(took, d.Named)
			files = append(files, d.Files[0])
		}
		r.samples(s.Samples + 65*16)
		e := r.Status().Targets[0]
		n, missed := e.Samples+e.Late-s.Samples-s.Late, e.Late-s.Late
		all[which], late[which] = all[which]+n, late[which]+missed
		return share(missed, n)
	}
	var slower, more []float64
	for range pairs {
		slower = append(slower, busy())
		first := rand.IntN(2)
		var got [2]float64
		got[first] = window(first)
		got[1-first] = window(1 - first)
		more = append(more, got[1]-got[0])
	}
	for i, f := range files {
		if i >= len(files)-5 { // the earlier ones are gone
			open(t, f)
		}
	}
	slices.Sort(took)
	slices.Sort(slower)
	mean, err := meanOf(more)
	t.Logf("%d bytes of rings: whole after %.1f ms (median of %d; %.1f to %.1f), where work takes %.1f times as long as it should; "+
		"late %.2f%%, without dumps %.2f%%; in pairs of times %+.2f %% ± %.2f (standard error)",
		r.Status().Targets[0].Bytes, took[pairs/2], pairs, took[0], took[pairs-1], slower[pairs/2], share(late[1], all[1]), share(late[0], all[0]), mean, err)
	if long && took[pairs/2] > 300*slower[pairs/2] {
		t.Error("a dump takes too long")
	}
	if long && mean > 1+2*err {
		t.Error("a dump costs samples")
	}
}

// meanOf returns the mean of the values and its standard error.
func meanOf(v []float64) (mean, err float64) {
	n := float64(len(v))
	for _, x := range v {
		mean += x / n
	}
	for _, x := range v {
		err += (x - mean) * (x - mean) / (n - 1) / n
	}
	return mean, math.Sqrt(err)
}

// busy returns the slowdown of some 30 ms of work compared with an idle machine.
func busy() (factor float64) {
	const work = 30 * time.Millisecond
	background.Urgent(func() {
		begin, x := time.Now(), uint64(1)
		for from := used(); used()-from < work; {
			for range 100_000 {
				x = x*6364136223846793005 + 1
			}
		}
		factor = max(1, float64(time.Since(begin))/float64(work))
	})
	return factor
}

// used returns the CPU time of the calling thread.
func used() time.Duration {
	b, err := os.ReadFile("/proc/thread-self/schedstat")
	ns, _, _ := strings.Cut(string(b), " ")
	n, e := strconv.ParseInt(ns, 10, 64)
	if err = errors.Join(err, e); err != nil {
		panic(err)
	}
	return time.Duration(n)
}

// share returns a percentage.
func share(part, of uint64) float64 { return 100 * float64(part) / float64(max(of, 1)) }
