package top

import (
	"fmt"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/idle"
)

// Frame is one function at a code location.
type Frame struct {
	Func    string
	Module  string // path; "": unknown
	File    string // of Line; "": unknown
	Line    int    // 0: unknown
	Inlined bool   // into the next frame
}

// Names returns the names of places and waits. A Model calls it from its own goroutine.
type Names interface {
	// Frames returns the frames of a place in program number prog (Model.Program), innermost first;
	// none if it is unknown, or not resolved yet.
	Frames(prog int, w event.Word) []Frame
	// Wait returns the description of event.Wait number id.
	Wait(id int) (trace.Wait, bool)
	// Call returns the name of a system call.
	Call(nr int32) string
}

// Table is the summary of a window.
type Table struct {
	From, To stack.Time    // the window
	Span     time.Duration // its length; shorter at the start
	Funcs    []Func        // unsorted
	Threads  []Row         // in the order in which they were added
	Lost     uint64        // events overwritten before they were counted, since the start
	Folded   uint64        // frames left out because there were too many stacks
	Left     idle.Left     // omitted idle waits
	IdleCPU  int64         // ns: CPU time of the threads that are omitted as idle
	// NoRuntime: the code of interpreters counts for the functions that they run.
	NoRuntime bool
	// Processes are those of a table of several, in the order in which they were added; nil: the
	// table is of one process.
	Processes []Process

	byName map[funcKey]int // for Merge: index in Funcs
}

// Func is the sum for one function.
type Func struct {
	Name   string
	Module string // path; "": unknown
	Self   Values // as the leaf
	Total  Values // on the stack
}

// Row is one thread.
type Row struct {
	Seq    int // number to pass to Stack
	TID    stack.TID
	Name   string
	Main   bool
	State  stack.State // last observed
	Since  stack.Time  // start of State
	Values             // over the window
	Top    string      // the leaf function; "": unknown
	Waits  string      // what it waits for, as far as known; "": it does not wait
	Holder stack.TID   // of the lock that it waits for; 0: unknown or none
	PID    int         // of its process, in a table of several; 0: the table is of one
}

// lag returns how far (ns) the window ends before now.
func (m *Model) lag() stack.Time {
	rate := int64(0)
	for _, t := range m.threads {
		if !t.ended {
			rate = max(rate, t.rate)
		}
	}
	return stack.Time(min(settle+2*rate, maxLag))
}

// Window returns the range of a Table at now: the last complete buckets, fewer at first, none (from
// == to) at the very start.
func (m *Model) Window(now stack.Time) (from, to stack.Time) {
	w := stack.Time(m.width)
	to = max((now-m.lag())/w, 0) * w
	if m.begin == 0 || to <= m.begin {
		return now, now
	}
	return max(to-perWindow*w, m.begin, 0), to
}

