package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Recording is a .sliver file opened for reading. Open reads its fields once; events are decoded from the
// file on demand, so memory does not grow with them. It may be used by several goroutines.
type Recording struct {
	Process  Process
	Threads  []Thread // main first, then by start time
	Modules  []Module
	Maps     []Maps // generations, by time
	Captured []Captured
	Waits    map[int]Wait
	Stats    Stats
	Symbols  *Symbols // nil: names were not looked up yet
	Named    bool     // Symbols were looked up after Open; the file does not contain them
	End      *End     // nil: the recorder was killed
	Triggers []Trigger
	Tasks    []Tasks   // by time
	Traced   *Traced   // nil: no calls were traced
	IO       *IO       // nil: no I/O was recorded
	IONames  IONames   // of IO and Ops
	Switches *Switches // nil: no exact context switches were recorded
	Wakers   []Waker   // of Switched
	// KernelStacks are the kernel's functions that threads waited in, innermost first: see Switch.Stack.
	KernelStacks [][]string
	// Problems describe damage that was skipped, one line each.
	Problems []string
	// Others are the other processes of the recording, in the order in which they were
	// taken up. Methods of this Recording leave them out, except All.
	Others []*Recording
	Left   *LeftOut // of a recording of several processes, which ones are not in it; nil: none

	r            io.ReaderAt
	end          int64 // offset after the last complete chunk
	chunks       map[int][]chunkRef
	calls        []chunkRef
	callsOf      *callIndex
	ops          []chunkRef
	switches     map[stack.TID][]chunkRef
	switchChunks int
	less         Kinds // kinds of frames to filter out: see Only
}

type chunkRef struct {
	off    int64
	length int
	crc    uint32
	count  uint64
	base   stack.Time
	bad    bool // Verify found it damaged
}

// Limits on what a reader keeps of a hostile file.
const (
	maxThreads  = 1 << 20
	maxModules  = 1 << 20
	maxProblems = 20
	maxTriggers = 1 << 10
)

// Open reads everything but the events of the recording in r. A tail torn off by a kill loses only the tail
// (End is then nil); damaged chunks are skipped and listed in Problems. ErrForeign and ErrNewer identify
// files that cannot be read at all.
func Open(r io.ReaderAt, size int64) (*Recording, error) { return openKnown(r, size, nil) }

// openKnown is Open. It does not read the chunks that known replaces; nil: it reads all.
func openKnown(r io.ReaderAt, size int64, known *Known) (*Recording, error) {
	head := make([]byte, headerLen)
	if n, err := r.ReadAt(head, 0); err != nil && !(errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("read header: %w", err)
	} else if err := checkHeader(head[:n]); err != nil {
		return nil, err
	}
	rec := &Recording{r: r, chunks: map[int][]chunkRef{}, Waits: map[int]Wait{}, callsOf: &callIndex{}}
	seen := map[int]int{}
	process := known.put(rec)
	var buf []byte
	off := int64(headerLen)
	for off < size {
		typ, length, crc, err := chunkAt(r, off, size)
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				rec.problem(err)
			}
			break
		}
		if typ == chunkSection {
			return openSections(r, size)
		}
		if typ == chunkEvents {
			err = at(off, rec.noteEvents(off, length, crc))
		} else if typ == chunkCalls {
			callRecords.note(&rec.calls, off, length, crc)
		} else if typ == chunkOps {
			opRecords.note(&rec.ops, off, length, crc)
		} else if typ == chunkSwitches {
			err = at(off, rec.noteSwitches(off, length, crc))
		} else if known.replaces(typ) {
			// The caller has its content.
		} else if knownChunk(typ) {
			buf, err = payloadAt(r, off, typ, length, crc, buf)
			if err == nil {
				err = at(off, rec.take(typ, buf, seen))
				process = process || typ == chunkProcess && err == nil
			}
		} else if typ[0] < 'a' {
			return nil, fmt.Errorf("%w: it holds a chunk %q", ErrNewer, typ)
		}
		if err != nil {
			rec.problem(err)
		}
		off += chunkHead + int64(length)
		rec.end = off
	}
	if !process && len(rec.Threads) == 0 {
		return nil, fmt.Errorf("%w: no process in it", ErrForeign)
	}
	sort.SliceStable(rec.Maps, func(i, j int) bool { return rec.Maps[i].At < rec.Maps[j].At })
	sort.SliceStable(rec.Tasks, func(i, j int) bool { return rec.Tasks[i].At < rec.Tasks[j].At })
	sort.SliceStable(rec.Threads, func(i, j int) bool {
		a, b := &rec.Threads[i], &rec.Threads[j]
		if a.Main != b.Main {
			return a.Main
		}
		if a.Born != b.Born {
			return a.Born < b.Born
		}
		return a.Seq < b.Seq
	})
	return rec, nil
}

// at wraps err with the offset of its chunk.
func at(off int64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("offset %d: %w", off, err)
}

