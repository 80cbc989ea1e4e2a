package sampler

import (
	"context"
	"slices"
	"time"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/stack"
)

// followEvery returns how soon a new thread is noticed: one interval, limited to 20 … 200 ms.
func (s *Sampler) followEvery() time.Duration {
	return min(max(s.Interval(), 20*time.Millisecond), mostFollow)
}

const mostFollow = 200 * time.Millisecond

// A list of thousands of threads takes the kernel some ms. The target's Stamp costs less than a hundredth of that, and
// shows most changes. So the list is read when the stamp changes, and otherwise seldom, by full checks. These find a
// thread that began as another one ended, and new names.
const (
	// restFor is how many periods of followEvery are about the time between two full checks.
	restFor = 10
	// listShare bounds the time for full checks that find nothing new, as a divisor of the time.
	listShare = 100
	// mostList limits the time between two full checks. On a busy machine, a check may take long.
	mostList = 2 * time.Second
)

// follower is the state of follow.
type follower struct {
	s            *Sampler
	tids, before []stack.TID
	was          *Selection
	known        roster
	picked       int       // number of selected threads of the last update
	listed       time.Time // time of the last list
	whole        time.Time // time of the last full check
	cost         time.Duration
	awake        uint64
	stamp        uint64
	// turns is not 0 after a list that differs from the one before though the stamp does not: threads begin as others end. The
	// next full check is this many periods of followEvery later; it doubles with each that finds nothing, up to restFor.
	turns int
}

// follow takes up new threads until ctx or the target ends. It sleeps while a group that is awake
// anyway watches for changes.
func (s *Sampler) follow(ctx context.Context) error {
	f := follower{s: s, known: roster{clock: s.hooks.now}}
	for due := true; ; {
		every := s.followEvery()
		n := s.awakes()
		ran := n != f.awake
		if f.awake = n; !ran {
			every = max(every, s.idleFollow())
		}
		if !f.list(due) {
			return nil
		}
		if s.checkExec() { // its thread has another name
			f.known.next, due = time.Time{}, true
			continue
		}
		if s.cfg.Yield {
			s.ctl.yielded.Store(s.target.Traced())
		}
		var ok bool
		if s.list.reported.Load() && !s.cfg.Yield {
			due, ok = f.restReported(ctx, every, ran)
		} else {
			due, ok = f.rest(ctx, every)
		}
		if !ok {
			return nil
		}
	}
}

// list reads the list of threads and takes up new ones. due: it is a full check. It returns false if the target has
// ended.
func (f *follower) list(due bool) bool {
	s := f.s
	begin := s.hooks.now()
	s.list.looked.Store(int64(s.target.Now()))
	stamp, err := s.target.Stamp()
	if err == nil {
		s.list.stamp.Store(stamp) // read before the list, so that later changes are noticed
	}
	f.tids, err = s.target.Threads(f.tids)
	if err != nil || len(f.tids) == 0 {
		return false
	}
	s.tellNames()
	// A process that has ended keeps its first thread until its parent reaps it.
	if (due || len(f.tids) == 1) && !s.target.Alive() {
		return false
	}
	f.listed = begin
	if due {
		f.whole = begin
	}
	same := slices.Equal(f.tids, f.before)
	f.turn(stamp, same, due)
	if sel := s.ctl.chosen.Load(); due || sel != f.was || !same {
		if !same || sel != f.was || !f.known.idle(due) || s.Threads() != f.picked {
			f.picked = s.updateAll(&f.known, f.tids, due)
			f.was, f.before = sel, append(f.before[:0], f.tids...)
			if f.known.reads > 0 { // it has bounds of its own
				return true
			}
		}
		if same {
			f.cost = s.hooks.now().Sub(begin)
		}
	}
	return true
}

// turn notes how a list compares with the one before.
func (f *follower) turn(stamp uint64, same, due bool) {
	switch {
	case !same && stamp == f.stamp && len(f.before) > 0:
		f.turns = 1
	case same && due:
		if f.turns *= 2; f.turns > restFor {
			f.turns = 0
		}
	}
	f.stamp = stamp
}

