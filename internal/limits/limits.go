// Package limits determines how much memory this process may use, and divides it into
// budgets. It does not examine other processes. All functions and methods may be called
// concurrently.
package limits

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Memory returns the most memory that this process may use, in bytes, and the name of the
// limit, for messages.
func Memory() (bytes int64, limit string) {
	m := system()
	return m.bytes, m.name
}

type memory struct {
	bytes int64
	name  string
}

// guess is used if nothing can be read, as without /proc.
const guess = 1 << 30

var system = sync.OnceValue(func() memory {
	m := memory{math.MaxInt64, ""}
	less := func(n int64, name string) {
		if n > 0 && n < m.bytes {
			m = memory{n, name}
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		less(field(b, "MemTotal:")<<10, "the machine's memory")
	}
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		less(groups("/sys/fs/cgroup", string(b)), "the memory limit of the control group")
	}
	for _, r := range []struct {
		which int
		name  string
	}{{syscall.RLIMIT_AS, "ulimit -v"}, {syscall.RLIMIT_DATA, "ulimit -d"}} {
		var l syscall.Rlimit
		if syscall.Getrlimit(r.which, &l) == nil && l.Cur < math.MaxInt64 {
			less(int64(l.Cur), r.name)
		}
	}
	if m.name == "" {
		return memory{guess, "a guess"}
	}
	return m
})

// field returns the number of a key of /proc/meminfo.
func field(b []byte, key string) int64 {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				n, _ := strconv.ParseInt(string(f[0]), 10, 64)
				return n
			}
		}
	}
	return 0
}

// groups returns the lowest memory limit of the groups in /proc/self/cgroup and their
// parents, in bytes; 0: none. In a container the paths may be the host's; then the root
// is the container's own.
func groups(root, text string) (least int64) {
	take := func(file string) {
		b, err := os.ReadFile(file)
		if err != nil {
			return
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" means no limit
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		dirs, name := []string{root, root + "/unified"}, "memory.max"
		if f[0] != "0" {
			if !strings.Contains(","+f[1]+",", ",memory,") {
				continue
			}
			dirs, name = []string{root + "/memory"}, "memory.limit_in_bytes"
		}
		for _, dir := range dirs {
			for p := path.Clean("/" + f[2]); ; p = path.Dir(p) {
				take(dir + p + "/" + name)
				if p == "/" {
					break
				}
			}
		}
	}
	return least
}
