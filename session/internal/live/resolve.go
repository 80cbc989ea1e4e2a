package live

import (
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
)

// A lookup resolves the wait of one thread at one sample.
type lookup struct {
	w  *waits
	t  sampler.Thread
	in *stack.ThreadInfo
	g  *sampler.Glance
	x  *waiting // the thread's wait so far
	to sampler.Sink

	fresh  bool          // it is another wait than x
	frames []stack.Frame // of this sample, or of the last one with frames
	// Set when the resolver asks for names; see waits.functions.
	unnamed uint64
	idles   bool

	// What read found.
	thread *wait.Thread
	info   *wait.Info
	asked  stack.Time // time of the read
	lock   *wait.Lock // that take took; a later read of a file lock may replace info's
}

// resolve resolves the wait of a thread and reports it. The order of its steps matters:
//
//   - read does not change x: if the thread ran during the read, torn ends the wait that x describes.
//   - take replaces the wait in x, but not the last events: report compares with them.
//   - report puts the events of the wait, of the lock and of the holder, in this order.
//   - askFile comes after report, because it may put the holder.
//   - remember needs the id that report and askFile have put.
func (w *waits) resolve(t sampler.Thread, in *stack.ThreadInfo, g *sampler.Glance, x *waiting, to sampler.Sink) {
	u := &lookup{w: w, t: t, in: in, g: g, x: x, to: to, frames: g.Frames}
	u.fresh = x.thread == nil || x.switches != g.Sample.Switches || x.call != g.Call
	if !u.fresh && len(u.frames) == 0 {
		u.frames = x.frames
	}
	if !u.read() {
		u.torn()
		return
	}
	u.take()
	u.report()
	if x.file != nil {
		w.askFile(x, g.Sample.Time)
	}
	u.remember()
}

// still implements wait.Look.Still.
func (u *lookup) still() bool {
	var c sampler.Counters
	return u.t.Counters(&c) == nil && c.Switches == u.g.Counters.Switches && c.CPU == u.g.Counters.CPU
}

// names implements wait.Look.Names.
func (u *lookup) names() (names []string) {
	names, u.unnamed, u.idles = u.w.functions(u.frames, u.g.Sample.Time)
	return names
}

// word is the key of the wait's lock in waits.words.
func (u *lookup) word() word {
	c := &u.g.Call
	return word{c.Nr, c.Args[0], c.Args[1]}
}

// read resolves the wait and reads its lock. ok is false if the thread waited at the sample, but
// does not wait now.
func (u *lookup) read() (ok bool) {
	g, x := u.g, u.x
	u.thread = &wait.Thread{}
	if u.fresh && x.thread != nil {
		*u.thread = *x.thread // the previous call identifies a call that the kernel restarts
	}
	look := wait.Look{TID: u.in.TID, NSTID: int32(u.in.NSTID), State: g.State, Call: g.Call, SP: x.sp,
		Switches: g.Sample.Switches, Frames: u.frames, Names: u.names, Function: u.w.function, Still: u.still}
	if x.woken {
		look.Still = nil // it waited at the stop, and repeats the same call
	}
	begun := target.Now()
	info, res := u.w.r.Resolve(u.thread, &look)
	u.info, u.asked = info, target.Now()
	if res == wait.Torn {
		return false
	}
	if l := info.Lock; u.asked-begun > askSoon && l != nil && l.Keeps() && l.Kind != kind.LockFile {
		_, u.asked = u.w.ask(u.thread)
		u.info = u.thread.Info()
	}
	l := u.info.Lock
	// If the thread holds the lock itself, its wait has ended.
	return !x.woken || l == nil || l.Holder.TID != u.in.TID
}

// torn reports the wait of a thread that has run since the sample. The lock is known if one of its
// waiters was read a moment ago; the holder is known if that was at this same sample.
func (u *lookup) torn() {
	w, x, at := u.w, u.x, u.g.Sample.Time
	w.end(x, at, u.to)
	k, ok := w.words[u.word()]
	if !ok || at-k.at >= wordTTL {
		return
	}
	x.id, x.lock = k.id, k.lock
	u.to.Event(at, event.Wait, uint64(k.id))
	u.to.Event(at, event.Lock, k.lock)
	a := w.locks[k.key]
	if a == nil || at-a.at >= w.every() || a.read-at > askSoon || a.last.Holder.TID == u.in.TID {
		return
	}
	if x.holder = event.HolderOf(a.last.Holder.TID, a.last.Holder.By); x.holder != 0 {
		u.to.Event(at, event.Holder, x.holder)
	}
}

// take replaces the wait in x by the result of read, and records which lookups are pending.
func (u *lookup) take() {
	w, x, at := u.w, u.x, u.g.Sample.Time
	if in, l := u.info, u.info.Lock; u.idles && l != nil && l.MayBeIdle() {
		u.info = &wait.Info{Nr: in.Nr, Call: in.Call, Timeout: in.Timeout, Owes: in.Owes, Why: unread}
	}
	w.leave(x)
	x.thread, x.switches, x.call, x.asked, x.pending, x.unnamed = u.thread, u.g.Sample.Switches, u.g.Call, at, 0, u.unnamed
	x.owed = u.info.Owes
	l := u.info.Lock
	u.lock = l
	w.join(x, l, at, u.asked)
	switch {
	case l == nil:
	case l.Kind == kind.LockFile:
		x.file = &fileWait{t: u.t, to: u.to, counters: u.g.Counters, sure: !x.woken, need: at}
		w.files[x] = struct{}{}
	case l.Symbol == "":
		if _, _, pending := w.vars.Known(l.Addr); pending {
			x.pending = l.Addr
		}
	}
	if x.pending == 0 && x.unnamed == 0 && !x.owed {
		x.frames = nil
	} else if f := u.g.Frames; len(f) > 0 {
		x.frames = append(x.frames[:0], f[:min(len(f), maxNamed)]...)
	}
}

// report reports the wait that take put into x.
func (u *lookup) report() {
	w, x, at := u.w, u.x, u.g.Sample.Time
	if x.lock != 0 && u.lock == nil { // another wait, or not a lock according to new lookups
		u.to.Event(at, event.Lock, 0)
		x.lock, x.holder = 0, 0
	}
	if !u.fresh {
		w.put(x, u.info, at, u.asked, u.to)
		return
	}
	// Another wait, though for the same thing. The holder of the previous wait must not be taken for
	// its holder.
	held := x.holder
	x.id, x.lock, x.holder = 0, 0, 0
	if held != 0 && u.asked-at > askSoon {
		u.to.Event(at, event.Holder, 0)
		held = 0
	}
	w.put(x, u.info, at, u.asked, u.to)
	if held != 0 && x.holder == 0 {
		u.to.Event(at, event.Holder, 0)
	}
}

// remember records which lock the wait's word belongs to, for torn.
func (u *lookup) remember() {
	l := u.lock
	if l == nil || l.Addr == 0 || u.x.id == 0 || !l.OwnWord() {
		return
	}
	if len(u.w.words) >= maxWords {
		clear(u.w.words)
	}
	u.w.words[u.word()] = known{u.x.id, l.Addr, l.Key, u.g.Sample.Time}
}
