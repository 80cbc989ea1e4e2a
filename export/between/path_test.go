package between

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/kind"
)

// lived is a Between of processes without samples. Their times are in ms.
func lived(slack stack.Time, ps ...Process) *Between {
	b := &Between{Processes: ps, slack: slack, byPID: map[int][]int{}}
	for i := range ps {
		ps[i].View, ps[i].Born, ps[i].Gone = -1, ps[i].Born*ms, ps[i].Gone*ms
	}
	b.relate()
	return b
}

// path describes a path by lines "name from..to for waiter (how)", and checks that its steps have no gap.
func path(t *testing.T, b *Between, base, to stack.Time) string {
	t.Helper()
	var out []string
	steps, more, sums := b.Path(base, base+to*ms)
	sum := stack.Time(0)
	for i, s := range steps {
		if s.Begin >= s.End || i > 0 && steps[i-1].End != s.Begin {
			t.Errorf("step %+v after %+v", s, steps[max(i-1, 0)])
		}
		line := fmt.Sprintf("%s %d..%d", b.Processes[s.Process].Name, (s.Begin-base)/ms, (s.End-base)/ms)
		if s.Waiter >= 0 {
			line += fmt.Sprintf(" for %s (%s)", b.Processes[s.Waiter].Name, s.How)
		}
		out, sum = append(out, line), sum+s.End-s.Begin
	}
	for _, n := range sums {
		sum -= n
	}
	if sum != 0 || more != 0 {
		t.Errorf("the sums differ by %d from the steps, %d more", sum, more)
	}
	return strings.Join(out, "\n")
}

// make -j2 of three files without a sample: a and b begin together, c when a has ended, then a linker.
func TestPathOfLives(t *testing.T) {
	b := lived(0, Process{PID: 1, Name: "make", Gone: 100, Exact: true},
		Process{PID: 2, Parent: 1, Name: "gcc-a", Born: 5, Gone: 38, Exact: true}, Process{PID: 3, Parent: 2, Name: "cc1-a", Born: 6, Gone: 36, Exact: true},
		Process{PID: 4, Parent: 1, Name: "gcc-b", Born: 5, Gone: 50, Exact: true}, Process{PID: 5, Parent: 4, Name: "cc1-b", Born: 6, Gone: 49, Exact: true},
		Process{PID: 6, Parent: 1, Name: "gcc-c", Born: 40, Gone: 90, Exact: true}, Process{PID: 7, Parent: 6, Name: "cc1-c", Born: 41, Gone: 88, Exact: true},
		Process{PID: 8, Parent: 1, Name: "ld", Born: 92, Gone: 98, Exact: true}, Process{PID: 9, Name: "stranger", Gone: 100, Exact: true})
	check(t, path(t, b, 0, 100), "make 0..5 for gcc-a (started)", "gcc-a 5..6 for cc1-a (started)", "cc1-a 6..36 for gcc-a (lives)", "gcc-a 36..38 for make (lives)",
		"make 38..40 for gcc-c (started)", "gcc-c 40..41 for cc1-c (started)", "cc1-c 41..88 for gcc-c (lives)", "gcc-c 88..90 for make (lives)",
		"make 90..92 for ld (started)", "ld 92..98 for make (lives)", "make 98..100")
}

// Ends that are known to two intervals: one that seems to be after the beginning of the next process was waited for.
func TestPathSlack(t *testing.T) {
	b := lived(5*ms, Process{PID: 1, Name: "make", Gone: 100}, Process{PID: 2, Parent: 1, Name: "cc", Born: 5, Gone: 62}, Process{PID: 3, Parent: 1, Name: "ld", Born: 60, Gone: 101})
	check(t, path(t, b, 0, 100), "make 0..5 for cc (started)", "cc 5..60 for make (lives)", "ld 60..100 for make (lives)")
}

// Damaged recordings: parents in a circle, a process that is its own parent, lives that end before they begin, equal
// PIDs.
func TestPathOfAnything(t *testing.T) {
	for _, ps := range [][]Process{
		nil,
		{{PID: 1, Parent: 1, Gone: 10}},
		{{PID: 1, Parent: 2, Gone: 10}, {PID: 2, Parent: 1, Gone: 9}},
		{{PID: 1, Parent: 2, Born: 4, Gone: 10}, {PID: 2, Parent: 1, Born: 4, Gone: 9}},
		{{PID: 1, Born: 10, Gone: 5}, {PID: 2, Parent: 1, Born: 7, Gone: 6}},
		{{PID: 1, Gone: 10}, {PID: 2, Parent: 1, Born: 1, Gone: 9}, {PID: 2, Parent: 2, Born: 2, Gone: 8}, {PID: 2, Parent: 1, Born: 0, Gone: 1}},
	} {
		path(t, lived(3*ms, ps...), 0, 10)
		path(t, lived(0, ps...), 0, 20)
	}
}

