package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/heap/snapshot"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/canary"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/trace/flight"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/trigger"
)

// watched is a watched process.
type watched struct {
	w     *Watcher
	proc  *target.Process
	pid   int
	name  string
	since time.Time
	asked chan ask // dumps to make, in order

	askMu  sync.Mutex
	over   bool // no more dumps are accepted; guarded by askMu
	flight atomic.Pointer[session.Flight]
	mem    atomic.Pointer[ringfile.Memory]

	// The watching goroutine's own.
	set       *trigger.Set
	version   int
	maps      uint64
	names     *session.Namer
	tracks    map[int]*follower
	calls     calls
	io        inputs
	slow      slowCalls
	buf       [512]ringbuf.Event
	java      *snapshot.Meter // nil: not found
	javaTried time.Time
	falls     int // looks in a row that ended in a panic
}

// follower reads the ring of one thread.
type follower struct {
	sink  *flight.Sink
	cur   *ringbuf.Cursor
	track *trigger.Track
	tail  event.Event
}

// run watches t until ctx or the process ends.
func (w *Watcher) run(ctx context.Context, t *watched, release func()) error {
	defer w.remove(t)
	mem, err := w.memory(t)
	if err != nil {
		return err
	}
	// By then the remaining contents of the rings have been dumped or are not needed.
	defer func() {
		if mem.Path() != "" {
			ForgetRing(mem.Path()) // while the ring file is still ours
		}
		mem.Close(true)
	}()
	o := w.o.Session
	o.Started = release
	f, err := session.NewFlight(t.proc, o, w.o.Keep, mem)
	if err != nil {
		return err
	}
	defer f.Close()
	t.names = f.Namer()
	defer t.names.Close()
	life, err := t.proc.Life()
	if err != nil {
		return err
	}
	defer life.Close()
	t.tracks = map[int]*follower{}
	t.calls.t, t.io.t, t.slow.t = t, t, t
	defer t.calls.close()
	defer t.io.end()
	defer t.slow.end()
	if err := t.reload(); err != nil {
		return err
	}
	w.governor.began() // it has read tables and files, and its first samples read more
	w.mu.Lock()
	err = f.SetInterval(w.governor.interval())
	t.mem.Store(mem)
	t.flight.Store(f)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.settle()
	w.log.Info("watching", "pid", t.pid, "name", t.name, "threads", w.o.Session.Selection.String(), "keep", w.o.Keep, "ring_file", mem.Path())

	sampling, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	var ended bool
	go func() {
		var err error
		ended, err = f.Run(sampling)
		done <- err
	}()
	dumped := make(chan struct{})
	go t.dumper(ctx, dumped)
	tick := time.NewTimer(background.Until(t.every()))
	defer tick.Stop()
	for running := true; running; {
		select {
		case err = <-done:
			running = false
		case <-tick.C:
			t.contained()
			if _, v := w.current(); v != t.version {
				if e := t.reload(); e != nil {
					w.log.Error("cannot use the new triggers", "error", e)
				}
			}
			tick.Reset(background.Until(t.every()))
		}
	}
	if err == nil && ended {
		t.ended(life)
	}
	t.askMu.Lock()
	t.over = true
	t.askMu.Unlock()
	close(t.asked)
	<-dumped
	w.mu.Lock()
	w.past.close(f)
	t.flight.Store(nil)
	w.mu.Unlock()
	return err
}

// ended logs how the process ended, and dumps if it crashed.
func (t *watched) ended(life *target.Life) {
	// The kernel reports the exit status also before the process has been waited for.
	e, ok := life.Ending()
	for i := 0; !ok && i < 20; i++ {
		time.Sleep(10 * time.Millisecond)
		e, ok = life.Ending()
	}
	how := "for an unknown reason"
	if ok {
		how = e.String()
	}
	t.w.log.Info("target ended", "pid", t.pid, "name", t.name, "how", how)
	if !ok || !e.Crash() {
		return
	}
	if fired := t.set.Crashed(target.Now(), how); len(fired) > 0 {
		t.put(ask{fired: fired})
	}
}

// memory allocates the rings' memory: in a file if one is configured and can be created.
func (w *Watcher) memory(t *watched) (*ringfile.Memory, error) {
	if w.o.RingDir == "" {
		return ringfile.New(w.o.KeepBytes)
	}
	m, err := w.createRing(RingFile(w.o.RingDir, t.name, t.pid))
	if errors.Is(err, fs.ErrExist) { // another recorder watches it too
		m, err = w.createRing(RingFile(w.o.RingDir, fmt.Sprintf("%s-by-%d", t.name, os.Getpid()), t.pid))
	}
	if err == nil {
		return m, nil
	}
	w.log.Warn("no ring file: the kept events are lost if sliver is killed", "error", err)
	return ringfile.New(w.o.KeepBytes)
}

