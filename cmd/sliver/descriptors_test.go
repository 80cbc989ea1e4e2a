package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// sliver raises its soft limit of descriptors to the hard one and may use them all. Threads for which none
// are left are counted with the reason in every output; none is dropped silently.
func TestDescriptors(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	p := testprog.Start(t, testprog.Build(t, "c/sleepers", "O2"), "--sleepers", "200", "--running", "0", "--seconds", "600", "--wait-go")
	defer func() { // the threads have more inotify instances than a user may have
		p.Kill()
		p.Wait()
	}()
	p.Ready()
	p.Go()
	pid := strconv.Itoa(p.PID)
	waitFor(t, func() bool {
		tasks, err := os.ReadDir("/proc/" + pid + "/task")
		return err != nil || len(tasks) > 100
	})
	dir := t.TempDir()
	for _, c := range []struct {
		limit string // options of ulimit
		all   bool
	}{{"-Sn 64", true}, {"-n 64", false}} {
		t.Run(c.limit, func(t *testing.T) {
			var s struct {
				Threads, Unrecorded int
				Problems            []string
			}
			d := 1
			for ; ; d *= 2 { // on a busy machine it takes a while until all threads were tried
				out := limited(t, dir, c.limit, "record", "-p", pid, "-d", fmt.Sprint(d, "s"), "-o", "run.sliver", "--json")
				if err := json.Unmarshal([]byte(out.out), &s); err != nil {
					t.Fatalf("%v: %s%s", err, out.out, out.errors)
				}
				if untried := strings.Contains(fmt.Sprint(s.Problems), "not looked at"); !untried || d > 60 {
					break
				}
			}
			tasks, err := os.ReadDir("/proc/" + pid + "/task")
			if err != nil {
				t.Fatal(err)
			}
			if s.Threads+s.Unrecorded != len(tasks) || s.Threads == 0 {
				t.Errorf("%d threads recorded and %d not, of %d", s.Threads, s.Unrecorded, len(tasks))
			}
			if c.all {
				if s.Unrecorded > 0 {
					t.Errorf("%d threads are missing: %q", s.Unrecorded, s.Problems)
				}
				return
			}
			want := fmt.Sprintf("%d threads not recorded: sliver has too many open files", s.Unrecorded)
			if s.Unrecorded == 0 || !strings.Contains(fmt.Sprint(s.Problems), want) {
				t.Errorf("problems %q lack %q", s.Problems, want)
			}
			for _, args := range [][]string{{"report", "run.sliver"}, {"sql", "run.sliver", "select value from recording where name = 'loss'"}} {
				if r := sliver(t, dir, args...); !strings.Contains(r.out, want) {
					t.Errorf("sliver %s lacks %q: %s%s", args[0], want, r.out, r.errors)
				}
			}
			r := limited(t, dir, c.limit, "record", "-p", pid, "-d", "1s", "-o", "text.sliver")
			_, line, _ := strings.Cut(r.errors, "recorded ")
			if line, _, _ = strings.Cut(line, " threads"); !strings.Contains(line, " of ") || !strings.Contains(r.errors, "too many open files") || r.status != 0 {
				t.Errorf("status %d: %s", r.status, r.errors)
			}
		})
	}
}

// limited runs sliver with a limit on descriptors.
func limited(t *testing.T, dir, limit string, args ...string) result {
	t.Helper()
	cmd := slivercmd(t, dir, args...)
	sh := exec.Command("sh", append([]string{"-c", "ulimit " + limit + ` && exec "$0" "$@"`}, cmd.Args...)...)
	sh.Env, sh.Dir, sh.SysProcAttr = cmd.Env, cmd.Dir, cmd.SysProcAttr
	return runCmd(t, sh)
}
