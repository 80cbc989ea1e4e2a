package live

import (
	"encoding/binary"
	"slices"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
)

// Routine is one goroutine that was looked at.
type Routine struct {
	gopcln.Goroutine
	At     stack.Time   // when it was so
	Stack  int          // in Routines.Stacks; -1: a thread runs it
	Reason stack.Reason // why its stack ends early
}

// Routines looks at all goroutines of a process and stops none of them. One
// goroutine of ours may use it at a time.
type Routines struct {
	// Stacks are those of the last Look, each once, leaf first; their frames have
	// no CFA. One with a Reason has no frame for it.
	Stacks [][]stack.Frame

	t      *Target
	census *gopcln.Census
	walker *unwind.Walker
	byKey  map[string]int
	key    []byte
	now    []gopcln.Goroutine
	at     map[uint64]int // in the last result, by ID
}

// Routines makes one; nil: no runtime of Go was seen in the process.
func (t *Target) Routines() *Routines {
	c := t.space.Census()
	if c == nil {
		return nil
	}
	return &Routines{t: t, census: c, walker: unwind.NewWalker(t.space)}
}

// lookRounds is how often goroutines that went on while they were read are read anew.
const lookRounds = 3

// Look reads all goroutines, and the stacks of those that no thread runs, and
// gives them by ID. One that went on meanwhile is read again. An error says why
// there are none to be had.
func (r *Routines) Look() ([]Routine, error) {
	r.Stacks, r.byKey = nil, map[string]int{}
	r.at = map[uint64]int{}
	var last []Routine
	for range lookRounds {
		var err error
		if r.now, err = r.census.Goroutines(r.now[:0]); err != nil {
			return nil, err
		}
		at := target.Now()
		out := make([]Routine, len(r.now))
		same := len(out) == len(last)
		for i := range r.now {
			g := &r.now[i]
			if k, ok := r.at[g.ID]; ok && last[k].Goroutine == *g {
				out[i] = last[k]
				continue
			}
			same = false
			out[i] = Routine{Goroutine: *g, At: at, Stack: -1}
			if g.Status != gopcln.GoRunning {
				r.walk(&out[i])
			}
		}
		last = out
		if same {
			break
		}
		clear(r.at)
		for i := range last {
			r.at[last[i].ID] = i
		}
	}
	return last, nil
}

// walk reads the stack of g, which no thread runs.
func (r *Routines) walk(g *Routine) {
	frames, reason := r.walker.Goroutine(&g.Goroutine)
	if reason != stack.ReasonNone && len(frames) > 0 {
		frames = frames[:len(frames)-1]
	}
	g.Reason = reason
	r.key = r.key[:0]
	for i := range frames {
		r.key = binary.LittleEndian.AppendUint64(r.key, uint64(event.WordOf(&frames[i])))
	}
	k, ok := r.byKey[string(r.key)]
	if !ok {
		k = len(r.Stacks)
		r.byKey[string(r.key)] = k
		own := slices.Clone(frames)
		for i := range own {
			own[i].CFA = 0
		}
		r.Stacks = append(r.Stacks, own)
	}
	g.Stack = k
}

// Birth is the go statement that started g, as a frame; ok is false where that is
// not known: the runtime itself starts the first.
func (g *Routine) Birth() (f stack.Frame, ok bool) {
	return stack.Frame{PC: g.Started, Kind: stack.KindGo, Trust: stack.TrustTable}, g.Started != 0 && g.ID != 1
}

// Tasks is Look as a recording keeps it.
func (r *Routines) Tasks() (*trace.Tasks, error) {
	begin := target.Now()
	tids := r.t.numbers()
	all, err := r.Look()
	if err != nil {
		return nil, err
	}
	t := &trace.Tasks{At: target.Now(), What: "goroutine", Reasons: r.census.Reasons()}
	for _, s := range r.Stacks {
		words := make([]event.Word, len(s))
		for i := range s {
			words[i] = event.WordOf(&s[i])
		}
		t.Stacks = append(t.Stacks, words)
	}
	if len(all) > trace.MaxTasks {
		t.Lost = len(all) - trace.MaxTasks
		all = all[:trace.MaxTasks]
	}
	t.List = make([]trace.Task, len(all))
	for i := range all {
		g := &all[i]
		x := trace.Task{ID: g.ID & event.MaxTask, Parent: g.Parent & event.MaxTask, State: g.Status.State(), Reason: g.Goroutine.Reason, Since: g.Since,
			Locked: g.Locked, Stack: g.Stack, Cut: g.Reason}
		if g.Thread != 0 {
			if x.TID = g.Thread; tids != nil {
				x.TID = tids[g.Thread]
			}
		}
		if g.Func != 0 {
			x.Func = event.WordOf(&stack.Frame{Func: g.Func, PC: g.Func, Kind: stack.KindGo, Trust: stack.TrustTable, Exact: true})
		}
		if f, ok := g.Birth(); ok {
			x.Born = event.WordOf(&f)
		}
		t.List[i] = x
	}
	t.Took = int64(target.Now() - begin)
	return t, nil
}

// numbers are the numbers of the threads as we see them by those that the process
// sees itself; nil: they are the same.
func (t *Target) numbers() map[stack.TID]stack.TID {
	if t.proc.Facts().NSpid == 0 {
		return nil
	}
	out := map[stack.TID]stack.TID{}
	tids, err := t.proc.Threads(nil)
	if err != nil {
		return out
	}
	for _, tid := range tids {
		if in, err := t.proc.ThreadInfo(tid); err == nil {
			out[stack.TID(in.NSTID)] = tid
		}
	}
	return out
}
