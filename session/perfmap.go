package session

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
)

const (
	// lookEvery is how often the size of a program's perf map is checked and GDB's JIT
	// interface is read. The time of an entry has this precision, or a better one if
	// the entry was written last.
	lookEvery = 50 * time.Millisecond
	// maxPerfMap bounds the stored part of a perf map, in bytes, together with perfShare of the memory
	// that sliver may use; perfPart is how much of it is read and stored at once.
	maxPerfMap = 48 << 20
	perfShare  = 16
	perfPart   = 256 << 10
	// perfLine is the bound's size for an entry: the shortest has six bytes, and takes more than ten times
	// that when names are resolved.
	perfLine = 48
	// maxDumpBytes bounds the stored part of a jitdump, in bytes.
	maxDumpBytes = 192 << 20
	// maxReuses bounds the times at which a JIT compiler's code is distinguished from
	// older code at its addresses. They are lookEvery or more apart. After maxReuses of
	// them the distance doubles for the next maxReuses. A recorder that keeps the last
	// seconds spreads them over those.
	maxReuses = 512
)

// perfBounds returns how many bytes and entries of a perf map are stored.
var perfBounds = sync.OnceValues(func() (size, lines int) {
	memory, _ := limits.Memory()
	size = int(min(maxPerfMap, max(memory/perfShare, perfPart)))
	return size, size / perfLine
})

// perfMap follows the target's descriptions of the code that it generates: its perf
// map, and the files of GDB's JIT interface. Each addition has a time. When code
// replaces other code, perfMap records a generation of the memory, so that an address
// resolves to the code of its time. Changes between two looks count from the first look
// on: a short call of old code may get a wrong name, but not a long one of new code.
// The map stays open and is readable when the process is gone.
type perfMap struct {
	proc *target.Process
	live *live.Target
	mods *modules
	// take receives each part, which is valid from its time on: some lines of the map,
	// or a file. nil: only the times of the map are stored, and of both only the last
	// keep.
	take func(trace.Captured)
	keep time.Duration

	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu      sync.Mutex // guards the fields below
	ended   bool
	f       *safefile.File
	size    int64      // end of the part of f that was read
	looked  stack.Time // time of the last look
	kept    int        // bytes stored
	lines   int        // entries stored
	bad     int        // invalid lines
	dropped int64      // bytes that did not fit
	reuse   symbol.Reuse
	noted   stack.Time // time of the last generation recorded for a reuse
	apart   time.Duration
	left    int  // reuses left at that distance
	pending bool // a reuse came too soon after the last recorded one
	merged  int  // how often that happened
	marks   []mark
	gdb     *gdbJIT
}

func newPerfMap(p *target.Process, l *live.Target, m *modules, take func(trace.Captured), keep time.Duration) *perfMap {
	x := &perfMap{proc: p, live: l, mods: m, take: take, keep: keep, stop: make(chan struct{}), done: make(chan struct{}), apart: max(lookEvery, keep/maxReuses), left: maxReuses}
	x.gdb = newGDBJIT(p, m, nil)
	if take == nil {
		x.gdb.keep = &x.keep
	}
	go x.run()
	return x
}

func (x *perfMap) run() {
	defer close(x.done)
	for {
		x.look(false)
		var next <-chan time.Time
		changed := x.mods.changed
		if madeCode(x.live.Maps()) {
			next, changed = time.After(background.Until(lookEvery)), nil
		}
		select {
		case <-x.stop:
			return
		case <-next:
		case <-changed: // the program may have code of its own now
		}
	}
}

// settle ends the following, with a last look. Call it before modules.settle.
func (x *perfMap) settle() {
	x.once.Do(func() {
		close(x.stop)
		<-x.done
		x.look(true)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ended = true
		if x.f != nil {
			x.f.Close()
			x.f = nil
		}
	})
}

// look reads the additions since the last look: whole lines, or everything in the last
// look.
func (x *perfMap) look(last bool) {
	if !madeCode(x.live.Maps()) {
		return // no generated code: do not look for a map
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return
	}
	now := target.Now()
	since := x.looked
	x.looked = now
	x.objects(since + 1)
	if x.pending && now >= x.noted+stack.Time(x.apart) {
		x.note(now)
	}
	x.open()
	if x.f == nil {
		return
	}
	fi, err := x.f.Stat()
	if err != nil {
		return
	}
	if fi.Size < x.size {
		x.anew() // restart, keeping earlier entries
	}
	if fi.Size > x.size {
		at := since + 1
		// A single new line gets the time of the last write, if the clocks agree. A
		// file's modification time is that of the last tick.
		mono, _, real := target.Clocks()
		if w := stack.Time(mono - (real - fi.Modified)); w > since && w < now {
			at = w
		}
		x.read(fi.Size, since+1, at, last)
	}
}

// objects reads GDB's JIT interface. New files are valid from at on.
func (x *perfMap) objects(at stack.Time) {
	fresh, again := x.gdb.look(target.Now())
	if again {
		at = x.reused(at)
	}
	for _, o := range fresh {
		o.captured.At = at
		if x.take != nil {
			x.take(o.captured)
			o.captured.Data = nil
		}
	}
}

// open makes f the map at the target's current path for it. If that path leads nowhere,
// f is unchanged.
func (x *perfMap) open() {
	f, err := x.proc.PerfMap()
	if err != nil {
		return // most programs have no map
	}
	if x.f != nil {
		if old, now := x.f.Opened(), f.Opened(); old.Dev == now.Dev && old.Inode == now.Inode {
			f.Close()
			return
		}
		x.f.Close()
	}
	x.f = f
	x.anew()
}

