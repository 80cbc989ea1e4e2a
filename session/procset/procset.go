// Package procset finds the processes of a recording of several processes: those given by
// number, those that match a name, a control group or a systemd unit, and the descendants
// of all of these, including later ones. It counts and names the processes that it cannot
// deliver. It stops and traces nothing; how a process is sampled is the caller's business.
//
// A process is identified by its number and the time at which it began, so that another
// process with the same number is never taken for it.
//
// Take, Now, Follow and Again are for one goroutine. Done, Missed and Left may be called from any.
package procset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// DefaultMax is the default of Options.Max.
const DefaultMax = 256

// Options say which processes belong to a Set, in addition to those of Take.
type Options struct {
	Match    func(*target.Found) bool // by name, control group or unit, also later ones; nil: none
	Children bool                     // the descendants of all processes of the set
	Max      int                      // processes at once; 0: DefaultMax
	Once     bool                     // only Now is called, Follow is not
	// Grace is how long a process runs its program before it is opened. Opening costs CPU time,
	// which most processes that end sooner are not worth; they are counted as missed. 0: none.
	Grace time.Duration
	// Command is the number of a command that was started for the recording and does not run
	// yet; 0: none. Without the right to observe all processes, the kernel reports only the
	// descendants of a Command.
	Command int
	// Used returns its CPU time, once it has ended, with that of the descendants that were waited
	// for; 0: unknown. nil: it is not to be compared with that of the samples.
	Used func() time.Duration
}

// Member is a process of the set.
type Member struct {
	Process *target.Process
	Parent  int        // the process that started it; 0: not in the set, or unknown
	Found   stack.Time // when it was found
	Born    stack.Time // when it was made, as the kernel reported it; 0: unknown
}

// Set finds processes.
type Set struct {
	o      Options
	births *target.Births // nil: processes are listed every pollEvery
	finder *target.Finder // nil: no Match
	seen   map[int]bool   // as in target.Newer, without births
	kin    map[int]*kin   // processes of the set, by number
	due    []*kin         // those to open, and processes to match, in no order
	wake   chan struct{}
	change func(pid int, what target.BirthKind) // see OnChange
	lost   uint64                               // reports of which the caller of OnChange knows
	young  []young                              // oldest first
	// headless are processes whose first thread has ended while others go on, or which another thread's exec made it end.
	headless []*kin

	mu     sync.Mutex // guards the fields below, and parent, name, born and taken of each kin
	at     int        // processes that were delivered and are not done, or are being opened
	left   trace.LeftOut
	lives  map[int]lifetime      // of the newest process of each number, as far as the kernel reported it
	past   map[lifeKey]lifetime  // of earlier processes whose number is used again
	meters map[int]*target.Meter // of some of them; nil: the kernel has none
}

// kin is a process that belongs to the set, or is about to be matched.
type kin struct {
	pid, parent int
	name        string
	born        stack.Time // 0: unknown
	start       uint64     // clock ticks after boot; 0: unknown
	began       stack.Time // start as a time; 0: unknown
	due         time.Time  // when to open it
	stranger    bool       // it belongs to the set only if it matches
	ended       bool
	taken       bool      // a process with this number was delivered
	threaded    bool      // it has started threads since its birth was reported
	headless    bool      // its first thread has ended, and others go on: see Set.headless
	looks       int       // how often it is looked at soon, if it is headless
	missed      time.Time // when it was found to have ended, if it is headless
}

// Times between looks.
const (
	// grace is how long a new process may exec before it is opened: opening takes longer
	// than most processes take from fork to exec, and would be wasted.
	grace = 3 * time.Millisecond
	// MostGrace is a sensible upper limit of Options.Grace.
	MostGrace = 10 * time.Millisecond
	pollEvery = 10 * time.Millisecond  // without reports by the kernel
	findEvery = 500 * time.Millisecond // for names that processes give themselves
	// maxKin limits the processes that are remembered after their end.
	maxKin = 1 << 16
)

// Reasons for a process that is not recorded.
const (
	WhyShort     = "it ended before its first sample"
	WhyNoThreads = "no sample of a selected thread"
	whyUnread    = "it cannot be opened"
)

// New returns an empty set. The caller must call Close.
func New(o Options) *Set {
	if o.Max <= 0 {
		o.Max = DefaultMax
	}
	s := &Set{o: o, kin: map[int]*kin{}, lives: map[int]lifetime{}, past: map[lifeKey]lifetime{}, meters: map[int]*target.Meter{}, wake: make(chan struct{}, 1)}
	if o.Match != nil {
		s.finder = target.NewFinder(o.Match)
	}
	if o.Once || !o.Children && o.Match == nil {
		return s
	}
	b, err := target.OpenBirths(o.Command)
	if err == nil {
		s.births, s.left.How = b, "reports of the kernel, "+b.Scope()
	} else {
		s.left.How = fmt.Sprintf("a list of all processes every %v (%v)", pollEvery, err)
		s.seen = map[int]bool{}
	}
	return s
}

