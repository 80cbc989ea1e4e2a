package session

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/lang/python"
	"github.com/sliverprof/sliver/lang/v8"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestFirstManaged checks the time from attaching to the first sample with a function
// of Python or Java (150 ms at most) or JavaScript (500 ms), at 100 Hz. On a busy
// machine the fastest of some tries decides.
func TestFirstManaged(t *testing.T) {
	testprog.Whole(t, "a time, for which the fastest of several starts decides")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	type one struct {
		tool  string
		args  []string
		kind  stack.Kind
		most  time.Duration
		short bool
	}
	root := testprog.Root(t)
	var all []one
	for _, v := range pythons {
		all = append(all, one{v.version, []string{filepath.Join(root, "testdata", "targets", "python", "busy.py"), "recursion"}, stack.KindPython, 150 * time.Millisecond, v.always})
	}
	for i, v := range nodes {
		all = append(all, one{v, []string{nodeTarget(t, "busy.js"), "recursion"}, stack.KindJS, 500 * time.Millisecond, i == 0})
	}
	for _, v := range []string{"java17", "java21", "java25"} {
		all = append(all, one{v, []string{"-Xmx64m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "Work"), "Work", "recursion"}, stack.KindJava, 150 * time.Millisecond, v == "java17"})
	}
	tries := 3
	if long() {
		tries = 15
	}
	for _, x := range all {
		t.Run(x.tool, func(t *testing.T) {
			if !x.short && !long() {
				t.Skip("the short form takes some versions only")
			}
			p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, x.tool), x.args...))
			if x.kind != stack.KindJava {
				p.Ready()
				p.Go()
			}
			p.Line("busy")
			var took []time.Duration
			for try := 0; try < tries || try < 15 && len(took) > 0 && slices.Min(took) > x.most; try++ {
				begun := target.Now()
				rec := recordWhole(t, p.PID, Options{}, func(s *Session) {
					await(t, "its functions", func() bool {
						return python.Of(s.live.Space()) != nil || v8.Of(s.live.Space()) != nil || jvm.Of(s.live.Space()) != nil
					})
					n := s.Status().Total.Samples
					await(t, "more samples", func() bool { return s.Status().Total.Samples >= n+20 })
				})
				if first := firstOf(rec, x.kind); first > 0 {
					took = append(took, time.Duration(first-begun))
				}
			}
			slices.Sort(took)
			if len(took) == 0 {
				t.Fatal("no sample has one")
			}
			t.Logf("%v at the least, %v median, %v at most of %d", took[0], took[len(took)/2], took[len(took)-1], len(took))
			if took[0] > x.most {
				t.Errorf("more than %v", x.most)
			}
		})
	}
}

// firstOf returns the time of the first frame of a kind; 0: there is none.
func firstOf(rec *trace.Recording, kind stack.Kind) (first stack.Time) {
	for i := range rec.Threads {
		for e := range rec.Events(rec.Threads[i].Seq) {
			if k := e.Kind(); k == event.Enter || k == event.Move {
				if event.Word(e.Payload()).Kind() == kind && (first == 0 || e.Time < first) {
					first = e.Time
				}
			}
		}
	}
	return first
}
