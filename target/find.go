package target

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Found is a process as a search sees it.
type Found struct {
	PID   int
	Comm  string
	Exe   string   // base name of its program; "" if unreadable
	Units []string // the components of its control group's path, the last one last
	Start uint64   // clock ticks after boot
}

// Finder searches again and again for the same kind of process. One that it has seen
// and does not want is looked at more and more rarely: there may be thousands of them. While it
// is young it may still become another program, as what a shell or a service manager starts does, and is
// looked at each time: on a busy machine there may be a second between its fork and its exec.
type Finder struct {
	match func(*Found) bool
	turn  int
	seen  map[int]unwanted
}

// unwanted is when to look at such a process again, and after how many searches more
// if it is unwanted then.
type unwanted struct{ turn, gap int }

// maxGap bounds how many searches long one that changes its name or group is missed.
const maxGap = 16

// youth, in ns, is how old a process is from which on it is not looked at each time.
const youth = 10_000_000_000

// NewFinder searches for processes that match wants.
func NewFinder(match func(*Found) bool) *Finder {
	return &Finder{match: match, seen: map[int]unwanted{}}
}

// Find returns those there are of the calling user, oldest first (of all users for
// root, and for whoever has CAP_SYS_PTRACE); kernel threads, zombies, this program
// itself and those that are known already are left out. known may be nil.
func (x *Finder) Find(known func(pid int) bool) ([]Found, error) {
	var out []Found
	x.turn++
	before := x.seen
	x.seen = make(map[int]unwanted, len(before))
	skip := func(pid int) bool {
		if known != nil && known(pid) {
			return true
		}
		u, ok := before[pid]
		if ok && x.turn < u.turn {
			x.seen[pid] = u
			return true
		}
		gap := min(max(2*u.gap, 1), maxGap)
		x.seen[pid] = unwanted{x.turn + gap, gap} // unless it is wanted
		return false
	}
	now := monotonic()
	err := eachOwn(skip, func(pid int, st *Stat) {
		if now-ticksToTime(st.Start) < youth {
			x.seen[pid] = unwanted{x.turn + 1, 0}
		}
		f := Found{PID: pid, Comm: st.Comm, Start: st.Start}
		dir := "/proc/" + strconv.Itoa(pid)
		if exe, err := os.Readlink(dir + "/exe"); err == nil {
			f.Exe = path.Base(strings.TrimSuffix(exe, " (deleted)"))
		}
		if b, err := os.ReadFile(dir + "/cgroup"); err == nil {
			f.Units = unitsOf(string(b))
		}
		if x.match(&f) {
			delete(x.seen, pid)
			out = append(out, f)
		}
	})
	slices.SortFunc(out, func(a, b Found) int {
		if a.Start != b.Start {
			return int(int64(a.Start) - int64(b.Start))
		}
		return a.PID - b.PID
	})
	return out, err
}

// unitsOf takes the path out of /proc/PID/cgroup in which systemd names its
// units: that of the unified hierarchy, or of systemd's own.
func unitsOf(s string) (units []string) {
	for line := range strings.Lines(s) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || f[0] != "0" && f[1] != "name=systemd" {
			continue
		}
		if u := strings.FieldsFunc(f[2], func(r rune) bool { return r == '/' }); len(u) > len(units) {
			units = u
		}
	}
	return units
}

// Named matches processes by a pattern of path.Match for their name or that of
// their program.
func Named(pattern string) (func(*Found) bool, error) {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return nil, err
	}
	return func(f *Found) bool {
		for _, name := range []string{f.Comm, f.Exe} {
			if ok, _ := path.Match(pattern, name); ok && name != "" {
				return true
			}
		}
		return false
	}, nil
}

// InUnit matches the processes of a systemd unit; a name without an ending is
// a service's.
func InUnit(name string) func(*Found) bool {
	if !strings.Contains(name, ".") {
		name += ".service"
	}
	return func(f *Found) bool { return slices.Contains(f.Units, name) }
}

// Alive reports whether there is a process of this number.
func Alive(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}
