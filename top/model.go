// Package top keeps count of what the threads of a process do: which functions
// they spend their time in and what they wait for, over the last window, from
// the events of their rings. It knows no clock, no process and no terminal:
// events and names come from whoever feeds it (package top/feed), tables are
// drawn elsewhere (package top/tui).
//
// A Model and its Threads are for one goroutine. Tables are plain data and
// belong to whoever asked for them.
package top

import (
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Bounds of a window.
const (
	MinWindow = 200 * time.Millisecond
	MaxWindow = 5 * time.Minute
)

const (
	// perWindow is how many buckets a window has: it moves on by one at a time.
	perWindow = 20
	// settle is how long (ns) it takes until the CPU time of an unchanged stack
	// is told (diff.DefaultSeenEvery) and its ring read.
	settle = diff.DefaultSeenEvery + 50_000_000
	// maxLag bounds (ns) how far a window ends before the newest event, however
	// rare samples have become.
	maxLag = 2_000_000_000
	// maxTime is later than any clock: 146 years after its start.
	maxTime = 1 << 62
	// sameExec is how far apart (ns) threads may tell of one exec.
	sameExec = 1_000_000_000
)

// Model holds the threads of one process.
type Model struct {
	width   int64 // ns of a bucket
	buckets int64 // of a thread
	tree    *tree
	threads []*Thread
	taken   int
	gen     int32
	execAt  stack.Time
	folded  uint64
	lost    uint64
	begin   stack.Time // of the first event
	told    int        // stacks that Fresh was at
	idle    bool       // idle waits and threads are in tables
}

// New makes a Model that adds up over window, which is cut to the bounds above.
func New(window time.Duration) *Model {
	w := int64(min(max(window, MinWindow), MaxWindow)) / perWindow
	return &Model{width: w, buckets: perWindow + maxLag/w + 2, tree: newTree()}
}

// ShowIdle keeps idle waits and threads in tables, or leaves them out: see package wait/idle.
func (m *Model) ShowIdle(on bool) { m.idle = on }

// Program counts the execs that the events told of: Names are asked with it.
func (m *Model) Program() int { return int(m.gen) }

// Values are sums of time in ns.
type Values struct {
	Wall int64 // elapsed
	CPU  int64 // on a CPU, by the kernel's account
}

func (v *Values) add(w Values) { v.Wall += w.Wall; v.CPU += w.CPU }

// key is what values are kept for.
type key struct {
	node  int32
	call  int32 // system call that it is in, plus 1; 0: none
	wait  int32 // number of a description
	state stack.State
}

type bucket struct {
	no  int64 // time of its begin, in widths
	sum map[key]spent
}

// spent is what one thread's events say of a key. CPU is where it was told, mostly of the call that the
// thread blocks in next; runs is where it was seen on a CPU: see spent.share.
type spent struct {
	Values
	runs float64 // samples that found the thread on a CPU
}

func (x *spent) add(y spent) {
	x.Values.add(y.Values)
	x.runs += y.runs
}

// Thread is one thread of a Model.
type Thread struct {
	m      *Model
	info   stack.ThreadInfo
	seq    int
	replay diff.Replayer
	nodes  []int32 // of the stack, by depth
	gen    int32

	key   key
	call  int32
	since stack.Time // since when it has been in this state, as far as seen
	wait  int
	lock  uint64
	hold  stack.TID
	by    event.KnownBy
	rate  int64 // ns between its samples

	at    stack.Time // what was before it is accounted for; 0: nothing came yet
	said  stack.Time // up to here its CPU time is
	last  stack.Time // time of the newest event
	ended bool

	ring []bucket
}

// Thread takes up a thread.
func (m *Model) Thread(info stack.ThreadInfo) *Thread {
	t := &Thread{m: m, info: info, seq: m.taken, gen: m.gen, call: -1, ring: make([]bucket, m.buckets)}
	m.taken++
	t.key.node = m.tree.root(t.gen)
	m.threads = append(m.threads, t)
	return t
}

// Rename gives the thread its new name.
func (t *Thread) Rename(name string) { t.info.Name = name }

// TID of the thread.
func (t *Thread) TID() stack.TID { return t.info.TID }

// Lost says that n events of the thread were overwritten before they could be
// applied: what follows counts from the next whole stack on.
func (t *Thread) Lost(n uint64) {
	t.m.lost += n
	if t.last != 0 {
		t.Apply(event.Make(t.last, event.Gap, event.GapOf(stack.WhyLost, 0)))
	}
}

// Apply takes the next event of the thread.
func (t *Thread) Apply(e event.Event) {
	if k := e.Kind(); k != event.Pause && (t.at == 0 || e.Time > t.at) {
		// A Sync's frames bear the times at which they were entered, long ago:
		// these are below t.at, but for the first ones of all.
		t.spend(e.Time)
	}
	t.last = max(t.last, e.Time)
	t.replay.Apply(e, (*handler)(t))
}

// spend accounts for the time up to at.
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

// spread calls add for each bucket between two times with the ns of it. What
// lies further back than buckets are kept is left out.
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

// bucket is number no; nil where it is out of reach by now.
func (t *Thread) bucket(no int64) *bucket {
	if no < 0 {
		return nil // no clock says so
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

// ran puts CPU time where it was spent: between the last time that it was told
// of and now. runs of the samples since then found the thread on a CPU in the stack of that time: a change of
// the stack is told of after the CPU time before it (diff.Differ).
func (t *Thread) ran(at stack.Time, cpu int64, runs int) {
	from := t.said
	t.said = max(t.said, at)
	if cpu <= 0 && runs == 0 || len(t.nodes) == 0 {
		return
	}
	if from >= at {
		if b := t.bucket(int64(at) / t.m.width); b != nil {
			b.add(t.key, spent{Values{CPU: cpu}, float64(runs)})
		}
		return
	}
	span, left := float64(at-from), cpu
	t.spread(from, at, func(b *bucket, ns int64) {
		part := min(int64(float64(cpu)*float64(ns)/span+.5), left)
		left -= part
		b.add(t.key, spent{Values{CPU: part}, float64(runs) * float64(ns) / span})
	})
}

// handler is Thread as its Replayer sees it.
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

// below is the stack under depth.
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
		t.ran(e.Time, cpu, n)
	case event.State:
		s, nr := event.StateFields(e.Payload())
		if s != t.key.state || nr != t.call {
			t.since = e.Time
		}
		t.key.state, t.call = s, nr
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
			t.key.state, t.call = stack.StateUnknown, -1
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
	t.key.state, t.call = stack.StateDead, -1
	t.key.call, t.key.wait = 0, 0
	t.wait, t.lock, t.hold, t.by = 0, 0, 0, 0
}

// exec begins another program: every thread tells of it.
func (t *Thread) exec(at stack.Time) {
	m := t.m
	if m.execAt == 0 || at > m.execAt+sameExec {
		m.execAt = at
		m.gen++
	}
	t.replay.CloseAll(at, (*handler)(t)) // has been done, where nothing is odd
	t.gen = m.gen
	t.key = key{node: m.tree.root(t.gen)}
	t.call, t.wait, t.lock, t.hold, t.by = -1, 0, 0, 0, 0
}

// trim forgets threads that ended before the window, and stacks that are in no
// bucket any more once there are many.
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

// Fresh calls yield with the places that came since the last call, and now and
// then again with older ones: their names can be looked for before a Table asks.
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

// End says that the process has ended, and every thread with it.
func (m *Model) End() {
	for _, t := range m.threads {
		t.end()
	}
}

// Last is the time of the newest event.
func (m *Model) Last() (last stack.Time) {
	for _, t := range m.threads {
		last = max(last, t.last)
	}
	return last
}
