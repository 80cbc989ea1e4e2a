package session

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
)

const (
	// lookEvery is how often the size of a program's perf map is asked for, and
	// GDB's JIT interface looked at: an entry's time is known to that, and better
	// where it was the last one written.
	lookEvery = 50 * time.Millisecond
	// maxPerfMap bounds what is kept of a perf map, in bytes; perfPart how much
	// of it is read and kept at once.
	maxPerfMap = 48 << 20
	perfPart   = 256 << 10
	// maxPerfLines bounds the entries that are kept: the shortest has six bytes,
	// and takes more than ten times that where names are looked up.
	maxPerfLines = 1 << 20
	// maxDumpBytes bounds the stored part of a jitdump, in bytes.
	maxDumpBytes = 192 << 20
	// maxReuses is at how many times, each lookEvery after the one before or
	// later, the code of a JIT compiler is told apart from what was at its
	// addresses before; when they are used up, so many more are had at twice the
	// distance. A recorder that keeps the last seconds spreads them over those.
	maxReuses = 512
)

// perfMap follows what the target says of the code that it makes while it runs:
// its perf map, and the files of GDB's JIT interface. What is added has a time,
// and where code takes the place of other code a generation of the memory is
// noted, so that an address means what was there at the time. What came between
// two looks counts from the first of them on: a short call of old code may be
// named wrongly for that, but not a long one of new code. The map stays open,
// and can be read when the process is gone.
type perfMap struct {
	proc *target.Process
	live *live.Target
	mods *modules
	// take is handed each part, which is true from its time on: some lines of the
	// map, or a file. nil: of the map times alone are kept, and of both what is
	// as old as keep says.
	take func(trace.Captured)
	keep time.Duration

	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu      sync.Mutex // guards what follows
	ended   bool
	f       *safefile.File
	size    int64      // up to which f has been read
	looked  stack.Time // when
	kept    int        // bytes
	lines   int        // entries in them
	bad     int        // lines that are none
	dropped int64      // bytes that there was no room for
	reuse   symbol.Reuse
	noted   stack.Time // the last reuse's generation
	apart   time.Duration
	left    int  // how many more at that distance
	pending bool // a reuse came too soon after the last one noted
	merged  int  // how often that was so
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
		case <-changed: // there may be code of its own now
		}
	}
}

// settle ends the following, with a last look. It is to be called before
// modules.settle.
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

// look reads what was added since the last look: whole lines, or all of it
// where it is the last look.
func (x *perfMap) look(last bool) {
	if !madeCode(x.live.Maps()) {
		return // no code of its own: no reason to ask for a map
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
		x.anew() // what was true before is known
	}
	if fi.Size > x.size {
		at := since + 1
		// A line that came alone is as of the last write, if that is what the
		// clocks say. The time of a file is that of the last tick.
		mono, _, real := target.Clocks()
		if w := stack.Time(mono - (real - fi.Modified)); w > since && w < now {
			at = w
		}
		x.read(fi.Size, since+1, at, last)
	}
}

// objects looks at GDB's JIT interface.
// What is new is true from at on.
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

// open sees to it that f is the map as the target's name for it says; where
// that leads nowhere any more, f stays what it was.
func (x *perfMap) open() {
	f, err := x.proc.PerfMap()
	if err != nil {
		return // most programs have none
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

// anew begins at the start of the map.
func (x *perfMap) anew() {
	x.size = 0
	if x.take == nil {
		x.marks, x.kept, x.lines = nil, 0, 0
	}
}

// read reads the map up to size. What it reads is true from at on, or from alone
// on where it is one line.
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
				return // a line that is being written
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
		if x.kept+len(kept) > maxPerfMap || x.lines+lines > maxPerfLines {
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

// part hands on some lines that are true from at on, or from the time that it
// returns.
func (x *perfMap) part(at stack.Time, b []byte) stack.Time {
	// An error is what is wrong with the lines: who names by them tells it.
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

// reused notes that code has taken the place of other code at the time at, or a
// little later, which it returns. Too soon after the last time it waits.
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

// problems are what the map's bounds have cost.
func (x *perfMap) problems() (out []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dropped > 0 {
		out = append(out, fmt.Sprintf("perf map: %d bytes are left out, it is larger than %d bytes or %d entries", x.dropped, maxPerfMap, maxPerfLines))
	}
	if x.bad > 0 {
		out = append(out, fmt.Sprintf("perf map: %d lines are no entries and are left out", x.bad))
	}
	if x.reuse.Dropped > 0 {
		out = append(out, fmt.Sprintf("perf map: of %d pieces of code it is not known what took their place when", x.reuse.Dropped))
	}
	if x.merged > 0 {
		out = append(out, fmt.Sprintf("code took the place of other code too often: %d times it is named up to %v too early", x.merged, x.apart))
	}
	return append(out, x.gdb.problems()...)
}

// madeCode reports whether the program has code that comes from no file.
func madeCode(maps []stack.Mapping) bool {
	for _, m := range maps {
		if _, ok := managed.Named(m.Path); !ok && m.Exec && m.Inode == 0 && m.Path != "[vdso]" && m.Path != "[vsyscall]" {
			return true
		}
	}
	return false
}

// mark says since when the map up to end, in bytes, is true.
type mark struct {
	at  stack.Time
	end int64
}

// maxMarks bounds how many are kept.
const maxMarks = 4096

// mark notes the time of what has been read. What is older than is kept has
// one time.
func (x *perfMap) mark(at stack.Time) {
	x.marks = append(x.marks, mark{at, x.size})
	old := 0
	for old+1 < len(x.marks) && (len(x.marks)-old > maxMarks || x.keep > 0 && x.marks[old+1].at < at-stack.Time(x.keep)) {
		old++
	}
	x.marks = append(x.marks[:0], x.marks[old:]...)
}

// parts are the map as it is now and the files, for who was handed none.
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
	room := maxPerfMap
	for _, m := range x.marks {
		data, err := x.entries(from, m.end, &room)
		out = append(out, trace.Captured{What: "perf-map", At: m.at, Data: data})
		if err != nil {
			break // it is being written anew
		}
		from = m.end
	}
	return out
}

// entries are those of a part of the map, at most room bytes of them.
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
