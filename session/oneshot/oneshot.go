// Package oneshot samples processes once: the stack of each thread with names and
// lines, its wait and its holder, deadlocks and convoys. It connects sampler, wait and
// symbol to a live process; package stacks formats the result. Take may be called by
// several goroutines at once, for different processes.
package oneshot

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/graph"
	"github.com/sliverprof/sliver/wait/kind"
)

// Options configure Take.
type Options struct {
	Selection *sampler.Selection // threads whose stacks are shown; nil: all
	DebugDirs []string           // additional folders of separate debug files
	FullNames bool               // keep parameters and template arguments
	Finder    symbol.Finder      // finds debug files that are not on disk; nil: none
	Cache     *cache.Dir         // of names; nil: none
	Routines  bool               // include the goroutines of Go programs
	Convoy    int                // waiters that make a convoy; 0: graph.DefaultConvoy
	// Urgent looks at the threads with a higher priority, if permitted. The looks of thousands of
	// threads are one after another and take a second of CPU time. Beside other work that was half a
	// minute, in which the threads went on.
	Urgent bool
}

// NoThreadsError reports that the selection matches no thread of a process.
type NoThreadsError struct{ Process *target.Process }

func (e *NoThreadsError) Error() string {
	return fmt.Sprintf("no thread of process %d is selected", e.Process.PID())
}

