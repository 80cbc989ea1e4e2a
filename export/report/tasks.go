package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Tasks summarizes the goroutines of a Go program: what they did and waited for, independent of threads.
type Tasks struct {
	What  string     `json:"what"` // "goroutine"
	Count int        `json:"count"`
	Ran   int64      `json:"ran_ns"`   // on threads
	Ready int64      `json:"ready_ns"` // ready to run, on no thread
	Idle  int        `json:"idle"`     // the runtime's own, omitted
	Waits []TaskWait `json:"waits"`
	Funcs []TaskFunc `json:"functions"`
	// Processes counts the Go programs in a report of several processes.
	Processes int `json:"processes,omitempty"`
}

// TaskWait is a place where tasks waited.
type TaskWait struct {
	For     string   `json:"for"` // "sync.Mutex", "channel (receive)"
	Func    string   `json:"func"`
	File    string   `json:"file"`
	Line    int      `json:"line"` // 0: only the tasks' entry function is known
	Waits   int      `json:"waits"`
	Tasks   int      `json:"tasks"`
	Total   int64    `json:"total_ns"`
	Longest int64    `json:"longest_ns"`
	Holders []string `json:"holders"`           // inferred
	Process string   `json:"process,omitempty"` // its name and PID, in a report of several
}

// TaskFunc summarizes the tasks with one entry function.
type TaskFunc struct {
	Name   string `json:"name"`
	Tasks  int    `json:"tasks"`
	Ran    int64  `json:"ran_ns"`
	Ready  int64  `json:"ready_ns"`
	Waited int64  `json:"waited_ns"`
	// Process is the name and PID, in a report of several.
	Process string `json:"process,omitempty"`
}

// place is where a task waits.
type place struct {
	what string
	fn   string
	file string
	line int
}

type taskGatherer struct {
	v     *view.View
	at    map[uint64][]placed        // places by task and time
	usual map[usualKey]map[place]int // how often tasks with one entry function waited at a place
	rows  map[place]*TaskWait
	last  map[place]uint64 // task counted last
	funcs map[string]*TaskFunc

	inCalls map[int][]called // see calls, by thread
}

type placed struct {
	at     stack.Time
	reason string
	place
}

type usualKey struct{ first, reason string }

// tasks builds the tables of goroutines; nil if the recording has none.
func (r *Report) tasks(v *view.View, top int) *Tasks {
	all := v.Tasks()
	if all == nil {
		return nil
	}
	g := &taskGatherer{v: v, at: map[uint64][]placed{}, usual: map[usualKey]map[place]int{}, rows: map[place]*TaskWait{}, last: map[place]uint64{},
		funcs: map[string]*TaskFunc{}, inCalls: map[int][]called{}}
	for i := range v.Rec.Tasks {
		g.look(&v.Rec.Tasks[i])
	}
	out := &Tasks{What: all.What, Waits: []TaskWait{}, Funcs: []TaskFunc{}}
	for i := range all.List {
		t := &all.List[i]
		if !v.ShowsIdle() && t.OfRuntime() {
			out.Idle++
			continue
		}
		out.Count++
		out.Ran += t.Ran
		out.Ready += g.task(t)
	}
	for i := range v.Rec.Tasks {
		g.holders(&v.Rec.Tasks[i])
	}
	for _, w := range g.rows {
		out.Waits = append(out.Waits, *w)
	}
	slices.SortFunc(out.Waits, func(a, b TaskWait) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.For, b.For), cmp.Compare(a.Func, b.Func), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	for _, f := range g.funcs {
		out.Funcs = append(out.Funcs, *f)
	}
	slices.SortFunc(out.Funcs, func(a, b TaskFunc) int {
		return cmp.Or(cmp.Compare(b.Ran, a.Ran), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Name, b.Name))
	})
	out.Waits, r.More.TaskWaits = cut(out.Waits, top)
	out.Funcs, r.More.TaskFuncs = cut(out.Funcs, top)
	return out
}

// look records where tasks waited at one moment.
func (g *taskGatherer) look(l *trace.Tasks) {
	for i := range l.List {
		x := &l.List[i]
		reason, waits := view.WaitOf(l, x)
		if !waits || x.Stack < 0 {
			continue
		}
		p := g.place(l.Stacks[x.Stack], reason, l.At)
		if p.fn == "" {
			continue
		}
		g.at[x.ID] = append(g.at[x.ID], placed{l.At, reason, p})
		k := usualKey{g.first(x, l.At), reason}
		if g.usual[k] == nil {
			g.usual[k] = map[place]int{}
		}
		g.usual[k][p]++
	}
}

