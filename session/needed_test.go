package session

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Sleeping threads must be read once and then left alone: no stop, and no read while
// they have not run. Running threads next to them must be stopped, in time. The
// recording must say how each sample was taken. SLIVER_LONG=1 uses 1,000 threads, and
// requires that less than 1 % of the running threads' ticks are late in one of three
// recordings: the machine may be busy in the others.
func TestOnlyWhenNeeded(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	if !long() {
		onlyWhenNeeded(t, 100, 6_000)
		return
	}
	least := 1.
	for range 3 {
		if least = min(least, onlyWhenNeeded(t, 1000, 1_500_000)); least < .01 {
			return
		}
	}
	t.Errorf("%.2f %% of the ticks of threads that run were late in the best of three recordings", 100*least)
}

// onlyWhenNeeded records sleepers threads of which eight run, for the given number of
// samples, and returns the share of the eight's ticks that was late.
func onlyWhenNeeded(t *testing.T, sleepers int, samples uint64) (late float64) {
	const running = 8
	prog := testprog.Start(t, testprog.Build(t, "c/sleepers", "O2"), "--sleepers", fmt.Sprint(sleepers-running), "--running",
		fmt.Sprint(running), "--seconds", "600", "--wait-go")
	defer func() { // two of them have more inotify instances than a user may
		prog.Kill()
		prog.Wait()
	}()
	prog.Ready()
	prog.Go()
	await(t, "the threads", func() bool {
		named := 0
		for tid := range tracersOf(t, prog.PID) {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/comm", prog.PID, tid)); err == nil && strings.HasPrefix(string(b), "runner-") {
				named++
			}
		}
		return named == running
	})
	rec := recordWhole(t, prog.PID, Options{Interval: 10 * time.Millisecond, Jitter: .1, Groups: 5}, func(s *Session) {
		await(t, "samples", func() bool { return s.Status().Total.Samples > samples })
	})
	st := rec.Stats
	var run, sleep stack.ThreadStats
	stopped := 0
	names := map[stack.TID]string{}
	for i := range rec.Threads {
		names[rec.Threads[i].TID] = rec.Threads[i].Name
	}
	for _, th := range st.Threads {
		sum := &sleep
		if strings.HasPrefix(names[th.TID], "runner-") {
			sum = &run
			stopped++
		}
		sum.Samples += th.Samples
		sum.Stops += th.Stops
		sum.Unrun += th.Unrun
		sum.Read += th.Read
		sum.Late += th.Late
	}
	late = float64(run.Late) / float64(max(run.Samples+run.Late, 1))
	t.Logf("%d threads that run: %d samples, %d late (%.2f %%); %d that sleep: %d stops, %d read, %d unrun, %d late; %.2f s of CPU time in %.2f s",
		stopped, run.Samples, run.Late, 100*late, len(st.Threads)-stopped, sleep.Stops,
		sleep.Read, sleep.Unrun, sleep.Late, float64(st.SelfCPU)/1e9, float64(st.At-rec.Process.Clocks.Monotonic)/1e9)
	if stopped != running {
		t.Errorf("%d threads that run, want %d", stopped, running)
	}
	if sleep.Stops > 2 { // a thread may be sampled on its way to sleep
		t.Errorf("%d stops of threads that sleep", sleep.Stops)
	}
	if sleep.Read > uint64(2*sleepers) || sleep.Unrun < sleep.Read*5 {
		t.Errorf("sleeping threads were read %d times, and left alone %d times", sleep.Read, sleep.Unrun)
	}
	// The counts by way must add up, in the recording as in the statistics.
	ways := map[stack.Way]uint64{}
	for i := range rec.Threads {
		for e := range rec.Events(rec.Threads[i].Seq) {
			if e.Kind() == event.Seen {
				way, n, _ := event.SeenFields(e.Payload())
				ways[way] += uint64(n)
			}
		}
	}
	total := st.Total()
	if ways[stack.WayStop] == 0 || ways[stack.WayUnrun] == 0 || total.Stops+total.Unrun+total.Read != total.Samples {
		t.Errorf("ways of the events %v, accounts %+v", ways, total)
	}
	return late
}
