package main

import "github.com/spf13/pflag"

// registerEngine adds --engine.
func registerEngine(fs *pflag.FlagSet, engine *string) {
	fs.StringVar(engine, "engine", engineAuto, "how threads that use a CPU are sampled: auto (a clock of the kernel copies them where it is allowed to, else stops), stops")
}

// Values of --engine.
const (
	engineAuto  = "auto"
	engineStops = "stops"
)

// parseEngine reports whether --engine allows clocks.
func parseEngine(command, engine string) (clock bool, err error) {
	if engine != engineAuto && engine != engineStops {
		return false, usagef(command, "engine: %q is unknown; use %s or %s", engine, engineAuto, engineStops)
	}
	return engine == engineAuto, nil
}
