package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// make builds two files one after the other; the assembler of the second has no samples. The path follows the ends that
// the kernel reported, and the waits name the processes.
func TestBuildOfTwo(t *testing.T) {
	const ms = exporttest.Ms
	process := func(pid, parent int, name string, born, gone int64, waits ...[2]int64) *trace.Recording {
		b := exporttest.New(t)
		b.Proc.PID, b.Proc.Parent, b.Proc.Comm, b.Proc.StartTime = pid, parent, name, exporttest.Start+stack.Time(born*ms)
		th := b.Thread(pid, name)
		times := uint64(1)
		th.Look(exporttest.Look{At: born * ms, Times: times, State: stack.StateRunning, Stack: "main work"})
		for _, w := range waits {
			times++
			l := exporttest.Look{At: w[0] * ms, Times: times, State: stack.StateBlocked, Call: 62, Way: stack.WayRead, Stack: "main waits"}
			th.Look(l)
			th.Event(l.At, event.Wait, b.Wait(trace.Wait{Kind: kind.WaitChild, Call: "wait4", Args: "any child"}))
			l.At, l.Way = (w[1]-2)*ms, stack.WayUnrun
			th.Look(l)
			times++
			th.Look(exporttest.Look{At: (w[1] + 1) * ms, Times: times, State: stack.StateRunning, Stack: "main work"})
		}
		th.End((gone-1)*ms, stack.WhyGone)
		rec := b.Finish(gone * ms)
		rec.End.Gone = exporttest.Start + stack.Time(gone*ms)
		return rec
	}
	rec := process(10, 0, "make", 0, 1000, [2]int64{100, 400}, [2]int64{420, 900})
	rec.Others = []*trace.Recording{process(11, 10, "cc1", 80, 400), process(12, 10, "cc", 410, 900, [2]int64{420, 700}, [2]int64{710, 890}), process(13, 12, "cc1", 415, 700)}
	rec.End.Exit, rec.Others[0].End.Exit, rec.Others[1].End.Exit = &trace.Exit{Status: 2}, &trace.Exit{Signal: "SIGSEGV", Core: true}, &trace.Exit{}
	rec.Left = &trace.LeftOut{Processes: []trace.LeftProcess{{PID: 14, Parent: 12, Name: "as", Born: exporttest.Start + 705*ms, Gone: exporttest.Start + 890*ms}}}
	r := Of(rec, view.Options{}, 0)
	r.AddProcesses(rec)
	checkSteps(t, r)
	var got []string
	for _, s := range r.CriticalPath {
		got = append(got, fmt.Sprintf("%s %d..%d", s.Name, s.Begin/ms, (s.Begin+s.Duration)/ms))
	}
	if want := "make 0..80, cc1 80..400, make 400..410, cc 410..415, cc1 415..700, cc 700..705, as 705..890, cc 890..900, make 900..1000"; strings.Join(got, ", ") != want {
		t.Errorf("path\n%s\nwant\n%s", strings.Join(got, ", "), want)
	}
	if got, want := fmt.Sprint(r.OnPath), "[{cc1 2 605000000} {make 1 190000000} {as 1 185000000} {cc 1 20000000}]"; got != want {
		t.Errorf("on the path %s, want %s", got, want)
	}
	got = nil
	for _, x := range r.Between {
		got = append(got, fmt.Sprintf("%s for %s: %s %d %d", x.Process, x.For, x.Kind, x.Waits, x.Ended))
	}
	if want := "make (10) for cc (12): child 1 1, make (10) for cc1 (11): child 1 1, cc (12) for cc1 (13): child 1 1, cc (12) for as (14): child 1 1"; strings.Join(got, ", ") != want {
		t.Errorf("waits\n%s\nwant\n%s", strings.Join(got, ", "), want)
	}
	ends := map[string]string{}
	for _, p := range r.Processes {
		b, err := json.Marshal(p.Exit)
		if err != nil {
			t.Fatal(err)
		}
		ends[fmt.Sprintf("%s (%d)", p.Name, p.PID)] = p.Ended() + " " + string(b)
	}
	if want := map[string]string{"make (10)": `2 {"exit_status":2,"exit_signal":null}`, "cc1 (11)": `SIGSEGV {"exit_status":null,"exit_signal":"SIGSEGV"}`,
		"cc (12)": `0 {"exit_status":0,"exit_signal":null}`, "cc1 (13)": ` {"exit_status":null,"exit_signal":null}`}; !maps.Equal(ends, want) {
		t.Errorf("ends %v, want %v", ends, want)
	}
	var page, out bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<td>80.0ms<td>320ms<td", "<td>SIGSEGV<td>11<td>10<td class=\"w\">cc1<", "<td class=\"w\">cc1<td>2<td class=\"bar\" style=\"--b:60.5%\">605ms<td> 60%", "<code></code><td class=\"w\">cc (12)<td class=\"w\">end<", "<td class=\"w\">cc (12)<td>child<"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Waits of processes for each other\n", "on the path: 605ms in cc1 (2 processes), 190ms in make (1 process)", "waits for        cc (12)\n", "woken by         cc1 (11) ended\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// checkSteps: each step of the critical path is within the life that the table of processes gives its process.
func checkSteps(t *testing.T, r *Report) {
	t.Helper()
	lives := map[int]Process{}
	for _, p := range r.Processes {
		lives[p.PID] = p
	}
	for _, s := range r.CriticalPath {
		if p, ok := lives[s.PID]; ok && (s.Begin < p.Begin || s.Begin+s.Duration > p.End) {
			t.Errorf("step %+v is outside of %+v", s, p)
		}
	}
}

// TestBornBefore: a process starts within 10 ms of its parent's first event. Its start time, in steps of 10 ms,
// is before that event, and its first sample is much later.
func TestBornBefore(t *testing.T) {
	const ms = exporttest.Ms
	process := func(pid, parent int, born, first, gone int64) *trace.Recording {
		b := exporttest.New(t)
		b.Proc.PID, b.Proc.Parent, b.Proc.Comm, b.Proc.StartTime = pid, parent, "x", exporttest.Start+stack.Time(born*ms)
		th := b.Thread(pid, "x")
		th.Look(exporttest.Look{At: first * ms, Times: 1, State: stack.StateRunning, Stack: "main work"})
		th.End((gone-1)*ms, stack.WhyGone)
		rec := b.Finish(gone * ms)
		rec.End.Gone = exporttest.Start + stack.Time(gone*ms)
		return rec
	}
	rec := process(10, 0, -9, 3, 600)
	rec.Others = []*trace.Recording{process(11, 10, -3, 40, 552)}
	r := Of(rec, view.Options{}, 0)
	r.AddProcesses(rec)
	checkSteps(t, r)
	if len(r.CriticalPath) == 0 || len(r.Processes) != 2 || r.Processes[0].Begin != 0 || r.Processes[1].Begin != 0 {
		t.Errorf("processes %+v, path %+v", r.Processes, r.CriticalPath)
	}
}
