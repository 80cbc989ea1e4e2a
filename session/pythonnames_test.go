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

// TestPythonAttach: Python's functions appear within the first samples of a recording.
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
			rec := recordWhole(t, p.PID, Options{Interval: 5 * time.Millisecond}, func(x *Session) {
				await(t, "some samples", func() bool { return x.Status().Total.Samples > 60 })
			})
			first := firstPython(rec)
			if first == 0 {
				t.Fatal("no function of Python")
			}
			// Samples are counted, not time: on a busy machine both come late.
			if n := samplesBefore(rec, first); n > 30 {
				t.Errorf("%d samples come before the first function of Python", n)
			}
		})
	}
}

// samplesBefore returns the number of samples of the first thread before at.
func samplesBefore(rec *trace.Recording, at stack.Time) (n int) {
	for e := range rec.Events(rec.Threads[0].Seq) {
		if e.Kind() == event.Seen && e.Time < at {
			_, k, _ := event.SeenFields(e.Payload())
			n += k
		}
	}
	return n
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
