package web

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/analysis"
)

// tasksReply describes rows of the tasks of the target's runtime, in the order of mode.
type tasksReply struct {
	T0      float64     `json:"t0"`
	T1      float64     `json:"t1"`
	What    string      `json:"what,omitempty"` // goroutine, asyncio task, virtual thread; "": there are none
	Count   int         `json:"count"`
	Idle    int         `json:"idle"`           // the runtime's own, left out
	Lost    int         `json:"lost,omitempty"` // spans on threads that are left out
	Made    int         `json:"made"`           // changes when the order may have
	From    int         `json:"from"`           // row of the first task of List
	Reasons []string    `json:"reasons"`        // of spans
	List    []taskReply `json:"list"`
	// Of a recording of several processes: whose tasks these are, and all that have tasks, the busiest one first.
	Process   *int  `json:"process,omitempty"`
	Processes []int `json:"processes,omitempty"`
}

// taskReply is a task with its times over the whole recording, of a live one over its last minute.
type taskReply struct {
	ID     uint64       `json:"id"`
	Parent uint64       `json:"parent,omitempty"` // the task that started it
	Func   string       `json:"func,omitempty"`   // entry function, or a name
	Ran    int64        `json:"ran"`              // ns on threads
	Ready  int64        `json:"ready"`
	Waited int64        `json:"waited"`
	Spans  [][7]float64 `json:"spans,omitempty"` // start, end, busy, value, thread (-1: none), reason (-1: none), count
}

// taskDetail is a task at a time.
type taskDetail struct {
	taskReply
	What    string               `json:"what"`
	Row     int                  `json:"row"` // in the order of mode
	Span    *taskSpan            `json:"span,omitempty"`
	Seen    float64              `json:"seen,omitempty"` // time of the scan that found Stack
	Stack   []analysis.TaskFrame `json:"stack"`          // where it waits, innermost first
	Reasons []taskWait           `json:"reasons"`        // what it waited for, longest first
	Prev    float64              `json:"prev"`           // begin of the span before; -1: none
	Next    float64              `json:"next"`           // and of the one behind
}

type taskSpan struct {
	Start  float64 `json:"start"`
	End    float64 `json:"end"`
	Value  uint32  `json:"value"`
	State  string  `json:"state"`
	Reason string  `json:"reason,omitempty"`
	Thread int     `json:"thread"` // by seq; -1: no thread ran it
}

// taskWait sums up the waits of a task for one reason.
type taskWait struct {
	Reason  string  `json:"reason"` // "": not known
	Value   uint32  `json:"value"`
	Total   int64   `json:"total"` // ns
	Count   int     `json:"count"`
	Longest int64   `json:"longest"`
	At      float64 `json:"at"` // begin of the longest
}

const (
	taskRows     = 64 // rows of a reply
	maxTaskRows  = 256
	recentTasks  = stack.Time(time.Minute) // of a live recording
	taskCellsMax = 4096                    // spans of a row that are not merged, at most about
)

// tasker keeps the tasks of a feed.
type tasker struct {
	mu     sync.Mutex
	all    []*processTasks // the first one is that of a query without a process; never empty once gathered
	number int
	made   time.Time
	good   time.Duration // how long the tasks of a live recording may be used
	final  bool          // no more will come
}

// processTasks are the tasks of one process.
type processTasks struct {
	process *int // its number; nil: the recording has one process
	tracks  *analysis.Tracks
	seqs    []int // of the threads of spans
	byWait  []int // rows, those that waited longest first
	row     map[uint64]int
}

// of returns the tasks of a process, which may have none.
func (k *tasker) of(process *int) *processTasks {
	if process == nil {
		return k.all[0]
	}
	i := slices.IndexFunc(k.all, func(p *processTasks) bool { return p.process != nil && *p.process == *process })
	if i < 0 {
		return &processTasks{process: process, tracks: &analysis.Tracks{}}
	}
	return k.all[i]
}

