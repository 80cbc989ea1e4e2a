package exact

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/engine/breakpoint"
	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Cost is how long a hit of an engine holds up the thread on this machine.
type Cost struct {
	// Enter is of an entry. With the kernel engine it is of one where the kernel carries out the instruction itself;
	// other entries cost as much as an exit (calls.Code.Cheap).
	Enter, Exit time.Duration
	// Assumed: it could not be measured.
	Assumed bool
}

// assumed are the costs on a virtual machine (docs/performance.md), by engine, where they cannot be measured.
var assumed = map[string]Cost{
	CPU:    {9 * time.Microsecond, 9 * time.Microsecond, true},
	Kernel: {time.Microsecond, 10 * time.Microsecond, true},
}

// costs are measured once for each engine.
var costs = map[string]func() Cost{
	CPU:    sync.OnceValue(func() Cost { return measured(CPU) }),
	Kernel: sync.OnceValue(func() Cost { return measured(Kernel) }),
}

// measure measures the costs that Start needs, if that was not done before. It takes some 20 ms.
func (o *Options) measure() {
	if o.Engine == CPU || costs[Kernel]().Assumed && o.Engine == Auto {
		costs[CPU]()
	}
}

func measured(engine string) Cost {
	if c, err := measure(engine); err == nil {
		return c
	}
	return assumed[engine]
}

// of returns the cost of a hit of f at a place, in ns.
func (c Cost) of(engine string, f *Function, w calls.Where) int64 {
	if w == calls.Enter && (engine != Kernel || !pushed || f.Code.Cheap) {
		return int64(c.Enter)
	}
	return int64(c.Exit)
}

// Both places are measured in turns for measureFor, in batches that have few enough calls not to be interrupted often.
const (
	measureFor   = 8 * time.Millisecond
	inBatch      = 16 // calls
	fewBatches   = 4
	mostBatches  = 64
	enteredFn    = 0
	leftFn       = 1
	measuredOnes = 2
)

// In assembly.
func places() (enter, exit uint64)
func enter(n int64)
func leave(n int64)

// measure sets the probes of an engine in functions of this program, which a thread calls for some ms. A time is the first
// quartile of batches: on a busy machine, many are interrupted.
func measure(engine string) (c Cost, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in, out := places()
	e, err := measuredEngine(engine, in, out)
	if err != nil {
		return Cost{}, err
	}
	n := &counted{}
	var took [measuredOnes][]time.Duration
	for began, i := time.Now(), 0; i < fewBatches || i < mostBatches && time.Since(began) < measureFor; i++ {
		for fn, call := range [measuredOnes]func(int64){enteredFn: enter, leftFn: leave} {
			at := time.Now()
			call(inBatch)
			took[fn] = append(took[fn], time.Since(at)/inBatch)
			n.made[fn] += inBatch
		}
	}
	for fn := range took {
		slices.Sort(took[fn])
	}
	c.Enter, c.Exit = took[enteredFn][len(took[enteredFn])/4], took[leftFn][len(took[leftFn])/4]
	e.Read(target.Now(), n, true)
	if engine == Kernel {
		go e.Close() // it takes 60 ms: the kernel waits until no CPU runs the program
	} else {
		err = e.Close()
	}
	if err == nil && (n.hits != n.made || n.lost > 0) {
		err = fmt.Errorf("measure the cost of a hit: %d hits of %d calls, %d lost", n.hits, n.made, n.lost)
	}
	return c, err
}

// measuredEngine opens an engine with probes at two addresses of this program's code, for the calling thread.
func measuredEngine(engine string, in, out uint64) (Engine, error) {
	pid := os.Getpid()
	if engine == CPU {
		cpus, err := target.OnlineCPUs()
		if err != nil {
			return nil, err
		}
		tid := stack.TID(syscall.Gettid())
		return breakpoint.Open(breakpoint.Options{PID: pid, CPUs: cpus, Threads: func() ([]stack.TID, error) { return []stack.TID{tid}, nil },
			Probes: []breakpoint.Probe{{Addr: in, Fn: enteredFn, Where: calls.Enter}, {Addr: out, Fn: leftFn, Where: calls.Return}}})
	}
	maps, err := target.OwnMaps()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(maps, func(m stack.Mapping) bool { return m.Exec && m.Start <= in && in < m.End && out < m.End })
	if i < 0 {
		return nil, fmt.Errorf("no mapping of this program has %#x", in)
	}
	off := maps[i].Off - maps[i].Start
	const self = "/proc/self/exe"
	return kernel.Open(pid, []kernel.Probe{{Path: self, Off: out + off, Fn: leftFn, Where: calls.Return}, {Path: self, Off: in + off, Fn: enteredFn, Where: calls.Enter}})
}

// counted counts the hits of measured calls.
type counted struct {
	made, hits [measuredOnes]uint64
	lost       uint64
}

func (c *counted) Hit(h *calls.Hit)           { c.hits[h.Fn]++ }
func (c *counted) Lost(n uint64)              { c.lost += n }
func (c *counted) Gone(stack.TID, stack.Time) {}
