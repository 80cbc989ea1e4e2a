// Package exact traces all calls of chosen functions of a live process: it finds the functions
// (Find), starts an engine on them (Start), and delivers their calls (Tracer.Run). What a call and a
// function's exit are, package calls knows; what a recording is, package trace.
//
// A Tracer is for one goroutine; Stats and Hot may be called from others.
package exact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/engine/breakpoint"
	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Engine reports hits of probes in a process.
type Engine interface {
	// Wait returns when there is something to read, at the latest after d.
	Wait(d time.Duration)
	// Read reports hits up to some moment before now, in the order of their threads; all if last.
	Read(now stack.Time, sink calls.Sink, last bool)
	// Detach ends the tracing of one function.
	Detach(fn int)
	// Stop ends it for all. A last Read still reports the hits before that.
	Stop() error
	Close() error
}

// The names of engines.
const (
	Auto   = "auto"
	CPU    = "cpu"
	Kernel = "kernel"
)

// Options of a Tracer.
type Options struct {
	Engine string  // Auto, CPU or Kernel
	Limit  float64 // hits a second above which the busiest function is detached; 0: none

	// Later, if not nil, is what Find returned: functions that its patterns match in files that the process maps
	// later are traced, too. Added, if not nil, is called by the goroutine of Run with those that are traced from
	// now on.
	Later *Names
	Added func(fns []Function)
	// Every is the least time between two looks for such files; 0: 20 ms.
	Every time.Duration
}

// DefaultLimit is a bound on hits per second. With 10 µs for a hit, where traps are expensive, they
// take a fifth of a CPU.
const DefaultLimit = 20_000

// Hot is a function that was called too often.
type Hot struct {
	Fn   int
	At   stack.Time // when it was detached
	Rate float64    // hits a second then
}

// FuncStats are the accounts of one function.
type FuncStats struct {
	Calls    uint64 // all that follow, and those that began before
	Returned uint64
	Jumped   uint64 // that ended in a tail call
	Left     uint64 // without a return
	Open     uint64 // that had not ended
	Before   uint64 // that began before tracing
	Hits     uint64
	Times    calls.Histogram // of Returned and Jumped that did not begin before
}

// Stats are the accounts of a Tracer.
type Stats struct {
	Funcs   []FuncStats
	Lost    uint64 // hits that the kernel dropped because a buffer was full
	Odd     uint64 // see calls.Pairer
	Dropped uint64 // calls in a recursion that was too deep
	Hot     []Hot
	// Untraced says why functions that were found later are not traced. Each text is there once.
	Untraced []string
}

// Tracer traces functions of one process.
type Tracer struct {
	Functions []Function // those that are traced, by number; others than the goroutine of Run call Known
	Engine    string     // Kernel or CPU
	Began     stack.Time

	o       Options
	proc    *target.Process
	e       Engine
	pair    calls.Pairer
	regions *calls.Regions
	batch   []calls.Call
	rate    rate
	off     []bool // by function: it was detached, hits that come late are dropped
	later   later
	// until is when tracing ended: the kernel removes places one after another, and entries after their exits. 0: it goes on.
	until stack.Time

	mu    sync.Mutex // guards stats, and Functions while they are added to
	stats Stats
}

// Start begins to trace fns, of which none has a Why. There may be none if more are looked for.
func Start(p *target.Process, fns []Function, o Options) (*Tracer, error) {
	if len(fns) == 0 && o.Later == nil {
		return nil, errors.New("trace: no functions")
	}
	t := &Tracer{Functions: fns, o: o, proc: p}
	t.stats.Funcs = make([]FuncStats, len(fns))
	t.off = make([]bool, len(fns))
	t.rate = rate{limit: o.Limit, hits: make([]uint64, len(fns))}
	t.regions = &calls.Regions{Now: target.Now, Maps: func() []stack.Mapping {
		maps, err := p.Maps()
		if err != nil {
			return nil
		}
		return maps
	}}
	t.Began = target.Now()
	t.pair = calls.Pairer{Region: t.regions.Of, Began: t.Began, Yield: t.ended, Loops: func(fn int) bool { return t.Functions[fn].Code.Loops }}
	t.later.begin(o.Later)
	if len(fns) == 0 {
		t.e = idle{}
		return t, nil
	}
	return t, t.open()
}

