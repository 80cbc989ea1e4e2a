package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/session"
)

// registerEngine adds --engine.
func registerEngine(fs *pflag.FlagSet, engine *string) {
	fs.StringVar(engine, "engine", engineAuto, "how threads that use a CPU are sampled: auto (the best that is allowed), ptrace (stops), perf (clocks of the kernel), kernel (clocks and BPF: also Go and Python)")
}

// Values of --engine.
const (
	engineAuto   = "auto"
	enginePtrace = "ptrace"
	enginePerf   = "perf"
	engineKernel = "kernel"
)

// checkEngine returns an error for an unknown value of --engine.
func checkEngine(command, engine string) error {
	switch engine {
	case engineAuto, enginePtrace, enginePerf, engineKernel:
		return nil
	}
	return usagef(command, "engine: %q is unknown; use %s, %s, %s or %s", engine, engineAuto, enginePtrace, enginePerf, engineKernel)
}

// engineFor returns whether a valid value of --engine allows clocks, and forbids BPF programs for them. An engine that is
// asked for and not allowed here is an error.
func engineFor(engine string) (clock, noBPF bool, err error) {
	if engine == enginePerf || engine == engineKernel {
		if err := session.TryClocks(engine == engineKernel); err != nil {
			return false, false, fmt.Errorf("engine %s: %w", engine, err)
		}
	}
	return engine != enginePtrace, engine == enginePerf, nil
}
