package ruby

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestTransferred: a Fiber that was transferred to has no other one that resumed it, and one that yields
// has just forgotten it. The first Capture takes the former for the latter, the second one does not.
func TestTransferred(t *testing.T) {
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
				th := in.rt.Thread(states[0])
				for look, yields := range []bool{way == "transfer", false} {
					var s Stack
					if !th.Capture(in.mem, in.mem, &s) || s.Reason != 0 {
						t.Fatalf("look %d: %v", look, s.Reason)
					}
					if s.Yields != yields || s.Cut != yields {
						t.Errorf("look %d: yields %t, cut %t, want %t", look, s.Yields, s.Cut, yields)
					}
					if fibers := len(s.Fibers); way == "resume" && fibers != 1 || way == "transfer" && fibers != 0 {
						t.Errorf("look %d: %d Fibers resumed it", look, fibers)
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
