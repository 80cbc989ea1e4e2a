// Package flight is the recorder that keeps the last seconds. The samples of all
// threads go into rings that are as large as that time needs, and nothing is written
// until a Copy is requested. If the rings are in a file, Recover makes the same Copy
// from what a killed program left.
//
// It has no access to the process or its files: its callers report the mappings.
// The methods of a Recorder may be called from any goroutine; a Sink belongs to the
// goroutine that samples its thread.
package flight

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Options configure a Recorder.
type Options struct {
	// Keep is how much of each thread is kept, in ns, while memory lasts; 0: as much as
	// fits.
	Keep int64
	// Memory holds the rings. The Recorder does not close it.
	Memory *ringfile.Memory
}

// Recorder keeps the last seconds of one process.
type Recorder struct {
	keep int64
	mem  *ringfile.Memory

	// inUse is read-locked while rings are read, and write-locked while memory of old
	// ones is released.
	inUse sync.RWMutex

	mu       sync.Mutex // guards the fields below
	process  trace.Process
	sinks    []*Sink // by Seq, without those whose last events are too old
	next     int
	modules  map[int]*trace.Module
	nmod     int
	maps     []trace.Maps // Mapping.Module is an index into all modules ever added
	captured []trace.Captured
	fresh    []trace.Captured // see Recapture
	waits    map[int]trace.Wait
	stats    trace.Stats
	logged   map[int]int // number in the log of each module in it
	logFull  bool

	retired     retired
	all         atomic.Pointer[[]*Sink]
	short       atomic.Uint64
	generations atomic.Uint64
}

// retired are blocks whose rings have moved.
type retired struct {
	mu     sync.Mutex
	blocks []*ringfile.Block
}

// New returns a Recorder for the process p.
func New(p trace.Process, o Options) *Recorder {
	r := &Recorder{keep: o.Keep, mem: o.Memory, process: p, modules: map[int]*trace.Module{}, waits: map[int]trace.Wait{}}
	r.all.Store(new([]*Sink))
	r.mu.Lock()
	r.rewriteLog()
	r.mu.Unlock()
	return r
}

// Thread starts the record of one thread and assigns its Seq.
func (r *Recorder) Thread(t trace.Thread) *Sink {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Seq = r.next
	r.next++
	s := &Sink{rec: r, thread: t}
	b, err := r.mem.Ring(uint64(t.Seq), 0)
	if err == nil {
		s.block.Store(b)
		s.ring.Store(b.Ring)
	} else {
		// It is sampled anyway, and can be dumped, but a ring file lacks it.
		r.short.Add(1)
		s.ring.Store(ringbuf.New(ringfile.MinRing))
	}
	r.sinks = append(r.sinks, s)
	r.publish()
	r.log(func(w *trace.Writer) error { return w.Thread(t) })
	if b != nil {
		b.Publish()
	}
	return s
}

// SetInterval records that threads are sampled at another interval from now on, in ns.
// Copies, and the file of a killed recorder, have the last interval.
func (r *Recorder) SetInterval(ns int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := &r.process; p.Interval > 0 {
		p.Jitter = int64(float64(p.Jitter) / float64(p.Interval) * float64(ns))
	}
	r.process.Interval = ns
	r.rewriteLog()
}

// Replaced records that exec replaced the process's program, like trace.Recorder.Replaced.
func (r *Recorder) Replaced(comm, exe string, cmdline []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process.Replaced(comm, exe, cmdline)
	r.log(func(w *trace.Writer) error { return w.Process(r.process) })
}

func (r *Recorder) publish() { r.all.Store(new(slices.Clone(r.sinks))) }

// maxNames bounds how many earlier names of a thread are kept. A pool may rename its threads for each
// request, and the rings hold only the last of them.
const maxNames = 64

