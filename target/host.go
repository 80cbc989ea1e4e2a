package target

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host describes the machine.
type Host struct {
	Name   string
	Kernel string // release
	CPUs   int
}

// ReadHost reads it from the kernel.
func ReadHost() Host {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return Host{CPUs: runtime.NumCPU()}
	}
	return Host{Name: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]), CPUs: runtime.NumCPU()}
}

// Clocks reads CLOCK_MONOTONIC, BOOTTIME and REALTIME as of one moment, in ns: the first is the
// middle of two readings around the others.
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

// SelfCPU returns the CPU time that this program has used, in ns, without Tracer.CPU.
func SelfCPU() int64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return ru.Utime.Nano() + ru.Stime.Nano()
}

// IdleCPU returns the idle time of the machine's CPUs since boot, and their total time, in clock
// ticks (first line of /proc/stat: fs/proc/stat.c, show_stat). Time stolen by a hypervisor is in
// neither. 0, 0: the file cannot be read.
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
	for i, s := range f[1:min(len(f), 9)] { // guest time is included in user time
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
