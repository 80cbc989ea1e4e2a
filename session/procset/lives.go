package procset

import (
	"errors"
	"slices"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// lifetime is when a process began and ended; 0: not reported. used is its CPU time in ns at its end; 0: unknown. last is
// when the last of its threads ended so far, if its first one has.
type lifetime struct {
	born, gone, last stack.Time
	used             int64
}

// bornAs returns when a process was made, of which there is a report though it did not match then; 0: unknown.
func (s *Set) bornAs(pid int) stack.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lives[pid]; l.gone == 0 {
		return l.born
	}
	return 0
}

// lifeKey is a process that a number was given to.
type lifeKey struct {
	pid  int
	born stack.Time // as in lifetime
}

// lived notes the life of a process.
func (s *Set) lived(pid int, l lifetime) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.lives[pid]
	if !ok && len(s.lives) >= maxKin {
		clear(s.lives)
	}
	if ok && old.born != l.born && old.gone != 0 { // the number is used again before the first process was asked for
		if len(s.past) >= maxKin {
			clear(s.past)
		}
		s.past[lifeKey{pid, old.born}] = old
	}
	s.lives[pid] = l
}

// lifeOf returns the life of the process that had a number and was born then; 0: unknown, which is the newest one. The caller
// holds s.mu.
func (s *Set) lifeOf(pid int, born stack.Time) lifetime {
	l := s.lives[pid]
	if l.born == born {
		return l
	}
	if old, ok := s.past[lifeKey{pid, born}]; ok {
		return old
	}
	if born == 0 {
		return l
	}
	return lifetime{}
}

// goesOn reports whether a process goes on whose first thread has ended. One that was reported from its birth on, and has
// started no thread, does not.
func (s *Set) goesOn(k *kin) bool {
	if k.born != 0 && !k.threaded && s.lost == 0 {
		return false
	}
	start, ok := target.Continues(k.pid)
	return ok && (k.born == 0 || near(start, k.born)) && (k.began == 0 || near(start, k.began))
}

// lastLooks is how often a process without a first thread is looked at, every pollEvery, after a report that one of its
// threads ended: the kernel writes that before the thread is gone.
const lastLooks = 5

// reportWithin is more than Births.Next may hold back a report.
const reportWithin = 2 * time.Millisecond

// behead notes that a thread of a process ended, whose first thread has ended and which was seen to go on.
func (s *Set) behead(k *kin, at stack.Time) {
	s.mu.Lock()
	l := s.lives[k.pid]
	l.last, l.used = at, s.meterOf(k.pid)
	s.mu.Unlock()
	s.lived(k.pid, l)
	if k.looks = lastLooks; !k.headless {
		k.headless = true
		s.headless = append(s.headless, k)
	}
	s.changed(k.pid, target.Ended)
}

// bury ends the processes without a first thread that do not go on any more.
func (s *Set) bury() {
	s.headless = slices.DeleteFunc(s.headless, func(k *kin) bool {
		if s.kin[k.pid] != k || k.ended || !k.headless {
			return true // another process has its number, or it has exec'ed
		}
		if k.looks = max(k.looks-1, 0); s.goesOn(k) {
			return false
		}
		if k.missed.IsZero() {
			k.missed = time.Now()
		}
		if time.Since(k.missed) < reportWithin { // the report of its last thread was written before, and may not be read yet
			k.looks = max(k.looks, 1)
			return false
		}
		s.mu.Lock()
		at := s.lives[k.pid].last
		s.mu.Unlock()
		s.ended(k, at)
		return true
	})
}

// ended notes that a process has ended. Its number stays in the set until another process has it.
func (s *Set) ended(k *kin, at stack.Time) {
	k.ended = true
	s.changed(k.pid, target.Ended)
	s.lived(k.pid, lifetime{born: k.born, gone: at, used: s.counted(k)})
	s.drop(k)
	if k.stranger {
		delete(s.kin, k.pid)
	}
	if len(s.kin) > maxKin {
		s.forget(func(k *kin) bool { return k.ended })
	}
}

