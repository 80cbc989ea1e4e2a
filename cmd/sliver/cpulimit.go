package main

import (
	"runtime"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/sampler"
)

// cpuLimit is --max-cpu.
type cpuLimit struct {
	of percent // of one CPU; below 0: not chosen
}

func (l *cpuLimit) register(fs *pflag.FlagSet) {
	l.of = -1
	fs.Var(&l.of, "max-cpu", "limit of the CPU that sliver uses for samples of all processes together, in percent of one CPU; the interval grows to keep it (0: no limit; default for several processes: 10%, or --max-overhead of all CPUs if that is more, and 2% of the CPU time that they use while no CPU is idle)")
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

// severalBusy is the limit for several processes while no CPU is idle, as a share of the CPU time that they use.
const severalBusy = .02

// bounds returns the limit. One process has --max-overhead alone. A chosen limit holds whether or not CPUs are idle.
func (l *cpuLimit) bounds(overhead percent) sampler.Bounds {
	if l.of >= 0 {
		return sampler.Bounds{Share: float64(l.of), From: 1}
	}
	b := sampler.Bounds{Share: max(severalCPU, float64(overhead)*float64(runtime.NumCPU())), From: 2}
	if overhead > 0 {
		b.Busy = max(severalBusy, float64(overhead))
	}
	return b
}
