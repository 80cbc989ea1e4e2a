package web

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
)

// arrow is a wait of a thread that another process ended.
type arrow struct {
	Thread int     `json:"thread"` // the one that waited
	Begin  float64 `json:"begin"`
	End    float64 `json:"end"`
	By     int     `json:"by"`   // the thread that ended the wait, or the first one of its process
	Text   string  `json:"text"` // what ended it: "cc1 (1234) ended"
}

type arrowsReply struct {
	Arrows []arrow `json:"arrows"` // by end
	More   int     `json:"more,omitempty"`
}

// maxArrows is how many arrows a reply has, those of the longest waits.
const maxArrows = 400

// ofBetween is a Source of processes that wait for each other.
type ofBetween interface {
	waits() []crossing
}

// crossing is an arrow, in absolute times.
type crossing struct {
	thread, by int
	begin, end stack.Time
	text       string
}

// waits finds the crossings, by end, when they are first asked for.
func (s *several) waits() []crossing {
	s.crossed.Do(func() {
		views := view.All(s.rec, view.Options{})
		b := between.Of(s.rec, views)
		number := func(i, thread int) int { return s.base[i] + views[i].Threads[thread].Seq }
		for k := range b.Waits {
			w := &b.Waits[k]
			if w.Waker < 0 {
				continue
			}
			by := b.Processes[w.Waker].View
			if by < 0 || len(views[by].Threads) == 0 {
				continue // it has no track
			}
			s.crossings = append(s.crossings, crossing{number(w.View, w.Thread), number(by, max(w.WakerThread, 0)), w.Begin, w.End, b.Woken(w)})
		}
		slices.SortStableFunc(s.crossings, func(a, b crossing) int { return cmp.Compare(a.end, b.end) })
	})
	return s.crossings
}

// arrows returns those that end in a range.
func (f *feed) arrows(t0, t1 stack.Time, threads []int) arrowsReply {
	r := arrowsReply{Arrows: []arrow{}}
	src, ok := f.src.(ofBetween)
	if !ok {
		return r
	}
	all := src.waits()
	first, _ := slices.BinarySearchFunc(all, t0, func(c crossing, t stack.Time) int { return cmp.Compare(c.end, t) })
	var in []crossing
	for _, c := range all[first:] {
		if c.end >= t1 {
			break
		}
		if len(threads) == 0 || slices.Contains(threads, c.thread) || slices.Contains(threads, c.by) {
			in = append(in, c)
		}
	}
	if r.More = max(0, len(in)-maxArrows); r.More > 0 {
		slices.SortStableFunc(in, func(a, b crossing) int { return cmp.Compare(b.end-b.begin, a.end-a.begin) })
		in = in[:maxArrows]
		slices.SortStableFunc(in, func(a, b crossing) int { return cmp.Compare(a.end, b.end) })
	}
	for _, c := range in {
		r.Arrows = append(r.Arrows, arrow{c.thread, float64(c.begin - f.base), float64(c.end - f.base), c.by, c.text})
	}
	return r
}
