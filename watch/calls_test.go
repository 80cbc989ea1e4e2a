package watch

//sliver:layer live

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

// countable skips the test if the kernel does not permit counting calls here.
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

// A function that does nothing, and that no sample would find, fires the rule at each
// call. A function that is called all the time is left to samples, and the program
// continues.
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
			// A new file is listed before its details are known.
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

// A function that is called thousands of times a second is not a marker: it is counted
// only for a moment.
func TestCalledTooOften(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "60", "--wait-go")
	p.Ready()
	p.Go()
	countable(t, p)
	r := begin(t, fixed(t, p.PID), nil, "call clock_gettime")
	r.until("for its count to be given up", func(s *control.Status) bool { return s.Fired == 1 })
	cost := func() float64 { // the program's CPU time in the kernel, which serves the breakpoints
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
