package session

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/flight"
)

// Flight samples a process and keeps the last seconds in memory. They can be dumped
// while it runs. Call Run once; the other methods may be called from any goroutine from
// NewFlight until Close.
type Flight struct {
	o        Options
	keep     time.Duration
	proc     *target.Process
	live     *live.Target
	smp      *sampler.Sampler
	rec      *flight.Recorder
	mods     *modules
	waits    *waits
	jit      *perfMap
	runtimes *live.Runtimes
	tasks    tasks
	started  sync.Once
	self     int64
	mem      *ringfile.Memory

	// dumping is held by each dump: there is one dump at a time, and no file of the
	// target is closed during it.
	dumping sync.Mutex
	unused  []int // modules whose files can be closed; used by Run only
}

// NewFlight prepares a Flight: it reports most errors before the target is touched. It
// ignores Duration, Outputs and RingCap of o. keep 0 keeps as much as mem holds. The
// caller owns mem and closes it after the Flight.
func NewFlight(p *target.Process, o Options, keep time.Duration, mem *ringfile.Memory) (*Flight, error) {
	f := &Flight{o: o, keep: keep, proc: p, self: target.SelfCPU(), mem: mem}
	f.rec = flight.New(facts(p, &o), flight.Options{Keep: int64(keep), Memory: mem})
	f.mods = newModules(p, f.rec)
	go f.mods.run()
	if err := f.prepare(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Flight) prepare() (err error) {
	o := &f.o
	if f.live, err = live.New(f.proc, f.mods.generation); err != nil {
		return err
	}
	f.live.NoteDeaths(o.Deaths)
	f.live.Preload()
	f.runtimes = f.live.FollowRuntimes(f.rec.Capture)
	f.tasks.t = f.live
	f.waits = newWaits(f.live, f.rec, o.DebugDirs, true)
	f.jit = newPerfMap(f.proc, f.live, f.mods, nil, f.keep)
	f.smp, err = sampler.New(f.live, sampler.Config{
		Interval: o.Interval, Jitter: o.Jitter, Groups: o.Groups, Together: live.Together(o.Interval), Hosts: o.Hosts, Selection: o.Selection, Stop: o.Stop,
		MaxOverhead: o.MaxOverhead, OverheadOfCPU: true, Harmless: live.Harmless, Delays: live.Delays, Sleeps: target.Sleeps, Waits: f.waits.group,
		Start: func(in stack.ThreadInfo) sampler.Sink {
			if o.Started != nil {
				f.started.Do(o.Started)
			}
			return f.rec.Thread(threadOf(in))
		},
		Renamed: func(in stack.ThreadInfo, at stack.Time) { f.rec.Renamed(in.TID, in.Name, at) },
	})
	if err != nil {
		return err
	}
	if err := f.smp.Check(); err != nil {
		return err
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), o.Groups+3)) // as in Session
	return nil
}

// together is how many threads of one process are sampled by one goroutine; 0: the
// process does not share OS threads with others.
func (s *Session) together() int {
	if s.o.Hosts == nil {
		return 0
	}
	return live.Together(s.o.Interval)
}

// NewHosts returns hosts that wake up all Flights which share them, as Options.Hosts, together.
func NewHosts(interval time.Duration) *sampler.Hosts {
	return live.NewHosts(interval)
}

// Recorder returns the recorder that holds the rings.
func (f *Flight) Recorder() *flight.Recorder { return f.rec }

// Process returns the sampled process.
func (f *Flight) Process() *target.Process { return f.proc }

// tidyEvery is how often data older than the kept time are dropped.
const tidyEvery = time.Second

// Run samples until ctx or the target ends; ended reports whether the target did.
func (f *Flight) Run(ctx context.Context) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.smp.Run(ctx) }()
	tick := time.NewTimer(background.Until(tidyEvery))
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return ctx.Err() == nil, err
		case <-tick.C:
			f.tidy()
			tick.Reset(background.Until(tidyEvery))
		}
	}
}

