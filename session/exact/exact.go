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
	"math"
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
	Engine string // Auto, CPU or Kernel
	Limit  Limit  // above which the costliest function is detached

	// Later, if not nil, is what Find returned: functions that its patterns match in files that the process maps
	// later are traced, too. Added, if not nil, is called by the goroutine of Run with those that are traced from
	// now on.
	Later *Names
	Added func(fns []Function)
	// Reached, if not nil, is called by the goroutine of Run after deliver: calls that began or ended until until are
	// known. fresh are those that began and have not ended, of which it did not get to know before; valid until it returns.
	Reached func(until stack.Time, fresh []calls.Call)
	// Every is the least time between two looks for such files; 0: 20 ms.
	Every time.Duration
}

// Hot is a function that was called too often.
type Hot struct {
	Fn    int
	At    stack.Time // when it was detached
	Rate  float64    // hits a second then
	Calls float64    // a second then
	Share float64    // of a CPU, for the hits
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
	Cost     time.Duration   // of the hits, for the threads
	Times    calls.Histogram // of Returned and Jumped that did not begin before
}

// Stats are the accounts of a Tracer.
type Stats struct {
	Funcs   []FuncStats
	Lost    uint64        // hits that the kernel dropped because a buffer was full
	Hit     Cost          // of one hit
	Cost    time.Duration // of all hits, with lost ones, for the threads of the process
	Traced  time.Duration // for how long
	Odd     uint64        // see calls.Pairer
	Dropped uint64        // calls in a recursion that was too deep
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
	hits    bool       // the last Read had some
	readAt  stack.Time // of the last Read
	off     []bool     // by function: it was detached, hits that come late are dropped
	later   later
	fresh   []calls.Call
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
	t.rate = rate{limit: o.Limit}
	t.rate.resize(len(fns))
	t.regions = &calls.Regions{Now: target.Now, Maps: func() []stack.Mapping {
		maps, err := p.Maps()
		if err != nil {
			return nil
		}
		return maps
	}}
	if len(fns) > 0 {
		o.measure()
	}
	t.Began = target.Now()
	t.pair = calls.Pairer{Region: t.regions.Of, Began: t.Began, Yield: t.ended, Loops: func(fn int) bool { return t.Functions[fn].Code.Loops },
		Inside: func(fn int) bool { return t.Functions[fn].inside }}
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
		t.choose(Kernel)
		if t.e, denied = t.uprobes(); denied == nil {
			return nil
		}
		if t.o.Engine == Kernel {
			return denied
		}
	}
	t.choose(CPU)
	if t.e, err = t.breakpoints(); err != nil && denied != nil {
		return fmt.Errorf("%w; the kernel engine: %w", err, denied)
	}
	return err
}

// choose notes the engine to open, and the cost of its hits.
func (t *Tracer) choose(engine string) {
	t.Engine = engine
	t.rate.begin(costs[engine]())
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

// Times of Run.
const (
	// Buffers are emptied at least every readEvery, every readSoon while there are hits, and every readHot while they may
	// soon be above the limit.
	readEvery  = 50 * time.Millisecond
	readSoon   = 20 * time.Millisecond
	readHot    = 5 * time.Millisecond
	aliveEvery = 500 * time.Millisecond
)

// Run delivers calls in the order in which they ended, until ctx or the process ends. deliver's
// argument is valid until it returns. Calls that are under way in the end come last, as open.
func (t *Tracer) Run(ctx context.Context, deliver func([]calls.Call)) error {
	looked, every := time.Now(), readSoon
	t.readAt = target.Now()
	t.rate.over(t.readAt) // the time begins
	for ctx.Err() == nil {
		t.e.Wait(every)
		every = t.read(false, deliver)
		t.lookLater()
		if time.Since(looked) >= aliveEvery {
			if looked = time.Now(); !t.proc.Alive() {
				break
			}
			t.reap(deliver)
		}
	}
	t.until = target.Now()
	t.mu.Lock()
	t.stats.Traced = time.Duration(t.until - t.Began)
	t.mu.Unlock()
	err := t.e.Stop()
	t.read(true, deliver)
	t.pair.Close(t.until)
	t.flush(deliver)
	t.reached(math.MaxInt64)
	return err
}

// reached reports that all hits until then have been read.
func (t *Tracer) reached(until stack.Time) {
	if t.o.Reached == nil {
		return
	}
	t.fresh = t.fresh[:0]
	t.pair.Fresh(func(c calls.Call) { t.fresh = append(t.fresh, c) })
	t.o.Reached(until, t.fresh)
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

// read delivers the calls that have ended, and detaches functions that are too hot. It returns when to read again.
func (t *Tracer) read(last bool, deliver func([]calls.Call)) (next time.Duration) {
	now, before := target.Now(), t.readAt
	upTo := now // hits are complete
	if t.Engine == CPU {
		upTo = before
	}
	t.hits, t.readAt = false, now
	t.e.Read(now, (*sink)(t), last)
	for !last {
		hot, ok := t.rate.over(upTo)
		if !ok {
			break
		}
		t.e.Detach(hot.Fn)
		t.off[hot.Fn] = true
		t.pair.Detach(hot.Fn, now)
		t.mu.Lock()
		t.stats.Hot = append(t.stats.Hot, hot)
		t.mu.Unlock()
	}
	t.flush(deliver)
	if !last {
		t.reached(before) // hits before the last reading have been read
	}
	switch {
	case t.rate.near:
		return readHot
	case t.hits:
		return readSoon
	}
	return readEvery
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
		s.Funcs[i].Hits, s.Funcs[i].Cost = t.rate.of(i)
	}
	s.Hit, s.Cost = t.rate.sum()
	if s.Traced == 0 {
		s.Traced = time.Duration(target.Now() - t.Began)
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
	s.hits = true
	cost := s.rate.cost.of(s.Engine, &s.Functions[h.Fn], h.Where)
	if s.off[h.Fn] {
		s.rate.late(h, cost)
		return
	}
	s.rate.hit(h, cost)
	s.pair.Hit(h)
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

// Busiest sorts numbers of functions by their calls, most first.
func (s *Stats) Busiest() []int {
	out := make([]int, len(s.Funcs))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(s.Funcs[b].Calls, s.Funcs[a].Calls) })
	return out
}
