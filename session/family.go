package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// family are the processes that a Session records beside its own. Each has a Session that
// writes a section of the same file.
type family struct {
	s        *Session
	sections *trace.Sections
	hosts    *sampler.Hosts
	shared   *live.Shared
	cancel   context.CancelFunc
	// liveFiles is for names while the recording grows; nil without Options.Live.
	liveFiles *naming.LiveFiles
	named     atomic.Bool   // the names of all processes are in the file
	reading   sync.RWMutex  // held for reading by window, which uses the files of nameless
	followed  chan struct{} // closed when no process can join any more
	members   sync.WaitGroup
	once      sync.Once
	execs     bool // the Set reports them

	mu      sync.Mutex // guards the fields below
	closed  bool
	live    map[*Session]bool
	watched int // members whose I/O is recorded, or that are too many for that
	traced  int // members whose context switches are recorded
	done    []Recorded
	stats   trace.Stats // of the processes in done
	errs    []string
	// nameless are the processes that have ended. Their functions are named together at the end
	// of the recording: naming takes more CPU time than sampling a process that lives for 100 ms,
	// and would slow down the processes that still run.
	nameless []nameless
}

// nameless holds the input of naming for a process that has ended.
type nameless struct {
	section  *trace.Section
	known    *trace.Known // of the section; nil: it is read from the file
	mods     *modules
	problems []string
	options  naming.Options
	ended    stack.Time
}

// Recorded describes one process of a recording.
type Recorded struct {
	PID, Parent int
	Comm        string
	Threads     int
	Stats       stack.ThreadStats // of all its threads
	CPU         int64             // ns, of these or by the kernel's account of the process, if that is more
	// Found is when the process was found, First its first sample; 0: none.
	Found, First stack.Time
	Reason       string // why its part of the recording ended
	Exit         *trace.Exit
	IO           *trace.IO
}

// newFamily begins the file of s.
func newFamily(s *Session) (*family, error) {
	f := &family{s: s, shared: live.NewShared(), followed: make(chan struct{}), live: map[*Session]bool{}}
	var err error
	if f.sections, s.section, err = trace.NewSections(s.temp); err != nil {
		return nil, err
	}
	f.hosts = f.shared.NewHosts(s.o.Interval)
	if s.o.Live {
		f.liveFiles = naming.NewLiveFiles(runtime.GOARCH, naming.Options{FullNames: s.o.FullNames, Cache: s.o.Cache})
	}
	return f, nil
}

// recordingBegan is when the recording began, of which the process may be a later one: see live.Target.RecordingBegan.
// Start times of threads are up to a clock tick too early. If the kernel reported that the process was made
// since then, all its threads were.
func (s *Session) recordingBegan() stack.Time {
	if s.member == nil {
		return s.opened
	}
	if s.born >= s.member.s.opened {
		return 1
	}
	return s.member.s.opened
}

// begin records the First processes, and follows the others until ctx ends or all have ended.
func (f *family) begin(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	if f.execs = f.s.o.Set.OnChange(f.changed); f.execs {
		f.s.live.ExecsReported()
		f.s.smp.LivesReported()
	}
	for _, m := range f.s.o.First {
		f.join(ctx, m)
	}
	go func() {
		defer close(f.followed)
		f.s.o.Set.Follow(ctx, func(m procset.Member) { f.join(ctx, m) })
	}()
}

// wait returns when all processes have ended, or when Run's context ends. The Session calls it
// when sampling of its own process has ended; err is that sampler's error.
func (f *family) wait(err error) {
	f.s.o.Set.Done()
	if err != nil {
		f.cancel()
	}
	<-f.followed
	f.members.Wait()
}

// join records a process until it or ctx ends.
func (f *family) join(ctx context.Context, m procset.Member) {
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.members.Add(1)
	}
	f.mu.Unlock()
	if closed {
		m.Process.Close()
		f.s.o.Set.Done()
		return
	}
	go func() {
		defer f.members.Done()
		defer f.s.o.Set.Done()
		defer m.Process.Close()
		f.record(ctx, m)
	}()
}