func (f *Flight) tidy() {
	now := target.Now()
	f.unused = append(f.unused, f.rec.Tidy(now)...)
	if f.keep > 0 {
		f.smp.Forget(now - stack.Time(f.keep))
	}
	f.rec.Stats(f.Stats())
	if len(f.unused) > 0 && f.dumping.TryLock() {
		f.mods.drop(f.unused)
		f.unused = nil
		f.dumping.Unlock()
	}
}

// Stats returns the statistics so far of the threads that are kept.
func (f *Flight) Stats() trace.Stats {
	threads, pauses := f.smp.Accounts()
	return trace.Stats{At: target.Now(), Threads: threads, Pause: pauses, SelfCPU: f.live.SelfCPU() - f.self, Unrecorded: unrecorded(f.smp)}
}

// Account returns the recorder's own costs. Of Load it sets Fill, the share of the
// memory for rings that is in use.
func (f *Flight) Account() Account {
	_, p := f.smp.Accounts()
	used, limit := f.mem.Used()
	return Account{At: target.Now(), Threads: f.smp.Threads(), Roles: f.smp.Roles(), Pauses: p,
		Load: trace.Load{Fill: float64(used) / float64(limit)}, SelfCPU: f.live.SelfCPU() - f.self}
}

// StopCPU is the CPU time in ns of this target's stops, which the program's own CPU
// time does not include.
func (f *Flight) StopCPU() int64 { return max(f.live.SelfCPU()-target.SelfCPU(), 0) }

// Held is how long, in ns, stops have held threads in total, without the threads' waits
// for a CPU in that time.
func (f *Flight) Held() int64 { return f.smp.Held() }

// SetInterval changes the time between two samples of a thread.
func (f *Flight) SetInterval(d time.Duration) error {
	if d == f.smp.Interval() {
		return nil
	}
	if err := f.smp.SetInterval(d); err != nil {
		return err
	}
	f.rec.SetInterval(int64(d))
	return nil
}

// Threads is the number of threads sampled now.
func (f *Flight) Threads() int { return f.smp.Threads() }

// A Dump says what to write.
type Dump struct {
	Outputs  []export.Output // the first is the recording
	Triggers []trace.Trigger
	Reason   string        // stored as the recording's end
	Traced   *trace.Traced // traced functions; nil: there are none
	Calls    []calls.Call  // of these functions, sorted in place
}

// Dumped is the result of a Dump.
type Dumped struct {
	Files    []export.File
	Threads  int
	From, To stack.Time    // time span of the recording
	Frozen   time.Duration // time until the rings were copied
	Written  time.Duration // time until the recording was on disk, except names
	Named    time.Duration // time until it was complete
	Problems []string      // causes of missing names
}

// dumpWaits bounds how long a dump waits for files that are being opened.
const dumpWaits = 2 * time.Second

// Dump writes the current content of the rings while sampling continues. If the target
// keeps all CPUs busy, the dump, which has a deadline, gets priority while it runs.
func (f *Flight) Dump(d Dump) (*Dumped, error) {
	f.dumping.Lock()
	defer f.dumping.Unlock()
	begin := time.Now()
	// Of a target that ended soon after it began, the files may not be open yet, and they have the names.
	f.mods.catchUp(dumpWaits)
	var c *flight.Copy
	background.Urgent(func() { c = f.copy() })
	out := &Dumped{Frozen: time.Since(begin), Threads: len(c.Threads)}
	c.Traced, c.Calls = d.Traced, d.Calls
	for i := range d.Triggers {
		c.Mark(&d.Triggers[i])
	}
	err := writeDump(out, c, d, begin, &renumbered{f.mods, c.IDs}, naming.Options{Finder: f.finder(), FullNames: f.o.FullNames,
		Captured: c.Captured, Cache: f.o.Cache, Run: background.Urgent})
	out.Problems = append(append(out.Problems, f.jit.problems()...), f.runtimes.Problems()...)
	return out, err
}

