// Package oneshot takes one look at processes: the stack of each thread with
// names and lines, what it waits for and who holds it, deadlocks and convoys.
// It joins sampler, wait and symbol to a live process; what a look reads like
// is package stacks'. Take may be called by several goroutines at once, for
// different processes.
package oneshot

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sliverprof/sliver/live"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/stacks"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind/v8"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/graph"
	"github.com/sliverprof/sliver/wait/lock"
)

// Options of Take.
type Options struct {
	Selection *sampler.Selection // threads whose stacks are shown; nil: all
	DebugDirs []string           // where separate debug files may be besides
	FullNames bool               // keep parameters and template arguments
	Finder    symbol.Finder      // asked for debug files that are not on disk; nil: nobody
	Cache     *cache.Dir         // of names; nil: none
	Routines  bool               // the goroutines of Go programs too
	Convoy    int                // waiters that make a convoy; 0: graph.DefaultConvoy
}

// NoThreadsError says that the selection matches no thread of a process.
type NoThreadsError struct{ Process *target.Process }

func (e *NoThreadsError) Error() string {
	return fmt.Sprintf("no thread of process %d is selected", e.Process.PID())
}

// Take looks at each thread of procs once, and returns a Snapshot of each
// process, in their order. A thread is stopped for the time of one sample at
// most, and only if it runs or its stack cannot be had otherwise. Threads that
// are not selected are looked at without a stop and without their stacks, for
// deadlocks and convoys alone. Locks that processes share make deadlocks
// across procs. What costs names is told in problems, a line each.
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
		if err := v.onItsOwn(func() error { return v.look(o.Selection) }); err != nil {
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

// view is one process that is looked at.
type view struct {
	p     *target.Process
	t     *live.Target
	w     *live.Proc
	r     *wait.Resolver
	names *names
	vars  *live.Variables
	at    time.Time
	eyes  []*eye // by TID
	py    *interpreter
	js    *v8.Runtime         // nil: there is none
	own   map[int32]string    // names that a runtime gives threads, by NSTID
	tids  map[int32]stack.TID // by NSTID
	lacks []string            // what cannot be had of the process

	routines []*routine // by number
	unread   int        // more that could not be read
}

// eye is one thread.
type eye struct {
	info   stack.ThreadInfo
	chosen bool
	file   sampler.Thread // nil: the thread could not be opened, or need not be open any more
	sampler.Glance
	frames []stack.Frame
	reason stack.Reason
	cpu    int64
	asleep bool // stopped in the call of its Glance, which it goes back to
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
	c.GIL, c.Monitor, c.MonitorOwner, c.LockName = v.t.GIL, v.t.Monitor, v.t.MonitorOwner, v.t.LockName
	v.r = wait.New(c)
	// A runtime whose stacks go on elsewhere must be known before the first
	// thread stands still.
	v.t.Preload()
	v.python()
	v.javascript()
	v.java()
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

// onItsOwn runs f on an OS thread that ends with it: ptrace wants one, and
// leaves it with another signal mask.
func (v *view) onItsOwn(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// look looks at all threads, and finds out what each waits for right after.
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
	if v.py != nil {
		v.own = v.py.names()
	}
	if vm := v.t.Space().JVM(); vm != nil {
		v.own = vm.NamesByTID()
	}
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

// own is a thread's number as its process sees it.
func own(in *stack.ThreadInfo) int32 {
	if in.NSTID != 0 {
		return int32(in.NSTID)
	}
	return int32(in.TID)
}

// tries is how often a thread that goes on while its wait is read is looked at.
const tries = 3

// entryTries is how often one is looked at that wants a monitor and is awake, entryRest
// ns apart: one of the threads that wait for a monitor of HotSpot's wakes now and then to
// look whether it was forgotten (ObjectMonitor::_Responsible, up to 22), and all spin
// before they sleep. Told as running, such a thread would be missing in a deadlock.
const entryTries, entryRest = 10, 1_000_000

// see has one thread's look. gone: it has ended.
func (v *view) see(once *sampler.Once, e *eye) (gone bool) {
	var err error
	if e.file, err = v.t.Open(e.info.TID); err != nil {
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
		e.shut() // nothing more will be asked of it
	}
	return false
}

// entering reports whether e is awake and wants a monitor of Java's that a thread has.
func (v *view) entering(e *eye) bool {
	if e.State != stack.StateRunning && e.State != stack.StateRunnable {
		return false
	}
	m, ok := v.t.Monitor(own(&e.info))
	return ok && m.Kind == lock.Monitor && m.Locked
}

// failed is a thread of which nothing but its state can be had.
func (e *eye) failed() {
	e.reason = stack.ReasonEmpty
	e.Glance = sampler.Glance{State: stack.StateUnknown, Call: stack.Call{Nr: -1}}
	if st, err := e.file.State(); err == nil {
		e.State = st
	}
	e.shut()
}

func (v *view) sample(once *sampler.Once, e *eye) error {
	g, err := once.Look(e.file, &e.info)
	for n := 1; n < emptyTries && (errors.Is(err, sampler.ErrUnsure) || err == nil && empty(g.Sample)); n++ {
		once.Rest(entryRest)
		g, err = once.Look(e.file, &e.info)
	}
	if err != nil {
		return err
	}
	s := g.Sample
	g.Sample = nil
	e.Glance, e.cpu, e.reason = g, s.CPU, s.Reason
	e.frames = append(e.frames[:0], s.Stack...)
	if s.Reason != stack.ReasonNone && len(e.frames) > 0 {
		e.frames = e.frames[:len(e.frames)-1] // the last one is no frame but the reason
	}
	if v.py != nil {
		e.frames = v.py.learn(e.frames)
	}
	e.asleep = s.Way == stack.WayStop && s.State == stack.StateBlocked
	if s.Way == stack.WayStop && !e.asleep {
		e.runnable(s)
	}
	return nil
}

// emptyTries is how often a thread that runs is looked at that gave no stack: between two
// frames, or in code that no table describes, it is for a moment only.
const emptyTries = 4

// empty reports whether a running thread's stack is as good as none: a place, and why it
// cannot be followed.
func empty(s *stack.Sample) bool {
	return s.Way == stack.WayStop && s.State != stack.StateBlocked && s.Reason != stack.ReasonNone && len(s.Stack) <= 2
}

// shortWait is how long, in ns, a running thread may take to stop.
const shortWait = 200_000

// runnable tells a thread that had no CPU from one that had: it can only stop
// on a CPU, and the time that it waited for one is booked when it gets it.
func (e *eye) runnable(s *stack.Sample) {
	var c sampler.Counters
	took := int64(s.Time - s.Begin)
	if took >= shortWait && e.file.Counters(&c) == nil && c.Delay-s.Delay >= took {
		e.State = stack.StateRunnable
	}
}

// waits finds out what e waits for. It returns false when e went on meanwhile.
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

// still reports whether the thread has not run since its look.
func (e *eye) still() bool {
	var c sampler.Counters
	return e.file != nil && e.file.Counters(&c) == nil && c.CPU == e.Counters.CPU && c.Switches == e.Counters.Switches
}

// settleFor is how long, in ns, threads may take that were stopped in their
// sleep until they sleep again, all together.
const settleFor = 100_000_000

// settle finds out what those threads wait for that were stopped in their
// sleep: they need a moment to go back to it.
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
				// It went on, and who knows what it does now: what it waited for
				// is told by its call alone.
				e.wait, e.thread = &wait.Info{Nr: e.Call.Nr, Why: "the thread went on while it was looked at"}, nil
			}
			if e.wait.Lock == nil {
				e.shut()
			}
			return true
		})
	}
}

