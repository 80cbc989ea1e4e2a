package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"syscall"

	"github.com/sliverprof/sliver/internal/limits"
	_ "github.com/sliverprof/sliver/internal/limits/early" // reports which limit is too low to start
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/target"
)

// boundMemory makes the garbage collector keep the heap below the memory that this program may use: without
// that the heap grows to twice its live part, and a small control group ends the program. The rest of
// the memory is for what the collector does not count: rings, mapped files, the helper processes.
func boundMemory() {
	n, _ := limits.Memory()
	if most := n / 8 * 5; most < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(most)
	}
}

// Descriptors that a recording needs: a fixed number, and three for each thread.
const (
	ownDescriptors    = 64
	threadDescriptors = 3
)

// checkDescriptors checks whether the limit of descriptors is high enough to record the
// threads of a process.
func checkDescriptors(e *env, p *target.Process) error {
	most := limits.Descriptors()
	if most < ownDescriptors {
		return fmt.Errorf("ulimit -n allows %d open files; a recording takes %d, and %d for each thread", most, ownDescriptors, threadDescriptors)
	}
	ts, err := p.Threads(nil)
	if err != nil {
		return nil // a later step reports it
	}
	if need := int64(ownDescriptors + threadDescriptors*len(ts)); need > most {
		fmt.Fprintf(e.stderr, "sliver: ulimit -n allows %d open files; all %s need about %d: some threads are not recorded\n",
			most, plural.Of(len(ts), "thread"), need)
	}
	return nil
}

// Threads and processes of a recording, its samplers, stoppers and helpers: at least leastTasks, and up
// to mostTasks for a process with many threads.
const (
	leastTasks = 32
	mostTasks  = 80
)

// checkTasks checks whether enough threads and processes may be started to sample. Without them the Go
// runtime ends with a stack trace, in mid-recording.
func checkTasks(e *env) error {
	left, limit := limits.Tasks()
	switch {
	case left < 0 || left >= mostTasks:
	case left < leastTasks:
		return fmt.Errorf("%s, which leaves %d more threads or processes; sampling takes %d at least, and up to %d", limit, left, leastTasks, mostTasks)
	default:
		fmt.Fprintf(e.stderr, "sliver: %s, which leaves %s; sampling takes up to %d, and ends where they do not suffice\n", limit, plural.Either(left, "more thread or process", "more threads or processes"), mostTasks)
	}
	return nil
}

// underLimits adds the limit of this process that caused an error.
func underLimits(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w (ulimit -n is %d)", err, limits.Descriptors())
	case errors.Is(err, syscall.EAGAIN):
		if left, limit := limits.Tasks(); left >= 0 && left < 64 {
			return fmt.Errorf("%w (%s, which leaves %d more threads or processes)", err, limit, left)
		}
	case errors.Is(err, syscall.ENOMEM):
		n, limit := limits.Memory()
		return fmt.Errorf("%w (%s is %d MB)", err, limit, n>>20)
	}
	return err
}

// explain adds a remedy to a refusal.
func explain(err error) error {
	var r *target.Refusal
	if errors.As(err, &r) && r.Advice != "" {
		return fmt.Errorf("%s; %s", r.What, r.Advice)
	}
	return err
}
