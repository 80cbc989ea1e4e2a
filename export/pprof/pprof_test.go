package pprof

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = exporttest.Ms

func export(t testing.TB, rec *trace.Recording, o view.Options) (file string, p *profile.Profile) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return exporttest.File(t, "x.pb.gz", b.Bytes()), p
}

// columns are indexes of sample types.
const (
	samples = iota
	cpu
	wall
	lock
	off
)

// inclusive returns, for each thread and function, the wall time of the stacks that
// contain it.
func inclusive(p *profile.Profile) map[string]int64 {
	out := map[string]int64{}
	for _, s := range p.Sample {
		seen := map[string]bool{}
		for _, l := range s.Location {
			for _, line := range l.Line {
				if n := line.Function.Name; !seen[n] {
					seen[n] = true
					out[s.Label["thread"][0]+" "+n] += s.Value[wall]
				}
			}
		}
	}
	return out
}

// replayed returns the same from the recording's replay: the time of slices that are not
// inside another slice of the same name.
func replayed(rec *trace.Recording) map[string]int64 {
	out := map[string]int64{}
	name := map[int]string{}
	for _, t := range rec.Threads {
		name[t.Seq] = t.Name
	}
	var open []exporttest.Call
	for _, c := range exporttest.Calls(rec) {
		open = open[:min(c.Depth, len(open))]
		inside := false
		for _, o := range open {
			inside = inside || o.Name == c.Name
		}
		open = append(open, c)
		if !inside && c.End > c.Begin {
			out[name[c.Thread]+" "+view.Text(c.Name, view.MaxName)] += c.End - c.Begin
		}
	}
	return out
}

func TestWallIsTheReplays(t *testing.T) {
	for name, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 100_000, 3), "hostile": exporttest.Hostile(t)} {
		t.Run(name, func(t *testing.T) {
			_, p := export(t, rec, view.Options{})
			got, want := inclusive(p), replayed(rec)
			for k, ns := range want {
				if name == "hostile" {
					k = view.Text(k, view.MaxName*2)
				}
				if got[k] != ns && name != "hostile" {
					t.Errorf("%.80s: %d ns, want %d", k, got[k], ns)
				}
			}
			total, all := int64(0), int64(0)
			for _, s := range p.Sample {
				total += s.Value[wall]
			}
			for _, c := range exporttest.Calls(rec) {
				if c.Depth == 0 {
					all += c.End - c.Begin
				}
			}
			if name == "sample" {
				all += 30 * ms // the worker's lost time, as a separate stack
			}
			if total != all || total == 0 {
				t.Errorf("%d ns in all, want %d", total, all)
			}
		})
	}
}

func TestValues(t *testing.T) {
	_, p := export(t, exporttest.Sample(t), view.Options{})
	type key struct{ thread, state, lock string }
	got := map[key][]int64{}
	for _, s := range p.Sample {
		k := key{s.Label["thread"][0], strings.Join(s.Label["state"], ","), strings.Join(s.Label["lock"], ",")}
		if got[k] == nil {
			got[k] = make([]int64, 5)
		}
		for i, v := range s.Value {
			got[k][i] += v
		}
	}
	want := map[key][]int64{ // samples, cpu, wall, lock_wait, off_cpu
		{"server", "running", ""}:                   {6, 60 * ms, 60 * ms, 0, 0},
		{"server", "blocked", ""}:                   {3, 0, 60 * ms, 0, 60 * ms}, // CPU time before it blocked belongs to the running observation
		{"worker-1", "running", ""}:                 {3, 30 * ms, 35 * ms, 0, 0},
		{"worker-1", "blocked", "mutex cache_lock"}: {1, 0, 10 * ms, 10 * ms, 10 * ms},
		{"worker-1", "", ""}:                        {2, 20 * ms, 30 * ms, 0, 0}, // the stack is unknown after the loss
	}
	for k, v := range want {
		if fmt.Sprint(got[k]) != fmt.Sprint(v) {
			t.Errorf("%v: %v, want %v", k, got[k], v)
		}
		delete(got, k)
	}
	for k, v := range got {
		t.Errorf("%v: %v, want none", k, v)
	}
}

