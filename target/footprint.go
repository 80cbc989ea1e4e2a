package target

import (
	"time"
)

// Footprint is how much memory a process takes, in bytes, and how old it is.
type Footprint struct {
	Virtual, Resident int64
	Share             int64 // proportional: a page of n processes counts as 1/n
	Threads, FDs      int
	Age               time.Duration
	RAM, RAMFree      int64 // of the machine
}

// Footprint reads what /proc has about the process. What it may not read is 0.
func (p *Process) Footprint() (f Footprint, err error) {
	b, err := p.read("stat", 4096)
	if err != nil {
		return f, gone(err)
	}
	st, err := ParseStat(b)
	if err != nil {
		return f, err
	}
	f.Threads = st.Threads
	f.Age = time.Duration(Now() - ticksToTime(st.Start))
	kib := func(b []byte, key string) int64 {
		n, _ := lineValue(b, key)
		return n << 10
	}
	if b, err := p.read("status", maxStatus); err == nil {
		f.Virtual, f.Resident = kib(b, "VmSize:"), kib(b, "VmRSS:")
	}
	if b, err := p.read("smaps_rollup", maxStatus); err == nil {
		f.Share = kib(b, "Pss:")
	}
	if n, err := p.countFDs(); err == nil {
		f.FDs = n
	}
	if b, err := readWhole("/proc/meminfo", maxStatus); err == nil {
		f.RAM, f.RAMFree = kib(b, "MemTotal:"), kib(b, "MemAvailable:")
	}
	return f, nil
}
