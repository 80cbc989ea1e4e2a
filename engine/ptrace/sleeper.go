package ptrace

import (
	"sync"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Tracers keeps the Tracers of OS threads that sample one process after the other, such as the compilers of a
// build: to make one, with its stopper and windows, takes longer than many samples. Its methods may be called
// concurrently.
type Tracers struct {
	mu sync.Mutex
	// idle are those of each OS thread with a Sleeper.
	idle map[int][]idleTracer
}

type idleTracer struct {
	tr *target.Tracer
	w  *target.Window
}

const (
	// maxIdle bounds the Tracers kept for an OS thread, and maxWindow, in bytes, the windows of each. That is enough
	// for the first sample of a thread (firstGuess of unwind, and a quarter more) with its small blocks: each process
	// would have a window made for it, and cleared, otherwise.
	maxIdle   = 8
	maxWindow = target.MaxSpanBytes + 384<<10
)

// NewTracers returns a Tracers without any.
func NewTracers() *Tracers { return &Tracers{idle: map[int][]idleTracer{}} }

// Sleeper is an argument for sampler.NewHosts. From then on Engines of the calling OS thread leave their Tracers,
// until the Sleeper is closed.
func (x *Tracers) Sleeper() (sampler.Sleeper, error) {
	tr, err := target.NewTracer()
	if err != nil {
		return nil, err
	}
	s := &sleeper{Tracer: tr, kept: x, thread: target.OSThread()}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.idle[s.thread] = nil
	return s, nil
}

// take returns a Tracer of the calling OS thread. x may be nil.
func (x *Tracers) take() (*target.Tracer, *target.Window, error) {
	if x != nil {
		x.mu.Lock()
		all := x.idle[target.OSThread()]
		if n := len(all) - 1; n >= 0 {
			it := all[n]
			x.idle[target.OSThread()] = all[:n]
			x.mu.Unlock()
			return it.tr, it.w, nil
		}
		x.mu.Unlock()
	}
	tr, err := target.NewTracer()
	if err != nil {
		return nil, nil, err
	}
	return tr, target.NewWindow(0), nil
}

// keep takes a Tracer that its Engine does not need any more. It returns false if the Tracer has to be closed. x may
// be nil.
func (x *Tracers) keep(tr *target.Tracer, w *target.Window) bool {
	if x == nil || !tr.Rest(maxWindow) {
		return false
	}
	if w.Cap() > maxWindow {
		w = target.NewWindow(0)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	all, ok := x.idle[target.OSThread()]
	if !ok || len(all) >= maxIdle {
		return false
	}
	x.idle[target.OSThread()] = append(all, idleTracer{tr, w})
	return true
}

// NewSleeper is an argument for sampler.NewHosts.
func NewSleeper() (sampler.Sleeper, error) { return NewTracers().Sleeper() }

type sleeper struct {
	*target.Tracer
	kept   *Tracers
	thread int
}

func (s *sleeper) Now() stack.Time { return target.Now() }

func (s *sleeper) SleepUntil(at stack.Time) { s.Tracer.SleepUntil(at) }

func (s *sleeper) Close() {
	s.kept.mu.Lock()
	all := s.kept.idle[s.thread]
	delete(s.kept.idle, s.thread)
	s.kept.mu.Unlock()
	for _, it := range all {
		_ = it.tr.Close() // they hold no thread
	}
	_ = s.Tracer.Close() // it stopped no thread
}
