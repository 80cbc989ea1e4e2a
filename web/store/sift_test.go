package store_test

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/store"
)

// mixed gives each function of a recording a kind. It replays the recording into a store
// and into the expected result for one set of kinds.
type mixed struct {
	feeder
	kinds store.Kinds
	open  []stack.Time // of all calls, by depth
	kept  []bool
	runs  []bool // of all calls: a runtime runs them
	late  bool   // no place is known to be a runtime's at first
	calls []trueCall
}

func kindOf(s *trace.Slice) stack.Kind { return stack.Kind(s.Frame.Func % 5) }

// ofRuntime reports whether a function is an interpreter's own.
func ofRuntime(s *trace.Slice) bool { return kindOf(s) == stack.KindNative && s.Frame.Func%2 == 0 }

func (m *mixed) place(s *trace.Slice) uint32 {
	id, ok := m.p[s.Frame.Func]
	if !ok {
		id = m.n.Add(store.Place{Func: m.n.Func(store.Func{Name: m.m.Func(&s.Frame).Name}), Kind: kindOf(s), Runtime: ofRuntime(s) && !m.late})
		m.p[s.Frame.Func] = id
	}
	return id
}

func (m *mixed) Begin(t stack.Time, depth int, s *trace.Slice) {
	hidden := ofRuntime(s) && m.kinds&store.Runtime == 0 && slices.Contains(m.runs[:depth], true)
	m.open, m.kept = append(m.open[:depth], t), append(m.kept[:depth], m.kinds.Has(kindOf(s)) && !hidden)
	m.runs = append(m.runs[:depth], kindOf(s).Managed())
	m.f.Begin(t, m.place(s))
}

func (m *mixed) End(t stack.Time, depth int, s *trace.Slice) {
	m.f.End(t, m.place(s))
	if m.kept[depth] {
		n := 0
		for _, k := range m.kept[:depth] {
			if k {
				n++
			}
		}
		m.calls = append(m.calls, trueCall{n, m.open[depth], t})
	}
	m.open, m.kept = m.open[:depth], m.kept[:depth]
}

func (m *mixed) Other(e event.Event) { m.f.Other(e) }

// kindsOf returns the set of these kinds.
func kindsOf(kinds ...stack.Kind) store.Kinds {
	k := store.Kinds(1) << stack.KindError
	for _, x := range kinds {
		k |= 1 << (x & 7)
	}
	return k
}

