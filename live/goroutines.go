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
	readers [2]*stackReader
	byKey   map[string]int // in Stacks
	key     []byte
	now     []gopcln.Goroutine
	which   []int // of now: whose stacks are to be read
}

// stackReader reads the stacks of some of the goroutines.
type stackReader struct {
	parked *unwind.Parked
	global []int // where its stacks are in Routines.Stacks
	which  []int
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
func (r *Routines) Look() ([]Routine, error) {
	r.Stacks, r.byKey, r.readers = nil, map[string]int{}, [2]*stackReader{}
	var last []Routine
	for range lookRounds {
		var err error
		if r.now, err = r.census.Goroutines(r.now[:0]); err != nil {
			return nil, err
		}
		at := target.Now()
		out := last
		if !sameIDs(last, r.now) {
			out = make([]Routine, len(r.now))
		}
		r.which = r.which[:0]
		k := 0
		for i := range r.now {
			g := &r.now[i]
			for k < len(last) && last[k].ID < g.ID {
				k++
			}
			if k < len(last) && last[k].Goroutine == *g {
				if &out[i] != &last[k] {
					out[i] = last[k]
				}
				continue
			}
			out[i] = Routine{Goroutine: *g, At: at, Stack: -1}
			r.which = append(r.which, i)
		}
		if last = out; len(r.which) == 0 {
			break
		}
		r.walk(out)
	}
	return last, nil
}

// sameIDs reports whether a and b are of the same goroutines.
func sameIDs(a []Routine, b []gopcln.Goroutine) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID {
			return false
		}
	}
	return true
}

// walk reads the stacks of those in r.which that no thread runs.
func (r *Routines) walk(out []Routine) {
	r.which = slices.DeleteFunc(r.which, func(i int) bool { return r.now[i].Status == gopcln.GoRunning })
	slices.SortFunc(r.which, func(a, b int) int { return cmp.Compare(r.now[a].SP, r.now[b].SP) })
	var wg sync.WaitGroup
	parts := [2][]int{r.which}
	if n := len(r.which); n > fewStacks {
		parts = [2][]int{r.which[:n/2], r.which[n/2:]}
	}
	for i, part := range parts {
		if len(part) == 0 {
			continue
		}
		if r.readers[i] == nil {
			r.readers[i] = &stackReader{parked: unwind.NewWalker(r.t.space).Parked()}
		}
		s := r.readers[i]
		s.which = part
		read := func() { s.parked.Walk(r.now, part, func(j, k int) { out[j].Stack = k }) }
		if i+1 < len(parts) && len(parts[i+1]) > 0 {
			wg.Go(read)
		} else {
			read()
		}
	}
	wg.Wait()
	for _, s := range r.readers {
		if s == nil {
			continue
		}
		for k := len(s.global); k < len(s.parked.Stacks); k++ {
			s.global = append(s.global, r.place(s.parked.Stacks[k], s.parked.Reasons[k]))
		}
		for _, j := range s.which {
			k := out[j].Stack
			out[j].Stack, out[j].Reason = s.global[k], s.parked.Reasons[k]
		}
		s.which = nil
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
