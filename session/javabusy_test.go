package session

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// busyMethods counts slices of Java, and those whose caller could not have called them.
type busyMethods struct {
	n     *trace.Names
	kinds []stack.Kind
	names []string
	java  int
	alone map[string]int
	first string // the first such stack, root first
	open  bool   // first is still incomplete
}

func (m *busyMethods) Begin(_ stack.Time, depth int, s *trace.Slice) {
	kind, name := s.Loc.Word.Kind(), m.n.Func(&s.Frame).Name
	m.kinds, m.names = append(m.kinds[:depth], kind), append(m.names[:depth], name)
	if m.open = m.open && depth > 0; m.open {
		m.first = strings.Join(m.names, " > ")
	}
	if kind != stack.KindJava {
		return
	}
	m.java++
	if depth == 0 {
		m.alone["nothing"]++
		m.open, m.first = m.first == "", name
		return
	}
	// Java is called by Java, by the call stub, and by stubs generated with it.
	if k, on := m.kinds[depth-1], m.names[depth-1]; k == stack.KindNative && !strings.HasPrefix(on, "[") {
		m.alone[on]++
	}
}

func (m *busyMethods) End(_ stack.Time, depth int, _ *trace.Slice) { m.kinds = m.kinds[:depth] }
func (m *busyMethods) Other(event.Event)                           {}

// TestJavaBusy: of threads that run Java in several ways, at least 999 of 1,000 samples
// must have no gap, and methods must have possible callers.
func TestJavaBusy(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	want, ways := uint64(2500), [][]string{nil}
	if os.Getenv("SLIVER_LONG") != "" {
		want = 20000
		ways = append(ways, []string{"-Xint"}, []string{"-Xcomp"}, []string{"-XX:+UseZGC"}, []string{"-XX:TieredStopAtLevel=1"})
	}
	if testing.Short() { // only one Java
		want *= 2
	}
	sel, err := sampler.ParseSelection("recursion,sorting,maps,copying,objects")
	if err != nil {
		t.Fatal(err)
	}
	// In few samples four gaps may be chance: short recordings are counted together.
	var all, gaps uint64
	var where string
	gapless := func() {
		if gaps*1000 > all {
			t.Errorf("%d of %d samples have gaps%s", gaps, all, where)
		}
		all, gaps, where = 0, 0, ""
	}
	for _, v := range []string{"java17", "java21", "java25"} {
		if testing.Short() && v != "java17" {
			continue
		}
		for _, flags := range ways {
			t.Run(v+strings.Join(flags, ""), func(t *testing.T) {
				args := append(flags, "-Xmx128m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "Work"), "Work")
				p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, v), args...))
				p.Line("busy")
				rec := recordWith(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2, Selection: sel}, func(s stack.ThreadStats) bool { return s.Stopped() > want })
				total := rec.Stats.Total()
				m := &busyMethods{n: trace.NewNames(rec), alone: map[string]int{}}
				for i := range rec.Threads {
					rec.Replay(rec.Threads[i].Seq, m.n, m)
				}
				all, gaps = all+total.Samples, gaps+total.Truncated
				where += errorFrames(rec)
				if want >= 20000 {
					gapless()
				}
				if m.java < 1000 || len(m.alone) > 0 {
					t.Errorf("%d slices of Java, and some on %v: %s", m.java, m.alone, m.first)
				}
				per := float64(total.Stops) / float64(total.Stopped())
				t.Logf("%d samples, %d by a stop, %.2f stops each; %d with gaps%s; %d slices of Java; pauses %v mean, walks %v", total.Samples, total.Stopped(), per,
					total.Truncated, errorFrames(rec), m.java, time.Duration(total.PauseNS/int64(total.Stops)), time.Duration(total.WalkNS/int64(total.Samples-total.Unrun)))
				if per > 1.1 {
					t.Errorf("%.2f stops a sample", per)
				}
				checkReads(t, total, 1.1)
			})
		}
	}
	gapless()
}
