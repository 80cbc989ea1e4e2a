package ruby

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestWanted compares what a program's threads wait for with what the program prints.
func TestWanted(t *testing.T) {
	said := [...]string{Locking: "mutex Ruby", Waiting: "condition Ruby", Popping: "condition ", Pushing: "condition ", Joining: "join Ruby", Sleeping: "sleep -"}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			p := testprog.Start(t, testprog.Tool(t, v), "testdata/waits.rb")
			p.Line("ready")
			names, want := map[int32]string{}, map[int32]string{}
			for _, line := range p.Output() {
				f := strings.Fields(line)
				if len(f) != 6 || f[0] != "wait" {
					continue
				}
				tid, err := strconv.Atoi(f[2])
				if err != nil {
					t.Fatal(err)
				}
				names[int32(tid)], want[int32(tid)] = f[1], strings.Join(f[3:], " ")
			}
			if len(want) != 14 {
				t.Fatalf("%d of 14 threads: %q", len(want), p.Output())
			}
			in := attach(t, p)
			wrong := ""
			look := time.NewTicker(10 * time.Millisecond)
			defer look.Stop()
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-look.C {
				wrong = ""
				states, err := in.rt.Threads(in.mem)
				if err != nil {
					continue
				}
				seen := 0
				for _, s := range states {
					if want[s.TID] == "" {
						continue
					}
					seen++
					got := "nothing"
					if w, ok := in.rt.Wanted(in.mem, s); ok {
						got = said[w.Sort]
						if strings.HasSuffix(got, " ") {
							got += w.Class
						}
						holder := "-"
						if w.Holder != 0 {
							holder = names[w.Holder]
						}
						got += " " + holder
					}
					if got != want[s.TID] {
						wrong += fmt.Sprintf("%s: %s, not %s\n", names[s.TID], got, want[s.TID])
					}
				}
				if wrong == "" && seen == len(want) {
					return
				}
			}
			t.Error(wrong)
		})
	}
}
