package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session"
)

// TestOwnCodeShares records, as a user without rights, a thread that knows how much CPU time it spends in its own code, in calls
// and in page faults. With kernel.perf_event_paranoid of 2, copies are of its own code alone, and stops give the rest.
// The limits are 4.5 standard deviations of the number of samples and of stops, and 6 points for stops that take effect later than
// asked for: a verdict is wrong by chance in less than 1 of 100,000 runs.
func TestOwnCodeShares(t *testing.T) {
	u := newPlainUser(t, "owncode")
	for _, turn := range [][4]string{{"4000", "0", "0", "0"}, {"4000", "3000", "3000", "0"}, {"3000", "1000", "0", "0"}} {
		t.Run(strings.Join(turn[:], " "), func(t *testing.T) {
			truth, sum := u.record(t, turn[:], "-d", "3s", "-i", "2ms", "--max-overhead", "0")
			got := cpuShares(t, u.bin, u.file, `;compute`, `;reading|madvise`, `;touch`)
			n := float64(sum.Clocked + sum.Stops)
			t.Logf("%.3f of the CPU time is that of its own code, calls and faults, by its own account %.3f; %d copies, %d stops", got, truth, sum.Clocked, sum.Stops)
			if n < 200 {
				t.Fatalf("%.0f samples in 3 s at 2 ms", n)
			}
			for i, what := range []string{"its own code", "calls", "page faults"} {
				p := truth[i]
				if limit := .06 + 4.5*math.Sqrt(p*(1-p)*(1/n+(1-truth[0])/float64(sum.Stops+1))); math.Abs(got[i]-p) > limit {
					t.Errorf("%s: %.3f of the CPU time, by its own account %.3f", what, got[i], p)
				}
			}
		})
	}
}

// TestPoolShares: for a user without rights, too, the CPU time of a pool whose threads take turns has samples, in the program's own
// shares. Each thread has 25 ms of CPU time or more, in copies 2.5 to 10 ms apart. The limit is 4.5 standard deviations above a bias
// of 2 points: a verdict is wrong by chance in less than 1 of 100,000 runs. The cost has no limit: beside other tests the recorder
// takes CPU from the pool, so that the interval would grow, and the time without samples with it.
func TestPoolShares(t *testing.T) {
	u := newPlainUser(t, "inturn")
	truth, sum := u.record(t, []string{"100"}, "-d", "4s", "--max-overhead", "0")
	if sum.Clocked == 0 {
		testprog.Missing(t, "perf", "no clock for users without rights")
	}
	got := cpuShares(t, u.bin, u.file, `;render`, `;query`, `not sampled`, `in the kernel`)
	t.Logf("%d copies; render and query have %.3f, not sampled is %.3f, in the kernel %.3f; by the program's account %.3f", sum.Clocked, got[:2], got[2], got[3], truth)
	if got[2] > .2 || got[3] > .2 {
		t.Errorf("%.3f of the CPU time is not sampled, %.3f somewhere in the kernel", got[2], got[3])
	}
	p := truth[0]
	if share := got[0] / (got[0] + got[1]); math.Abs(share-p) > .02+4.5*math.Sqrt(p*(1-p)/float64(sum.Clocked)) {
		t.Errorf("render has %.3f of the CPU time, by the program's account %.3f", share, p)
	}
}

// plainUser records a program that knows the shares of its CPU time, both as a user without rights.
type plainUser struct {
	bin, program, own string // sliver, the program and the user's sliver
	file              string // the newest recording
}

// samples are numbers of them, as the summary has them.
type samples struct{ Clocked, Stops uint64 }

func newPlainUser(t *testing.T, program string) *plainUser {
	t.Helper()
	testprog.Unraced(t, "it compares with clocks")
	testprog.Need(t, "gcc", "ptrace", "root", "setpriv")
	if err := session.TryClocks(false); err != nil {
		testprog.Missing(t, "perf", err.Error())
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home := publicDir(t, map[string]string{"sliver": bin, program: testprog.Build(t, "c/"+program, "O2")})
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	return &plainUser{bin: bin, program: filepath.Join(home, program), own: filepath.Join(home, "sliver"), file: filepath.Join(home, "run.sliver")}
}

// record records the program with arguments, and returns its shares.
func (u *plainUser) record(t *testing.T, args []string, flags ...string) (truth []float64, sum samples) {
	t.Helper()
	truth = sharesOf(t, func(pid int) {
		cmd := prompt(asUser("-bpf", append([]string{u.own, "record", "-q", "--json", "-p", strconv.Itoa(pid), "-o", u.file}, flags...)...), 15)
		cmd.Dir = filepath.Dir(u.file)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cmd.Dir)
		res := runCmd(t, cmd)
		if err := json.Unmarshal([]byte(res.out), &sum); err != nil || res.status != 0 {
			t.Fatalf("%v: %+v", err, res)
		}
	}, append([]string{u.program}, args...)...)
	return truth, sum
}

// prompt makes a command run before others, as on a machine that does nothing else: other tests may use the CPUs, and a recorder without
// rights cannot raise its priority.
func prompt(cmd *exec.Cmd, by int) *exec.Cmd {
	return exec.Command("nice", append([]string{"-n", strconv.Itoa(-by)}, cmd.Args...)...)
}

// sharesOf calls f while a program works that knows the shares of its CPU time, and returns these. The program runs as a user without
// rights.
func sharesOf(t *testing.T, f func(pid int), program ...string) (shares []float64) {
	t.Helper()
	cmd := prompt(asUser("-bpf", program...), 10)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	lines := bufio.NewReader(out)
	line := func(what string) []string {
		s, err := lines.ReadString('\n')
		fields := strings.Fields(s)
		if err != nil || len(fields) < 2 || fields[0] != what {
			t.Fatalf("%s says %q: %v, want %s", program[0], s, err, what)
		}
		return fields[1:]
	}
	say := func() {
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	pid, err := strconv.Atoi(line("ready")[0])
	if err != nil {
		t.Fatal(err)
	}
	say()
	f(pid)
	say()
	sum := 0.
	for _, s := range line("shares") {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += x
		shares = append(shares, x)
	}
	say()
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// cpuShares returns the shares of the CPU time of a recording in stacks that match expressions. A stack counts for the first that matches.
func cpuShares(t *testing.T, bin, file string, exprs ...string) []float64 {
	t.Helper()
	shares := make([]float64, len(exprs))
	matches := make([]*regexp.Regexp, len(exprs))
	for i, x := range exprs {
		matches[i] = regexp.MustCompile(x)
	}
	folded := filepath.Join(t.TempDir(), "run.cpu.folded")
	if res := runCmd(t, exec.Command(bin, "export", file, "-o", folded)); res.status != 0 {
		t.Fatalf("%+v", res)
	}
	text, err := os.ReadFile(folded)
	if err != nil {
		t.Fatal(err)
	}
	all := 0.
	for line := range strings.Lines(string(text)) {
		stack := line[:strings.LastIndexByte(line, ' ')+1]
		n, err := strconv.ParseFloat(strings.TrimSpace(line[len(stack):]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all += n
		if i := slices.IndexFunc(matches, func(x *regexp.Regexp) bool { return x.MatchString(stack) }); i >= 0 {
			shares[i] += n
		}
	}
	for i := range shares {
		shares[i] /= all
	}
	return shares
}
