package truth

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// manyDuties is how many processes a recording of several has here: threads of more than 16 nap.
const manyDuties = 24

// dutiesTogether returns programs of which each has a CPU for the given share of its time, with other parts of
// it in burn and in write, and another way to rest.
func dutiesTogether(share float64) (all []duty) {
	for i := range manyDuties {
		period := []int{4_000, 10_000, 40_000, 100_000}[i%4]
		rest := []string{"nanosleep", "pipe", "futex", "cond"}[i/4%4]
		busy := float64(period) * share * []float64{.4, .8, 1, 1.8}[i/6]
		write := busy * float64(1+i%6) / 8
		all = append(all, duty{rest, int(busy - write), period - int(busy), int(write)})
	}
	return all
}

// togetherOf records all programs at once for the given seconds, and returns a measurement of each. used is
// the share of one CPU that all had, by their own account.
func togetherOf(t *testing.T, all []duty, interval string, seconds float64) (out []*measured, used float64) {
	t.Helper()
	testprog.Need(t, "ptrace", "gcc")
	program, err := sliver()
	if err != nil {
		t.Fatal(err)
	}
	var running []*testprog.Proc
	var pids []string
	for _, d := range all {
		command := d.command(t, seconds+1)
		running = append(running, testprog.StartCmd(t, exec.Command(command[0], command[1:]...)))
	}
	for _, p := range running {
		p.Line("ready")
		pids = append(pids, strconv.Itoa(p.PID))
	}
	file := filepath.Join(t.TempDir(), "together.sliver")
	text, err := exec.Command(program, "record", "-p", strings.Join(pids, ","), "-t", "main", "-i", interval,
		"-d", fmt.Sprintf("%.1fs", seconds), "-o", file).CombinedOutput()
	if err != nil {
		t.Fatalf("record: %v\n%s", err, text)
	}
	t.Logf("%s", text)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	of := map[int]*trace.Recording{}
	for _, one := range rec.All() {
		of[one.Process.PID] = one
	}
	for i, p := range running {
		m := &measured{}
		m.account(t, p.Line("truth"))
		p.Wait()
		one := of[p.PID]
		if one == nil {
			t.Fatalf("process %d (%v) is not in the recording", p.PID, all[i])
		}
		m.look(one)
		for k := range one.Stats.Threads {
			if th := &one.Stats.Threads[k]; th.TID == stack.TID(p.PID) {
				m.cpu += float64(th.CPUNS)
			}
		}
		used += m.used
		out = append(out, m)
	}
	return out, used
}

// pooled compares the CPU time of all recordings in each part with the truth, weighted by samples.
func pooled(all []*measured) *measured {
	m := &measured{}
	for _, x := range all {
		m.ran += x.ran
		m.clocked += x.clocked * x.ran
	}
	for _, x := range all {
		for i := range x.got {
			m.got[i] += x.got[i] * x.ran / max(m.ran, 1)
			m.truth[i] += x.truth[i] * x.ran / max(m.ran, 1)
		}
	}
	m.clocked /= max(m.ran, 1)
	return m
}

// TestTogether is the short form of TestTogetherLong: 24 processes that nap, sampled by one group of threads, have the shares that
// TestDuty wants of one. A verdict is wrong by chance in less than 1 of 10,000 runs: each of 25 limits is 4.5 standard
// deviations above the bias.
func TestTogether(t *testing.T) {
	testprog.Whole(t, "TestDuty has the shares of one process")
	checkTogether(t, "10ms", 5, .04)
}

// checkTogether compares each of 24 programs in one recording with its own account, and the sum of all.
func checkTogether(t *testing.T, interval string, seconds, share float64) (all []*measured) {
	const bias = 8.
	programs := dutiesTogether(share)
	all, used := togetherOf(t, programs, interval, seconds)
	if used < manyDuties*share/2 {
		t.Skipf("the programs had CPUs for %.2f of the time, and want them for %.2f: others use the CPUs", used, manyDuties*share)
	}
	sum := pooled(all)
	t.Logf("all: %v", sum)
	var cpu, apart float64
	for _, m := range all {
		cpu += m.cpu
	}
	for _, m := range all {
		apart += 100 * math.Abs(m.cpu/max(cpu, 1)-m.used/used)
	}
	t.Logf("the shares of the processes in the CPU time are %.1f points off", apart)
	if apart > bias { // both are the kernel's accounts: chance has no part in it
		t.Errorf("the shares of the processes in the CPU time are %.1f points off, more than %.1f", apart, bias)
	}
	for i, m := range append(all, sum) {
		name := "all together"
		if i < len(programs) {
			name = programs[i].String()
			t.Logf("%v: %v", programs[i], m)
		}
		if limit := bias + 4.5*m.noise(); m.off() > limit {
			t.Errorf("%s: %.1f points off, more than %.1f: %v", name, m.off(), limit, m)
		}
	}
	return all
}

// TestTogetherLong makes longer recordings of the 24 programs, at two intervals. Of the processes with enough samples at most one of 20 is
// off by more than TestDutyLong allows one program, or by two bounds of the standard deviation, and the mean error of each
// share is below 2 points, all plus 4.5 standard deviations. It fails by chance in less than 1 of 10,000 runs.
func TestTogetherLong(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("long: set SLIVER_LONG=1")
	}
	runs, err := strconv.Atoi(cmp.Or(os.Getenv("SLIVER_RUNS"), "5"))
	if err != nil || runs < 1 {
		t.Fatalf("SLIVER_RUNS is %q, not a number of recordings", os.Getenv("SLIVER_RUNS"))
	}
	for _, interval := range []string{"10ms", "1ms"} {
		t.Run(interval, func(t *testing.T) {
			var e deviations
			for range runs {
				for _, m := range checkTogether(t, interval, 60, .03) {
					if m.ran >= enoughSamples {
						e.add(m, max(limits[interval], 2*m.noise()))
					}
				}
			}
			e.check(t)
		})
	}
}

// enoughSamples is how many samples on a CPU a process needs for its shares to be compared one by one.
const enoughSamples = 30