// gather reads the tasks from the recording if they are not known or stale. The caller holds mu.
func (k *tasker) gather(f *feed) error {
	src, ok := f.src.(recorded)
	if !ok {
		return errNoAnalysis
	}
	done, _, _ := f.state()
	growing := f.src.Live() && !done
	if k.number > 0 && (k.final || growing && time.Since(k.made) < k.good) {
		return nil
	}
	began := time.Now()
	o := view.Options{}
	from := stack.Time(0)
	if growing {
		first, to := f.st.Span()
		from = max(first, to-recentTasks)
		o.From = from
	}
	rec, release, err := src.Recording(from)
	if err != nil {
		return err
	}
	defer release()
	if s, ok := src.(ofProcesses); ok {
		parts := s.split(rec, nil)
		if len(parts) == 0 {
			return errNoAnalysis
		}
		var all []*trace.Recording
		for i := range parts {
			all = append(all, parts[i].rec)
		}
		k.all = nil
		for _, i := range analysis.WithTasks(all) {
			k.all = append(k.all, newProcessTasks(&parts[i], o))
		}
		if k.all == nil {
			k.all = append(k.all, newProcessTasks(&parts[0], o))
		}
	} else {
		one := newProcessTasks(&processPart{rec: rec, number: func(seq int) int { return seq }}, o)
		one.process = nil
		k.all = []*processTasks{one}
	}
	k.number++
	k.final = !growing
	k.made, k.good = time.Now(), max(2*lastFor, shareOfTime*time.Since(began))
	return nil
}

// newProcessTasks returns the tasks of p in the time of o.
func newProcessTasks(p *processPart, o view.Options) *processTasks {
	v := view.New(p.rec, o)
	number := p.process
	x := &processTasks{process: &number, tracks: analysis.TracksOf(v), row: map[uint64]int{}}
	for i := range v.Threads {
		x.seqs = append(x.seqs, p.number(v.Threads[i].Seq))
	}
	if x.tracks == nil {
		x.tracks = &analysis.Tracks{}
	}
	for i := range x.tracks.List {
		x.row[x.tracks.List[i].ID] = i
		x.byWait = append(x.byWait, i)
	}
	slices.SortStableFunc(x.byWait, func(a, b int) int {
		return cmp.Compare(x.tracks.List[b].Times.Waited, x.tracks.List[a].Times.Waited)
	})
	return x
}

// tasks answers such a query.
func (f *feed) tasks(q *query) (*tasksReply, error) {
	k := &f.tasker
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.gather(f); err != nil {
		return nil, err
	}
	p := k.of(q.Process)
	from, to := f.st.Span()
	if q.T1 > q.T0 {
		from, to = clampTime(q.T0)+f.base, clampTime(q.T1)+f.base
	}
	t := p.tracks
	r := &tasksReply{T0: float64(from - f.base), T1: float64(to - f.base), What: t.What, Count: len(t.List), Idle: t.Idle, Lost: t.Lost, Made: k.number,
		From: min(max(q.From, 0), len(t.List)), Reasons: []string{}, List: []taskReply{}, Process: p.process}
	if p.process != nil {
		for _, x := range k.all {
			if x.tracks.What != "" {
				r.Processes = append(r.Processes, *x.process)
			}
		}
	}
	n := taskRows
	if q.Max > 0 {
		n = min(q.Max, maxTaskRows)
	}
	m := merger{k: p, from: from, to: to, base: f.base, reasons: map[string]int{}}
	if q.Bin > 0 {
		m.bin = max(q.Bin, float64(to-from)/taskCellsMax)
	} else if to-from > 0 && q.Max != 1 { // a single task is returned span by span
		m.bin = float64(to-from) / taskCellsMax
	}
	spans := 0
	for i := r.From; i < min(r.From+n, len(t.List)); i++ {
		row := i
		if q.Mode == "wait" {
			row = p.byWait[i]
		}
		x := &t.List[row]
		o := p.reply(x)
		o.Spans = m.merge(x)
		if spans += len(o.Spans); spans > maxSlices {
			return nil, fmt.Errorf("more than %d spans: ask for a shorter time or a larger bin", maxSlices)
		}
		r.List = append(r.List, o)
	}
	r.Reasons = append(r.Reasons, m.words...)
	return r, nil
}

func (*processTasks) reply(x *analysis.TaskTrack) taskReply {
	return taskReply{ID: x.ID, Parent: x.Parent, Func: x.Func, Ran: x.Times.Ran, Ready: x.Times.Ready, Waited: x.Times.Waited}
}

func (p *processTasks) seq(thread int) int {
	if thread < 0 {
		return -1
	}
	return p.seqs[thread]
}

