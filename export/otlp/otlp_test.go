package otlp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/export/pprof"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/otelreceiver"
	"github.com/sliverprof/sliver/trace"
)

// received returns rec as the Collector's own receiver decodes it.
func received(t testing.TB, r *otelreceiver.Receiver, rec *trace.Recording, o view.Options) otelreceiver.Batch {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(r.URL+"/v1development/profiles", "application/x-protobuf", &b)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, body)
	}
	return r.Next(t)
}

// lines formats the samples of a profile, one line each.
func lines(stacks [][]string, labels []map[string]any, values []int64) []string {
	var out []string
	for i := range stacks {
		keys := make([]string, 0, len(labels[i]))
		for k, v := range labels[i] {
			keys = append(keys, fmt.Sprintf("%s=%v", k, v))
		}
		sort.Strings(keys)
		out = append(out, fmt.Sprintf("%d %v %s", values[i], keys, strings.Join(stacks[i], " < ")))
	}
	sort.Strings(out)
	return out
}

// want formats the samples as pprof's own package reads them.
func want(p *profile.Profile, k int) []string {
	var stacks [][]string
	var labels []map[string]any
	var values []int64
	for _, s := range p.Sample {
		if s.Value[k] == 0 {
			continue
		}
		var st []string
		for _, l := range s.Location {
			file := ""
			if l.Mapping != nil {
				file = l.Mapping.File
			}
			for _, line := range l.Line {
				st = append(st, fmt.Sprintf("%s %s:%d %s", line.Function.Name, line.Function.Filename, line.Line, file))
			}
		}
		m := map[string]any{}
		for key, v := range s.Label {
			m[labelKey(key)] = v[0]
		}
		for key, v := range s.NumLabel {
			if key != "pid" {
				m[labelKey(key)] = float64(v[0]) // JSON's number type
			}
		}
		stacks, labels, values = append(stacks, st), append(labels, m), append(values, s.Value[k])
	}
	return lines(stacks, labels, values)
}

func TestReceiverSeesTheProfile(t *testing.T) {
	r := otelreceiver.Start(t)
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 20_000, 3), "hostile": exporttest.Hostile(t)} {
		for _, o := range []view.Options{{}, {From: exporttest.Start + 12*exporttest.Ms, To: exporttest.Start + 70*exporttest.Ms, Threads: []int{0}}} {
			t.Run(what, func(t *testing.T) {
				b := received(t, r, rec, o)
				var w bytes.Buffer
				if err := pprof.Write(&w, rec, o); err != nil {
					t.Fatal(err)
				}
				p, err := profile.Parse(&w)
				if err != nil {
					t.Fatal(err)
				}
				if len(b.Profiles) != len(p.SampleType) {
					t.Fatalf("%d profiles, want %d", len(b.Profiles), len(p.SampleType))
				}
				for k, got := range b.Profiles {
					var stacks [][]string
					var labels []map[string]any
					var values []int64
					for _, s := range got.Samples {
						stacks, labels, values = append(stacks, s.Stack), append(labels, s.Attrs), append(values, s.Value)
					}
					if g, w := lines(stacks, labels, values), want(p, k); !slices.Equal(g, w) {
						t.Errorf("%s: receiver %.2000q\npprof %.2000q", got.Type, g, w)
					}
					if st := p.SampleType[k]; got.Type != st.Type || got.Unit != st.Unit || got.Time != uint64(p.TimeNanos) || got.Duration != uint64(p.DurationNanos) {
						t.Errorf("%s %s at %d for %d, want %v at %d for %d", got.Type, got.Unit, got.Time, got.Duration, st, p.TimeNanos, p.DurationNanos)
					}
				}
			})
		}
	}
}

func TestGolden(t *testing.T) {
	rec := exporttest.Sample(t)
	rec.Process.Container = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8d1d0e7c_1b2a_4a39_9d3c_0123456789ab.slice/cri-containerd-" + strings.Repeat("ab", 32) + ".scope"
	b := received(t, otelreceiver.Start(t), rec, view.Options{})
	for i := range b.Profiles {
		p := &b.Profiles[i]
		p.Samples = p.Samples[:min(len(p.Samples), 3)] // keeps the golden readable
	}
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	exporttest.Golden(t, "sample.json", string(text)+"\n")
}

func TestCgroup(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for path, want := range map[string][2]string{
		"":                                      {"", ""},
		"/user.slice/user-1000.slice":           {"", ""},
		"/docker/" + id:                         {id, ""},
		"/system.slice/docker-" + id + ".scope": {id, ""},
		"/kubepods/burstable/pod8d1d0e7c-1b2a-4a39-9d3c-0123456789ab/" + id:                                      {id, "8d1d0e7c-1b2a-4a39-9d3c-0123456789ab"},
		"/kubepods.slice/kubepods-pod8d1d0e7c_1b2a_4a39_9d3c_0123456789ab.slice/crio-" + id + ".scope":           {id, "8d1d0e7c-1b2a-4a39-9d3c-0123456789ab"},
		"/kubelet.slice/kubepods-besteffort-pod0123456789abcdef0123456789abcdef.slice:cri-containerd:" + id:      {id, "0123456789abcdef0123456789abcdef"},
		"/docker/" + strings.Repeat("f", 64) + "/kubelet/kubepods/pod8d1d0e7c-1b2a-4a39-9d3c-0123456789ab/" + id: {id, "8d1d0e7c-1b2a-4a39-9d3c-0123456789ab"},
	} {
		if c, p := Cgroup(path); c != want[0] || p != want[1] {
			t.Errorf("%s: %q %q", path, c, p)
		}
	}
}

// For any control group name, the IDs are valid or empty.
func FuzzCgroup(f *testing.F) {
	f.Add("/docker/" + strings.Repeat("f", 64))
	f.Add("/kubepods.slice/kubepods-pod8d1d0e7c_1b2a_4a39_9d3c_0123456789ab.slice/crio-" + strings.Repeat("0a", 32) + ".scope")
	f.Add("pod/\x00\xff")
	f.Fuzz(func(t *testing.T, path string) {
		id, pod := Cgroup(path)
		if id != "" && (len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" || !strings.Contains(path, id)) {
			t.Errorf("container %q", id)
		}
		if n := len(pod); n != 0 && n != 32 && n != 36 || strings.Trim(pod, "-0123456789abcdef") != "" {
			t.Errorf("pod %q", pod)
		}
	})
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := Write(io.Discard, exporttest.Raw(t, data), view.Options{}); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkWrite(b *testing.B) { exporttest.Throughput(b, Write) }

// Each process has a resource of its own, and its samples have the stacks that they have alone.
func TestSeveral(t *testing.T) {
	r := otelreceiver.Start(t)
	rec := exporttest.Several(t)
	got := []otelreceiver.Batch{received(t, r, rec, view.Options{}), r.Next(t)}
	for i, one := range []*trace.Recording{exporttest.Sample(t), rec.Others[0]} {
		want := received(t, r, one, view.Options{})
		if g, w := fmt.Sprint(got[i]), fmt.Sprint(want); g != w {
			t.Errorf("process %d: %.1000s\nwant %.1000s", i, g, w)
		}
	}
}
