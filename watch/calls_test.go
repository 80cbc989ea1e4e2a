package watch

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/control"
)

// countable skips where the kernel lets nobody count calls here.
func countable(t *testing.T, p *testprog.Proc) {
	t.Helper()
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	c, err := proc.CountCalls(stack.TID(p.PID), 0x1000)
	if err != nil {
		testprog.Lack(t, "breakpoints", err.Error())
	}
	c.Close()
}

// A call of a function that does nothing, and that no sample would meet, fires
// once each time; one that is called all the time is left to the samples, and the
// program runs on.
func TestMarkerCalled(t *testing.T) {
	p := trouble(t)
	countable(t, p)
	r := begin(t, fixed(t, p.PID), nil, "call empty_marker,cool=0s,threads=worker-*")
	r.samples(100)
	// Its tables are read first: until then calls are not counted.
	r.until("for the first call that is counted", func(s *control.Status) bool {
		p.Say("touch")
		p.Line("touch")
		return s.Fired > 0
	})
	r.samples(r.Status().Targets[0].Samples + 100)
	first := r.Status().Fired
	for n := first + 1; n <= first+3; n++ {
		p.Say("touch")
		p.Line("touch")
		s := r.until("for the marker", func(s *control.Status) bool {
			// A file that was just written is listed before more is known of it.
			return s.Fired >= n && len(s.Dumps) >= n && s.Dumps[len(s.Dumps)-1].Text != ""
		})
		d := s.Dumps[len(s.Dumps)-1]
		if d.Reason != "call" || !strings.Contains(d.Text, "calls empty_marker") || !strings.Contains(d.Text, "worker-") || s.Fired != n {
			t.Fatalf("%+v", s)
		}
		rec := open(t, d.Files[0])
		if marks := look(rec, rec.Triggers[0].TID, "").marks; len(marks) != 1 {
			t.Errorf("marks %v", marks)
		}
		r.samples(s.Targets[0].Samples + 100)
	}
	if s := r.Status(); s.Fired != first+3 {
		t.Errorf("fired %d times for 3 calls", s.Fired-first)
	}
}

// A function that is called thousands of times a second is no marker: it is
// counted for a moment only.
func TestCalledTooOften(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "60", "--wait-go")
	p.Ready()
	p.Go()
	countable(t, p)
	r := begin(t, fixed(t, p.PID), nil, "call clock_gettime")
	r.until("for its count to be given up", func(s *control.Status) bool { return s.Fired == 1 })
	cost := func() float64 { // CPU time that the program has in the kernel, where the breakpoints are served
		var in, out float64
		for range 2 {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
			if err != nil {
				t.Fatal(err)
			}
			st, err := target.ParseStat(b)
			if err != nil {
				t.Fatal(err)
			}
			in, out = out, float64(st.STime)
			r.samples(r.Status().Targets[0].Samples + 50)
		}
		return out - in
	}
	if ticks := cost(); ticks > 30 { // of the 100 in the second of these samples
		t.Errorf("it is still counted: %v ticks in the kernel", ticks)
	}
}
