// Package session runs one recording from a process to finished files. It connects
// target, sampler, recorder, names and exports. It ensures that no incomplete file gets
// a final name, and that the target is released on every path. Command lines, terminals
// and signals belong to cmd/sliver.
//
// A Session is for one goroutine; Status may be called from others.
package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// Options configure a Session.
type Options struct {
	Version      string // of this program, stored in the recording
	Selection    *sampler.Selection
	Interval     time.Duration
	Jitter       float64 // share of the interval
	Groups       int
	Stop         sampler.StopPolicy
	MaxOverhead  float64
	MaxCPU       sampler.Bounds // of this program's work for samples of all processes
	Clock, NoBPF bool           // sample running threads by clocks of the kernel where it allows that; without BPF programs
	Yield        bool           // release the process when another tracer arrives
	Duration     time.Duration  // 0: until stopped or the target ends
	Outputs      []export.Output
	Kinds        trace.Kinds // of frames in outputs other than recordings; 0: all
	Kernel       bool        // add frames for the kernel to these: see export.Options
	Idle         bool        // these also rank idle waits: see export.Options
	Lines        bool        // folded stacks have lines
	DebugDirs    []string
	FullNames    bool
	Finder       symbol.Finder // finds debug files that are not on disk; nil: none
	Cache        *cache.Dir    // of names; nil: none
	RingCap      int           // events, 0: the recorder's default
	// Hosts are OS threads shared by Flights; nil: each has its own.
	Hosts *sampler.Hosts
	limit *sampler.Limit // of MaxCPU
	// Deaths shows where a thread was when a signal killed it; nil: the last sample
	// shows it. For a Flight only.
	Deaths *target.Deaths
	// Live enables Names, which resolves names while the recording grows.
	Live bool
	// Renamed receives new names of threads; may be nil.
	Renamed func(tid stack.TID, name string)
	// Await allows a selection that matches no thread yet.
	Await bool
	// Started is called once, when the first thread is about to be sampled; may be nil.
	Started func()
	// Trace has calls of functions recorded too; nil: none.
	Trace *TraceOptions
	// IO has I/O operations recorded too; nil: they are not.
	IO *IOOptions
	// Switches let context switches be recorded too; nil: they are not.
	Switches *SwitchOptions
	// Set finds more processes for the recording; nil: it is of one process. The Session's
	// own process is in the set. First are the others that existed when it began; the
	// Session closes them.
	Set   *procset.Set
	First []procset.Member
	// Follower learns of the processes of the Set beside the Session's own; may be nil.
	Follower Follower
	// Tracer receives the spans of the recording's phases; nil: no spans.
	Tracer oteltrace.Tracer
}

// Session is one running recording.
type Session struct {
	o        Options
	proc     *target.Process
	live     *live.Target
	life     *target.Life // nil: how the process ends is not known
	smp      *sampler.Sampler
	mods     *modules
	waits    *waits
	jit      *perfMap
	runtimes *live.Runtimes
	tasks    *tasks
	names    *naming.Live
	parent   int        // see trace.Process.Parent
	born     stack.Time // see procset.Member.Born
	part     string     // the recording's path while it grows
	placed   bool       // part is the final name of an output
	phases   *phases
	traced   *tracing       // nil: no calls are traced
	io       *ioLog         // nil: no I/O is recorded
	ioRing   int            // see kernel.IOOptions
	switches *switchLog     // nil: no context switches are recorded
	bare     string         // why CPU samples have no kernel stacks; "": they may, or nothing of the kernel is recorded
	opened   stack.Time     // start of New
	section  *trace.Section // nil: the recording is of one process
	family   *family        // nil: the recording is of one process
	member   *family        // of another Session, which names this one's functions; nil: none
	shared   *live.Shared   // files read once for all processes of a family; nil: none
	begin    atomic.Int64   // start of Run; 0: not yet
	used     used           // CPU time since that time

	recorder *trace.Recorder
	children int64 // CPU time in ns of the target's children at that time
	fileMu   sync.Mutex
	rec      *trace.Recorder // guarded by fileMu; nil once it is closed
	held     []*os.File      // reserve the names of the other outputs until Close
	temp     *os.File        // the recording; guarded by fileMu, nil once the Session gave it away
	closing  bool            // guarded by fileMu
	readers  sync.WaitGroup  // of temp

	awaits   bool // no thread was selected at first
	started  sync.Once
	failed   atomic.Pointer[error]
	cancel   context.CancelFunc
	cancelMu sync.Mutex

	accountMu sync.Mutex
	last      *Account // the account after sampling has ended and rec is nil
}

