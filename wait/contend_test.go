package wait_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/wait"
)

// glimpse is one result for one thread, with the time range in which it was taken.
type glimpse struct {
	tid, holder stack.TID
	lock        uint64
	from, to    stack.Time
}

// Threads take turns with a lock and log when. While one thread holds the lock, at least 99 of 100
// samples of its waiters must name the right lock and the right holder. No sample may name a wrong
// holder. A lock that changes hands identifies nothing, for as long as its next holder lacks a CPU: the
// samples until then, and until the waiter's lock is resolved again, do not count.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ how, kind string }{{"gcc", "normal"}, {"gcc", "recursive"}, {"gcc", "robust"}, {"gcc", "pi"},
		{"gcc", "rwlock"}, {"musl-gcc", "recursive"}, {"musl-gcc", "robust"}} {
		t.Run(c.how+"/"+c.kind, func(t *testing.T) {
			if c.kind != "pi" && c.kind != "rwlock" && c.how != "musl-gcc" || c.kind == "recursive" {
				testprog.Whole(t, "one kind of each library, and those with other words")
			}
			p := testprog.Start(t, build(t, c.how, "contend.c"), c.kind, "4", "1")
			var s struct {
				Lock    string
				Threads []stack.TID
			}
			say(t, p, &s)
			seen := watch(t, look(t, p.PID), s.Threads, p)
			var log struct{ Turns [][4]int64 }
			for _, line := range p.Output() {
				if strings.HasPrefix(line, `{"turns"`) {
					if err := json.Unmarshal([]byte(line), &log); err != nil {
						t.Fatal(err)
					}
				}
			}
			inside, had, rightLock, named, wrong := 0, 0, 0, 0, 0
			held := map[stack.TID]int{} // for how many looks the lock of this waiter had one holder
			for _, g := range seen {
				if !within(log.Turns, func(turn [4]int64) bool {
					return stack.TID(turn[0]) == g.tid && turn[1] <= int64(g.from) && int64(g.to) <= turn[2]
				}) {
					continue
				}
				inside++
				holder := holderAt(log.Turns, &g)
				if holder == 0 {
					held[g.tid] = 0
					continue
				}
				if g.holder != 0 && g.holder != holder {
					wrong++
				}
				if held[g.tid]++; held[g.tid] <= wait.LaterAgain {
					continue
				}
				had++
				if g.lock == hexa(t, s.Lock) {
					rightLock++
				}
				if g.holder == holder {
					named++
				}
			}
			t.Logf("%d looks, %d inside a wait, %d with one holder: lock right in %d, holder named in %d, wrong in %d", len(seen), inside, had, rightLock, named, wrong)
			if inside < 50 || had < 50 {
				t.Fatalf("too few looks: %d inside a wait, %d with one holder", inside, had)
			}
			if rightLock*100 < had*99 {
				t.Errorf("the right lock in %d of %d", rightLock, had)
			}
			if named*100 < had*99 || wrong != 0 {
				t.Errorf("the right holder in %d of %d, a wrong one in %d", named, had, wrong)
			}
		})
	}
}

// holderAt returns the thread that held the lock during the whole glimpse; 0: none did.
func holderAt(turns [][4]int64, g *glimpse) stack.TID {
	for _, turn := range turns {
		if turn[2] <= int64(g.from) && int64(g.to) <= turn[3] {
			return stack.TID(turn[0])
		}
	}
	return 0
}

func within(turns [][4]int64, is func([4]int64) bool) bool {
	for _, turn := range turns {
		if is(turn) {
			return true
		}
	}
	return false
}

// watch starts the program and samples its threads until it ends, as a sampler would:
// it compares the counters before and after each sample.
func watch(t *testing.T, v *view, tids []stack.TID, p *testprog.Proc) []glimpse {
	t.Helper()
	type eye struct {
		th    *target.Thread
		state wait.Thread
	}
	var eyes []*eye
	for _, tid := range tids {
		th, err := v.p.Thread(tid)
		if err != nil {
			t.Fatal(err)
		}
		defer th.Close()
		eyes = append(eyes, &eye{th: th})
	}
	futex, _ := syscalls.Number(runtime.GOARCH, "futex")
	testprog.Prompt(t, tids) // a look has to take less time than a turn
	p.Go()
	var seen []glimpse
	const enough = 200_000
	for {
		select {
		case <-p.Exited():
			return seen
		default:
		}
		if len(seen) >= enough {
			<-p.Exited()
			return seen
		}
		for i, e := range eyes {
			from := target.Now()
			var before, after target.Counters
			if e.th.Counters(&before) != nil {
				continue
			}
			l := wait.Look{TID: tids[i], State: stack.StateBlocked, Switches: before.Switches}
			running, _, sp, err := e.th.Syscall(&l.Call)
			if err != nil || running || l.Call.Nr != futex {
				continue
			}
			l.SP = sp
			still := func() bool { return e.th.Counters(&after) == nil && after == before }
			l.Still = still
			info, res := v.r.Resolve(&e.state, &l)
			if res == wait.Unchanged {
				v.r.Refresh(&e.state)
				if !still() {
					continue
				}
			}
			if res == wait.Torn || info.Lock == nil {
				continue
			}
			seen = append(seen, glimpse{tids[i], info.Lock.Holder.TID, info.Lock.Addr, from, target.Now()})
		}
		runtime.Gosched()
	}
}