// open chooses the engine. The kernel's costs a thread less for each call, so it is preferred.
func (t *Tracer) open() (err error) {
	var denied error
	if t.o.Engine != CPU {
		t.Engine = Kernel
		if t.e, denied = t.uprobes(); denied == nil {
			return nil
		}
		if t.o.Engine == Kernel {
			return denied
		}
	}
	t.Engine = CPU
	if t.e, err = t.breakpoints(); err != nil && denied != nil {
		return fmt.Errorf("%w; the kernel engine: %w", err, denied)
	}
	return err
}

// uprobes opens the engine for many functions.
func (t *Tracer) uprobes() (Engine, error) {
	probes, done, err := t.uprobesOf(0)
	defer done()
	if err != nil {
		return nil, err
	}
	e, err := kernel.Open(t.proc.PID(), probes)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// uprobesOf returns the places of the functions from a number on. Their paths are valid until done.
func (t *Tracer) uprobesOf(first int) (probes []kernel.Probe, done func(), err error) {
	files := map[stack.Mapping]*safefile.File{} // open until the kernel has followed their paths
	done = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for i := first; i < len(t.Functions); i++ {
		f := &t.Functions[i]
		path, err := t.path(f, files)
		if err != nil {
			return nil, done, err
		}
		add := func(vaddr uint64, w calls.Where) {
			probes = append(probes, kernel.Probe{Path: path, Off: vaddr + f.off, Fn: i, Where: w, Go: f.Go})
		}
		for _, x := range f.Code.Exits {
			add(x.Vaddr, x.Where)
		}
		add(f.Code.Entry, calls.Enter)
	}
	return probes, done, nil
}

// path returns a path of a function's file for the kernel. The target chose the file, so it is opened as
// all its files are; the path leads to the open file, whatever is at its name by now.
func (t *Tracer) path(f *Function, files map[stack.Mapping]*safefile.File) (string, error) {
	file := files[f.mod]
	if file == nil {
		opened, err := t.proc.OpenMapping(f.mod)
		if err != nil {
			return "", err
		}
		var ok bool
		if file, ok = opened.(*safefile.File); !ok {
			opened.Close()
			return "", fmt.Errorf("%s is not a file", f.mod.Path)
		}
		files[f.mod] = file
	}
	path, ok := file.OwnPath()
	if !ok {
		return "", fmt.Errorf("%s is on a file system of a server, where the kernel engine places no probes", f.mod.Path)
	}
	return path, nil
}

// breakpoints opens the engine that needs no rights.
func (t *Tracer) breakpoints() (Engine, error) {
	places := 0
	for i := range t.Functions {
		places += t.Functions[i].Places()
	}
	if places > breakpoint.MaxProbes {
		return nil, fmt.Errorf("trace: %s with %d entries and exits; the CPU has %d breakpoints for each thread, so choose fewer functions",
			count(len(t.Functions), "function"), places, breakpoint.MaxProbes)
	}
	var probes []breakpoint.Probe
	for i := range t.Functions {
		probes = append(probes, t.Functions[i].breakpoints(i)...)
	}
	cpus, err := target.OnlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("trace: list CPUs: %w", err)
	}
	e, err := breakpoint.Open(breakpoint.Options{PID: t.proc.PID(), CPUs: cpus, Probes: probes,
		Threads: func() ([]stack.TID, error) { return t.proc.Threads(nil) }})
	if err != nil {
		return nil, err // and not an Engine that is nil
	}
	return e, nil
}

