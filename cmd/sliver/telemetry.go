package main

import (
	"fmt"
	"sync"

	"github.com/sliverprof/sliver/telemetry"
)

// newTelemetry publishes metrics of sliver's own as --metrics and the standard
// OTEL_* variables say. What telemetry cannot do costs one line, each kind once.
func (f *recordFlags) newTelemetry(e *env) (*telemetry.Pipeline, error) {
	var mu sync.Mutex
	said := map[string]bool{}
	p, err := telemetry.New(telemetry.Config{Listen: f.metrics, Version: versionString(), Warn: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if s := oneLine(err); !said[s] && len(said) < maxWarnings {
			said[s] = true
			fmt.Fprintf(e.stderr, "sliver: telemetry: %s\n", s)
		}
	}})
	if err == nil && p.Addr() != "" && !f.quiet {
		fmt.Fprintf(e.stderr, "metrics: http://%s/metrics\n", p.Addr())
	}
	return p, err
}

// maxWarnings of telemetry in one recording.
const maxWarnings = 4