func (f *family) record(ctx context.Context, m procset.Member) {
	s := f.member(m)
	facts := m.Process.Facts()
	miss := func(why string) { f.s.o.Set.Missed(facts.PID, m.Parent, s.name(), why, m.Born) }
	if err := s.prepare(); err != nil {
		s.Close()
		if !m.Process.Alive() {
			miss(procset.WhyShort)
		} else {
			miss(oneLine(err))
		}
		return
	}
	defer s.Close()
	if s.mods.renamed(); f.execs {
		s.live.ExecsReported()
		s.smp.LivesReported()
	}
	f.mu.Lock()
	f.live[s] = true
	var without *trace.IO
	if s.o.IO != nil {
		if f.watched++; f.watched >= maxWatched { // the first process is one more
			without = noIO(s.recorder, fmt.Sprintf("it is for at most %d processes at once", maxWatched))
			s.o.IO = nil
		}
		defer func() {
			f.mu.Lock()
			f.watched--
			f.mu.Unlock()
		}()
	}
	f.mu.Unlock()
	f.control(s)
	follower := f.s.o.Follower
	if follower != nil {
		s.o.Renamed = func(tid stack.TID, name string) { follower.Renamed(s, tid, name) }
		follower.Joined(s)
	}
	reason, err := s.Run(ctx)
	if follower != nil {
		follower.Ended(s, reason == targetEnded)
	}
	if err != nil && !errors.Is(err, sampler.ErrNoThreads) && m.Process.Alive() {
		f.problem(facts.PID, err)
	}
	r := Recorded{PID: facts.PID, Parent: m.Parent, Comm: s.name(), Found: m.Found, First: s.smp.First(), Reason: reason}
	res, err := s.Finish(reason)
	f.mu.Lock()
	delete(f.live, s)
	f.mu.Unlock()
	if err != nil {
		f.problem(facts.PID, err)
	}
	if !s.section.Written() {
		if m.Process.Alive() {
			miss(procset.WhyNoThreads)
		} else {
			miss(procset.WhyShort)
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.IO = without; res != nil {
		if res.IO != nil {
			r.IO = res.IO
		}
		r.Threads, r.Stats, r.Exit = res.Threads, res.Stats.Total(), res.Exit
		r.CPU = max(r.Stats.CPUNS, res.CPU, res.Stats.CPU)
		addStats(&f.stats, &res.Stats)
	}
	f.done = append(f.done, r)
}

// changed makes the sampler of a process look at what the kernel reported: which program it runs now, whether it has
// ended, its threads or their names. The kernel reports an exec before the new
// program can be recognized (load_elf_binary of fs/binfmt_elf.c sets its addresses later), on a busy machine by
// some time: further looks follow, and the sampler's own ten times as late.
func (f *family) changed(pid int, what target.BirthKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look := func(s *Session) {
		switch {
		case s.proc.PID() != pid:
		case what == target.Threaded || what == target.Renamed:
			s.smp.Changed(what == target.Renamed)
		default:
			s.smp.Look()
			for _, later := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
				time.AfterFunc(later, s.smp.Look)
			}
		}
	}
	look(f.s)
	for s := range f.live {
		look(s)
	}
}

// running returns the Sessions of the processes that are recorded now, without the first one.
func (f *family) running() []*Session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.live))
}

// maxWatched bounds the processes whose I/O is recorded at once: each has programs of its own in the kernel,
// which cost every system call of the machine. memberRing is the memory for records of those after the first.
const (
	maxWatched = 8
	memberRing = 8 << 20
)

// member returns the Session of a process; prepare is still to be called.
func (f *family) member(m procset.Member) *Session {
	o := f.s.o
	o.Duration, o.Outputs, o.Renamed, o.Started, o.Trace, o.Tracer, o.Set, o.First, o.Follower = 0, nil, nil, nil, nil, nil, nil, nil, nil
	o.Await, o.Hosts, o.Selection = true, f.hosts, f.s.Selection()
	if o.IO != nil {
		o.IO = &IOOptions{Rules: o.IO.Rules, Slower: o.IO.Slower}
	}
	if o.Switches != nil {
		o.Switches = &SwitchOptions{Kernel: o.Switches.Kernel, after: switchesAfter, begin: func() bool { return f.watchSwitches(1) }, end: func() { f.watchSwitches(-1) }}
	}
	return &Session{o: o, proc: m.Process, parent: m.Parent, born: m.Born, member: f, shared: f.shared, section: f.sections.Add(), part: f.s.part, ioRing: memberRing,
		phases: newPhases(nil, m.Process.PID()), opened: target.Now()}
}

