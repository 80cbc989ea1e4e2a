package wait_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
)

// TestDeadline: only a time until a deadline has the word left.
func TestDeadline(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "normal")
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	var base uint64
	if _, err := fmt.Sscanf(string(maps), "%x-", &base); err != nil {
		t.Fatal(err)
	}
	addr := base + 0x18 // the file's entry and offset of its program headers, which are small: a valid struct timespec
	for _, c := range []struct {
		call string
		args [6]uint64
		left bool
	}{
		{"clock_nanosleep", [6]uint64{0, 0, addr}, false},                     // relative
		{"clock_nanosleep", [6]uint64{0, 1, addr}, true},                      // CLOCK_REALTIME, TIMER_ABSTIME
		{"clock_nanosleep", [6]uint64{1, 1, addr}, true},                      // CLOCK_MONOTONIC
		{"nanosleep", [6]uint64{addr}, false},                                 // relative
		{"futex", [6]uint64{addr, 128 | 0, 0, addr}, false},                   // FUTEX_WAIT
		{"futex", [6]uint64{addr, 128 | 9, 0, addr, 0, 0xffff_ffff}, true},    // FUTEX_WAIT_BITSET
		{"futex", [6]uint64{addr, 128 | 256 | 9, 0, addr, 0, 0xffffff}, true}, // FUTEX_CLOCK_REALTIME
	} {
		var th wait.Thread
		i, _ := v.r.Resolve(&th, &wait.Look{TID: s.Waiters[0], State: stack.StateBlocked, Call: stack.Call{Nr: number(t, c.call), Args: c.args}})
		if !strings.Contains(i.Args, i.Timeout.String()) || strings.HasSuffix(i.Args, wait.Left) != c.left {
			t.Errorf("%s %v: %+v", c.call, c.args, i)
		}
	}
}
