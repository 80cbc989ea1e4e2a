package target

import (
	"bytes"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Usage is a process's resource usage and its limits. A limit of 0 means that there is none, or
// that it cannot be read; Known marks the fields that were read.
type Usage struct {
	CPU         int64 // ns of all threads, in steps of 10 ms
	RSS         int64 // bytes in RAM
	Group       int64 // bytes of its control group, without reclaimable page cache
	GroupLimit  int64
	RAM         int64 // bytes of the machine
	FDs         int
	FDLimit     int
	Threads     int // that count for ThreadLimit: of the process and others
	ThreadLimit int // the nearest limit
	ThreadOf    string
	Known       UsageKnown
}

// UsageKnown reports which fields of a Usage were read.
type UsageKnown struct{ CPU, RSS, Group, FDs, Threads bool }

// Resource is a part of a Usage; resources can be or-ed.
type Resource uint8

// Resources.
const (
	ResourceCPU Resource = 1 << iota
	ResourceMemory
	ResourceFDs
	ResourceThreads
)

// Usage reads the requested resources, and takes from shared the parts that were already read for
// another process. It returns ErrGone if the process is gone.
func (p *Process) Usage(of Resource, shared *Shared) (u Usage, err error) {
	b, err := p.read("stat", 4096)
	if err != nil {
		return u, gone(err)
	}
	st, err := ParseStat(b)
	if err != nil {
		return u, err
	}
	u.CPU, u.Known.CPU = int64(st.Ticks)*(1e9/clockTicks), true
	if of&ResourceMemory != 0 {
		if b, err := p.read("status", maxStatus); err == nil {
			if kb, ok := lineValue(b, "VmRSS:"); ok {
				u.RSS, u.Known.RSS = kb<<10, true
			}
		}
		u.RAM = shared.machineRAM()
	}
	var limits []byte
	if of&(ResourceFDs|ResourceThreads) != 0 {
		limits, _ = p.read("limits", maxStatus)
	}
	if of&ResourceFDs != 0 {
		if n, err := p.countFDs(); err == nil {
			u.FDs, u.Known.FDs = n, true
		}
		u.FDLimit = limit(limits, "Max open files")
	}
	if of&ResourceThreads != 0 {
		u.Threads, u.Known.Threads = st.Threads, true
		p.userThreads(&u, limit(limits, "Max processes"), shared)
		machineThreads(&u)
	}
	if of &= ResourceMemory | ResourceThreads; of == 0 {
		return u, nil
	}
	if b, err := p.read("cgroup", maxStatus); err == nil {
		text := string(b)
		ram := u.RAM
		g := shared.group(text, of, func(u *Usage) {
			u.RAM = ram
			groupUsage(u, text, of)
		})
		u.Group, u.GroupLimit, u.Known.Group = g.Group, g.GroupLimit, g.Known.Group
		u.nearest(g.Threads, g.ThreadLimit, g.ThreadOf)
	}
	return u, nil
}

// lineValue returns the number after a key at the beginning of a line.
func lineValue(b []byte, key string) (int64, bool) {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			f := bytes.Fields(rest)
			if len(f) == 0 {
				return 0, false
			}
			n, err := strconv.ParseInt(string(f[0]), 10, 64)
			return n, err == nil && n >= 0 && n < 1<<52
		}
	}
	return 0, false
}

// limit returns a soft limit of /proc/PID/limits; 0: none.
func limit(b []byte, name string) int {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				n, _ := strconv.Atoi(string(f[0])) // "unlimited" means none
				return n
			}
		}
	}
	return 0
}

// countFDs counts the descriptors of the process.
func (p *Process) countFDs() (n int, err error) {
	fd, err := p.openat("fd", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), "fd")
	defer f.Close()
	for {
		names, err := f.Readdirnames(4096)
		n += len(names)
		if err != nil || len(names) == 0 {
			break
		}
	}
	return n, nil
}

// groupUsage reads the accounts of a process's control groups, and the tightest limits of them
// and their ancestors; cgroup is the content of /proc/PID/cgroup.
func groupUsage(u *Usage, cgroup string, of Resource) {
	memory, threads := of&ResourceMemory != 0, of&ResourceThreads != 0
	for line := range strings.Lines(cgroup) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch {
		case f[0] == "0":
			g := group{[]string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, f[2]}
			if memory {
				g.memory(u, "memory.current", "memory.max", "inactive_file")
			}
			if threads {
				g.tasks(u)
			}
		case memory && strings.Contains(","+f[1]+",", ",memory,"):
			g := group{[]string{"/sys/fs/cgroup/memory"}, f[2]}
			g.memory(u, "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")
		case threads && strings.Contains(","+f[1]+",", ",pids,"):
			g := group{[]string{"/sys/fs/cgroup/pids"}, f[2]}
			g.tasks(u)
		}
	}
}

// group is a control group: a path below one of several roots.
type group struct {
	roots []string
	path  string
}

// errNoGroup reports that the group's files are not mounted where expected: in a container, the
// path may be that of the host.
var errNoGroup = errors.New("no such control group")

func (g group) read(dir, name string) ([]byte, error) {
	for _, root := range g.roots {
		if b, err := os.ReadFile(path.Join(root, dir, name)); err == nil {
			return b, nil
		}
	}
	return nil, errNoGroup
}

// lowest returns the smallest value of a file in the group and its ancestors, and the directory
// with that value.
func (g group) lowest(name string) (least int64, dir string) {
	for d := path.Clean("/" + g.path); ; d = path.Dir(d) {
		if b, err := g.read(d, name); err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" means none
			if err == nil && n > 0 && n < 1<<60 && (least == 0 || n < least) {
				least, dir = n, d
			}
		}
		if d == "/" {
			return least, dir
		}
	}
}

func (g group) memory(u *Usage, current, limit, cache string) {
	least, dir := g.lowest(limit)
	if least == 0 || u.RAM > 0 && least >= u.RAM {
		return
	}
	b, err := g.read(dir, current)
	if err != nil {
		return
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return
	}
	if b, err := g.read(dir, "memory.stat"); err == nil {
		if n, ok := lineValue(b, cache+" "); ok {
			used = max(used-n, 0)
		}
	}
	u.Group, u.GroupLimit, u.Known.Group = used, least, true
}
