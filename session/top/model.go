// Package top sums up what the threads of a process do: the functions they spend their time in and what they
// wait for, over the last window, from the events of their rings. It does not use a clock, a process or a
// terminal: package top/feed supplies events and names, and package top/tui draws the tables.
//
// A Model and its Threads are for one goroutine. Tables are plain data and belong to the caller.
package top

import (
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Limits of a window.
const (
	MinWindow = 200 * time.Millisecond
	MaxWindow = 5 * time.Minute
)

const (
	// perWindow is how many buckets a window has; it advances by one bucket.
	perWindow = 20
	// Late is how much later than it happened an event may be applied.
	Late = 250 * time.Millisecond
	// settle is how long (ns) it takes until the CPU time of an unchanged stack is recorded
	// (diff.DefaultSeenEvery) and applied.
	settle = diff.DefaultSeenEvery + int64(Late)
	// maxLag limits (ns) how far a window ends before the newest event, even if samples have become rare.
	maxLag = 2_000_000_000
	// maxTime is later than any clock: 146 years after its start.
	maxTime = 1 << 62
	// sameExec is the largest time (ns) between the events of one exec on different threads.
	sameExec = 1_000_000_000
)

// Model holds the threads of one process.
type Model struct {
	width   int64 // ns of a bucket
	buckets int64 // buckets per thread
	tree    *tree
	threads []*Thread
	taken   int
	gen     int32
	execAt  stack.Time
	folded  uint64
	lost    uint64
	begin   stack.Time // time of the first event
	told    int        // nodes already yielded by Fresh
	idle    bool       // include idle waits and threads in tables
	gil     bool       // tables have only time with the GIL
}

// New returns a Model that sums over window, which is limited to the range above.
func New(window time.Duration) *Model {
	w := int64(min(max(window, MinWindow), MaxWindow)) / perWindow
	return &Model{width: w, buckets: perWindow + maxLag/w + 2, tree: newTree()}
}

// ShowIdle includes idle waits and threads in tables, or omits them: see package wait/idle.
func (m *Model) ShowIdle(on bool) { m.idle = on }

// OnlyGIL limits later tables to the time in which a thread was observed to hold its interpreter's global
// lock. A table has the threads that held it within the window.
func (m *Model) OnlyGIL(on bool) { m.gil = on }

// Program returns the number of execs seen so far; it is passed to Names.
func (m *Model) Program() int { return int(m.gen) }

// Values are sums of time in ns.
type Values struct {
	Wall int64 // elapsed
	CPU  int64 // on a CPU, by the kernel's account
}

func (v *Values) add(w Values) { v.Wall += w.Wall; v.CPU += w.CPU }

// key identifies accumulated values.
type key struct {
	node  int32
	call  int32 // current system call plus 1; 0: none
	wait  int32 // ID of a description
	state stack.State
	gil   bool // the thread held its interpreter's global lock
}

type bucket struct {
	no  int64 // begin in units of the bucket width
	sum map[key]spent
}

// spent is the sum of one thread's events for a key. CPU is the time recorded with this key, mostly by the
// call that the thread blocks in next: see summer.share.
type spent struct {
	Values
	by [2]stratum // samples by stops, and by clocks: view.strata has the reason
}

// stratum is what samples that were taken in one way have.
type stratum struct {
	cpu  int64   // ns
	runs float64 // samples that found the thread on a CPU
}

func (x *spent) add(y spent) {
	x.Values.add(y.Values)
	for i, z := range y.by {
		x.by[i].cpu += z.cpu
		x.by[i].runs += z.runs
	}
}

// Thread is one thread of a Model.
type Thread struct {
	m      *Model
	info   stack.ThreadInfo
	seq    int
	replay diff.Replayer
	nodes  []int32 // nodes of the stack, by depth
	gen    int32

	key   key
	call  int32
	since stack.Time // when the current state was first observed
	wait  int
	lock  uint64
	hold  stack.TID
	by    event.KnownBy
	rate  int64 // ns between its samples

	at      stack.Time // time accounted so far; 0: no events yet
	said    stack.Time // CPU time accounted so far
	stratum int        // of the last sample that found it running or waiting for a CPU
	last    stack.Time // time of the newest event
	ended   bool

	ring []bucket
}

// Thread adds a thread.
func (m *Model) Thread(info stack.ThreadInfo) *Thread {
	t := &Thread{m: m, info: info, seq: m.taken, gen: m.gen, call: -1, ring: make([]bucket, m.buckets)}
	m.taken++
	t.key.node = m.tree.root(t.gen)
	m.threads = append(m.threads, t)
	return t
}

// Rename changes the thread's name.
func (t *Thread) Rename(name string) { t.info.Name = name }

// TID returns the thread's TID.
func (t *Thread) TID() stack.TID { return t.info.TID }

// Lost reports that n events of the thread were overwritten before they could be applied: counting resumes at
// the next whole stack.
func (t *Thread) Lost(n uint64) {
	t.m.lost += n
	if t.last != 0 {
		t.Apply(event.Make(t.last, event.Gap, event.GapOf(stack.WhyLost, 0)))
	}
}

// Apply processes the next event of the thread.
func (t *Thread) Apply(e event.Event) {
	if k := e.Kind(); k != event.Pause && (t.at == 0 || e.Time > t.at) {
		// The frames of a Sync have the times at which they were entered, long ago: these are before t.at,
		// except for the very first ones.
		t.spend(e.Time)
	}
	t.last = max(t.last, e.Time)
	t.replay.Apply(e, (*handler)(t))
}

// spend accounts the time up to at.
func (t *Thread) spend(at stack.Time) {
	if t.at == 0 {
		t.at, t.said, t.since = at, at, at
		if t.m.begin == 0 || at < t.m.begin {
			t.m.begin = at
		}
		return
	}
	if len(t.nodes) > 0 && !t.ended {
		t.spread(t.at, at, func(b *bucket, ns int64) { b.add(t.key, spent{Values: Values{Wall: ns}}) })
	}
	t.at = at
}

// spread calls add for each bucket between two times with its share in ns. Time before the oldest bucket is
// dropped.
func (t *Thread) spread(from, to stack.Time, add func(b *bucket, ns int64)) {
	if to > maxTime {
		return
	}
	w := stack.Time(t.m.width)
	from = max(from, to-w*stack.Time(t.m.buckets), 0)
	for from < to {
		no := int64(from / w)
		end := min(stack.Time(no+1)*w, to)
		if b := t.bucket(no); b != nil {
			add(b, int64(end-from))
		}
		from = end
	}
}

// bucket returns bucket no; nil if it is out of range.
func (t *Thread) bucket(no int64) *bucket {
	if no < 0 {
		return nil // not a possible time
	}
	b := &t.ring[no%int64(len(t.ring))]
	if b.no != no {
		if b.no > no {
			return nil
		}
		b.no = no
		clear(b.sum)
	}
	if b.sum == nil {
		b.sum = map[key]spent{}
	}
	return b
}

func (b *bucket) add(k key, v spent) {
	s := b.sum[k]
	s.add(v)
	b.sum[k] = s
}

// ran adds CPU time over the span in which it was spent: from the previous CPU record to at. runs of the
// samples since then found the thread on a CPU in the stack of that span, as the differ records CPU time
// before it records a change of the stack (diff.Differ).
func (t *Thread) ran(at stack.Time, cpu int64, runs int) {
	from := t.said
	t.said = max(t.said, at)
	if cpu <= 0 && runs == 0 || len(t.nodes) == 0 {
		return
	}
	add := func(b *bucket, cpu int64, runs float64) {
		x := spent{Values: Values{CPU: cpu}}
		x.by[t.stratum] = stratum{cpu, runs}
		b.add(t.key, x)
	}
	if from >= at {
		if b := t.bucket(int64(at) / t.m.width); b != nil {
			add(b, cpu, float64(runs))
		}
		return
	}
	span, left := float64(at-from), cpu
	t.spread(from, at, func(b *bucket, ns int64) {
		part := min(int64(float64(cpu)*float64(ns)/span+.5), left)
		left -= part
		add(b, part, float64(runs)*float64(ns)/span)
	})
}

// handler is Thread as a handler for its Replayer.
type handler Thread

func (h *handler) Enter(_ stack.Time, depth int, f diff.Frame) {
	t := (*Thread)(h)
	t.nodes = append(t.nodes[:depth], t.on(depth, f.Word))
	t.key.node = t.nodes[depth]
}

func (h *handler) Exit(_ stack.Time, depth int, _ diff.Frame) {
	t := (*Thread)(h)
	t.nodes = t.nodes[:depth]
	t.key.node = t.below(depth)
}

func (h *handler) Move(_ stack.Time, depth int, f diff.Frame) {
	t := (*Thread)(h)
	t.nodes[depth] = t.on(depth, f.Word)
	t.key.node = t.nodes[depth]
}

// below returns the stack below depth.
func (t *Thread) below(depth int) int32 {
	if depth == 0 {
		return t.m.tree.root(t.gen)
	}
	return t.nodes[depth-1]
}

func (t *Thread) on(depth int, w event.Word) int32 {
	n, ok := t.m.tree.on(t.below(depth), w)
	if !ok {
		t.m.folded++
	}
	return n
}

func (h *handler) Other(e event.Event) {
	t := (*Thread)(h)
	switch e.Kind() {
	case event.Seen:
		way, n, cpu := event.SeenFields(e.Payload())
		if !event.Ran(t.key.state, way) {
			n = 0
		}
		switch {
		case n == 0 && t.key.state != stack.StateRunnable: // a clock leaves waits to looks
		case way == stack.WayClock:
			t.stratum = 1
		default:
			t.stratum = 0
		}
		t.ran(e.Time, cpu, n)
	case event.State:
		s, nr := event.StateFields(e.Payload())
		if s != t.key.state || nr != t.call {
			t.since = e.Time
		}
		t.key.state, t.call = s, nr
		t.key.gil = e.Payload()&event.StateGIL != 0
		t.key.call, t.key.wait = max(nr, -1)+1, 0
		t.wait, t.lock, t.hold, t.by = 0, 0, 0, 0
	case event.Wait:
		t.wait = int(e.Payload() & (1<<31 - 1))
		t.key.wait = int32(t.wait)
	case event.Lock:
		t.lock, t.hold, t.by = e.Payload(), 0, 0
	case event.Holder:
		t.hold, t.by = event.HolderFields(e.Payload())
	case event.Rate:
		t.rate = int64(e.Payload())
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			t.key.state, t.key.gil, t.call = stack.StateUnknown, false, -1
			t.key.call, t.key.wait = 0, 0
			t.wait, t.lock, t.hold, t.by = 0, 0, 0, 0
		}
	case event.Mark:
		switch stack.Why(e.Payload()) {
		case stack.WhyGone:
			t.end()
		case stack.WhyExec:
			t.exec(e.Time)
		}
	}
}

