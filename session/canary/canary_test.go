package canary

//sliver:layer live unraced

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

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/target"
)

// seen is a process that is watched.
type seen struct {
	*Canary
	ops  []noted // of watchEach
	stop context.CancelFunc
	done chan error
}

// noted is one record that was passed to Options.Each.
type noted struct {
	iowatch.Event
	path string
}

// watch watches a process until end is called. Everything but waiting runs on one goroutine.
func watch(t *testing.T, pid int, set ...string) *seen {
	t.Helper()
	return watchFor(t, pid, false, set)
}

// watchEach also keeps each operation.
func watchEach(t *testing.T, pid int, set ...string) *seen {
	t.Helper()
	return watchFor(t, pid, true, set)
}

func watchFor(t *testing.T, pid int, each bool, set []string) *seen {
	t.Helper()
	rules, err := iowatch.Parse(set)
	if err != nil {
		t.Fatal(err)
	}
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	s := &seen{done: make(chan error, 1)}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	opened := make(chan error, 1)
	quit := make(chan struct{})
	go func() {
		var err error
		o := Options{Rules: rules}
		if each {
			o.Each = func(r *kernel.IORecord, path string, _ iowatch.Kind) {
				n := noted{r.Event, path}
				n.Op, n.Sums = r.Sort, nil
				s.ops = append(s.ops, n)
			}
		}
		s.Canary, err = Open(p, o)
		opened <- err
		if err != nil {
			return
		}
		s.done <- s.Run(ctx, nil)
		<-quit
		s.Canary.Close()
		p.Close()
		s.done <- nil
	}()
	if err := <-opened; Refused(err) {
		testprog.Missing(t, "bpf", err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop()
		close(quit)
		for range s.done {
			break
		}
	})
	return s
}

// end ends watching.
func (s *seen) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	// Tests of runtimes look at their stacks themselves.
	note := func(line string) bool {
		return strings.Contains(line, "operations through io_uring") || strings.Contains(line, "stacks lack frames: the memory of a runtime")
	}
	if l := slices.DeleteFunc(s.Losses(), note); len(l) > 0 {
		t.Errorf("lost: %q", l)
	}
}

// stackOf returns the functions of a stack, leaf first.
func (s *seen) stackOf(id iowatch.StackID) string {
	frames, _ := s.Stacks.Frames(uint32(id))
	var names []string
	for i := range frames {
		names = append(names, frames[i].Func)
	}
	return strings.Join(names, " ")
}

// filesTruth is the program's own account of a run: see testdata/targets/c/files.c.
type filesTruth struct {
	ops                                        int
	longest, nearest, farthest, other, busiest time.Duration
}

// filesRun runs a scenario of c/files once while it is watched. It returns the program's own account.
func filesRun(t *testing.T, set []string, scenario, path string, n, size int) (s *seen, ops int, longest time.Duration) {
	t.Helper()
	s, truth := filesTruly(t, set, scenario, path, n, size)
	return s, truth.ops, truth.longest
}

func filesTruly(t *testing.T, set []string, scenario, path string, n, size int) (s *seen, got filesTruth) {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), scenario, path, strconv.Itoa(n), strconv.Itoa(size))
	p.Ready()
	s = watch(t, p.PID, set...)
	p.Go()
	if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d %d %d %d %d", &got.ops, &got.longest, &got.nearest, &got.farthest, &got.other, &got.busiest); err != nil {
		t.Fatal(err)
	}
	p.Done()
	s.end(t)
	return s, got
}

// only returns the one finding.
func only(t *testing.T, s *seen) *iowatch.Finding {
	t.Helper()
	return single(t, s.Engine.Findings())
}

func single(t *testing.T, all []*iowatch.Finding) *iowatch.Finding {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%d findings, not 1: %+v", len(all), all)
	}
	return all[0]
}

