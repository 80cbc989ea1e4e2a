package limits

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// Descriptors returns how many descriptors this process may have open.
func Descriptors() int64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1 << 30
	}
	return int64(min(l.Cur, 1<<30))
}

// Files returns how many files of targets may be kept open at once: a quarter of the descriptors. Threads
// and outputs take the others.
func Files() int64 { return Descriptors() / 4 }

// rlimitNproc is RLIMIT_NPROC of asm-generic/resource.h, which package syscall lacks.
const rlimitNproc = 6

// fewTasks is the limit below which a user's tasks are counted: counting takes one file read
// per process.
const fewTasks = 1000

// Tasks returns how many more threads and processes may be started, and the name of the limit;
// a negative number means that no limit is near.
func Tasks() (left int64, limit string) {
	left = -1
	less := func(n int64, name string) {
		if n = max(n, 0); left < 0 || n < left {
			left, limit = n, name
		}
	}
	var l syscall.Rlimit
	if os.Geteuid() != 0 && syscall.Getrlimit(rlimitNproc, &l) == nil && l.Cur < fewTasks {
		less(int64(l.Cur)-userTasks(os.Getuid()), fmt.Sprintf("ulimit -u is %d", l.Cur))
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return left, limit
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		root := "/sys/fs/cgroup"
		if f[0] != "0" {
			if !strings.Contains(","+f[1]+",", ",pids,") {
				continue
			}
			root += "/pids"
		}
		for p := path.Clean("/" + f[2]); ; p = path.Dir(p) {
			most, err1 := number(root + p + "/pids.max")
			now, err2 := number(root + p + "/pids.current")
			if err1 == nil && err2 == nil && most-now < fewTasks {
				less(most-now, fmt.Sprintf("pids.max of the control group is %d", most))
			}
			if p == "/" {
				break
			}
		}
	}
	return left, limit
}

func number(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" means no limit
}

// userTasks returns the number of threads of a user's processes.
func userTasks(uid int) (n int64) {
	d, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/status")
		if err != nil {
			continue
		}
		if u := field(b, "Uid:"); u == int64(uid) {
			n += max(field(b, "Threads:"), 1)
		}
	}
	return n
}
