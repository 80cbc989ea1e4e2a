package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// misplaced counts frames of Python whose caller is neither the C function that
// evaluates them nor another frame of Python.
type misplaced struct {
	n      *trace.Names
	stack  []stack.Kind
	names  []string
	python int
	wrong  map[string]int
}

func (m *misplaced) Begin(_ stack.Time, depth int, s *trace.Slice) {
	kind, name := s.Loc.Word.Kind(), m.n.Func(&s.Frame).Name
	m.stack, m.names = append(m.stack[:depth], kind), append(m.names[:depth], name)
	if kind != stack.KindPython {
		return
	}
	m.python++
	switch {
	case depth == 0:
		m.wrong["nothing"]++
	case m.stack[depth-1] != stack.KindPython && m.stack[depth-1] != stack.KindError && m.names[depth-1] != "_PyEval_EvalFrameDefault":
		m.wrong[m.names[depth-1]]++
	}
}

func (m *misplaced) End(_ stack.Time, depth int, _ *trace.Slice) { m.stack = m.stack[:depth] }
func (m *misplaced) Other(event.Event)                           {}

// checkReads bounds the calls of process_vm_readv per stop, beside those of the first stops, which learn
// how much to read.
func checkReads(t *testing.T, total stack.ThreadStats, most float64) {
	t.Helper()
	per := float64(total.StopReads) / float64(total.Stops)
	t.Logf("%.3f reads a stop, of %d", per, total.Stops)
	const learning = 60
	if total.Stops == 0 || per < 1 || float64(total.StopReads) > most*float64(total.Stops)+learning {
		t.Errorf("%d reads in %d stops, %.3f each, want 1 to %v and %d more", total.StopReads, total.Stops, per, most, learning)
	}
}

// TestPythonBusy: of threads that run Python and C in turns, 999 of 1,000 samples must
// have no gap, each frame of Python must be on the function that runs it, and few
// samples may take more than one stop.
func TestPythonBusy(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	ways := []string{"recursion", "generators", "encoding", "matching", "database", "waiting", "objects"}
	want := uint64(500)
	if os.Getenv("SLIVER_LONG") != "" {
		want = 20000
	}
	for _, v := range pythons {
		t.Run(v.version, func(t *testing.T) {
			if testing.Short() && !v.always {
				t.Skip("the short form takes some versions only")
			}
			p := testprog.Start(t, testprog.Tool(t, v.version), append([]string{filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py")}, ways...)...)
			p.Ready()
			p.Go()
			p.Line("busy")
			rec := recordWith(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2}, func(s stack.ThreadStats) bool { return s.Stopped() > want })
			total := rec.Stats.Total()
			m := &misplaced{n: trace.NewNames(rec), wrong: map[string]int{}}
			for i := range rec.Threads {
				rec.Replay(rec.Threads[i].Seq, m.n, m)
			}
			if total.Truncated*1000 > total.Samples {
				t.Errorf("%d of %d samples have gaps%s", total.Truncated, total.Samples, errorFrames(rec))
			}
			if m.python < 1000 || len(m.wrong) > 0 {
				t.Errorf("%d frames of Python, and some on %v", m.python, m.wrong)
			}
			per := float64(total.Stops) / float64(total.Stopped())
			t.Logf("%d samples, %d by a stop, %.2f stops each; %d with gaps; %d slices of Python; pauses %v mean, walks %v",
				total.Samples, total.Stopped(), per, total.Truncated, m.python, time.Duration(total.PauseNS/int64(total.Stops)), time.Duration(total.WalkNS/int64(total.Samples-total.Unrun)))
			old := v.version < "python3.11" && len(v.version) > 9 || v.version == "python3.8" || v.version == "python3.9"
			if most := map[bool]float64{false: 1.25, true: 3.5}[old]; per > most {
				t.Errorf("%.2f stops a sample, more than %v", per, most)
			}
			checkReads(t, total, map[bool]float64{false: 1.1, true: 3.5}[old])
		})
	}
}