// createRing creates a ring file. It replaces the file of a dead recorder of this kind, which
// was recovered at the start or cannot be; another recorder's file stays (fs.ErrExist).
func (w *Watcher) createRing(path string) (*ringfile.Memory, error) {
	m, err := ringfile.Create(path, w.o.KeepBytes)
	if errors.Is(err, fs.ErrExist) && w.mine(path) {
		left, e := ringfile.Claim(path, time.Now())
		if e == nil {
			e = os.Remove(path)
			left.Close()
		}
		switch {
		case errors.Is(e, ringfile.ErrInUse):
			return nil, err
		case e != nil && !errors.Is(e, fs.ErrNotExist): // it was removed in the meantime
			return nil, e
		}
		m, err = ringfile.Create(path, w.o.KeepBytes)
	}
	if err != nil {
		return nil, err
	}
	if err := w.owner().note(path); err != nil {
		w.log.Warn("a ring file without its owner's name is recovered by hand alone", "ring_file", path, "error", err)
	}
	return m, nil
}

// reload loads the current rules.
func (t *watched) reload() error {
	rules, version := t.w.current()
	set, err := trigger.NewSet(rules, t.names, polls)
	if err != nil {
		return err
	}
	t.set, t.version, t.falls = set, version, 0
	clear(t.tracks) // they restart with the contents of the rings
	t.calls.find(rules)
	t.io.begin(rules)
	t.slow.begin(rules)
	return nil
}

// polls reports whether a system call waits for any kind of event.
func polls(nr int32) bool {
	switch syscalls.Name(runtime.GOARCH, nr) {
	case "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "io_getevents", "io_pgetevents", "io_uring_enter":
		return true
	}
	return false
}

// every returns the time between looks at the rules: a tenth of the shortest time of a rule, or
// a quarter of the time between two checks.
func (t *watched) every() time.Duration {
	const least, most, soon = 20 * time.Millisecond, 500 * time.Millisecond, 100 * time.Millisecond
	every := most
	rules, _ := t.w.current()
	for _, r := range rules {
		switch {
		case r.Limit > 0:
			every = min(every, r.Limit/10)
		case r.Every > 0:
			every = min(every, r.Every/4)
		case r.Kind != trigger.Crash: // reported separately
			every = min(every, soon)
		}
	}
	return max(every, least)
}

// maxFalls is how many consecutive looks may end in a panic before they stop until the rules are
// reloaded.
const maxFalls = 3

// contained calls look and recovers from a panic, which costs only that look: the recording
// continues. A panic in one rule's check does not reach it.
func (t *watched) contained() {
	if t.falls >= maxFalls {
		return
	}
	fell := background.Contain(t.look)
	if fell == nil {
		t.falls = 0
		return
	}
	err := fmt.Errorf("look at process %d for its triggers: %w", t.pid, fell)
	if t.falls++; t.falls >= maxFalls {
		err = fmt.Errorf("%w; they are off", err)
	}
	t.broke(err)
	clear(t.tracks) // their state may be inconsistent; they restart with the contents of the rings
}

// broke counts and logs a check that ended in a panic.
func (t *watched) broke(err error) {
	t.w.mu.Lock()
	t.w.broken++
	t.w.trouble = err.Error()
	t.w.mu.Unlock()
	t.w.log.Error("trigger", "pid", t.pid, "name", t.name, "error", err)
}

// look reads the new events of the rings and checks the rules.
func (t *watched) look() {
	f := t.flight.Load()
	rec := f.Recorder()
	if g := rec.Generations(); g != t.maps {
		t.maps = g
		t.set.Remapped()
		t.calls.stale = true
	}
	t.calls.renew(target.Now())
	l := &trigger.Look{Now: target.Now(), IO: t.io.look(), Slow: t.slow.look(), Traced: t.slow.traced}
	byTrack := map[*trigger.Track]*follower{}
	rec.Reading(func() {
		there := map[int]bool{}
		for _, s := range rec.Sinks() {
			if s.Ended() != 0 {
				continue
			}
			there[s.Seq()] = true
			x := t.tracks[s.Seq()]
			if x == nil {
				in := rec.Info(s)
				x = &follower{sink: s, cur: s.Cursor(), track: t.set.Add(in.TID, in.Name, in.Main)}
				t.tracks[s.Seq()] = x
			}
			x.track.Name = rec.Info(s).Name // most threads get their names after they have started
			t.follow(x)
			l.Threads = append(l.Threads, x.track)
			l.Hits = t.calls.look(s.Seq(), x.track, l.Hits)
			byTrack[x.track] = x
		}
		for seq := range t.tracks {
			if !there[seq] {
				delete(t.tracks, seq)
			}
		}
		t.calls.keep(there)
	})
	l.Counted, t.calls.last = t.calls.counted, l.Now
	l.Tails = func(tr *trigger.Track) (event.Event, bool) {
		x := byTrack[tr]
		return x.tail, x.tail.Time != 0
	}
	l.Usage = t.usage
	l.Files = func(path string) (out trigger.Written) {
		dir, name := filepath.Split(path)
		if in, err := safefile.Under(dir).Stat(name); err == nil {
			out = trigger.Written{At: time.Unix(0, in.Modified), Size: in.Size}
		}
		return out
	}
	l.Name = func(w event.Word, at stack.Time) string { return t.names.Name(w, at) }
	l.Contain = func(check func()) error {
		if fell := background.Contain(check); fell != nil {
			return fell
		}
		return nil
	}
	l.Broken = func(r *trigger.Rule, err error, off bool) {
		err = fmt.Errorf("check %s of process %d: %w", r, t.pid, err)
		if off {
			err = fmt.Errorf("%w; this trigger is off", err)
		}
		t.broke(err)
	}
	if fired := t.set.Check(l); len(fired) > 0 {
		t.put(ask{fired: fired, at: l.Now})
	}
}

