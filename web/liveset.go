package web

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/store"
)

// LiveSetOptions configure a LiveSet.
type LiveSetOptions struct {
	// Window and Poll are as in LiveOptions. The recording has all processes.
	Window func(from stack.Time) (rec *trace.Recording, release func(), err error)
	Poll   time.Duration
	// Left returns the processes that are left out; nil: none are.
	Left func() *trace.LeftOut
}

// LiveSet is the source of a recording of several processes in progress. Processes join it while it runs, the
// first one before. All write to one store, whose bounds hold for all of them together. Its methods may be
// called from any goroutine.
type LiveSet struct {
	o LiveSetOptions
	ending
	crossed crossed

	mu      sync.Mutex
	all     []*LiveProcess // by number
	byID    map[processID]int
	threads []setThread // by number
	waits   []setWait   // by number and one
	version int         // changes with the description of a process
	// forgotten counts the processes and threads that are not on the timeline any more.
	forgotten struct{ processes, threads int }
}

// LiveProcess is one process of a LiveSet. Its methods may be called from any goroutine.
type LiveProcess struct {
	liveProcess
	o      LiveOptions
	set    *LiveSet
	number int

	// Guarded by set.mu.
	ended   bool // no more samples will come
	about   analysis.Process
	version int // of the set when about changed
	process trace.Process
	threads []int              // numbers by Seq
	waits   map[int]int        // numbers by ID
	texts   map[int]trace.Wait // by ID; filled by release
}

// processID identifies a process: a PID may be used again.
type processID struct {
	pid   int
	start stack.Time
}

type setThread struct {
	of  *LiveProcess
	seq int
}

type setWait struct {
	of *LiveProcess
	id int
}

// NewLiveSet returns a LiveSet without processes.
func NewLiveSet(o LiveSetOptions) *LiveSet {
	if o.Poll <= 0 {
		o.Poll = defaultPoll
	}
	return &LiveSet{o: o, ending: ending{ended: make(chan struct{})}, byID: map[processID]int{}}
}

// Join adds a process. Of o, Namer, Wait and Traced are used; they must work until the names of the process are found,
// which may be after its End.
func (l *LiveSet) Join(r *trace.Recorder, o LiveOptions) *LiveProcess {
	p := &LiveProcess{liveProcess: liveProcess{rec: r, every: flushes(l.o.Poll), names: map[stack.TID]string{}}, o: o, set: l, waits: map[int]int{}, process: r.Process()}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.number = len(l.all)
	l.all = append(l.all, p)
	l.byID[processID{p.process.PID, p.process.StartTime}] = p.number
	p.describe()
	return p
}

// End says that no more samples of the process will come; gone: it has ended, exit: how, nil if that is not known. The
// sinks must be idle.
func (p *LiveProcess) End(gone bool, exit *trace.Exit) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.ended = true
	if gone {
		p.about.Ended, p.about.Exit = true, analysis.ExitText(exit)
		p.change()
	}
}

// change and describe are called with set.mu held.
func (p *LiveProcess) change() {
	p.set.version++
	p.version = p.set.version
}

func (p *LiveProcess) describe() {
	now := analysis.ProcessOf(&p.process)
	now.Ended, now.Exit = p.about.Ended, p.about.Exit
	if p.version == 0 || !now.Equal(&p.about) {
		p.about = now
		p.change()
	}
}

// Forgotten returns the number of processes that have ended and are not on the timeline any more, because it has
// too many threads. The recording has them.
func (l *LiveSet) Forgotten() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forgotten.processes
}

// Process describes the first process, by whose clocks the page counts.
func (l *LiveSet) Process() trace.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return trace.Process{}
	}
	return l.all[0].process
}

// Live implements Source.
func (l *LiveSet) Live() bool { return true }

// Notes implements Source.
func (l *LiveSet) Notes() []string {
	if l.o.Left == nil {
		return nil
	}
	return l.o.Left().Lines()
}

// Wait implements Source.
func (l *LiveSet) Wait(id int) (trace.Wait, bool) {
	l.mu.Lock()
	if id <= 0 || id > len(l.waits) {
		l.mu.Unlock()
		return trace.Wait{}, false
	}
	w := l.waits[id-1]
	ask := w.of.o.Wait
	if ask == nil {
		d, ok := w.of.texts[w.id]
		l.mu.Unlock()
		return d, ok
	}
	l.mu.Unlock()
	return ask(w.id)
}

// maxSetWaits limits the descriptions of waits of all processes; further ones are not described.
const maxSetWaits = 1 << 20

// wait returns the number of a description of a process.
func (p *LiveProcess) wait(id int) int {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	n := p.waits[id]
	if n == 0 && id > 0 && len(p.set.waits) < maxSetWaits {
		p.set.waits = append(p.set.waits, setWait{p, id})
		n = len(p.set.waits)
		p.waits[id] = n
	}
	return n
}

// Recording implements recorded.
func (l *LiveSet) Recording(from stack.Time) (*trace.Recording, func(), error) {
	if l.o.Window == nil {
		return nil, nil, errNoAnalysis
	}
	return l.o.Window(from)
}

