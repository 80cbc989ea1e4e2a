package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// One clock and one duration: the summary, the report, pprof and the file agree to the ns, the
// duration equals -d, and the first tick comes at once.
func TestOneDuration(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	dir := t.TempDir()
	slivercmd(t, dir) // on a busy machine, building takes longer than the program runs
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "600", "--threads", "2")
	r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "2s", "--json", "-o", "run.sliver", "-o", "run.pb.gz")
	var s struct {
		Duration int64 `json:"duration_ns"`
	}
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.errors)
	}
	// Samplers may wait for a CPU before they notice the end.
	if s.Duration < 1_900_000_000 {
		t.Errorf("-d 2s lasted %d ns", s.Duration)
	}
	rec, f, err := openRecording(filepath.Join(dir, "run.sliver"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	from, to := rec.Span()
	if int64(to-from) != s.Duration {
		t.Errorf("the file has %d ns, the summary %d", to-from, s.Duration)
	}
	first := stack.Time(math.MaxInt64)
	for i := range rec.Threads {
		for e := range rec.Events(rec.Threads[i].Seq) {
			first = min(first, e.Time)
			break
		}
	}
	if first != from {
		t.Errorf("nothing is known of the first %d ns", first-from)
	}
	var doc struct {
		Recording struct {
			Duration int64 `json:"duration_ns"`
		} `json:"recording"`
	}
	r = sliver(t, dir, "report", "--json", "run.sliver")
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || doc.Recording.Duration != s.Duration {
		t.Errorf("the report has %d ns, the summary %d: %v", doc.Recording.Duration, s.Duration, err)
	}
	pb, err := os.Open(filepath.Join(dir, "run.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer pb.Close()
	prof, err := profile.Parse(io.LimitReader(pb, 64<<20))
	if err != nil || prof.DurationNanos != s.Duration {
		t.Errorf("pprof has %d ns, the summary %d: %v", prof.DurationNanos, s.Duration, err)
	}
}