func knownChunk(typ string) bool {
	switch typ {
	case chunkProcess, chunkThread, chunkMaps, chunkStats, chunkNames, chunkWait, chunkSymbols, chunkTrigger, chunkTasks, chunkTraced, chunkIO, chunkIONames, chunkSwitched, chunkWakers, chunkKernel, chunkLeft, chunkEnd:
		return true
	}
	return false
}

func (rec *Recording) problem(err error) {
	if len(rec.Problems) < maxProblems {
		rec.Problems = append(rec.Problems, err.Error())
	}
}

func (rec *Recording) noteEvents(off int64, length int, crc uint32) error {
	b := make([]byte, min(length, 40))
	if _, err := rec.r.ReadAt(b, off+chunkHead); err != nil {
		return err
	}
	h, err := parseEventsHead(b)
	if err != nil && len(b) == length {
		return err
	}
	if h.size == 0 {
		return errors.New("event chunk: no head")
	}
	rec.chunks[h.seq] = append(rec.chunks[h.seq], chunkRef{off, length, crc, min(h.count, uint64(length)), h.base, false})
	return nil
}

// take reads one chunk other than events.
func (rec *Recording) take(typ string, b []byte, seen map[int]int) error {
	switch typ {
	case chunkProcess:
		return json.Unmarshal(b, &rec.Process)
	case chunkThread:
		var t Thread
		if err := json.Unmarshal(b, &t); err != nil {
			return err
		}
		if i, ok := seen[t.Seq]; ok {
			if was := &rec.Threads[i]; t.Named > 0 { // otherwise the writer kept only the newest name
				name, at := t.Name, t.Named
				t.Name, t.Named, t.Was = was.Name, was.Named, was.Was
				t.Rename(name, at)
			}
			rec.Threads[i] = t
		} else if len(rec.Threads) < maxThreads {
			seen[t.Seq] = len(rec.Threads)
			rec.Threads = append(rec.Threads, t)
		}
	case chunkMaps:
		var m mapsChunk
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		if m.First != len(rec.Modules) || m.First+len(m.Modules) > maxModules {
			return fmt.Errorf("chunk %s: modules begin at %d, %d are known", typ, m.First, len(rec.Modules))
		}
		rec.Modules = append(rec.Modules, m.Modules...)
		last := uint64(0)
		for _, x := range m.Mappings {
			if x.Module < 0 || x.Module >= len(rec.Modules) || x.End < x.Start || x.Start < last {
				return fmt.Errorf("chunk %s: bad mapping at %#x", typ, x.Start)
			}
			last = x.Start
		}
		rec.Maps = append(rec.Maps, m.Maps)
	case chunkStats:
		var s Stats
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		rec.Stats = s
	case chunkNames:
		var c Captured
		if err := json.Unmarshal(b, &c); err != nil {
			return err
		}
		rec.Captured = append(rec.Captured, c)
	case chunkWait:
		var ws []Wait
		if err := json.Unmarshal(b, &ws); err != nil {
			return err
		}
		for _, w := range ws {
			rec.Waits[w.ID] = w
		}
	case chunkSymbols:
		if rec.Symbols == nil {
			rec.Symbols = &Symbols{}
		}
		return rec.Symbols.parse(b, len(rec.Modules))
	case chunkTrigger:
		var t Trigger
		if err := json.Unmarshal(b, &t); err != nil {
			return err
		}
		if len(rec.Triggers) < maxTriggers {
			rec.Triggers = append(rec.Triggers, t)
		}
	case chunkTasks:
		return rec.takeTasks(b)
	case chunkTraced:
		return rec.takeTraced(b)
	case chunkIO:
		return rec.takeIO(b)
	case chunkIONames:
		return rec.takeIONames(b)
	case chunkSwitched:
		return rec.takeSwitches(b)
	case chunkWakers:
		return rec.takeWakers(b)
	case chunkKernel:
		return rec.takeKernel(b)
	case chunkLeft:
		return rec.takeLeft(b)
	case chunkEnd:
		var e End
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		rec.End = &e
	}
	return nil
}

// Tail returns the offset at which chunks can be appended: after the last complete one.
func (rec *Recording) Tail() int64 { return rec.end }

// Count returns the number of events of thread seq.
func (rec *Recording) Count(seq int) (n uint64) {
	for _, c := range rec.chunks[seq] {
		n += c.count
	}
	return n
}

// Events yields the events of thread seq in the order they were written: changes have the time of the sample that
// found them. A damaged chunk appears as a Gap of stack.WhyLost.
func (rec *Recording) Events(seq int) iter.Seq[event.Event] { return rec.sifted(rec.events(seq)) }

// Fitted yields the events of thread seq in order. If the recording has its context switches, its states are exact
// where those cover the time: see exactly. Otherwise, changes of state have times between two samples that agree
// with the scheduler's account: see fit.
func (rec *Recording) Fitted(seq int) iter.Seq[event.Event] {
	if t := rec.Thread(seq); t != nil && rec.HasSwitches(t.TID) {
		return rec.sifted(exactly(rec.events(seq), rec.Switched(t.TID), t.Born))
	}
	return rec.sifted(fit(rec.events(seq), rec.Maps))
}

