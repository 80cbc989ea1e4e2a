package target

import "golang.org/x/sys/unix"

// restTries is how often RestCPU begins anew where the scheduler's tick came between.
const restTries = 3

// CPU is the CPU time in ns of all threads of the process that there are and were. Not ok: it
// is not known.
func (p *Process) CPU() (ns int64, ok bool) {
	var ts unix.Timespec
	if unix.ClockGettime(int32(processClock(p.pid)), &ts) != nil {
		return 0, false
	}
	return ts.Nano(), true
}

// RestCPU is the CPU time, in ns, that a process has used, with its ended threads, but
// for some of its threads. The kernel keeps it up to date at each scheduler's tick and
// when a thread sleeps: of one that runs, what it has used since may be missing. For one
// caller at a time; buf is memory of it, as it was returned the last time. Not ok: the
// parts could not be had of one moment, or a thread is gone.
//
// The process's clock is the sum of what schedstat shows of each thread
// (kernel/sched/cputime.c, thread_group_cputime; fs/proc/base.c, proc_pid_schedstat),
// neither brought up to date for it; so what does not change while it is read is exact.
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
		if before == after { // none of them ever runs backwards
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
