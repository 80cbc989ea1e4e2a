package target

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Found is a process as a search sees it.
type Found struct {
	PID    int
	Comm   string
	Exe    string  // base name of its program; "" if unreadable
	Groups []Group // its control groups, one in each hierarchy
	Start  uint64  // clock ticks after boot
	// Parent is the process that started it, or that inherited it when that one ended.
	Parent int
}

// Began returns Start as a time.
func (f *Found) Began() stack.Time { return ticksToTime(f.Start) }

// Finder searches repeatedly for the same kind of process. Processes that do not match are
// examined less and less often, because there may be thousands. A young process may still become
// another program, for example one that a shell or service manager starts, so it is examined each
// time: on a busy machine a second may pass between its fork and its exec.
type Finder struct {
	match func(*Found) bool
	turn  int
	seen  map[int]unwanted
}

// unwanted is the search in which to examine such a process again, and the gap that follows if it
// still does not match.
type unwanted struct{ turn, gap int }

// maxGap bounds, in searches, how long a changed name or group stays undetected.
const maxGap = 16

// youth, in ns, is the age up to which a process is examined in each search.
const youth = 10_000_000_000

// NewFinder returns a Finder for the processes that match accepts.
func NewFinder(match func(*Found) bool) *Finder {
	return &Finder{match: match, seen: map[int]unwanted{}}
}

// Find returns the matching processes of the calling user, oldest first. With root or
// CAP_SYS_PTRACE it covers all users. Kernel threads, zombies, this program itself and known
// processes are left out. known may be nil.
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
		x.seen[pid] = unwanted{x.turn + gap, gap} // unless it matches
		return false
	}
	now := monotonic()
	err := eachOwn(skip, func(pid int, st *Stat) {
		if now-ticksToTime(st.Start) < youth {
			x.seen[pid] = unwanted{x.turn + 1, 0}
		}
		f := seen(pid, st)
		if x.match(&f) {
			delete(x.seen, pid)
			out = append(out, f)
		}
	})
	slices.SortFunc(out, byAge)
	return out, err
}

// FindOthers returns the matching processes that Find does not cover since they are of other users, oldest first.
func FindOthers(match func(*Found) bool) ([]Found, error) {
	if readsAll() {
		return nil, nil
	}
	names, err := pids()
	if err != nil {
		return nil, err
	}
	var out []Found
	uid := os.Getuid()
	err = visitUsers(names, nil, func(of int) bool { return of != anyUser && of != uid }, func(pid int, st *Stat) {
		if f := seen(pid, st); match(&f) {
			out = append(out, f)
		}
	})
	slices.SortFunc(out, byAge)
	return out, err
}

// byAge orders older processes first.
func byAge(a, b Found) int {
	if a.Start != b.Start {
		return int(int64(a.Start) - int64(b.Start))
	}
	return a.PID - b.PID
}

// seen reads the rest of what a search sees.
func seen(pid int, st *Stat) Found {
	f := Found{PID: pid, Comm: st.Comm, Start: st.Start, Parent: st.PPID}
	dir := "/proc/" + strconv.Itoa(pid)
	if exe, err := os.Readlink(dir + "/exe"); err == nil {
		f.Exe = path.Base(strings.TrimSuffix(exe, " (deleted)"))
	}
	if b, err := os.ReadFile(dir + "/cgroup"); err == nil {
		f.Groups = parseGroups(string(b))
	}
	return f
}

// FindOne returns what a search sees of one process; ok is false if it is gone, or would be left
// out by Find.
func FindOne(pid int) (f Found, ok bool) {
	err := visitOwn([]string{strconv.Itoa(pid)}, nil, func(pid int, st *Stat) { f, ok = seen(pid, st), true })
	return f, ok && err == nil
}

// Newer returns the processes that are not in seen, oldest first, without Exe and Groups, and adds
// them to seen. It removes those that are gone. Which processes it covers is as in Find.
func Newer(seen map[int]bool) ([]Found, error) {
	var out []Found
	there := make(map[int]bool, len(seen))
	err := eachOwn(func(pid int) bool {
		there[pid] = true
		return seen[pid]
	}, func(pid int, st *Stat) {
		out = append(out, Found{PID: pid, Comm: st.Comm, Start: st.Start, Parent: st.PPID})
	})
	for pid := range seen {
		if !there[pid] {
			delete(seen, pid)
		}
	}
	for pid := range there {
		seen[pid] = true
	}
	slices.SortFunc(out, byAge)
	return out, err
}

// Named returns a match of processes whose name, or whose program's name, matches a pattern of
// path.Match, or has a part that matches /REGEXP/. Of a name such as "gunicorn: worke", which servers give
// their processes (setproctitle(3)), the part before ": " is a name too.
func Named(pattern string) (func(*Found) bool, error) {
	matches := func(name string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	}
	if n := len(pattern); n > 2 && pattern[0] == '/' && pattern[n-1] == '/' {
		re, err := regexp.Compile(pattern[1 : n-1])
		if err != nil {
			return nil, err
		}
		matches = re.MatchString
	} else if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return nil, err
	}
	return func(f *Found) bool {
		program, _, _ := strings.Cut(f.Comm, ": ")
		return slices.ContainsFunc([]string{f.Comm, program, f.Exe}, func(name string) bool { return name != "" && matches(name) })
	}, nil
}

// Alive reports whether a process with this number exists.
func Alive(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}
