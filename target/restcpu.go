package target

import "golang.org/x/sys/unix"

// restTries is how many times RestCPU tries again after a scheduler tick interfered.
const restTries = 3

// CPU returns the CPU time in ns of all present and past threads of the process. ok is false if
// it is unknown, as of a process that was reaped.
func (p *Process) CPU() (ns int64, ok bool) {
	var ts unix.Timespec
	if unix.ClockGettime(int32(processClock(p.pid)), &ts) != nil {
		return 0, false
	}
	return ts.Nano(), p.exists() // otherwise another process may have the number
}

// RestCPU returns the CPU time, in ns, that a process has used, including its ended threads,
// without that of some of its threads. The kernel updates it at each scheduler tick and when a
// thread sleeps, so the latest CPU time of a running thread may be missing. It is for one caller
// at a time; buf is the memory that the last call returned. ok is false if the parts could not be
// read consistently, or if a thread is gone.
//
// The process's clock is the sum of the schedstat values of its threads (kernel/sched/cputime.c,
// thread_group_cputime; fs/proc/base.c, proc_pid_schedstat). A reading updates neither, so values
// that do not change during it are exact.
func (p *Process) RestCPU(but []*Thread, buf []byte) (ns int64, _ []byte, ok bool) {
	if buf == nil {
		buf = make([]byte, 128)
	}
	for range restTries {
		before, ok := sumCPU(but, buf)
		if !ok {
			return 0, buf, false
		}
		var ts unix.Timespec
		if unix.ClockGettime(int32(processClock(p.pid)), &ts) != nil {
			return 0, buf, false
		}
		after, ok := sumCPU(but, buf)
		if !ok {
			return 0, buf, false
		}
		if before == after { // no thread's CPU time decreases
			return ts.Nano() - before, buf, true
		}
	}
	return 0, buf, false
}

func sumCPU(threads []*Thread, buf []byte) (ns int64, ok bool) {
	for _, t := range threads {
		b, err := pread(t.schedstat, buf)
		if err != nil {
			return 0, false
		}
		var c Counters
		if parseSchedstat(b, &c) != nil {
			return 0, false
		}
		ns += c.CPU
	}
	return ns, true
}
