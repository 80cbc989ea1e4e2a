package between

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

const ms = exporttest.Ms

// one builds a process that lives from born to gone (0: it does not end), both in ms; of adds its threads. Without
// exact, the kernel did not report the end.
func one(t *testing.T, pid, parent int, name string, born, gone int64, exact bool, of func(b *exporttest.Builder)) *trace.Recording {
	t.Helper()
	b := exporttest.New(t)
	b.Proc.PID, b.Proc.Parent, b.Proc.Comm, b.Proc.StartTime = pid, parent, name, exporttest.Start+stack.Time(born*ms)
	if of == nil {
		runs(b, pid, "main", born, gone)
	} else {
		of(b)
	}
	end := gone
	if gone == 0 {
		end = 1000
	}
	rec := b.Finish(end * ms)
	rec.End.Reason = "duration"
	if gone > 0 {
		rec.End.Reason = "target ended"
		if exact {
			rec.End.Gone = exporttest.Start + stack.Time(gone*ms)
		}
	}
	return rec
}

// runs adds a thread that runs from ms to ms.
func runs(b *exporttest.Builder, tid int, name string, from, to int64) {
	th := b.Thread(tid, name)
	for at := from; at < to; at += 10 {
		th.Look(exporttest.Look{At: at * ms, CPU: (at - from) * ms, Times: 1, State: stack.StateRunning, Stack: "main work"})
	}
}

// call is a wait, or a run if it is nil, of a thread until a time in ms.
type call struct {
	until int64
	wait  *trace.Wait
	// holder is the TID of the holder of a lock at this address.
	lock   uint64
	holder stack.TID
	delay  int64 // ms of the end of it for which it waited for a CPU
}

// does adds a thread that makes calls one after the other. It is sampled every 10 ms.
func does(b *exporttest.Builder, tid int, from int64, calls ...call) {
	th := b.Thread(tid, "main")
	at, cpu, delay := from, int64(0), int64(0)
	for n, c := range calls {
		for first := true; at < c.until; at += 10 {
			l := exporttest.Look{At: at * ms, CPU: cpu * ms, Delay: delay * ms, Times: uint64(n + 1), State: stack.StateRunning, Stack: "main work"}
			if c.wait != nil {
				l.State, l.Call, l.Stack = stack.StateBlocked, 62, "main waits"
				if !first {
					l.Way = stack.WayUnrun
				}
			} else {
				cpu += 10
			}
			th.Look(l)
			if c.wait != nil && first {
				th.Event(at*ms, event.Wait, b.Wait(*c.wait))
				if c.lock != 0 {
					th.Event(at*ms, event.Lock, c.lock)
				}
				if c.holder != 0 {
					th.Event(at*ms, event.Holder, event.HolderOf(c.holder, event.KnownByKernel))
				}
			}
			first = false
		}
		delay += c.delay
	}
}

func of(t *testing.T, all ...*trace.Recording) (*Between, []*view.View) {
	t.Helper()
	all[0].Others = all[1:]
	views := view.All(all[0], view.Options{})
	return Of(all[0], views), views
}

// lines describes the waits of a view.
func lines(b *Between, n int) string {
	var out []string
	for _, w := range b.Of(n) {
		s := string(w.Kind) + " for " + b.Text(&w)
		if w.Waker >= 0 {
			s += "; " + b.Woken(&w) + " by " + w.By.String()
		}
		out = append(out, s)
	}
	return strings.Join(out, "\n")
}

func check(t *testing.T, got string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("got\n%s\nwant\n%s", got, w)
	}
}

var anyChild = &trace.Wait{Kind: kind.WaitChild, Call: "wait4"}

