package main

import (
	"runtime"

	"github.com/spf13/pflag"
)

// cpuLimit is --max-cpu.
type cpuLimit struct {
	of percent // of one CPU; below 0: not chosen
}

func (l *cpuLimit) register(fs *pflag.FlagSet) {
	l.of = -1
	fs.Var(&l.of, "max-cpu", "limit of the CPU that sliver uses for samples of all processes together, in percent of one CPU; the interval grows to keep it (0: no limit; default for several processes: 10%, or --max-overhead of all CPUs if that is more)")
	fs.Lookup("max-cpu").DefValue = ""
}

func (l *cpuLimit) check(command string) error {
	if l.of < 0 && l.of != -1 {
		return usagef(command, "max-cpu: %v is out of range; use 0%% (no limit) or more", &l.of)
	}
	return nil
}

// severalCPU is the limit for several processes where none is chosen.
const severalCPU = .1

// share returns the limit as a share of one CPU, and the number of processes from which it applies. 0: no limit.
// One process has --max-overhead alone.
func (l *cpuLimit) share(overhead percent) (share float64, from int) {
	if l.of >= 0 {
		return float64(l.of), 1
	}
	return max(severalCPU, float64(overhead)*float64(runtime.NumCPU())), 2
}