// TestSiftedRows compares the rows of some kinds with a replay that skips the other
// kinds. Sift is called before, during or after feeding.
func TestSiftedRows(t *testing.T) {
	var b bytes.Buffer
	if _, err := synth.Write(&b, synth.Options{Seed: 3, Threads: 1, Interval: 1_000_000, Samples: 4000}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	events := slices.Collect(rec.Events(0))
	for _, at := range []int{0, len(events) / 2, len(events)} {
		for _, k := range []store.Kinds{kindsOf(stack.KindNative, stack.KindJava), kindsOf(stack.KindGo), kindsOf(stack.KindPython),
			kindsOf(stack.KindNative, stack.KindJava) | store.Runtime, 0xff} {
			st := store.New(0)
			th := st.Thread(store.Info{})
			names := trace.NewNames(rec)
			m := &mixed{feeder: feeder{p: map[int]uint32{}, n: st.Names, m: names}, kinds: k}
			if !st.Sift(k) {
				t.Fatal("one set of kinds is too many")
			}
			s := trace.NewSlices(names, m)
			feed := func(es []event.Event) {
				th.Feed(func(f *store.Feed) {
					m.f = f
					for _, e := range es {
						s.Apply(e)
					}
				})
			}
			p := store.Position{Kinds: k}
			feed(events[:at])
			before := th.View(math.MinInt64, store.Open, 1, nil, &p)
			if at > 0 && at < len(events) {
				var open []trueCall
				for d := range m.open {
					if m.kept[d] {
						open = append(open, trueCall{len(open), m.open[d], store.Open})
					}
				}
				var got []trueCall
				for _, r := range before.Rows {
					for _, x := range r.Items {
						if r.Depth < 0xff00 && x.End == store.Open {
							got = append(got, trueCall{r.Depth, x.Start, x.End})
						}
					}
				}
				if !reflect.DeepEqual(got, open) {
					t.Errorf("kinds %b, open in the middle: %v, want %v", k, got, open)
				}
			}
			feed(events[at:])
			th.Feed(func(f *store.Feed) {
				m.f = f
				s.Close(0)
				f.Close(f.Last())
			})
			var got []trueCall
			p = store.Position{Kinds: k}
			for _, r := range th.View(math.MinInt64, store.Open, 1, nil, &p).Rows {
				for _, x := range r.Items {
					// Calls without length are merged, and could belong to either of two
					// callers.
					if r.Depth < 0xff00 && x.End > x.Start {
						got = append(got, trueCall{r.Depth, x.Start, x.End})
					}
				}
			}
			want := slices.DeleteFunc(slices.Clone(m.calls), func(c trueCall) bool { return c.start == c.end })
			order := func(a, b trueCall) int {
				if a.depth != b.depth {
					return a.depth - b.depth
				}
				return int(a.start - b.start)
			}
			slices.SortFunc(want, order)
			if len(want) < 200 || !reflect.DeepEqual(got, want) {
				t.Errorf("kinds %b asked for after %d of %d events: %d calls, want %d", k, at, len(events), len(got), len(want))
			}
			if c := st.Tree(0, store.Open, nil, store.TreeOptions{Kinds: k}); len(c.Parent) < 2 {
				t.Errorf("kinds %b: an empty tree", k)
			}
		}
	}
}

// TestSiftedByName: a place that turns out to be an interpreter's, when its name is known, is left out as
// if that had been known from the start.
func TestSiftedByName(t *testing.T) {
	var b bytes.Buffer
	if _, err := synth.Write(&b, synth.Options{Seed: 4, Threads: 1, Interval: 1_000_000, Samples: 1500}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []store.Kinds{0xff, kindsOf(stack.KindNative, stack.KindGo, stack.KindJava, stack.KindPython)} {
		want, held := rowsByName(t, rec, own, false)
		got, after := rowsByName(t, rec, own, true)
		if len(want) < 5 || !reflect.DeepEqual(got, want) || held != after {
			t.Errorf("kinds %b: %d rows and %d slices, want %d and %d", own, len(got), after, len(want), held)
		}
	}
}

// rowsByName returns the rows of a recording of some kinds, and how many slices are held. late: the names
// come when two thirds of it are read.
func rowsByName(t *testing.T, rec *trace.Recording, own store.Kinds, late bool) (out []store.Row, held int) {
	t.Helper()
	st := store.New(0)
	th := st.Thread(store.Info{})
	names := trace.NewNames(rec)
	m := &mixed{feeder: feeder{p: map[int]uint32{}, n: st.Names, m: names}, kinds: own, late: late}
	if !st.Sift(own) {
		t.Fatal("one set of kinds is too many")
	}
	s := trace.NewSlices(names, m)
	events := slices.Collect(rec.Events(0))
	var before *store.Snapshot
	for i, e := range events {
		th.Feed(func(f *store.Feed) {
			m.f = f
			s.Apply(e)
		})
		if i == len(events)/2 || i == len(events)*3/4 {
			before = th.Look(own, before)
		}
		if i == len(events)*2/3 {
			var ids []uint32
			var places []store.Place
			for fn, id := range m.p {
				p := st.Names.Place(id)
				p.Runtime = ofRuntime(&trace.Slice{Frame: trace.LocFrame{Func: fn}})
				ids, places = append(ids, id), append(places, p)
			}
			m.late = false
			st.Names.Rename(ids, places)
		}
	}
	p := store.Position{Kinds: own}
	v := th.Look(own, before).View(math.MinInt64, store.Open, 1, nil, &p)
	return v.Rows, st.Held()
}

func TestSiftIsBounded(t *testing.T) {
	st := store.New(0)
	for i := range store.MaxSifted {
		if !st.Sift(store.Kinds(i + 1)) {
			t.Fatalf("set %d is refused", i)
		}
	}
	if st.Sift(0x7f) || !st.Sift(1) || !st.Sift(0) {
		t.Error("another set must be refused, a known one not")
	}
}
