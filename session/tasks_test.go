package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Omissions of the looks must be added up, and recorded.
func TestTasksLeftOut(t *testing.T) {
	var noted []int
	x := &tasks{note: func(all *trace.Tasks) { noted = append(noted, all.Lost) }}
	for _, lost := range []int{0, 2, 3} {
		x.take(&trace.Tasks{What: "goroutine", Lost: lost})
	}
	if l := x.left(); l != (trace.LostTasks{What: "goroutine", N: 5, In: 2, Looks: 3}) || !slices.Equal(noted, []int{0, 2, 3}) {
		t.Errorf("%+v, noted %v", l, noted)
	}
}

// goTurn is a time range in which a goroutine certainly had a thread.
type goTurn struct {
	tid      stack.TID
	id       uint64
	from, to stack.Time
}

func turnsOf(t *testing.T, path string) map[stack.TID][]goTurn {
	t.Helper()
	all := map[stack.TID][]goTurn{}
	for line := range logLines(t, path) {
		var x goTurn
		if n, _ := fmt.Sscan(line, &x.tid, &x.id, &x.from, &x.to); n != 4 {
			t.Fatalf("%q", line)
		}
		all[x.tid] = append(all[x.tid], x)
	}
	for _, x := range all {
		slices.SortFunc(x, func(a, b goTurn) int { return int(a.from - b.from) })
	}
	return all
}

// at returns the goroutine that certainly had the thread at that time; 0: unknown.
func at(turns []goTurn, when stack.Time) uint64 {
	i, _ := slices.BinarySearchFunc(turns, when, func(x goTurn, t stack.Time) int {
		if x.to <= t {
			return -1
		}
		return 1
	})
	if i == len(turns) || when <= turns[i].from {
		return 0
	}
	return turns[i].id
}

// around returns the turns next to a time.
func around(turns []goTurn, when stack.Time) string {
	var out []string
	for _, x := range turns {
		if x.to > when-10_000_000 && x.from < when+10_000_000 {
			out = append(out, fmt.Sprintf("%d from %d to %d µs", x.id, (x.from-when)/1000, (x.to-when)/1000))
		}
	}
	return strings.Join(out, ", ")
}

// TestTaskTruth compares the goroutine that each sample shows on a thread with the
// program's own log.
func TestTaskTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	seconds, least := "2", 300
	if os.Getenv("SLIVER_LONG") != "" {
		seconds, least = "150", 100_000
	}
	variants := []string{"default", "clocks", "stripped", "external"}
	if testing.Short() {
		variants = variants[:2]
	}
	looks := 0
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			build, clock := variant, variant == "clocks"
			if clock {
				build = "default"
				needAsides(t, false)
			}
			log := filepath.Join(t.TempDir(), "log")
			p := testprog.Start(t, testprog.Build(t, "go/ids", build), "-log", log, "-seconds", seconds)
			p.Ready()
			rec := recordWhole(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2, Clock: clock}, func(*Session) {
				p.Go()
				p.Done()
			})
			p.Finish()
			turns := turnsOf(t, log)
			n, none, wrong := 0, 0, 0
			for i := range rec.Threads {
				th := &rec.Threads[i]
				var now stack.Task
				check := func(at0 stack.Time) {
					want := at(turns[th.TID], at0)
					if want == 0 {
						return
					}
					if now.ID == 0 {
						none++
						return
					}
					if n++; want != now.ID {
						if wrong++; wrong < 10 {
							t.Errorf("TID %d at %d: goroutine %d, want %d: %s", th.TID, at0, now.ID, want, around(turns[th.TID], at0))
						}
					}
				}
				for e := range rec.Events(th.Seq) {
					switch e.Kind() {
					case event.Task:
						now = event.TaskFields(e.Payload())
					case event.Seen:
						if way, _, cpu := event.SeenFields(e.Payload()); way != stack.WayClock || cpu > 0 { // else it waited for a CPU
							check(e.Time)
						}
					}
				}
			}
			looks += n
			t.Logf("%d looks at threads that ran a known goroutine, %d wrong, %d could not tell", n, wrong, none)
			most := 1 // in 100
			if clock {
				most = 4 // a copy between two goroutines lacks the data of the last one if that changed since the last tick
			}
			if none*100 > most*n {
				t.Errorf("%d of %d looks could not tell the goroutine", none, n)
			}
			if !clock { // a turn may have looks only while the thread waited for a CPU: they show its last copy
				checkTracks(t, rec, turns)
			}
			checkReads(t, rec.Stats.Total(), 1.1) // each thread has another goroutine every 3 ms: see gopcln.Thread.Peek
		})
	}
	if looks < least {
		t.Errorf("%d looks at threads that ran a known goroutine, want %d", looks, least)
	}
}

