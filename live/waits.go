package live

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait"
)

// Descriptions numbers what threads wait for, for event.Wait: equal waits have
// one number. It may be used by several goroutines at once.
type Descriptions struct {
	// Put is handed each new one, and says whether it took it: it must not
	// block.
	Put func(trace.Wait) bool

	mu  sync.Mutex
	ids map[trace.Wait]int // by everything but the ID
}

// Limits of what is told apart: of programs that wait for something else each
// time, above the first only calls and files, above the second nothing more.
const (
	maxDetailed = 1 << 14
	maxCoarse   = 1 << 15
)

// id numbers a wait; 0: it has no description.
func (d *Descriptions) id(in *wait.Info) int {
	w := describe(in)
	d.mu.Lock()
	defer d.mu.Unlock()
	if id, ok := d.ids[w]; ok {
		return id
	}
	if len(d.ids) >= maxDetailed {
		w = trace.Wait{Call: w.Call, Kind: w.Kind, File: w.File, Symbol: w.Symbol}
		if id, ok := d.ids[w]; ok {
			return id
		}
	}
	if len(d.ids) >= maxCoarse {
		return 0
	}
	if d.ids == nil {
		d.ids = map[trace.Wait]int{}
	}
	key := w
	w.ID = len(d.ids) + 1
	if !d.Put(w) {
		return 0 // the next time
	}
	d.ids[key] = w.ID
	return w.ID
}

// describe leaves out what differs each time though the wait is the same: how
// long a timeout has still to go.
func describe(in *wait.Info) trace.Wait {
	w := trace.Wait{Call: in.Call, Args: in.Args, File: in.File, Kind: string(in.Kind)}
	if in.Lock != nil {
		w.Symbol = in.Lock.Symbol
	}
	if in.Timeout <= 0 {
		return w
	}
	exact := in.Timeout.String()
	t := round(in.Timeout)
	w.Timeout = int64(t)
	switch {
	case in.Kind == wait.KindSleep && w.Args == exact:
		w.Args = t.String()
	default:
		w.Args = strings.TrimPrefix(strings.TrimSuffix(w.Args, "timeout "+exact), ", ")
		w.Args = strings.TrimSuffix(w.Args, ", ")
	}
	return w
}

// round keeps two digits.
func round(d time.Duration) time.Duration {
	p := time.Duration(1)
	for n := len(strconv.FormatInt(int64(d), 10)); n > 2; n-- {
		p *= 10
	}
	return d.Round(p)
}

// waits implements sampler.Waits for one group.
type waits struct {
	proc  *Proc
	r     *wait.Resolver
	d     *Descriptions
	vars  *Variables
	by    map[stack.TID]*waiting
	locks int // of by, how many wait for a lock whose holder can be read
	words map[word]known
}

// word is what a lock is asked for by: the call with its first two arguments,
// a futex word and what is to be done with it.
type word struct {
	nr       int32
	addr, op uint64
}

// known is what was found out about a word.
type known struct {
	id   int
	lock uint64
	at   stack.Time
}

const (
	// maxWords bounds how many words are kept.
	maxWords = 4096
	// wordTTL is how long, in ns, a word is taken to belong to the same lock.
	wordTTL = 1_000_000_000
)

// waiting is one thread.
type waiting struct {
	thread   *wait.Thread // nil: it waits for nothing that was found out
	switches uint64       // that the wait is told apart by
	call     stack.Call
	sp       uint64
	pending  uint64 // address that is to be looked up again; 0: none
	asked    stack.Time
	locked   bool // counted in locks

	// What was put last.
	id     int
	lock   uint64
	holder uint64 // payload
}

// Waits makes a sampler.Waits for one group, nil where /proc cannot be read.
func (t *Target) Waits(d *Descriptions, vars *Variables) sampler.Waits {
	p, err := OpenProc(t.proc)
	if err != nil {
		return nil
	}
	w := &waits{proc: p, d: d, vars: vars, by: map[stack.TID]*waiting{}, words: map[word]known{}}
	w.r = wait.New(p.Config(func(addr uint64) (wait.Symbol, bool) {
		s, ok, _ := vars.Known(addr)
		return s, ok
	}))
	return w
}

func (w *waits) Close() { w.proc.Close() }

// Forget implements sampler.Waits.
func (w *waits) Forget(tid stack.TID) {
	if tid == 0 {
		w.r.Forget()
		clear(w.by)
		clear(w.words)
		w.locks = 0
		return
	}
	if x := w.by[tid]; x != nil {
		w.count(x, false)
		delete(w.by, tid)
	}
}