// New prepares the recording of p: it reads maps and unwind tables and checks that the
// outputs are writable, so that errors occur before the target is touched. The caller
// must call Close.
func New(p *target.Process, o Options) (*Session, error) {
	o.limit = sampler.NewLimit(o.MaxCPU)
	s := &Session{o: o, proc: p, phases: newPhases(o.Tracer, p.PID()), opened: target.Now()}
	if err := s.prepare(); err != nil {
		s.phases.end(err)
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Session) prepare() (err error) {
	p, o := s.proc, &s.o
	s.readKernel()
	for _, out := range o.Outputs {
		if err := out.Check(); err != nil {
			return err
		}
	}
	w, err := s.writer()
	if err != nil {
		return err
	}
	process := facts(s.proc, &s.o)
	process.Parent = s.parent
	if s.born != 0 {
		process.StartTime = s.born // more precise than the clock ticks of /proc
	}
	if s.rec, err = trace.NewRecorder(w, process, o.RingCap, s.fail); err != nil {
		return writeError(err)
	}
	s.recorder = s.rec
	s.mods = newModules(p, s.rec)
	s.mods.whole, s.mods.shared, s.mods.vdso.has = true, s.shared, s.member.hasVDSO
	if o.Live {
		s.names = s.newLiveNames()
		s.mods.noted = s.names.Maps
	}
	go s.mods.run()
	mapped := s.phases.begin("maps")
	attach := live.New
	if s.shared != nil {
		attach = s.shared.New
	}
	if s.live, err = attach(p, s.mods.generation); err != nil {
		return mapped(err)
	}
	s.live.RecordingBegan(s.recordingBegan())
	s.usePrograms()
	s.live.Preload()
	_ = mapped(nil)
	s.life, _ = p.Life() // none of a process that has ended, which has no samples
	s.runtimes = s.live.FollowRuntimes(s.recorder.Capture)
	s.bare = s.nameKernel()
	s.tasks = &tasks{t: s.live, note: s.recorder.Tasks}
	s.waits = newWaits(s.live, s.rec, o.DebugDirs, s.shared == nil)
	s.jit = newPerfMap(p, s.live, s.mods, s.recorder.Capture, 0)
	s.smp, err = sampler.New(s.live, sampler.Config{
		Interval: o.Interval, Jitter: o.Jitter, Groups: o.Groups, Hosts: o.Hosts, Together: s.together(), Selection: o.Selection, Stop: o.Stop, Clock: o.Clock,
		MaxOverhead: o.MaxOverhead, OverheadOfCPU: o.Hosts != nil, Limit: o.limit, Harmless: live.Harmless, Delays: live.Delays, Sleeps: target.Sleeps, Yield: o.Yield, Waits: s.waits.group,
		Start: func(in stack.ThreadInfo) sampler.Sink {
			if o.Started != nil {
				s.started.Do(o.Started)
			}
			return s.recorder.Thread(threadOf(in))
		},
		Renamed: func(in stack.ThreadInfo, at stack.Time) {
			s.recorder.Renamed(in.TID, in.Name, at)
			if o.Renamed != nil {
				o.Renamed(in.TID, in.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	err = s.smp.Check()
	if s.awaits = o.Await && errors.Is(err, sampler.ErrNoThreads); err != nil && !s.awaits {
		return err
	}
	// A sampler that waits for a stop keeps its P in the Go scheduler for some 300 µs:
	// the others need Ps of their own.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), o.Groups+3))
	return nil
}

// writer creates the file of the recording, unless the Session writes a section of another
// one's.
func (s *Session) writer() (w *trace.Writer, err error) {
	if s.section != nil {
		return s.section.Writer(), nil
	}
	if err := s.reserve(s.o.Outputs); err != nil {
		return nil, err
	}
	if s.o.Set != nil {
		if s.family, err = newFamily(s); err == nil {
			w, s.shared = s.section.Writer(), s.family.shared
		}
	} else {
		w, err = trace.NewWriter(s.temp)
	}
	if err != nil {
		return nil, writeError(err)
	}
	return w, nil
}

func threadOf(in stack.ThreadInfo) trace.Thread {
	return trace.Thread{TID: in.TID, NSTID: in.NSTID, Name: in.Name, Main: in.Main, Born: in.Born, Since: target.Now(), Before: in.Before}
}

// fail is called by the recorder when the file can no longer be written.
func (s *Session) fail(err error) {
	err = writeError(err)
	s.failed.Store(&err)
	s.Stop()
}

// facts returns the description of the target and of the recording itself.
func facts(proc *target.Process, o *Options) trace.Process {
	f := proc.Facts()
	host := target.ReadHost()
	mono, boot, real := target.Clocks()
	p := trace.Process{
		PID: f.PID, NSPID: f.NSpid, Comm: f.Comm, Exe: f.Exe, Cmdline: f.Cmdline, UID: f.UID, StartTime: f.StartTime,
		Arch: runtime.GOARCH, Kernel: host.Kernel, Host: host.Name, Page: f.PageSize,
		CPUs: host.CPUs, Sliver: o.Version, Interval: int64(o.Interval),
		Jitter: int64(o.Jitter * float64(o.Interval)), Stop: o.Stop.String(),
		Clocks: trace.Clocks{Monotonic: stack.Time(mono), Boottime: boot, Realtime: real},
	}
	if o.Selection != nil {
		p.ThreadSpec = o.Selection.String()
	}
	if f.Container {
		p.Container = f.Cgroup
	}
	return p
}

// Run samples until ctx ends, Stop is called, the duration is over or the target ends,
// and returns the reason.
func (s *Session) Run(ctx context.Context) (reason string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.cancelMu.Lock()
	s.cancel = cancel
	s.cancelMu.Unlock()
	var timeout <-chan time.Time
	timer := time.NewTimer(s.o.Duration)
	defer timer.Stop()
	s.begin.Store(int64(target.Now()))
	if s.o.Duration > 0 {
		timeout = timer.C
		s.smp.EndAfter(s.o.Duration)
	}
	s.children = s.childrenCPU()
	what, endBeside, err := s.beside(ctx)
	defer func() {
		if e := endBeside(); err == nil {
			err = e
		}
	}()
	if err != nil {
		return what, err
	}
	s.used.begin(s)
	sampled := s.phases.begin("sample")
	began := time.Now()
	defer func() {
		if first := s.smp.First(); first > 0 {
			s.phases.was("attach", began, began.Add(time.Duration(int64(first)-s.begin.Load())))
		}
		_ = sampled(err)
	}()
	done := make(chan error, 1)
	if s.family != nil {
		s.family.begin(ctx)
	}
	go func() {
		err := s.smp.Run(ctx)
		if s.family != nil {
			if s.o.Follower != nil && ctx.Err() == nil && err == nil {
				s.o.Follower.Ended(s, true)
			}
			s.family.wait(err)
		}
		done <- err
	}()
	if s.awaits && s.o.Started != nil { // selected threads appear only once the program runs
		s.started.Do(s.o.Started)
	}
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		s.tasks.begin(ctx)
	}()
	defer func() {
		cancel()
		<-looked
		if s.proc.Alive() {
			_ = s.tasks.look()
		} else {
			s.tasks.met() // goroutines cannot be read after the end
		}
		s.tasks.end()
	}()
	stats := time.NewTicker(statsEvery)
	defer stats.Stop()
	reason = targetEnded
	for {
		select {
		case err := <-done:
			if f := s.failed.Load(); f != nil {
				return "write error", *f
			}
			return reason, err
		case <-ctx.Done():
			if reason == targetEnded {
				reason = "interrupted"
			}
			return s.settle(reason, done)
		case <-timeout:
			if left := s.left(); left > 0 {
				timer.Reset(left)
				continue
			}
			reason = "duration"
			cancel()
			return s.settle(reason, done)
		case <-stats.C:
			s.recorder.Stats(s.stats())
			stats.Reset(s.member.statsEvery())
		}
	}
}

// targetEnded is the reason of Run if the process has ended.
const targetEnded = "target ended"

// Limits of a wait for the first tick.
const (
	beginWithin = 5 * time.Second // beyond the duration
	beginLook   = 10 * time.Millisecond
)

// left returns the rest of the duration, which starts with the first tick.
func (s *Session) left() time.Duration {
	now := int64(target.Now())
	if began := int64(s.smp.Began()); began > 0 {
		return time.Duration(began + int64(s.o.Duration) - now)
	}
	if !s.awaits && time.Duration(now-s.begin.Load()) < s.o.Duration+beginWithin {
		return beginLook
	}
	return 0
}

func (s *Session) settle(reason string, done <-chan error) (string, error) {
	err := <-done
	if f := s.failed.Load(); f != nil {
		return "write error", *f
	}
	return reason, err
}

// Stop ends Run from another goroutine.
func (s *Session) Stop() {
	s.cancelMu.Lock()
	defer s.cancelMu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

func (s *Session) stats() trace.Stats {
	threads, pauses := s.smp.Accounts()
	return trace.Stats{At: target.Now(), Threads: threads, Pause: pauses, SelfCPU: s.used.ownCPU(s), CPU: s.used.processCPU(s), Unrecorded: unrecorded(s.smp)}
}

// unrecorded returns the threads that smp does not record.
func unrecorded(smp *sampler.Sampler) (out []trace.Unrecorded) {
	for _, r := range smp.Refused() {
		out = append(out, trace.Unrecorded{Threads: r.Threads, Why: r.Why})
	}
	return out
}

// Status is the content of a status line.
type Status struct {
	Elapsed time.Duration
	Threads int // sampled now
	Total   stack.ThreadStats
	Pauses  stack.Pauses
	// Tasks counts the tasks that could not be read.
	Tasks trace.LostTasks
	// Awaits is the selection that no thread has matched so far; "": a thread has matched.
	Awaits string
	// Unrecorded are threads without a sample.
	Unrecorded []trace.Unrecorded
	// Processes are recorded now, LeftOut were left out; 0: the recording is of one process.
	Processes, LeftOut int
}

// Status may be called during Run.
func (s *Session) Status() Status {
	st := s.stats()
	var elapsed time.Duration
	if began := int64(s.smp.Began()); began != 0 {
		elapsed = time.Duration(int64(st.At) - began)
	}
	out := Status{Elapsed: elapsed, Threads: s.smp.Threads(), Total: st.Total(), Pauses: st.Pause, Tasks: s.tasks.left(), Unrecorded: st.Unrecorded}
	if s.awaits && len(s.recorder.Sinks()) == 0 {
		out.Awaits = s.o.Selection.String()
	}
	if s.family != nil {
		s.family.status(&out)
	}
	return out
}

// Threads returns the current threads, in the order of their positions, for the message
// that a selection matches none.
func Threads(p *target.Process) ([]stack.ThreadInfo, error) {
	tids, err := p.Threads(nil)
	if err != nil {
		return nil, err
	}
	info := func(tid stack.TID) (stack.ThreadInfo, error) { return live.Info(p, tid) }
	if t, err := live.New(p, nil); err == nil { // it knows the names of threads in managed runtimes
		t.FindRuntimes()
		info = t.Info
	}
	var out []stack.ThreadInfo
	for _, tid := range tids {
		if in, err := info(tid); err == nil {
			out = append(out, in)
		}
	}
	sampler.SortByAge(out)
	return out, nil
}

// Close removes the rest of an unfinished session.
func (s *Session) Close() {
	s.phases.end(nil)
	s.fileMu.Lock()
	s.closing = true
	rec := s.rec
	s.rec = nil
	s.fileMu.Unlock()
	s.readers.Wait()
	if s.family != nil {
		s.family.close()
	}
	if s.traced != nil {
		s.traced.close()
	}
	if s.io != nil {
		_ = s.io.end() // Run has returned its error
	}
	if s.switches != nil {
		s.switches.end()
	}
	if s.runtimes != nil {
		s.runtimes.Close()
	}
	if s.jit != nil {
		s.jit.settle()
	}
	if s.waits != nil {
		s.waits.settle()
	}
	if rec != nil {
		_, _ = rec.Close(trace.Stats{}, trace.End{})
		if s.smp != nil {
			s.settleAccount()
		}
	}
	if s.names != nil {
		if s.member != nil {
			s.names.Retire() // its reader may still ask for the last names
		} else {
			s.names.Close()
		}
	}
	if s.mods != nil {
		s.mods.close()
	}
	if s.life != nil {
		_ = s.life.Close() // nothing was written to it
	}
	if s.live != nil {
		s.live.Release()
	}
	if s.family != nil {
		s.family.release()
	}
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if s.temp != nil {
		s.temp.Close()
		s.temp = nil
		if !s.placed {
			os.Remove(s.part)
		}
	}
	for _, f := range s.held {
		os.Remove(f.Name())
		f.Close()
	}
	s.held = nil
}

// reserve creates the file that the recording grows in, next to the first output that
// is a file, so that only a rename remains at the end. It also reserves the names of
// the other outputs, so that no other recording is written to them.
func (s *Session) reserve(outs []export.Output) error {
	finals := make([]string, len(outs))
	first := -1
	for i, o := range outs {
		if finals[i] = o.Final(); finals[i] == "" {
			continue
		}
		if first < 0 || !outs[first].Format.Recording() {
			first = i
		}
	}
	if first < 0 {
		f, err := outfile.Temp(filepath.Join(os.TempDir(), "sliver"))
		if err == nil {
			s.temp, s.part = f, f.Name()
		}
		return err
	}
	for i, final := range finals {
		if final == "" {
			continue
		}
		f, err := outfile.Reserve(final)
		switch {
		case err != nil:
			return err
		case i == first:
			s.temp, s.part = f, f.Name()
		default:
			s.held = append(s.held, f)
		}
	}
	return nil
}
