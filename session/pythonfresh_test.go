package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// freshLog holds what a timeline says of functions that a program makes as it runs
// against the program's own account.
type freshLog struct {
	n   *trace.Names
	who stack.TID // whose timeline it is
	// key is the name under which the program tells of a function; "": it is none of these;
	// nil: freshFunction.
	key func(name string) string
	// right reports whether a function of that name, at a line, is what the program made;
	// nil: freshPlace.
	right func(key string, f *trace.Func, line int) bool

	ran     map[string][2]stack.Time
	at      stack.Time // last sample so far
	open    []freshSlice
	samples int // slices of such functions
	wrong   []string
	lost    int      // error frames
	last    []string // the stack when a function was entered last, outermost first
}

type freshSlice struct {
	name  string // key; "": another function
	full  string
	first stack.Time
}

func (l *freshLog) fault(format string, args ...any) {
	if len(l.wrong) < 10 {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

func (l *freshLog) Begin(t stack.Time, depth int, s *trace.Slice) {
	key, right := l.key, l.right
	if key == nil {
		key, right = freshFunction, freshPlace
	}
	f := l.n.Func(&s.Frame)
	l.open = l.open[:depth]
	x := freshSlice{full: f.Name, first: t}
	if s.Loc.Word.Kind() == stack.KindError {
		l.lost++
	}
	if name := key(f.Name); name != "" {
		l.samples++
		x.name = name
		ran, ok := l.ran[name]
		switch {
		case !ok:
			l.fault("%s never ran", f.Name)
		case t < ran[0] || t > ran[1]:
			l.fault("%s is seen at %d on thread %d, and ran %d…%d", f.Name, t, l.who, ran[0], ran[1])
		case !right(name, f, s.Frame.Line):
			l.fault("%s is in %s, from line %d on, at %d", f.Name, f.File, f.StartLine, s.Frame.Line)
		}
	}
	l.open = append(l.open, x)
	l.last = l.last[:0]
	for i := range l.open {
		l.last = append(l.last, l.open[i].full)
	}
}

func (l *freshLog) End(_ stack.Time, depth int, _ *trace.Slice) {
	if x := l.open[depth]; x.name != "" && l.at >= x.first && l.at > l.ran[x.name][1] {
		l.fault("%s is still seen at %d, and ran %d…%d: %s", x.name, l.at, l.ran[x.name][0], l.ran[x.name][1], strings.Join(l.last, " > "))
	}
	l.open = l.open[:depth]
}

func (l *freshLog) Other(e event.Event) {
	if e.Kind() == event.Seen {
		l.at = max(l.at, e.Time)
	}
}

// freshFunction is one that a program of Python or Node made: fresh_THREAD_N.
func freshFunction(name string) string {
	if !strings.HasPrefix(name, "fresh_") || strings.Contains(name, "<") {
		return ""
	}
	return name
}

func freshPlace(key string, f *trace.Func, line int) bool {
	var thread, n int
	fmt.Sscanf(key, "fresh_%d_%d", &thread, &n)
	return f.File == "<"+key+">" && f.StartLine == 1+n%50000 && (line == 0 || line >= f.StartLine && line <= f.StartLine+4)
}

// TestPythonFresh: functions that take each other's places in memory have their
// own names, files and lines, at the times at which they ran.
func TestPythonFresh(t *testing.T) {
	testprog.Need(t, "ptrace")
	for i, v := range pythons {
		t.Run(v.version, func(t *testing.T) {
			seconds := "1"
			if os.Getenv("SLIVER_LONG") != "" {
				seconds = map[bool]string{true: "600", false: "60"}[i == 0] // of one version ten minutes in one piece
			}
			if testing.Short() && !v.always {
				t.Skip("the short form takes some versions only")
			}
			out := filepath.Join(t.TempDir(), "ran")
			p := testprog.Start(t, testprog.Tool(t, v.version), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "fresh.py"), seconds, "3", out)
			p.Ready()
			rec := recordWhole(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2}, func(*Session) {
				p.Go()
				p.Done()
			})
			p.Finish()
			l := &freshLog{n: trace.NewNames(rec), ran: ranOf(t, out)}
			for i := range rec.Threads {
				l.at, l.open, l.who = 0, nil, rec.Threads[i].TID
				rec.Replay(rec.Threads[i].Seq, l.n, l)
			}
			for _, w := range l.wrong {
				t.Error(w)
			}
			total := rec.Stats.Total()
			// What is seen in a few seconds is for a busy machine to say: a little of it is enough to tell.
			if few := map[bool]int{false: 30, true: 3000}[long()]; l.samples < few || len(l.ran) < 3*few {
				t.Errorf("%d slices of %d functions", l.samples, len(l.ran))
			}
			// In one second a few are chance: it has one or two under the race detector, of functions that
			// were gone before the next look at their thread.
			most := total.Samples / 1000
			if !long() {
				most += 4
			}
			if total.Truncated > most {
				t.Errorf("%d of %d samples have gaps%s", total.Truncated, total.Samples, errorFrames(rec))
			}
			t.Logf("%d slices of %d functions; %d samples, %d stops, %d with gaps (%d error frames)", l.samples, len(l.ran), total.Samples, total.Stops, total.Truncated, l.lost)
		})
	}
}

func ranOf(t *testing.T, path string) map[string][2]stack.Time {
	t.Helper()
	ran := map[string][2]stack.Time{}
	for line := range logLines(t, path) {
		var name string
		var from, to stack.Time
		if n, _ := fmt.Sscan(line, &name, &from, &to); n != 3 {
			t.Fatalf("%q", line)
		}
		ran[name] = [2]stack.Time{from, to}
	}
	return ran
}
