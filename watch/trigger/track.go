package trigger

import (
	"math"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Namer returns the functions at a frame word, inlined ones included, innermost first.
type Namer interface {
	Funcs(w event.Word, t stack.Time) []string
}

// Track follows one thread through its events.
type Track struct {
	TID  stack.TID
	Name string
	Main bool

	set    *Set
	replay diff.Replayer
	frames []frame // outermost first
	now    sample  // current state by the events so far
	at     stack.Time
	seen   stack.Time // last sample in the events
	fresh  bool       // a State came since the last sample was settled
	runs   []run      // by the bit of a rule with a function
	loops  []loop     // the detected one, and one for each rule that names its loop
	cpu    int64      // ns so far
	since  stack.Time
	calls  []called // not yet reported
}

// sample is a thread's state apart from its stack.
type sample struct {
	state  stack.State
	call   int32
	at     stack.Time // since when
	lock   uint64
	holder stack.TID
	lockAt stack.Time
}

type frame struct {
	word    event.Word
	entered stack.Time
	mask    uint64 // rules with this function
}

// called is one call of a rule's function.
type called struct {
	bit int
	at  stack.Time
	w   event.Word
}

// A run is a time in which a thread seems to be in one and the same call. Two samples with the
// same frames at the same place do not prove that if the thread ran in between: it may have left
// and come back. So a run counts only if the alternative is too improbable: that the thread is
// there often, and happened to be there at every sample. Samples that find it waiting for a CPU
// are compared only with other such samples: on a suddenly busy machine, a thread waits wherever
// it happens to be.
type run struct {
	on    bool
	begin stack.Time
	depth int
	sure  int64      // ns since the thread last ran
	loose [2]int     // samples before which it ran, by queued
	odds  [2]float64 // -ln of the chance of such a sample to be there, as of begin

	share [2]share // before begin
}

// share counts the samples in the call, and all, among those before which the thread ran; old
// ones fade.
type share struct{ in, all float64 }

// chance estimates the probability of a sample to be there. For a thread never observed waiting
// for a CPU, it assumes a high probability that the thread waits there.
func (s share) chance(queued int) float64 {
	if queued == 1 {
		return (s.in + 3) / (s.all + 4)
	}
	return (s.in + 1) / (s.all + 2)
}

// absurd is -ln of one in a million.
const absurd = 14

// fadeAt is how many samples count fully before older ones are halved.
const fadeAt = 4096

func (r *run) start(t stack.Time, depth int) {
	r.on, r.begin, r.depth, r.sure, r.loose = true, t, depth, 0, [2]int{}
	for q := range r.odds {
		r.odds[q] = -math.Log(r.share[q].chance(q))
	}
}

// count adds n samples. queued: they found the thread waiting for a CPU.
func (r *run) count(n int, unrun, queued bool, ns int64) {
	if unrun { // its place is not random
		if r.on {
			r.sure += ns
		}
		return
	}
	q := index(queued)
	s := &r.share[q]
	if r.on {
		r.sure = 0
		r.loose[q] += n
		s.in += float64(n)
	}
	if s.all += float64(n); s.all > fadeAt {
		s.in, s.all = s.in/2, s.all/2
	}
}

func index(queued bool) int {
	if queued {
		return 1
	}
	return 0
}

// longer reports whether the run has certainly been one call for limit ns, up to seen: the
// thread has not run for that long, or a chance coincidence is too improbable.
func (r *run) longer(limit int64, seen stack.Time) bool {
	return r.on && int64(seen-r.begin) >= limit &&
		(r.sure >= limit || float64(r.loose[0])*r.odds[0]+float64(r.loose[1])*r.odds[1] >= absurd)
}

// Add returns a Track for a thread; feed it with all its events, from a Sync on.
func (s *Set) Add(tid stack.TID, name string, main bool) *Track {
	t := &Track{TID: tid, Name: name, Main: main, set: s, runs: make([]run, len(s.functions))}
	for _, bit := range append([]int{-1}, s.loops...) {
		t.loops = append(t.loops, loop{bit: bit, depth: -1})
	}
	return t
}

// Feed processes the next event.
func (t *Track) Feed(e event.Event) { t.replay.Apply(e, t) }

// Lost reports that events are missing.
func (t *Track) Lost() { t.replay.Desync(t.at, t) }

// settle completes the sample of t.at when a later one begins.
func (t *Track) settle(at stack.Time) {
	if at <= t.at {
		return
	}
	if t.fresh && t.at != 0 {
		t.fresh = false
		if t.now.state == stack.StateBlocked && t.set.polls(t.now.call) {
			for i := range t.loops {
				t.loops[i].visit(t)
			}
		}
	}
	t.follow()
	t.at = at
}

// Enter implements diff.Handler.
func (t *Track) Enter(at stack.Time, depth int, f diff.Frame) {
	t.settle(at)
	x := frame{word: f.Word, entered: at}
	x.mask = t.set.mask(t, f.Word, at)
	t.frames = append(t.frames[:depth], x)
	t.begin(x.mask, at, depth)
}

func (t *Track) begin(mask uint64, at stack.Time, depth int) {
	if mask == 0 {
		return
	}
	for bit := range t.runs {
		if mask>>bit&1 == 0 {
			continue
		}
		if !t.runs[bit].on {
			t.runs[bit].start(at, depth)
		}
		if f := t.set.functions[bit]; f.loop {
			if l := t.named(bit); l.depth < 0 {
				l.depth = depth
			}
		} else if f.rule.Kind == Call && f.rule.Slower == 0 && len(t.calls) < maxTimes {
			t.calls = append(t.calls, called{bit, at, t.frames[depth].word})
		}
	}
}

// named returns the loop of a rule that names it.
func (t *Track) named(bit int) *loop {
	for i := range t.loops {
		if t.loops[i].bit == bit {
			return &t.loops[i]
		}
	}
	return &t.loops[0]
}

// Exit implements diff.Handler.
func (t *Track) Exit(at stack.Time, depth int, _ diff.Frame) {
	t.settle(at)
	t.leave(depth)
	t.frames = t.frames[:depth]
	for i := range t.loops {
		if l := &t.loops[i]; depth <= l.depth {
			l.forget()
		}
	}
}

func (t *Track) leave(depth int) {
	for i := range t.runs {
		if r := &t.runs[i]; r.on && r.depth >= depth {
			r.on = false
		}
	}
}

// Move implements diff.Handler.
func (t *Track) Move(at stack.Time, depth int, f diff.Frame) {
	t.settle(at)
	x := &t.frames[depth]
	x.word = f.Word
	// Other functions may be inlined there.
	if mask := t.set.mask(t, f.Word, at); mask != x.mask {
		t.leave(depth)
		x.mask = mask
		t.begin(mask, at, depth)
	}
}

// Other implements diff.Handler.
func (t *Track) Other(e event.Event) {
	switch e.Kind() {
	case event.State:
		t.settle(e.Time)
		st, nr := event.StateFields(e.Payload())
		if st == t.now.state && nr == t.now.call && e.Time == t.seen {
			return // repeated by a Sync
		}
		t.now = sample{state: st, call: nr, at: e.Time}
		t.fresh = true
	case event.Lock:
		if a := e.Payload(); a != t.now.lock {
			t.now.lock, t.now.holder, t.now.lockAt = a, 0, e.Time
			if a != 0 && t.now.at != 0 && t.now.state == stack.StateBlocked {
				t.now.lockAt = t.now.at // it waits since then; the lock was determined later
			}
		}
	case event.Holder:
		t.now.holder, _ = event.HolderFields(e.Payload())
	case event.Seen:
		t.settle(e.Time)
		way, n, cpu := event.SeenFields(e.Payload())
		t.account(way, n, cpu, e.Time)
	case event.Mark:
		if stack.Why(e.Payload()) == stack.WhyExec {
			t.now = sample{}
		}
	}
}

// account adds n samples of the current stack.
func (t *Track) account(way stack.Way, n int, cpu int64, at stack.Time) {
	if t.seen == 0 {
		t.since = at
	} else {
		t.cpu += cpu
	}
	t.follow()
	ns := int64(at - max(t.seen, t.now.at))
	if t.seen == 0 || ns < 0 {
		ns = 0
	}
	unrun, queued := way == stack.WayUnrun, t.now.state == stack.StateRunnable
	for i := range t.runs {
		t.runs[i].count(n, unrun, queued, ns)
	}
	for i := range t.loops {
		if l := &t.loops[i]; l.depth >= 0 {
			l.count(n, unrun, queued, ns)
		}
	}
	t.seen = max(t.seen, at)
}

// follow updates the runs outside of event loops.
func (t *Track) follow() {
	for i := range t.loops {
		t.loops[i].follow(t)
	}
}