// Take samples each thread of procs once, and returns a Snapshot of each process, in
// their order. It stops a thread for at most one sample, and only if the thread runs or
// its stack cannot be read otherwise. Threads that are not selected are sampled without
// a stop and without their stacks, only for deadlocks and convoys. Deadlocks may span
// procs through shared locks. problems has one line for each cause of missing names.
//
// Errors are a *NoThreadsError, a *NoGoError and those of package target.
func Take(procs []*target.Process, o Options) (snaps []*stacks.Snapshot, problems []string, err error) {
	views := make([]*view, len(procs))
	defer func() {
		for _, v := range views {
			if v != nil {
				v.close()
			}
		}
	}()
	for i, p := range procs {
		if views[i], err = open(p, &o); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range views {
		if err := onItsOwn(o.Urgent, func() error { return v.look(o.Selection) }); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range views {
		if o.Routines {
			if err := v.census(); err != nil {
				return nil, nil, err
			}
		}
		maps := v.t.Maps()
		for _, e := range v.eyes {
			v.names.ask(maps, e.frames)
		}
		for _, r := range v.routines {
			v.names.ask(maps, r.frames)
			v.names.ask(maps, r.birth)
		}
		problems = append(problems, append(v.lacks, v.doubts()...)...)
		problems = append(problems, v.names.resolve()...)
		v.again()
	}
	for _, v := range views {
		snaps = append(snaps, v.snapshot(views, o.Convoy))
	}
	return snaps, problems, nil
}

// view is one sampled process.
type view struct {
	p     *target.Process
	t     *live.Target
	w     *live.Proc
	r     *wait.Resolver
	names *names
	vars  *live.Variables
	at    time.Time
	eyes  []*eye              // by TID
	own   map[int32]string    // names that a runtime gives to threads, by NSTID
	tids  map[int32]stack.TID // by NSTID
	lacks []string            // data of the process that cannot be read

	routines []*routine // by ID
	unread   int        // number of unreadable goroutines
}

// eye is one thread.
type eye struct {
	info   stack.ThreadInfo
	chosen bool
	file   sampler.Thread // nil: the thread could not be opened, or is not needed any more
	sampler.Glance
	frames []stack.Frame
	reason stack.Reason
	cpu    int64
	asleep bool // stopped in the call of its Glance, to which it returns
	thread *wait.Thread
	wait   *wait.Info
}

func open(p *target.Process, o *Options) (*view, error) {
	v := &view{p: p}
	var err error
	if v.t, err = live.New(p, nil); err != nil {
		return nil, err
	}
	if v.w, err = live.OpenProc(p); err != nil {
		return nil, err
	}
	v.vars = v.t.Variables(o.DebugDirs)
	v.names = newNames(p, v.t, o)
	c := v.w.Config(v.vars.Lookup)
	v.t.Locks(&c)
	v.r = wait.New(c)
	// A runtime whose stacks continue elsewhere must be known before the first thread
	// is stopped.
	v.t.Preload()
	v.follow()
	return v, nil
}

func (v *view) close() {
	for _, e := range v.eyes {
		e.shut()
	}
	v.w.Close()
	v.vars.Close()
	v.names.close()
}

func (e *eye) shut() {
	if e.file != nil {
		e.file.Close()
		e.file = nil
	}
}

// onItsOwn runs f on a new OS thread that ends with f: ptrace requires one, and leaves
// it with another signal mask.
func onItsOwn(urgent bool, f func() error) (err error) {
	if urgent {
		background.Raised(func() { err = f() })
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// look samples all threads, and resolves each wait right after its sample.
func (v *view) look(sel *sampler.Selection) error {
	once, err := sampler.NewOnce(v.t, sampler.Config{Stop: sampler.StopAuto, Harmless: live.Harmless})
	if err != nil {
		return err
	}
	defer once.Close()
	tids, err := v.t.Threads(nil)
	if err != nil {
		return err
	}
	var infos []stack.ThreadInfo
	for _, tid := range tids {
		if in, err := v.t.Info(tid); err == nil && in.State != stack.StateDead {
			infos = append(infos, in)
		}
	}
	v.tids = make(map[int32]stack.TID, len(infos))
	for i := range infos {
		v.tids[own(&infos[i])] = infos[i].TID
	}
	v.own = v.t.ThreadNames()
	if len(infos) == 0 {
		return fmt.Errorf("process %d: %w", v.p.PID(), target.ErrGone)
	}
	chosen := map[stack.TID]bool{}
	if sel != nil {
		for _, in := range sel.Pick(infos) {
			chosen[in.TID] = true
		}
		if len(chosen) == 0 {
			return &NoThreadsError{v.p}
		}
	}
	v.at = time.Now()
	for i := range infos {
		e := &eye{info: infos[i], chosen: sel == nil || chosen[infos[i].TID], cpu: -1}
		if gone := v.see(once, e); gone {
			e.shut()
			continue
		}
		v.eyes = append(v.eyes, e)
	}
	slices.SortFunc(v.eyes, func(a, b *eye) int { return int(a.info.TID) - int(b.info.TID) })
	v.settle(once)
	return nil
}

// own returns a thread's TID in its process's namespace.
func own(in *stack.ThreadInfo) int32 {
	if in.NSTID != 0 {
		return int32(in.NSTID)
	}
	return int32(in.TID)
}

// tries is how often a thread that runs during the read of its wait is sampled.
const tries = 3

// entryTries is how often a thread that enters a monitor and is awake is sampled, entryRest ns
// apart. One of the threads that wait for a monitor of HotSpot's wakes from time to time to check
// whether it was forgotten (ObjectMonitor::_Responsible, up to 22), and all spin before they sleep.
// Reported as running, such a thread would be missing in a deadlock.
const entryTries, entryRest = 10, 1_000_000

// see samples one thread. gone: it has ended.
func (v *view) see(once *sampler.Once, e *eye) (gone bool) {
	var err error
	if e.file, err = v.t.Open(&e.info); err != nil {
		e.reason = stack.ReasonEmpty
		e.Glance = sampler.Glance{State: e.info.State, Call: stack.Call{Nr: -1}}
		return errors.Is(err, sampler.ErrGone)
	}
	for try := 1; ; try++ {
		if e.chosen {
			err = v.sample(once, e)
		} else {
			e.Glance, _, err = once.Peek(e.file)
		}
		if errors.Is(err, sampler.ErrGone) {
			return true
		}
		if err != nil {
			e.failed()
			return false
		}
		if e.asleep {
			break
		}
		if try < entryTries && v.entering(e) {
			once.Rest(entryRest)
			continue
		}
		if v.waits(e, nil) || try >= tries {
			break
		}
	}
	if !e.asleep && (e.wait == nil || e.wait.Lock == nil) {
		e.shut() // not needed any more
	}
	return false
}

// entering reports whether e is awake and enters a monitor of Java's that a thread holds.
func (v *view) entering(e *eye) bool {
	if e.State != stack.StateRunning && e.State != stack.StateRunnable {
		return false
	}
	m, ok := v.t.Monitor(own(&e.info))
	return ok && m.Kind == kind.LockMonitor && m.Locked
}

// failed marks a thread of which only the state is readable.
func (e *eye) failed() {
	e.reason = stack.ReasonEmpty
	e.Glance = sampler.Glance{State: stack.StateUnknown, Call: stack.Call{Nr: -1}}
	if st, err := e.file.State(); err == nil {
		e.State = st
	}
	e.shut()
}

func (v *view) sample(once *sampler.Once, e *eye) error {
	g, err := whole(func() (sampler.Glance, error) { return once.Look(e.file, &e.info) }, func() { once.Rest(entryRest) })
	if err != nil {
		return err
	}
	s := g.Sample
	g.Sample = nil
	e.Glance, e.cpu, e.reason = g, s.CPU, s.Reason
	e.frames = append(e.frames[:0], s.Stack...)
	if s.Reason != stack.ReasonNone && len(e.frames) > 0 {
		e.frames = e.frames[:len(e.frames)-1] // the last one is the reason, not a frame
	}
	e.frames = v.names.learn(e.frames)
	e.asleep = s.Way == stack.WayStop && s.State == stack.StateBlocked
	if s.Way == stack.WayStop && !e.asleep {
		e.runnable(s)
	}
	return nil
}

// whole calls look until the sample has a stack, at most emptyTries times, with a rest in between.
func whole(look func() (sampler.Glance, error), rest func()) (g sampler.Glance, err error) {
	g, err = look()
	for n := 1; n < emptyTries && (errors.Is(err, sampler.ErrUnsure) || err == nil && empty(g.Sample)); n++ {
		rest()
		g, err = look()
	}
	return g, err
}

// emptyTries is how often a running thread without a stack is sampled: it is between
// two frames, or in code without a table, for a moment only.
const emptyTries = 4

// empty reports whether a running thread's stack is useless: one location, and the
// reason why it cannot be followed.
func empty(s *stack.Sample) bool {
	return s.Way == stack.WayStop && s.State != stack.StateBlocked && s.Reason != stack.ReasonNone && len(s.Stack) <= 2
}

// shortWait is the longest time, in ns, that a running thread needs to stop.
const shortWait = 200_000

// runnable distinguishes a thread without a CPU from a running one: a thread can only
// stop on a CPU, and the kernel counts its wait for one when it gets it.
func (e *eye) runnable(s *stack.Sample) {
	var c sampler.Counters
	took := int64(s.Time - s.Begin)
	if took >= shortWait && e.file.Counters(&c) == nil && c.Delay-s.Delay >= took {
		e.State = stack.StateRunnable
	}
}

// waits resolves the wait of e. It returns false if e ran during the read.
func (v *view) waits(e *eye, names func() []string) bool {
	switch e.State {
	case stack.StateRunning, stack.StateRunnable, stack.StateUnknown, stack.StateDead:
		e.wait, e.thread = nil, nil
		return true
	}
	th := &wait.Thread{}
	info, res := v.r.Resolve(th, &wait.Look{TID: e.info.TID, NSTID: int32(e.info.NSTID), State: e.State, Call: e.Call, SP: e.SP,
		Switches: e.Counters.Switches, Frames: e.frames, Names: names, Function: v.vars.Function, Still: e.still})
	if res == wait.Torn {
		if e.wait == nil {
			e.wait = info
		}
		return false
	}
	e.wait, e.thread = info, th
	return true
}

// still reports whether the thread has not run since its sample.
func (e *eye) still() bool {
	var c sampler.Counters
	return e.file != nil && e.file.Counters(&c) == nil && c.CPU == e.Counters.CPU && c.Switches == e.Counters.Switches
}

// settleFor is how long, in ns, all threads stopped in their sleep together may take to
// sleep again.
const settleFor = 100_000_000

// settle resolves the waits of threads that were stopped in their sleep: they need a
// moment to return to it.
func (v *view) settle(once *sampler.Once) {
	var left []*eye
	for _, e := range v.eyes {
		if e.asleep {
			left = append(left, e)
		}
	}
	for until := target.Now() + settleFor; len(left) > 0; once.Rest(settleFor / 100) {
		over := target.Now() >= until
		left = slices.DeleteFunc(left, func(e *eye) bool {
			g, ok, err := once.Peek(e.file)
			if err == nil && ok && g.Call == e.Call && g.SP == e.SP {
				e.Glance = g
				if !v.waits(e, nil) {
					return over
				}
			} else if err == nil && !over {
				return false
			}
			if e.wait == nil {
				// The thread ran, so its current state is unknown: only its call
				// identifies the wait.
				e.wait, e.thread = &wait.Info{Nr: e.Call.Nr, Why: "the thread went on while it was looked at"}, nil
			}
			if e.wait.Lock == nil {
				e.shut()
			}
			return true
		})
	}
}

// again resolves the locks again, now with the function names of the stacks, if the
// threads have not run since. If they have, the names still identify some waits.
func (v *view) again() {
	for _, e := range v.eyes {
		if !e.chosen || e.wait == nil || e.wait.Lock == nil {
			continue
		}
		names := func() []string { return v.names.functions(e.frames) }
		if !e.still() || !v.waits(e, names) {
			e.wait.Name(names())
		}
	}
}

// snapshot combines the process's threads, with those of the others for deadlocks over
// shared locks.
func (v *view) snapshot(all []*view, convoy int) *stacks.Snapshot {
	var threads []stacks.Thread
	var others []graph.Thread
	for _, w := range all {
		for _, e := range w.eyes {
			if w != v || !e.chosen {
				others = append(others, graph.Thread{PID: w.p.PID(), TID: e.info.TID, Info: e.wait})
				continue
			}
			threads = append(threads, stacks.Thread{TID: e.info.TID, Name: cmp.Or(e.info.Comm, e.info.Name), OwnName: v.own[own(&e.info)], Carries: v.t.Carries(stack.TID(own(&e.info))), State: e.State, CPU: e.cpu, Wait: e.wait,
				Frames: v.names.frames(e.frames), Truncated: e.reason})
		}
	}
	confirm := func(t *graph.Thread) bool {
		for _, w := range all {
			if w.p.PID() == t.PID {
				return w.confirm(t)
			}
		}
		return false
	}
	comm, err := v.p.Comm()
	if err != nil {
		comm = v.p.Facts().Comm
	}
	s := stacks.New(v.p.PID(), comm, v.at, threads, others, confirm, convoy)
	s.Dir, _ = v.p.Dir() // without it, paths are shortened
	s.Goroutines, s.Unread = v.goroutines(), v.unread
	return s
}

// confirm implements the parameter of graph.Deadlocks.
func (v *view) confirm(t *graph.Thread) bool {
	i, ok := slices.BinarySearchFunc(v.eyes, t.TID, func(e *eye, tid stack.TID) int { return int(e.info.TID) - int(tid) })
	if !ok || v.eyes[i].thread == nil {
		return false
	}
	e := v.eyes[i]
	if l := e.wait.Lock; l != nil && l.OfRuntime() {
		m, ok := v.t.Monitor(own(&e.info)) // it runs from time to time, to check
		return ok && m.Kind == l.Kind && m.Addr == l.Addr && !v.r.Refresh(e.thread)
	}
	return e.still() && !v.r.Refresh(e.thread) && e.still()
}