// switchesAfter is how long a process after the first lives before its context switches are recorded: to load the
// programs takes more CPU time than most short processes do.
const switchesAfter = time.Second

// watchSwitches counts a process more or less whose context switches are recorded. It returns false if there are too
// many.
func (f *family) watchSwitches(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 && f.traced+n >= maxWatched { // the first process is one more
		return false
	}
	f.traced += n
	return true
}

// name is the program's name as of now, or of its last exec.
func (s *Session) name() string {
	if s.recorder == nil {
		return s.proc.Facts().Comm
	}
	return s.recorder.Process().Comm
}

// maxFamilyProblems limits the errors that are kept.
const maxFamilyProblems = 20

func (f *family) problem(pid int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) < maxFamilyProblems {
		f.errs = append(f.errs, processError(pid, err))
	}
}

// close ends the recording of all processes and waits until their sections are complete.
func (f *family) close() {
	f.once.Do(func() {
		f.mu.Lock()
		f.closed = true
		f.mu.Unlock()
		if f.cancel == nil { // begin was not called
			for _, m := range f.s.o.First {
				m.Process.Close()
			}
			return
		}
		f.cancel()
		<-f.followed
		f.members.Wait()
	})
}

// unnamed keeps the files of s, a process that has ended: addNames reads them.
func (f *family) unnamed(s *Session) {
	n := nameless{section: s.section, mods: s.mods, options: s.namingOptions(nil), ended: target.Now()}
	n.problems = append(s.jit.problems(), s.runtimes.Problems()...)
	maps, mods, whole := n.mods.retire()
	f.mu.Lock()
	defer f.mu.Unlock()
	if whole && len(f.nameless) < maxKnown {
		n.known = &trace.Known{Process: s.recorder.Process(), Maps: maps, Modules: mods}
	}
	s.mods = nil // Close leaves the files open
	f.nameless = append(f.nameless, n)
}

// open opens the section for its names.
func (n *nameless) open() (*trace.Recording, error) {
	if n.known == nil {
		return n.section.Open()
	}
	return n.section.OpenPlaces(*n.known)
}

// maxKnown bounds the processes that have ended whose mappings and modules stay in memory, some 5 kB each.
const maxKnown = 4096

// maxOpened bounds the recordings that addNames keeps open between its two passes: each has its mappings and
// modules in memory, some 100 kB.
const maxOpened = 512

// statsEvery is the time between two writings of a process's statistics, of which only a killed recording needs all but
// the last, and statsCrowd the number of further processes for which each writes them that much less often.
const (
	statsEvery = 5 * time.Second
	statsCrowd = 32
)

