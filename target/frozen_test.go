package target

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// A thread that the freezer of its control group holds is stopped: it is not in a page fault, and waits for no device.
func TestFrozen(t *testing.T) {
	frozen := 0
	for _, c := range []struct{ root, file, freeze, thaw string }{
		{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
		{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
		{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
	} {
		prog := start(t, build(t, "testdata/spin.c", "-no-pie"), "regs")
		prog.line()
		dir, err := testprog.NewGroup(c.root, "sliver-test-"+strconv.Itoa(prog.pid()))
		if err != nil {
			continue
		}
		frozen++
		write := func(dir, file, text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Error(err)
			}
		}
		th := openThread(t, openProcess(t, prog.pid()), prog.pid())
		var call stack.Call
		state := func() (running bool, s stack.State) {
			running, _, _, err := th.Syscall(&call)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = th.State(); err != nil {
				t.Fatal(err)
			}
			return running, s
		}
		write(dir, "cgroup.procs", strconv.Itoa(prog.pid()))
		write(dir, c.file, c.freeze)
		eventually(t, "the freezer of "+c.root, func() bool {
			running, _ := state()
			if !running && call.Nr >= 0 { // it has not left the call that wrote its line
				write(dir, c.file, c.thaw)
				write(dir, c.file, c.freeze)
			}
			return !running && call.Nr < 0
		})
		if _, s := state(); s != stack.StateStopped {
			t.Errorf("%s: a frozen thread is %v", c.root, s)
		}
		write(dir, c.file, c.thaw)
		eventually(t, "the thread's own code", func() bool { _, s := state(); return s == stack.StateRunning })
		write(c.root, "cgroup.procs", strconv.Itoa(prog.pid()))
		eventually(t, "the end of the group", func() bool { return os.Remove(dir) == nil })
	}
	if frozen == 0 {
		testprog.Lack(t, "cgroup", "no control group can be made")
	}
}