// Table summarizes the last window. It ends a little before now, as CPU time is recorded with a
// delay; states of threads are the last observed ones. Threads that ended before the window are
// removed.
func (m *Model) Table(now stack.Time, names Names) *Table {
	w := stack.Time(m.width)
	tb := &Table{Lost: m.lost, Folded: m.folded}
	tb.From, tb.To = m.Window(now)
	tb.Span = time.Duration(tb.To - tb.From)
	m.trim(tb.From)
	s := newSummer(m, names)
	for _, t := range m.threads {
		clear(s.keys)
		for no := int64(tb.From / w); no < int64(tb.To/w) && tb.Span > 0; no++ {
			if b := &t.ring[no%int64(len(t.ring))]; b.no == no {
				for k, v := range b.sum {
					if m.gil && !k.gil {
						continue
					}
					x := s.keys[k]
					x.add(v)
					s.keys[k] = x
				}
			}
		}
		// A thread without newer events is assumed to continue as before.
		if t.at != 0 && t.at < tb.To && len(t.nodes) > 0 && !t.ended && (!m.gil || t.key.gil) {
			x := s.keys[t.key]
			x.Wall += int64(tb.To - max(t.at, tb.From))
			s.keys[t.key] = x
		}
		row := Row{Seq: t.seq, TID: t.info.TID, Name: t.info.Name, Main: t.info.Main, State: t.key.state, Since: t.since,
			Holder: t.hold, Waits: t.waits(names)}
		row.Values = s.share()
		out := m.gil && row.Values == Values{}
		if !m.idle && !m.gil {
			ns, observed := s.idle()
			tb.Left.Add(ns, observed)
			out = idle.Thread(ns, observed)
		}
		if fs := s.top(t.key.node); len(fs) > 0 {
			row.Top = s.funcs[fs[0]].Name
		}
		if out {
			tb.IdleCPU += row.CPU
		} else {
			tb.Threads = append(tb.Threads, row)
		}
	}
	for n, v := range s.stacks {
		s.stack(n, v)
	}
	if s.unseen > 0 {
		v := Values{CPU: s.unseen}
		tb.Funcs = append(tb.Funcs, Func{Name: trace.NotSampled, Self: v, Total: v})
	}
	for i := range s.funcs {
		// A function that was looked up only as a thread's leaf has no time.
		if s.funcs[i].Total != (Values{}) {
			tb.Funcs = append(tb.Funcs, s.funcs[i])
		}
	}
	return tb
}

// summer sums by function.
type summer struct {
	m      *Model
	names  Names
	keys   map[key]spent    // of one thread
	idles  map[key]bool     // cached decisions
	stacks map[int32]Values // of all threads: similar threads share them
	funcs  []Func
	ids    map[funcKey]int32
	places map[placeKey][]int32 // function indexes, innermost first
	stamp  []uint32             // by function: the last stack that contained it
	round  uint32
	unseen int64 // ns of CPU time of threads without a sample on a CPU
}

// leastRuns is the least number of running samples by stops and by clocks for which each share their own CPU time.
const leastRuns = 8

// share adds one thread to the stacks and returns its sums. Its CPU time goes to the stacks that
// samples found on a CPU, as in exports (view.Steps).
func (s *summer) share() (sum Values) {
	var all [2]stratum
	for _, v := range s.keys {
		sum.add(v.Values)
		for i, x := range v.by {
			all[i].cpu += x.cpu
			all[i].runs += x.runs
		}
	}
	split := min(all[0].runs, all[1].runs) >= leastRuns
	if !split {
		all[0].cpu, all[0].runs = all[0].cpu+all[1].cpu, all[0].runs+all[1].runs
		all[1] = stratum{}
	}
	seen, given := 0., int64(0) // of the CPU time
	for k, v := range s.keys {
		if !split {
			v.by[0].runs += v.by[1].runs
		}
		for i, x := range all {
			if x.runs > 0 {
				seen += float64(x.cpu) * v.by[i].runs / x.runs
			}
		}
		v.CPU = int64(seen+.5) - given
		given += v.CPU
		if !s.m.idle && s.isIdle(k) {
			v.Wall = 0
		}
		x := s.stacks[k.node]
		x.add(v.Values)
		s.stacks[k.node] = x
	}
	if all[0].runs == 0 {
		s.unseen += sum.CPU
	}
	return sum
}

type funcKey struct{ name, module string }

type placeKey struct {
	gen  int32
	word event.Word
}

func newSummer(m *Model, names Names) *summer {
	return &summer{m: m, names: names, keys: map[key]spent{}, idles: map[key]bool{}, stacks: map[int32]Values{}, ids: map[funcKey]int32{}, places: map[placeKey][]int32{}}
}

// idle returns for how many ns the current thread was idle, and for how many it was observed, without
// time waiting for a CPU.
func (s *summer) idle() (ns, observed int64) {
	for k, v := range s.keys {
		if k.state != stack.StateRunnable {
			observed += v.Wall
		}
		if s.isIdle(k) {
			ns += v.Wall
		}
	}
	return ns, observed
}

