package target

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Shared holds the parts of Usage that several processes have in common. It reads them once for
// all requests at about the same time. It may be used concurrently.
type Shared struct {
	mu      sync.Mutex
	threads struct {
		at time.Time
		of map[int]int // by real user ID
	}
	groups struct {
		at time.Time
		of map[string]*Usage // by the content of /proc/PID/cgroup
	}
	ram int64
}

// sharedFor bounds the age of that data.
const sharedFor = time.Second

// userThreads returns how many threads a user has now, approximately, among the processes visible
// here: the kernel counts all of them for RLIMIT_NPROC.
func (x *Shared) userThreads(uid int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := &x.threads; t.of == nil || time.Since(t.at) > sharedFor {
		t.at, t.of = time.Now(), threadsByUser()
	}
	return x.threads.of[uid]
}

// group returns the usage of a process's control group, as read determines it.
func (x *Shared) group(cgroup string, of Resource, read func(u *Usage)) Usage {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := &x.groups
	if g.of == nil || time.Since(g.at) > sharedFor {
		g.at, g.of = time.Now(), map[string]*Usage{}
	}
	key := cgroup + strconv.Itoa(int(of))
	u := g.of[key]
	if u == nil {
		u = &Usage{}
		read(u)
		g.of[key] = u
	}
	return *u
}

// machineRAM returns the machine's RAM in bytes; 0: it cannot be read.
func (x *Shared) machineRAM() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ram == 0 {
		if b, err := os.ReadFile("/proc/meminfo"); err == nil {
			if kb, ok := lineValue(b, "MemTotal:"); ok {
				x.ram = kb << 10
			}
		}
	}
	return x.ram
}

func threadsByUser() map[int]int {
	threads := map[int]int{}
	dir, err := os.Open("/proc")
	if err != nil {
		return threads
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
			threads[int(uid)] += int(n)
		}
	}
	return threads
}

// Capabilities with which a process may have more threads than its user's limit
// (include/uapi/linux/capability.h; kernel/fork.c, copy_process).
const (
	capSysAdmin    = 1 << 21
	capSysResource = 1 << 24
)

// userThreads compares the threads of the process's user with RLIMIT_NPROC. Root and processes
// with certain capabilities have no such limit.
func (p *Process) userThreads(u *Usage, nproc int, shared *Shared) {
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
	u.nearest(max(u.Threads, shared.userThreads(int(uid))), nproc, "user")
}

// effective returns the effective capabilities in /proc/PID/status.
func effective(b []byte) (caps uint64) {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			caps, _ = strconv.ParseUint(string(bytes.TrimSpace(rest)), 16, 64)
		}
	}
	return caps
}

// machineThreads compares all threads of the machine with the kernel's limit. The fourth field of
// /proc/loadavg has the number of running threads and, after a slash, the number of all.
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

// tasks compares the threads of a control group with its limit.
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

// nearest records a thread limit, if it is the nearest one so far.
func (u *Usage) nearest(n, most int, of string) {
	if most > 0 && (u.ThreadLimit == 0 || float64(n)/float64(most) > float64(u.Threads)/float64(u.ThreadLimit)) {
		u.Threads, u.ThreadLimit, u.ThreadOf = n, most, of
	}
}