// again resolves the locks anew, now with the names of the functions on the
// stacks, where the threads have not gone on since. Where they have, the names still tell
// what some waited for.
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

// snapshot puts the process's threads together, with those of the others for
// deadlocks over shared locks.
func (v *view) snapshot(all []*view, convoy int) *stacks.Snapshot {
	var threads []stacks.Thread
	var others []graph.Thread
	for _, w := range all {
		for _, e := range w.eyes {
			if w != v || !e.chosen {
				others = append(others, graph.Thread{PID: w.p.PID(), TID: e.info.TID, Info: e.wait})
				continue
			}
			threads = append(threads, stacks.Thread{TID: e.info.TID, Name: cmp.Or(e.info.Comm, e.info.Name), OwnName: v.own[own(&e.info)], Carries: v.carries(e), State: e.State, CPU: e.cpu, Wait: e.wait,
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
	s.Goroutines, s.Unread = v.goroutines(), v.unread
	return s
}

// confirm: see graph.Deadlocks.
func (v *view) confirm(t *graph.Thread) bool {
	i, ok := slices.BinarySearchFunc(v.eyes, t.TID, func(e *eye, tid stack.TID) int { return int(e.info.TID) - int(tid) })
	if !ok || v.eyes[i].thread == nil {
		return false
	}
	e := v.eyes[i]
	if l := e.wait.Lock; l != nil && (l.Kind == lock.Monitor || l.Kind == lock.Synchronizer) {
		m, ok := v.t.Monitor(own(&e.info)) // it runs now and then, to look
		return ok && m.Kind == l.Kind && m.Addr == l.Addr && !v.r.Refresh(e.thread)
	}
	return e.still() && !v.r.Refresh(e.thread) && e.still()
}