// rest waits until the list of threads should be read: when the stamp changes, which groups that are awake report, or
// for a full check (due). ok is false if ctx has ended.
func (f *follower) rest(ctx context.Context, every time.Duration) (due, ok bool) {
	s := f.s
	full := min(max((restFor-2)*every, listShare*f.cost), max(mostList, (restFor-2)*every))
	if f.turns > 0 {
		full = min(full, max(time.Duration(f.turns)*every, listShare*f.cost))
	}
	watched, seen := false, s.list.peeks.Load()
	for {
		wait := every/4 + background.Until(every)
		if every == mostFollow { // peeks are farther apart than a part of that
			wait += min(s.Interval(), time.Second)
		}
		if watched {
			wait = (restFor-2)*every + background.Until(every)
		}
		if f.turns > 0 {
			wait = min(wait, full)
		}
		poked, ok := s.hooks.wait(ctx, s.list.poke, wait)
		now := s.hooks.now()
		due = now.Sub(f.whole) >= full
		if !ok || poked || s.cfg.Yield || now.Sub(f.listed) >= full {
			return due, ok
		}
		n := s.list.peeks.Load()
		watched, seen = n != seen || s.list.away.Load() > 0, n
		if !watched {
			if stamp, err := s.target.Stamp(); err != nil || stamp != s.list.stamp.Load() {
				return due, true
			}
		}
	}
}

// waitPoked waits for that time or until it is poked. ok is false if ctx has ended.
func waitPoked(ctx context.Context, poke <-chan struct{}, wait time.Duration) (poked, ok bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-poke:
		return true, true
	case <-t.C:
		return false, true
	}
}

// peek is called by groups between two rounds. From time to time it checks whether the list of
// threads has to be read.
func (s *Sampler) peek(now stack.Time) {
	s.govern(now)
	s.cfg.Limit.check(s, now)
	if s.list.reported.Load() {
		return
	}
	last := s.list.peeked.Load()
	if int64(now)-last < int64(s.followEvery())*3/4 || !s.list.peeked.CompareAndSwap(last, int64(now)) {
		return
	}
	s.list.peeks.Add(1)
	if stamp, err := s.target.Stamp(); err != nil || stamp != s.list.stamp.Load() {
		s.look()
	}
}

// Look makes the Sampler read soon which threads there are, and whether the target has become another program. It
// may be called from any goroutine.
func (s *Sampler) Look() { s.look() }

// look requests a reading of the list of threads.
func (s *Sampler) look() {
	select {
	case s.list.poke <- struct{}{}:
	default: // already requested
	}
}

// update takes up new selected threads of tids and records changed names. It returns how many are selected. tids are all
// threads of the target, or a part of them if all are selected.
func (s *Sampler) update(r *roster, tids []stack.TID, due, part bool) int {
	s.tellNames() // before another thread has the number of one that ended
	begin := s.target.Now()
	list := r.list
	if part {
		list = r.part
	}
	picked := s.ctl.chosen.Load().Pick(list(s.target, tids, due, s.over))
	if s.over() {
		s.leave(r, tids)
		return len(picked)
	}
	if !part {
		s.release(picked)
	}
	var woken wakeups
	defer woken.flush()
	for _, in := range picked {
		if s.over() {
			s.leave(r, tids)
			break
		}
		s.roll.mu.Lock()
		th := s.roll.threads[in.TID]
		s.roll.mu.Unlock()
		if r.fresh(in.TID) || th == nil {
			s.listed(th, &in, begin)
		}
		if th == nil && r.taken(s.target, &in) {
			woken.add(s.add(in))
		}
	}
	return len(picked)
}

// wakeEach is for how many new threads groups are woken once, apart from the first one: to wake takes about as long as to
// look at some threads, and to take up 16 of them less than a millisecond.
const wakeEach = 16

// wakeups are the groups that have to wake for new threads.
type wakeups struct {
	groups []*group
	n      int // threads added
}

// add wakes the group of a new thread, soon; nil: there is none.
func (w *wakeups) add(g *group) {
	if g == nil {
		return
	}
	if !slices.Contains(w.groups, g) {
		w.groups = append(w.groups, g)
	}
	if w.n++; w.n == 1 || w.n%wakeEach == 0 {
		w.flush()
	}
}

func (w *wakeups) flush() {
	for _, g := range w.groups {
		g.wake()
	}
	w.groups = w.groups[:0]
}

// updateEach is how many threads are read before the selected ones among them are taken up.
const updateEach = 256

// updateAll calls update, in parts if very many threads are new and all are selected. Reading
// thousands takes a while, on a busy machine seconds, during which the first ones can be sampled.
func (s *Sampler) updateAll(r *roster, tids []stack.TID, due bool) int {
	s.refused.listed(tids)
	r.refused = s.refused.note
	if s.ctl.chosen.Load().All() && len(tids) > updateEach && r.unread(tids) > updateEach {
		took := r.took
		s.doze.taking.Store(true)
		defer s.doze.taking.Store(false)
		for part := range slices.Chunk(tids, updateEach) {
			if s.over() {
				break
			}
			s.update(r, part, false, true)
		}
		r.rests(r.took-took, true, true)
	}
	return s.update(r, tids, due, false)
}