// statsEvery returns that time at present. f may be nil.
func (f *family) statsEvery() time.Duration {
	if f == nil {
		return statsEvery
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return statsEvery * time.Duration(1+len(f.live)/statsCrowd)
}

// hasVDSO reports whether the section of the first process, which is in the file from the start, has the image of the
// vDSO with this build ID. f may be nil.
func (f *family) hasVDSO(id string) bool {
	if f == nil {
		return false
	}
	has := f.s.mods.vdso.id.Load()
	return id != "" && has != nil && *has == id
}

// addNames writes the names of the processes that have ended, and prepares o to name rec, the
// first process, together with them. It extends span by their time.
func (f *family) addNames(rec *trace.Recording, mods *modules, o *naming.Options, span *span) (problems []string, err error) {
	f.mu.Lock()
	all := slices.Clone(f.nameless)
	f.mu.Unlock()
	o.Together = &naming.Together{}
	o.Together.Add(rec, mods, o)
	kept := make([]*trace.Recording, min(len(all), maxOpened))
	err = eachOf(len(all), func(i int) (*trace.Recording, error) { return all[i].open() }, func(i int, one *trace.Recording) error {
		one.Borrow(rec)
		all[i].options.Captured, all[i].options.Together = one.Captured, o.Together
		o.Together.Add(one, all[i].mods, &all[i].options)
		if len(one.Threads) > 0 {
			span.add(one)
		}
		if i < len(kept) {
			kept[i] = one
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	o.Together.Resolve()
	type names struct {
		sym      *trace.Symbols
		problems []string
	}
	err = eachOf(len(all), func(i int) (out names, err error) {
		var one *trace.Recording
		if i < len(kept) {
			one, kept[i] = kept[i], nil
		} else if one, err = all[i].open(); err != nil {
			return out, err
		}
		out.sym, out.problems = naming.Symbols(one, all[i].mods, all[i].options)
		return out, nil
	}, func(i int, x names) error {
		problems = append(append(problems, all[i].problems...), x.problems...)
		return all[i].section.Writer().Symbols(x.sym)
	})
	return problems, err
}

// eachOf gets n things, several at once, and uses each in order. It ends with the first error, which belongs to the
// first thing that has one.
func eachOf[T any](n int, get func(i int) (T, error), use func(i int, x T) error) error {
	type made struct {
		x   T
		err error
	}
	ahead := 4 * runtime.NumCPU() // things in memory
	var batch []made
	for from := 0; from < n; from += len(batch) {
		batch = slices.Grow(batch[:0], ahead)[:min(ahead, n-from)]
		var next atomic.Int64
		var wg sync.WaitGroup
		for range runtime.NumCPU() {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(batch); i = int(next.Add(1)) - 1 {
					batch[i].x, batch[i].err = get(from + i)
				}
			})
		}
		wg.Wait()
		for i := range batch {
			if batch[i].err != nil {
				return batch[i].err
			}
			if err := use(from+i, batch[i].x); err != nil {
				return err
			}
			batch[i] = made{}
		}
	}
	return nil
}

// span is the time of several processes, as of trace.Recording.WholeSpan.
type span struct{ from, to stack.Time }

func (s *span) add(rec *trace.Recording) { s.from, s.to = rec.Widen(s.from, s.to) }

// distinct returns lines without repetitions.
func distinct(lines []string) (out []string) {
	seen := map[string]bool{}
	for _, l := range lines {
		if !seen[l] {
			seen[l] = true
			out = append(out, l)
		}
	}
	return out
}

// forget closes the files of the processes that have ended: their names are in the file, or they are not needed.
func (f *family) forget() {
	f.reading.Lock()
	defer f.reading.Unlock()
	f.mu.Lock()
	all := f.nameless
	f.nameless = nil
	f.mu.Unlock()
	for _, n := range all {
		n.mods.close()
	}
}

// release closes the files.
func (f *family) release() {
	f.forget()
	if f.liveFiles != nil {
		f.liveFiles.Close()
	}
	f.shared.Close()
}

// account adds the processes to the result of the Session, and writes the missing ones to
// rec.
func (f *family) account(res *Result, rec *trace.Recorder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.s.stats()
	own := Recorded{PID: f.s.proc.PID(), Comm: f.s.name(), Threads: res.Threads, Stats: st.Total(), CPU: max(st.Total().CPUNS, res.CPU, st.CPU), Found: f.s.opened, First: f.s.smp.First(), Reason: res.Reason, Exit: res.Exit, IO: res.IO}
	res.Processes = append([]Recorded{own}, f.done...)
	res.LeftOut = f.s.o.Set.Left()
	res.LeftOut.UsedNS = int64(f.s.o.Set.Used())
	for i := range res.Processes {
		res.LeftOut.CPUNS += res.Processes[i].CPU
		res.LeftOut.SampledNS += res.Processes[i].Stats.CPUNS
	}
	for i := range res.LeftOut.Processes {
		res.LeftOut.CPUNS += res.LeftOut.Processes[i].CPU
	}
	res.Problems = append(res.Problems, f.errs...)
	rec.Left(res.LeftOut)
}

// addStats adds the statistics of another process.
func addStats(to, x *trace.Stats) {
	to.Threads = append(to.Threads, x.Threads...)
	to.Unrecorded = append(to.Unrecorded, x.Unrecorded...)
	to.Pause.Add(&x.Pause)
}

// status adds the other processes.
func (f *family) status(out *Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Processes = len(f.live)
	if f.s.proc.Alive() {
		out.Processes++
	}
	for s := range f.live {
		st := s.stats()
		total := st.Total()
		out.Threads += s.smp.Threads()
		out.Total.Add(&total)
		out.Unrecorded = append(out.Unrecorded, st.Unrecorded...)
	}
	for i := range f.done {
		out.Total.Add(&f.done[i].Stats)
	}
	out.LeftOut = f.s.o.Set.Left().Count
	if out.Elapsed == 0 {
		out.Elapsed = time.Duration(max(int64(target.Now())-f.s.begin.Load(), 0))
	}
}

func processError(pid int, err error) string { return fmt.Sprintf("process %d: %s", pid, oneLine(err)) }

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