// described implements ofProcesses.
func (l *LiveSet) described() []analysis.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]analysis.Process, len(l.all))
	for i, p := range l.all {
		out[i] = p.about
	}
	return out
}

// since implements joined.
func (l *LiveSet) since(version int) (map[int]analysis.Process, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version >= l.version {
		return nil, l.version
	}
	out := map[int]analysis.Process{}
	for i, p := range l.all {
		if p.version > version {
			out[i] = p.about
		}
	}
	return out, l.version
}

// split implements ofProcesses.
func (l *LiveSet) split(rec *trace.Recording, threads []int) (out []processPart) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := map[int][]int{} // by process
	for _, t := range threads {
		if t >= 0 && t < len(l.threads) {
			x := l.threads[t]
			own[x.of.number] = append(own[x.of.number], x.seq)
		}
	}
	for _, one := range rec.All() {
		i, ok := l.byID[processID{one.Process.PID, one.Process.StartTime}]
		if !ok || threads != nil && own[i] == nil {
			continue
		}
		out = append(out, processPart{rec: one, process: i, threads: own[i], number: numberAmong(l.all[i].threads)})
	}
	return out
}

// maxSetThreads is how many threads the timeline has before those of processes that have ended are forgotten, the
// earliest first. Threads that are still sampled stay.
const maxSetThreads = 4096

// describeEvery is how often, in polls, the names of processes are read again.
const describeEvery = 16

// setReader is the state of LiveSet.Run.
type setReader struct {
	l      *LiveSet
	st     *store.Store
	queue  *nameQueue
	polls  int
	known  int // processes that have a reader, or had one
	active []*processReader
	ended  []*LiveProcess // whose threads the store has, in the order of their ends
}

type processReader struct {
	liveReader
	of *LiveProcess
}

// Run implements Source.
func (l *LiveSet) Run(ctx context.Context, st *store.Store) (string, error) {
	q := newNameQueue(st)
	r := &setReader{l: l, st: st, queue: q}
	return l.read(ctx, st, q, l.o.Poll, r.poll, r.finish)
}

func (r *setReader) poll() {
	l := r.l
	l.mu.Lock()
	fresh := l.all[r.known:]
	l.mu.Unlock()
	for _, p := range fresh {
		r.active = append(r.active, r.begin(p))
	}
	r.known += len(fresh)
	describe := r.polls%describeEvery == 0
	r.polls++
	kept := r.active[:0]
	for _, x := range r.active {
		l.mu.Lock()
		ended := x.of.ended
		l.mu.Unlock()
		x.poll()
		if describe || ended {
			now := x.of.rec.Process()
			l.mu.Lock()
			x.of.process = now
			x.of.describe()
			l.mu.Unlock()
		}
		if !ended {
			kept = append(kept, x)
			continue
		}
		x.finish()
		x.asks.then(x.of.release)
		r.ended = append(r.ended, x.of)
	}
	clear(r.active[len(kept):])
	r.active = kept
	r.trim()
}

// trim bounds the number of threads.
func (r *setReader) trim() {
	l := r.l
	l.mu.Lock()
	held := len(l.threads) - l.forgotten.threads
	l.mu.Unlock()
	for held > maxSetThreads && len(r.ended) > 0 {
		p := r.ended[0]
		r.ended = r.ended[1:]
		for _, seq := range p.threads { // no more come
			r.st.Remove(seq)
		}
		held -= len(p.threads)
		l.mu.Lock()
		l.forgotten.threads += len(p.threads)
		l.forgotten.processes++
		l.mu.Unlock()
	}
}

func (r *setReader) finish() {
	for _, x := range r.active {
		x.finish()
	}
}

func (r *setReader) begin(p *LiveProcess) *processReader {
	x := &processReader{of: p}
	x.liveReader = liveReader{l: &p.liveProcess, st: r.st, asks: newAsks(p.o.Namer, r.st, r.queue), info: p.adopt, edit: p.edit}
	x.asks.again = true
	x.trace(&p.o)
	return x
}

// adopt numbers a thread among those of all processes.
func (p *LiveProcess) adopt(in *store.Info) {
	l := p.set
	l.mu.Lock()
	defer l.mu.Unlock()
	own := in.Seq
	in.Seq, in.Process = len(l.threads), p.number
	l.threads = append(l.threads, setThread{p, own})
	p.threads = append(p.threads, in.Seq)
}

func (p *LiveProcess) edit(e event.Event) event.Event {
	if e.Kind() != event.Wait {
		return e
	}
	return event.Make(e.Time, event.Wait, uint64(p.wait(waitID(e))))
}

// release drops what only a running process needs: rings and names. The descriptions of waits that the timeline
// has are kept.
func (p *LiveProcess) release() {
	l := p.set
	l.mu.Lock()
	ids := slices.Collect(maps.Keys(p.waits))
	ask := p.o.Wait
	l.mu.Unlock()
	texts := map[int]trace.Wait{}
	for _, id := range ids {
		if ask == nil {
			break
		}
		if d, ok := ask(id); ok {
			texts[id] = d
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.o, p.texts, p.waits = LiveOptions{}, texts, nil
	p.rec = nil
}