// breakpoints are the places of a function with a number.
func (f *Function) breakpoints(fn int) []breakpoint.Probe {
	probes := []breakpoint.Probe{{Addr: f.Code.Entry + f.bias, Fn: fn, Where: calls.Enter, Go: f.Go}}
	for _, x := range f.Code.Exits {
		probes = append(probes, breakpoint.Probe{Addr: x.Vaddr + f.bias, Fn: fn, Where: x.Where, Go: f.Go})
	}
	return probes
}

// Try tries both engines on the first thread of process pid. It returns why each does not work: nil, it does.
func Try(pid int) (kernelWhy, cpuWhy error) {
	// No code is at this address (vm.mmap_min_addr).
	const nowhere = 0x1000
	if kernelWhy = kernel.Check(); kernelWhy == nil {
		kernelWhy = kernel.Try()
	}
	cpus, err := target.OnlineCPUs()
	if err != nil {
		return kernelWhy, fmt.Errorf("list CPUs: %w", err)
	}
	e, err := breakpoint.Open(breakpoint.Options{PID: pid, CPUs: cpus, Probes: []breakpoint.Probe{{Addr: nowhere, Where: calls.Enter}},
		Threads: func() ([]stack.TID, error) { return []stack.TID{stack.TID(pid)}, nil }})
	if err != nil {
		return kernelWhy, err
	}
	return kernelWhy, e.Close()
}

// MaxPlaces is how many entries and exits the engine CPU can trace at once.
const MaxPlaces = breakpoint.MaxProbes

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Times of Run.
const (
	readEvery  = 50 * time.Millisecond // buffers are emptied at least this often
	aliveEvery = 500 * time.Millisecond
)

// Run delivers calls in the order in which they ended, until ctx or the process ends. deliver's
// argument is valid until it returns. Calls that are under way in the end come last, as open.
func (t *Tracer) Run(ctx context.Context, deliver func([]calls.Call)) error {
	looked := time.Now()
	for ctx.Err() == nil {
		t.e.Wait(readEvery)
		t.read(false, deliver)
		t.lookLater()
		if time.Since(looked) >= aliveEvery {
			if looked = time.Now(); !t.proc.Alive() {
				break
			}
			t.reap(deliver)
		}
	}
	t.until = target.Now()
	err := t.e.Stop()
	t.read(true, deliver)
	t.pair.Close(t.until)
	t.flush(deliver)
	return err
}

// reap ends the calls of threads that are gone, of which not every engine knows.
func (t *Tracer) reap(deliver func([]calls.Call)) {
	tids, err := t.proc.Threads(nil)
	if err != nil {
		return
	}
	t.read(false, deliver) // the last hits of threads that had ended by then
	t.read(false, deliver)
	gone := map[stack.TID]bool{}
	t.pair.Under(func(c calls.Call) {
		if c.Task == 0 && !slices.Contains(tids, c.TID) {
			gone[c.TID] = true
		}
	})
	now := target.Now()
	for tid := range gone {
		(*sink)(t).Gone(tid, now)
	}
	t.flush(deliver)
}

func (t *Tracer) read(last bool, deliver func([]calls.Call)) {
	now := target.Now()
	t.e.Read(now, (*sink)(t), last)
	for !last {
		fn, hits, ok := t.rate.over(now)
		if !ok {
			break
		}
		t.e.Detach(fn)
		t.off[fn] = true
		t.pair.Detach(fn, now)
		t.mu.Lock()
		t.stats.Hot = append(t.stats.Hot, Hot{fn, now, hits})
		t.mu.Unlock()
	}
	t.flush(deliver)
}

func (t *Tracer) flush(deliver func([]calls.Call)) {
	t.mu.Lock()
	t.stats.Odd, t.stats.Dropped = t.pair.Odd, t.pair.Dropped
	for i := range t.batch {
		t.stats.Funcs[t.batch[i].Fn].add(&t.batch[i])
	}
	t.mu.Unlock()
	if len(t.batch) > 0 {
		deliver(t.batch)
		t.batch = t.batch[:0]
	}
}