func (t *Thread) end() {
	t.ended = true
	t.key.state, t.key.gil, t.call = stack.StateDead, false, -1
	t.key.call, t.key.wait = 0, 0
	t.wait, t.lock, t.hold, t.by = 0, 0, 0, 0
}

// exec switches to another program; every thread reports the exec.
func (t *Thread) exec(at stack.Time) {
	m := t.m
	if m.execAt == 0 || at > m.execAt+sameExec {
		m.execAt = at
		m.gen++
	}
	t.replay.CloseAll(at, (*handler)(t)) // already done unless events are invalid
	t.gen = m.gen
	t.key = key{node: m.tree.root(t.gen)}
	t.call, t.wait, t.lock, t.hold, t.by = -1, 0, 0, 0, 0
}

// trim removes threads that ended before the window. If there are many stacks, it also removes those that are
// in no bucket.
func (m *Model) trim(from stack.Time) {
	kept := m.threads[:0]
	for _, t := range m.threads {
		if !t.ended || t.last >= from {
			kept = append(kept, t)
		}
	}
	clear(m.threads[len(kept):])
	m.threads = kept
	if len(m.tree.nodes) > maxNodes/2 {
		m.compact(from)
	}
}

func (m *Model) compact(from stack.Time) {
	old, fresh := m.tree, newTree()
	moved := make([]int32, len(old.nodes))
	for _, t := range m.threads {
		for i := range t.ring {
			b := &t.ring[i]
			if stack.Time((b.no+1)*m.width) <= from {
				clear(b.sum)
				continue
			}
			sum := make(map[key]spent, len(b.sum))
			for k, v := range b.sum {
				k.node = fresh.move(old, k.node, moved)
				s := sum[k]
				s.add(v)
				sum[k] = s
			}
			b.sum = sum
		}
		for i, n := range t.nodes {
			t.nodes[i] = fresh.move(old, n, moved)
		}
		t.key.node = fresh.move(old, t.key.node, moved)
	}
	m.tree, m.told = fresh, 0
}

// Fresh calls yield with the places added since the last call, and with older ones again after a compaction.
// It lets the caller resolve names before a Table needs them.
func (m *Model) Fresh(yield func(prog int, w event.Word)) {
	for _, n := range m.tree.nodes[m.told:] {
		if n.parent != 0 && n.word.Kind() != stack.KindError {
			yield(int(n.gen), n.word)
		}
	}
	m.told = len(m.tree.nodes)
}

// Ended reports whether the thread has ended: no more events will come.
func (t *Thread) Ended() bool { return t.ended }

// End reports that the process has ended, and every thread with it.
func (m *Model) End() {
	for _, t := range m.threads {
		t.end()
	}
}

// Last returns the time of the newest event.
func (m *Model) Last() (last stack.Time) {
	for _, t := range m.threads {
		last = max(last, t.last)
	}
	return last
}