// copy returns the current content of the rings, with related data.
func (f *Flight) copy() *flight.Copy {
	f.rec.Recapture(f.jit.parts())
	f.runtimes.Tell()
	f.rec.Stats(f.Stats())
	c := f.rec.Copy(target.Now(), int64(f.keep))
	f.mods.addJITDump(c, stack.Time(f.keep))
	f.tasks.note = func(t *trace.Tasks) { c.Tasks = append(c.Tasks, *t) }
	_ = f.tasks.look() // fails if the program has no tasks, or is gone
	// The clocks drift apart over days.
	mono, boot, real := target.Clocks()
	c.Process.Clocks = trace.Clocks{Monotonic: stack.Time(mono), Boottime: boot, Realtime: real}
	return c
}

func (f *Flight) finder() symbol.Finder { return live.Finder(f.proc, f.o.DebugDirs, f.o.Finder) }

// writeDump writes c to a hidden file next to the first output, adds names, and makes
// the outputs from it. It leaves no incomplete file.
func writeDump(out *Dumped, c *flight.Copy, d Dump, begin time.Time, mods naming.Modules, o naming.Options) error {
	path, final := d.Outputs[0].Path, d.Outputs[0].Final()
	temp, err := outfile.Temp(cmp.Or(final, filepath.Join(os.TempDir(), "sliver")))
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		temp.Close()
		if !keep {
			os.Remove(temp.Name())
		}
	}()
	place := func() error {
		fi, err := temp.Stat()
		if err != nil {
			return err
		}
		if final == "" { // a pipe or a device
			err = copyTo(path, temp, fi.Size())
		} else {
			err = outfile.Place(temp, final)
		}
		if err != nil {
			return err
		}
		keep = final != ""
		out.Files = slices.Insert(out.Files, 0, export.File{Path: path, Format: d.Outputs[0].Format.Name, Bytes: fi.Size()})
		out.Named = time.Since(begin)
		return nil
	}
	more := d.Outputs[1:]
	var rec *trace.Recording
	o.Do(func() {
		if rec, err = writeNamed(out, temp, c, d, begin, mods, o); err != nil {
			err = writeError(err)
		} else if len(more) == 0 {
			err = place()
		}
	})
	if err != nil || len(more) == 0 {
		return err
	}
	for _, x := range more {
		files, err := export.Write(x, rec, export.Options{})
		if err != nil {
			return err
		}
		out.Files = append(out.Files, files...)
	}
	return place()
}

// writeNamed writes the recording itself.
func writeNamed(out *Dumped, f *os.File, c *flight.Copy, d Dump, begin time.Time, mods naming.Modules, o naming.Options) (*trace.Recording, error) {
	if err := c.Write(f, d.Triggers, d.Reason); err != nil {
		return nil, err
	}
	out.Written = time.Since(begin)
	rec, err := openRecording(f)
	if err != nil {
		return nil, err
	}
	if out.Threads > 0 {
		out.From, out.To = rec.Span()
	}
	var sym *trace.Symbols
	sym, out.Problems = naming.Symbols(rec, mods, o)
	if err := trace.AppendSymbols(f, sym); err != nil {
		return nil, err
	}
	return openRecording(f)
}

// renumbered maps the modules of a Copy to the open files of a Flight.
type renumbered struct {
	m   *modules
	ids []int
}

// Open implements naming.Modules.
func (r *renumbered) Open(i int, m *trace.Module) (io.ReaderAt, io.Closer, error) {
	return r.m.Open(r.ids[i], m)
}

// Close releases all resources. Call it after Run returned.
func (f *Flight) Close() {
	if f.runtimes != nil {
		f.runtimes.Close()
	}
	if f.jit != nil {
		f.jit.settle()
	}
	if f.waits != nil {
		f.waits.settle()
	}
	f.mods.close()
}
