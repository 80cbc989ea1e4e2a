package foreign_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/export/foreign"
	ours "github.com/sliverprof/sliver/export/pprof"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/trace"
)

func readPprof(t testing.TB, b []byte) (*trace.Recording, *foreign.Report, error) {
	t.Helper()
	var out bytes.Buffer
	rep, err := foreign.ReadPprof(bytes.NewReader(b), &out, foreign.Options{Name: "x"})
	if err != nil {
		return nil, nil, err
	}
	return opened(t, out.Bytes()), rep, nil
}

// selfTimes returns ns by thread and stack, outermost name first.
func selfTimes(rec *trace.Recording) map[string]int64 {
	sum := map[string]int64{}
	type open struct {
		path string
		c    exporttest.Call
	}
	var stack []open
	thread := -1
	calls := exporttest.Calls(rec)
	slices.SortStableFunc(calls, func(a, b exporttest.Call) int {
		if a.Thread != b.Thread {
			return a.Thread - b.Thread
		}
		if a.Begin != b.Begin {
			return int(a.Begin - b.Begin)
		}
		return a.Depth - b.Depth
	})
	for _, c := range calls {
		if c.Thread != thread {
			stack, thread = nil, c.Thread
		}
		stack = stack[:min(c.Depth, len(stack))]
		path := rec.Threads[c.Thread].Name
		if len(stack) > 0 {
			path = stack[len(stack)-1].path
			sum[path] -= c.End - c.Begin
		}
		path += ";" + c.Name
		sum[path] += c.End - c.Begin
		stack = append(stack, open{path, c})
	}
	for path, ns := range sum {
		if ns == 0 {
			delete(sum, path)
		}
	}
	return sum
}

// profileTimes returns the same for a sample type of a profile.
func profileTimes(p *profile.Profile, kind int, unit int64) map[string]int64 {
	sum := map[string]int64{}
	for _, s := range p.Sample {
		path := "x"
		if v := s.Label["thread"]; len(v) > 0 {
			path = v[0]
		}
		for i := len(s.Location) - 1; i >= 0; i-- {
			for j := len(s.Location[i].Line) - 1; j >= 0; j-- {
				path += ";" + s.Location[i].Line[j].Function.Name
			}
		}
		sum[path] += s.Value[kind] * unit
	}
	for path, ns := range sum {
		if ns == 0 {
			delete(sum, path)
		}
	}
	return sum
}

// The recording of a profile has the same time for each stack. Checked with a profile
// that Go's runtime made of this program and with one of ours.
func TestPprof(t *testing.T) {
	var fromGo, fromUs bytes.Buffer
	if err := pprof.StartCPUProfile(&fromGo); err != nil {
		t.Fatal(err)
	}
	var rec *trace.Recording
	for begun := time.Now(); time.Since(begun) < 300*time.Millisecond; {
		rec = exporttest.Big(t, 5_000, 3)
	}
	pprof.StopCPUProfile()
	if err := ours.Write(&fromUs, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string][]byte{"of Go": fromGo.Bytes(), "of sliver": fromUs.Bytes()} {
		p, err := profile.ParseData(b)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 64)
		if _, err := io.ReadFull(z, head); err != nil || foreign.Detect(head) != foreign.Pprof {
			t.Errorf("%s: %q is taken for %v, %v", what, head, foreign.Detect(head), err)
		}
		kind := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == p.DefaultSampleType })
		if what == "of Go" {
			kind = 1 // samples, cpu
		}
		got, rep, err := readPprof(t, b)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		sane(t, got)
		want, have := profileTimes(p, kind, 1), selfTimes(got)
		if len(want) == 0 || len(want) != len(have) {
			t.Errorf("%s: %d stacks, %d in the recording", what, len(want), len(have))
		}
		for path, ns := range want {
			if have[path] != ns {
				t.Errorf("%s: %s: %d ns, %d in the recording", what, path, ns, have[path])
			}
		}
		if rep.Calls == 0 || rep.Threads != len(got.Threads) || len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "one after another") {
			t.Errorf("%s: %+v", what, rep)
		}
	}
}

// heap returns a profile in bytes, with inlined lines, an address without a function, a
// negative value and a zero value.
func heap() *profile.Profile {
	m := &profile.Mapping{ID: 1, Start: 0x1000, Limit: 0x9000}
	var fns []*profile.Function
	for i, n := range []string{"main", "alloc", "inlined"} {
		fns = append(fns, &profile.Function{ID: uint64(i + 1), Name: n})
	}
	line := func(i int) profile.Line { return profile.Line{Function: fns[i], Line: 1} }
	locs := []*profile.Location{{ID: 1, Mapping: m, Address: 0x1100, Line: []profile.Line{line(0)}},
		{ID: 2, Mapping: m, Address: 0x1200, Line: []profile.Line{line(2), line(1)}}, {ID: 3, Mapping: m, Address: 0x1300}}
	return &profile.Profile{SampleType: []*profile.ValueType{{Type: "objects", Unit: "count"}, {Type: "space", Unit: "bytes"}},
		Mapping: []*profile.Mapping{m}, Function: fns, Location: locs, Sample: []*profile.Sample{
			{Location: []*profile.Location{locs[1], locs[0]}, Value: []int64{1, 100}},
			{Location: []*profile.Location{locs[2], locs[0]}, Value: []int64{2, 50}},
			{Location: []*profile.Location{locs[0]}, Value: []int64{3, -1}},
			{Location: []*profile.Location{locs[0]}, Value: []int64{4, 0}},
			{Location: []*profile.Location{locs[0]}, Value: []int64{5, 7}, Label: map[string][]string{"thread": {"io"}}, NumLabel: map[string][]int64{"tid": {77}}},
		}}
}

func encoded(t testing.TB, p *profile.Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.WriteUncompressed(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPprofOfBytes(t *testing.T) {
	b := encoded(t, heap())
	if got := foreign.Detect(b[:64]); got != foreign.Pprof {
		t.Errorf("taken for %v", got)
	}
	rec, rep, err := readPprof(t, b)
	if err != nil {
		t.Fatal(err)
	}
	want := "x/0 1..151 main; x/1 1..51 0x1300; x/1 51..151 alloc; x/2 51..151 inlined; io/0 1..8 main"
	if got := text(rec); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if rec.Threads[1].TID != 77 || len(rep.Notes) != 2 || !strings.Contains(rep.Notes[0], `"bytes"`) || !strings.Contains(rep.Notes[1], "1 sample has a value below 0") {
		t.Errorf("%+v, %q", rec.Threads, rep.Notes)
	}
	for what, p := range map[string]*profile.Profile{"no sample": {SampleType: heap().SampleType}, "no sample types": {}} {
		if _, _, err := readPprof(t, encoded(t, p)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzPprof(f *testing.F) {
	f.Add(encoded(f, heap()))
	p := heap()
	p.SampleType[1].Unit = "seconds"
	p.Sample[0].Value[1] = 1 << 62
	f.Add(encoded(f, p))
	f.Fuzz(func(t *testing.T, in []byte) {
		if rec, _, err := readPprof(t, in); err == nil {
			sane(t, rec)
		}
	})
}