func (s *FuncStats) add(c *calls.Call) {
	s.Calls++
	switch c.How {
	case calls.Returned:
		s.Returned++
	case calls.Jumped:
		s.Jumped++
	case calls.Left:
		s.Left++
	case calls.Open:
		s.Open++
	}
	if c.Before {
		s.Before++
	} else if c.How == calls.Returned || c.How == calls.Jumped {
		s.Times.Add(c.Duration())
	}
}

func (t *Tracer) ended(c calls.Call) { t.batch = append(t.batch, c) }

// Stats are the accounts so far.
func (t *Tracer) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Funcs = slices.Clone(s.Funcs)
	for i := range s.Funcs {
		s.Funcs[i].Times = s.Funcs[i].Times.Clone()
		s.Funcs[i].Hits = t.rate.all(i)
	}
	s.Hot, s.Untraced = slices.Clone(s.Hot), slices.Clone(s.Untraced)
	return s
}

// Hot returns the functions that were detached so far.
func (t *Tracer) Hot() []Hot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.stats.Hot)
}

// Untraced returns why functions that were found later are not traced, as Stats has it.
func (t *Tracer) Untraced() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.stats.Untraced)
}

// Close ends tracing.
func (t *Tracer) Close() error {
	if t.e == nil {
		return nil
	}
	return t.e.Close()
}

// sink is Tracer as an engine sees it.
type sink Tracer

func (s *sink) Hit(h *calls.Hit) {
	if s.until > 0 && h.Time > s.until {
		return
	}
	s.rate.hit(h.Fn)
	if !s.off[h.Fn] {
		s.pair.Hit(h)
	}
}

func (s *sink) Lost(n uint64) {
	s.rate.lost(n)
	s.mu.Lock()
	s.stats.Lost += n
	s.mu.Unlock()
	s.pair.Lost()
}

func (s *sink) Gone(tid stack.TID, at stack.Time) {
	s.pair.Gone(tid, at)
	s.regions.Gone(tid)
}

// rate is a bucket that leaks limit hits a second.
type rate struct {
	limit  float64
	level  float64 // hits in the bucket
	at     stack.Time
	mu     sync.Mutex // guards hits
	hits   []uint64   // by function, all
	recent []uint64   // at the last look
	gone   uint64     // lost since the last look
}

// burst is how many seconds' hits may come at once.
const burst = .5

func (r *rate) hit(fn int) {
	r.mu.Lock()
	r.hits[fn]++
	r.mu.Unlock()
}

func (r *rate) lost(n uint64) { r.gone += n }

func (r *rate) all(fn int) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits[fn]
}

// over reports the busiest function since the call before if there were more hits than the limit
// allows, and its hits per second.
func (r *rate) over(now stack.Time) (fn int, perSecond float64, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seconds := float64(now-r.at) / 1e9
	if r.at == 0 || r.limit == 0 {
		r.at, r.recent = now, slices.Clone(r.hits)
		r.gone = 0
		return 0, 0, false
	}
	if seconds <= 0 {
		return 0, 0, false
	}
	sum, most := r.gone, -1
	for i := range r.hits {
		n := r.hits[i] - r.recent[i]
		sum += n
		if n > 0 && (most < 0 || n > r.hits[most]-r.recent[most]) {
			most = i
		}
	}
	r.level = max(0, r.level-r.limit*seconds) + float64(sum)
	perSecond = float64(sum) / seconds
	r.gone, r.at = 0, now
	copy(r.recent, r.hits)
	if most < 0 || r.level <= r.limit*burst {
		return 0, 0, false
	}
	r.level = 0
	return most, perSecond, true
}

// Busiest sorts numbers of functions by their calls, most first.
func (s *Stats) Busiest() []int {
	out := make([]int, len(s.Funcs))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(s.Funcs[b].Calls, s.Funcs[a].Calls) })
	return out
}
