package trace

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Limits between ring and file.
const (
	// DefaultRingCap events of 16 bytes hold the stack changes of a busy thread in about
	// 100 ms at 1 kHz, twice the time between two drains.
	DefaultRingCap = 1 << 13

	drainEvery = 50 * time.Millisecond // rings are emptied this often: see sparseEvery
	flushEvery = time.Second           // the most that a kill -9 may lose
	flushBytes = 48 << 10
	syncEvery  = 5_000_000_000 // ns: a full stack is written at least this often
)

// Recorder writes the samples of all threads through rings to a file. Its methods may be
// called from any goroutine; each Sink belongs to the goroutine that samples its thread.
// The sampling side never waits for the file: if the file is too slow, Sink.Full reports
// it.
//
// Lock order: drainMu, then mu, which the drain holds for a few chunks at a time.
type Recorder struct {
	ringCap int // as given; 0: by the number of threads

	mu      sync.Mutex // guards w, process, sinks, renamed, nmod and failed
	w       *Writer
	process Process
	sinks   []*Sink
	renamed map[int]*Thread // threads with their names over time, by Seq
	nmod    int
	failed  error

	drainMu sync.Mutex // guards the reading side of sinks, and the fields below
	scratch []ringbuf.Event
	buf     []byte
	pending []*Sink // sinks with encoded events that are not written yet
	swept   time.Time

	dirty  atomic.Pointer[Sink]    // first sink with unread events; the list continues in Sink.next
	memory atomic.Int64            // capacity of the newest rings of all sinks, in events
	all    atomic.Pointer[[]*Sink] // for live readers
	loop   drainLoop
	onFail func(error)
}

// NewRecorder writes p and starts to drain rings into w every 50 ms, or earlier if one is
// half full, every 200 ms while they are nearly empty, and at the next event while they are empty. ringCap is in events; 0 means DefaultRingCap, or less for each of many
// threads. onFail, if not nil, is called once when the file can no longer be written.
func NewRecorder(w *Writer, p Process, ringCap int, onFail func(error)) (*Recorder, error) {
	r := &Recorder{
		ringCap: ringCap, w: w, process: p, loop: drainLoop{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})},
		scratch: make([]ringbuf.Event, 1024), onFail: onFail, renamed: map[int]*Thread{},
	}
	r.all.Store(new([]*Sink))
	if err := r.json(chunkProcess, p); err != nil {
		return nil, err
	}
	go r.runDrain()
	return r, nil
}

func (r *Recorder) json(typ string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", typ, err)
	}
	return r.w.chunk(typ, b)
}

func (r *Recorder) locked(typ string, v any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.json(typ, v)
}

// Process returns the description of the target.
func (r *Recorder) Process() Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// Replaced records that the process executed another program. The recording describes the
// last one.
func (r *Recorder) Replaced(comm, exe string, cmdline []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process.Replaced(comm, exe, cmdline)
	r.note(r.json(chunkProcess, r.process))
}

// Thread begins the record of one thread and assigns its Seq.
func (r *Recorder) Thread(t Thread) *Sink {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Seq = len(r.sinks)
	s := &Sink{Thread: t, rec: r, first: ringbuf.New(r.ringFor(len(r.sinks)))}
	s.ring, s.cursor = s.first, s.first.NewCursor()
	s.enc.reset(t.Seq)
	r.memory.Add(int64(s.ring.Cap()))
	r.sinks = append(r.sinks, s)
	all := r.sinks[:len(r.sinks):len(r.sinks)]
	r.all.Store(&all)
	r.note(r.json(chunkThread, t))
	return s
}

// Renamed records the new name of the thread most recently added with tid, from at on.
func (r *Recorder) Renamed(tid stack.TID, name string, at stack.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.sinks) - 1; i >= 0; i-- {
		if r.sinks[i].Thread.TID != tid {
			continue
		}
		t, ok := r.renamed[i]
		if !ok {
			first := r.sinks[i].Thread // readers use it without the lock: it keeps its name
			t = &first
			r.renamed[i] = t
		}
		if t.Rename(name, at) {
			r.note(r.json(chunkThread, *t))
		}
		return
	}
}

// Sinks returns the threads recorded so far, in order of Seq. Live readers create cursors
// on their rings.
func (r *Recorder) Sinks() []*Sink { return *r.all.Load() }

// Maps adds a generation of the address space. Mapping.Module counts across all modules
// ever added; mods are the new ones.
func (r *Recorder) Maps(m Maps, mods []Module) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(r.json(chunkMaps, mapsChunk{Maps: m, First: r.nmod, Modules: mods}))
	r.nmod += len(mods)
}

// Capture stores bytes of the target that may not exist later.
func (r *Recorder) Capture(c Captured) { r.noteLocked(chunkNames, c) }

// Waits adds descriptions for event.Wait.
func (r *Recorder) Waits(w []Wait) { r.noteLocked(chunkWait, w) }

