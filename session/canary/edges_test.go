package canary

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// account is what a run of c/files measured itself.
type account struct{ longest, nearest, farthest time.Duration }

// TestEdges has the times at which rules just fire, and just do not. The program measures its own calls,
// from outside the kernel. A run that missed the edge, as happens when the machine has no CPU for a while,
// is repeated, and on a machine that is too busy for any of them the case is left to the rules' own test.
func TestEdges(t *testing.T) {
	testprog.Whole(t, "TestMainIO and TestSmallBuffer have edges of each rule")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "gcc", "ptrace")
	const us, ms = time.Microsecond, time.Millisecond
	prog := testprog.Build(t, "c/files", "O2")
	for _, c := range []struct {
		name, rule, scenario string
		delay, pace          time.Duration // see slowFile
		n                    int
		at                   func(a account) bool // the run was at the edge
		fires                bool
	}{
		{"12.9 ms", "main-io", "read", 12850 * us, 0, 1, func(a account) bool { return a.longest < 13*ms }, false},
		{"13.1 ms", "main-io", "read", 13010 * us, 0, 1, func(a account) bool { return a.longest < 13200*us }, true},
		{"7.9 ms apart", "main-io slow=1s sum=20ms", "read", 0, 7900 * us, 4, func(a account) bool { return a.farthest < 7990*us }, true},
		{"8.1 ms apart", "main-io slow=1s sum=20ms", "read", 0, 8100 * us, 4, func(a account) bool { return a.nearest > 8010*us && a.farthest < 8500*us }, false},
		{"5 times in 16 ms", "repeat-read", "again:4000", 14 * ms, 0, 5, func(a account) bool { return a.farthest < 16900*us }, true},
		{"5 times in 18 ms", "repeat-read", "again:4500", 14 * ms, 0, 5, func(a account) bool { return a.farthest > 17100*us && a.farthest < 18900*us }, false},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			const tries = 15
			for range tries {
				var found, ops int
				var a account
				t.Run("run", func(t *testing.T) {
					path := mount(t, &slowFile{delay: c.delay, pace: c.pace, first: strings.HasPrefix(c.scenario, "again"), size: 1 << 20})
					p := testprog.Start(t, prog, c.scenario, path, strconv.Itoa(c.n), "100")
					p.Ready()
					s := watch(t, p.PID, c.rule)
					p.Go()
					if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d %d %d", &ops, &a.longest, &a.nearest, &a.farthest); err != nil {
						t.Fatal(err)
					}
					p.Done()
					s.end(t)
					found = len(s.Engine.Findings())
				})
				if t.Failed() {
					return
				}
				if !c.at(a) {
					t.Logf("not at the edge: %+v", a)
					continue
				}
				if fired := found > 0; fired != c.fires || ops != c.n {
					t.Errorf("%d findings, %d operations; the program measured %+v", found, ops, a)
				}
				return
			}
			t.Skipf("none of %d runs was at the edge: the machine had no CPU at the right time", tries)
		})
	}
}
