package iowatch

import (
	"cmp"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// repeated is one read of a file, as repeat-read compares it.
type repeated struct {
	tid   stack.TID
	place place
	size  int64
	want  uint64
	at    stack.Time
	times int
}

// finding returns a finding with the sums of a use.
func finding(r Rule, d *desc, u *use, at stack.Time) *Finding {
	return &Finding{Rule: r, Path: d.name(), Kind: d.kind, Size: d.size, Ops: u.Ops, Buffer: u.Buffer, Cost: int64(u.Time), First: u.First, Bytes: u.Want,
		TID: cmp.Or(u.only(), u.slowBy, d.tid), At: at, Stack: d.place.stack, Where: u.slow, seeded: d.seeded}
}

func (d *desc) name() string {
	if d.path == "" {
		return d.kind.String()
	}
	return d.path
}

// onDisk reports whether reads and writes of the descriptor wait for storage. Threads that wait for a
// peer, a terminal or an event are idle.
func (d *desc) onDisk() bool {
	return d.kind == KindFile || d.kind == KindBlock || d.kind == KindDir
}

// judge applies the rules that look at a descriptor as a whole.
func (e *Engine) judge(d *desc, at stack.Time) {
	if !d.onDisk() {
		return
	}
	opener := false
	for _, u := range d.uses {
		opener = opener || u.tid == d.tid || u.tid == 0
		switch {
		case u.only() == e.main:
			e.slowUse(MainIO, d, u, at, u.Longest, u.LongestRun, e.main)
		case u.only() != 0 && u.loop:
			e.slowUse(LoopIO, d, u, at, u.Longest, u.LongestRun, u.only())
		case u.only() == 0: // a run of several threads held none of them
			e.slowUse(MainIO, d, u, at, u.onMain, 0, e.main)
			e.slowUse(LoopIO, d, u, at, u.onLoop, 0, u.loopTID)
		}
		if (!e.c.SmallMain || u.only() == e.main) && u.Ops > e.c.SmallOps && u.Want/u.Ops < e.c.SmallBytes && time.Duration(u.LongestRun) >= e.c.SmallRun {
			f := finding(SmallBuffer, d, u, at)
			f.Longer = int64(u.LongestRun)
			e.publish(f)
		}
		e.repeat(d, u, at)
		e.syncedWrites(d, u, at)
	}
	if !opener && d.tid != 0 {
		e.repeat(d, &use{tid: e.owner(d.tid)}, at) // opened and closed: counts as a read of 0 bytes
	}
}

// slowUse is main-io, and the same for event loops: the longest operation and the longest run, in ns, of
// thread tid.
func (e *Engine) slowUse(r Rule, d *desc, u *use, at stack.Time, longest, run uint64, tid stack.TID) {
	bits := 0
	longer := longest
	if time.Duration(longest) > e.c.Slow {
		bits = 1
	}
	if time.Duration(run) > e.c.Sum {
		bits |= 2
		longer = run
	}
	if bits == 0 {
		return
	}
	f := finding(r, d, u, at)
	f.Count, f.Longer, f.TID = bits, int64(longer), tid
	e.publish(f)
}

// called adds a slow call to the sums of its file, and judges it.
func (e *Engine) called(ev *Event) {
	d := &desc{path: ev.Path, kind: KindFile, size: -1, seeded: true}
	if ev.FD >= 0 {
		d = e.find(ev)
	}
	if f := e.file(d); f != nil {
		took := uint64(ev.Busy())
		f.Time += took
		f.Longest = max(f.Longest, took)
		f.Hist[Bucket(took)]++
	}
	e.slowCall(d, ev)
}

// slowCall is main-io and loop-io for a call that is neither read nor write, which blocks a thread just so:
// an open, sync, close, page fault, lock, stat … Matrix's rule has only reads and writes.
func (e *Engine) slowCall(d *desc, ev *Event) {
	r := LoopIO
	if ev.TID == e.main {
		r = MainIO
	}
	if !(ev.Loop || r == MainIO && !e.c.Own) || time.Duration(ev.Busy()) <= e.c.Slow || !d.onDisk() {
		return
	}
	f := &Finding{Rule: r, Path: d.name(), Kind: d.kind, Size: d.size, Ops: 1, Cost: ev.Busy(), First: ev.Op, TID: ev.TID, At: ev.End,
		Stack: d.place.stack, Where: ev.Stack, Count: 1, Longer: ev.Busy(), Call: ev.Call, Main: ev.TID == e.main, seeded: d.seeded}
	if e.Slow != nil && e.c.On[r] {
		e.Slow(f)
	}
	e.publish(f)
}

// slowNow reports a single slow read or write to Slow.
func (e *Engine) slowNow(d *desc, u *use, ev *Event) {
	r := LoopIO
	if ev.TID == e.main {
		r = MainIO
	}
	if e.Slow == nil || ev.Op == OpSync || time.Duration(ev.Busy()) <= e.c.Slow || !d.onDisk() || !e.c.On[r] || r == LoopIO && !(ev.Loop || u.loop && u.tid != 0) {
		return
	}
	want := uint64(max(ev.Want, 0))
	e.Slow(&Finding{Rule: r, Path: d.name(), Kind: d.kind, Size: d.size, Ops: 1, Buffer: want, Cost: ev.Busy(), First: ev.Op, Bytes: want, TID: ev.TID, At: ev.End,
		Stack: d.place.stack, Where: ev.Stack, Count: 1, Longer: ev.Busy(), Main: r == MainIO})
}

// repeat is repeat-read. As in Matrix, a path is watched once it had a slow run, a file whose first
// operation is a write ends the series, and so does a pause since the newest entry was stored.
func (e *Engine) repeat(d *desc, u *use, at stack.Time) {
	if d.path == "" || !e.c.On[RepeatRead] || e.c.RepeatMain && u.only() != e.main {
		return
	}
	all, watched := e.repeats[d.path]
	if !watched {
		if time.Duration(u.LongestRun) < e.c.RepeatRun {
			return
		}
		if len(e.repeats) >= maxPaths {
			e.Forgotten++
			return
		}
	}
	if u.First == OpWrite {
		e.repeats[d.path] = all[:0]
		return
	}
	r := repeated{tid: u.tid, place: d.place, size: d.size, want: u.Want, at: at, times: 1}
	if n := len(all); n > 0 && elapsed(all[n-1].at, at) > e.c.RepeatGap {
		all = all[:0]
	}
	for i := range all {
		if x := &all[i]; x.tid == r.tid && x.size == r.size && x.want == r.want && e.same(x.place, r.place) {
			x.times++
			if x.times >= e.c.Repeats {
				f := finding(RepeatRead, d, u, at)
				f.Count = x.times
				e.publish(f)
			}
			return
		}
	}
	if len(all) >= maxRepeat {
		e.Forgotten++
		all = all[:0]
	}
	e.repeats[d.path] = append(all, r)
}

// syncedWrites is sync-write.
func (e *Engine) syncedWrites(d *desc, u *use, at stack.Time) {
	if d.synced && u.Writes > e.c.SyncOps && u.Written/u.Writes < e.c.SyncBytes {
		f := finding(SyncWrite, d, u, at)
		f.Count = int(u.Writes)
		e.publish(f)
	}
}

// syncs is the state of rule fsync for a path.
type syncs struct {
	times []stack.Time // of calls with few bytes before them
	last  map[stack.TID]uint64
}

// maxSyncers bounds the threads whose writes are followed for one path.
const maxSyncers = 64

// synced is rule fsync. written is what the thread has written to the descriptor so far.
func (e *Engine) synced(d *desc, u *use, ev *Event, written uint64) {
	if !e.c.On[Fsync] || e.c.FsyncCount <= 0 || !d.onDisk() {
		return
	}
	s := e.syncs[d.name()]
	if s == nil {
		if len(e.syncs) >= maxPaths {
			e.Forgotten++
			return
		}
		s = &syncs{last: map[stack.TID]uint64{}}
		e.syncs[d.name()] = s
	}
	by := e.owner(ev.TID)
	since := written - s.last[by]
	if s.last[by] > written {
		since = written // another descriptor
	}
	if len(s.last) >= maxSyncers {
		clear(s.last)
	}
	s.last[by] = written
	if since >= e.c.FsyncBytes {
		s.times = s.times[:0]
		return
	}
	if len(s.times) >= e.c.FsyncCount {
		copy(s.times, s.times[1:])
		s.times = s.times[:e.c.FsyncCount-1]
	}
	s.times = append(s.times, ev.End)
	if len(s.times) == e.c.FsyncCount && elapsed(s.times[0], ev.End) < e.c.FsyncWindow {
		f := finding(Fsync, d, u, ev.End)
		f.Count, f.Call = len(s.times), ev.Call
		if f.Where == 0 {
			f.Where = ev.Stack
		}
		e.publish(f)
	}
}

// opens is the state of rule repeat-open for a path.
type opens struct{ times []stack.Time }

// reopened is rule repeat-open.
func (e *Engine) reopened(d *desc) {
	if !e.c.On[RepeatOpen] || e.c.OpenCount <= 0 || d.path == "" || d.kind != KindFile && d.kind != KindUnknown {
		return
	}
	o := e.opens[d.path]
	if o == nil {
		if len(e.opens) >= maxPaths {
			e.Forgotten++
			clear(e.opens)
		}
		o = &opens{}
		e.opens[d.path] = o
	}
	if len(o.times) >= e.c.OpenCount {
		copy(o.times, o.times[1:])
		o.times = o.times[:e.c.OpenCount-1]
	}
	o.times = append(o.times, d.at)
	if len(o.times) == e.c.OpenCount && elapsed(o.times[0], d.at) < e.c.OpenWindow {
		f := finding(RepeatOpen, d, &use{tid: d.tid}, d.at)
		f.Count, f.First, f.Writes = len(o.times), OpOpen, d.writes
		e.publish(f)
	}
}

// group is descriptors that were opened at one place.
type group struct {
	kind  Kind
	stack StackID
	call  string // where the stack is unknown
}

// grown is the state of rule leak for a group.
type grown struct {
	count int // old descriptors at the last check
	rises int // checks in a row at which there were more
}

// lostAfter is when the record of a close is taken for lost.
const lostAfter = 5 * time.Second

// leakRises is at how many checks in a row a group must have grown.
const leakRises = 2

// Tick applies the rules that depend on the time: leak and small-write. Call it once a second or so.
func (e *Engine) Tick(now stack.Time) {
	e.now = max(e.now, now)
	for _, d := range e.open {
		if d.gone != 0 && elapsed(d.gone, now) > lostAfter {
			e.closed(d, now)
			continue
		}
		e.unanswered(d, now, max(givesUp, e.c.DNSSlow))
		for _, u := range d.uses {
			e.smallWrites(d, u, now)
			e.missed(d, u, now)
		}
	}
	e.waited(now)
	if e.leakedAt != 0 && elapsed(e.leakedAt, now) < e.c.LeakAge {
		return
	}
	e.leakedAt = now
	e.leaked(now)
}

// smallWrites is rule small-write. It fires before the window is over if there were enough writes by then, so
// that a file that is open for less counts too.
func (e *Engine) smallWrites(d *desc, u *use, now stack.Time) {
	if u.from == 0 && d.seeded { // what it has was written before
		u.from, u.fromWrites, u.fromBytes = now, u.Writes, u.Written
		return
	}
	if u.from == 0 {
		u.from = d.at
	}
	took := elapsed(u.from, now)
	writes, bytes := u.Writes-u.fromWrites, u.Written-u.fromBytes
	if took <= 0 || took < e.c.WriteWindow && writes < e.c.WriteCount {
		return
	}
	u.from, u.fromWrites, u.fromBytes = now, u.Writes, u.Written
	inWindow := float64(writes) * float64(e.c.WriteWindow) / float64(max(took, e.c.WriteWindow))
	if writes == 0 || inWindow < float64(e.c.WriteCount) || bytes/writes >= e.c.WriteBytes || !d.onDisk() {
		return
	}
	f := finding(SmallWrite, d, u, now)
	f.Count = int(inWindow)
	e.publish(f)
}

// leaked is rule leak.
func (e *Engine) leaked(now stack.Time) {
	count := map[group]int{}
	newest := map[group]*desc{}
	for _, d := range e.open {
		if d.seeded || d.gone != 0 || elapsed(d.at, now) <= e.c.LeakAge {
			continue
		}
		g := group{kind: d.kind, stack: d.place.stack}
		if g.stack == 0 {
			g.call = d.call
		}
		count[g]++
		if n := newest[g]; n == nil || d.at > n.at {
			newest[g] = d
		}
	}
	for g, n := range count {
		x := e.leaks[g]
		if x == nil {
			if len(e.leaks) >= maxPaths {
				e.Forgotten++
				continue
			}
			x = &grown{}
			e.leaks[g] = x
		}
		if n > x.count {
			x.rises++
		} else {
			x.rises = 0
		}
		x.count = n
		if n >= e.c.LeakCount && x.rises >= leakRises {
			d := newest[g]
			f := finding(Leak, d, &use{tid: d.tid}, now)
			f.Count, f.First, f.Call = n, OpOpen, d.call
			e.publish(f)
		}
	}
	for g, x := range e.leaks {
		if count[g] == 0 {
			x.count, x.rises = 0, 0
		}
	}
}