// Stats writes the current statistics.
func (r *Recorder) Stats(s Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addOverwritten(&s)
	r.note(r.json(chunkStats, s))
}

func (r *Recorder) noteLocked(typ string, v any) { r.note(r.locked(typ, v)) }

// note keeps the first failure and reports it once.
func (r *Recorder) note(err error) {
	if err != nil && r.failed == nil {
		r.failed = err
		if r.onFail != nil {
			go r.onFail(err) // in a goroutine, as the caller may hold locks that onFail needs
		}
	}
}

// Close drains the rings, writes the last statistics and the end, and stops. All sinks
// must be idle. It returns the first error of the whole recording and the statistics with
// the overwritten events.
func (r *Recorder) Close(s Stats, e End) (Stats, error) {
	close(r.loop.stop)
	<-r.loop.done
	r.drain(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addOverwritten(&s)
	r.note(r.json(chunkStats, s))
	r.note(r.json(chunkEnd, e))
	return s, r.failed
}

// Sink receives the samples of one thread. Sample, Gap, Mark, Event and End are for the
// goroutine that samples it.
type Sink struct {
	Thread Thread

	rec      *Recorder
	differ   diff.Differ
	ring     *ringbuf.Ring
	first    *ringbuf.Ring
	events   []event.Event
	batch    []ringbuf.Event
	lastSync stack.Time
	sinceAsk uint64

	next  *Sink         // next in the list of Recorder.dirty
	noted atomic.Bool   // it is in that list
	read  atomic.Uint64 // number of the first event that the drain has not read

	// Reading side, guarded by rec.drainMu.
	cursor      *ringbuf.Cursor
	enc         eventEncoder
	queued      bool      // it is in Recorder.pending
	oldest      time.Time // when it was added there
	lastTime    stack.Time
	skipping    bool
	peak        float64 // highest fill level when the ring was emptied, as a share
	overwritten atomic.Uint64
}

// Ring returns the first ring for a live reader; its cursors continue on later rings.
func (s *Sink) Ring() *ringbuf.Ring { return s.first }

// Sample records one sample of the thread.
func (s *Sink) Sample(x *stack.Sample) {
	s.events = s.differ.Step(x, s.events[:0])
	depth := s.differ.Depth()
	// A ring must hold several whole stacks, otherwise its readers find none to start
	// from.
	if 4*depth > s.ring.Cap() {
		s.grow(8 * depth)
	}
	if s.lastSync == 0 {
		s.lastSync = x.Time // the first step wrote one
	}
	if s.differ.SinceSync() > s.ring.Cap()/4 || s.differ.SinceSync() > 0 && int64(x.Time-s.lastSync) > syncEvery+int64(depth)*1_000_000 {
		s.events = s.differ.Sync(s.events)
		s.lastSync = x.Time
	}
	s.put()
}

// Gap records that samples are missing before t; ns is the time they would have covered.
func (s *Sink) Gap(t stack.Time, why stack.Why, ns int64) {
	s.events = s.differ.Gap(t, why, ns, s.events[:0])
	s.put()
}

// Event records an event of a kind that does not concern frames.
func (s *Sink) Event(t stack.Time, k event.Kind, payload uint64) {
	s.events = s.differ.Event(t, k, payload, s.events[:0])
	s.put()
}

// End records that the thread's frames end at t, and why.
func (s *Sink) End(t stack.Time, why stack.Why) {
	s.events = s.differ.End(t, why, s.events[:0])
	s.put()
}

// Flush makes the samples so far visible to readers.
func (s *Sink) Flush() {
	s.events = s.differ.Flush(s.events[:0])
	s.put()
}

func (s *Sink) put() {
	if len(s.events) == 0 {
		return
	}
	s.batch = s.batch[:0]
	for _, e := range s.events {
		s.batch = append(s.batch, ringbuf.Event{uint64(e.Time), e.Value})
	}
	if s.waiting() > s.ring.Cap()/2 {
		s.makeRoom()
	}
	s.ring.AppendAll(s.batch)
	s.note()
	s.sinceAsk += uint64(len(s.batch))
	if s.sinceAsk > uint64(s.ring.Cap()/4) {
		s.sinceAsk = 0
		s.rec.loop.poke()
	}
}

// take encodes events read from the ring. After a loss it skips events up to the next
// Sync, as they cannot be interpreted.
func (s *Sink) take(es []ringbuf.Event, lost uint64) {
	if lost > 0 {
		s.overwritten.Add(lost)
		if !s.skipping {
			s.skipping = true
			s.enc.add(event.Make(s.lastTime, event.Gap, event.GapOf(stack.WhyLost, 0)))
		}
	}
	for _, e := range es {
		ev := event.Event{Time: stack.Time(e[0]), Value: e[1]}
		if s.skipping {
			if ev.Kind() != event.Sync {
				s.overwritten.Add(1)
				continue
			}
			s.skipping = false
		}
		s.lastTime = max(s.lastTime, ev.Time)
		s.enc.add(ev)
	}
}
