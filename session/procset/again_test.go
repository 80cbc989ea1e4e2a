package procset

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// TestAgain: a set is followed twice. The second time it begins with the processes that still run, the first one in the
// process that the caller has, and those come that started in between.
func TestAgain(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	mine := copyOf(t, testprog.Build(t, "c/spin", "O2"), "again-prog")
	for _, poll := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll=%v", poll), func(t *testing.T) {
			p := testprog.StartCmd(t, exec.Command("sh", "-c", `while read x; do "$1" --seconds 120 & echo "$x $!"; done; kill $(jobs -p)`, "sh", mine))
			root, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			child := func(name string) (pid int) {
				p.Say(name)
				if _, err := fmt.Sscanf(p.Line(name), name+" %d", &pid); err != nil {
					t.Fatal(err)
				}
				awaitName(t, pid, "again-prog")
				return pid
			}
			s := New(Options{Children: true, Used: func() time.Duration { return 1 }})
			defer s.Close()
			if s.births == nil {
				testprog.Missing(t, "perf", s.left.How)
			}
			if poll {
				s.births.Close()
				s.births, s.seen = nil, map[int]bool{}
			}
			pids := func(ms []Member) (out []int) {
				for _, m := range ms {
					out = append(out, m.Process.PID())
				}
				return out
			}
			ended := func(ms []Member) {
				for _, m := range ms {
					if m.Process != root {
						m.Process.Close()
					}
					s.Done()
				}
			}
			follow := func(n int) (out []Member) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				came, over := make(chan Member, 8), make(chan struct{})
				go func() { defer close(over); s.Follow(ctx, func(m Member) { came <- m }) }()
				for range n {
					select {
					case m := <-came:
						out = append(out, m)
					case <-over:
						t.Fatalf("%v came, want %d", pids(out), n)
					}
				}
				cancel()
				<-over
				if len(came) > 0 {
					t.Errorf("process %d came too", (<-came).Process.PID())
				}
				return out
			}
			all := s.Take(root)
			one, two := child("one"), child("two")
			if now, err := s.Now(); err != nil || !slices.Equal(pids(now), []int{one, two}) {
				t.Fatalf("%v, %v; want %d and %d", now, err, one, two)
			} else {
				all = append(all, now...)
			}
			three := child("three")
			all = append(all, follow(1)...)
			if got := pids(all); got[3] != three {
				t.Errorf("%v, want %d last", got, three)
			}
			s.Missed(1, 0, "x", "a reason", 0)
			ended(all)
			if err := syscall.Kill(two, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for {
				p, err := target.Open(two)
				if err != nil {
					break
				}
				p.Close()
				<-time.After(time.Millisecond)
			}
			four := child("four")
			all = s.Again(root)
			if got := pids(all); !slices.Equal(got, []int{p.PID, one, three}) || all[0].Process != root || all[1].Parent != p.PID {
				t.Errorf("%v again, want %d, %d and %d", got, p.PID, one, three)
			}
			if left := s.Left(); left.Count != 0 || left.Seen != 3 || s.Used() != 0 {
				t.Errorf("%+v are left out, %v used", left, s.Used())
			}
			more := follow(1)
			if got := pids(more); got[0] != four {
				t.Errorf("%v came, want %d", got, four)
			}
			ended(append(all, more...))
			if left := s.Left(); left.Count != 0 || left.Seen != 4 {
				t.Errorf("%+v are left out", left)
			}
		})
	}
}
