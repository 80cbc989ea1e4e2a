package trace

import (
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
)

// Memory limits of rings, in events of 16 bytes.
const (
	// largeRings is how many threads start with rings of DefaultRingCap (32 MiB), and
	// mediumRings how many more start with rings of mediumRing (16 MiB). All others start
	// small (4 KiB). A ring that the drain does not keep up with doubles, up to
	// DefaultRingCap.
	largeRings  = 256
	mediumRings = 1024
	mediumRing  = 1 << 10
	smallRing   = ringbuf.MinCap
	// mostMemory is the size of all rings together at which they stop growing (128 MiB). Only
	// a deep stack makes a ring grow beyond that, as a ring must hold several.
	mostMemory = 128 << 20 / 16
)

// ringFor returns the initial capacity of the ring of thread number n.
func (r *Recorder) ringFor(n int) int {
	switch {
	case r.ringCap > 0:
		return r.ringCap
	case n < largeRings:
		return DefaultRingCap
	case n < largeRings+mediumRings:
		return mediumRing
	}
	return smallRing
}

// grow replaces the ring with a larger one.
func (s *Sink) grow(capacity int) {
	was := s.ring.Cap()
	s.ring = s.ring.Grow(capacity)
	s.rec.memory.Add(int64(s.ring.Cap() - was))
}

// waiting returns how many events the drain has not read yet.
func (s *Sink) waiting() int { return int(s.ring.Written() - s.read.Load()) }

// makeRoom doubles the ring if the memory limit allows it. The drain reads the rest of the old
// one first.
func (s *Sink) makeRoom() {
	c := s.ring.Cap()
	if s.rec.ringCap > 0 || c >= DefaultRingCap || s.rec.memory.Load()+int64(c) > mostMemory {
		return
	}
	s.grow(2 * c)
}

// Full reports whether the next samples of this thread should be skipped, because the drain is
// so far behind that they would overwrite unread events. A quarter of the ring is reserved for
// events that cannot be skipped. Call it from the goroutine that samples the thread.
func (s *Sink) Full() bool {
	if s.waiting() <= s.ring.Cap()-s.ring.Cap()/4 {
		return false
	}
	s.makeRoom()
	return s.waiting() > s.ring.Cap()-s.ring.Cap()/4
}

// note queues this ring for the drain.
func (s *Sink) note() {
	if s.noted.Swap(true) {
		return
	}
	r := s.rec
	for s.next = r.dirty.Load(); !r.dirty.CompareAndSwap(s.next, s); {
		s.next = r.dirty.Load()
	}
	if r.loop.rests.Load() && r.loop.rests.CompareAndSwap(true, false) {
		r.loop.poke()
	}
}

// Load describes how well the file keeps up with the rings.
type Load struct {
	Bytes       int64   // written to the file
	Overwritten uint64  // events lost between ring and file
	Fill        float64 // fill level of the fullest ring now; at 1 the next event overwrites
	Peak        float64 // highest Fill observed when rings were emptied
}

// Load may be called at any time; it waits while rings are being emptied.
func (r *Recorder) Load() Load {
	r.drainMu.Lock()
	defer r.drainMu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := Load{Bytes: r.w.Bytes()}
	for _, s := range r.sinks {
		l.Overwritten += s.overwritten.Load()
		l.Fill = max(l.Fill, s.fill())
		l.Peak = max(l.Peak, s.peak)
	}
	l.Peak = max(l.Peak, l.Fill)
	return l
}

// fill returns the unread share of the ring. rec.drainMu is held.
func (s *Sink) fill() float64 {
	waiting, size := s.cursor.Waiting()
	return min(float64(waiting)/float64(size), 1)
}