// With kernel frames, the innermost frame of a sample names the same call as its label,
// and nothing else differs.
func TestKernel(t *testing.T) {
	rec := exporttest.Contended(t, 30_000, 3)
	_, plain := export(t, rec, view.Options{})
	_, p := export(t, rec, view.Options{Kernel: true})
	flat := func(p *profile.Profile, kernel bool) map[string]string {
		out := map[string]string{}
		for _, s := range p.Sample {
			key := fmt.Sprint(s.Label)
			st := s.Location
			if name := st[0].Line[0].Function.Name; strings.HasPrefix(name, "[kernel]") {
				if call := s.Label["call"]; !kernel || len(call) != 1 || name != "[kernel] "+call[0] || st[0].Mapping != nil || len(st[0].Line) != 1 {
					t.Fatalf("%s on top of a sample in %v", name, s.Label)
				}
				st = st[1:]
			} else if kernel && s.Label["state"][0] == "blocked" && len(s.Label["call"]) > 0 {
				t.Fatalf("no frame of the kernel in %v", s.Label)
			}
			for _, l := range st {
				key += fmt.Sprintf(" %s:%d", l.Line[0].Function.Name, l.Line[0].Line)
			}
			out[key] = fmt.Sprint(s.Value)
		}
		return out
	}
	if a, b := flat(plain, false), flat(p, true); len(a) < 100 || !maps.Equal(a, b) {
		t.Errorf("%d stacks with the kernel's frames, %d without, or other values", len(b), len(a))
	}
	f, _ := export(t, exporttest.Sample(t), view.Options{Kernel: true})
	if out := exporttest.Run(t, "go", "tool", "pprof", "-sample_index=wall", "-top", f); !strings.Contains(out, "[kernel] futex") || !strings.Contains(out, "[kernel] epoll_wait") {
		t.Errorf("go tool pprof shows no frames of the kernel:\n%s", out)
	}
}

func TestProfile(t *testing.T) {
	_, p := export(t, exporttest.Sample(t), view.Options{})
	types := ""
	for _, s := range p.SampleType {
		types += s.Type + "/" + s.Unit + " "
	}
	if types != "samples/count cpu/nanoseconds wall/nanoseconds lock_wait/nanoseconds off_cpu/nanoseconds " || p.DefaultSampleType != "cpu" {
		t.Errorf("sample types %s, default %s", types, p.DefaultSampleType)
	}
	if p.Period != 10*ms || p.PeriodType.Type != "wall" || p.DurationNanos != 125*ms+40_000 || p.TimeNanos != 1_700_000_000_000_000_000-40_000 {
		t.Errorf("period %d %v, duration %d, time %d", p.Period, p.PeriodType, p.DurationNanos, p.TimeNanos)
	}
	if len(p.Mapping) != 2 || p.Mapping[0].File != "/opt/app/server" || p.Mapping[0].BuildID != "8cbd3a00112233445566778899aabbccddeeff01" ||
		p.Mapping[1].File != "/usr/lib/libwork.so.1" || p.Mapping[1].BuildID != "aa55" {
		t.Errorf("mappings %v", p.Mapping)
	}
	if p.DocURL != "" || p.DropFrames != "" || p.KeepFrames != "" {
		t.Error("fields are set that readers trip over")
	}
	comments := strings.Join(p.Comments, "\n")
	for _, want := range []string{`command: /opt/app/server --port "80 80"`, "loss: 2 ticks late", "loss: 1 stack truncated", "interval: 10ms, jitter: 1ms"} {
		if !strings.Contains(comments, want) {
			t.Errorf("no %q in comments:\n%s", want, comments)
		}
	}
	// Inlined calls are lines of one location, innermost first.
	for _, l := range p.Location {
		if len(l.Line) == 3 {
			s := ""
			for _, x := range l.Line {
				s += fmt.Sprintf("%s:%d ", x.Function.Name, x.Line)
			}
			if s != "next<char>:7 scan:7 parse:20 " || l.Mapping.File != "/opt/app/server" {
				t.Errorf("inlined: %s in %s", s, l.Mapping.File)
			}
			return
		}
	}
	t.Error("no location with inlined calls")
}

