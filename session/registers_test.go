package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
)

// TestBlockedRegisters: the frames of a thread that waits below a frame of variable size need a register that /proc does not
// show. Where BPF is allowed the kernel shows it: the stacks are complete although no thread may be stopped. The first ones
// may be from before the program was loaded.
func TestBlockedRegisters(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	b, err := kernel.OpenBlocked()
	if err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	_ = b.Close()
	const code = `#include <alloca.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
__attribute__((noinline)) int inner(int e) {
	struct epoll_event ev;
	return epoll_wait(e, &ev, 1, 40);
}
__attribute__((noinline)) int outer(int n, int e) {
	char *p = alloca(n * 16 + 16);
	memset(p, n, n * 16);
	int r = inner(e);
	return r + p[n];
}
int main(void) {
	int e = epoll_create1(0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (int i = 0; i < 1500; i++) outer(i % 10 + 1, e); // a minute at most
}
`
	program := testprog.GCC(t, "sized", code, "-O2", "-g")
	p := testprog.Start(t, program)
	p.Ready()
	const want = 30
	for _, clock := range []bool{false, true} {
		whole := func(s stack.ThreadStats) uint64 { return s.Samples - s.Unrun - s.Truncated }
		before := uint64(0) // samples that were cut when the first was whole
		rec := recordWith(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2, Clock: clock, Stop: sampler.StopRunning}, func(s stack.ThreadStats) bool {
			if whole(s) == 0 {
				before = s.Truncated
			}
			return s.Samples-s.Unrun > want && (!clock || whole(s) > want)
		})
		s := rec.Stats.Total()
		text := fmt.Sprintf("clock %v: of %d samples %d are cut, %d of them before the first whole one; %d stops%s", clock, s.Samples-s.Unrun, s.Truncated, before, s.Stops, errorFrames(rec))
		t.Log(text)
		if clock && s.Cuts[stack.ReasonRegister] > before+1 || !clock && s.Cuts[stack.ReasonRegister] < want/2 {
			t.Error(text)
		}
	}
}