// checkTracks: the view by goroutine must have each turn on the goroutine's own track.
func checkTracks(t *testing.T, rec *trace.Recording, turns map[stack.TID][]goTurn) {
	t.Helper()
	v := view.New(rec, view.Options{})
	tasks := v.Tasks()
	if tasks == nil || tasks.What != "goroutine" || len(rec.Tasks) < 2 {
		t.Fatalf("tasks %+v of %d looks", tasks, len(rec.Tasks))
	}
	by := map[uint64]*view.Task{}
	idle, blank := 0, 0
	first, last := rec.Tasks[0].At, rec.Tasks[len(rec.Tasks)-1].At
	var other *view.Task
	for i := range tasks.List {
		x := &tasks.List[i]
		by[x.ID] = x
		if x.Func == "" {
			blank++
		}
		end := stack.Time(0)
		for _, s := range x.Spans {
			if s.From < end || s.To <= s.From {
				t.Fatalf("%s: spans %+v", x.Label, x.Spans)
			}
			end = s.To
		}
		if !strings.Contains(x.Func, "main.main.func1") {
			continue
		}
		if len(x.Spans) == 1 && x.Spans[0].Thread < 0 && x.Spans[0].Reason == "chan receive" && x.Spans[0].From <= first && x.Spans[0].To >= last {
			idle++
		} else {
			other = x
		}
	}
	if blank*100 > len(tasks.List) { // those seen only in the scheduler's functions
		t.Errorf("%d of %d goroutines have no name", blank, len(tasks.List))
	}
	if idle != 100 {
		t.Errorf("%d goroutines wait from beginning to end at a channel, want 100; %d looks from %d to %d, and another one: %+v", idle, len(rec.Tasks), first, last, other)
	}
	seen, all := 0, 0
	looks := map[stack.TID][]stack.Time{}
	for i := range rec.Threads {
		th := &rec.Threads[i]
		for e := range rec.Events(th.Seq) {
			if e.Kind() == event.Seen {
				looks[th.TID] = append(looks[th.TID], e.Time)
			}
		}
	}
	for tid, ts := range turns {
		for _, x := range ts {
			// On a busy machine whole turns pass without a sample.
			k, _ := slices.BinarySearch(looks[tid], x.from)
			if k == len(looks[tid]) || looks[tid][k] >= x.to {
				continue
			}
			all++
			task := by[x.id]
			if task == nil {
				continue
			}
			at := looks[tid][k]
			for _, s := range task.Spans {
				if s.From <= at && at <= s.To && s.Thread >= 0 && v.Threads[s.Thread].TID == tid {
					seen++
					break
				}
			}
		}
	}
	if seen*100 < all*80 || all < 100 {
		t.Errorf("%d of %d turns are on their goroutine's track", seen, all)
	}
	t.Logf("%d of %d turns of 3 ms in which the thread was looked at are on their goroutine's track; %d tracks, %d without a name; looks took %v", seen, all, len(tasks.List), blank, time.Duration(rec.Tasks[0].Took))
}
