package web_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
)

// severalProcesses returns a recording of n processes with three threads each.
func severalProcesses(t *testing.T, n int) *trace.Recording {
	t.Helper()
	return severalOf(t, synth.Options{Seed: 4, Threads: 3, Interval: 1_000_000, Samples: 900, Processes: n})
}

func severalOf(t *testing.T, o synth.Options) *trace.Recording {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "several.sliver"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := synth.WriteAll(f, o); err != nil {
		t.Fatal(err)
	}
	in, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(f, in.Size())
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.All()) != o.Processes {
		t.Fatalf("the recording has %d processes", len(rec.All()))
	}
	return rec
}

type processThread struct {
	Seq, TID, Process int
	CPU               int64
}

// analysisOf asks for the analysis of threads (nil: all), without their numbers.
func analysisOf(t *testing.T, s *web.Server, threads []int) (rest map[string]any, seqs []int, process string) {
	t.Helper()
	if err := dial(t, s).Ask(t.Context(), client.Query{Op: "analysis", Threads: threads}, &rest); err != nil {
		t.Fatal(err)
	}
	for _, x := range rest["threads"].([]any) {
		th := x.(map[string]any)
		seqs = append(seqs, int(th["seq"].(float64)))
		delete(th, "seq")
	}
	process, _ = rest["process"].(string)
	delete(rest, "process")
	delete(rest, "processes")
	delete(rest, "of")
	return rest, seqs, process
}

// TestSeveralProcesses serves a recording of several processes: all are on the timeline, and the numbers of
// each are those of a server that has it alone.
func TestSeveralProcesses(t *testing.T) {
	rec := severalProcesses(t, 3)
	s := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, s)
	c := dial(t, s)
	var st struct{ Threads []processThread }
	var sums []struct {
		Process, Threads                                     int
		CPU, Runnable, Lock, IO, Sleep, Other, Idle, Stopped int64
	}
	var all lanes
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for op, to := range map[string]any{"status": &st, "processes": &sums, "lanes": &all} {
		if err := c.Ask(t.Context(), client.Query{Op: op, N: 10}, to); err != nil {
			t.Fatal(op, err)
		}
	}
	if len(info.Processes) != 3 || info.Processes[2].PID != 4442 || info.Processes[2].Parent != 4242 || info.Processes[2].Comm != "worker2" {
		t.Errorf("the processes are %+v", info.Processes)
	}
	seqs := make([][]int, 3)
	known := map[int]bool{}
	for _, th := range st.Threads {
		if known[th.Seq] || th.TID/100 != info.Processes[th.Process].PID/100 {
			t.Errorf("thread %+v is not one of process %d, or twice there", th, info.Processes[th.Process].PID)
		}
		known[th.Seq] = true
		seqs[th.Process] = append(seqs[th.Process], th.Seq)
	}
	if len(st.Threads) != 9 || len(sums) != 3 {
		t.Fatalf("%d threads and %d sums", len(st.Threads), len(sums))
	}
	locks := 0
	for i, one := range rec.All() {
		own := *one
		own.Others = nil
		alone := serve(t, web.Options{Source: web.NewRecording(&own)})
		loaded(t, alone)
		got, numbers, process := analysisOf(t, s, seqs[i])
		want, _, none := analysisOf(t, alone, nil)
		if process != info.Processes[i].Comm+" ("+jsonOf(t, info.Processes[i].PID)+")" || none != "" {
			t.Errorf("the analysis is of %q, of one process %q", process, none)
		}
		if len(numbers) != 3 || !known[numbers[0]] || !reflect.DeepEqual(got, want) {
			t.Errorf("process %d: threads %d are analyzed as %.600s, want %.600s", i, numbers, jsonOf(t, got), jsonOf(t, want))
		}
		var its struct{ Threads []processThread }
		var lane lanes
		for op, to := range map[string]any{"status": &its, "lanes": &lane} {
			if err := dial(t, alone).Ask(t.Context(), client.Query{Op: op, N: 10}, to); err != nil {
				t.Fatal(op, err)
			}
		}
		locks += len(lane.Locks)
		cpu, lock := int64(0), int64(0)
		for _, th := range its.Threads {
			cpu += th.CPU
		}
		for _, l := range lane.Locks {
			lock += l.Total
		}
		for _, p := range sums {
			if p.Process != i {
				continue
			}
			near := func(got, want int64) bool { return want > 0 && math.Abs(float64(got-want)) < 0.01*float64(want) }
			if !near(p.CPU, cpu) || !near(p.Lock, lock) || p.Threads != 3 {
				t.Errorf("process %d: %+v, want %d ns on a CPU and %d for locks", i, p, cpu, lock)
			}
		}
	}
	// The three processes use the same addresses for different locks.
	if len(all.Locks) != locks || locks < 6 {
		t.Errorf("%d locks, want %d", len(all.Locks), locks)
	}
	if sums[0].CPU < sums[1].CPU || sums[1].CPU < sums[2].CPU {
		t.Errorf("the processes are not in the order of their CPU time: %+v", sums)
	}
	// Parts of an export name the threads of each process.
	if got := (&web.Part{Threads: []int{seqs[2][1], seqs[0][0]}}).ThreadsOf(rec); !reflect.DeepEqual(got, [][]int{{seqs[0][0]}, {}, {seqs[2][1] - 6}}) {
		t.Errorf("the threads of the processes are %d", got)
	}
	if got := (&web.Part{}).ThreadsOf(rec); len(got) != 3 || got[0] != nil || got[2] != nil {
		t.Errorf("all threads are %v", got)
	}
}