// A parent waits for any child: each wait ends with one of them, also where two end between two samples, and one has
// no samples.
func TestChildren(t *testing.T) {
	parent := one(t, 10, 0, "make", 0, 900, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: anyChild}, call{until: 310}, call{until: 500, wait: anyChild},
			call{until: 510, wait: anyChild}, call{until: 700}, call{until: 800, wait: anyChild}, call{until: 900})
	})
	parent.Left = &trace.LeftOut{Processes: []trace.LeftProcess{
		{PID: 14, Parent: 10, Name: "as", Born: exporttest.Start + 690*ms, Gone: exporttest.Start + 795*ms},
		{PID: 15, Parent: 10, Name: "unknown", Why: "no right"}}}
	b, _ := of(t, parent, one(t, 11, 10, "cc", 90, 295, true, nil), one(t, 12, 10, "gcc", 95, 493, true, nil), one(t, 13, 10, "ld", 95, 496, true, nil),
		one(t, 20, 12, "cc1", 100, 298, true, nil))
	check(t, lines(b, 0), "child for cc (11), gcc (12), ld (13); cc (11) ended by end", "child for gcc (12), ld (13); gcc (12) ended by end",
		"child for ld (13); ld (13) ended by end", "child for as (14); as (14) ended by end")
	if w := b.Of(0)[0]; w.At != exporttest.Start+295*ms || b.Processes[w.Waker].View != 1 || w.WakerThread != 0 {
		t.Errorf("%+v", w)
	}
	if w := b.At(0, 0, b.Of(0)[3].Begin); w == nil || b.Processes[w.Waker].View != -1 || w.WakerThread != -1 {
		t.Errorf("a child without samples: %+v", w)
	}
	if b.At(0, 0, 1) != nil || b.At(7, 0, 1) != nil {
		t.Error("a wait that is not there")
	}
}

// Without the kernel's reports the last sample of a process is its end.
func TestChildrenUnreported(t *testing.T) {
	parent := one(t, 10, 0, "make", 0, 900, false, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: anyChild}, call{until: 1000, wait: anyChild})
	})
	b, _ := of(t, parent, one(t, 11, 10, "cc", 90, 290, false, nil), one(t, 12, 10, "sh", 95, 0, false, nil))
	check(t, lines(b, 0), "child for cc (11), sh (12); cc (11) ended by end", "child for sh (12)")
}

// A PID that another process had before: the wait is for the one that lives.
func TestOneChild(t *testing.T) {
	of12 := &trace.Wait{Kind: kind.WaitChild, Call: "wait4", ChildPID: 12, PeerPID: 12}
	parent := one(t, 10, 0, "sh", 0, 900, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: of12}, call{until: 500}, call{until: 700, wait: of12}, call{until: 900})
	})
	b, _ := of(t, parent, one(t, 12, 10, "old", 90, 250, true, nil), one(t, 12, 10, "new", 400, 695, true, nil), one(t, 13, 10, "other", 90, 693, true, nil))
	// old seems to end long before the wait does, but the wait is for no other process.
	check(t, lines(b, 0), "child for old (12); old (12) ended by end", "child for new (12); new (12) ended by end")
}

// make waits for a slot and for children in one call.
func TestSignal(t *testing.T) {
	slot := &trace.Wait{Kind: kind.WaitPoll, Call: "pselect6"}
	parent := one(t, 10, 0, "make", 0, 0, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: slot}, call{until: 310}, call{until: 500, wait: slot}, call{until: 510}, call{until: 800, wait: slot}, call{until: 900})
	})
	b, _ := of(t, parent, one(t, 11, 10, "cc", 90, 295, true, nil), one(t, 12, 10, "cc", 90, 494, true, nil), one(t, 13, 10, "cc", 90, 496, true, nil))
	check(t, lines(b, 0), "poll for cc (11); cc (11) ended (inferred) by inferred") // of two none is named; the last has none
}

