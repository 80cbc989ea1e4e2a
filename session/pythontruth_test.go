package session

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// pythons are the versions whose timelines are compared with their program's log.
var pythons = []struct {
	version string
	always  bool // part of the short form, and at 10 ms of the usual one
}{{"python3", true}, {"python3.8", false}, {"python3.9", false}, {"python3.10", true}, {"python3.11", false}, {"python3.12", false}, {"python3.13", false}, {"python3.14", false}}

// TestPythonTruth is TestTruth for a program in Python: its functions, called in all
// the ways that Python has, must be on the timeline when they ran.
func TestPythonTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	for _, v := range pythons {
		for _, rate := range []struct {
			interval time.Duration
			unit     string
		}{{10 * time.Millisecond, "6"}, {2 * time.Millisecond, "2"}} {
			t.Run(fmt.Sprintf("%s/%v", v.version, rate.interval), func(t *testing.T) {
				if testing.Short() && !v.always {
					t.Skip("the short form takes some versions only")
				}
				if !v.always && rate.interval > 2*time.Millisecond && !long() {
					t.Skip("SLIVER_LONG=1 takes each version at each interval")
				}
				program := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "chain.py")
				for range tries {
					rec, calls := recordChain(t, testprog.Tool(t, v.version), rate.interval, false,
						program, "--seconds", "1", "--threads", "2", "--seed", "3", "--unit", rate.unit)
					telling, faults := checkTruth(t, rec, calls, rate.interval)
					if short, all := truncated(rec); short*1000 > all {
						t.Errorf("%d of %d stacks are not complete%s", short, all, errorFrames(rec))
					}
					if telling && len(faults) == 0 || t.Failed() {
						return
					}
					for _, f := range faults {
						t.Error(f)
					}
					if len(faults) > 0 {
						return
					}
				}
				t.Errorf("most samples came too late, %d times", tries)
			})
		}
	}
}
