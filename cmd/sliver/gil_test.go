package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestGIL: with --gil, the time of a thread is that in which it held CPython's global lock, also in
// functions of C, and a thread that waits for something else has none. The limits allow for 5 standard
// deviations of 200 samples, some of a turn, and what digest does between two blocks.
func TestGIL(t *testing.T) {
	testprog.Whole(t, "TestPythonGIL of package session has the states")
	testprog.Need(t, "ptrace")
	program := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "gilshare.py")
	for _, v := range []string{"3.8", "3.10", "3.11", "3.12", "3.13", "3.14"} {
		t.Run(v, func(t *testing.T) {
			if testing.Short() && v != "3.11" && v != "3.13" {
				t.Skip("the short form takes some versions only")
			}
			p := testprog.Start(t, testprog.Tool(t, "python"+v), program)
			p.Line("ready")
			dir := t.TempDir()
			recordEnough(t, dir, 200, 2*time.Second, "-p", pidOf(p), "-i", "5ms", "-o", "x.sliver")
			whole := folded(t, dir, "x.sliver", "--kinds", "no-native", "--idle")
			held := folded(t, dir, "x.sliver", "--kinds", "no-native", "--idle", "--gil")
			sum := func(stacks map[string]int64) (all int64) {
				for _, n := range stacks {
					all += n
				}
				return all
			}
			turns, _ := timeOf(whole, "turns")
			idle, _ := timeOf(whole, "idle")
			digest, _ := timeOf(whole, "digest")
			if turns == 0 || idle < turns/2 || digest < turns/5 {
				t.Fatalf("of %d ns in turns %d are of digest, %d of idle: %v", turns, digest, idle, whole)
			}
			all := sum(held)
			hold, _ := timeOf(held, "hold")
			compare, _ := timeOf(held, "compare")
			digest, _ = timeOf(held, "digest")
			idle, _ = timeOf(held, "idle")
			if hold < all*3/10 || compare < all*3/10 || digest > all/10 || idle > 0 || all < turns*4/10 || all > turns*9/10 {
				t.Errorf("with the lock: %d ns of %d, hold %d, compare %d, digest %d, idle %d: %v", all, turns, hold, compare, digest, idle, held)
			}
		})
	}
	t.Run("top", func(t *testing.T) {
		p := testprog.Start(t, testprog.Tool(t, "python3.11"), program)
		p.Line("ready")
		percent := func(args ...string) map[string]float64 {
			r := sliver(t, t.TempDir(), append([]string{"top", "--json", "--rows", "0", "-d", "4s", "-i", "5ms", "--kinds", "no-native", "--idle", "-p", pidOf(p)}, args...)...)
			var table struct {
				Window    float64 `json:"window_ns"`
				Functions []struct {
					Name  string  `json:"func"`
					Total float64 `json:"total_wall_ns"`
				} `json:"functions"`
			}
			if err := json.Unmarshal([]byte(r.out), &table); err != nil || r.status != 0 {
				t.Fatalf("%v: %+v", err, r)
			}
			out := map[string]float64{}
			for _, f := range table.Functions {
				out[f.Name] += 100 * f.Total / table.Window
			}
			return out
		}
		whole, held := percent(), percent("--gil")
		if whole["turns"] < 80 || whole["idle"] < 80 || whole["digest"] < 20 {
			t.Errorf("all time: %v", whole)
		}
		if x := held["turns"]; x < 40 || x > 90 || held["idle"] > 1 || held["digest"] > x/10 || held["hold"] < x*3/10 {
			t.Errorf("with the lock: %v", held)
		}
	})
	// A program without Python never holds it, and the choice is said.
	dir := t.TempDir()
	recordEnough(t, dir, 20, time.Second, "-p", pidOf(spin(t)), "-o", "c.sliver")
	if stacks := folded(t, dir, "c.sliver", "--gil"); len(stacks) > 0 {
		t.Errorf("a program in C holds the lock: %v", stacks)
	}
	if r := sliver(t, dir, "export", "c.sliver", "-o", "c.folded", "--gil", "--on-cpu"); r.status != 2 {
		t.Errorf("--gil and --on-cpu: %+v", r)
	}
}