func jsonOf(t *testing.T, x any) string {
	t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTasksOfSeveral: each process has its own tasks, though their numbers are the same in all, as in a recording of it
// alone; threads have the numbers that they have among those of all.
func TestTasksOfSeveral(t *testing.T) {
	rec := severalOf(t, synth.Options{Seed: 4, Threads: 3, Interval: 1_000_000, Samples: 900, Processes: 3, Tasks: 20})
	s := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, s)
	type reply struct {
		tasks
		Process   int
		Processes []int
	}
	ask := func(s *web.Server, process *int) (r reply) {
		t.Helper()
		if err := dial(t, s).Ask(t.Context(), client.Query{Op: "tasks", Process: process}, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := ask(s, nil)
	if slices.Sort(first.Processes); !slices.Equal(first.Processes, []int{0, 1, 2}) {
		t.Errorf("processes with tasks: %v", first.Processes)
	}
	if got := ask(s, &first.Process); !reflect.DeepEqual(got.List, first.List) {
		t.Error("the first reply is not about the process that it names")
	}
	total, base := 0, 0
	for i, one := range rec.All() {
		alone := *one
		alone.Others = nil
		single := serve(t, web.Options{Source: web.NewRecording(&alone)})
		loaded(t, single)
		want, got := ask(single, nil), ask(s, &i)
		if got.Count < 10 || got.Count != want.Count || got.Process != i {
			t.Errorf("process %d: %d tasks of process %d, alone %d", i, got.Count, got.Process, want.Count)
		}
		total += got.Count
		for k := range want.List {
			for n := range want.List[k].Spans {
				if x := &want.List[k].Spans[n]; x[4] >= 0 {
					x[4] += float64(base)
				}
			}
		}
		if !reflect.DeepEqual(got.List, want.List) {
			t.Errorf("process %d: its tasks differ from those of a recording of it alone", i)
		}
		base += len(one.Threads)
		var d struct{ ID uint64 }
		if err := dial(t, s).Ask(t.Context(), client.Query{Op: "task", Task: got.List[0].ID, Process: &i, At: 1e6}, &d); err != nil || d.ID != got.List[0].ID {
			t.Errorf("task %d of process %d: %+v, %v", got.List[0].ID, i, d, err)
		}
	}
	none := 7
	if got := ask(s, &none); got.Count != 0 || got.What != "" {
		t.Errorf("a process that does not exist has %d tasks", got.Count)
	}
	var a struct {
		Tasks struct {
			Count int
			List  []struct{ Process int }
		}
	}
	if err := dial(t, s).Ask(t.Context(), client.Query{Op: "analysis"}, &a); err != nil {
		t.Fatal(err)
	}
	of := map[int]int{}
	for _, x := range a.Tasks.List {
		of[x.Process]++
	}
	if a.Tasks.Count != total || len(of) != 3 {
		t.Errorf("the analysis has %d tasks, want %d; by process %v", a.Tasks.Count, total, of)
	}
}
