package ruby

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestTransferred: a Fiber that was transferred to has no other one that resumed it, and one that yields
// has just forgotten it. The former is seen at two different instructions, or in a system call.
func TestTransferred(t *testing.T) {
	testprog.Whole(t, "TestFrozen has fibers")
	for _, v := range versions {
		for _, way := range []string{"transfer", "resume"} {
			t.Run(v+"/"+way, func(t *testing.T) {
				p := testprog.Start(t, testprog.Tool(t, v), filepath.Join("testdata", "transfer.rb"), way)
				p.Line("ready")
				in := attach(t, p)
				in.await(t, int32(p.PID), sleepIn(v))
				states, err := in.rt.Threads(in.mem)
				if err != nil || len(states) != 1 {
					t.Fatal(states, err)
				}
				call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", p.PID))
				fields := strings.Fields(string(call))
				if err != nil || len(fields) != 9 {
					t.Fatalf("%s, %v", call, err)
				}
				pc, err := strconv.ParseUint(fields[8], 0, 64)
				if err != nil {
					t.Fatal(err)
				}
				const other = minPointer // no code is there
				for i, looks := range [][]struct {
					pc     uint64
					yields bool
				}{
					{{0, true}, {0, true}, {other, true}, {other, true}, {other + 4, false}, {other + 4, false}, {0, false}},
					{{pc, false}, {pc, false}, {other, false}},
				} {
					th := in.rt.Thread(states[0])
					for j, look := range looks {
						var s Stack
						if !th.Capture(in.mem, in.mem, look.pc, &s) || s.Reason != 0 {
							t.Fatalf("row %d, look %d: %v", i, j, s.Reason)
						}
						if want := look.yields && way == "transfer"; s.Yields != want || s.Cut != want {
							t.Errorf("row %d, look %d: yields %t, cut %t, want %t", i, j, s.Yields, s.Cut, want)
						}
						if fibers := len(s.Fibers); way == "resume" && fibers != 1 || way == "transfer" && fibers != 0 {
							t.Errorf("row %d, look %d: %d Fibers resumed it", i, j, fibers)
						}
					}
				}
			})
		}
	}
}

// sleepIn is the label of Kernel#sleep in a version.
func sleepIn(version string) string {
	if strings.HasPrefix(version, "ruby3.4") {
		return "Kernel#sleep"
	}
	return "sleep"
}
