package sampler

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// followed is a target whose list takes a while, on a clock of its own that jumps over waits.
type followed struct {
	fakeTarget
	t        *testing.T
	s        *Sampler
	clock    time.Time
	cost     time.Duration // of one list
	links    uint64
	lists    []time.Duration // when the list was read, since the start
	stamps   int
	reads    map[stack.TID]int
	born     stack.Time
	image    uint64
	named    []string // new names
	execs    int      // that were reported
	created  func()   // is called after New; may be nil
	waits    int
	between  func(f *followed) (more bool) // is called after each wait
	reported bool                          // see LivesReported
}

var followStart = time.Unix(1000, 0)

func (f *followed) Threads(buf []stack.TID) ([]stack.TID, error) {
	f.lists = append(f.lists, f.clock.Sub(followStart))
	f.clock = f.clock.Add(f.cost)
	buf = buf[:0]
	for _, t := range f.threads {
		buf = append(buf, t.tid)
	}
	return buf, nil
}

func (f *followed) Stamp() (uint64, error) {
	f.stamps++
	return f.links, nil
}

// Now is the time since followStart.
func (f *followed) Now() stack.Time { return stack.Time(f.clock.Sub(followStart)) }

func (f *followed) Image() (uint64, error) { return f.image, nil }

func (f *followed) Info(tid stack.TID) (stack.ThreadInfo, error) {
	f.clock = f.clock.Add(time.Millisecond)
	in, err := f.fakeTarget.Info(tid)
	in.Born = f.born
	f.reads[tid]++
	return in, err
}

func (f *followed) wait(_ context.Context, poke <-chan struct{}, wait time.Duration) (poked, ok bool) {
	select {
	case <-poke:
		poked = true
	default:
		f.clock = f.clock.Add(wait)
	}
	f.waits++
	return poked, f.between(f)
}

// run calls follow until between returns false.
func (f *followed) run() {
	f.t.Helper()
	s, err := New(f, Config{Groups: 1, Start: func(stack.ThreadInfo) Sink { return &memorySink{} },
		Renamed: func(in stack.ThreadInfo, _ stack.Time) { f.named = append(f.named, in.Name) },
		Exec:    func(stack.Time) { f.execs++ }})
	if err != nil {
		f.t.Fatal(err)
	}
	if f.created != nil {
		f.created()
	}
	f.s, f.clock = s, followStart
	if f.reported {
		s.LivesReported()
	}
	s.hooks.now, s.hooks.wait = func() time.Time { return f.clock }, f.wait
	s.hooks.begin = func(*group) error { return nil }
	if err := s.follow(context.Background()); err != nil {
		f.t.Fatal(err)
	}
}

func newFollowed(t *testing.T) *followed {
	return &followed{t: t, image: 1, reads: map[stack.TID]int{}, fakeTarget: fakeTarget{threads: []*fakeThread{blocked(1), blocked(2)}}}
}

// While no group looks for changes, follow asks for the stamp in each period, and lists the threads only when that
// changed or for a full check.
func TestFollowByStamp(t *testing.T) {
	const periods, period = 100, 20 * time.Millisecond
	f := newFollowed(t)
	f.between = func(f *followed) bool { return f.clock.Before(followStart.Add(periods * period)) }
	f.run()
	if n := len(f.lists); n < periods/(restFor+1) || n > periods/(restFor-2)+1 {
		t.Errorf("%d lists in %d periods", n, periods)
	}
	if f.stamps < periods*4/5 { // a wait takes up to 5/4 of a period
		t.Errorf("the stamp was read %d times in %d periods", f.stamps, periods)
	}

	f = newFollowed(t)
	var taken []int
	f.between = func(f *followed) bool {
		switch f.waits {
		case 13, 14, 15:
			taken = append(taken, len(f.lists))
		}
		if f.waits == 13 { // a thread begins
			f.threads = append(f.threads, blocked(3))
			f.links++
		}
		return f.waits < 16
	}
	f.run()
	if taken[1] != taken[0]+1 || f.s.Threads() != 3 {
		t.Errorf("lists before the change and after the next waits: %d; %d threads are sampled", taken, f.s.Threads())
	}
}

// A thread that begins as another one ends does not change the stamp; the next full check finds it.
func TestFollowEqualStamp(t *testing.T) {
	f := newFollowed(t)
	f.between = func(f *followed) bool {
		if f.waits == 2 && len(f.lists) == 1 {
			f.threads[1] = blocked(7)
		}
		return f.clock.Before(followStart.Add((restFor + 3) * 20 * time.Millisecond))
	}
	f.run()
	f.s.roll.mu.Lock()
	defer f.s.roll.mu.Unlock()
	if f.s.roll.threads[7] == nil {
		t.Errorf("not found by %d lists", len(f.lists))
	}
}

