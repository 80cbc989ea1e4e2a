package firefox

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/trace"
)

// file is the part of a profile that the tests check.
type file struct {
	Meta struct {
		PreprocessedProfileVersion int
		Extra                      []struct {
			Entries []struct{ Label, Value string }
		}
		Categories []struct{ Name string }
	}
	Libs    []struct{ Name, BreakpadID, CodeID string }
	Threads []struct {
		Name    string
		Samples struct {
			Length         int
			Stack          []*int
			Time           []float64
			Weight         []float64
			ThreadCPUDelta []*int64
		}
		Markers struct {
			Length    int
			Name      []int
			StartTime []float64
			EndTime   []*float64
			Phase     []int
			Category  []int
			Data      []map[string]string
		}
	}
	Shared struct {
		StackTable struct {
			Length int
			Frame  []int
			Prefix []*int
		}
		FrameTable struct {
			Length                               int
			Address, InlineDepth, Category, Func []int
			NativeSymbol, Line                   []*int
		}
		FuncTable struct {
			Length         int
			Name, Resource []int
			Source         []*int
		}
		StringArray []string
	}
}

func export(t testing.TB, rec *trace.Recording, o view.Options) ([]byte, *file) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(text, "<>\x00\x1b") {
		t.Error("the file has characters that markup is made of")
	}
	check(t, &f)
	return b.Bytes(), &f
}

// check verifies that the columns are consistent.
func check(t testing.TB, f *file) {
	t.Helper()
	s := &f.Shared
	for _, n := range []int{len(s.StackTable.Frame), len(s.StackTable.Prefix)} {
		if n != s.StackTable.Length {
			t.Fatalf("stack table: %d of %d", n, s.StackTable.Length)
		}
	}
	for _, n := range []int{len(s.FrameTable.Address), len(s.FrameTable.InlineDepth), len(s.FrameTable.Category), len(s.FrameTable.Func), len(s.FrameTable.NativeSymbol), len(s.FrameTable.Line)} {
		if n != s.FrameTable.Length {
			t.Fatalf("frame table: %d of %d", n, s.FrameTable.Length)
		}
	}
	for i, p := range s.StackTable.Prefix {
		if p != nil && *p >= i || s.StackTable.Frame[i] >= s.FrameTable.Length {
			t.Fatalf("stack %d has prefix %v, frame %d", i, p, s.StackTable.Frame[i])
		}
	}
	for _, th := range f.Threads {
		x := &th.Samples
		if x.Length != len(x.Stack) || x.Length != len(x.Time) || x.Length != len(x.Weight) || x.Length != len(x.ThreadCPUDelta) {
			t.Fatalf("samples of %s: %d", th.Name, x.Length)
		}
		for i := 1; i < x.Length; i++ {
			if x.Time[i] < x.Time[i-1] || x.Weight[i] < 0 {
				t.Fatalf("sample %d of %s at %g behind %g, weight %g", i, th.Name, x.Time[i], x.Time[i-1], x.Weight[i])
			}
		}
		m := &th.Markers
		for _, n := range []int{len(m.Name), len(m.StartTime), len(m.EndTime), len(m.Phase), len(m.Category), len(m.Data)} {
			if n != m.Length {
				t.Fatalf("markers of %s: %d of %d", th.Name, n, m.Length)
			}
		}
	}
}

// self returns the self time in ms of each stack by the replay, keyed by thread and
// names.
func self(rec *trace.Recording) map[string]float64 {
	name := map[int]string{}
	for _, t := range rec.Threads {
		name[t.Seq] = t.Name
	}
	ns := map[string]int64{}
	var path []string
	for _, c := range exporttest.Calls(rec) {
		path = append(path[:min(c.Depth, len(path))], c.Name)
		at := name[c.Thread] + ";" + strings.Join(path, ";")
		ns[at] += c.End - c.Begin
		if c.Depth > 0 {
			ns[at[:strings.LastIndexByte(at, ';')]] -= c.End - c.Begin
		}
	}
	out := map[string]float64{}
	for k, n := range ns {
		if n > 0 {
			out[k] = float64(n) / 1e6
		}
	}
	return out
}

func compare(t *testing.T, got, want map[string]float64) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("nothing to compare with")
	}
	for k, v := range want {
		if math.Abs(got[k]-v) > 1e-4 {
			t.Errorf("%.200s: %g ms, want %g", k, got[k], v)
		}
	}
	for k, v := range got {
		if v > 1e-4 && want[k] == 0 {
			t.Errorf("%.200s: %g ms, want none", k, v)
		}
	}
}

// call is a node of the call tree that Mozilla's code builds.
type call struct {
	Name         string
	SelfSamples  float64
	TotalSamples float64
	InlineStatus string
	Children     []call
	// Set if the tree was truncated.
	ChildrenTruncated any
}

func (c *call) self(path string, out map[string]float64) {
	for i := range c.Children {
		x := &c.Children[i]
		at := path + ";" + x.Name
		out[at] += x.SelfSamples
		x.self(at, out)
	}
}

func TestReaderSeesTheReplay(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 4000, 2)} {
		t.Run(what, func(t *testing.T) {
			b, f := export(t, rec, view.Options{})
			ask := exporttest.Firefox(t, exporttest.File(t, "x.firefox.json.gz", b))
			got := map[string]float64{}
			for i, th := range f.Threads {
				var a struct{ RegularCallTree call }
				if err := json.Unmarshal(ask("thread", "samples-top-down", "--include-idle", "--max-lines", "1000000", "--thread", fmt.Sprintf("t-%d", i)), &a); err != nil {
					t.Fatal(err)
				}
				a.RegularCallTree.self(th.Name, got)
			}
			want := self(rec)
			if what == "sample" {
				want["worker-1;[gap: overwritten]"] = 30
			}
			compare(t, got, want)
		})
	}
}