// Flush writes out everything that sinks have recorded so far. It returns the length of the
// recording, which ends with a complete chunk. Open can read that part while more is appended.
func (r *Recorder) Flush() (size int64, err error) {
	r.drain(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w.Bytes(), r.failed
}

// drainLoop is what runDrain shares with others.
type drainLoop struct {
	wake, stop, done chan struct{}
	// rests: all is written, and the first event wakes the loop. Most of hundreds of processes have none for minutes.
	rests atomic.Bool
}

// poke makes the loop drain soon.
func (l *drainLoop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (r *Recorder) runDrain() {
	l := &r.loop
	defer close(l.done)
	tick := time.NewTimer(drainEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.wake:
		case <-l.stop:
			return
		}
		l.rests.Store(false)
		fill, left := r.drain(false)
		switch {
		case !left && r.rest():
			tick.Stop()
		case fill < sparseFill:
			tick.Reset(sparseEvery - time.Since(begun)%sparseEvery)
		default:
			tick.Reset(drainEvery)
		}
	}
}

// rest lets the first event wake the loop. It returns false if there is one already.
func (r *Recorder) rest() bool {
	r.loop.rests.Store(true)
	return r.dirty.Load() == nil || !r.loop.rests.CompareAndSwap(true, false)
}

// While no ring was filled more than sparseFill between two drains, the next drain is sparseEvery later: of a process
// that is sampled a hundred times a second, to wake up for the drain costs more than the drain. So the Recorders of
// hundreds of processes also do it at the same moments. A ring that a sudden change fills faster wakes the drain.
const (
	sparseFill  = 1. / 64
	sparseEvery = 4 * drainEvery
	// sweepEvery is the time between two looks for chunks that are flushAge old: each sparse drain is one. An event waits for
	// its drain and its chunk for the look, so both take flushEvery together at most.
	sweepEvery = sparseEvery - drainEvery
	flushAge   = flushEvery - 2*sparseEvery
)

// begun is what the moments of sparse drains are multiples of sparseEvery after.
var begun = time.Now()

// drain moves the contents of the rings into chunks. It writes all chunks if end is set,
// otherwise those that are large or old enough. From each ring it takes only the events
// present when it starts to read it, so active sinks cannot delay it. It returns how full the fullest ring was, as a
// share, and whether events are left that are not written yet.
func (r *Recorder) drain(end bool) (fill float64, left bool) {
	r.drainMu.Lock()
	defer r.drainMu.Unlock()
	now := time.Now()
	for s := r.dirty.Swap(nil); s != nil; {
		next := s.next
		s.noted.Store(false) // cleared before reading: later events note it again
		fill = max(fill, s.fill())
		r.empty(s, now)
		s = next
	}
	if end || now.Sub(r.swept) >= sweepEvery {
		r.swept = now
		r.writePending(now, end)
	}
	return fill, len(r.pending) > 0
}

// empty reads one ring.
func (r *Recorder) empty(s *Sink, now time.Time) {
	s.peak = max(s.peak, s.fill())
	left, _ := s.cursor.Waiting()
	for left > 0 {
		n, lost := s.cursor.Read(r.scratch[:min(left, uint64(len(r.scratch)))])
		if n == 0 && lost == 0 {
			break
		}
		left -= min(left, uint64(n)+lost)
		s.read.Store(s.cursor.Pos())
		if !s.queued {
			s.queued, s.oldest = true, now
			r.pending = append(r.pending, s)
		}
		s.take(r.scratch[:n], lost)
		if len(s.enc.buf) >= flushBytes {
			r.mu.Lock()
			r.write(s)
			r.mu.Unlock()
		}
	}
}

// writePending writes partial chunks: those that are old enough, or all. It combines many
// small ones in one write.
func (r *Recorder) writePending(now time.Time, all bool) {
	const atOnce = 64
	kept := r.pending[:0]
	for i := 0; i < len(r.pending); {
		r.mu.Lock()
		r.w.hold()
		for n := 0; n < atOnce && i < len(r.pending); n++ {
			s := r.pending[i]
			i++
			if s.enc.n > 0 && !all && now.Sub(s.oldest) < flushAge {
				kept = append(kept, s)
				continue
			}
			s.queued = false
			if s.enc.n > 0 {
				r.write(s)
			}
		}
		r.note(r.w.release())
		r.mu.Unlock()
	}
	clear(r.pending[len(kept):])
	r.pending = kept
}

// write makes a chunk of the encoded events. Both locks are held.
func (r *Recorder) write(s *Sink) {
	r.buf = s.enc.payload(r.buf)
	r.note(r.w.chunk(chunkEvents, r.buf))
	s.enc.reset(s.Thread.Seq)
}

// addOverwritten adds the events lost between rings and file to s. mu is held.
func (r *Recorder) addOverwritten(s *Stats) {
	lost := map[stack.TID]uint64{}
	for _, k := range r.sinks {
		if n := k.overwritten.Load(); n > 0 {
			lost[k.Thread.TID] += n
		}
	}
	if len(lost) == 0 {
		return
	}
	for i := range s.Threads {
		s.Threads[i].Overwritten += lost[s.Threads[i].TID]
	}
}
