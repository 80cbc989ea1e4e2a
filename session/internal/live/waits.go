package live

import (
	"path"
	"strings"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// waits implements sampler.Waits for one group.
type waits struct {
	proc  *Proc
	r     *wait.Resolver
	d     *Descriptions
	vars  *Variables
	by    map[stack.TID]*waiting
	locks map[wait.Key]*asked
	words map[word]known
	funcs map[uint64]string // names of functions on stacks, by lookup address
	named stack.Time        // when funcs was created
	// idlers is hasIdlers, replaced in tests.
	idlers func(file string) bool

	reader *lockReader
	later  *wait.Later
	wake   func()                // requests a call of Late
	files  map[*waiting]struct{} // those that wait for a file lock
	told   *reading              // the last reading that was reported
	found  uint32                // lockReader.found at the last Late
}

// asked is a lock that threads of the group wait for, with its state when its holder
// was last read.
type asked struct {
	key  wait.Key
	refs int
	at   stack.Time // of the sample
	read stack.Time // time of the read; at most askSoon before at
	last wait.Lock
}

// word is the key of a lock: the call with its first two arguments, which are a futex
// word and the operation on it.
type word struct {
	nr       int32
	addr, op uint64
}

// known is the result for a word.
type known struct {
	id   int
	lock uint64
	key  wait.Key
	at   stack.Time
}

const (
	// maxWords bounds the cache of words.
	maxWords = 4096
	// wordTTL is how long, in ns, a word is assumed to belong to the same lock.
	wordTTL = 1_000_000_000
	// maxNamed is how many frames from the leaf are named: libraries have few calls around a wait.
	maxNamed = 16
	// maxFuncs bounds the cache of function names; funcsTTL is its lifetime in ns,
	// because a library may be unloaded.
	maxFuncs = 4096
	funcsTTL = 1_000_000_000
)

// waiting is one thread.
type waiting struct {
	thread   *wait.Thread // nil: no resolved wait
	switches uint64       // identifies the wait
	call     stack.Call
	woken    bool // by the stop of its last sample; on its way back to sleep
	sp       uint64
	pending  uint64 // address of a variable to look up again; 0: none
	unnamed  uint64 // the same for a function
	owed     bool   // more will be known about its wait
	// frames are the stack, leaf first, while any name is pending: samples of a thread
	// that has not run have no frames.
	frames []stack.Frame
	asked  stack.Time
	at     *asked    // nil: the lock keeps no holder, or it is a file lock
	file   *fileWait // nil: not a file lock

	// The last event put.
	id     int
	lock   uint64
	holder uint64 // payload
}

// Waits returns a sampler.Waits for one group, nil if /proc cannot be read. wake
// requests a call of its Late and may be called from any goroutine.
func (t *Target) Waits(d *Descriptions, vars *Variables, wake func()) sampler.Waits {
	p, err := OpenProc(t.proc)
	if err != nil {
		return nil
	}
	w := &waits{proc: p, d: d, vars: vars, by: map[stack.TID]*waiting{}, locks: map[wait.Key]*asked{}, words: map[word]known{},
		funcs: map[uint64]string{}, idlers: hasIdlers, reader: &t.locks, later: &t.later, wake: wake, files: map[*waiting]struct{}{}}
	c := p.Config(func(addr uint64) (wait.Symbol, bool) {
		s, ok, _ := vars.Known(addr)
		return s, ok
	})
	c.LocksLater, c.Later = true, w.later
	t.Locks(&c)
	w.r = wait.New(c)
	return w
}

func (w *waits) Close() {
	w.reader.forget(w)
	w.proc.Close()
}

// Forget implements sampler.Waits.
func (w *waits) Forget(tid stack.TID) {
	if tid == 0 {
		w.r.Forget()
		clear(w.by)
		clear(w.words)
		clear(w.locks)
		clear(w.funcs)
		clear(w.files)
		return
	}
	if x := w.by[tid]; x != nil {
		w.leave(x)
		delete(w.by, tid)
	}
}

// join records that x waits for a lock, which was read at time read for a sample at
// time at.
func (w *waits) join(x *waiting, l *wait.Lock, at, read stack.Time) {
	w.leave(x)
	if l == nil || !l.Keeps() || l.Kind == kind.LockFile {
		return
	}
	a := w.locks[l.Key]
	if a == nil {
		a = &asked{key: l.Key}
		w.locks[l.Key] = a
	}
	a.refs++
	x.at = a
	if x.thread.Proven() {
		a.at, a.read, a.last = at, read, *l
	}
}

// leave undoes join.
func (w *waits) leave(x *waiting) {
	if x.file != nil {
		delete(w.files, x)
		x.file = nil
	}
	if x.at == nil {
		return
	}
	if x.at.refs--; x.at.refs == 0 {
		delete(w.locks, x.at.key)
	}
	x.at = nil
}

// Look implements sampler.Waits.
func (w *waits) Look(t sampler.Thread, in *stack.ThreadInfo, g *sampler.Glance, to sampler.Sink) {
	x := w.by[in.TID]
	s := g.Sample
	switch g.State {
	case stack.StateBlocked, stack.StateDisk, stack.StateFault:
	default:
		if x != nil {
			w.end(x, s.Time, to)
		}
		return
	}
	if x == nil {
		x = &waiting{}
		w.by[in.TID] = x
	}
	if g.SP != 0 {
		x.sp = g.SP
	}
	if x.woken && s.Way != stack.WayStop && x.call == g.Call {
		x.switches = s.Switches // the stop itself caused the switch
	}
	x.woken = s.Way == stack.WayStop
	if g.Again && x.again(g, s) {
		x.switches = s.Switches
		to.Event(s.Time, event.Wait, uint64(x.id))
		return
	}
	same := x.thread != nil && x.switches == s.Switches && x.call == g.Call
	if same && x.file != nil && !x.woken {
		x.file.seen(&g.Counters, s.Time)
	}
	if same && x.pending == 0 && x.unnamed == 0 && !x.owed {
		w.refresh(x, s.Time, to)
		return
	}
	if same && w.pending(x) {
		w.refresh(x, s.Time, to)
		return
	}
	w.resolve(t, in, g, x, to)
}

// again reports whether a thread that went back to the same sleep waits for the same
// thing as before. It is false for locks, whose holder may have changed.
func (x *waiting) again(g *sampler.Glance, s *stack.Sample) bool {
	return x.thread != nil && x.call == g.Call && x.switches != s.Switches && x.id != 0 && x.lock == 0 && x.holder == 0 && x.at == nil && x.file == nil &&
		x.pending == 0 && x.unnamed == 0 && !x.owed && !x.woken
}

// pending reports whether a lookup is still pending.
func (w *waits) pending(x *waiting) (p bool) {
	if x.owed && w.later.Going(int64(target.Now())) {
		return true
	}
	if x.pending != 0 {
		if _, _, p = w.vars.Known(x.pending); p {
			return true
		}
	}
	if x.unnamed != 0 {
		_, p = w.vars.KnownFunction(x.unnamed)
	}
	return p
}

// Reading the holder of a lock takes about 3 µs. With more locks each is read less
// often, so that all of them together cost a bounded part of a CPU.
const askEach = 150_000 // ns for each lock

// every returns how long, in ns, the holder of a lock is cached.
func (w *waits) every() stack.Time { return stack.Time(len(w.locks)) * askEach }

// refresh reads the current holder of the lock; threads that wait for the same lock
// share one read.
func (w *waits) refresh(x *waiting, at stack.Time, to sampler.Sink) {
	if x.file != nil {
		w.askFile(x, at)
		return
	}
	a := x.at
	if a == nil {
		return
	}
	every := w.every()
	if !x.thread.Proven() {
		if at-x.asked < every {
			return
		}
		x.asked = at
		changed, read := w.ask(x.thread)
		w.join(x, x.thread.Info().Lock, at, read)
		if changed {
			w.put(x, x.thread.Info(), at, read, to)
		}
		return
	}
	l := x.thread.Info().Lock
	if at-a.at < every {
		if l.Holder == a.last.Holder && l.Note == a.last.Note {
			return
		}
		l.Holder, l.Note, l.Other = a.last.Holder, a.last.Note, a.last.Other
		w.put(x, x.thread.Info(), at, a.read, to)
		return
	}
	changed, read := w.ask(x.thread)
	a.at, a.read, a.last = at, read, *l
	if changed {
		w.put(x, x.thread.Info(), at, read, to)
	}
}

// maxAsks bounds how often a read is repeated because it took long.
const maxAsks = 4

// ask reads the current holder of the lock; the true time of the read is at most
// askSoon before read. On a busy machine this program may lose the CPU between the read
// and the clock: then ask reads again. If all tries were too slow, the holder may have
// released the lock long ago, so ask names none.
func (w *waits) ask(th *wait.Thread) (changed bool, read stack.Time) {
	for range maxAsks {
		begun := target.Now()
		changed = w.r.Refresh(th) || changed
		if read = target.Now(); read-begun <= askSoon {
			return changed, read
		}
	}
	if in := th.Info(); in != nil && in.Lock != nil && in.Lock.Holder.TID != 0 {
		l := in.Lock
		l.Holder, l.Note, l.Other = lock.Holder{Why: "it took too long to read"}, "", ""
		changed = true
	}
	return changed, read
}

// Busy implements sampler.Waits: a thread waits for a lock that has a holder, or a
// lookup is pending.
func (w *waits) Busy() bool {
	if len(w.locks) > 0 || len(w.files) > 0 {
		return true
	}
	for _, x := range w.by {
		if x.pending != 0 || x.unnamed != 0 || x.owed {
			return true
		}
	}
	return false
}

// function implements wait.Look.Function.
func (w *waits) function(addr uint64) string {
	name, _ := w.vars.KnownFunction(addr)
	return name
}

// functions names those functions of a stack that identify a wait. A name is missing
// while its file is still being read; unnamed is then its address. idles: one of those
// may be of a runtime's thread that has nothing to do.
func (w *waits) functions(frames []stack.Frame, at stack.Time) (names []string, unnamed uint64, idles bool) {
	if len(w.funcs) > maxFuncs || at-w.named > funcsTTL {
		clear(w.funcs)
		w.named = at
	}
	names = make([]string, 0, maxNamed)
	for i := range frames[:min(len(frames), maxNamed)] {
		f := &frames[i]
		if f.Kind == stack.KindError || f.Kind.Managed() {
			break // the wait of a C function called by a runtime is above
		}
		pc := f.PC
		if !f.Exact {
			pc--
		}
		name, ok := w.funcs[pc]
		if !ok {
			var pending bool
			if name, pending = w.vars.KnownFunction(pc); pending {
				unnamed, idles = pc, idles || w.idlers(w.vars.path(pc))
			} else {
				w.funcs[pc] = name
			}
		}
		names = append(names, name)
	}
	return names, unnamed, idles
}

// hasIdlers reports whether a file, by its path, may have functions in which threads of
// a runtime wait for work: HotSpot's, Node's, or libuv's.
func hasIdlers(file string) bool {
	base := path.Base(file)
	return base == "libjvm.so" || strings.HasPrefix(base, "node") || strings.HasPrefix(base, "libnode.") || strings.HasPrefix(base, "libuv.")
}

// askSoon is how long after a sample, in ns, a result counts as of the sample's time: a
// lock word is read within some µs.
const askSoon = 1_000_000

// unread is the reason for not reporting the wait of a thread that may have nothing to do: in a
// program with many functions it would count as a lock until the functions have names.
const unread = "the functions that it waits in are still being read"

// put reports changes. The thread's wait is valid at the time of the sample, at; the
// holder is valid at the time it was read, which on a busy machine may be some ms
// later.
func (w *waits) put(x *waiting, in *wait.Info, at, asked stack.Time, to sampler.Sink) {
	if id := w.d.id(in); id != x.id {
		x.id = id
		to.Event(at, event.Wait, uint64(id))
	}
	if in.Lock == nil {
		return
	}
	if in.Lock.Addr != x.lock {
		x.lock, x.holder = in.Lock.Addr, 0 // a Lock event clears the holder of the previous lock
		to.Event(at, event.Lock, x.lock)
	}
	if h := event.HolderOf(in.Lock.Holder.TID, in.Lock.Holder.By); h != x.holder {
		x.holder = h
		if asked-at > askSoon {
			at = asked
		}
		to.Event(at, event.Holder, h)
	}
}

// end reports that the thread no longer waits.
func (w *waits) end(x *waiting, at stack.Time, to sampler.Sink) {
	w.leave(x)
	if x.id != 0 {
		to.Event(at, event.Wait, 0)
	}
	if x.lock != 0 {
		to.Event(at, event.Lock, 0)
	}
	*x = waiting{}
}
