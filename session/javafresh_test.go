package session

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// freshJava returns the number of a generated class: FreshNUMBER.workNUMBER. A name
// whose parts differ is not a function that ever existed.
func freshJava(name string) string {
	number, ok := strings.CutPrefix(name, "Fresh0")
	if !ok || len(number) < 7 {
		return ""
	}
	number = "0" + number[:7]
	switch strings.TrimPrefix(name, "Fresh"+number+".") {
	case "step" + number, "work" + number, "applyAsLong", "<init>":
		return number
	}
	return name
}

func rightJava(_ string, f *trace.Func, line int) bool {
	return f.File == "Fresh.java" && (line == 0 || line >= f.StartLine && line <= f.StartLine+6)
}

// TestJavaFresh: methods of classes that are loaded, compiled and unloaded all the
// time, with a code cache that is too small for them, must have their own names at the
// times at which they ran.
func TestJavaFresh(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	seconds, ways := "3", [][]string{{"java17"}}
	if long() {
		seconds, ways = "75", nil
		for _, v := range []string{"java17", "java21", "java25"} {
			ways = append(ways, []string{v}, []string{v, "-XX:+UseZGC"})
		}
		// With the second compiler too, one class takes longer than a run.
		ways = append(ways, []string{"java17", "-Xcomp", "-XX:TieredStopAtLevel=1"}, []string{"java25", "-XX:+UseShenandoahGC", "-XX:+UseCompactObjectHeaders"})
	}
	for _, w := range ways {
		t.Run(filepath.Join(w...), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "ran")
			args := append(w[1:], "-Xmx48m", "-XX:-UsePerfData", "-XX:MaxMetaspaceSize=32m", "-XX:ReservedCodeCacheSize=4m", "-cp", testprog.JavaClasses(t, "Fresh"), "Fresh", seconds, "3", out)
			p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, w[0]), args...))
			p.Ready()
			rec := recordWhole(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2}, func(*Session) {
				p.Go()
				p.Done()
			})
			p.Finish()
			l := &freshLog{n: trace.NewNames(rec), ran: ranOf(t, out), key: freshJava, right: rightJava}
			for i := range rec.Threads {
				l.at, l.open = 0, nil
				rec.Replay(rec.Threads[i].Seq, l.n, l)
			}
			for _, w := range l.wrong {
				t.Error(w)
			}
			total := rec.Stats.Total()
			if l.samples < 30 || len(l.ran) < 20 { // of a machine with other work
				t.Errorf("%d slices of %d classes", l.samples, len(l.ran))
			}
			t.Logf("%d slices of %d classes; %d samples, %d stops, %d with gaps (%d error frames)", l.samples, len(l.ran), total.Samples, total.Stops, total.Truncated, l.lost)
		})
	}
}
