package watch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
)

// The limit is the control group's, and the threshold depends on its size: a program at
// three quarters of 200 MiB is normal, one above nine tenths is not.
func TestMemoryOfGroup(t *testing.T) {
	testprog.Need(t, "ptrace", "root")
	p := trouble(t)
	testprog.Group(t, p.PID, 200<<20, testprog.GroupMemory...)
	r := begin(t, fixed(t, p.PID), nil, "memory auto,every=200ms,cool=0s")
	p.Say("leak 150")
	p.Line("leak ")
	r.samples(400) // some checks
	if s := r.Status(); s.Fired > 0 {
		t.Fatalf("at three quarters: %+v", s.Dumps)
	}
	p.Say("leak 36")
	p.Line("leak ")
	s := r.until("for a dump", func(s *control.Status) bool { return len(s.Dumps) > 0 })
	if d := s.Dumps[0]; d.Reason != "memory" || !strings.Contains(d.Text, "of 200.0 MiB in use") || !strings.Contains(d.Text, "of the control group), over 90% at 3 checks") {
		t.Errorf("%+v", d)
	}
	r.samples(s.Targets[0].Samples + 400)
	if s := r.Status(); s.Fired != 1 {
		t.Errorf("it fired %d times for one leak", s.Fired)
	}
}

// A server that starts more and more threads fires near the limit of its control group,
// or of its user: once, and not earlier.
func TestThreadsNearLimit(t *testing.T) {
	testprog.Whole(t, "TestMemoryOfGroup has the limits of a group")
	testprog.Need(t, "ptrace", "root", "setpriv")
	const limit = 100
	for _, c := range []struct {
		of    string
		start func() *testprog.Proc
	}{
		{"control group", func() *testprog.Proc {
			p := trouble(t)
			testprog.Group(t, p.PID, limit, testprog.GroupTasks...)
			return p
		}},
		{"user", func() *testprog.Proc {
			// A user of its own with two servers: the kernel counts both.
			uid := strconv.Itoa(1_600_000_000 + os.Getpid())
			bin := filepath.Join(t.TempDir(), "trouble")
			b, err := os.ReadFile(testprog.Build(t, "c/trouble", "O2"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(bin, b, 0o755); err != nil {
				t.Fatal(err)
			}
			for dir := filepath.Dir(bin); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			start := func() *testprog.Proc {
				p := testprog.StartCmd(t, exec.Command("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--bounding-set", "-all",
					"bash", "-c", fmt.Sprintf("ulimit -u %d && exec %s", limit, bin)))
				p.Line("serving")
				return p
			}
			other := start()
			other.Say("threads 10")
			other.Line("threads ")
			return start()
		}},
	} {
		t.Run(c.of, func(t *testing.T) {
			p := c.start()
			r := begin(t, fixed(t, p.PID), nil, "threads auto,every=200ms,cool=0s")
			p.Say("threads 60")
			p.Line("threads ")
			r.samples(64 * 50) // a second, and some checks
			if s := r.Status(); s.Fired > 0 {
				t.Fatalf("at two thirds: %+v", s.Dumps)
			}
			p.Say("threads 17")
			p.Line("threads ")
			if c.of == "control group" { // if no other process of the user has threads
				p.Say("threads 12")
				p.Line("threads ")
			}
			s := r.until("for a dump", func(s *control.Status) bool { return len(s.Dumps) > 0 })
			if d := s.Dumps[0]; d.Reason != "threads" || !strings.Contains(d.Text, "of 100 in use") || !strings.Contains(d.Text, "of the "+c.of+"'s limit), over 90% at 3 checks") {
				t.Errorf("%+v", d)
			}
			r.samples(s.Targets[0].Samples + 80*50)
			if s := r.Status(); s.Fired != 1 {
				t.Errorf("it fired %d times", s.Fired)
			}
		})
	}
}
