package session

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// TestKeptStacks: many threads wake and go back to the same sleep. Those called by another function
// in between must be seen in it, though call, stack pointer and program counter are equal. Each
// thread spends half of its time in either function. With some 75 samples of each while it sleeps,
// one is off by a half of that in less than 1 of 10^5 runs.
func TestKeptStacks(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	p := testprog.Start(t, testprog.Build(t, "c/siblings", "O2"))
	p.Ready()
	p.Go()
	rec := recordWith(t, p.PID, Options{Interval: 10 * time.Millisecond, Jitter: .5, Groups: 1}, func(s stack.ThreadStats) bool { return s.Samples+s.Rested+s.Late > 41*600 })
	file := filepath.Join(t.TempDir(), "x.folded")
	out, err := export.ParseOutput(file, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := export.Write(out, rec, export.Options{}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	type times struct{ first, second int64 }
	by := map[string]times{}
	for line := range strings.Lines(string(b)) {
		at := strings.LastIndexByte(line, ' ')
		ns, err := strconv.ParseInt(strings.TrimSpace(line[at:]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		thread, _, _ := strings.Cut(line, ";")
		x := by[thread]
		switch {
		case strings.Contains(line[:at], ";first;"):
			x.first += ns
		case strings.Contains(line[:at], ";second;"):
			x.second += ns
		}
		by[thread] = x
	}
	if len(by) < 41 {
		t.Errorf("%d threads", len(by))
	}
	for name, x := range by {
		if share := float64(x.first) / float64(max(x.first+x.second, 1)); share < .25 || share > .75 {
			t.Errorf("%s: %d ns in first, %d ns in second", name, x.first, x.second)
		}
	}
}
