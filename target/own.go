package target

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Running is a process that could be recorded.
type Running struct {
	PID     int
	Command string  // command line, arguments joined by spaces
	CPU     float64 // cores that it used during the window
}

// Own lists the processes of the calling user, with the CPU they use during window. With root or
// CAP_SYS_PTRACE it lists those of all users. Kernel threads and this program are left out.
func Own(window time.Duration) ([]Running, error) {
	type before struct{ ticks uint64 }
	first := map[int]before{}
	if err := eachOwn(nil, func(pid int, st *Stat) { first[pid] = before{st.UTime + st.STime} }); err != nil {
		return nil, err
	}
	from := time.Now()
	time.Sleep(window)
	var out []Running
	err := eachOwn(nil, func(pid int, st *Stat) {
		b, ok := first[pid]
		if !ok {
			return
		}
		took := max(time.Since(from).Seconds(), .001)
		cmd, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		r := Running{PID: pid, Command: strings.TrimSpace(strings.ReplaceAll(string(cmd), "\x00", " "))}
		if r.Command == "" {
			r.Command = st.Comm
		}
		r.CPU = float64(st.UTime+st.STime-b.ticks) / clockTicks / took
		out = append(out, r)
	})
	return out, err
}

// eachOwn visits such processes; skip, if not nil, excludes some at low cost.
func eachOwn(skip func(pid int) bool, visit func(pid int, st *Stat)) error {
	names, err := pids()
	if err != nil {
		return err
	}
	return visitOwn(names, skip, visit)
}

// pids returns the names in /proc, which are numbers of processes and others.
func pids() ([]string, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	return proc.Readdirnames(-1)
}

// visitOwn is eachOwn for some names of /proc.
func visitOwn(names []string, skip func(pid int) bool, visit func(pid int, st *Stat)) error {
	uid, all := os.Getuid(), readsAll()
	return visitUsers(names, skip, func(of int) bool { return all || of == uid }, visit)
}

// anyUser is not the number of a user. A function that accepts it accepts all users.
const anyUser = -1

// readsAll reports whether the calling user may read the processes of all users.
func readsAll() bool { return os.Getuid() == 0 || hasCap(capSysPtrace) }

// visitUsers is visitOwn for the processes of users that of accepts.
func visitUsers(names []string, skip func(pid int) bool, of func(uid int) bool, visit func(pid int, st *Stat)) error {
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid == os.Getpid() || skip != nil && skip(pid) {
			continue
		}
		dir := "/proc/" + n
		b, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it ended
		}
		st, err := ParseStat(b)
		if err != nil || st.Flags&pfKthread != 0 || st.State == 'Z' && st.Threads <= 1 {
			continue
		}
		if st.PPID == os.Getpid() && (st.Comm == safefile.HelperName || st.Comm == stopperName) {
			continue // part of this program
		}
		if !of(anyUser) {
			b, err := os.ReadFile(dir + "/status")
			if err != nil {
				continue
			}
			status, err := ParseStatus(b)
			if err != nil || !of(status.UID) {
				continue
			}
		}
		visit(pid, &st)
	}
	return nil
}
