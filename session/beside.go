package session

import (
	"context"
	"errors"
	"slices"

	"github.com/sliverprof/sliver/session/oneshot"
)

// beside begins the records beside the samples: traced calls, I/O, context switches. what names the one that
// failed. end ends those that have begun, also after an error. ctx ends the wait for their begin.
func (s *Session) beside(ctx context.Context) (what string, end func() error, err error) {
	var ends []func() error
	end = func() error {
		var errs []error
		for _, f := range slices.Backward(ends) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if s.o.Trace != nil {
		if s.traced, err = traceCalls(ctx, s.proc, s.o.Trace, s.recorder); err != nil {
			return "trace", end, err
		}
		ends = append(ends, s.traced.end)
	}
	if s.o.IO != nil {
		names := oneshot.Options{DebugDirs: s.o.DebugDirs, FullNames: s.o.FullNames, Finder: s.o.Finder, Cache: s.o.Cache}
		if s.io, err = logIO(s.proc, s.o.IO, names, s.recorder, s.ioRing); err != nil {
			return "I/O", end, err
		}
		ends = append(ends, s.io.end)
	}
	if s.o.Switches != nil {
		if s.switches, err = logSwitches(s.proc, s.o.Switches, s.recorder, func() bool { return s.smp.Selection().All() }, s.bareSamples); err != nil {
			return "switches", end, err
		}
		ends = append(ends, func() error {
			s.switches.end()
			return nil
		})
	}
	return "", end, nil
}