// outlived notes that a thread of a process ended after its first one, whose report was read when all had ended.
func (s *Set) outlived(k *kin, at stack.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lives[k.pid]; l.born == k.born && l.gone != 0 {
		l.gone = max(l.gone, at)
		s.lives[k.pid] = l
	}
}

// Gone returns when a process of the set ended, as the kernel reported it; 0: it did not. born is that of its Member. ended
// says that the process has ended: then Gone waits a little for the report.
func (s *Set) Gone(pid int, born stack.Time, ended bool) stack.Time {
	for try := 0; ; try++ {
		s.mu.Lock()
		at := s.lifeOf(pid, born).gone
		s.mu.Unlock()
		if at != 0 || !ended || s.births == nil || try == goneTries {
			return at
		}
		time.Sleep(goneEvery)
	}
}

// The report of an end is written before the end can be seen. Its reader may have to wait for a CPU.
const (
	goneTries = 10
	goneEvery = 2 * time.Millisecond
)

// young is a process whose CPU time is counted since a time.
type young struct {
	pid   int
	meter *target.Meter
	since time.Time
	exact time.Time // its Meter was adjusted
}

// Samples show CPU time up to the last one, and a process of a build that lives for 50 ms uses a tenth of its own after
// that. So a new process has a Meter. For one that lives for longer than meterFor that part is small, and the samples
// suffice: its Meter rests. At most maxMeters count at once, as each is an open file.
const (
	meterFor  = 2 * time.Second
	maxMeters = 512
	// adjustEvery is the least time between two adjustments of a Meter.
	adjustEvery = 20 * time.Millisecond
)

// count begins to count the CPU time of a process that was made at a time, if the kernel does.
func (s *Set) count(pid int, born stack.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uncount(pid)
	if s.meters == nil || len(s.young) >= maxMeters {
		return
	}
	m, err := target.OpenMeter(pid, born)
	switch {
	case errors.Is(err, target.ErrNoMeter):
		s.meters = nil
	case err == nil:
		s.meters[pid] = m
		s.young = append(s.young, young{pid, m, time.Now(), time.Now()})
	}
}

// uncount closes the Meter of a process. The caller holds s.mu.
func (s *Set) uncount(pid int) {
	if m := s.meters[pid]; m != nil {
		m.Close()
		delete(s.meters, pid)
	}
}

// rest ends the counting for processes that are not young any more, and adjusts that of the others.
func (s *Set) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.young = slices.DeleteFunc(s.young, func(y young) bool {
		counts := s.meters[y.pid] == y.meter
		if old := time.Since(y.since) > meterFor; old && counts {
			y.meter.Rest()
			return true
		}
		return !counts // it was closed
	})
	for i := range s.young {
		if y := &s.young[i]; time.Since(y.exact) > adjustEvery {
			y.meter.Adjust()
			y.exact = time.Now()
		}
	}
}

// meterOf returns the CPU time of a process up to now; 0: unknown. The caller holds s.mu.
func (s *Set) meterOf(pid int) int64 {
	m := s.meters[pid]
	if m == nil {
		return 0
	}
	ns, _ := m.Used()
	return ns
}

// counted returns the CPU time of a process that has ended; 0: unknown. One that was delivered is counted until CPU is called.
func (s *Set) counted(k *kin) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ns := s.meterOf(k.pid)
	if !k.taken {
		s.uncount(k.pid)
	}
	return ns
}

// CPU returns the CPU time, in ns, that a process of the set has used in its life up to now, or to its end; 0: unknown. born
// is that of its Member. Call it once the process is not recorded any more: it ends the counting.
func (s *Set) CPU(pid int, born stack.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lives[pid].born != born {
		return s.past[lifeKey{pid, born}].used // another process has its number now
	}
	ns := s.lives[pid].used
	if m := s.meters[pid]; m != nil {
		if now, ok := m.Used(); ok {
			ns = max(ns, now)
		}
		s.uncount(pid)
	}
	return ns
}
