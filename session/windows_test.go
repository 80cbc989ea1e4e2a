package session

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// TestWindows: a reader of windows gets all processes, also those that have ended since the last window, in recordings
// of a bounded number, with their names.
func TestWindows(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	var open []*target.Process
	for range 5 {
		o, err := target.Open(testprog.Start(t, testprog.Build(t, "c/spin", "O2"), "--seconds", "3600").PID)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, o)
	}
	set := procset.New(procset.Options{})
	defer set.Close()
	members := set.Take(open...)
	defer open[0].Close()
	s, err := New(open[0], Options{Interval: 2 * time.Millisecond, Set: set, First: members[1:]})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { _, err := s.Run(ctx); over <- err }()
	// window returns how many samples each process has from a time on, by PID; -1: without the program's names.
	window := func(from stack.Time, most int) map[int]int {
		out := map[int]int{}
		failed := s.Windows(from, most, func(rec *trace.Recording) {
			if k := len(rec.All()); k > most {
				t.Errorf("%d processes, at most %d", k, most)
			}
			for _, one := range rec.All() {
				if _, twice := out[one.Process.PID]; twice {
					t.Errorf("process %d is there twice", one.Process.PID)
				}
				n := 0
				for _, th := range one.Threads {
					for e := range one.Events(th.Seq) {
						if e.Time >= from {
							n++
						}
					}
				}
				if n > 0 && !slices.ContainsFunc(one.Symbols.Funcs, func(f trace.Func) bool { return f.Name == "spin_0" }) {
					n = -1
				}
				out[one.Process.PID] = n
			}
		})
		if len(failed) > 0 {
			t.Fatal(failed)
		}
		return out
	}
	whole := func(w map[int]int, pids ...int) bool {
		for _, pid := range pids {
			if w[pid] < 3 {
				return false
			}
		}
		return true
	}
	var pids []int
	for _, o := range open {
		pids = append(pids, o.PID())
	}
	await(t, "all processes in a window", func() bool { return whole(window(0, 2), pids...) })
	if w := window(0, 5); len(w) != 5 {
		t.Errorf("%v", w)
	}
	// One that ends during a window is in it, and in none of the later ones.
	from := target.Now()
	if err := syscall.Kill(pids[3], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", func() bool { return s.Status().Processes == 4 })
	w := window(from, 2)
	if _, ok := w[pids[3]]; !ok || len(w) != 5 {
		t.Errorf("the window in which process %d ended has %v", pids[3], w)
	}
	from = target.Now()
	await(t, "a later window", func() bool { return whole(window(from, 3), pids[0], pids[1], pids[2], pids[4]) })
	if w := window(from, 2); len(w) != 4 {
		t.Errorf("without process %d: %v", pids[3], w)
	}
	// The first one stays, without samples.
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the first one's end", func() bool { return s.Status().Processes == 3 })
	from = target.Now()
	await(t, "a window without it", func() bool { return whole(window(from, 2), pids[1], pids[2], pids[4]) })
	if bytes, n := s.Size(); bytes <= 0 || n != 5 {
		t.Errorf("%d bytes, %d processes", bytes, n)
	}
	cancel()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if failed := s.Windows(0, 2, func(*trace.Recording) {}); len(failed) > 0 {
		t.Error(failed)
	}
	s.Close()
	if failed := s.Windows(0, 2, func(*trace.Recording) {}); len(failed) != 1 || failed[0] != ErrOver {
		t.Errorf("after the end: %v", failed)
	}
}
