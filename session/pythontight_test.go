package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// pieces finds functions that never return and that a timeline has more than once.
type pieces struct {
	n     *trace.Names
	names []string
	begun map[string]int
	at    stack.Time
	was   []string // the stack before at
	again []string // functions that start again at that time
	out   []string
}

// endless are the functions of tight.py that never return.
var endless = []string{"outer", "middle", "inner"}

func (p *pieces) step(t stack.Time) {
	if t == p.at {
		return
	}
	if len(p.again) > 0 {
		p.out = append(p.out, fmt.Sprintf("%s once more: was\n\t%.2000s\nis\n\t%.2000s", p.again, strings.Join(p.was, " "), strings.Join(p.names, " ")))
	}
	p.at, p.again, p.was = t, nil, slices.Clone(p.names)
}

func (p *pieces) Begin(t stack.Time, depth int, s *trace.Slice) {
	p.step(t)
	name := p.n.Func(&s.Frame).Name
	p.names = append(p.names[:depth], name)
	if slices.Contains(endless, name) {
		if p.begun[name]++; p.begun[name] > 1 {
			p.again = append(p.again, name)
		}
	}
}

func (p *pieces) End(t stack.Time, depth int, _ *trace.Slice) {
	p.step(t)
	p.names = p.names[:depth]
}

func (p *pieces) Other(event.Event) {}

// TestPythonTight: a program that only calls and returns, in all possible ways, is
// often sampled between two frames of the interpreter. Functions that it never leaves
// must still be one slice each, even if the machine is busy and stops come late.
func TestPythonTight(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	want := uint64(300)
	if os.Getenv("SLIVER_LONG") != "" {
		want = 20000
	}
	for _, v := range pythons {
		t.Run(v.version, func(t *testing.T) {
			if testing.Short() && !v.always {
				t.Skip("the short form takes some versions only")
			}
			dir := filepath.Join(testprog.Root(t), "testdata", "targets", "python")
			for range 3 { // competitors for the CPUs
				p := testprog.Start(t, testprog.Tool(t, v.version), filepath.Join(dir, "busy.py"), "encoding")
				p.Ready()
				p.Go()
				p.Line("busy")
			}
			p := testprog.Start(t, testprog.Tool(t, v.version), filepath.Join(dir, "tight.py"))
			p.Ready()
			p.Go()
			p.Line("busy")
			rec := recordWith(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2}, func(s stack.ThreadStats) bool { return s.Stopped() > want })
			n := trace.NewNames(rec)
			all := map[string]int{}
			for i := range rec.Threads {
				m := &pieces{n: n, begun: all}
				rec.Replay(rec.Threads[i].Seq, n, m)
				m.step(-1)
				for _, s := range m.out {
					t.Error(s)
				}
			}
			for _, name := range endless {
				if all[name] == 0 {
					t.Errorf("%s is not there", name)
				}
			}
			total := rec.Stats.Total()
			t.Logf("%d samples, %d late, %d with gaps%s", total.Samples, total.Late, total.Truncated, errorFrames(rec))
		})
	}
}
