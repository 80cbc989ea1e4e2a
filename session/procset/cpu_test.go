package procset

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// TestCPU compares the CPU times of a set's processes with those that the kernel returned to their parents, also for
// processes that ended before they could be opened.
func TestCPU(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/cputimes", "O2")
	p := testprog.StartCmd(t, exec.Command("sh", "-c", `read x; exec "$@"`, "sh", program, "8"))
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := New(Options{Children: true, Grace: MostGrace})
	defer s.Close()
	if s.births == nil {
		testprog.Missing(t, "perf", s.left.How)
	}
	s.Take(root)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	known := map[int]int64{}
	var wg sync.WaitGroup
	wg.Go(func() { awaitEnd(root); s.Done() })
	over := make(chan struct{})
	before := testprog.Stolen(t)
	go func() {
		defer close(over)
		s.Follow(ctx, func(m Member) {
			wg.Go(func() {
				awaitEnd(m.Process)
				pid := m.Process.PID()
				m.Process.Close()
				s.Gone(pid, m.Born, true)
				ns := s.CPU(pid, m.Born)
				mu.Lock()
				known[pid] = ns
				mu.Unlock()
				s.Done()
			})
		})
	}()
	p.Say("go")
	<-over
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("the set did not end with its processes")
	}
	steal := testprog.Stolen(t) - before
	for _, l := range s.Left().Processes {
		known[l.PID] = l.CPU
	}
	truth := map[int]int64{}
	for _, line := range p.Output() {
		var pid, parent int
		var ns int64
		if n, _ := fmt.Sscanf(line, "used %d %d %d", &pid, &ns, &parent); n == 3 {
			truth[pid] += ns
			truth[parent] -= ns
		}
	}
	delete(truth, p.PID)
	if s.meters == nil {
		testprog.Missing(t, "perf", "the kernel counts no CPU time of processes with their threads")
	}
	// What a process uses behind the end of the count, and steps of /proc/stat.
	const least, step = 3e6, 2e7
	counted, sum, all := 0, int64(0), int64(0)
	for pid, want := range truth {
		ns, ok := known[pid]
		if !ok {
			t.Errorf("process %d is not in the set", pid)
		}
		if ns == 0 { // it ended before it could be counted, or had threads by then
			continue
		}
		counted, sum, all = counted+1, sum+ns, all+want
		if ns < want-least || ns > want+least+step+steal {
			t.Errorf("process %d: %d ns, the kernel's account has %d", pid, ns, want)
		}
	}
	t.Logf("%d of %d processes: %d ns, the kernel's account has %d; %d ns were stolen", counted, len(truth), sum, all, steal)
	if len(truth) != 40 || counted == 0 {
		t.Errorf("%d of %d processes were counted", counted, len(truth))
	}
	if len(s.meters) > 0 {
		t.Errorf("%d processes are still counted", len(s.meters))
	}
}

// TestYoung: a process is counted for a while only, its number may be another one's, and a set that is closed counts none.
func TestYoung(t *testing.T) {
	program := testprog.Build(t, "c/cputimes", "O2")
	s := New(Options{Children: true, Once: true})
	p := testprog.StartCmd(t, exec.Command(program, "kind", "0"))
	s.count(p.PID, 1)
	if s.meters == nil {
		testprog.Missing(t, "perf", "the kernel counts no CPU time of processes with their threads")
	}
	s.lived(p.PID, lifetime{born: 5})
	if len(s.young) != 1 || s.meters[p.PID] == nil {
		t.Fatal("it is not counted")
	}
	if s.rest(); len(s.young) != 1 {
		t.Error("it rests at once")
	}
	s.young[0].since = s.young[0].since.Add(-2 * meterFor)
	if s.rest(); len(s.young) != 0 || s.meters[p.PID] == nil {
		t.Error("it is counted for too long, or unknown")
	}
	if ns := s.CPU(p.PID, 4); ns != 0 {
		t.Errorf("another process: %d ns", ns)
	}
	if ns := s.CPU(p.PID, 5); ns < 0 || len(s.meters) != 0 {
		t.Errorf("%d ns, %d still counted", ns, len(s.meters))
	}
	s.count(p.PID, 1)
	s.count(p.PID, 1) // another one has its number
	if s.rest(); len(s.young) != 1 || len(s.meters) != 1 {
		t.Errorf("%d young, %d counted", len(s.young), len(s.meters))
	}
	s.Close()
	if s.count(p.PID, 1); len(s.meters) != 0 {
		t.Error("a closed set counts")
	}
}