// gen | gzip: the lives of both are equally long. gzip waits for gen first, then gen for gzip, until it ends; gzip does the
// rest.
func TestPathOfPipeline(t *testing.T) {
	from := func(pid int) *trace.Wait { return &trace.Wait{Kind: kind.WaitPipe, Call: "read", PeerPID: pid} }
	sh := one(t, 10, 0, "sh", 0, 1000, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 10}, call{until: 990, wait: anyChild}, call{until: 1000})
	})
	gen := one(t, 11, 10, "gen", 10, 900, true, func(b *exporttest.Builder) {
		does(b, 11, 10, call{until: 500}, call{until: 700, wait: from(12)}, call{until: 900})
	})
	gzip := one(t, 12, 10, "gzip", 10, 985, true, func(b *exporttest.Builder) {
		does(b, 12, 10, call{until: 20}, call{until: 480, wait: from(11)}, call{until: 880}, call{until: 900, wait: from(11)}, call{until: 980})
	})
	b, _ := of(t, sh, gen, gzip)
	check(t, path(t, b, exporttest.Start, 1000), "sh 0..10 for gen (started)", "gen 10..480 for gzip (peer)", "gzip 480..700 for gen (peer)",
		"gen 700..900 for gzip (peer)", "gzip 900..985 for sh (end)", "sh 985..1000")
}

// A process that is busy when its child ends did not wait for it; one that sees the end of a long life alone did.
func TestPathPassesBusy(t *testing.T) {
	first := one(t, 10, 0, "first", 0, 1000, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 400}, call{until: 600, wait: anyChild}, call{until: 1000})
	})
	b, _ := of(t, first, one(t, 11, 10, "waited", 100, 595, true, nil), one(t, 12, 10, "unwaited", 100, 800, true, nil), one(t, 13, 10, "during", 100, 500, true, nil))
	check(t, path(t, b, exporttest.Start, 1000), "first 0..100 for waited (started)", "waited 100..595 for first (end)", "first 595..1000")
}

// A process that waits for a child gets a CPU long after the child's end: it was woken at once, unless it did not wait for a CPU.
func TestPathWokenLate(t *testing.T) {
	for _, c := range []struct {
		delay int64
		want  []string
	}{
		{85, []string{"first 0..100 for kid (started)", "kid 100..500 for first (lives)", "first 500..1000"}},
		{10, []string{"first 0..1000"}},
	} {
		first := one(t, 10, 0, "first", 0, 1000, true, func(b *exporttest.Builder) {
			does(b, 10, 0, call{until: 400}, call{until: 600, wait: anyChild, delay: c.delay}, call{until: 1000})
		})
		b, _ := of(t, first, one(t, 11, 10, "kid", 100, 500, true, nil))
		check(t, path(t, b, exporttest.Start, 1000), c.want...)
	}
}

// A child whose end is reported before the wait for it was seen to begin: its step does not last longer than it lived.
func TestPathEndBeforeWait(t *testing.T) {
	first := one(t, 10, 0, "first", 0, 1000, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 400}, call{until: 410, wait: anyChild}, call{until: 1000})
	})
	b, _ := of(t, first, one(t, 11, 10, "kid", 100, 395, true, nil))
	check(t, path(t, b, exporttest.Start, 1000), "first 0..100 for kid (started)", "kid 100..395 for first (end)", "first 395..1000")
}

// Two makes share two slots: the second one waits for a slot until a job of the first one ends.
func TestPathOfSlots(t *testing.T) {
	slot := &trace.Wait{Kind: kind.WaitPoll, Call: "pselect6"}
	top := one(t, 10, 0, "make", 0, 1000, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 10}, call{until: 990, wait: anyChild}, call{until: 1000})
	})
	a := one(t, 11, 10, "make", 10, 420, true, func(b *exporttest.Builder) {
		does(b, 11, 10, call{until: 20}, call{until: 410, wait: anyChild}, call{until: 420})
	})
	c := one(t, 12, 10, "make", 10, 985, true, func(b *exporttest.Builder) {
		does(b, 12, 10, call{until: 20}, call{until: 410, wait: slot}, call{until: 420}, call{until: 970, wait: anyChild}, call{until: 980})
	})
	b, _ := of(t, top, a, c, one(t, 20, 11, "cc-a", 20, 405, true, nil), one(t, 21, 12, "cc-c", 415, 965, true, nil))
	check(t, path(t, b, exporttest.Start, 1000), "make 0..10 for make (started)", "make 10..20 for cc-a (started)", "cc-a 20..405 for make (inferred)",
		"make 405..415 for cc-c (started)", "cc-c 415..965 for make (end)", "make 965..985 for make (end)", "make 985..1000")
}

// The main thread waits for a lock that a worker holds, which waits for a child.
func TestPathThroughThreads(t *testing.T) {
	lock := &trace.Wait{Kind: kind.WaitLock, Call: "futex", Lock: kind.LockMutex}
	first := one(t, 10, 0, "first", 0, 900, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 700, wait: lock, lock: 0x1000, holder: 11}, call{until: 900})
		does(b, 11, 0, call{until: 200}, call{until: 600, wait: anyChild}, call{until: 900})
	})
	b, _ := of(t, first, one(t, 20, 10, "kid", 150, 595, true, nil))
	check(t, path(t, b, exporttest.Start, 900), "first 0..150 for kid (started)", "kid 150..595 for first (end)", "first 595..900")
}
