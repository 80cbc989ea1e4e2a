package iowatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Rules about data that was not in memory: reads that waited since the page cache did not have the data, and
// major page faults in mapped files. They judge a path in windows, which end at Tick.

// Swapped is the path of page faults in memory that was swapped out.
const Swapped = "[swap]"

// waits is a window of a path.
type waits struct {
	from  stack.Time // when it began
	n, ns uint64     // waits, and time in them
	ops   uint64     // reads, also those that did not wait
	last  Finding    // with the thread and the stacks of one of them
}

// window returns that of a path; nil: there are too many.
func (e *Engine) window(all map[string]*waits, path string, at stack.Time) *waits {
	w := all[path]
	if w == nil {
		if len(all) >= maxPaths {
			e.Forgotten++
			return nil
		}
		w = &waits{from: at}
		all[path] = w
	}
	return w
}

// missed adds the reads of a use since the last look.
func (e *Engine) missed(d *desc, u *use, at stack.Time) {
	ops, n, ns := u.Ops-u.reads, u.Misses-u.misses, u.MissTime-u.missTime
	u.reads, u.misses, u.missTime = u.Ops, u.Misses, u.MissTime
	if !e.c.On[CacheMiss] || d.path == "" || !d.onDisk() || n == 0 && e.misses[d.path] == nil {
		return
	}
	w := e.window(e.misses, d.path, at)
	if w == nil {
		return
	}
	w.n, w.ns, w.ops = w.n+n, w.ns+ns, w.ops+ops
	if f := finding(CacheMiss, d, u, at); n > 0 && (w.last.Rule == "" || e.better(f, &w.last)) {
		w.last = *f
	}
}

// faulted counts a major page fault. One that holds the main thread or an event loop for long is a finding
// of loop-io.
func (e *Engine) faulted(ev *Event) {
	d := &desc{path: ev.Path, kind: ev.Kind, size: -1, seeded: true}
	if d.path == "" {
		return
	}
	took := uint64(ev.Busy())
	if f := e.file(d); f != nil {
		f.Faults++
		f.Faulted += took
	}
	e.slowCall(d, ev)
	if !e.c.On[PageFault] {
		return
	}
	w := e.window(e.faults, d.path, ev.End)
	if w == nil {
		return
	}
	w.n, w.ns = w.n+1, w.ns+took
	f := Finding{Rule: PageFault, Path: d.path, Kind: ev.Kind, Size: -1, TID: ev.TID, Where: ev.Stack, First: OpFault, Call: ev.Call, seeded: true}
	if w.last.Rule == "" || e.better(&f, &w.last) {
		w.last = f
	}
}

// waited ends the windows.
func (e *Engine) waited(now stack.Time) {
	e.overdue(e.misses, e.c.MissWindow, e.c.MissCount, e.c.MissTime, now)
	e.overdue(e.faults, e.c.FaultWindow, e.c.FaultCount, e.c.FaultTime, now)
}

// overdue ends the windows that are old enough, and reports those with at least count waits and this much
// time in a window's length.
func (e *Engine) overdue(all map[string]*waits, length time.Duration, count uint64, least time.Duration, now stack.Time) {
	for _, path := range slices.Sorted(maps.Keys(all)) {
		w := all[path]
		took := max(elapsed(w.from, now), length, 1)
		if elapsed(w.from, now) < length && !e.last {
			continue
		}
		delete(all, path)
		share := min(1, 1.5*float64(length)/float64(took)) // a look may be late by some time
		if w.n == 0 || float64(w.n)*share < float64(count) || float64(w.ns)*share < float64(least) {
			continue
		}
		f := w.last
		f.At, f.Count, f.Longer, f.Cost = now, int(w.n), int64(w.ns), int64(w.ns)
		f.Ops = cmp.Or(w.ops, w.n)
		e.publish(&f)
	}
}
