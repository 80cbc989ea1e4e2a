package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestKinds: if one kind of frames is selected, record, stack and export show no other.
// pprof's own filter does the same by the mapping of Python's functions.
func TestKinds(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Tool(t, "python3"), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "park.py"))
	p.Line("parked")
	dir := t.TempDir()
	r := sliver(t, dir, "stack", "--native=off", "--json", pidOf(p))
	var s struct {
		Threads []struct {
			Frames []struct{ Kind string }
		}
	}
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	kinds := map[string]int{}
	for _, th := range s.Threads {
		for _, f := range th.Frames {
			kinds[f.Kind]++
		}
	}
	if kinds["python"] < 50 || len(kinds) != 1 {
		t.Errorf("stack --native=off: %v", kinds)
	}

	record := func(args ...string) *profile.Profile {
		t.Helper()
		file := filepath.Join(dir, "x.pb.gz")
		if r := sliver(t, dir, append([]string{"record", "-q", "-p", pidOf(p), "-d", "300ms", "-o", "x.sliver", "-o", file}, args...)...); r.status != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
		return readProfile(t, file)
	}
	names := func(p *profile.Profile) (python, others []string) {
		for _, l := range p.Location {
			for _, x := range l.Line {
				if l.Mapping != nil && l.Mapping.File == "[python]" {
					python = append(python, x.Function.Name)
				} else {
					others = append(others, x.Function.Name)
				}
			}
		}
		return python, others
	}
	python, others := names(record("--kinds=python"))
	if len(python) < 20 || len(others) > 0 {
		t.Errorf("record --kinds=python has %q and %q", python, others)
	}
	whole := filepath.Join(dir, "whole.pb.gz")
	if r := sliver(t, dir, "export", "x.sliver", "-o", whole); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	prof := readProfile(t, whole)
	wanted := python
	if python, others = names(prof); len(others) < 10 || len(python) != len(wanted) {
		t.Errorf("the recording has %q and %q", python, others)
	}
	prof.FilterSamplesByName(nil, nil, nil, regexp.MustCompile(`^\[python\]$`))
	shown := map[string]bool{}
	for _, s := range prof.Sample {
		for _, l := range s.Location {
			for _, x := range l.Line {
				shown[x.Function.Name] = true
			}
		}
	}
	for name := range shown {
		if !slices.Contains(wanted, name) {
			t.Errorf("pprof shows %s of the mapping [python]", name)
		}
	}
	if len(shown) < 10 {
		t.Errorf("pprof shows %v of the mapping [python]", shown)
	}
	if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "1ms", "--native=off", "-o", "y.sliver"); r.status != 2 {
		t.Errorf("a recording without native frames: %+v", r)
	}
}

func readProfile(t *testing.T, path string) *profile.Profile {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