// Renamed records the new name of the newest thread with that tid, from at on.
func (r *Recorder) Renamed(tid stack.TID, name string, at stack.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.sinks) - 1; i >= 0; i-- {
		s := r.sinks[i]
		if s.thread.TID != tid {
			continue
		}
		if !s.thread.Rename(name, at) {
			return
		}
		if n := len(s.thread.Was); n > maxNames {
			s.thread.Was = slices.Clone(s.thread.Was[n-maxNames:])
		}
		newest := s.thread
		newest.Was = nil // the log has them
		r.log(func(w *trace.Writer) error { return w.Thread(newest) })
		return
	}
}

// Info returns the description of a sink's thread.
func (r *Recorder) Info(s *Sink) trace.Thread {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.thread
}

// Sinks returns the threads with kept data, in order of Seq.
func (r *Recorder) Sinks() []*Sink { return *r.all.Load() }

// Maps adds a generation of the address space; Mapping.Module is an index into all
// modules ever added, and mods are the new ones.
func (r *Recorder) Maps(m trace.Maps, mods []trace.Module) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range mods {
		r.modules[r.nmod] = &mods[i]
		r.nmod++
	}
	// A generation of the same time replaces the previous one.
	r.maps = append(r.maps, m)
	slices.SortStableFunc(r.maps, func(a, b trace.Maps) int { return cmp.Compare(a.At, b.At) })
	r.log(func(w *trace.Writer) error { return r.writeMaps(w, &m, r.logged) })
	r.generations.Add(1)
}

// Generations is the number of changes of the address space so far.
func (r *Recorder) Generations() uint64 { return r.generations.Load() }

// Located is code at an address.
type Located struct {
	ID     int // the module's number
	Module trace.Module
	Vaddr  uint64 // the address in its file, or in memory if the module has no segments
	Named  uint64 // the address in its name, if it has no symbol: see trace.Module.Place
}

// Locate returns the code at addr, a lookup address, at time t.
func (r *Recorder) Locate(addr uint64, t stack.Time) (l Located, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := len(r.maps) - 1
	for g > 0 && r.maps[g].At > t {
		g--
	}
	for ; g >= 0 && g < len(r.maps); g++ { // maps are read when an address is first seen: later generations count too
		ms := r.maps[g].Mappings
		i, _ := slices.BinarySearchFunc(ms, addr, func(x trace.Mapping, a uint64) int {
			if x.End <= a {
				return -1
			}
			return 1
		})
		if i < len(ms) && addr >= ms[i].Start {
			if p := r.modules[ms[i].Module]; p != nil {
				l = Located{ID: ms[i].Module, Module: *p, Vaddr: addr, Named: p.Place(&ms[i], addr)}
				if v, ok := p.Vaddr(addr - ms[i].Start + ms[i].Off); ok {
					l.Vaddr = v
				}
				return l, true
			}
		}
	}
	return l, false
}

// EachModule calls yield with each module that is mapped now, until it returns false:
// its number, and a function that converts an address of its file to an address in
// memory, if it is mapped.
func (r *Recorder) EachModule(yield func(id int, m *trace.Module, addr func(vaddr uint64) (uint64, bool)) bool) {
	r.mu.Lock()
	var last trace.Maps
	if len(r.maps) > 0 {
		last = r.maps[len(r.maps)-1]
	}
	mods := map[int]*trace.Module{}
	for _, m := range last.Mappings {
		if p := r.modules[m.Module]; p != nil {
			mods[m.Module] = p
		}
	}
	r.mu.Unlock()
	ids := slices.Sorted(maps.Keys(mods))
	for _, id := range ids {
		addr := func(vaddr uint64) (uint64, bool) {
			for _, m := range last.Mappings {
				first, ok := mods[id].Vaddr(m.Off)
				if m.Module == id && ok && vaddr >= first && vaddr-first < m.End-m.Start {
					return m.Start + (vaddr - first), true
				}
			}
			return 0, false
		}
		if !yield(id, mods[id], addr) {
			return
		}
	}
}

