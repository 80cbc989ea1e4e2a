package watch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
)

// limited puts a process into a control group of its own with a memory limit.
func limited(t *testing.T, pid int, bytes int64) {
	t.Helper()
	var errs []string
	for _, g := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}, {"/sys/fs/cgroup/unified", "memory.max"},
	} {
		dir := filepath.Join(g.root, "sliver-test-"+strconv.Itoa(pid))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			if err = os.WriteFile(filepath.Join(dir, g.limit), []byte(strconv.FormatInt(bytes, 10)), 0o644); err == nil {
				err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
			}
			if err != nil {
				_ = os.Remove(dir)
			}
		}
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		t.Cleanup(func() {
			_ = os.WriteFile(filepath.Join(g.root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		return
	}
	testprog.Lack(t, "cgroup", "no control group with a memory limit can be made: "+strings.Join(errs, "; "))
}

// The limit is that of the control group, and the threshold that of its size: a
// program at three quarters of 200 MiB is well, one above nine tenths is not.
func TestMemoryOfGroup(t *testing.T) {
	testprog.Need(t, "ptrace", "root")
	p := trouble(t)
	limited(t, p.PID, 200<<20)
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