func (t *watched) follow(x *follower) {
	tail, ok := x.sink.Tail()
	if !ok {
		tail = event.Event{}
	}
	x.tail = tail
	for {
		n, lost := x.cur.Read(t.buf[:])
		if lost > 0 {
			x.track.Lost()
		}
		for _, e := range t.buf[:n] {
			x.track.Feed(event.Event{Time: stack.Time(e[0]), Value: e[1]})
		}
		if n == 0 && lost == 0 {
			return
		}
	}
}

// resources maps kinds of rules to the resource that they need; the others are about the Java heap.
var resources = map[trigger.Kind]target.Resource{trigger.CPU: target.ResourceCPU, trigger.Memory: target.ResourceMemory,
	trigger.FDs: target.ResourceFDs, trigger.Threads: target.ResourceThreads}

func (t *watched) usage(k trigger.Kind) (trigger.Usage, bool) {
	of, known := resources[k]
	if !known {
		return t.javaUsage()
	}
	u, err := t.proc.Usage(of, &t.w.shared)
	if err != nil {
		return trigger.Usage{}, false
	}
	out := trigger.Usage{CPU: -1, Memory: -1, FDs: -1, Threads: -1, FDsMax: float64(u.FDLimit), ThreadsMax: float64(u.ThreadLimit), ThreadsOf: u.ThreadOf}
	if u.Known.CPU {
		out.CPU = u.CPU
	}
	switch {
	case u.Known.Group:
		out.Memory, out.MemoryMax, out.MemoryOf = float64(u.Group), float64(u.GroupLimit), "control group"
	case u.Known.RSS && t.w.o.MemLimit > 0:
		out.Memory, out.MemoryMax, out.MemoryOf = float64(u.RSS), float64(t.w.o.MemLimit), "limit given"
	case u.Known.RSS:
		out.Memory, out.MemoryMax, out.MemoryOf = float64(u.RSS), float64(u.RAM), "machine's RAM"
	}
	if u.Known.FDs {
		out.FDs, out.Kinds = float64(u.FDs), func() map[string]int { return canary.Kinds(t.proc) }
	}
	if u.Known.Threads {
		out.Threads = float64(u.Threads)
	}
	return out, true
}

// javaUsage reads how much of the Java heap is in use.
func (t *watched) javaUsage() (trigger.Usage, bool) {
	u := trigger.Usage{CPU: -1, Memory: -1, FDs: -1, Threads: -1, JavaHeap: -1}
	if t.java == nil {
		if time.Since(t.javaTried) < javaRetry {
			return u, true
		}
		t.javaTried = time.Now()
		m, err := snapshot.NewMeter(t.proc)
		if err != nil {
			t.w.log.Warn("no use of the Java heap", "pid", t.pid, "error", err)
			return u, true
		}
		t.java = m
	}
	used, limit, err := t.java.Read()
	if errors.Is(err, target.ErrGone) {
		return u, false
	}
	if err == nil {
		u.JavaHeap, u.JavaHeapMax = float64(used), float64(limit)
	}
	return u, true
}

// javaRetry is how long after a failure a Java heap is looked for again.
const javaRetry = time.Minute

func (t *watched) status() control.Target {
	s := control.Target{PID: t.pid, Name: t.name, Since: t.since}
	if m := t.mem.Load(); m != nil {
		s.Bytes, s.MaxBytes = m.Used()
		s.RingFile = m.Path()
	}
	if f := t.flight.Load(); f != nil {
		st := f.Stats()
		total := st.Total()
		s.Threads, s.Samples, s.Late, s.Short = f.Threads(), total.Samples, total.Late, f.Recorder().Short()
	}
	return s
}