// sifted leaves out the frames of filtered kinds.
func (rec *Recording) sifted(events iter.Seq[event.Event]) iter.Seq[event.Event] {
	own := rec.runtimes()
	if own == nil && rec.less&^Runtime == 0 {
		return events // there is nothing to leave out
	}
	return sift(events, AllKinds&^rec.less, own)
}

// events yields the events of thread seq as they were written.
func (rec *Recording) events(seq int) iter.Seq[event.Event] {
	return func(yield func(event.Event) bool) {
		var buf []byte
		last := stack.Time(0)
		for _, c := range rec.chunks[seq] {
			var err error
			buf, err = payloadAt(rec.r, c.off, chunkEvents, c.length, c.crc, buf)
			more := true
			if err == nil {
				more, err = decodeEvents(buf, func(e event.Event) bool {
					last = e.Time
					return yield(e)
				})
			}
			if err != nil {
				if last == 0 { // no event before it; the gap does not start at time 0
					last = rec.since(seq)
				}
				more = yield(event.Make(last, event.Gap, event.GapOf(stack.WhyLost, 0)))
			}
			if !more {
				return
			}
		}
	}
}

// Thread returns the thread of that number. A recording may lack some: then it returns nil.
func (rec *Recording) Thread(seq int) *Thread {
	for i := range rec.Threads {
		if rec.Threads[i].Seq == seq {
			return &rec.Threads[i]
		}
	}
	return nil
}

// since returns when sampling of thread seq began; 0 if unknown.
func (rec *Recording) since(seq int) stack.Time {
	if t := rec.Thread(seq); t != nil {
		return t.Since
	}
	return 0
}

// Verify reads the event chunks and lists damaged ones in Problems, which Open does not check. Call it
// before reading events, from one goroutine.
func (rec *Recording) Verify() {
	var buf []byte
	tids := map[int]stack.TID{}
	for i := range rec.Threads {
		tids[rec.Threads[i].Seq] = rec.Threads[i].TID
	}
	for _, seq := range slices.Sorted(maps.Keys(rec.chunks)) {
		bad, first := 0, error(nil)
		for i := range rec.chunks[seq] {
			c := &rec.chunks[seq][i]
			b, err := payloadAt(rec.r, c.off, chunkEvents, c.length, c.crc, buf)
			if err == nil {
				buf = b
				continue
			}
			c.bad = true
			if bad++; first == nil {
				first = err
			}
		}
		if tid, ok := tids[seq]; bad > 0 && ok {
			rec.problem(fmt.Errorf("%d of %d pieces of thread %d are lost: %w", bad, len(rec.chunks[seq]), tid, first))
		} else if bad > 0 {
			rec.problem(fmt.Errorf("%d pieces of an unknown thread are lost: %w", bad, first))
		}
	}
}

// Begin returns the time of the first tick of any thread. Without events it is the time at which the first
// thread was added, without threads 0. Every output counts times from Begin.
func (rec *Recording) Begin() stack.Time {
	begin, since := stack.Time(math.MaxInt64), stack.Time(math.MaxInt64)
	for i := range rec.Threads {
		t := &rec.Threads[i]
		since = min(since, t.Since)
		for e := range rec.events(t.Seq) {
			if e.Kind() != event.Sync && e.Kind() != event.Enter { // frames of a Sync have earlier times
				begin = min(begin, e.Time)
				break
			}
		}
	}
	if begin == math.MaxInt64 {
		begin = since
	}
	if len(rec.Threads) == 0 {
		return 0
	}
	return max(begin, 0)
}

// Span returns Begin and the last known time of the recording, both 0 without threads.
func (rec *Recording) Span() (from, to stack.Time) {
	if len(rec.Threads) == 0 {
		return 0, 0
	}
	from = rec.Begin()
	for i := range rec.Threads {
		t := &rec.Threads[i]
		for _, c := range rec.chunks[t.Seq] {
			if !c.bad {
				to = max(to, c.base)
			}
		}
		to = max(to, t.Since)
	}
	if rec.End != nil && rec.End.At > from {
		to = max(to, rec.End.At)
	} else {
		// Only the last chunk of each thread can reach further.
		for i := range rec.Threads {
			if cs := rec.chunks[rec.Threads[i].Seq]; len(cs) > 0 {
				for e := range rec.events(rec.Threads[i].Seq) {
					to = max(to, e.Time)
				}
			}
		}
	}
	return from, to
}

// WholeSpan is Span over all processes of the recording.
func (rec *Recording) WholeSpan() (from, to stack.Time) {
	from, to = rec.Span()
	for _, x := range rec.Others {
		from, to = x.Widen(from, to)
	}
	return from, to
}

// Widen returns the time from from to to with the Span of this process; to 0: it has the Span alone.
func (rec *Recording) Widen(from, to stack.Time) (stack.Time, stack.Time) {
	a, b := rec.Span()
	switch {
	case len(rec.Threads) == 0:
		return from, to
	case to == 0: // no process before it has threads
		return a, b
	}
	return min(from, a), max(to, b)
}
