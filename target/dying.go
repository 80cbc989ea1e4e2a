package target

import (
	"bytes"
	"strconv"
)

// pfDumpcore is PF_DUMPCORE of linux/sched.h.
const pfDumpcore = 0x00000200

// dumping reports whether the kernel is writing a core dump of the thread, and where the thread
// was at the fatal signal. The kernel shows the stack and instruction pointer of such a thread,
// which can no longer be stopped, in stat (fs/proc/array.c, do_task_stat; since 4.14).
func (t *Thread) dumping() (pc, sp uint64, ok bool) {
	b, err := pread(t.stat, t.line[:])
	if err != nil {
		return 0, 0, false
	}
	return parseDumping(b)
}

// parseDumping parses /proc/PID/task/TID/stat.
func parseDumping(b []byte) (pc, sp uint64, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, 0, false
	}
	const first, flags, kstkesp, kstkeip = 3, 9, 29, 30 // fields count from 1; the first one here is the state
	if !dumpcore(b[i+1:], flags-first) {
		return 0, 0, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) <= kstkeip-first {
		return 0, 0, false
	}
	word := func(n int) uint64 {
		v, err := strconv.ParseUint(string(f[n-first]), 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	pc, sp = word(kstkeip), word(kstkesp)
	return pc, sp, sp != 0
}

// dumpcore checks the flags in the n-th word after the name, from 0. It is a cheap test, because
// most threads are alive.
func dumpcore(b []byte, n int) bool {
	v := uint64(0)
	for _, c := range b {
		switch {
		case c == ' ':
			n--
		case n == -1 && c-'0' <= 9:
			v = v*10 + uint64(c-'0')
		}
	}
	return v&pfDumpcore != 0
}
