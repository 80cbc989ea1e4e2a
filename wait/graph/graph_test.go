package graph

import (
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

func waits(tid, on stack.TID, addr uint64) Thread {
	l := &wait.Lock{Lock: lock.Lock{Kind: kind.LockMutex, Addr: addr, Basis: lock.ByLayout, Holder: lock.Holder{TID: on, By: event.KnownByWord}},
		Key: wait.Key{PID: 1, Addr: addr}}
	return Thread{PID: 1, TID: tid, Info: &wait.Info{Kind: kind.WaitLock, Lock: l}}
}

func tids(d Deadlock) (out []stack.TID) {
	for _, t := range d.Threads {
		out = append(out, t.TID)
	}
	return out
}

func TestDeadlocks(t *testing.T) {
	threads := []Thread{
		waits(12, 10, 3), waits(10, 11, 1), waits(11, 12, 2), // a cycle of three
		waits(13, 10, 3),                    // waits behind it
		waits(20, 21, 4), {PID: 1, TID: 21}, // a holder that runs
		waits(30, 30, 5), // a lock that it holds itself
		waits(40, 99, 6), // a holder outside the list
		waits(50, 0, 7),
	}
	got := Deadlocks(threads, nil)
	if len(got) != 2 || !slices.Equal(tids(got[0]), []stack.TID{10, 11, 12}) || !slices.Equal(tids(got[1]), []stack.TID{30}) {
		t.Fatalf("%+v", got)
	}
	for i, d := range got[0].Threads {
		if next := got[0].Threads[(i+1)%3].TID; d.Info.Lock.Holder.TID != next {
			t.Errorf("%d waits for %d, not %d", d.TID, d.Info.Lock.Holder.TID, next)
		}
	}
	if got[0].Timed {
		t.Error("timed")
	}
	threads[1].Info.Timeout = time.Second
	if got = Deadlocks(threads, nil); !got[0].Timed {
		t.Error("not timed")
	}
	asked := 0
	got = Deadlocks(threads, func(th *Thread) bool { asked++; return th.TID != 11 })
	if len(got) != 1 || got[0].Threads[0].TID != 30 || asked < 2 {
		t.Errorf("a circle that is not confirmed: %+v", got)
	}
}

func TestGuessesMakeNoDeadlock(t *testing.T) {
	for name, spoil := range map[string]func(*wait.Lock){
		"inferred": func(l *wait.Lock) { l.Holder.By = event.KnownByInferred },
		"likely":   func(l *wait.Lock) { l.Basis = lock.Likely },
	} {
		threads := []Thread{waits(1, 2, 1), waits(2, 1, 2)}
		if len(Deadlocks(threads, nil)) != 1 {
			t.Fatal("no deadlock to begin with")
		}
		spoil(threads[0].Info.Lock)
		if got := Deadlocks(threads, nil); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// A file lock belongs to a process: with two threads the holder is unknown.
	threads := []Thread{waits(1, 2, 1), waits(2, 1, 2)}
	threads[0].Info.Lock.Kind = kind.LockFile
	threads[1].PID = 2
	if len(Deadlocks(threads, nil)) != 1 {
		t.Error("one thread: not found")
	}
	if got := Deadlocks(append(threads, Thread{PID: 2, TID: 3}), nil); len(got) != 0 {
		t.Errorf("two threads: %+v", got)
	}
}

func TestConvoys(t *testing.T) {
	var threads []Thread
	for i := range 5 {
		threads = append(threads, waits(stack.TID(20-i), 0, 1))
	}
	threads[3].Info.Lock.Holder.TID = 77
	for i := range 6 {
		threads = append(threads, waits(stack.TID(100+i), 0, 2))
	}
	for i := range 9 {
		w := waits(stack.TID(200+i), 0, 3)
		w.Info.Lock.Kind = kind.LockCond
		threads = append(threads, w)
	}
	threads = append(threads, waits(300, 0, 4))
	got := Convoys(threads, 5)
	if len(got) != 2 || len(got[0].Waiters) != 6 || len(got[1].Waiters) != 5 {
		t.Fatalf("%+v", got)
	}
	if got[1].Lock.Holder.TID != 77 || got[1].Waiters[0].TID != 16 {
		t.Errorf("%+v", got[1])
	}
	if len(Convoys(threads, 6)) != 1 {
		t.Error("the limit does not hold")
	}
}
