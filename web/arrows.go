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
	arrived() []crossing // by end
}

// crossing is an arrow, in absolute times.
type crossing struct {
	thread, by int
	begin, end stack.Time
	text       string
}

// crossingsOf finds the crossings of b, by end. number returns the number of a thread of a view; -1: it has no track.
func crossingsOf(b *between.Between, number func(view, thread int) int) (out []crossing) {
	for k := range b.Waits {
		w := &b.Waits[k]
		if w.Waker < 0 {
			continue
		}
		by := b.Processes[w.Waker].View
		if by < 0 {
			continue
		}
		c := crossing{number(w.View, w.Thread), number(by, max(w.WakerThread, 0)), w.Begin, w.End, b.Woken(w)}
		if c.thread >= 0 && c.by >= 0 {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b crossing) int { return cmp.Compare(a.end, b.end) })
	return out
}

// numberIn returns the number of a thread of a view that begins with base.
func numberIn(v *view.View, thread int, base func(seq int) int) int {
	if thread >= len(v.Threads) {
		return -1
	}
	return base(v.Threads[thread].Seq)
}

// relations are the waits of the processes of a recording for each other, found when they are first asked for.
type relations struct {
	crossings []crossing
	path      pathReply
}

func (s *several) relate() *relations {
	s.once.Do(func() {
		views := view.All(s.rec, view.Options{})
		b := between.Of(s.rec, views)
		s.related.crossings = crossingsOf(b, func(i, thread int) int {
			return numberIn(views[i], thread, func(seq int) int { return s.base[i] + seq })
		})
		s.related.path = s.path(b, views)
	})
	return &s.related
}

func (s *several) arrived() []crossing { return s.relate().crossings }

// pathStep is a step of the critical path: see report.Step.
type pathStep struct {
	Thread  int     `json:"thread"` // a thread of its process; -1: it has no track
	Name    string  `json:"name"`
	PID     int     `json:"pid"`
	Command string  `json:"command,omitempty"`
	Begin   float64 `json:"begin"`
	End     float64 `json:"end"`
	Waiter  string  `json:"waiter,omitempty"` // "gcc (1234)"
	How     string  `json:"how,omitempty"`
	begin   stack.Time
	end     stack.Time
}

type pathReply struct {
	Steps []pathStep `json:"steps"` // by time
	More  int        `json:"more,omitempty"`
}

// path is the critical path of a recording.
func (s *several) path(b *between.Between, views []*view.View) (r pathReply) {
	from, to := s.rec.Span()
	if end := s.rec.End; end != nil && end.Gone > from {
		to = end.Gone
	}
	if began := s.rec.Process.StartTime; began < from {
		whole, _ := s.rec.WholeSpan()
		from = max(began, whole)
	}
	steps, more, _ := b.Path(from, to)
	r.More = more
	for i := range steps {
		x := &steps[i]
		p := &b.Processes[x.Process]
		step := pathStep{Thread: -1, Name: p.Name, PID: p.PID, How: x.How, begin: x.Begin, end: x.End}
		if p.View >= 0 {
			step.Thread = numberIn(views[p.View], 0, func(seq int) int { return s.base[p.View] + seq })
			step.Command = view.Command(views[p.View].Rec.Process.Cmdline)
		}
		if x.Waiter >= 0 {
			step.Waiter = b.Processes[x.Waiter].String()
		}
		r.Steps = append(r.Steps, step)
	}
	return r
}

// path returns the critical path of a finished recording.
func (f *feed) path() pathReply {
	r := pathReply{Steps: []pathStep{}}
	src, ok := f.src.(*several)
	if !ok {
		return r
	}
	all := &src.relate().path
	r.More = all.More
	for _, x := range all.Steps {
		x.Begin, x.End = float64(x.begin-f.base), float64(x.end-f.base)
		r.Steps = append(r.Steps, x)
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
	all   []crossing
	until stack.Time // end of the last look; 0: none
	next  time.Time
}

// arrived finds those since the last look.
func (l *LiveSet) arrived() []crossing {
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
	fresh := crossingsOf(between.Of(rec, views), func(i, thread int) int { return numberIn(views[i], thread, l.numbers(views[i].Rec)) })
	// Waits that are cut at from lack their beginning.
	since := from
	if since > 0 {
		since += crossBack / 2
	}
	old, _ := slices.BinarySearchFunc(c.all, since, func(x crossing, t stack.Time) int { return cmp.Compare(x.end, t) })
	first, _ := slices.BinarySearchFunc(fresh, since, func(x crossing, t stack.Time) int { return cmp.Compare(x.end, t) })
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
	r := arrowsReply{Arrows: []arrow{}}
	src, ok := f.src.(ofBetween)
	if !ok {
		return r
	}
	all := src.arrived()
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
