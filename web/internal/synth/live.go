package synth

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web"
)

// Feed is a synthetic program that runs now.
type Feed struct {
	Program *Program
	Rec     *trace.Recorder
	sinks   []*trace.Sink
	threads []*Thread
	start   time.Time
	t0      stack.Time
	Paused  atomic.Bool
	ivl     atomic.Int64
	Deeper  atomic.Bool // from now on calls go deeper
	Samples atomic.Uint64
	// Lates are the delays of each round, ns; read them after Run has returned.
	Lates []int64

	file memory
}

// memory is a file in memory.
type memory struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (m *memory) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.b = append(m.b, b...)
	return len(b), nil
}

// Window returns the recording so far; it is web.LiveOptions.Window.
func (f *Feed) Window(from stack.Time) (*trace.Recording, func(), error) {
	size, err := f.Rec.Flush()
	if err != nil {
		return nil, nil, err
	}
	f.file.mu.Lock()
	b := f.file.b[:size]
	f.file.mu.Unlock()
	rec, err := trace.Open(bytes.NewReader(b), size)
	if err != nil {
		return nil, nil, err
	}
	names := f.Program.Symbols()
	rec.Symbols, rec.Named = names, true
	return rec.Since(from), func() {}, nil
}

// NewFeed begins a recording in memory.
func NewFeed(seed uint64, threads int, interval time.Duration) (*Feed, error) {
	f := &Feed{start: time.Now(), t0: 1_000_000_000_000}
	tw, err := trace.NewWriter(&f.file)
	if err != nil {
		return nil, err
	}
	f.ivl.Store(int64(interval))
	f.Program = New(seed, f.t0, int64(interval))
	if f.Rec, err = trace.NewRecorder(tw, f.Program.Proc, 0, nil); err != nil {
		return nil, err
	}
	f.Rec.Maps(f.Program.Maps, f.Program.Modules)
	for k := range threads {
		f.sinks = append(f.sinks, f.Rec.Thread(f.Program.Describe(k, f.t0)))
		f.threads = append(f.threads, f.Program.Thread(k))
		f.sinks[k].Event(f.Now(), event.Rate, uint64(interval))
	}
	return f, nil
}

// Now returns the time of the program's clock.
func (f *Feed) Now() stack.Time { return f.t0 + stack.Time(time.Since(f.start)) }

// SetInterval changes the sampling interval.
func (f *Feed) SetInterval(d time.Duration) error {
	f.ivl.Store(int64(d))
	return nil
}

// Interval returns the sampling interval.
func (f *Feed) Interval() time.Duration { return time.Duration(f.ivl.Load()) }

// Round samples every thread once.
func (f *Feed) Round() {
	var x stack.Sample
	for k, t := range f.threads {
		now := f.Now()
		if f.Deeper.Load() {
			t.Dive(45, now+3*stack.Time(f.Interval()))
		}
		lock := t.Sample(now, &x)
		f.sinks[k].Sample(&x)
		if lock.Changed {
			f.sinks[k].Event(now, event.Lock, lock.Addr)
			if lock.Addr != 0 {
				f.sinks[k].Event(now, event.Holder, event.HolderOf(lock.Holder, event.KnownByWord))
			}
		}
		f.Samples.Add(1)
	}
}

// Run samples until ctx ends, and then ends the threads.
func (f *Feed) Run(ctx context.Context) {
	ivl := f.Interval()
	tick := time.NewTicker(ivl)
	defer tick.Stop()
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			for _, s := range f.sinks {
				s.End(f.Now(), stack.WhyGone)
			}
			return
		case <-tick.C:
		}
		due = due.Add(ivl)
		late := time.Since(due)
		f.Lates = append(f.Lates, int64(max(late, 0)))
		if late > ivl || late < 0 {
			due = time.Now() // missed ticks are skipped
		}
		if f.Paused.Load() {
			continue
		}
		f.Round()
		if i := f.Interval(); i != ivl {
			ivl = i
			tick.Reset(i)
			due = time.Now()
			for _, s := range f.sinks {
				s.Event(f.Now(), event.Rate, uint64(i))
			}
		}
	}
}

// Namer names the program's places.
type Namer struct{}

// Name implements web.Namer.
func (Namer) Name(ctx context.Context, words []web.Word, answer func(int, []web.NameFrame)) {
	for i, w := range words {
		if ctx.Err() != nil {
			return
		}
		named, ok := Name(w.Word)
		if !ok {
			continue
		}
		var frames []web.NameFrame
		for k := len(named) - 1; k >= 0; k-- {
			n := named[k]
			frames = append(frames, web.NameFrame{Func: n.Func, File: n.File, Line: n.Line, Module: n.Module, Defined: n.File, Start: n.Start})
		}
		answer(i, frames)
	}
}