func (g *taskGatherer) first(x *trace.Task, at stack.Time) string {
	if x.Func == 0 {
		return ""
	}
	fs := g.v.Names.Resolve(x.Func, at).Frames
	return g.v.FuncName(fs[len(fs)-1].Func)
}

// place returns the innermost function of a stack outside Go's runtime and package sync.
func (g *taskGatherer) place(words []event.Word, reason string, at stack.Time) place {
	p := place{what: waitName(reason)}
	for _, w := range words {
		fs := g.v.Names.Resolve(w, at).Frames
		for i := range fs {
			name := g.v.FuncName(fs[i].Func)
			if s := syncName(name); s != "" {
				p.what = s // RWMutex.Lock waits for its internal Mutex
			}
			if passes(name) {
				continue
			}
			p.fn, p.file, p.line = name, view.Text(fs[i].File, 512), fs[i].Line
			return p
		}
	}
	return p
}

// passes reports whether a library function of Go only forwards a wait to its caller.
func passes(name string) bool {
	for _, prefix := range []string{"runtime.", "sync.", "internal/", "time.Sleep", "syscall."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// syncName returns the type of package sync whose method fn is.
func syncName(fn string) string {
	switch {
	case strings.HasPrefix(fn, "sync.(*RWMutex).R"):
		return "sync.RWMutex (read)"
	case strings.HasPrefix(fn, "sync.(*RWMutex)."):
		return "sync.RWMutex (write)"
	case strings.HasPrefix(fn, "sync.(*Mutex)."), strings.HasPrefix(fn, "internal/sync.(*Mutex)."):
		return "sync.Mutex"
	case strings.HasPrefix(fn, "sync.(*WaitGroup)."):
		return "sync.WaitGroup"
	case strings.HasPrefix(fn, "sync.(*Cond)."):
		return "sync.Cond"
	case strings.HasPrefix(fn, "sync.(*Once)."):
		return "sync.Once"
	}
	return ""
}

// waitName describes a wait reason of runtime/runtime2.go, waitReasonStrings.
func waitName(reason string) string {
	switch reason {
	case "":
		return "not known"
	case "sync.Mutex.Lock":
		return "sync.Mutex"
	case "sync.RWMutex.RLock":
		return "sync.RWMutex (read)"
	case "sync.RWMutex.Lock":
		return "sync.RWMutex (write)"
	case "sync.WaitGroup.Wait":
		return "sync.WaitGroup"
	case "sync.Cond.Wait":
		return "sync.Cond"
	}
	if op, ok := strings.CutPrefix(reason, "chan "); ok {
		return "channel (" + op + ")"
	}
	return reason
}

// task adds one task and returns the ns for which it was ready to run.
func (g *taskGatherer) task(t *view.Task) (ready int64) {
	f := g.funcs[t.Func]
	if f == nil {
		f = &TaskFunc{Name: t.Func}
		g.funcs[t.Func] = f
	}
	f.Tasks++
	f.Ran += t.Ran
	for i := range t.Spans {
		s := &t.Spans[i]
		ns := int64(s.To - s.From)
		switch {
		case s.Waits():
			f.Waited += ns
			g.parts(t, s, func(p place, ns int64) { g.wait(t, p, ns) })
		case s.Thread < 0:
			ready += ns
		}
	}
	f.Ready += ready
	return ready
}

func (g *taskGatherer) wait(t *view.Task, p place, ns int64) {
	w := g.rows[p]
	if w == nil {
		if len(g.rows) >= maxRows {
			p = place{what: others}
			w = g.rows[p]
		}
		if w == nil {
			w = &TaskWait{For: p.what, Func: p.fn, File: p.file, Line: p.line, Holders: []string{}}
			g.rows[p] = w
		}
	}
	w.Waits++
	w.Total += ns
	w.Longest = max(w.Longest, ns)
	if g.last[p] != t.ID {
		g.last[p] = t.ID
		w.Tasks++
	}
}

// placeOf returns where a task was during a span: as a scan of the tasks saw it then, otherwise where it or a
// task of the same kind waited for the same reason.
func (g *taskGatherer) placeOf(t *view.Task, s *view.TaskSpan) place {
	best, far := place{}, stack.Time(-1)
	for _, x := range g.at[t.ID] {
		if x.reason != s.Reason {
			continue
		}
		d := max(s.From-x.at, x.at-s.To, 0)
		if far < 0 || d < far {
			best, far = x.place, d
		}
	}
	if far >= 0 {
		return best
	}
	most := 0
	for p, n := range g.usual[usualKey{t.Func, s.Reason}] {
		if n > most || n == most && (p.fn < best.fn || p.fn == best.fn && p.line < best.line) {
			best, most = p, n
		}
	}
	if most > 0 {
		return best
	}
	return place{what: waitName(s.Reason), fn: t.Func}
}

// excludes reports whether a wait with that name is for a lock.
func excludes(what string) bool {
	return what == "sync.Mutex" || strings.HasPrefix(what, "sync.RWMutex") || what == "sync.Once"
}

// holders infers the holder of each lock that tasks wait for in a scan: the only other task inside the
// function that they wait in. Go's locks do not record an owner.
func (g *taskGatherer) holders(l *trace.Tasks) {
	inside := map[string][]*trace.Task{} // tasks by the functions on their stacks
	waits := map[uint64]place{}
	for i := range l.List {
		x := &l.List[i]
		if x.Stack < 0 {
			continue
		}
		words := l.Stacks[x.Stack]
		if x.State == stack.TaskWaiting {
			if p := g.place(words, l.Reason(x.Reason), l.At); excludes(p.what) {
				waits[x.ID] = p
				continue
			}
		}
		seen := map[string]bool{}
		for _, w := range words[:min(len(words), maxHolderDepth)] {
			for _, f := range g.v.Names.Resolve(w, l.At).Frames {
				if n := g.v.FuncName(f.Func); !seen[n] {
					seen[n] = true
					inside[n] = append(inside[n], x)
				}
			}
		}
	}
	if len(waits) == 0 {
		return
	}
	for i := range g.v.Threads {
		g.running(&g.v.Threads[i], l, inside)
	}
	for _, p := range waits {
		w := g.rows[p]
		if w == nil || len(inside[p.fn]) != 1 || len(w.Holders) >= maxShares {
			continue
		}
		x := inside[p.fn][0]
		name := "goroutine " + strconv.FormatUint(x.ID, 10)
		if first := g.first(x, l.At); first != "" {
			name += " " + first
		}
		if name += " (inferred)"; !slices.Contains(w.Holders, name) {
			w.Holders = append(w.Holders, name)
			slices.Sort(w.Holders)
		}
	}
}

// maxHolderDepth limits how many calls of a goroutine are searched for functions that take a lock.
const maxHolderDepth = 64

// running adds the task that a thread runs during a scan.
func (g *taskGatherer) running(th *view.Thread, l *trace.Tasks, inside map[string][]*trace.Task) {
	i := slices.IndexFunc(l.List, func(x trace.Task) bool { return x.Stack < 0 && x.TID == th.TID && x.TID != 0 })
	if i < 0 {
		return
	}
	s := &stackAt{at: l.At}
	s.replay = g.v.Replay(th, s)
	s.replay.Run()
	seen := map[int]bool{}
	for _, fn := range s.funcs {
		if !seen[fn] {
			seen[fn] = true
			n := g.v.FuncName(fn)
			inside[n] = append(inside[n], &l.List[i])
		}
	}
}

// stackAt keeps the functions of a thread's stack at one time.
type stackAt struct {
	replay *view.Replay
	at     stack.Time
	done   bool
	funcs  []int
}

func (s *stackAt) to(t stack.Time, depth int) {
	if s.done || t <= s.at {
		return
	}
	s.done = true
	st := s.replay.Stack()
	for i := range st[:min(depth, len(st))] {
		s.funcs = append(s.funcs, st[i].Frame.Func)
	}
}

// Begin implements trace.SliceHandler.
func (s *stackAt) Begin(t stack.Time, depth int, _ *trace.Slice) { s.to(t, depth) }

// End implements trace.SliceHandler.
func (s *stackAt) End(t stack.Time, depth int, _ *trace.Slice) { s.to(t, depth+1) }

// Other implements trace.SliceHandler.
func (s *stackAt) Other(e event.Event) { s.to(e.Time, len(s.replay.Stack())) }
