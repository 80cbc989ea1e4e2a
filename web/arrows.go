package web

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/analysis"
)

type arrowsReply struct {
	Arrows []analysis.Arrow `json:"arrows"` // by end
	More   int              `json:"more,omitempty"`
}

// maxArrows is how many arrows a reply has, those of the longest waits.
const maxArrows = 400

// ofBetween is a Source of processes that wait for each other.
type ofBetween interface {
	arrived() []analysis.Crossing // by end
}

// relate finds the waits of the processes for each other when they are first asked for.
func (s *several) relate() *analysis.Relations {
	s.once.Do(func() {
		views := view.All(s.rec, view.Options{})
		var base []int
		for _, v := range views { // processes without a thread have no view
			base = append(base, s.base[slices.Index(s.all, v.Rec)])
		}
		s.related = analysis.Relate(s.rec, views, base)
	})
	return &s.related
}

func (s *several) arrived() []analysis.Crossing { return s.relate().Crossings }

type pathReply struct {
	Steps []analysis.PathStep `json:"steps"` // by time
	More  int                 `json:"more,omitempty"`
}

// path returns the critical path of a finished recording.
func (f *feed) path() pathReply {
	r := pathReply{Steps: []analysis.PathStep{}}
	src, ok := f.src.(*several)
	if !ok {
		return r
	}
	all := src.relate()
	r.More = all.More
	for _, x := range all.Path {
		r.Steps = append(r.Steps, x.At(f.base))
	}
	return r
}

// Limits of the arrows of a live recording.
const (
	// crossEvery is the least time between two looks for new ones.
	crossEvery = time.Second
	// crossBack is how much of the time before the last look is looked at again, in ns: waits that had not ended, and whose
	// processes had not.
	crossBack = 3_000_000_000
	// maxCrossings limits those that are kept.
	maxCrossings = 1 << 17
)

// crossed are the crossings of a live recording so far.
type crossed struct {
	mu    sync.Mutex
	all   []analysis.Crossing
	until stack.Time // end of the last look; 0: none
	next  time.Time
}

// arrived finds those since the last look.
func (l *LiveSet) arrived() []analysis.Crossing {
	c := &l.crossed
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.o.Window == nil || time.Now().Before(c.next) {
		return c.all
	}
	from := max(c.until-crossBack, 0)
	rec, release, err := l.o.Window(from)
	if err != nil {
		return c.all
	}
	defer release()
	views := view.All(rec, view.Options{})
	fresh := analysis.Crossings(between.Of(rec, views), func(i, thread int) int { return analysis.NumberIn(views[i], thread, l.numbers(views[i].Rec)) })
	// Waits that are cut at from lack their beginning.
	since := from
	if since > 0 {
		since += crossBack / 2
	}
	old, _ := slices.BinarySearchFunc(c.all, since, func(x analysis.Crossing, t stack.Time) int { return cmp.Compare(x.End, t) })
	first, _ := slices.BinarySearchFunc(fresh, since, func(x analysis.Crossing, t stack.Time) int { return cmp.Compare(x.End, t) })
	c.all = append(c.all[:old:old], fresh[first:]...)
	if n := len(c.all) - maxCrossings; n > 0 {
		c.all = slices.Clone(c.all[n:])
	}
	_, c.until = rec.WholeSpan()
	c.next = time.Now().Add(crossEvery)
	return c.all
}

// numbers returns the numbers of the threads of a process by their Seq; -1: its ring was not read yet.
func (l *LiveSet) numbers(rec *trace.Recording) func(seq int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := l.byID[processID{rec.Process.PID, rec.Process.StartTime}]
	if !ok {
		return func(int) int { return -1 }
	}
	return numberAmong(l.all[i].threads)
}

// numberAmong returns the number of a thread by its Seq; -1: it has none.
func numberAmong(threads []int) func(seq int) int {
	numbers := slices.Clone(threads)
	return func(seq int) int {
		if seq < 0 || seq >= len(numbers) {
			return -1
		}
		return numbers[seq]
	}
}

// arrows returns those that end in a range.
func (f *feed) arrows(t0, t1 stack.Time, threads []int) arrowsReply {
	r := arrowsReply{Arrows: []analysis.Arrow{}}
	src, ok := f.src.(ofBetween)
	if !ok {
		return r
	}
	all := src.arrived()
	first, _ := slices.BinarySearchFunc(all, t0, func(c analysis.Crossing, t stack.Time) int { return cmp.Compare(c.End, t) })
	var in []analysis.Crossing
	for _, c := range all[first:] {
		if c.End >= t1 {
			break
		}
		if len(threads) == 0 || slices.Contains(threads, c.Thread) || slices.Contains(threads, c.By) {
			in = append(in, c)
		}
	}
	in, r.More = analysis.Longest(in, maxArrows)
	for i := range in {
		r.Arrows = append(r.Arrows, in[i].At(f.base))
	}
	return r
}