// A pipe: the only thread of the writer that ran is named; a timeout, the end of the recording, and the process itself
// have no waker.
func TestPeers(t *testing.T) {
	pipe := func(pid int, timeout int64) *trace.Wait {
		return &trace.Wait{Kind: kind.WaitPipe, Call: "read", PeerPID: pid, Timeout: timeout * ms}
	}
	reader := one(t, 10, 0, "sort", 0, 0, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: pipe(11, 0)}, call{until: 310}, call{until: 400, wait: pipe(11, 90)}, call{until: 410},
			call{until: 500, wait: pipe(11, 0)}, call{until: 510}, call{until: 600, wait: pipe(10, 0)}, call{until: 610}, call{until: 700, wait: pipe(99, 0)}, call{until: 710},
			call{until: 1000, wait: pipe(11, 0)})
	})
	sleep := &trace.Wait{Kind: kind.WaitSleep, Call: "nanosleep"}
	b, views := of(t, reader, one(t, 11, 1, "find", 0, 0, true, func(b *exporttest.Builder) {
		does(b, 11, 0, call{until: 480, wait: sleep}, call{until: 520}, call{until: 1000, wait: sleep})
		does(b, 12, 0, call{until: 270, wait: sleep}, call{until: 320}, call{until: 490, wait: sleep}, call{until: 520}, call{until: 1000, wait: sleep})
	}))
	check(t, lines(b, 0), "pipe for find (11); find (11), thread main (12) by peer", "pipe for find (11)", "pipe for find (11); find (11) by peer", "pipe for find (11)")
	if w := b.Of(0)[0]; views[1].Threads[w.WakerThread].TID != 12 {
		t.Errorf("%+v", w)
	}
	if w := b.Of(0)[2]; w.WakerThread != -1 { // both ran
		t.Errorf("%+v", w)
	}
}

// A lock whose holder is another process, or a thread of it.
func TestHolders(t *testing.T) {
	file := &trace.Wait{Kind: kind.WaitLock, Call: "flock", Lock: kind.LockFile, File: "/x"}
	waiter := one(t, 10, 0, "a", 0, 0, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: file, holder: 11}, call{until: 310}, call{until: 400, wait: file, lock: 0x1000, holder: 12}, call{until: 410},
			call{until: 500, wait: file, holder: 77}, call{until: 510})
	})
	b, _ := of(t, waiter, one(t, 11, 0, "b", 0, 0, true, func(b *exporttest.Builder) { runs(b, 11, "main", 0, 900); runs(b, 12, "worker", 0, 900) }))
	check(t, lines(b, 0), "lock for b (11); b (11) by holder", "lock for b (11); b (11), thread worker (12) by holder")
}

// What the kernel saw is not inferred.
func TestMeasured(t *testing.T) {
	waiter := one(t, 10, 0, "a", 0, 0, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: &trace.Wait{Kind: kind.WaitIPC, Call: "semop"}}, call{until: 310})
		b.Off(10, 99*ms, 296*ms, 297*ms, trace.Waker{TID: 12, PID: 11, Name: "worker"}, 0)
	})
	b, _ := of(t, waiter, one(t, 11, 0, "b", 0, 0, true, func(b *exporttest.Builder) { runs(b, 11, "main", 0, 900); runs(b, 12, "worker", 0, 900) }))
	if got := lines(b, 0); !strings.Contains(got, "for b (11); b (11), thread worker (12) by kernel") {
		t.Errorf("got %s", got)
	}
}

// Processes that are each other's parents, and ends before beginnings.
func TestDamaged(t *testing.T) {
	a := one(t, 10, 11, "a", 0, 0, true, func(b *exporttest.Builder) { does(b, 10, 0, call{until: 100, wait: anyChild}, call{until: 300}) })
	b, _ := of(t, a, one(t, 11, 10, "b", 400, 20, true, func(b *exporttest.Builder) { runs(b, 11, "main", 0, 20) }), one(t, 12, 12, "c", 0, 0, true, nil))
	for i := range b.Waits {
		if b.Text(&b.Waits[i]) == "" {
			t.Errorf("%+v", b.Waits[i])
		}
	}
	if n := None(); n.Of(0) != nil || n.At(0, 0, 0) != nil || n.View(1, 0) != -1 {
		t.Error("an empty Between knows something")
	}
	if By(200).String() != "" || len(Ways()) != int(ByHolder) {
		t.Error("words of By")
	}
}

// A child that was made after the wait, and before the next sample, is not one that was waited for.
func TestNextChild(t *testing.T) {
	parent := one(t, 10, 0, "sh", 0, 0, true, func(b *exporttest.Builder) {
		does(b, 10, 0, call{until: 100}, call{until: 300, wait: anyChild}, call{until: 400, wait: anyChild}, call{until: 500})
	})
	b, _ := of(t, parent, one(t, 11, 10, "first", 90, 293, true, nil), one(t, 12, 10, "next", 295, 396, true, nil))
	check(t, lines(b, 0), "child for first (11); first (11) ended by end", "child for next (12); next (12) ended by end")
}
