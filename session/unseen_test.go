package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// long reports whether the long form of a test is requested.
func long() bool { return os.Getenv("SLIVER_LONG") != "" }

// returns counts the results of calls in one thread of the program.
type returns struct{ n, eintr, early, late, most int }

// startCalls starts the program and waits until its threads are at work.
func startCalls(t *testing.T, variant string) *testprog.Proc {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "c/calls", variant), "20", "100")
	p.Line("end")
	return p
}

// finishCalls ends the program and returns its threads' results, by call.
func finishCalls(t *testing.T, p *testprog.Proc) map[string]returns {
	t.Helper()
	p.CloseInput()
	if st := p.Wait(); !st.Success() {
		t.Errorf("the program ended with %v", st)
	}
	out := map[string]returns{}
	for _, line := range p.Output() {
		var name string
		var r returns
		if n, _ := fmt.Sscan(line, &name, &r.n, &r.eintr, &r.early, &r.late, &r.most); n == 6 {
			out[name] = r
		}
	}
	if len(out) < 40 {
		t.Fatalf("only %d calls: %q", len(out), p.Output())
	}
	return out
}

// recordFor records a process for a while and returns the statistics.
func recordFor(t *testing.T, pid int, o Options) stack.ThreadStats {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	out, err := export.ParseOutput(filepath.Join(t.TempDir(), "run.sliver"), "")
	if err != nil {
		t.Fatal(err)
	}
	o.Outputs = []export.Output{out}
	s, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	reason, err := s.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Finish(reason)
	if err != nil {
		t.Fatal(err)
	}
	return res.Stats.Total()
}

// Threads that block in every system call that a stop could cut short are sampled at 1
// kHz, recording after recording, next to the same program left alone: no call may end
// with EINTR or early, and none later because of it. In the form with frame pointers
// and without tables, registers are missing where stacks are read, so that blocked
// threads are stopped if the policy allows it. SLIVER_LONG=1: 10 s for each policy and
// form.
func TestUnseen(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	total, variants := 2*time.Second, []string{"fp"}
	if long() {
		total, variants = 10*time.Second, []string{"fp", "O2"}
	}
	for _, variant := range variants {
		for _, policy := range []sampler.StopPolicy{sampler.StopAuto, sampler.StopRunning, sampler.StopAlways} {
			t.Run(variant+"/"+policy.String(), func(t *testing.T) {
				if policy == sampler.StopRunning {
					testprog.Whole(t, "the policies before and after it")
				}
				// A pause of the machine of 100 ms affects one call of one of the two
				// programs: effects of sampling appear in each round.
				const rounds = 3
				for round := 1; ; round++ {
					untimely := unseenRound(t, variant, policy, total)
					if untimely <= 0 {
						break
					}
					if round == rounds {
						t.Errorf("early, or more than 20 ms late for it, in each of %d rounds: %d returns in the last", rounds, untimely)
						break
					}
				}
			})
		}
	}
}

// unseenRound samples the calls for a while next to a program that is left alone, and
// returns how many more of them came late, or early by the kernel's ticks. Late
// calls do not count if the machine is too busy for a verdict.
func unseenRound(t *testing.T, variant string, policy sampler.StopPolicy, total time.Duration) (untimely int) {
	t.Helper()
	sampled, alone := startCalls(t, variant), startCalls(t, variant)
	var sum stack.ThreadStats
	const each = 400 * time.Millisecond
	for range total / each {
		st := recordFor(t, sampled.PID, Options{Interval: time.Millisecond, Jitter: .1, Groups: 5, Stop: policy, Duration: each})
		sum.Samples += st.Samples
		sum.Stops += st.Stops
		sum.Unrun += st.Unrun
		sum.Read += st.Read
		sum.Part += st.Part
		sum.Late += st.Late
		sum.Restarted += st.Restarted
	}
	t.Logf("%d samples: %d stops, %d unrun, %d read, %d of them in part; %d calls put back, %d ticks late", sum.Samples,
		sum.Stops, sum.Unrun, sum.Read, sum.Part, sum.Restarted, sum.Late)
	with, without := finishCalls(t, sampled), finishCalls(t, alone)
	late, early := 0, 0
	for name, r := range with {
		if tickTimed[name] && r.eintr == 0 && r.early != 0 {
			early += r.early - without[name].early
			t.Logf("%s: of %d returns %d early; left alone %d", name, r.n, r.early, without[name].early)
		} else if r.eintr != 0 || r.early != 0 {
			t.Errorf("%s: of %d returns %d with EINTR, %d early", name, r.n, r.eintr, r.early)
		}
		if r.late > 0 {
			t.Logf("%s: of %d returns %d late, by up to %d µs; left alone %d of %d, %d µs", name, r.n, r.late, r.most,
				without[name].late, without[name].n, without[name].most)
		}
		// Calls that are late without sampling count for both.
		late += r.late - without[name].late
	}
	if sum.Unrun+sum.Read < sum.Samples/2 {
		t.Errorf("the accounts of this test are not those it wants: %+v", sum)
	}
	// The purpose of the test: calls were restarted.
	if wants := variant == "fp" && policy != sampler.StopRunning; wants && sum.Restarted == 0 {
		t.Error("no call was put back: does this test still test it?")
	}
	if policy == sampler.StopRunning && strings.HasPrefix(variant, "fp") && sum.Part == 0 {
		t.Error("no stack was read in part: registers are not missing any more")
	}
	if late > 0 && sum.Late > sum.Samples/2 {
		t.Logf("%d returns more than 20 ms late, on a machine that is too busy to tell for what", late)
		late = 0
	}
	return max(late, 0) + max(early, 0)
}

// tickTimed are calls whose timeout the kernel counts in its own ticks (SO_RCVTIMEO in
// net/core/sock.c). After a pause of the machine these catch up at once, and a timeout
// that began during the pause ends early by as much.
var tickTimed = map[string]bool{"accept": true, "recv": true, "recvmsg": true, "read-socket": true}