// OnChange makes Follow call do for each exec and end of a process of the set, and for its threads' births and new names.
// If reports were lost, it is called for all processes as if they had exec'ed and their threads had new names. It
// returns false if they are not reported. Call it before Follow.
func (s *Set) OnChange(do func(pid int, what target.BirthKind)) bool {
	s.change = do
	return s.births != nil
}

// changed calls the function of OnChange.
func (s *Set) changed(pid int, what target.BirthKind) {
	if s.change != nil {
		s.change(pid, what)
	}
}

// Close releases what the set holds. Follow must have returned.
func (s *Set) Close() {
	if s.births != nil {
		s.births.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.meters {
		m.Close()
	}
	s.meters = nil
}

// Take adds processes that were given by number, and returns them in the same order. The caller has opened them.
func (s *Set) Take(ps ...*target.Process) []Member {
	out := make([]Member, 0, len(ps))
	for _, p := range ps {
		f := p.Facts()
		s.kin[p.PID()] = &kin{pid: p.PID(), name: f.Comm, start: f.StartTicks, began: f.StartTime, taken: true}
		if s.births != nil && p.PID() == s.o.Command {
			s.count(p.PID(), f.StartTime-bornWithin)
		}
		s.enter()
		out = append(out, Member{Process: p, Found: target.Now()})
	}
	for i := range out {
		if f, ok := target.FindOne(out[i].Process.PID()); ok {
			out[i].Parent = s.parent(&f)
			s.kin[f.PID].parent = out[i].Parent
		}
	}
	return out
}

func (s *Set) enter() {
	s.mu.Lock()
	s.at++
	s.left.Seen++
	s.mu.Unlock()
}

// Now returns the processes that match at present, and the present descendants of all
// processes of the set, oldest first. Call it before Follow.
func (s *Set) Now() ([]Member, error) {
	var out []Member
	due := slices.Clip(s.due)
	take := func(k *kin) {
		if m, ok := s.open(k); ok {
			out = append(out, m)
		}
	}
	if s.finder != nil {
		found, err := s.finder.Find(s.known)
		if err != nil {
			return nil, fmt.Errorf("list the processes: %w", err)
		}
		for i := range found {
			if k := s.add(&found[i], s.parent(&found[i])); k != nil {
				take(k)
			}
		}
	}
	if s.o.Children {
		seen := s.seen
		if seen == nil {
			seen = map[int]bool{}
		}
		all, err := target.Newer(seen)
		if err != nil {
			return nil, fmt.Errorf("list the processes: %w", err)
		}
		for _, k := range s.descendants(all) {
			take(k)
		}
	}
	s.due = due
	return out, nil
}

func (s *Set) known(pid int) bool { return s.kin[pid] != nil && !s.kin[pid].ended }

// parent returns the parent of a process that was found, 0 if that is not in the set. Parents are older, and
// come first.
func (s *Set) parent(f *target.Found) int {
	if k := s.kin[f.Parent]; k != nil && !k.ended && !k.stranger {
		return f.Parent
	}
	return 0
}

// add adds a process that was found, unless the set has it.
func (s *Set) add(f *target.Found, parent int) *kin {
	if s.known(f.PID) {
		return nil
	}
	k := &kin{pid: f.PID, parent: parent, name: f.Comm, start: f.Start, began: f.Began(), due: time.Now()}
	s.kin[k.pid] = k
	s.due = append(s.due, k)
	return k
}

// descendants adds those of all that descend from the set.
func (s *Set) descendants(all []target.Found) (out []*kin) {
	for more := true; more; {
		more = false
		for i := range all {
			if f := &all[i]; s.known(f.Parent) {
				if k := s.add(f, f.Parent); k != nil {
					out, more = append(out, k), true
				}
			}
		}
	}
	return out
}

// Follow calls join for each process that belongs to the set from now on, from goroutines
// of its own. It returns when ctx ends, or when the set is empty and nothing can join it
// any more: processes that match may always come.
func (s *Set) Follow(ctx context.Context, join func(Member)) {
	stop := context.AfterFunc(ctx, s.rouse)
	defer stop()
	var opening sync.WaitGroup
	defer opening.Wait()
	look := time.Now().Add(findEvery)
	for ctx.Err() == nil {
		s.rest()
		s.bury()
		s.mu.Lock()
		idle := s.at == 0 && len(s.due) == 0 && s.finder == nil
		s.mu.Unlock()
		s.next(s.pause(idle, look))
		if s.seen != nil && s.o.Children {
			if all, err := target.Newer(s.seen); err == nil {
				s.descendants(all)
				s.forget(func(k *kin) bool { return !s.seen[k.pid] })
			}
		}
		if s.finder != nil && !time.Now().Before(look) {
			if found, err := s.finder.Find(s.known); err == nil {
				for i := range found {
					s.add(&found[i], s.parent(&found[i]))
				}
			}
			look = time.Now().Add(findEvery)
		}
		for _, k := range s.ready() {
			opening.Go(func() {
				if m, ok := s.open(k); ok {
					join(m)
				}
			})
		}
		if idle && len(s.due) == 0 && s.empty() && (s.births == nil || !s.births.Held()) {
			return
		}
	}
}

func (s *Set) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at == 0
}