// Capture stores bytes of the target that may be gone later.
func (r *Recorder) Capture(c trace.Captured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.captured = append(r.captured, c)
	r.log(func(w *trace.Writer) error { return w.Captured(c) })
}

// Recapture stores bytes for the next Copy only: they can be captured again, so the log
// does not contain them.
func (r *Recorder) Recapture(c []trace.Captured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh = c
}

// Waits adds descriptions for event.Wait.
func (r *Recorder) Waits(ws []trace.Wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ws {
		r.waits[w.ID] = w
	}
	r.log(func(w *trace.Writer) error { return w.Waits(ws) })
}

// Stats records the statistics so far.
func (r *Recorder) Stats(s trace.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats = s
}

// Short counts rings that could not get the memory for the time to keep: fewer seconds
// of that thread are kept.
func (r *Recorder) Short() uint64 { return r.short.Load() }

// Reading calls f, which may read cursors on the rings.
func (r *Recorder) Reading(f func()) {
	r.inUse.RLock()
	defer r.inUse.RUnlock()
	f()
}

// Tidy drops data that ended longer than the kept time before now, and returns the
// numbers of unreferenced modules. Call it about once a second.
func (r *Recorder) Tidy(now stack.Time) (dropped []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := now - stack.Time(r.window())
	var gone []*Sink
	kept := r.sinks[:0:0]
	for _, s := range r.sinks {
		if at := s.ended.Load(); r.keep > 0 && at != 0 && stack.Time(at) < old {
			gone = append(gone, s)
		} else {
			kept = append(kept, s)
		}
	}
	if r.keep == 0 {
		kept, gone = r.squeeze()
	}
	if len(gone) > 0 {
		r.sinks = kept
		r.publish()
	}
	// The generation valid at the start of the window stays, and all after it.
	first := 0
	for first+1 < len(r.maps) && r.keep > 0 && r.maps[first+1].At < old {
		first++
	}
	if first > 0 {
		r.maps = slices.Clone(r.maps[first:])
		r.maps[0].At = 0
		used := map[int]bool{}
		for i := range r.maps {
			for _, m := range r.maps[i].Mappings {
				used[m.Module] = true
			}
		}
		for id := range r.modules {
			if !used[id] {
				dropped = append(dropped, id)
				delete(r.modules, id)
			}
		}
		slices.Sort(dropped)
	}
	if r.logFull {
		r.rewriteLog()
	}
	if r.inUse.TryLock() { // otherwise next time
		r.retired.mu.Lock()
		blocks := r.retired.blocks
		r.retired.blocks = nil
		r.retired.mu.Unlock()
		for _, b := range blocks {
			b.Ring.Abandon()
			r.mem.Free(b)
		}
		for _, s := range gone {
			if b := s.block.Load(); b != nil {
				b.Ring.Abandon()
				r.mem.Free(b)
			}
		}
		r.inUse.Unlock()
	} else {
		for _, s := range gone {
			if b := s.block.Load(); b != nil {
				r.retire(b)
			}
		}
	}
	return dropped
}

// squeeze selects ended threads to drop if only the memory bounds the kept data: the
// oldest first, until a part of it is free.
func (r *Recorder) squeeze() (kept, gone []*Sink) {
	used, size := r.mem.Used()
	kept = r.sinks
	if used < size-size/4 {
		return kept, nil
	}
	kept = nil
	for _, s := range r.sinks {
		if b := s.block.Load(); s.ended.Load() != 0 && b != nil && used >= size-size/4 {
			gone = append(gone, s)
			used -= int64(b.Ring.Cap()) * 16
		} else {
			kept = append(kept, s)
		}
	}
	return kept, gone
}

func (r *Recorder) retire(b *ringfile.Block) {
	r.retired.mu.Lock()
	r.retired.blocks = append(r.retired.blocks, b)
	r.retired.mu.Unlock()
}

// window is how far back events are needed to show Keep ns: a reader starts at a Sync.
func (r *Recorder) window() int64 { return r.keep + syncEvery + syncEvery/2 }
