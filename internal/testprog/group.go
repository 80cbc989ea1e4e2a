package testprog

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Files of a control group's limits of memory in bytes and of tasks, in version 1 and 2.
var (
	GroupMemory = []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/unified/memory.max"}
	GroupTasks  = []string{"/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/unified/pids.max"}
)

// NewGroup makes a control group and returns its folder. An empty one of that name is of a test that was killed. Where
// each controller has a file system of its own, their common folder is none of control groups, and would take files of any
// name.
func NewGroup(root, name string) (dir string, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(root, &fs); err != nil {
		return "", fmt.Errorf("%s: %w", root, err)
	}
	if fs.Type != groupFiles && fs.Type != groupFiles2 {
		return "", fmt.Errorf("%s has no control groups", root)
	}
	dir = filepath.Join(root, name)
	_ = os.Remove(dir)
	return dir, os.Mkdir(dir, 0o755)
}

// The kernel's numbers of the file systems of control groups, version 1 and 2 (include/uapi/linux/magic.h).
const (
	groupFiles  = 0x27e0eb
	groupFiles2 = 0x63677270
)

// Group puts a process into its own control group with a limit, until the test ends. limits are the
// candidate files, version 1 files below their controller's folder. It skips or fails as Need does for
// "cgroup" if no group can be made.
func Group(t testing.TB, pid int, value int64, limits ...string) {
	t.Helper()
	var errs []string
	for _, limit := range limits {
		root, name := filepath.Split(limit)
		dir, err := NewGroup(root, "sliver-test-"+strconv.Itoa(pid))
		if err == nil {
			if err = os.WriteFile(filepath.Join(dir, name), []byte(strconv.FormatInt(value, 10)), 0o644); err == nil {
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
			// Its children may live a moment longer.
			var err error
			for range 1000 {
				rest, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				for _, pid := range strings.Fields(string(rest)) {
					_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(pid), 0o644)
				}
				if err = os.Remove(dir); err == nil {
					return
				}
				<-time.After(5 * time.Millisecond)
			}
			t.Error(err)
		})
		return
	}
	Lack(t, "cgroup", "no control group with a limit can be made: "+strings.Join(errs, "; "))
}