// TestMainIO reads a file that responds after 11 and 14 ms. The main thread's reads above 13 ms are
// found, with the stacks of the open and of the read; reads of another thread are not.
func TestMainIO(t *testing.T) {
	const limit = 13 * time.Millisecond
	for _, delay := range []time.Duration{11 * time.Millisecond, 14 * time.Millisecond} {
		path := slow(t, delay)
		s, truth := filesTruly(t, []string{"main-io"}, "read", path, 3, 100)
		ops, longest := truth.ops, truth.longest
		all := ofReads(t, s, truth, limit)
		// The program's measure includes the way into the kernel and back, and waits for a CPU.
		switch {
		case len(all) > 0 && longest <= limit:
			t.Errorf("%v fires, and the program measured %v", delay, longest)
		case len(all) == 0 && delay > limit:
			t.Errorf("%v does not fire, the program measured %v", delay, longest)
		}
		if delay < limit {
			continue
		}
		f := single(t, all)
		if f.Rule != iowatch.MainIO || f.Path != path || f.Ops != uint64(ops) || f.Bytes != 300 || f.Buffer != 100 || f.First != iowatch.OpRead || f.Count&1 == 0 ||
			f.Cost < int64(3*limit) || f.Longer > int64(longest) || f.Size != 1<<20 || s.Thread(f.TID) != "files" {
			t.Errorf("%+v; the program measured %v", f, longest)
		}
		if got := s.stackOf(f.Stack); !strings.Contains(got, "opening reader main ") {
			t.Errorf("opened at %s", got)
		}
		if got := s.stackOf(f.Where); !strings.Contains(got, "reading reader main ") {
			t.Errorf("read at %s", got)
		}
		other, _, _ := filesRun(t, []string{"main-io", "loop-io"}, "thread", path, 2, 100)
		if all := other.Engine.Findings(); len(all) > 0 {
			t.Errorf("on another thread: %+v", all[0])
		}
	}
}

// ofReads returns the findings about reads. The file's server may have no CPU for a while, so that an open or
// a close takes long too; the program's own measure of these must say so.
func ofReads(t *testing.T, s *seen, truth filesTruth, limit time.Duration) (reads []*iowatch.Finding) {
	t.Helper()
	for _, f := range s.Engine.Findings() {
		switch {
		case f.Call == "":
			reads = append(reads, f)
		case truth.other <= limit || f.Longer > int64(truth.other):
			t.Errorf("%+v; the program's longest open or close took %v", f, truth.other)
		}
	}
	return reads
}

// TestLoopIO reads the same on a thread that waits in epoll.
func TestLoopIO(t *testing.T) {
	path := slow(t, 15*time.Millisecond)
	s, truth := filesTruly(t, []string{"main-io", "loop-io"}, "loop", path, 2, 100)
	if f := single(t, ofReads(t, s, truth, 13*time.Millisecond)); f.Rule != iowatch.LoopIO || !strings.Contains(s.stackOf(f.Where), "reading reader looping ") {
		t.Errorf("%+v at %s", f, s.stackOf(f.Where))
	}
}

// TestStarved: a program waits for a CPU after each read. Its reads take as long as the file does.
func TestStarved(t *testing.T) {
	const limit = 40 * time.Millisecond
	path := slow(t, time.Millisecond)
	s, truth := filesTruly(t, []string{"main-io slow=40ms"}, "starved", path, 5000, 100)
	t.Logf("longest read %v, without waits for a CPU %v", truth.longest, truth.busiest)
	if truth.longest <= limit {
		t.Fatalf("the longest read took %v: the program was never without a CPU", truth.longest)
	}
	// Between the program's two looks at its account it may get and lose the CPU once more.
	const margin = time.Millisecond
	var found *iowatch.Finding
	for _, f := range s.Engine.Findings() {
		if f.Call == "" && f.Path == path {
			found = f
		}
	}
	switch {
	case found != nil && truth.busiest+margin <= limit:
		t.Errorf("%+v; without waits for a CPU, the longest read took %v", found, truth.busiest)
	case found == nil && truth.busiest > limit+margin:
		t.Errorf("no finding; without waits for a CPU, the longest read took %v", truth.busiest)
	}
}

