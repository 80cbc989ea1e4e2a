package trace

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
)

// slowFile blocks its writers while it is locked.
type slowFile struct {
	sync.Mutex
	bytes.Buffer
}

func (f *slowFile) size() int {
	f.Lock()
	defer f.Unlock()
	return f.Len()
}

func (f *slowFile) Write(b []byte) (int, error) {
	f.Lock()
	defer f.Unlock()
	return f.Buffer.Write(b)
}

// sampleOf returns one of a series of distinct samples.
func sampleOf(i int) *stack.Sample {
	pc := uint64(0x1000 + i%7*0x100)
	return &stack.Sample{Time: stack.Time(1000 * (i + 1)), Stack: []stack.Frame{{Func: pc, PC: pc, CFA: 8, Exact: true}}}
}

// TestFull: while the file blocks, rings grow up to a limit. A sampler that respects Full loses no
// event, and the file finally contains everything recorded.
func TestFull(t *testing.T) {
	file := &slowFile{}
	w, _ := NewWriter(file)
	r, err := NewRecorder(w, Process{PID: 1}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sinks []*Sink
	for i := range largeRings + mediumRings + 8 {
		sinks = append(sinks, r.Thread(Thread{TID: stack.TID(i + 1), Since: 1}))
	}
	if c := sinks[0].ring.Cap(); c != DefaultRingCap {
		t.Errorf("the first thread's ring has room for %d events", c)
	}
	last := sinks[len(sinks)-1]
	if c := last.ring.Cap(); c != smallRing {
		t.Errorf("the last thread's ring has room for %d events", c)
	}
	file.Lock()
	n := 0
	for ; !last.Full(); n++ {
		last.Sample(sampleOf(n))
		if n > 1<<20 {
			t.Fatal("its ring is never full")
		}
	}
	if c := last.ring.Cap(); c != DefaultRingCap {
		t.Errorf("a ring that is not read has grown to %d events", c)
	}
	file.Unlock()
	st, err := r.Close(Stats{Threads: []ThreadStats{{TID: last.Thread.TID}}}, End{At: 1})
	if err != nil || st.Threads[0].Overwritten != 0 {
		t.Fatalf("%v, %d events overwritten", err, st.Threads[0].Overwritten)
	}
	rec := open(t, file.Bytes())
	if got := rec.Count(last.Thread.Seq); got != last.ring.Written() {
		t.Errorf("%d of %d events are in the file", got, last.ring.Written())
	}
}

// TestRingMemory: the total size of all rings has a limit.
func TestRingMemory(t *testing.T) {
	r := &Recorder{}
	r.memory.Store(mostMemory - 2*smallRing)
	var grown int
	for range 8 {
		s := &Sink{rec: r}
		s.ring = ringbuf.New(smallRing)
		for range smallRing {
			s.ring.Append(1, 1)
		}
		if was := s.ring.Cap(); !s.Full() || s.ring.Cap() > was {
			grown++
		}
	}
	if grown != 2 || r.memory.Load() != mostMemory {
		t.Errorf("%d rings have grown, to %d events in all", grown, r.memory.Load())
	}
}

// TestDrainEnds: a drain reads the events present when it reaches a ring. It returns even if
// samplers write fast and new threads start.
func TestDrainEnds(t *testing.T) {
	file := &slowFile{}
	w, _ := NewWriter(file)
	r, err := NewRecorder(w, Process{PID: 1}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range 4 {
		s := r.Thread(Thread{TID: stack.TID(i + 1), Since: 1})
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; !stop.Load(); n++ {
				s.Sample(sampleOf(n))
			}
		}()
	}
	for i := range 100 {
		if _, err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		r.Thread(Thread{TID: stack.TID(100 + i), Since: 1})
	}
	stop.Store(true)
	wg.Wait()
	if _, err := r.Close(Stats{}, End{At: 1}); err != nil {
		t.Fatal(err)
	}
	var kept, lost, written uint64
	rec := open(t, file.Bytes())
	for _, s := range r.sinks {
		lost += s.overwritten.Load()
		written += s.ring.Written()
		kept += rec.Count(s.Thread.Seq)
	}
	if kept+lost < written {
		t.Errorf("kept %d + lost %d of %d", kept, lost, written)
	}
}

// TestDrainRests: without events nothing wakes the drain, and the next one is in the file within flushEvery.
func TestDrainRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := &slowFile{}
		w, _ := NewWriter(file)
		r, err := NewRecorder(w, Process{PID: 1}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Thread(Thread{TID: 1, Since: 1})
		for i := range 3 {
			was := file.size()
			s.Sample(sampleOf(i))
			synctest.Wait()
			if i > 0 && r.loop.rests.Load() {
				t.Errorf("event %d does not wake the drain", i)
			}
			<-time.After(flushEvery) // fake time of the bubble
			synctest.Wait()
			if file.size() == was {
				t.Errorf("event %d is not in the file after %v", i, flushEvery)
			}
			<-time.After(flushEvery)
			synctest.Wait()
			if !r.loop.rests.Load() {
				t.Errorf("the drain does not rest after event %d", i)
			}
		}
		if _, err := r.Close(Stats{}, End{At: 1}); err != nil {
			t.Fatal(err)
		}
	})
}
