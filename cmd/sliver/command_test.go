package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// TestCommandStatus: sliver exits with the command's status and passes its streams through.
func TestCommandStatus(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, c := range []struct {
		script string
		status int
	}{{"exit 0", 0}, {"exit 7", 7}, {"kill -9 $$", 137}, {"kill -TERM $$", 143}, {"kill -SEGV $$", 139}} {
		dir := t.TempDir()
		r := sliver(t, dir, "record", "-q", "-o", "x.sliver", "--", "sh", "-c", "echo out; echo err >&2; "+c.script)
		if r.status != c.status || r.out != "out\n" || r.errors != "err\n" {
			t.Errorf("%s: %+v, want status %d", c.script, r, c.status)
		}
		f, err := os.Open(filepath.Join(dir, "x.sliver"))
		if err != nil {
			t.Errorf("%s: %v", c.script, err)
			continue
		}
		fi, _ := f.Stat()
		rec, err := trace.Open(f, fi.Size())
		if err != nil || rec.End == nil || rec.Process.Comm != "sh" {
			t.Errorf("%s: recording: %v", c.script, err)
		}
		f.Close()
	}
}

// TestChildren: the summary shows the CPU time of the target's children, as they are not recorded.
func TestChildren(t *testing.T) {
	testprog.Need(t, "ptrace")
	burn := "i=0; while [ $i -lt 80000 ]; do i=$((i+1)); done"
	// The summary shows it from a tenth of the target's time on. Sixteen at once get that much of a busy
	// machine too.
	r := sliver(t, t.TempDir(), "record", "--no-children", "-o", "x.sliver", "--", "sh", "-c", strings.Repeat("("+burn+") & ", 16)+"wait")
	if r.status != 0 || !strings.Contains(r.errors, " of CPU in other programs that sh started") {
		t.Errorf("%+v", r)
	}
	var sum struct {
		Children int64 `json:"children_cpu_ns"`
		Duration int64 `json:"duration_ns"`
	}
	dir := t.TempDir()
	r = sliver(t, dir, "record", "--json", "-o", "x.sliver", "--", "sh", "-c", burn+"; (sleep 0.1); times >times")
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || sum.Duration == 0 {
		t.Errorf("%v: %+v, %+v", err, sum, r)
	}
	// The shell's own CPU time is not included. Its own account is in ticks too.
	b, err := os.ReadFile(filepath.Join(dir, "times"))
	if err != nil {
		t.Fatal(err)
	}
	var own, children [2]float64
	if _, err := fmt.Sscanf(string(b), "0m%fs 0m%fs\n0m%fs 0m%fs", &own[0], &own[1], &children[0], &children[1]); err != nil {
		t.Fatalf("%v: %q", err, b)
	}
	if d := float64(sum.Children)/1e9 - children[0] - children[1]; d < -.021 || d > .021 || own[0]+own[1] < .03 {
		t.Errorf("told %d ns, the shell says %q", sum.Children, b)
	}
}