// merger prepares spans of [from, to) for a reply: consecutive ones that begin in one part of bin ns and
// are shorter become one, which shows the longest.
type merger struct {
	k        *processTasks
	from, to stack.Time
	base     stack.Time
	bin      float64 // ns; 0: nothing is merged
	reasons  map[string]int
	words    []string
}

func (m *merger) merge(x *analysis.TaskTrack) (out [][7]float64) {
	i, _ := slices.BinarySearchFunc(x.Spans, m.from, func(s view.TaskSpan, t stack.Time) int {
		if s.To > t {
			return 1
		}
		return -1
	})
	cell, best := math.NaN(), 0.0
	for ; i < len(x.Spans) && x.Spans[i].From < m.to; i++ {
		s := &x.Spans[i]
		a, b := float64(s.From-m.base), float64(s.To-m.base)
		is := [7]float64{a, b, b - a, float64(analysis.SpanValue(s)), float64(m.k.seq(s.Thread)), float64(m.reason(s.Reason)), 1}
		if !(b-a < m.bin) {
			cell = math.NaN()
			out = append(out, is)
			continue
		}
		if c := math.Floor(a / m.bin); c != cell {
			cell, best = c, b-a
			out = append(out, is)
			continue
		}
		o := &out[len(out)-1]
		o[1] = b
		o[2] += b - a
		o[6]++
		if b-a > best {
			best = b - a
			copy(o[3:6], is[3:6])
		}
	}
	return out
}

func (m *merger) reason(s string) int {
	if s == "" {
		return -1
	}
	i, ok := m.reasons[s]
	if !ok {
		i = len(m.words)
		m.reasons[s] = i
		m.words = append(m.words, s)
	}
	return i
}

// task answers such a query: a task at a time.
func (f *feed) task(q *query) (*taskDetail, error) {
	k := &f.tasker
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.gather(f); err != nil {
		return nil, err
	}
	p := k.of(q.Process)
	row, ok := p.row[q.Task]
	if !ok {
		return nil, fmt.Errorf("%w: task %d", errUnknown, q.Task)
	}
	x := &p.tracks.List[row]
	r := &taskDetail{taskReply: p.reply(x), What: p.tracks.What, Row: row, Stack: []analysis.TaskFrame{}, Reasons: waitsOf(x, f.base), Prev: -1, Next: -1}
	if q.Mode == "wait" {
		r.Row = slices.Index(p.byWait, row)
	}
	at := clampTime(q.At) + f.base
	i, found := slices.BinarySearchFunc(x.Spans, at, func(s view.TaskSpan, t stack.Time) int {
		switch {
		case s.From > t:
			return 1
		case s.To <= t:
			return -1
		}
		return 0
	})
	if i > 0 {
		r.Prev = float64(x.Spans[i-1].From - f.base)
	}
	if !found {
		if i < len(x.Spans) {
			r.Next = float64(x.Spans[i].From - f.base)
		}
		return r, nil
	}
	if i+1 < len(x.Spans) {
		r.Next = float64(x.Spans[i+1].From - f.base)
	}
	s := &x.Spans[i]
	r.Span = &taskSpan{Start: float64(s.From - f.base), End: float64(s.To - f.base), Value: analysis.SpanValue(s), State: s.State.String(), Reason: s.Reason, Thread: p.seq(s.Thread)}
	if w := x.Where(i); w != nil {
		r.Seen, r.Stack = float64(w.At-f.base), p.tracks.Stacks[w.Stack]
	}
	return r, nil
}

// waitsOf sums up the waits of a task, as TaskTimes.Waited does.
func waitsOf(x *analysis.TaskTrack, base stack.Time) []taskWait {
	out := []taskWait{}
	at := map[string]int{}
	for j := range x.Spans {
		s := &x.Spans[j]
		if s.Thread >= 0 && !s.Waits() || s.State == stack.TaskRunnable {
			continue
		}
		i, ok := at[s.Reason]
		if !ok {
			i = len(out)
			at[s.Reason] = i
			out = append(out, taskWait{Reason: s.Reason, Value: analysis.SpanValue(s)})
		}
		w := &out[i]
		ns := int64(s.To - s.From)
		w.Total += ns
		w.Count++
		if ns > w.Longest {
			w.Longest, w.At = ns, float64(s.From-base)
		}
	}
	slices.SortFunc(out, func(a, b taskWait) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