// TestFollowTurns: where threads keep beginning as others end, full checks are a period apart, and as seldom as before when
// that is over.
func TestFollowTurns(t *testing.T) {
	const period = 20 * time.Millisecond
	f := newFollowed(t)
	const busy, calm = 2 * time.Second, 4 * time.Second
	f.between = func(f *followed) bool {
		if at := f.clock.Sub(followStart); at < busy {
			f.threads[1] = blocked(stack.TID(100 + at/(30*time.Millisecond))) // each lives for 30 ms
		}
		return f.clock.Before(followStart.Add(calm))
	}
	f.run()
	count := func(from, to time.Duration) (n int) {
		for _, at := range f.lists {
			if at >= from && at < to {
				n++
			}
		}
		return n
	}
	if n := count(busy/2, busy); n < int(busy/2/period)*2/5 { // a wait takes up to 5/4 of a period; full checks alone: 6
		t.Errorf("%d lists in %v while threads begin and end", n, busy/2)
	}
	if n := count(busy+time.Second, calm); n > int((calm-busy-time.Second)/period)/(restFor-2)+1 {
		t.Errorf("%d lists in %v when that is over", n, calm-busy-time.Second)
	}
	f.s.roll.mu.Lock()
	defer f.s.roll.mu.Unlock()
	if n := len(f.s.roll.threads); n < 30 { // with full checks alone it would be 15
		t.Errorf("%d threads were found, of 67", n)
	}
}

// Full checks take a bounded share of the time, or are mostList apart, and a change is noticed as soon as with few
// threads.
func TestFollowShare(t *testing.T) {
	for _, cost := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond} {
		f := newFollowed(t)
		f.cost = cost
		f.between = func(f *followed) bool { return f.clock.Before(followStart.Add(20 * time.Second)) }
		f.run()
		least := min(max(listShare*cost, 8*20*time.Millisecond), mostList)
		late := slices.IndexFunc(f.lists, func(at time.Duration) bool { return at > 3*time.Second }) // the first lists read names
		for i := late + 1; i < len(f.lists); i++ {
			if apart := f.lists[i] - f.lists[i-1]; apart < least || apart > least+cost+50*time.Millisecond {
				t.Errorf("a list that takes %v was read %v after the last one, want %v", cost, apart, least)
			}
		}
		if late < 0 || len(f.lists) < late+5 {
			t.Errorf("lists at %v", f.lists)
		}
	}
}

// A list of known threads reads none of them, unless their names have not been read often enough.
func TestRosterIdle(t *testing.T) {
	f := newFollowed(t)
	r := roster{clock: func() time.Time { return f.clock }}
	over := func() bool { return false }
	for i := range youth {
		r.list(f, []stack.TID{1, 2}, true, over)
		f.clock = f.clock.Add(1)
		if r.next = f.clock.Add(time.Hour); r.idle(true) != (i == youth-1) || !r.idle(false) {
			t.Errorf("after %d lists: idle %v, %v", i+1, r.idle(true), r.idle(false))
		}
	}
	if r.list(f, []stack.TID{1, 2, 3}, true, over); r.idle(true) {
		t.Error("a list with a new thread is idle")
	}
}

// The names of thousands of threads are read when these are taken up, and then as a share of the time allows: if they
// are old, only once more soon.
func TestRosterMany(t *testing.T) {
	for _, c := range []struct {
		born        stack.Time
		least, most int // readings of a thread in the first 140 s
	}{{0, 3, youth}, {-oldFor, grown, grown}} {
		f := newFollowed(t)
		f.threads, f.born = nil, c.born
		for i := range 3 * updateEach {
			f.threads = append(f.threads, blocked(stack.TID(i+1)))
		}
		f.between = func(f *followed) bool { // a reading takes 0.8 s
			since := f.clock.Sub(followStart)
			for tid, n := range f.reads {
				if since < 30*time.Second && n != 1 {
					t.Fatalf("thread %d was read %d times in %v", tid, n, since)
				}
			}
			return since < 140*time.Second
		}
		f.run()
		for tid, n := range f.reads {
			if n < c.least || n > c.most {
				t.Fatalf("born at %d: thread %d was read %d times, want %d to %d", c.born, tid, n, c.least, c.most)
			}
		}
		if f.s.Threads() != len(f.threads) {
			t.Errorf("%d of %d threads are sampled", f.s.Threads(), len(f.threads))
		}
	}
}

// The name of the new program is read at once, whenever the names were last read.
func TestFollowExec(t *testing.T) {
	f := newFollowed(t)
	name := "before"
	f.name = func(stack.TID) string { return name }
	f.cost = 50 * time.Millisecond // full checks are seconds apart
	var early, late int
	f.between = func(f *followed) bool {
		switch f.waits {
		case 30:
			f.threads, f.image, name = f.threads[:1], 2, "after"
			f.links++
			early = len(f.named)
		case 31:
			late = len(f.named)
		}
		return f.waits < 31
	}
	f.run()
	if late != early+1 || f.named[early] != "after" {
		t.Errorf("names %q, %d before the exec", f.named, early)
	}
}

// An exec between New and the first list is reported.
func TestFollowExecBefore(t *testing.T) {
	f := newFollowed(t)
	f.between = func(*followed) bool { return false }
	f.created = func() { f.image = 2 }
	f.run()
	if f.execs != 1 {
		t.Errorf("%d execs are reported", f.execs)
	}
}
