package target

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host is what the machine says of itself.
type Host struct {
	Name   string
	Kernel string // release
	CPUs   int
}

// ReadHost asks the kernel.
func ReadHost() Host {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return Host{CPUs: runtime.NumCPU()}
	}
	return Host{Name: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]), CPUs: runtime.NumCPU()}
}

// Clocks reads CLOCK_MONOTONIC, BOOTTIME and REALTIME as of one moment, in ns:
// the first is the middle of two readings around the others.
func Clocks() (monotonic, boot, real int64) {
	get := func(id int32) int64 {
		var ts unix.Timespec
		_ = unix.ClockGettime(id, &ts) // cannot fail for these clocks
		return ts.Nano()
	}
	a := get(unix.CLOCK_MONOTONIC)
	boot, real = get(unix.CLOCK_BOOTTIME), get(unix.CLOCK_REALTIME)
	return (a + get(unix.CLOCK_MONOTONIC)) / 2, boot, real
}

// SelfCPU is the CPU time that this program has used, in ns, but for Tracer.CPU.
func SelfCPU() int64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return ru.Utime.Nano() + ru.Stime.Nano()
}

// IdleCPU is for how long the machine's CPUs were idle since it started, and how long that
// was for all of them together, in clock ticks (/proc/stat, its first line: fs/proc/stat.c, show_stat;
// what a virtual machine's host took is neither). 0, 0: the file cannot be read.
func IdleCPU() (idle, all uint64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	return idleOf(string(b))
}

func idleOf(stat string) (idle, all uint64) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 6 || f[0] != "cpu" {
		return 0, 0
	}
	for i, s := range f[1:min(len(f), 9)] { // guests' time is in user's
		n, err := strconv.ParseUint(s, 10, 48)
		if err != nil {
			return 0, 0
		}
		if all += n; i == 3 || i == 4 { // idle, iowait
			idle += n
		}
	}
	return idle, all
}

// SetThreadName names the calling OS thread; the kernel keeps 15 bytes.
func SetThreadName(name string) {
	b := append([]byte(name), 0)
	setName(b)
}

// Prioritize asks for a better place in the scheduler's queue for the calling
// OS thread, so that samples are in time on a busy machine. It is no error not
// to be allowed to (it takes CAP_SYS_NICE, or a limit on nice).
func Prioritize() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10) }