// isIdle reports whether a thread with this key is idle.
func (s *summer) isIdle(k key) bool {
	if k.state != stack.StateBlocked {
		return false
	}
	in, ok := s.idles[k]
	if ok {
		return in
	}
	call := ""
	if k.call > 0 {
		call = s.names.Call(k.call - 1)
	}
	var w *trace.Wait
	if k.wait != 0 {
		if d, ok := s.names.Wait(int(k.wait)); ok {
			w = &d
		}
	}
	if idle.May(w, call) {
		var frames []idle.Frame
		s.m.tree.walk(k.node, func(gen int32, at event.Word) {
			if len(frames) >= idle.MaxFrames {
				return
			}
			for _, f := range framesAt(s.names, int(gen), at) {
				frames = append(frames, idle.Frame{Name: f.Func, Kind: at.Kind(), Module: f.Module, File: f.File})
			}
		})
		in = idle.Of(w, call, frames)
	}
	s.idles[k] = in
	return in
}

func (s *summer) stack(n int32, v Values) {
	s.round++
	leaf := true
	s.m.tree.walk(n, func(gen int32, w event.Word) {
		fs := s.at(gen, w)
		if leaf {
			leaf = false
			s.funcs[fs[0]].Self.add(v)
		}
		for _, f := range fs {
			if s.stamp[f] != s.round { // recursion counts once
				s.stamp[f] = s.round
				s.funcs[f].Total.add(v)
			}
		}
	})
}

// top returns the functions of stack n's leaf; none if it has no frames.
func (s *summer) top(n int32) (fs []int32) {
	if nd := &s.m.tree.nodes[n]; nd.parent != 0 {
		fs = s.at(nd.gen, nd.word)
	}
	return fs
}

// at returns the functions of a place, at least one.
func (s *summer) at(gen int32, w event.Word) []int32 {
	k := placeKey{gen, w}
	if fs, ok := s.places[k]; ok {
		return fs
	}
	var fs []int32
	for _, f := range framesAt(s.names, int(gen), w) {
		fs = append(fs, s.id(f.Func, f.Module))
	}
	s.places[k] = fs
	return fs
}

// framesAt returns the frames of a place, with a synthetic name if it has none.
func framesAt(names Names, gen int, w event.Word) []Frame {
	if w.Kind() == stack.KindError {
		return []Frame{{Func: fmt.Sprintf("[%s]", stack.Reason(w.Addr()))}}
	}
	if fs := names.Frames(gen, w); len(fs) > 0 {
		return fs
	}
	return []Frame{{Func: fmt.Sprintf("%#x", w.Lookup())}}
}

func (s *summer) id(name, module string) int32 {
	k := funcKey{name, module}
	id, ok := s.ids[k]
	if !ok {
		id = int32(len(s.funcs))
		s.ids[k] = id
		s.funcs = append(s.funcs, Func{Name: name, Module: module})
		s.stamp = append(s.stamp, 0)
	}
	return id
}

// Stack is the last observed stack of a thread.
type Stack struct {
	Row
	Frames []Frame // leaf first
}

// Stack returns the stack of the thread with Row.Seq seq; ok is false if the thread is gone.
func (m *Model) Stack(seq int, names Names) (st Stack, ok bool) {
	for _, t := range m.threads {
		if t.seq != seq {
			continue
		}
		st.Row = Row{Seq: seq, TID: t.info.TID, Name: t.info.Name, Main: t.info.Main, State: t.key.state, Since: t.since,
			Holder: t.hold, Waits: t.waits(names)}
		m.tree.walk(t.key.node, func(gen int32, w event.Word) {
			st.Frames = append(st.Frames, framesAt(names, int(gen), w)...)
		})
		if len(st.Frames) > 0 {
			st.Top = st.Frames[0].Func
		}
		return st, true
	}
	return st, false
}
