package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/web/client"
)

// pageAnalysis is what a page's panel shows, as far as these tests read it.
type pageAnalysis struct {
	Process   string
	Processes int
	Of        int
	Report    report.Report
	Threads   []struct {
		Seq int
		CPU int64
	}
}

func (s *served) analysis(q client.Query) (a pageAnalysis) {
	s.t.Helper()
	q.Op = "analysis"
	if err := s.client().Ask(s.t.Context(), q, &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// until waits for a condition of the page.
func (s *served) until(what string, is func() bool) {
	s.t.Helper()
	for begin := time.Now(); !is(); <-time.After(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			s.t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (s *served) info() *client.Info {
	s.t.Helper()
	in, err := s.client().Info(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return in
}

// TestPageOfCommand: the live page of a command has all processes that it starts, those that come later
// without another connection, and their ends. Its numbers are those of the report for each process.
func TestPageOfCommand(t *testing.T) {
	testprog.Whole(t, "TestPageOfProcesses has processes that come")
	dir, first, kid := family(t)
	s := serve(t, dir, nil, "record", "-i", "2ms", "--max-overhead", "0", "-o", "x.sliver", "--web", "--", first, "400", "3", kid)
	w, err := s.client().Watch(t.Context(), client.View{Follow: true, T0: -1e18, Bin: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	rows := map[uint32]bool{} // threads with calls
	for w.Status == nil || !w.Status.Done {
		f, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range f.Threads {
			if len(th.Rows) > 0 {
				rows[th.Seq] = true
			}
		}
	}
	for _, name := range []string{"burn_first", "burn_fork", "burn_exec", "burn_chain", "burn_daemon"} {
		s.until("the name "+name, func() bool { return s.knows(name) })
	}
	s.until("the recording is complete", func() bool { _, err := os.Stat(filepath.Join(dir, "x.sliver")); return err == nil })
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	byPID := map[int]int{}
	for i, p := range w.Processes {
		byPID[p.PID] = i
		if !p.Ended {
			t.Errorf("process %+v has not ended", p)
		}
	}
	threads := map[int][]int{} // by process
	for _, th := range w.Status.Threads {
		threads[th.Process] = append(threads[th.Process], th.Seq)
		if !th.Ended {
			t.Errorf("thread %+v has not ended", th)
		}
	}
	whole := s.analysis(client.Query{})
	sum := int64(0)
	for _, one := range rec.All() {
		p := &one.Process
		i, ok := byPID[p.PID]
		if !ok || w.Processes[i].Comm != p.Comm || w.Processes[i].Parent != p.Parent {
			t.Errorf("the page has %+v for process %d, %s, of %d", w.Processes, p.PID, p.Comm, p.Parent)
			continue
		}
		if len(threads[i]) != len(one.Threads) || !rows[uint32(threads[i][0])] {
			t.Errorf("process %d: threads %v with calls %v, want %d", p.PID, threads[i], rows, len(one.Threads))
		}
		r := sliver(t, dir, "report", "x.sliver", "--process", fmt.Sprint(p.PID), "--json", "-n", "200")
		var want report.Report
		if err := json.Unmarshal([]byte(r.out), &want); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		got := s.analysis(client.Query{Threads: threads[i]})
		if got.Process != fmt.Sprintf("%s (%d)", p.Comm, p.PID) || got.Of != len(w.Processes) {
			t.Errorf("the analysis is of %q, one of %d", got.Process, got.Of)
		}
		if a, b := jsonText(t, got.Report.OnCPU), jsonText(t, want.OnCPU); a != b {
			t.Errorf("process %d: functions %s, the report has %s", p.PID, a, b)
		}
		if a, b := jsonText(t, got.Report.Threads), jsonText(t, want.Threads); a != b {
			t.Errorf("process %d: threads %s, the report has %s", p.PID, a, b)
		}
		for _, f := range want.OnCPU {
			sum += f.Self
		}
	}
	for _, f := range whole.Report.OnCPU {
		sum -= f.Self
	}
	if whole.Processes != len(rec.All()) || math.Abs(float64(sum)) > 1000 || len(whole.Threads) < len(rec.All()) {
		t.Errorf("the analysis of all has %d processes and %d threads, and misses %d ns", whole.Processes, len(whole.Threads), sum)
	}
	w.Close()
	if rest, err := s.cmd.Process.Wait(); err != nil || rest.ExitCode() != 7 {
		t.Errorf("%v, %v", rest, err)
	}
}

func jsonText(t *testing.T, x any) string {
	t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPageOfProcesses: the page of given processes, with their children or by name, controls all of them, and
// shows those that are left out. An export of some threads has those alone.
func TestPageOfProcesses(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/spin", "O2")
	dir := t.TempDir()
	named := filepath.Join(dir, "pagespin")
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(named, b, 0o755); err != nil {
		t.Fatal(err)
	}
	start := func() *testprog.Proc { return testprog.Start(t, named, "--seconds", "300") }
	one, two := start(), start()
	s := serve(t, dir, nil, "record", "--name", "pagespin", "--max-processes", "3", "-i", "5ms", "--max-overhead", "0", "-o", "x.sliver", "--web")
	pids := func() (out []int) {
		for _, p := range s.info().Processes {
			out = append(out, p.PID)
		}
		return out
	}
	s.until("two processes", func() bool { return len(pids()) == 2 })
	three := start()
	s.until("the third", func() bool { return slices.Contains(pids(), three.PID) })
	four := start()
	s.until("the fourth is left out", func() bool {
		st := s.status()
		return st.Recording != nil && strings.Contains(s.losses(), fmt.Sprintf("pagespin (%d)", four.PID)) && strings.Contains(s.losses(), "max-processes")
	})
	if got := pids(); !slices.Contains(got, one.PID) || !slices.Contains(got, two.PID) || slices.Contains(got, four.PID) {
		t.Errorf("processes %v", got)
	}
	counts := func() map[int]uint64 { // samples by process
		out := map[int]uint64{}
		for _, th := range s.status().Threads {
			out[th.Process] += th.Samples
		}
		return out
	}
	s.until("samples of each", func() bool {
		c := counts()
		return c[0] > 20 && c[1] > 20 && c[2] > 20
	})
	c := s.client()
	if err := c.Control(t.Context(), "pause", nil); err != nil {
		t.Fatal(err)
	}
	s.until("no more samples", func() bool {
		a := counts()
		<-time.After(200 * time.Millisecond) // 40 intervals
		return fmt.Sprint(a) == fmt.Sprint(counts())
	})
	was := counts()
	if err := c.Control(t.Context(), "resume", nil); err != nil {
		t.Fatal(err)
	}
	s.until("samples of each again", func() bool {
		c := counts()
		return c[0] > was[0]+5 && c[1] > was[1]+5 && c[2] > was[2]+5
	})
	if err := c.Control(t.Context(), "threads", map[string]any{"threads": "nobody"}); err == nil || !strings.Contains(err.Error(), "no thread matches") {
		t.Errorf("threads that no process has: %v", err)
	}
	if err := c.Control(t.Context(), "threads", map[string]any{"threads": "main"}); err != nil {
		t.Error(err)
	}
	if err := c.Control(t.Context(), "interval", map[string]any{"interval_ns": 2_000_000}); err != nil {
		t.Error(err)
	}
	if st := s.status(); st.Recording.Interval != 2*time.Millisecond || st.Recording.Threads != "main" {
		t.Errorf("%+v", st.Recording)
	}
	was = counts()
	s.until("samples of each with other settings", func() bool {
		c := counts()
		return c[0] > was[0]+5 && c[1] > was[1]+5 && c[2] > was[2]+5
	})
	rolling := s.analysis(client.Query{})
	if rolling.Processes != 3 || rolling.Of != 3 || len(rolling.Report.OnCPU) == 0 {
		t.Errorf("%d of %d processes are analyzed", rolling.Processes, rolling.Of)
	}
	// The last process: its own threads alone.
	var own []int
	for _, th := range s.status().Threads {
		if th.Process == 2 {
			own = append(own, th.Seq)
		}
	}
	folded := string(s.download(client.Part{Format: "collapsed", Threads: own}))
	if !strings.Contains(folded, "main") {
		t.Errorf("the export has %.300s", folded)
	}
	part := filepath.Join(dir, "part.pb.gz")
	if err := os.WriteFile(part, s.download(client.Part{Format: "pprof", Threads: own}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range readProfile(t, part).Sample {
		if x.NumLabel["pid"][0] != int64(three.PID) {
			t.Fatalf("the export of the threads of %d has a sample of %d", three.PID, x.NumLabel["pid"][0])
		}
	}
	two.Kill()
	s.until("an end", func() bool { return s.info().Processes[slices.Index(pids(), two.PID)].Ended })
	if in := s.info(); in.Processes[slices.Index(pids(), one.PID)].Ended || slices.Contains(in.Control, "start") {
		t.Errorf("%+v", in)
	}
	s.interrupt()
	for _, p := range []*testprog.Proc{one, three, four} {
		checkFree(t, p.PID)
	}
}

// losses returns the losses that the page shows.
func (s *served) losses() string {
	s.t.Helper()
	var st struct{ Status struct{ Losses string } }
	if err := s.client().Ask(s.t.Context(), client.Query{Op: "status"}, &st); err != nil {
		s.t.Fatal(err)
	}
	return st.Status.Losses
}
