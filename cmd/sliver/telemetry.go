package main

import (
	"fmt"
	"sync"

	"github.com/sliverprof/sliver/internal/telemetry"
	"github.com/sliverprof/sliver/watch"
)

// newTelemetry publishes sliver's own metrics as --metrics and the standard OTEL_*
// variables say. A failure costs one line, once for each kind.
func (f *recordFlags) newTelemetry(e *env) (*telemetry.Pipeline, error) {
	p, err := newTelemetry(telemetry.Config{Listen: f.metrics}, func(s string) { fmt.Fprintf(e.stderr, "sliver: telemetry: %s\n", printable(s)) })
	if err == nil && p.Addr() != "" && !f.quiet {
		fmt.Fprintf(e.stderr, "metrics: http://%s/metrics\n", p.Addr())
	}
	return p, err
}

// newTelemetry calls warn once for each kind of failure.
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

// watched adapts a flight recorder for package telemetry.
type watched struct{ *watch.Watcher }

// Kept implements telemetry.Keeper.
func (w watched) Kept() telemetry.Kept {
	k := w.Watcher.Kept()
	return telemetry.Kept{Targets: k.Targets, Taken: k.Taken, RingBytes: k.RingBytes, RingLimit: k.RingLimit, Short: k.Short,
		Fired: k.Fired, Dumps: k.Dumps, Failed: k.Failed, Broken: k.Broken, Interval: k.Interval}
}

// maxWarnings limits the warnings of telemetry in one recording.
const maxWarnings = 4
