package web

import (
	"cmp"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
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

// crossings are those of a recording, found when they are first asked for.
type crossings struct {
	once sync.Once
	all  []crossing // by end
}

// of finds them. number returns the number of a thread of process i.
func (c *crossings) of(rec *trace.Recording, all []*trace.Recording, number func(i, seq int) int) []crossing {
	c.once.Do(func() {
		views := make([]*view.View, len(all))
		for i, one := range all {
			views[i] = view.New(one, view.Options{})
		}
		b := between.Of(rec, views)
		for k := range b.Waits {
			w := &b.Waits[k]
			if w.Waker < 0 {
				continue
			}
			by := b.Processes[w.Waker].View
			if by < 0 || len(views[by].Threads) == 0 {
				continue // it has no track
			}
			th := &views[by].Threads[max(w.WakerThread, 0)]
			c.all = append(c.all, crossing{number(w.View, views[w.View].Threads[w.Thread].Seq), number(by, th.Seq), w.Begin, w.End, b.Woken(w)})
		}
		slices.SortStableFunc(c.all, func(a, b crossing) int { return cmp.Compare(a.end, b.end) })
	})
	return c.all
}

func (s *several) waits() []crossing {
	return s.crossings.of(s.rec, s.all, func(i, seq int) int { return s.base[i] + seq })
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
