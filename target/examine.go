package target

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/stack"
)

// Verdict is the result of a check.
type Verdict uint8

// Verdicts.
const (
	Good    Verdict = iota
	Limited         // works with restrictions
	Missing         // something that sampling needs is missing
)

// Check is the result of one check of Examine.
type Check struct {
	Name    string
	Verdict Verdict
	Found   string // the finding
	Advice  string // recommended change; "" if there is none
}

// Examine checks everything that sampling needs on this machine, for process pid, or, if pid is
// 0, on a child process of its own.
func Examine(pid int) []Check {
	out := []Check{checkKernel(), checkProcfs(), checkYama(), checkSeccomp(), checkCapabilities(), checkProgram(), checkLimits(), checkSchedstats()}
	if pid == 0 {
		return append(out, tryChild(), checkClock(os.Getpid()))
	}
	return append(out, tryProcess(pid), checkClock(pid))
}

func checkKernel() Check {
	h := ReadHost()
	c := Check{Name: "kernel", Found: fmt.Sprintf("Linux %s, %s, %d CPUs", h.Kernel, runtime.GOARCH, h.CPUs)}
	var major, minor int
	if n, _ := fmt.Sscanf(h.Kernel, "%d.%d", &major, &minor); n == 2 && (major < 4 || major == 4 && minor < 8) {
		c.Verdict, c.Advice = Limited, "sliver is tried on Linux 4.8 and later"
	}
	return c
}

func checkProcfs() Check {
	c := Check{Name: "/proc", Found: "mounted"}
	if _, err := os.Stat("/proc/self/task"); err != nil {
		return Check{Name: "/proc", Verdict: Missing, Found: "not mounted", Advice: "mount it: mount -t proc proc /proc"}
	}
	if hidesProcesses() {
		c.Verdict, c.Found = Limited, "mounted with hidepid: other users' processes cannot be seen"
		c.Advice = "for those: sudo, or the group that /proc's option gid names"
	}
	return c
}

// hidesProcesses reports whether /proc shows this user only its own processes (proc(5), hidepid).
func hidesProcesses() bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	hides := false
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) > 4 && f[4] == "/proc" { // the last mount is on top
			hides = false
			for _, o := range []string{"hidepid=2", "hidepid=invisible", "hidepid=4", "hidepid=ptraceable"} {
				hides = hides || strings.Contains(l, o)
			}
		}
	}
	return hides && !hasCap(capSysPtrace)
}

// checkLimits checks the resource limits of this process.
func checkLimits() Check {
	c := Check{Name: "limits"}
	n, name := limits.Memory()
	c.Found = fmt.Sprintf("%d open files; %d MB of memory (%s)", limits.Descriptors(), n>>20, name)
	const fewFiles, littleMemory, fewTasks = 1024, 512 << 20, 80
	var advice []string
	if limits.Descriptors() < fewFiles {
		advice = append(advice, "raise ulimit -n: each thread takes three open files")
	}
	if n < littleMemory {
		advice = append(advice, "with more memory, names come from large debug files too")
	}
	if left, limit := limits.Tasks(); left >= 0 && left < fewTasks {
		c.Found += fmt.Sprintf("; %d more threads or processes (%s)", left, limit)
		advice = append(advice, "let it start more threads and processes: a recording takes up to 80")
	}
	if len(advice) > 0 {
		c.Verdict, c.Advice = Limited, strings.Join(advice, "; ")
	}
	return c
}

// checkProgram checks which users may run this program with its capabilities.
func checkProgram() Check {
	c := Check{Name: "program", Found: "has no capabilities of its own"}
	path := program()
	if n, err := unix.Getxattr(path, "security.capability", nil); err != nil || n == 0 {
		return c
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return c
	}
	c.Found = fmt.Sprintf("has capabilities; mode %04o, group %d", st.Mode&0o7777, st.Gid)
	if st.Mode&unix.S_IXOTH != 0 {
		c.Verdict = Limited
		c.Found += ": every user may look into every process with it"
		c.Advice = "let one group run it: chgrp GROUP " + path + " && chmod 0750 " + path + ", and setcap once more"
	}
	return c
}

func checkYama() Check {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return Check{Name: "Yama", Found: "not in this kernel: one's own processes may be traced"}
	}
	return yamaCheck(strings.TrimSpace(string(b)), hasCap(capSysPtrace))
}

