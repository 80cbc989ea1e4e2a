package session

//sliver:layer live

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// asyncTurn is a time range in which a thread certainly ran a task, if the thread ran.
type asyncTurn struct {
	from, to stack.Time
	name     string // of the task, and of its function
}

// asyncTurns reads the log of a program that runs tasks in turn.
func asyncTurns(t *testing.T, path string) map[stack.TID][]asyncTurn {
	t.Helper()
	all := map[stack.TID][]asyncTurn{}
	for line := range logLines(t, path) {
		var tid stack.TID
		var x asyncTurn
		var fn string
		if n, _ := fmt.Sscan(line, &tid, &x.from, &x.to, &x.name, &fn); n != 5 {
			t.Fatalf("%q", line)
		}
		x.name += " " + fn
		all[tid] = append(all[tid], x)
	}
	for _, x := range all {
		slices.SortFunc(x, func(a, b asyncTurn) int { return int(a.from - b.from) })
	}
	return all
}

// TestAsyncTruth compares the asyncio task that each thread runs with the program's own
// log. Each task must have its own track.
func TestAsyncTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	seconds := 1
	if long() {
		seconds = 60
	}
	for _, v := range []string{"python3.11", "python3.12", "python3.13", "python3.14"} {
		for _, clock := range []bool{false, true} {
			t.Run(v+map[bool]string{false: "", true: "/clocks"}[clock], func(t *testing.T) {
				if testing.Short() && v != "python3.14" && v != "python3.12" {
					t.Skip("the short form takes some versions only")
				}
				if clock {
					needAsides(t, true)
				}
				for try, seconds := 1, seconds; !asyncTruth(t, v, longTurn, seconds, clock, try == tries) && !t.Failed(); try, seconds = try+1, 2*seconds {
					t.Log("on a busy machine a longer one decides")
				}
			})
		}
	}
}

// longTurn is how long a task of the program runs at a time.
const longTurn = 4 * time.Millisecond

// TestAsyncTruthShort is TestAsyncTruth for tasks so short that many end between the
// sample of their thread and the read of the task, and new ones reuse their memory.
// Such tasks may be missing, but none may be taken for another.
func TestAsyncTruthShort(t *testing.T) {
	testprog.Whole(t, "TestAsyncTruth has longer tasks")
	testprog.Need(t, "ptrace")
	seconds := 1
	if long() {
		seconds = 20
	}
	for _, v := range []string{"python3.11", "python3.12", "python3.13", "python3.14"} {
		for _, clock := range []bool{false, true} {
			t.Run(v+map[bool]string{false: "", true: "/clocks"}[clock], func(t *testing.T) {
				if testing.Short() && v != "python3.14" && v != "python3.11" {
					t.Skip("the short form takes some versions only")
				}
				if clock {
					needAsides(t, true)
				}
				asyncTruth(t, v, 100*time.Microsecond, seconds, clock, false)
			})
		}
	}
}

// asyncTruth records a program for the given seconds, in turns, and reports whether the
// recording has enough samples and few enough without a task. The last recording must.
func asyncTruth(t *testing.T, version string, turn time.Duration, seconds int, clock, last bool) bool {
	t.Helper()
	out := filepath.Join(t.TempDir(), "log")
	p := testprog.Start(t, testprog.Tool(t, version), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "tasks.py"), fmt.Sprint(seconds), out, fmt.Sprint(turn.Nanoseconds()))
	p.Ready()
	rec := recordWhole(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2, Clock: clock}, func(*Session) {
		p.Go()
		p.Done()
	})
	p.Finish()
	turns := asyncTurns(t, out)
	tasks := view.New(rec, view.Options{}).Tasks()
	if tasks == nil || tasks.What != "asyncio task" {
		t.Fatalf("tasks: %+v", tasks)
	}
	names := map[uint64]string{}
	for i := range tasks.List {
		names[tasks.List[i].ID] = tasks.List[i].Func
	}
	looks, none, wrong, seen := judgeTurns(t, rec, turns, names)
	t.Logf("%d of %d samples by clocks", rec.Stats.Total().Clocked, rec.Stats.Total().Samples)
	t.Logf("%d looks at threads that ran a known task, %d wrong, %d could not tell; %d tasks of %d", looks, wrong, none, len(seen), len(names))
	if len(names) > len(tasks.List) {
		t.Errorf("tasks: %v", names)
	}
	// Up to 3.13 a task found for the first time may be gone when it is read.
	enough := looks >= 100 && none*20 <= looks && (version != "python3.14" || none*100 <= looks) && len(seen) >= 20 && seen["named-0 worker"]
	if last && !enough {
		t.Errorf("of %d looks %d could not tell the task; %d tasks of %d", looks, none, len(seen), len(names))
	}
	return enough
}

// judgeTurns compares the tasks that threads ran in a recording with the program's log.
// It counts samples of a thread that ran a known task, those without a task, and those
// with another task, and returns the tasks seen correctly.
func judgeTurns(t *testing.T, rec *trace.Recording, turns map[stack.TID][]asyncTurn, names map[uint64]string) (looks, none, wrong int, seen map[string]bool) {
	t.Helper()
	seen = map[string]bool{}
	for i := range rec.Threads {
		th := &rec.Threads[i]
		ts := turns[th.TID]
		var now stack.Task
		for e := range rec.Events(th.Seq) {
			switch e.Kind() {
			case event.Task:
				now = event.TaskFields(e.Payload())
			case event.Seen:
				if way, _, cpu := event.SeenFields(e.Payload()); way == stack.WayClock && cpu == 0 {
					continue // it waits for a CPU, and is shown where its last copy met it
				}
				k, _ := slices.BinarySearchFunc(ts, e.Time, func(x asyncTurn, at stack.Time) int {
					if x.to <= at {
						return -1
					}
					return 1
				})
				if k == len(ts) || e.Time <= ts[k].from {
					continue
				}
				looks++
				switch is := names[now.ID]; {
				case now.ID == 0 || is == "": // no task was read, or not its name
					none++
				case is != ts[k].name:
					if wrong++; wrong < 10 {
						t.Errorf("TID %d at %d runs %q, and not %q", th.TID, e.Time, ts[k].name, is)
					}
				default:
					seen[is] = true
				}
			}
		}
	}
	return looks, none, wrong, seen
}
