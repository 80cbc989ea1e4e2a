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

// beat is a timeline at one moment. It builds each frame once and shares it among all
// clients with equal views and positions. Following a recording with many clients costs
// hardly more than with one. A beat may be used by several goroutines.
type beat struct {
	f    *feed
	at   time.Time
	done bool  // the source has been read to its end
	seqs []int // of all threads
	grew uint64

	mu     sync.Mutex
	before map[lookKey]*store.Snapshot // of the previous beat
	looks  map[lookKey]*store.Snapshot
	frames map[frameKey]*made
	after  map[viewKey][]*positions
	told   map[known]*toldNames
}

type lookKey struct {
	seq   int
	kinds store.Kinds
}

// viewKey identifies a view without its number. The time is included only if frames
// depend on it.
type viewKey struct {
	threads, funcs string
	kinds          store.Kinds
	bin            float64
	t0, t1         stack.Time
}

// frameKey identifies the frame of a view that continues from a position; nil: the whole
// view.
type frameKey struct {
	view viewKey
	from *positions
}

// positions are how far a view has been read. They are immutable.
type positions struct{ threads map[int]*viewed }

type viewed struct {
	pos     store.Position
	settled bool // nothing in the view can change any more
}

// made is a frame. Its bytes lack the view's number.
type made struct {
	once    sync.Once
	frame   []byte
	gap     []byte // a gap frame to send first; nil: nothing was lost
	threads int    // number of threads in the frame
	after   *positions
	version uint64 // of the names
	names   known  // names that the frame may refer to
}

// beat returns a feed's timeline now, or of a moment ago: at most half the time between
// two frames, so that clients whose frames are due at the same time share it.
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

// rest releases the last beat.
func (f *feed) rest() {
	f.beating.Lock()
	defer f.beating.Unlock()
	f.last = nil
}

// look returns a thread's snapshot in this beat; nil for an unknown thread.
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

// key identifies a view; more means frames of type 2.
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

// frame returns the frame for a view that has been read up to from; nil: the whole view.
// The first caller that needs it builds it, within a turn.
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

// same returns positions of this beat that are equal to p, so that clients at equal
// positions share frames from then on.
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
			t0 = math.MinInt64 // of a thread that began since, for all followers
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

// encode encodes a frame.
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
				w.Value = uint32(s.State) | uint32(uint16(s.Call+1))<<8 | uint32(f.class(x.Place))<<24
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
	json []byte // nil: nothing new
}

// known is the number of functions and locks that exist, or that a client knows.
type known struct{ funcs, locks int }

func (f *feed) known() known { return known{f.st.Names.Funcs(), f.st.LockCount()} }

// names returns the names message for a client that knows k functions and locks. After it
// the client knows at least need.
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

// lit returns the places of the functions that a view searches for; nil: none.
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

// span returns the time range of a query.
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
