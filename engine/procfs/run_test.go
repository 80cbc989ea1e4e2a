package procfs

//sliver:layer live

import (
	"context"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// files and memory give the unwinder the process's files and memory.
type files struct{ *target.Process }

func (f files) Open(m stack.Mapping) (io.ReaderAt, error) { return f.OpenMapping(m) }

type memory struct{ *target.Process }

func (m memory) ReadAt(b []byte, off int64) (int, error) { return m.Process.ReadAt(b, uint64(off)) }

// found is what the samples of one thread show.
type found struct {
	mu     *sync.Mutex
	in     stack.ThreadInfo
	states map[stack.State]int
	ways   map[stack.Way]int
	calls  map[int32]int
	whole  int // samples of a look with a whole stack
	denied int64
}

func (f *found) Sample(s *stack.Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[s.State]++
	f.ways[s.Way]++
	f.calls[s.Call.Nr]++
	if s.Way != stack.WayUnrun && len(s.Stack) > 2 && s.Reason == stack.ReasonNone {
		f.whole++
	}
}

func (f *found) Gap(_ stack.Time, why stack.Why, ns int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why == stack.WhyDenied {
		f.denied += ns
	}
}

func (f *found) Event(stack.Time, event.Kind, uint64) {}
func (f *found) End(stack.Time, stack.Why)            {}
func (f *found) Flush()                               {}
func (f *found) Full() bool                           { return false }

// TestSamplerReadsBlockedThreads: sampler works with an engine that stops no thread. Threads that sleep
// have a sample at each tick, with their call and a whole stack, and are not disturbed. Ticks of a thread
// that runs are counted and shown as missing.
func TestSamplerReadsBlockedThreads(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace") // the kernel asks the same right for reads
	const sleepers = 9
	prog := testprog.Start(t, testprog.Build(t, "c/sleepers", "O2"), "--sleepers", "9", "--running", "1", "--seconds", "600", "--wait-go")
	prog.Ready()
	prog.Go()
	opened, err := target.Open(prog.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	arch := rule.AMD64
	if runtime.GOARCH == "arm64" {
		arch = rule.ARM64
	}
	p, err := newProcess(opened, unwind.NewSpace(arch, files{opened}, memory{opened}))
	if err != nil {
		t.Fatal(err)
	}
	waitAsleep(t, p, sleepers)
	before := left(t, p)

	var mu sync.Mutex
	all := map[stack.TID]*found{}
	smp, err := sampler.New(p, sampler.Config{Interval: 2 * time.Millisecond, Stop: sampler.StopAlways, MaxOverhead: .01, Clock: true,
		Harmless: func(*stack.Call, uint64) bool { return true }, Delays: func(*stack.Call, uint64) bool { return true },
		Start: func(in stack.ThreadInfo) sampler.Sink {
			mu.Lock()
			defer mu.Unlock()
			f := &found{mu: &mu, in: in, states: map[stack.State]int{}, ways: map[stack.Way]int{}, calls: map[int32]int{}}
			all[in.TID] = f
			return f
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- smp.Run(ctx) }()
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		asleep, missing := 0, false
		for _, f := range all {
			if f.states[stack.StateBlocked] >= 50 {
				asleep++
			}
			missing = missing || f.denied > 0 && f.states[stack.StateBlocked] == 0
		}
		return asleep >= sleepers && missing
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !enough() && ctx.Err() == nil {
		<-tick.C
	}
	if ctx.Err() != nil {
		t.Error("too few samples in a minute")
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	after := left(t, p)
	accounts, pauses := smp.Accounts()
	if pauses.Count != 0 {
		t.Errorf("%d stops", pauses.Count)
	}
	asleep := 0
	for _, a := range accounts {
		f := all[a.TID]
		if a.Stops != 0 || f.ways[stack.WayStop]+f.ways[stack.WayClock] != 0 {
			t.Errorf("thread %d was stopped: %+v, %v", a.TID, a, f.ways)
		}
		if f.denied > 0 && a.Denied == 0 {
			t.Errorf("thread %d: gaps of %d ns and no tick counted", a.TID, f.denied)
		}
		if f.states[stack.StateBlocked] < 50 || a.Denied > 0 {
			continue
		}
		asleep++
		if before[a.TID] != after[a.TID] {
			t.Errorf("thread %d was disturbed: %s; before: %s", a.TID, after[a.TID], before[a.TID])
		}
		if len(f.calls) != 1 || f.calls[-1] > 0 {
			t.Errorf("thread %d sleeps in one call, shown are %v", a.TID, f.calls)
		}
		if f.whole == 0 && runtime.GOARCH == "amd64" {
			t.Errorf("thread %d: no sample has a whole stack: %v", a.TID, f.ways)
		}
	}
	if asleep < sleepers {
		t.Errorf("%d of %d sleeping threads have samples", asleep, sleepers)
	}
}

// left returns how often each thread has left a CPU.
func left(t *testing.T, p *process) map[stack.TID]string {
	t.Helper()
	tids, err := p.Threads(nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[stack.TID]string{}
	for _, tid := range tids {
		if out[tid], err = switches(p.PID(), tid); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// waitAsleep waits until that number of threads sleep, each in one call.
func waitAsleep(t *testing.T, p *process, want int) {
	t.Helper()
	last := map[stack.TID]string{}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); <-tick.C {
		now, n := left(t, p), 0
		for tid := range now {
			th, err := p.Open(&stack.ThreadInfo{TID: tid})
			if err != nil {
				t.Fatal(err)
			}
			var c stack.Call
			if running, err := th.Call(&c); err == nil && !running && c.Nr >= 0 && now[tid] == last[tid] {
				n++
			}
		}
		last = maps.Clone(now)
		if n >= want {
			return
		}
	}
	t.Fatalf("%s: fewer than %d threads sleep", filepath.Base(t.Name()), want)
}