// pause returns how long the next look may wait.
func (s *Set) pause(idle bool, look time.Time) time.Duration {
	if idle {
		return 0
	}
	wait := findEvery
	if s.seen != nil && s.o.Children {
		wait = pollEvery
	}
	if s.finder != nil {
		wait = min(wait, time.Until(look))
	}
	for _, k := range s.due {
		wait = min(wait, time.Until(k.due))
	}
	if slices.ContainsFunc(s.headless, func(k *kin) bool { return k.looks > 0 }) {
		wait = min(wait, pollEvery)
	}
	return max(wait, 0)
}

// next waits for reports and applies them.
func (s *Set) next(wait time.Duration) {
	if s.births == nil {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.wake:
		}
		return
	}
	for _, b := range s.births.Next(wait) {
		s.apply(&b)
	}
	if lost := s.births.Lost(); lost != s.lost {
		s.lost = lost
		for pid, k := range s.kin {
			if !k.ended {
				s.changed(pid, target.Execed)
				s.changed(pid, target.Renamed)
			}
		}
	}
}

// rouse ends the wait of next.
func (s *Set) rouse() {
	if s.births != nil {
		s.births.Wake()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Set) apply(b *target.Birth) {
	k := s.kin[b.PID]
	switch b.Kind {
	case target.Born:
		if k != nil && k.listedBefore(b) {
			s.mu.Lock()
			if k.born = b.At; k.parent == 0 && s.kin[b.Parent] != nil {
				k.parent = b.Parent
			}
			s.mu.Unlock()
			s.lived(k.pid, lifetime{born: b.At})
			return
		}
		if k != nil {
			delete(s.kin, b.PID) // another process has its number now
			s.drop(k)
		}
		parent := s.kin[b.Parent]
		belongs := s.o.Children && parent != nil && !parent.stranger
		if !belongs && s.finder == nil {
			return
		}
		k = &kin{pid: b.PID, born: b.At, due: after(b, max(grace, s.o.Grace)), stranger: !belongs}
		if parent != nil {
			k.parent, k.name = parent.pid, parent.name
		}
		s.kin[k.pid] = k
		s.due = append(s.due, k)
		s.lived(k.pid, lifetime{born: b.At})
		if belongs {
			s.count(k.pid, b.At)
		}
	case target.Execed:
		switch {
		case k != nil:
			s.mu.Lock()
			k.name = b.Comm
			s.mu.Unlock()
			k.due, k.threaded, k.headless = after(b, s.o.Grace), false, false
			s.changed(k.pid, b.Kind)
		case s.finder != nil:
			k = &kin{pid: b.PID, born: s.bornAs(b.PID), name: b.Comm, due: after(b, s.o.Grace), stranger: true}
			s.kin[k.pid] = k
			s.due = append(s.due, k)
		}
	case target.Ended:
		if k == nil {
			return
		}
		if s.goesOn(k) {
			s.behead(k, b.At)
			return
		}
		s.ended(k, b.At)
	case target.Unthreaded:
		switch {
		case k == nil:
		case k.headless:
			s.behead(k, b.At)
		case k.ended:
			s.outlived(k, b.At)
		}
	case target.Threaded, target.Renamed:
		if k != nil {
			k.threaded = k.threaded || b.Kind == target.Threaded
		}
		if k != nil && !k.stranger {
			s.changed(k.pid, b.Kind)
		}
	}
}

// after returns the moment that is that time after a report's event.
func after(b *target.Birth, d time.Duration) time.Time {
	return time.Now().Add(d - time.Duration(target.Now()-b.At))
}

// listedBefore reports whether a report is of the birth of k, which a list of processes showed before the report was
// read.
func (k *kin) listedBefore(b *target.Birth) bool {
	return !k.ended && k.born == 0 && k.began != 0 && near(k.began, b.At)
}

// drop removes a process that ended before it was opened.
func (s *Set) drop(k *kin) {
	if i := slices.Index(s.due, k); i >= 0 {
		s.due = slices.Delete(s.due, i, i+1)
		if !k.stranger {
			s.mu.Lock()
			s.left.Seen++
			s.mu.Unlock()
			s.Missed(k.pid, k.parent, k.name, WhyShort, k.born)
		}
	}
}

func (s *Set) forget(is func(*kin) bool) {
	for pid, k := range s.kin {
		if is(k) {
			s.drop(k)
			delete(s.kin, pid)
		}
	}
}

// ready removes those to open now from due. Strangers that do not match are left out.
func (s *Set) ready() (out []*kin) {
	now := time.Now()
	s.due = slices.DeleteFunc(s.due, func(k *kin) bool {
		if k.due.After(now) {
			return false
		}
		if k.stranger {
			f, ok := target.FindOne(k.pid)
			if !ok || !s.o.Match(&f) {
				delete(s.kin, k.pid)
				return true
			}
			k.stranger, k.name, k.start, k.parent = false, f.Comm, f.Start, cmp.Or(k.parent, s.parent(&f))
		}
		out = append(out, k)
		return true
	})
	return out
}

// bornWithin is the tolerance of a process's start time: it is in clock ticks of 10 ms, and
// counted by another clock than the kernel's reports.
const bornWithin = 30_000_000

// near reports whether a start time may be that of a reported birth.
func near(start, born stack.Time) bool { return start >= born-bornWithin && start <= born+bornWithin }

// is reports whether p, which has the number of k, is that process, born as reported; 0: unknown.
func (k *kin) is(p *target.Process, born stack.Time) bool {
	f := p.Facts()
	return (k.start == 0 || f.StartTicks == k.start) && (born == 0 || near(f.StartTime, born))
}

// open opens a process, or counts it as left out.
func (s *Set) open(k *kin) (m Member, ok bool) {
	s.enter()
	s.mu.Lock()
	over, name, parent, born := s.at > s.o.Max, k.name, k.parent, k.born
	s.mu.Unlock()
	leave := func(why string) (Member, bool) {
		s.Missed(k.pid, parent, name, why, born)
		s.Done()
		return Member{}, false
	}
	if over {
		return leave(fmt.Sprintf("over the limit of %d at once (--max-processes)", s.o.Max))
	}
	p, err := target.Open(k.pid)
	if err != nil {
		var r *target.Refusal
		switch {
		case !target.Alive(k.pid):
			return leave(WhyShort)
		case errors.As(err, &r) && (r.Reason == target.NoProcess || r.Reason == target.Zombie):
			return leave(WhyShort)
		case errors.As(err, &r):
			return leave(r.Reason.String())
		}
		return leave(whyUnread)
	}
	if !k.is(p, born) {
		p.Close()
		return leave(WhyShort) // another process has its number
	}
	s.mu.Lock()
	k.taken = true
	s.mu.Unlock()
	return Member{Process: p, Parent: parent, Found: target.Now(), Born: born}, true
}

// Done says that a process of the set has ended, or is not recorded any more: its place is
// free.
func (s *Set) Done() {
	s.mu.Lock()
	s.at--
	s.mu.Unlock()
	s.rouse()
}

// Missed counts a process of the set that is not recorded. born is that of its Member.
func (s *Set) Missed(pid, parent int, name, why string, born stack.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left.Count++
	if len(s.left.Processes) < trace.MaxLeft {
		l := s.lifeOf(pid, born)
		s.left.Processes = append(s.left.Processes, trace.LeftProcess{PID: pid, Parent: parent, Name: name, Why: why, Born: l.born, Gone: l.gone, CPU: l.used})
	}
}

// Left returns the processes that are left out so far.
//
// The CPU times are not in it: see Used.
func (s *Set) Left() trace.LeftOut {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.left
	l.Processes = slices.Clone(l.Processes)
	for i := range l.Processes { // the report of an end may come after the attempt to open
		if p := &l.Processes[i]; p.Gone == 0 && p.Born != 0 {
			of := s.lifeOf(p.PID, p.Born)
			p.Gone, p.CPU = of.gone, of.used
		}
	}
	if s.births != nil {
		l.Lost = s.births.Lost()
	}
	return l
}

// Used is Options.Used; 0 without it.
func (s *Set) Used() time.Duration {
	if s.o.Used == nil {
		return 0
	}
	return s.o.Used()
}
