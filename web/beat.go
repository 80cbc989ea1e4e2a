package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web/store"
	"github.com/sliverprof/sliver/web/wire"
)

// beat is a timeline at one moment. What clients with equal views are to be sent
// is made once in it, for all who have read equally far: many who follow a
// recording cost hardly more than one. A beat may be used by several goroutines.
type beat struct {
	f    *feed
	at   time.Time
	done bool  // the source had been read to its end
	seqs []int // of all threads
	grew uint64

	mu     sync.Mutex
	before map[lookKey]*store.Snapshot // of the beat before
	looks  map[lookKey]*store.Snapshot
	frames map[frameKey]*made
	after  map[viewKey][]*positions
	told   map[known]*toldNames
}

type lookKey struct {
	seq   int
	kinds store.Kinds
}

// viewKey has all of a view but its number, and the time where frames do not
// depend on it.
type viewKey struct {
	threads, funcs string
	kinds          store.Kinds
	bin            float64
	t0, t1         stack.Time
}

// frameKey is a frame of a view that goes on from somewhere; nil: all of the view.
type frameKey struct {
	view viewKey
	from *positions
}

// positions are how far a view has been read. They never change.
type positions struct{ threads map[int]*viewed }

type viewed struct {
	pos     store.Position
	settled bool // nothing in the view can change any more
}

// made is a frame. Its bytes lack the number of the view.
type made struct {
	once    sync.Once
	frame   []byte
	gap     []byte // what was lost before it; nil: nothing
	threads int    // in the frame
	after   *positions
	version uint64 // of the names
	names   known  // what the frame may refer to
}

// beat is a feed's timeline now, or a moment ago: half of what lies between two
// frames, so that those who are to be sent one at the same time share it.
func (s *Server) beat(f *feed) *beat {
	done, _, _ := f.state()
	f.beating.Lock()
	defer f.beating.Unlock()
	old := f.last
	if old != nil && old.done == done && time.Since(old.at) < s.period()/2 {
		return old
	}
	b := &beat{f: f, at: time.Now(), done: done, grew: f.st.Changed(), looks: map[lookKey]*store.Snapshot{},
		frames: map[frameKey]*made{}, after: map[viewKey][]*positions{}, told: map[known]*toldNames{}}
	if old != nil {
		old.mu.Lock()
		b.before = maps.Clone(old.looks)
		old.mu.Unlock()
	}
	if old != nil && old.grew == b.grew {
		b.seqs = old.seqs
	} else {
		for _, in := range f.st.Infos() {
			b.seqs = append(b.seqs, in.Seq)
		}
	}
	f.last = b
	return b
}

// rest gives back what the last beat holds.
func (f *feed) rest() {
	f.beating.Lock()
	defer f.beating.Unlock()
	f.last = nil
}

// look is a thread as it is in this beat; nil if there is none of that number.
func (b *beat) look(seq int, kinds store.Kinds) *store.Snapshot {
	t := b.f.st.Lookup(seq)
	if t == nil {
		return nil
	}
	k := lookKey{seq, kinds}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.looks[k]
	if s == nil {
		s = t.Look(kinds, b.before[k])
		b.looks[k] = s
	}
	return s
}

// key tells views apart; in more, frames of type 2 are meant.
func (q *query) key(f *feed, kinds store.Kinds, more bool) viewKey {
	k := viewKey{funcs: join(q.Funcs), kinds: kinds, bin: q.Bin, threads: "all"}
	if q.Threads != nil {
		k.threads = join(q.Threads)
	}
	if !more || !q.Follow {
		k.t0, k.t1 = q.span(f)
	}
	return k
}

func join[T int | uint32](x []T) string {
	var b []byte
	for _, v := range x {
		b = append(strconv.AppendInt(b, int64(v), 10), ' ')
	}
	return string(b)
}

// frame is what a view that has been read up to from is to be sent; with nil, all
// of it. The work is done by the first who wants it, in a turn.
func (b *beat) frame(s *Server, q *query, kinds store.Kinds, from *positions) *made {
	k := frameKey{q.key(b.f, kinds, from != nil), from}
	b.mu.Lock()
	m := b.frames[k]
	if m == nil {
		m = &made{}
		b.frames[k] = m
	}
	b.mu.Unlock()
	m.once.Do(func() {
		s.turns(nil)
		defer s.turned()
		b.make(m, q, kinds, from)
		s.made.Add(1)
		m.after = b.same(q.key(b.f, kinds, true), m.after)
	})
	return m
}

// same is positions that are as far as p and were given to others in this beat:
// from then on they are sent the same.
func (b *beat) same(k viewKey, p *positions) *positions {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.after[k] {
		if x == p || maps.EqualFunc(x.threads, p.threads, func(v, w *viewed) bool {
			return v == w || v.settled == w.settled && v.pos.Equal(&w.pos)
		}) {
			return x
		}
	}
	b.after[k] = append(b.after[k], p)
	return p
}

