package canary

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// TestCallEdges has calls other than reads and writes that take just more than 13 ms on the main thread and on an
// event loop, and just less. As in TestEdges, a run that missed the edge is repeated.
func TestCallEdges(t *testing.T) {
	testprog.Whole(t, "TestMainIO has the rule")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "gcc", "ptrace")
	const us, limit = time.Microsecond, 13 * time.Millisecond
	prog := testprog.Build(t, "c/files", "O2")
	for scenario, c := range map[string]struct{ slow, call, stack string }{
		"stat":    {"getattr", "newfstatat", "calling main "},
		"open":    {"open", "openat", "calling main "},
		"close":   {"flush", "close", ""},
		"unlink":  {"unlink", "unlink", "calling main "},
		"rename":  {"rename", "rename", "calling main "},
		"readdir": {"readdir", "getdents64", "calling main "},
		"flock":   {"", "flock", "calling main "},
		"ofd":     {"", "fcntl", "calling main "},
	} {
		for _, loop := range []bool{false, true} {
			for _, delay := range []time.Duration{12700 * us, 13010 * us} {
				fires := delay > limit
				if loop && (!fires || scenario != "stat" && scenario != "flock") {
					continue // its edge is that of the main thread
				}
				t.Run(fmt.Sprintf("%s %v %v", scenario, loop, delay), func(t *testing.T) {
					const tries = 15
					for range tries {
						var s *seen
						var ops int
						var longest time.Duration
						var path string
						t.Run("run", func(t *testing.T) {
							do := scenario
							var file *slowFile
							if c.slow == "" {
								path = stored(t, 1)
								do += fmt.Sprintf(":%d", delay/us)
							} else {
								file = &slowFile{delay: delay, call: c.slow, size: 100}
								path = mount(t, file)
							}
							if loop {
								do = "loop-" + do
							}
							p := testprog.Start(t, prog, do, path, "1", "1")
							p.Ready()
							s = watch(t, p.PID, "main-io", "loop-io")
							if file != nil {
								file.arm()
							}
							p.Go()
							if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d", &ops, &longest); err != nil {
								t.Fatal(err)
							}
							p.Done()
							s.end(t)
							if ops != 1 {
								t.Errorf("%d calls", ops)
							}
							// A delay of FUSE is in the call as a whole; of a lock, a part may be before the call.
							if edge := longest < 14*time.Millisecond; !fires && longest > limit || !edge && file == nil {
								t.Logf("not at the edge: %v", longest)
								s = nil
								return
							}
							var all []*iowatch.Finding
							for _, f := range s.Engine.Findings() {
								if f.Call == c.call || !fires {
									all = append(all, f)
								}
							}
							if len(all) > 0 != fires {
								t.Fatalf("%d findings, the program measured %v: %+v", len(all), longest, s.Engine.Findings())
							}
							if !fires {
								return
							}
							f := all[0]
							want, rule, file2 := strings.Replace(c.stack, "main ", map[bool]string{true: "looping ", false: "main "}[loop], 1), iowatch.MainIO, path
							if loop {
								rule = iowatch.LoopIO
							}
							if scenario == "readdir" {
								file2 = filepath.Dir(path)
							}
							if len(all) != 1 || f.Rule != rule || f.Path != file2 || f.Longer > int64(longest) || !strings.Contains(f.Advice(), c.call+" ") || !strings.Contains(s.stackOf(f.Where), want) {
								t.Errorf("%d findings: %+v at %s: %s; the program measured %v", len(all), f, s.stackOf(f.Where), f.Advice(), longest)
							}
						})
						if t.Failed() || s != nil {
							return
						}
					}
					t.Skipf("none of %d runs was at the edge: the machine had no CPU at the right time", tries)
				})
			}
		}
	}
}
