package collapsed

import (
	"bytes"
	"io"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/idle"
)

const ms = exporttest.Ms

func export(t testing.TB, rec *trace.Recording, write func(io.Writer, *trace.Recording, view.Options) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, rec, view.Options{Idle: true}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// self returns the self time of each stack by the replay: the innermost call's time
// without its callees.
func self(rec *trace.Recording) map[string]int64 {
	name := map[int]string{}
	for _, t := range rec.Threads {
		name[t.Seq] = escape(view.Text(t.Name, 256))
	}
	out := map[string]int64{}
	var path []string
	for _, c := range exporttest.Calls(rec) {
		path = append(path[:min(c.Depth, len(path))], escape(view.Text(c.Name, view.MaxName)))
		at := name[c.Thread] + ";" + strings.Join(path, ";")
		out[at] += c.End - c.Begin
		if c.Depth > 0 {
			out[at[:strings.LastIndexByte(at, ';')]] -= c.End - c.Begin
		}
	}
	return out
}

// With lines, calls at two lines of a function are two frames.
func TestLines(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1, "main")
	th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Times: 1, Stack: "main:1 work:3"})
	th.Look(exporttest.Look{At: 10 * ms, State: stack.StateRunning, Times: 1, Stack: "main:1 work:4"})
	th.Look(exporttest.Look{At: 20 * ms, State: stack.StateRunning, Times: 1, Stack: "main:1 work:4"})
	rec := b.Finish(20 * ms)
	for lines, want := range map[bool]string{
		false: "main;main;work 20000000\n",
		true:  "main;main (main.c:1);work (work.c:3) 10000000\nmain;main (main.c:1);work (work.c:4) 10000000\n",
	} {
		var out bytes.Buffer
		if err := Wall(&out, rec, view.Options{Lines: lines}); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("lines %v:\n%s", lines, out.String())
		}
	}
}

func read(t testing.TB, text string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseInt(strings.TrimSuffix(line[i+1:], "\n"), 10, 64)
		if err != nil || n <= 0 || i == 0 {
			t.Fatalf("line %q: %v", line, err)
		}
		if _, twice := out[line[:i]]; twice {
			t.Fatalf("stack %q is there twice", line[:i])
		}
		out[line[:i]] = n
	}
	return out
}

func TestWallIsTheReplays(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 100_000, 3), "hostile": exporttest.Hostile(t)} {
		t.Run(what, func(t *testing.T) {
			got, want := read(t, export(t, rec, Wall)), self(rec)
			if what == "sample" {
				want["worker-1;[gap: overwritten]"] = 30 * ms
			}
			for k, ns := range want {
				if got[k] != ns {
					t.Errorf("%.200q: %d ns, want %d", k, got[k], ns)
				}
			}
			for k, ns := range got {
				if want[k] == 0 {
					t.Errorf("%.200q: %d ns, want none", k, ns)
				}
			}
		})
	}
}

func TestGolden(t *testing.T) {
	rec := exporttest.Sample(t)
	exporttest.Golden(t, "sample.golden", "== wall\n"+export(t, rec, Wall)+"== cpu\n"+export(t, rec, CPU)+"== off\n"+export(t, rec, Off))
}

// Idle waits are omitted, and Options.Left reports them.
func TestIdle(t *testing.T) {
	rec := exporttest.Sample(t)
	all, left := read(t, export(t, rec, Wall)), idle.Left{}
	var out strings.Builder
	if err := Wall(&out, rec, view.Options{Left: func(l idle.Left) { left = l }}); err != nil {
		t.Fatal(err)
	}
	for k, ns := range read(t, out.String()) {
		if all[k] != ns {
			t.Errorf("%q: %d ns, with idle waits %d", k, ns, all[k])
		}
		delete(all, k)
	}
	if want := map[string]int64{"server;main;serve;libpoll": 60 * ms}; !maps.Equal(all, want) || left.Others != 1 || left.Other != 60*ms {
		t.Errorf("left out %v, said %+v; want %v", all, left, want)
	}
}

// A thread that was seen running while it waited for a CPU is an idle thread all the same, as in the report.
func TestIdleThread(t *testing.T) {
	b := exporttest.New(t)
	w := b.Thread(1234, "pool")
	poll := b.Wait(trace.Wait{Call: "epoll_wait", Kind: "poll"})
	for i := range int64(2) {
		at := i * 1000 * ms
		w.Look(exporttest.Look{At: at, CPU: i * ms / 2, State: stack.StateBlocked, Call: 233, Stack: "loop:1 libpoll:9"})
		w.Event(at, event.Wait, poll)
		w.Look(exporttest.Look{At: at + 900*ms, CPU: i * ms / 2, State: stack.StateBlocked, Call: 233, Way: stack.WayUnrun})
		w.Look(exporttest.Look{At: at + 950*ms, CPU: i*ms/2 + ms/2, State: stack.StateRunning, Stack: "loop:2"})
	}
	w.End(2000*ms, stack.WhyGone)
	var left idle.Left
	if err := Wall(io.Discard, b.Finish(2000*ms), view.Options{Left: func(l idle.Left) { left = l }}); err != nil {
		t.Fatal(err)
	}
	if left.Threads != 1 || left.Others != 0 {
		t.Errorf("%+v", left)
	}
}

// Perfetto's reader computes the same sums.
func TestPerfettoReadsIt(t *testing.T) {
	rec := exporttest.Sample(t)
	text := export(t, rec, Wall)
	want := int64(0)
	for _, ns := range read(t, text) {
		want += ns
	}
	rows := exporttest.Ask(t, exporttest.File(t, "x.folded", []byte(text)), `select sum(value) total, count(*) n from __intrinsic_aggregate_sample`,
		`select count(*) n from stack_profile_frame where name = 'libpoll'`)
	if r := rows[0][0]; r.Int("total") != want || r.Int("n") != int64(strings.Count(text, "\n")) || rows[1][0].Int("n") != 1 {
		t.Errorf("%v, want a total of %d", rows, want)
	}
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		for _, w := range []func(io.Writer, *trace.Recording, view.Options) error{Wall, CPU, Off} {
			read(t, export(t, rec, w))
		}
	})
}

func BenchmarkWall(b *testing.B) { exporttest.Throughput(b, Wall) }