func (w *waits) count(x *waiting, locked bool) {
	if x.locked != locked {
		x.locked = locked
		if locked {
			w.locks++
		} else {
			w.locks--
		}
	}
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
	same := x.thread != nil && x.switches == s.Switches && x.call == g.Call
	if same && x.pending == 0 {
		w.refresh(x, s.Time, to)
		return
	}
	if s.Way == stack.WayStop {
		// It only now goes back to sleep: the next look tells.
		if !same {
			w.end(x, s.Time, to)
		}
		return
	}
	if same {
		if _, _, pending := w.vars.Known(x.pending); pending {
			w.refresh(x, s.Time, to)
			return
		}
	}
	w.resolve(t, in, g, x, to)
}

// refresh reads who holds the lock by now. The more threads wait for locks the
// more rarely each is asked, so that all of them cost a bounded part of a CPU.
func (w *waits) refresh(x *waiting, at stack.Time, to sampler.Sink) {
	const each = 300_000 // ns between two reads, of about 3 µs each
	if !x.locked || at-x.asked < stack.Time(w.locks)*each {
		return
	}
	x.asked = at
	if w.r.Refresh(x.thread) {
		w.put(x, x.thread.Info(), at, to)
	}
}

func (w *waits) resolve(t sampler.Thread, in *stack.ThreadInfo, g *sampler.Glance, x *waiting, to sampler.Sink) {
	s := g.Sample
	still := func() bool {
		var c sampler.Counters
		return t.Counters(&c) == nil && c.Switches == g.Counters.Switches && c.CPU == g.Counters.CPU
	}
	th := &wait.Thread{}
	info, res := w.r.Resolve(th, &wait.Look{TID: in.TID, NSTID: int32(in.NSTID), State: g.State, Call: g.Call, SP: x.sp,
		Switches: s.Switches, Frames: s.Stack, Still: still})
	key := word{g.Call.Nr, g.Call.Args[0], g.Call.Args[1]}
	if res == wait.Torn {
		// It waited at the sample, but no longer by now. Which lock that was is
		// known if one of the threads that wait for it was asked a moment ago;
		// who held it is not.
		w.end(x, s.Time, to)
		if k, ok := w.words[key]; ok && s.Time-k.at < wordTTL {
			x.id, x.lock = k.id, k.lock
			to.Event(s.Time, event.Wait, uint64(k.id))
			to.Event(s.Time, event.Lock, k.lock)
		}
		return
	}
	fresh := x.thread == nil || x.switches != s.Switches || x.call != g.Call
	x.thread, x.switches, x.call, x.asked, x.pending = th, s.Switches, g.Call, s.Time, 0
	l := info.Lock
	w.count(x, l != nil && l.Kind != "file")
	if l != nil && l.Symbol == "" {
		if _, _, pending := w.vars.Known(l.Addr); pending {
			x.pending = l.Addr
		}
	}
	if fresh {
		if x.lock != 0 && l == nil {
			to.Event(s.Time, event.Lock, 0)
		}
		x.id, x.lock, x.holder = 0, 0, 0 // another wait, if for the same thing
	}
	w.put(x, info, s.Time, to)
	if l != nil && l.Addr != 0 && x.id != 0 {
		if len(w.words) >= maxWords {
			clear(w.words)
		}
		w.words[key] = known{x.id, l.Addr, s.Time}
	}
}

// put tells what is new.
func (w *waits) put(x *waiting, in *wait.Info, at stack.Time, to sampler.Sink) {
	if id := w.d.id(in); id != x.id {
		x.id = id
		to.Event(at, event.Wait, uint64(id))
	}
	if in.Lock == nil {
		return
	}
	if in.Lock.Addr != x.lock {
		x.lock = in.Lock.Addr
		to.Event(at, event.Lock, x.lock)
	}
	if h := event.HolderOf(in.Lock.Holder.TID, in.Lock.Holder.By); h != x.holder {
		x.holder = h
		to.Event(at, event.Holder, h)
	}
}

// end tells that the thread no longer waits.
func (w *waits) end(x *waiting, at stack.Time, to sampler.Sink) {
	w.count(x, false)
	if x.id != 0 {
		to.Event(at, event.Wait, 0)
	}
	if x.lock != 0 {
		to.Event(at, event.Lock, 0)
	}
	*x = waiting{}
}
