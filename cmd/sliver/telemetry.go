package main

import (
	"fmt"
	"sync"

	"github.com/sliverprof/sliver/telemetry"
	"github.com/sliverprof/sliver/watch"
)

// newTelemetry publishes metrics of sliver's own as --metrics and the standard
// OTEL_* variables say. What telemetry cannot do costs one line, each kind once.
func (f *recordFlags) newTelemetry(e *env) (*telemetry.Pipeline, error) {
	p, err := newTelemetry(telemetry.Config{Listen: f.metrics}, func(s string) { fmt.Fprintf(e.stderr, "sliver: telemetry: %s\n", printable(s)) })
	if err == nil && p.Addr() != "" && !f.quiet {
		fmt.Fprintf(e.stderr, "metrics: http://%s/metrics\n", p.Addr())
	}
	return p, err
}

// newTelemetry has warn told each kind of trouble once.
func newTelemetry(c telemetry.Config, warn func(string)) (*telemetry.Pipeline, error) {
	var mu sync.Mutex
	said := map[string]bool{}
	c.Version = versionString()
	c.Warn = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if s := oneLine(err); !said[s] && len(said) < maxWarnings {
			said[s] = true
			warn(s)
		}
	}
	return telemetry.New(c)
}

// watched is a flight recorder as package telemetry asks for it.
type watched struct{ *watch.Watcher }

// Kept implements telemetry.Keeper.
func (w watched) Kept() telemetry.Kept {
	k := w.Watcher.Kept()
	return telemetry.Kept{Targets: k.Targets, Taken: k.Taken, RingBytes: k.RingBytes, RingLimit: k.RingLimit, Short: k.Short,
		Fired: k.Fired, Dumps: k.Dumps, Failed: k.Failed, Broken: k.Broken, Interval: k.Interval}
}

// maxWarnings of telemetry in one recording.
const maxWarnings = 4
