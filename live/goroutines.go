package live

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"

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

	t       *Target
	census  *gopcln.Census
	readers [2]stackReader
	byKey   map[string]int // in Stacks
	key     []byte
	now     []gopcln.Goroutine
	which   []int // of now: whose stacks are to be read
}

// stackReader reads the stacks of some of the goroutines. What it knows of stacks it keeps from
// look to look.
type stackReader struct {
	parked *unwind.Parked
	global []int // where its stacks are in Routines.Stacks; -1: not there yet
	which  []int // of Routines.now
}

// Routines makes one; nil: no runtime of Go was seen in the process. For the first of
// them its list of goroutines is searched.
func (t *Target) Routines() *Routines {
	c := t.space.Census()
	if c == nil {
		return nil
	}
	_ = c.Find() // what it fails with, Look says too
	return &Routines{t: t, census: c}
}

const (
	// lookRounds is how often goroutines that went on while they were read are read anew.
	lookRounds = 3
	// fewStacks are read by one goroutine of ours: to start another takes longer.
	fewStacks = 500
)

// Look reads all goroutines, and the stacks of those that no thread runs, and
// gives them by ID. One that went on meanwhile is read again. An error says why
// there are none to be had.
func (r *Routines) Look() (all []Routine, err error) {
	r.Stacks, r.byKey = nil, map[string]int{}
	for i := range r.readers {
		r.readers[i].begin(r.t.space)
	}
	for round := range lookRounds {
		same := false
		if r.which = r.which[:0]; round == 0 {
			r.now, err = r.census.Goroutines(r.now[:0])
		} else {
			r.now, r.which, same, err = r.census.Again(r.now, r.which)
		}
		if err != nil {
			return nil, err
		}
		at := target.Now()
		if !same {
			all = r.others(all)
		}
		if len(r.which) == 0 {
			break
		}
		for _, i := range r.which {
			all[i] = Routine{Goroutine: r.now[i], At: at, Stack: -1}
		}
		r.walk(all)
	}
	return all, nil
}

// others are as many as there are now: those of before that are as they were, and room for
// the others, which r.which gets.
func (r *Routines) others(before []Routine) []Routine {
	all := make([]Routine, len(r.now))
	k := 0
	for i := range r.now {
		g := &r.now[i]
		for k < len(before) && before[k].ID < g.ID {
			k++
		}
		if k < len(before) && before[k].Goroutine == *g {
			all[i] = before[k]
		} else {
			r.which = append(r.which, i)
		}
	}
	return all
}

// walk reads the stacks of those in r.which that no thread runs.
func (r *Routines) walk(all []Routine) {
	r.share()
	var wg sync.WaitGroup
	if s := &r.readers[1]; len(s.which) > 0 {
		wg.Go(func() { s.read(r.now, all) })
	}
	r.readers[0].read(r.now, all)
	wg.Wait()
	for i := range r.readers {
		s := &r.readers[i]
		for _, j := range s.which {
			k := all[j].Stack
			if s.global[k] < 0 {
				s.global[k] = r.place(s.parked.Stacks[k], s.parked.Reasons[k])
			}
			all[j].Stack, all[j].Reason = s.global[k], s.parked.Reasons[k]
		}
	}
}

// share gives the readers those that no thread runs: the second has the stacks above a place, where there
// are many.
func (r *Routines) share() {
	a, b := &r.readers[0].which, &r.readers[1].which
	*a, *b = (*a)[:0], (*b)[:0]
	above := ^uint64(0)
	if n := len(r.which); n > fewStacks {
		const samples = 63
		var sp [samples]uint64
		for i := range sp {
			sp[i] = r.now[r.which[i*n/samples]].SP
		}
		slices.Sort(sp[:])
		above = sp[samples/2]
	}
	for _, i := range r.which {
		switch g := &r.now[i]; {
		case g.Status == gopcln.GoRunning:
		case g.SP > above:
			*b = append(*b, i)
		default:
			*a = append(*a, i)
		}
	}
}

// begin begins a look.
func (s *stackReader) begin(space *unwind.Space) {
	if s.parked == nil || !s.parked.Holds() {
		s.parked, s.global = unwind.NewWalker(space).Parked(), nil
	}
	for i := range s.global {
		s.global[i] = -1
	}
}

// read reads the stacks of those in s.which.
func (s *stackReader) read(now []gopcln.Goroutine, all []Routine) {
	slices.SortFunc(s.which, func(a, b int) int { return cmp.Compare(now[a].SP, now[b].SP) })
	s.parked.Walk(now, s.which, func(j, k int) { all[j].Stack = k })
	for len(s.global) < len(s.parked.Stacks) {
		s.global = append(s.global, -1)
	}
}

// place is where a stack is in r.Stacks. One that ends early is another than one that
// ends there.
func (r *Routines) place(frames []stack.Frame, reason stack.Reason) int {
	r.key = append(r.key[:0], byte(reason))
	for i := range frames {
		r.key = binary.LittleEndian.AppendUint64(r.key, uint64(event.WordOf(&frames[i])))
	}
	k, ok := r.byKey[string(r.key)]
	if !ok {
		k = len(r.Stacks)
		r.byKey[string(r.key)] = k
		r.Stacks = append(r.Stacks, frames)
	}
	return k
}

// Birth is the go statement that started g, as a frame; ok is false where that is
// not known: the runtime itself starts the first.
func (g *Routine) Birth() (f stack.Frame, ok bool) {
	return stack.Frame{PC: g.Started, Kind: stack.KindGo, Trust: stack.TrustTable}, g.Started != 0 && g.ID != 1
}

// Wait is what g waits for, in the runtime's words; "": it does not, or that is not known.
func (r *Routines) Wait(g *Routine) string {
	if words := r.census.Reasons(); int(g.Goroutine.Reason) < len(words) {
		return words[g.Goroutine.Reason]
	}
	return ""
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
	if !t.proc.Facts().Container {
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