func TestRange(t *testing.T) {
	rec := exporttest.Sample(t)
	_, p := export(t, rec, view.Options{Threads: []int{0}, From: exporttest.Start + 35*ms, To: exporttest.Start + 95*ms})
	got := map[string]int64{}
	for _, s := range p.Sample {
		got[s.Location[0].Line[0].Function.Name+" "+s.Label["state"][0]] += s.Value[wall]
	}
	if want := "map[libpoll blocked:55000000 libwork.so.1+0x124456 running:5000000]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestGoToolPprof(t *testing.T) {
	f, _ := export(t, exporttest.Sample(t), view.Options{})
	run := func(args ...string) string {
		return exporttest.Run(t, "go", append(append([]string{"tool", "pprof"}, args...), f)...)
	}
	raw := run("-raw")
	// The order of labels in a line varies, and the time is local.
	raw = regexp.MustCompile(`(?m)^(Time: ).*$`).ReplaceAllString(raw, "${1}…")
	var b strings.Builder
	b.WriteString("== -raw\n" + raw)
	for _, c := range [][]string{{"-top"}, {"-top", "-sample_index=cpu"}, {"-tags"}, {"-traces"}, {"-top", "-tagroot=thread"}} {
		out := run(c...)
		out = regexp.MustCompile(`(?m)^(Time: ).*$`).ReplaceAllString(out, "${1}…")
		b.WriteString("== " + strings.Join(c, " ") + "\n" + out)
	}
	exporttest.Golden(t, "sample.golden", b.String())
}

func TestHostileThroughTool(t *testing.T) {
	rec := exporttest.Hostile(t)
	f, p := export(t, rec, view.Options{})
	for _, fn := range p.Function {
		if len(fn.Name) > view.MaxName || strings.ContainsAny(fn.Name, "\x00\n\r\x1b") {
			t.Errorf("name %.60q", fn.Name)
		}
	}
	for _, c := range [][]string{{"-top"}, {"-tags"}, {"-traces"}, {"-raw"}} {
		out := exporttest.Run(t, "go", append(append([]string{"tool", "pprof"}, c...), f)...)
		if strings.ContainsAny(out, "\x00\x1b") {
			t.Errorf("%v prints control characters", c)
		}
	}
}

// trace_processor reads pprof too.
func TestPerfettoReadsIt(t *testing.T) {
	rec := exporttest.Sample(t)
	f, p := export(t, rec, view.Options{})
	want := make([]int64, 5)
	for _, s := range p.Sample {
		for i, v := range s.Value {
			want[i] += v
		}
	}
	rows := exporttest.Ask(t, f, `select sample_type_type type, sum(s.value) total from __intrinsic_aggregate_sample s
		join __intrinsic_aggregate_profile p on p.id = s.aggregate_profile_id group by 1`)[0]
	got := map[string]int64{}
	for _, r := range rows {
		got[r.Text("type")] = r.Int("total")
	}
	for i, n := range []string{"samples", "cpu", "wall", "lock_wait", "off_cpu"} {
		if got[n] != want[i] {
			t.Errorf("%s: %d, want %d", n, got[n], want[i])
		}
	}
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		_, p := export(t, rec, view.Options{})
		for _, s := range p.Sample {
			if s.Value[wall] < 0 || s.Value[off] > s.Value[wall] || s.Value[lock] > s.Value[wall] {
				t.Fatalf("values %v", s.Value)
			}
		}
		export(t, rec, view.Options{From: exporttest.Start + 5*ms, To: exporttest.Start + 50*ms})
	})
}

// A stack seen in two generations of the address space.
func TestError(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "!3 main:1"})
	th.Event(ms, event.Mark, uint64(stack.WhyExec))
	th.Look(exporttest.Look{At: 10 * ms, State: stack.StateRunning, Stack: "!3 main:1"})
	_, p := export(t, b.Finish(10*ms), view.Options{})
	if len(p.Sample) != 1 || p.Sample[0].Location[1].Line[0].Function.Name != "[unmapped address]" || p.Sample[0].Location[1].Mapping != nil {
		t.Errorf("samples: %v", p)
	}
}

func TestWriteError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	if err := Write(w, exporttest.Sample(t), view.Options{}); err == nil {
		t.Error("no error from a closed file")
	}
}

func BenchmarkWrite(b *testing.B) {
	rec := exporttest.Big(b, 1_000_000, 4)
	events := uint64(0)
	for i := range rec.Threads {
		events += rec.Count(rec.Threads[i].Seq)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, rec, view.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
