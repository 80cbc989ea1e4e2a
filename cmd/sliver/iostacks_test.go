package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/trace"
)

// TestIOStacksLikeSampler: of the stacks of opens at many places, no larger part lacks frames than of the samples of the same
// threads in the same time. A part may be larger by chance: the test fails for equal ones in less than one of a million
// runs, if up to eight stacks in a row lack frames for one reason.
func TestIOStacksLikeSampler(t *testing.T) {
	testprog.Whole(t, "TestStacks of package canary has the stacks of every language")
	testprog.Need(t, "ptrace")
	target := func(name string) string { return filepath.Join(testprog.Root(t), "testdata", "targets", name) }
	path := target("python/places.py")
	for _, c := range []struct {
		tool string
		args []string
	}{
		{"python3.8", []string{target("python/places.py")}},
		{"python3.12", []string{target("python/places.py")}},
		{"python3.14", []string{target("python/places.py")}},
		{"ruby3.1", []string{filepath.Join(testprog.Root(t), "lang", "ruby", "testdata", "places.rb")}},
		{"node", []string{target("node/places.js")}},
		{"java17", []string{"-Xmx64m", "-XX:+UseSerialGC", "-cp", "", "Places"}},
		{"java25", []string{"-Xmx64m", "-XX:+UseSerialGC", "-cp", "", "Places"}},
	} {
		t.Run(c.tool, func(t *testing.T) {
			tool, args := testprog.Tool(t, c.tool), append(c.args, path)
			if len(args) > 4 {
				args[3] = testprog.JavaClasses(t, "Places")
			}
			p := testprog.Start(t, tool, args...)
			p.Ready()
			dir := t.TempDir()
			if r := sliver(t, dir, "record", "--io", "-d", "2s", "-o", "x.sliver", "-p", pidOf(p)); r.status != 0 {
				t.Fatalf("%+v", r)
			} else if strings.Contains(r.errors, "I/O was not recorded") {
				testprog.Missing(t, "bpf", r.errors)
			}
			rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
			stacks, short := 0, 0
			for o, err := range rec.Ops() {
				if err != nil {
					t.Fatal(err)
				}
				if o.Op == iowatch.OpOpen && o.Stack >= 0 && rec.IONames.Path(o.File) == path {
					stacks++
					if frames, cut := rec.IONames.Stack(o.Stack, true); cut != "" || !slices.ContainsFunc(frames, func(f trace.IOFrame) bool { return strings.Contains(f.Func, "step") }) {
						short++
					}
				}
			}
			var samples, cut uint64
			for _, x := range rec.Stats.Threads {
				samples, cut = samples+x.Samples, cut+x.Truncated
			}
			if stacks < 50 {
				t.Fatalf("%d stacks, %d samples", stacks, samples)
			}
			samples = max(samples, uint64(stacks)) // a sampler without a free CPU counts as one whose stacks are complete
			if most := float64(cut)/float64(samples) + chance(stacks, short, int(samples), int(cut)); float64(short)/float64(stacks) > most {
				t.Errorf("%d of %d stacks lack frames, and %d of %d samples", short, stacks, cut, samples)
			}
			t.Logf("%d of %d stacks lack frames, and %d of %d samples", short, stacks, cut, samples)
		})
	}
}

// chance returns by how much two parts of equal chance differ in less than one of a million cases: of n things in which x
// were met, and of m and y. Things come in groups of up to eight.
func chance(n, x, m, y int) float64 {
	const deviations, group = 4.8, 8
	p := float64(x+y+1) / float64(n+m+2)
	return deviations * math.Sqrt(group*p*(1-p)*(1/float64(n)+1/float64(m)))
}
