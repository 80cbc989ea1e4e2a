package target

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Users counts the threads of users, for RLIMIT_NPROC: the kernel holds that against
// all that a user has. It may be used by several goroutines at once.
type Users struct {
	mu      sync.Mutex
	at      time.Time
	threads map[int]int // by real user ID
}

// usersEvery bounds how often all processes are looked at.
const usersEvery = time.Second

// count is how many threads a user has, as of about now, among the processes that
// are seen from here.
func (x *Users) count(uid int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.threads == nil || time.Since(x.at) > usersEvery {
		x.read()
	}
	return x.threads[uid]
}

func (x *Users) read() {
	x.at, x.threads = time.Now(), map[int]int{}
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/status")
		if err != nil {
			continue // it has ended
		}
		uid, ok := lineValue(b, "Uid:")
		n, counted := lineValue(b, "Threads:")
		if ok && counted {
			x.threads[int(uid)] += int(n)
		}
	}
}

// The capabilities with which a process may have more threads than its user's limit
// (include/uapi/linux/capability.h; kernel/fork.c, copy_process).
const (
	capSysAdmin    = 1 << 21
	capSysResource = 1 << 24
)

// userThreads holds the threads of the process's user against RLIMIT_NPROC. Root, and
// whoever has certain capabilities, has no such limit.
func (p *Process) userThreads(u *Usage, nproc int, users *Users) {
	if nproc == 0 {
		return
	}
	b, err := p.read("status", maxStatus)
	if err != nil {
		return
	}
	uid, ok := lineValue(b, "Uid:")
	if !ok || uid == 0 || effective(b)&(capSysAdmin|capSysResource) != 0 {
		return
	}
	n := u.Threads
	if users != nil {
		n = max(n, users.count(int(uid)))
	}
	u.nearest(n, nproc, "user")
}

// effective are the capabilities in force, of /proc/PID/status.
func effective(b []byte) (caps uint64) {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			caps, _ = strconv.ParseUint(string(bytes.TrimSpace(rest)), 16, 64)
		}
	}
	return caps
}

// machineThreads holds all threads of the machine against what the kernel bears:
// /proc/loadavg has in its fourth field how many run, and behind a slash how many
// there are.
func machineThreads(u *Usage) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	f := strings.Fields(string(b))
	if len(f) < 4 {
		return
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.Atoi(all)
	if b, e := os.ReadFile("/proc/sys/kernel/threads-max"); e == nil && err == nil {
		if most, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			u.nearest(n, most, "machine")
		}
	}
}

// tasks holds the threads of a control group against its limit.
func (g group) tasks(u *Usage) {
	least, dir := g.lowest("pids.max")
	if least == 0 || least > 1<<30 {
		return
	}
	b, err := g.read(dir, "pids.current")
	if err != nil {
		return
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
		u.nearest(n, int(least), "control group")
	}
}

// nearest notes a limit of threads, if none that was noted is nearer.
func (u *Usage) nearest(n, most int, of string) {
	if most > 0 && (u.ThreadLimit == 0 || float64(n)/float64(most) > float64(u.Threads)/float64(u.ThreadLimit)) {
		u.Threads, u.ThreadLimit, u.ThreadOf = n, most, of
	}
}
