package trace

import (
	"time"

	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
)

// Limits of the memory of rings, in events of 16 bytes.
const (
	// largeRings is how many threads have rings of DefaultRingCap from the beginning on (32 MiB),
	// and mediumRings how many more have rings of mediumRing (16 MiB). Those of all others begin
	// small (4 KiB). A ring that the drain does not keep up with doubles, up to DefaultRingCap.
	largeRings  = 256
	mediumRings = 1024
	mediumRing  = 1 << 10
	smallRing   = ringbuf.MinCap
	// mostMemory is what all rings may have together before they stop growing (128 MiB). Only
	// a deep stack, of which a ring has to hold several, makes one grow beyond that.
	mostMemory = 128 << 20 / 16
)

// ringFor is the first capacity of the ring of thread number n.
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

// grow makes the ring hold more.
func (s *Sink) grow(capacity int) {
	was := s.ring.Cap()
	s.ring = s.ring.Grow(capacity)
	s.rec.memory.Add(int64(s.ring.Cap() - was))
}

// waiting is how many events the drain has not read yet.
func (s *Sink) waiting() int { return int(s.ring.Written() - s.read.Load()) }

// makeRoom doubles the ring where there is memory for it. The drain reads the rest
// of the old one first.
func (s *Sink) makeRoom() {
	c := s.ring.Cap()
	if s.rec.ringCap > 0 || c >= DefaultRingCap || s.rec.memory.Load()+int64(c) > mostMemory {
		return
	}
	s.grow(2 * c)
}

// Full reports whether the next samples of this thread should be left out: the
// drain is so far behind that they would overwrite what it has not read. A quarter of the
// ring remains for events that cannot be left out. For the goroutine that samples the
// thread.
func (s *Sink) Full() bool {
	if s.waiting() <= s.ring.Cap()-s.ring.Cap()/4 {
		return false
	}
	s.makeRoom()
	return s.waiting() > s.ring.Cap()-s.ring.Cap()/4
}

// note has the drain read this ring.
func (s *Sink) note() {
	if s.noted.Swap(true) {
		return
	}
	for {
		s.next = s.rec.dirty.Load()
		if s.rec.dirty.CompareAndSwap(s.next, s) {
			return
		}
	}
}

// Load is how the way from the rings to the file is doing.
type Load struct {
	Bytes       int64   // written to the file
	Overwritten uint64  // events lost between ring and file
	Fill        float64 // of the fullest ring now, as a share of its size: at 1 the next event overwrites
	Peak        float64 // the most that Fill has been when rings were emptied
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

// fill is the share of the ring that the drain has not been at. rec.drainMu is held.
func (s *Sink) fill() float64 {
	waiting, size := s.cursor.Waiting()
	return min(float64(waiting)/float64(size), 1)
}

// Flush writes out everything that sinks have recorded so far. It returns the
// length of the recording, whole chunks all of it: what is before can be read
// with Open while more is written behind.
func (r *Recorder) Flush() (size int64, err error) {
	r.drain(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w.Bytes(), r.failed
}

func (r *Recorder) drainLoop() {
	defer close(r.done)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.wake:
		case <-r.stop:
			return
		}
		r.drain(false)
	}
}

// drain moves what the rings hold into chunks; all of it into the file if end
// is set, else when there is enough or it has waited long enough. Of each ring it
// moves what was there when it came to it: sinks that are at work do not hold it up.
func (r *Recorder) drain(end bool) {
	r.drainMu.Lock()
	defer r.drainMu.Unlock()
	now := time.Now()
	for s := r.dirty.Swap(nil); s != nil; {
		next := s.next
		s.noted.Store(false) // before it is read: what comes from here on notes it again
		r.empty(s, now)
		s = next
	}
	if end || now.Sub(r.swept) >= flushEvery/4 {
		r.swept = now
		r.writePending(now, end)
	}
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

// writePending writes chunks that are not full: those that have waited long enough, or
// all. Many small ones go into the file with one call.
func (r *Recorder) writePending(now time.Time, all bool) {
	const atOnce = 64
	kept := r.pending[:0]
	for i := 0; i < len(r.pending); {
		r.mu.Lock()
		r.w.hold()
		for n := 0; n < atOnce && i < len(r.pending); n++ {
			s := r.pending[i]
			i++
			if s.enc.n > 0 && !all && now.Sub(s.oldest) < flushEvery {
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

// write makes a chunk of what is encoded. Both locks are held.
func (r *Recorder) write(s *Sink) {
	r.buf = s.enc.payload(r.buf)
	r.note(r.w.chunk(chunkEvents, r.buf))
	s.enc.reset(s.Thread.Seq)
}

// addOverwritten adds to the accounts what was lost between rings and file. mu is held.
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
