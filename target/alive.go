package target

import (
	"os"
	"strconv"

	"github.com/sliverprof/sliver/stack"
)

// Alive reports whether the process still exists and is not a zombie. A process whose first
// thread ended while others continue is alive.
func (p *Process) Alive() bool {
	// While another thread execs, it takes the first one's number, and a reading that began before that finds the old first
	// thread dead (de_thread of fs/exec.c). The next one finds the new one.
	for range 8 { // each may meet another exec
		if p.alive() {
			return true
		}
	}
	return false
}

func (p *Process) alive() bool {
	// The file is open, so a lack of descriptors does not make a process seem gone.
	var buf [1024]byte
	b, err := pread(p.stat, buf[:])
	if err != nil {
		return false
	}
	st, err := ParseStat(b)
	if err != nil || st.State == 'X' {
		return false
	}
	return st.State != 'Z' || st.Threads > 1
}

// pfExiting is PF_EXITING of linux/sched.h.
const pfExiting = 0x00000004

// Continues reports whether process pid goes on after a report that its first thread ended: other threads go on, or one of them
// has exec'ed and has its number. start is when the process began.
func Continues(pid int) (start stack.Time, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	st, err := ParseStat(b)
	if err != nil || st.Flags&pfKthread != 0 {
		return 0, false
	}
	return ticksToTime(st.Start), st.Threads > 1 || st.Flags&pfExiting == 0 && st.State != 'Z' && st.State != 'X'
}
