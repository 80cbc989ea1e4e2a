package exact

import (
	"errors"
	"fmt"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/engine/breakpoint"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// breakpoints opens the engine that needs no rights.
func (t *Tracer) breakpoints() (Engine, error) {
	places := 0
	for i := range t.Functions {
		places += t.Functions[i].Places()
	}
	if places > breakpoint.MaxProbes {
		return nil, fmt.Errorf("trace: %s with %d entries and exits; the CPU has %d breakpoints for each thread, so choose fewer functions",
			plural.Of(len(t.Functions), "function"), places, breakpoint.MaxProbes)
	}
	t.inside(t.Functions, breakpoint.MaxProbes-places)
	e, err := t.openBreakpoints()
	if errors.Is(err, breakpoint.ErrBusy) && t.outside(t.Functions) {
		e, err = t.openBreakpoints()
	}
	if err != nil {
		return nil, err // and not an Engine that is nil
	}
	return e, nil
}

func (t *Tracer) openBreakpoints() (*breakpoint.Engine, error) {
	var probes []breakpoint.Probe
	for i := range t.Functions {
		probes = append(probes, t.Functions[i].breakpoints(i)...)
	}
	cpus, err := target.OnlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("trace: list CPUs: %w", err)
	}
	return breakpoint.Open(breakpoint.Options{PID: t.proc.PID(), CPUs: cpus, Probes: probes,
		Threads: func() ([]stack.TID, error) { return t.proc.Threads(nil) }})
}

// inside gives functions of the Go compiler, whose entry a preempted goroutine hits twice, a place inside, as long as
// there is room for one more breakpoint.
func (t *Tracer) inside(fns []Function, room int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range fns {
		if f := &fns[i]; room > 0 && f.Go && f.Code.Second != 0 {
			f.inside = true
			room--
		}
	}
}

// outside undoes inside, and reports whether any of the functions had such a place.
func (t *Tracer) outside(fns []Function) (had bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range fns {
		had = had || fns[i].inside
		fns[i].inside = false
	}
	return had
}

// addBreakpoints sets the breakpoints of a function that was found later. If too few registers are left, it removes all
// breakpoints of kind Inside.
func (t *Tracer) addBreakpoints(e *breakpoint.Engine, fn int) error {
	f := t.Functions[fn : fn+1]
	t.inside(f, 1)
	err := e.Add(f[0].breakpoints(fn))
	if err != nil && t.outside(f) {
		err = e.Add(f[0].breakpoints(fn))
	}
	if err != nil && t.outside(t.Functions) {
		e.Remove(calls.Inside)
		err = e.Add(f[0].breakpoints(fn))
	}
	return err
}

// breakpoints are the places of a function with a number.
func (f *Function) breakpoints(fn int) []breakpoint.Probe {
	probes := []breakpoint.Probe{{Addr: f.Code.Entry + f.bias, Fn: fn, Where: calls.Enter, Go: f.Go, All: f.Go && !f.inside}}
	for _, x := range f.Code.Exits {
		probes = append(probes, breakpoint.Probe{Addr: x.Vaddr + f.bias, Fn: fn, Where: x.Where, Go: f.Go})
	}
	if f.inside {
		probes = append(probes, breakpoint.Probe{Addr: f.Code.Second + f.bias, Fn: fn, Where: calls.Inside, Go: f.Go})
	}
	return probes
}