func yamaCheck(scope string, capable bool) Check {
	c := Check{Name: "Yama"}
	switch scope {
	case "0":
		c.Found = "ptrace_scope is 0: one's own processes may be traced"
	case "1":
		c.Verdict, c.Found = Limited, "ptrace_scope is 1: only what sliver itself starts may be traced"
		c.Advice = "for running processes: sudo sysctl kernel.yama.ptrace_scope=0, or give sliver the right, as root: " + giveCaps(ptraceCap, program())
	case "2":
		c.Verdict, c.Found = Limited, "ptrace_scope is 2: only CAP_SYS_PTRACE may trace"
		c.Advice = "run it with sudo, or as root: " + giveCaps(ptraceCap, program())
	default:
		c.Verdict, c.Found = Missing, "ptrace_scope is "+scope+": no process may trace"
		c.Advice = "it can be lowered by a reboot only: see /etc/sysctl.d/10-ptrace.conf"
	}
	if c.Verdict != Good && scope != "3" && capable {
		c.Verdict, c.Advice = Good, ""
		c.Found += "; this program has CAP_SYS_PTRACE"
	}
	return c
}

func checkSeccomp() Check {
	if err := filtered(); err != nil {
		return Check{Name: "seccomp", Verdict: Missing, Found: err.Error(),
			Advice: "in a container: run it with --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined"}
	}
	return Check{Name: "seccomp", Found: "ptrace and process_vm_readv are let through"}
}

// Capabilities by their number in linux/capability.h.
const (
	capDACOverride   = 1
	capDACReadSearch = 2
	capSysPtrace     = 19
)

func hasCap(n int) bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	sc := bufio.NewScanner(strings.NewReader(string(b)))
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "CapEff:"); ok {
			x, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return err == nil && x>>n&1 != 0
		}
	}
	return false
}

// initialUsers is the initial user namespace (include/linux/proc_ns.h, PROC_USER_INIT_INO).
const initialUsers = "user:[4026531837]"

func checkCapabilities() Check {
	uid := os.Getuid()
	to, err := os.Readlink("/proc/self/ns/user")
	inner := err == nil && to != initialUsers
	switch {
	case hasCap(capSysPtrace) && inner:
		return Check{Name: "rights", Verdict: Limited, Found: fmt.Sprintf("user %d with CAP_SYS_PTRACE in a user namespace: processes of this namespace only", uid),
			Advice: "for others: run sliver outside of the namespace, as root"}
	case hasCap(capSysPtrace) && !hasCap(capDACReadSearch) && !hasCap(capDACOverride):
		return Check{Name: "rights", Verdict: Limited, Found: fmt.Sprintf("user %d with CAP_SYS_PTRACE: one's own processes, also those with capabilities", uid),
			Advice: "for those of others CAP_DAC_READ_SEARCH is needed as well: as root: " + giveCaps(bothCaps, program())}
	case hasCap(capSysPtrace):
		return Check{Name: "rights", Found: fmt.Sprintf("user %d with CAP_SYS_PTRACE: processes of all users", uid)}
	}
	return Check{Name: "rights", Verdict: Limited, Found: fmt.Sprintf("user %d without CAP_SYS_PTRACE: one's own processes only", uid),
		Advice: "for those of others: sudo, or as root: " + giveCaps(bothCaps, program())}
}

func checkSchedstats() Check {
	b, err := os.ReadFile("/proc/self/schedstat")
	if err != nil || strings.HasPrefix(string(b), "0 0 0") {
		return Check{Name: "schedstat", Verdict: Missing, Found: "the kernel keeps no scheduler accounts for threads",
			Advice: "it needs CONFIG_SCHED_INFO (CONFIG_TASK_DELAY_ACCT or CONFIG_SCHEDSTATS), which distributions' kernels have"}
	}
	return Check{Name: "schedstat", Found: "threads that did not run are left alone"}
}