func TestMarkersAndCPU(t *testing.T) {
	b, f := export(t, exporttest.Sample(t), view.Options{})
	if f.Meta.PreprocessedProfileVersion != 60 {
		t.Errorf("version %d", f.Meta.PreprocessedProfileVersion)
	}
	facts := fmt.Sprint(f.Meta.Extra)
	for _, want := range []string{"{loss 1 2 ticks late", "{overwritten 1}", `{command /opt/app/server --port "80 80"}`} {
		if !strings.Contains(facts, want) {
			t.Errorf("no %s in %s", want, facts)
		}
	}
	if l := f.Libs[0]; l.Name != "server" || l.CodeID != "8cbd3a00112233445566778899aabbccddeeff01" || l.BreakpadID != "003ABD8C22114433556677889"+"9AABBCC0" {
		t.Errorf("library %+v", l)
	}
	ask := exporttest.Firefox(t, exporttest.File(t, "x.firefox.json.gz", b))
	var info struct {
		Processes []struct {
			Name, PID string
			Threads   []struct {
				Name  string
				TID   int
				CPUms float64
			}
		}
	}
	if err := json.Unmarshal(ask("profile", "info"), &info); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(info.Processes); got != "[{server 1234 [{server 1234 60} {worker-1 1240 50}]}]" {
		t.Errorf("processes %s", got)
	}
	var m struct {
		FlatMarkers []struct {
			Name, Label, Category string
			Start, Duration       float64
		}
	}
	if err := json.Unmarshal(ask("thread", "markers", "--list", "--thread", "t-0"), &m); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, x := range m.FlatMarkers {
		got += fmt.Sprintf("%s %q %s %.2f+%.2f; ", x.Name, x.Label, x.Category, x.Start, x.Duration)
	}
	if want := `State "blocked: epoll_wait" Waiting 30.04+60.00; Wait "epoll of 12" Waiting 30.04+60.00; Gap "gap: late" Missing 60.04+20.00; `; got != want {
		t.Errorf("markers %s, want %s", got, want)
	}
}

// Perfetto reads the same number of samples, with the same frames.
func TestPerfettoReadsIt(t *testing.T) {
	b, f := export(t, exporttest.Sample(t), view.Options{})
	n := 0
	for _, th := range f.Threads {
		for _, s := range th.Samples.Stack {
			if s != nil {
				n++
			}
		}
	}
	a := exporttest.Ask(t, exporttest.File(t, "x.firefox.json.gz", b), `select count(*) n from cpu_profile_stack_sample`, `select count(distinct name) n from stack_profile_frame`)
	if a[0][0].Int("n") != int64(n) || n == 0 || a[1][0].Int("n") != 14 {
		t.Errorf("%v, want %d samples, 14 functions", a, n)
	}
}

// The innermost frame's category says whether the thread waits.
func TestCategories(t *testing.T) {
	_, f := export(t, exporttest.Sample(t), view.Options{})
	ms := map[string]float64{}
	for _, th := range f.Threads {
		for i, s := range th.Samples.Stack {
			if s != nil {
				ms[th.Name+" "+f.Meta.Categories[f.Shared.FrameTable.Category[f.Shared.StackTable.Frame[*s]]].Name] += th.Samples.Weight[i]
			}
		}
	}
	if got := fmt.Sprint(ms); got != "map[server Native:60 server Waiting:60 worker-1 Missing:30 worker-1 Native:35 worker-1 Waiting:10]" {
		t.Error(got)
	}
}

func TestHostile(t *testing.T) {
	rec := exporttest.Hostile(t)
	b, _ := export(t, rec, view.Options{})
	ask := exporttest.Firefox(t, exporttest.File(t, "x.firefox.json.gz", b))
	var a struct{ RegularCallTree call }
	if err := json.Unmarshal(ask("thread", "samples-top-down", "--include-idle", "--max-lines", "1000000", "--thread", "t-0"), &a); err != nil {
		t.Fatal(err)
	}
	got, sum, want := map[string]float64{}, 0.0, 0.0
	a.RegularCallTree.self("", got)
	for _, v := range got {
		sum += v
	}
	for _, c := range exporttest.Calls(rec) {
		if c.Thread == 0 && c.Depth == 0 {
			want += float64(c.End-c.Begin) / 1e6
		}
	}
	if math.Abs(sum-want) > 1e-3 || len(got) < len(exporttest.HostileNames) {
		t.Errorf("%g ms in %d stacks, want %g", sum, len(got), want)
	}
}

func TestMs(t *testing.T) {
	for in, want := range map[int64]string{0: "0", 1: "0.000001", 1e6: "1", 1500000: "1.5", 123456789: "123.456789", -2e6: "-2", 1e15 + 10: "1000000000.00001"} {
		if got := string(ms(nil, in)); got != want {
			t.Errorf("%d: %s, want %s", in, got, want)
		}
	}
}

// Compares the file with the golden, one table per line.
func TestGolden(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, exporttest.Sample(t), view.Options{}); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || !json.Valid(text) {
		t.Fatalf("%v: %.300s", err, text)
	}
	exporttest.Golden(t, "sample.json", strings.ReplaceAll(string(text), "},\"", "},\n\""))
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { export(t, exporttest.Raw(t, data), view.Options{}) })
}

func BenchmarkWrite(b *testing.B) { exporttest.Throughput(b, Write) }
