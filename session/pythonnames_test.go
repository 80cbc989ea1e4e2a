package session

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestPythonThreads: threads are selected and shown by their names in Python.
func TestPythonThreads(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, v := range pythons {
		t.Run(v.version, func(t *testing.T) {
			if testing.Short() && !v.always {
				t.Skip("the short form takes some versions only")
			}
			p := testprog.Start(t, testprog.Tool(t, v.version), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py"), "recursion", "objects", "matching")
			p.Ready()
			p.Go()
			p.Line("busy")
			sel, err := sampler.ParseSelection("rec*,/^match/")
			if err != nil {
				t.Fatal(err)
			}
			rec := recordWith(t, p.PID, Options{Interval: 5 * time.Millisecond, Selection: sel}, func(s stack.ThreadStats) bool { return s.Samples > 50 })
			tp, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer tp.Close()
			all, err := Threads(tp)
			if err != nil || !slices.ContainsFunc(all, func(in stack.ThreadInfo) bool { return in.Name == "objects" && in.Comm != "" }) {
				t.Errorf("threads %+v: %v", all, err)
			}
			var names []string
			for i := range rec.Threads {
				names = append(names, rec.Threads[i].Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, []string{"matching", "recursion"}) {
				t.Errorf("threads %q", names)
			}
		})
	}
}

// TestPythonAttach: Python's functions must appear within 150 ms from the start of a
// recording.
func TestPythonAttach(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, v := range pythons {
		t.Run(v.version, func(t *testing.T) {
			if testing.Short() && !v.always {
				t.Skip("the short form takes some versions only")
			}
			p := testprog.Start(t, testprog.Tool(t, v.version), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py"), "objects")
			p.Ready()
			p.Go()
			p.Line("busy")
			best := time.Hour // of a few tries: other programs use the machine too
			for range 5 {
				var s *Session
				rec := recordWhole(t, p.PID, Options{Interval: 5 * time.Millisecond}, func(x *Session) {
					s = x
					await(t, "some samples", func() bool { return x.Status().Total.Samples > 20 })
				})
				first := firstPython(rec)
				if first == 0 {
					t.Fatal("no function of Python")
				}
				if best = min(best, time.Duration(first-s.opened)); best <= 150*time.Millisecond {
					return
				}
			}
			t.Errorf("the first function of Python comes after %v", best)
		})
	}
}

// firstPython returns the time of the first sample in a function of Python; 0: none.
func firstPython(rec *trace.Recording) (at stack.Time) {
	for i := range rec.Threads {
		for e := range rec.Events(rec.Threads[i].Seq) {
			if k := e.Kind(); (k == event.Enter || k == event.Move) && event.Word(e.Payload()).Kind() == stack.KindPython && (at == 0 || e.Time < at) {
				at = e.Time
			}
		}
	}
	return at
}