func (b *beat) make(m *made, q *query, kinds store.Kinds, from *positions) {
	f := b.f
	m.version = f.st.Names.Version()
	lit := q.lit(f)
	t0, t1 := q.span(f)
	seqs := q.Threads
	if seqs == nil {
		seqs = b.seqs
	}
	fr := wire.Frame{Type: wire.TypeView, Bin: q.Bin}
	lost := wire.Frame{Type: wire.TypeGap}
	at := map[int]*viewed{}
	if from != nil {
		fr.Type = wire.TypeMore
		at = maps.Clone(from.threads)
		if q.Follow {
			t0 = math.MinInt64 // of a thread that began since, for all who follow
		}
	}
	var views []store.View
	for _, seq := range seqs {
		look := b.look(seq, kinds)
		if look == nil {
			continue
		}
		old := at[seq]
		if old == nil {
			p := &viewed{pos: store.Position{Kinds: kinds}}
			v := look.View(t0, t1, int64(q.Bin), lit, &p.pos)
			p.settled = v.Last >= t1
			at[seq] = p
			views = append(views, v)
			continue
		}
		if old.settled {
			continue
		}
		p := &viewed{pos: old.pos.Clone()}
		v, ok := look.More(int64(q.Bin), lit, &p.pos)
		if !ok {
			continue
		}
		p.settled = v.Last >= t1
		at[seq] = p
		n := 0
		for i := range v.Rows {
			n += v.Rows[i].Lost
		}
		if n > 0 {
			lost.Threads = append(lost.Threads, wire.Thread{Seq: uint32(seq), Lost: uint32(n)})
		}
		views = append(views, v)
	}
	m.after, m.threads = &positions{at}, len(views)
	if len(lost.Threads) > 0 {
		m.gap = encode(f, &lost, nil)
	}
	m.frame = encode(f, &fr, views)
	m.names = f.known()
}

// encode makes a frame's bytes.
func encode(f *feed, fr *wire.Frame, views []store.View) []byte {
	_, now := f.st.Span()
	fr.Now = float64(now - f.base)
	funcOf := f.st.Names.FuncOf()
	for i := range views {
		fr.Threads = append(fr.Threads, wireThread(f, &views[i], funcOf))
	}
	return wire.Append(nil, fr)
}

func wireThread(f *feed, v *store.View, funcOf []uint32) wire.Thread {
	t := wire.Thread{Seq: uint32(v.Seq), Last: float64(v.Last - f.base), Seen: float64(v.Seen - f.base)}
	for i := range v.Rows {
		r := &v.Rows[i]
		t.Lost += uint32(r.Lost)
		out := wire.Row{Depth: uint32(r.Depth), Items: make([]wire.Item, len(r.Items))}
		for k, x := range r.Items {
			w := wire.Item{Start: float64(x.Start - f.base), End: float64(x.End - f.base), Busy: float32(x.Busy), Value: x.Place, Count: x.Count}
			if x.End == store.Open {
				w.End = math.Inf(1)
			}
			switch r.Depth {
			case store.LaneRow(store.LaneState):
				s := f.st.State(x.Place)
				w.Value = uint32(s.State) | uint32(uint16(s.Call+1))<<8
			case store.LaneRow(store.LaneLock), store.LaneRow(store.LanePause), store.LaneRow(store.LaneGap):
			default:
				if int(x.Place) < len(funcOf) {
					w.Value = funcOf[x.Place]
				}
			}
			out.Items[k] = w
		}
		t.Rows = append(t.Rows, out)
	}
	return t
}

// toldNames is a message with names, and how many are known after it.
type toldNames struct {
	known
	json []byte // nil: there is nothing new
}

// known is how many functions and locks there are, or a client knows.
type known struct{ funcs, locks int }

func (f *feed) known() known { return known{f.st.Names.Funcs(), f.st.LockCount()} }

// names is what a client is told that knows so many functions and locks. It then
// knows at least as many as need says.
func (b *beat) names(s *Server, k, need known) (*toldNames, error) {
	find := func() *toldNames {
		if t := b.told[k]; t != nil && t.funcs >= need.funcs && t.locks >= need.locks {
			return t
		}
		return nil
	}
	b.mu.Lock()
	t := find()
	b.mu.Unlock()
	if t != nil {
		return t, nil
	}
	s.turns(nil)
	defer s.turned()
	b.mu.Lock()
	defer b.mu.Unlock()
	if t = find(); t != nil {
		return t, nil
	}
	f := b.f
	fs, ls := f.st.Names.Since(k.funcs), f.st.Locks(k.locks)
	t = &toldNames{known: known{k.funcs + len(fs), k.locks + len(ls)}}
	if len(fs)+len(ls) > 0 {
		var err error
		t.json, err = json.Marshal(namesMessage{Op: "names", From: k.funcs, Funcs: fs, LocksFrom: k.locks, Locks: lockMessages(f, ls)})
		if err != nil {
			return nil, fmt.Errorf("encode names: %w", err)
		}
	}
	b.told[k] = t
	return t, nil
}

// lit are the places of the functions that a view searches for; nil: none.
func (q *query) lit(f *feed) []bool {
	if len(q.Funcs) == 0 {
		return nil
	}
	funcOf := f.st.Names.FuncOf()
	lit := make([]bool, len(funcOf))
	want := slices.Clone(q.Funcs)
	slices.Sort(want)
	for p, fn := range funcOf {
		_, lit[p] = slices.BinarySearch(want, fn)
	}
	return lit
}

// span is the time that a query is about.
func (q *query) span(f *feed) (t0, t1 stack.Time) {
	t0, t1 = clampTime(q.T0)+f.base, clampTime(q.T1)+f.base
	if q.Follow || q.T1 <= q.T0 {
		t1 = store.Open
	}
	if q.T1 <= q.T0 && !q.Follow {
		t0 = math.MinInt64
	}
	return t0, t1
}

func clampTime(v float64) stack.Time { return stack.Time(min(max(v, -1e18), 1e18)) }
