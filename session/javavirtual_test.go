package session

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
)

// TestJavaVirtualTruth compares the virtual thread that each thread carries with the
// program's own log. Each must have its own track, with its name.
func TestJavaVirtualTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	seconds, ways := "1", [][]string{{"java21"}}
	if long() {
		seconds, ways = "20", nil
		for _, v := range []string{"java21", "java25"} {
			ways = append(ways, []string{v}, []string{v, "-XX:+UseZGC"}, []string{v, "-XX:+UseShenandoahGC"}, []string{v, "-XX:+UseSerialGC"})
		}
		ways = append(ways, []string{"java21", "-XX:+UseZGC", "-XX:+ZGenerational"}, []string{"java25", "-XX:+UseCompactObjectHeaders"})
	} else if !testing.Short() {
		ways = append(ways, []string{"java25"})
	}
	for _, w := range ways {
		t.Run(filepath.Join(w...), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "log")
			args := append(w[1:], "-Xmx64m", "-XX:-UsePerfData", "-Djdk.virtualThreadScheduler.parallelism=2", "-cp", testprog.JavaClasses(t, "Carried"), "Carried", seconds, out)
			p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, w[0]), args...))
			p.Ready()
			rec := recordWhole(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2}, func(*Session) {
				p.Go()
				p.Done()
			})
			p.Finish()
			tasks := view.New(rec, view.Options{}).Tasks()
			if tasks == nil || tasks.What != "virtual thread" {
				t.Fatalf("tasks: %+v", tasks)
			}
			names := map[uint64]string{}
			for i := range tasks.List {
				names[tasks.List[i].ID] = tasks.List[i].Func + " run"
			}
			looks, none, wrong, seen := judgeTurns(t, rec, asyncTurns(t, out), names)
			t.Logf("%d looks at threads that ran a known virtual thread, %d wrong, %d could not tell; %d virtual threads of %d", looks, wrong, none, len(seen), len(names))
			// The collector moves their objects all the time. In 21 the first few samples only
			// find out where the carrier stores the number outside the heap.
			if looks < 50 || none > 20+looks/100 || len(seen) < 10 {
				t.Errorf("of %d looks %d could not tell the virtual thread; %d of them", looks, none, len(seen))
			}
		})
	}
}