// This restarts at the beginning of the map.
func (x *perfMap) anew() {
	x.size = 0
	if x.take == nil {
		x.marks, x.kept, x.lines = nil, 0, 0
	}
}

// read reads the map up to size. New entries are valid from at on, or from alone on if
// there is only one line.
func (x *perfMap) read(size int64, at, alone stack.Time, last bool) {
	for x.size < size {
		if at := min(x.f.NextData(x.size), size); at > x.size {
			x.size = at
			continue
		}
		b := make([]byte, min(perfPart, size-x.size))
		n, err := x.f.ReadAt(b, x.size)
		b = b[:n]
		if !last || x.size+int64(n) < size {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 && n < perfPart {
				return // an incomplete line
			}
			if i >= 0 {
				b = b[:i+1]
			}
		}
		if len(b) == 0 {
			return
		}
		step := int64(len(b))
		kept, bad := symbol.PerfLines(b)
		lines := bytes.Count(kept, []byte{'\n'})
		if room, most := perfBounds(); x.kept+len(kept) > room || x.lines+lines > most {
			x.dropped += size - x.size
			x.size = size
			return
		}
		x.size += step
		x.kept += len(kept)
		x.lines += lines
		x.bad += bad
		if x.size >= size && lines == 1 {
			at = max(at, alone)
		}
		if len(kept) > 0 {
			at = x.part(at, kept)
		}
		if err != nil && err != io.EOF {
			return
		}
	}
}

// part passes on some lines that are valid from at on, or from the time that it
// returns.
func (x *perfMap) part(at stack.Time, b []byte) stack.Time {
	// An error is a fault in the lines: the reader that resolves names reports it.
	if again, _ := x.reuse.Add(bytes.NewReader(b)); again {
		at = x.reused(at)
	}
	if x.take != nil {
		x.take(trace.Captured{What: "perf-map", At: at, Data: b})
	} else {
		x.mark(at)
	}
	return at
}

// reused records that code replaced other code at time at, or a little later, and
// returns that time. Too soon after the last reuse it is deferred.
func (x *perfMap) reused(at stack.Time) stack.Time {
	if x.noted == 0 || at >= x.noted+stack.Time(x.apart) {
		return x.note(at)
	}
	if at > x.noted {
		x.pending = true
		x.merged++
	}
	return at
}

func (x *perfMap) note(at stack.Time) stack.Time {
	x.pending = false
	x.mods.reused(at)
	x.noted = at
	if x.left--; x.left == 0 && x.keep == 0 {
		x.left, x.apart = maxReuses, 2*x.apart
	}
	return x.noted
}

// problems returns the losses caused by the bounds on the map.
func (x *perfMap) problems() (out []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dropped > 0 {
		size, lines := perfBounds()
		out = append(out, fmt.Sprintf("perf map: %d bytes ignored: it exceeds %d bytes or %d entries", x.dropped, size, lines))
	}
	if x.bad > 0 {
		out = append(out, fmt.Sprintf("perf map: %s ignored", plural.Of(x.bad, "invalid line")))
	}
	if x.reuse.Dropped > 0 {
		out = append(out, fmt.Sprintf("perf map: %d replaced pieces of code have unknown times", x.reuse.Dropped))
	}
	if x.merged > 0 {
		out = append(out, fmt.Sprintf("code took the place of other code too often: %d times it is named up to %v too early", x.merged, x.apart))
	}
	return append(out, x.gdb.problems()...)
}

// madeCode reports whether the program has code without a file.
func madeCode(maps []stack.Mapping) bool {
	for _, m := range maps {
		if _, ok := managed.Named(m.Path); !ok && m.Exec && m.Inode == 0 && m.Path != "[vdso]" && m.Path != "[vsyscall]" {
			return true
		}
	}
	return false
}

// mark is the time from which the map up to end, in bytes, is valid.
type mark struct {
	at  stack.Time
	end int64
}

// maxMarks bounds the marks.
const maxMarks = 4096

// mark stores the time of the part just read. Data older than the kept time share one
// mark.
func (x *perfMap) mark(at stack.Time) {
	x.marks = append(x.marks, mark{at, x.size})
	old := 0
	for old+1 < len(x.marks) && (len(x.marks)-old > maxMarks || x.keep > 0 && x.marks[old+1].at < at-stack.Time(x.keep)) {
		old++
	}
	x.marks = append(x.marks[:0], x.marks[old:]...)
}

// parts returns the current map and the files, for a recorder without take.
func (x *perfMap) parts() (out []trace.Captured) {
	x.look(false)
	x.mu.Lock()
	defer x.mu.Unlock()
	from := int64(0)
	for _, o := range x.gdb.kept {
		out = append(out, o.captured)
	}
	if x.f == nil {
		return out
	}
	room, _ := perfBounds()
	for _, m := range x.marks {
		data, err := x.entries(from, m.end, &room)
		out = append(out, trace.Captured{What: "perf-map", At: m.at, Data: data})
		if err != nil {
			break // the program is rewriting it
		}
		from = m.end
	}
	return out
}

// entries returns the entries of a part of the map, at most room bytes of them.
func (x *perfMap) entries(from, end int64, room *int) (out []byte, err error) {
	for from < end {
		if from = x.f.NextData(from); from >= end {
			break
		}
		b := make([]byte, min(perfPart, end-from))
		n, err := x.f.ReadAt(b, from)
		b = b[:n]
		if from+int64(n) < end {
			if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
				b = b[:i+1]
			}
		}
		from += int64(len(b))
		kept, _ := symbol.PerfLines(b)
		if len(kept) > *room {
			return out, nil
		}
		*room -= len(kept)
		out = append(out, kept...)
		if err != nil || n == 0 {
			return out, err
		}
	}
	return out, nil
}