// checkClock tries a CPU clock on a process's first thread: see Clock.
func checkClock(pid int) Check {
	c := Check{Name: "CPU clocks", Found: "the kernel copies running threads: they need not be stopped"}
	err := TryClock(pid, NoProgram)
	switch {
	case (err == nil || errors.Is(err, ErrGone)) && ClocksSeeCalls():
		return c
	case err == nil || errors.Is(err, ErrGone):
		c.Verdict, c.Found = Limited, "the kernel copies threads that run their own code; those in system calls are stopped"
	default:
		var errno unix.Errno
		if errors.As(err, &errno) {
			err = errno
		}
		c.Verdict, c.Found = Limited, "running threads are stopped, not copied by the kernel: "+err.Error()
	}
	level, err := perfParanoid()
	if errors.Is(err, os.ErrNotExist) {
		c.Advice = "a kernel with perf events needs no stops for them"
		return c
	}
	if err == nil && level > 1 {
		c.Advice = fmt.Sprintf("for samples without stops: sudo, CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1 (it is %d)", level)
	}
	return c
}

// perfParanoid returns the value of kernel.perf_event_paranoid. The error is os.ErrNotExist if the kernel has no perf events.
func perfParanoid() (int, error) {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// ExplainClock adds the needed permissions to an error of a clock, if that is ErrClockDenied.
func ExplainClock(err error) error {
	if !errors.Is(err, ErrClockDenied) {
		return err
	}
	is := ""
	if level, err := perfParanoid(); err == nil {
		is = fmt.Sprintf(" (it is %d)", level)
	}
	return fmt.Errorf("%w: CAP_PERFMON is needed (setcap cap_perfmon,cap_sys_ptrace+ep), root, or kernel.perf_event_paranoid of 2 or less%s; in a container, its seccomp profile has to allow perf_event_open", err, is)
}

// tryChild samples a child process of its own.
func tryChild() Check {
	const name = "sampling"
	cmd := exec.Command("sleep", "10")
	if err := cmd.Start(); err != nil {
		return Check{Name: name, Verdict: Limited, Found: fmt.Sprintf("not tried: %v", err)}
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	c := tryProcess(cmd.Process.Pid)
	c.Name = name
	return c
}

// tryProcess takes a hundred samples of a process's first thread.
func tryProcess(pid int) Check {
	c := Check{Name: "process " + strconv.Itoa(pid)}
	fail := func(err error) Check {
		c.Verdict, c.Found = Missing, err.Error()
		var r *Refusal
		if errors.As(err, &r) {
			c.Found, c.Advice = r.What, r.Advice
		}
		return c
	}
	p, err := Open(pid)
	if err != nil {
		return fail(err)
	}
	defer p.Close()
	tids, err := p.Threads(nil)
	if err != nil {
		return fail(err)
	}
	if len(tids) == 0 {
		return fail(ErrGone)
	}
	t, err := p.Thread(tids[0])
	if err != nil {
		return fail(err)
	}
	defer t.Close()
	type result struct {
		held, stops, reads int64
		err                error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // ends with the goroutine, which releases traced threads
		var r result
		r.held, r.stops, r.reads, r.err = try(t)
		done <- r
	}()
	r := <-done
	if r.err != nil {
		return fail(fmt.Errorf("trying a sample: %w", r.err))
	}
	c.Found = fmt.Sprintf("%s, %d threads: can be sampled", p.facts.Comm, len(tids))
	if r.stops > 0 {
		c.Found += fmt.Sprintf("; %d stops took %v each", r.stops, (time.Duration(r.held / r.stops)).Round(100*time.Nanosecond))
	} else {
		c.Found += "; it sleeps, and was read without a stop"
	}
	return c
}

// tries is how many samples Examine takes.
const tries = 100

// try samples t, stopping it only while it runs.
func try(t *Thread) (held, stops, reads int64, err error) {
	tr, err := NewTracer()
	if err != nil {
		return 0, 0, 0, err
	}
	defer tr.Close()
	w := NewWindow(0)
	for range tries {
		var call stack.Call
		running, _, _, err := t.Syscall(&call)
		if err != nil {
			return held, stops, reads, err
		}
		if !running {
			ok, err := t.ReadBlocked(w)
			if err != nil {
				return held, stops, reads, err
			}
			if ok {
				reads++
			}
		} else if err := tr.Capture(t, w); err == nil {
			stops++
			held += int64(w.Resumed - w.Asked)
		} else if !errors.Is(err, ErrTimeout) {
			return held, stops, reads, err
		}
		tr.Reap()
		tr.SleepUntil(Now() + 1_000_000)
	}
	return held, stops, reads, nil
}