// TestSmallBuffer has both edges that are counts. Each read takes 4 ms, so all of them are one run
// except on a machine that has no CPU for milliseconds: the sums of the kernel decide.
func TestSmallBuffer(t *testing.T) {
	path := slow(t, 2*time.Millisecond)
	for _, c := range []struct {
		n, size int
		fires   bool
	}{{21, 4095, true}, {20, 4095, false}, {21, 4096, false}} {
		// With 8 s, a pause of the machine does not end a run.
		s, ops, _ := filesRun(t, []string{"small-buffer gap=8s"}, "read", path, c.n, c.size)
		all := s.Engine.Findings()
		if len(all) > 0 != c.fires || ops != c.n {
			t.Errorf("%+v: %d findings, %d operations", c, len(all), ops)
		}
		if c.fires && len(all) == 1 {
			if f := all[0]; f.Ops != 21 || f.Bytes != 21*4095 || !strings.Contains(s.stackOf(f.Where), "reading reader main ") {
				t.Errorf("%+v at %s", f, s.stackOf(f.Where))
			}
		}
	}
}

// TestRepeatRead reads a file again and again: 5 times, and 4.
func TestRepeatRead(t *testing.T) {
	path := slow(t, 14*time.Millisecond) // the first read makes the path a watched one
	for n, want := range map[int]int{5: 1, 4: 0} {
		// Reads take longer than 17 ms apart here.
		s, _, _ := filesRun(t, []string{"repeat-read within=20s"}, "reopen", path, n, 100)
		all := s.Engine.Findings()
		if len(all) != want {
			t.Errorf("%d times: %d findings", n, len(all))
		}
		if len(all) == 1 && (all[0].Count != 5 || !strings.Contains(s.stackOf(all[0].Stack), "opening main ")) {
			t.Errorf("%+v at %s", all[0], s.stackOf(all[0].Stack))
		}
	}
}

// TestFsync syncs a file of a real file system.
func TestFsync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	for _, c := range []struct{ n, size, want int }{{20, 100, 1}, {19, 100, 0}, {20, 64 << 10, 0}} {
		s, _, _ := filesRun(t, []string{"fsync within=60s"}, "sync", path, c.n, c.size)
		all := s.Engine.Findings()
		if len(all) != c.want {
			t.Errorf("%+v: %d findings", c, len(all))
		}
		if len(all) == 1 && (all[0].Path != path || all[0].Count != 20 || all[0].Call != "fdatasync") {
			t.Errorf("%+v", all[0])
		}
	}
}

// TestShare closes a file that three threads have read: the sums of all are there.
func TestShare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, _ := filesRun(t, nil, "share", path, 1000, 10)
	for _, f := range s.Engine.Files() {
		if f.Path == path {
			if f.Ops != 3000 || f.Got != 30000 || f.Opens != 1 || f.Open != 0 {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("%s is missing", path)
}

// TestLeak opens sockets at one place until the rule fires.
func TestLeak(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), "leak", "-", "4", "0")
	p.Ready()
	found := make(chan struct{}, 1)
	s := watch(t, p.PID, "leak age=500ms count=8")
	s.Engine.Found = func(*iowatch.Finding) { found <- struct{}{} }
	every := time.NewTicker(300 * time.Millisecond)
	defer every.Stop()
	for n := 0; ; n++ {
		if n == 200 {
			t.Fatal("no finding")
		}
		p.Go()
		select {
		case <-every.C:
			continue
		case <-found:
		}
		break
	}
	s.end(t)
	f := only(t, s)
	if f.Rule != iowatch.Leak || f.Kind != iowatch.KindSocket || f.Count < 8 || !strings.Contains(s.stackOf(f.Stack), "leaking main ") {
		t.Errorf("%+v at %s", f, s.stackOf(f.Stack))
	}
}
