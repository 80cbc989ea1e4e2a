package live

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/lang/golang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
)

// Routine is one sampled goroutine.
type Routine struct {
	gopcln.Goroutine
	At     stack.Time   // time of the sample
	Stack  int          // index in Routines.Stacks; -1: a thread runs it
	Reason stack.Reason // why its stack ends early
}

// Routines samples all goroutines of a process without stopping it. Only one goroutine
// may use it at a time.
type Routines struct {
	// Stacks are the stacks of the last Look, without duplicates, leaf first. Their
	// frames have no CFA. A stack that ends early has no frame for its Reason.
	Stacks [][]stack.Frame
	// Lost is the number of goroutines that the last Look could not read.
	Lost int

	t       *Target
	census  *gopcln.Census
	readers [2]stackReader
	byKey   map[string]int // indexes in Stacks
	key     []byte
	all     []gopcln.Goroutine // by index
	sights  []sight            // by index
	which   []int              // indexes of those whose stacks will be read
	order   []int32            // indexes, sorted by goroutine ID
}

// sight is the rest of a look's results for a goroutine.
type sight struct {
	at     stack.Time
	stack  int32 // index in Routines.Stacks; noStack: a thread runs it
	reason stack.Reason
}

const noStack = -1

// stackReader reads the stacks of some of the goroutines. It caches stacks between
// looks.
type stackReader struct {
	parked *golang.Parked
	global []int32 // index of each of its stacks in Routines.Stacks; noStack: not there yet
	which  []int   // indexes
	keys   []uint64
}

// Routines returns a new Routines; nil: no Go runtime was found in the process. The
// first call finds the list of goroutines.
func (t *Target) Routines() *Routines {
	c := golang.Census(t.space)
	if c == nil {
		return nil
	}
	_ = c.Find() // Look returns the same error
	return &Routines{t: t, census: c}
}

const (
	// lookRounds bounds how often goroutines that ran during the read are read again.
	lookRounds = 3
	// fewStacks is how many stacks are read without a second goroutine, which takes
	// longer to start.
	fewStacks = 500
)

// Look reads all goroutines, and the stacks of those that no thread runs, and returns
// them sorted by ID. It reads a goroutine again if it ran during the read. An error
// gives the reason why there are none.
func (r *Routines) Look() ([]Routine, error) {
	if err := r.look(); err != nil {
		return nil, err
	}
	all := make([]Routine, len(r.order))
	for i, at := range r.order {
		s := &r.sights[at]
		all[i] = Routine{Goroutine: r.all[at], At: s.at, Stack: int(s.stack), Reason: s.reason}
	}
	return all, nil
}

// look implements Look. r.order gets the indexes of the goroutines found.
func (r *Routines) look() (err error) {
	r.Stacks, r.byKey = nil, map[string]int{}
	for i := range r.readers {
		r.readers[i].begin(r.t.space)
	}
	for round := range lookRounds {
		if r.all, r.which, err = r.census.Read(r.which[:0]); err != nil {
			return err
		}
		if n := len(r.all) - len(r.sights); n > 0 {
			r.sights = append(r.sights, make([]sight, n)...)
		}
		if round == 0 {
			r.which = slices.Grow(r.which[:0], len(r.all))
			for i := range r.all {
				r.which = append(r.which, i)
			}
		}
		at := target.Now()
		r.which = slices.DeleteFunc(r.which, func(i int) bool { return r.all[i].ID == 0 })
		if len(r.which) == 0 {
			break
		}
		for _, i := range r.which {
			r.sights[i] = sight{at: at, stack: noStack}
		}
		r.walk()
	}
	r.Lost = r.census.Lost()
	r.order = r.census.ByID(r.order[:0])
	return nil
}

// walk reads the stacks of the goroutines in r.which that no thread runs.
func (r *Routines) walk() {
	r.share()
	var wg sync.WaitGroup
	if s := &r.readers[1]; len(s.which) > 0 {
		wg.Go(func() { s.read(r.all, r.sights) })
	}
	r.readers[0].read(r.all, r.sights)
	wg.Wait()
	for i := range r.readers {
		s := &r.readers[i]
		for _, j := range s.which {
			k := r.sights[j].stack
			if s.global[k] < 0 {
				s.global[k] = int32(r.place(s.parked.Stacks[k], s.parked.Reasons[k]))
			}
			r.sights[j].stack, r.sights[j].reason = s.global[k], s.parked.Reasons[k]
		}
	}
}

// share splits the goroutines that no thread runs between the two readers. If there are
// many, the second gets the stacks above the median address.
func (r *Routines) share() {
	a, b := &r.readers[0].which, &r.readers[1].which
	*a, *b = (*a)[:0], (*b)[:0]
	above := ^uint64(0)
	if n := len(r.which); n > fewStacks {
		const samples = 63
		var sp [samples]uint64
		for i := range sp {
			sp[i] = r.all[r.which[i*n/samples]].SP
		}
		slices.Sort(sp[:])
		above = sp[samples/2]
		*a, *b = slices.Grow(*a, n*5/8), slices.Grow(*b, n*5/8)
	}
	for _, i := range r.which {
		switch g := &r.all[i]; {
		case g.Status == gopcln.GoRunning:
		case g.SP > above:
			*b = append(*b, i)
		default:
			*a = append(*a, i)
		}
	}
}

// begin starts a look.
func (s *stackReader) begin(space *unwind.Space) {
	if s.parked == nil || !s.parked.Holds() {
		s.parked, s.global = golang.NewParked(space), nil
	}
	for i := range s.global {
		s.global[i] = noStack
	}
}

// stackUnit is the minimum size of a goroutine's stack: no two goroutines have the same
// SP in these units.
const stackUnit = 2 << 10

// read reads the stacks of the goroutines in s.which, ordered by address.
func (s *stackReader) read(all []gopcln.Goroutine, sights []sight) {
	s.keys = slices.Grow(s.keys[:0], len(s.which))
	for _, i := range s.which {
		s.keys = append(s.keys, all[i].SP/stackUnit<<gopcln.PlaceBits|uint64(i))
	}
	slices.Sort(s.keys)
	for i, k := range s.keys {
		s.which[i] = int(k & (1<<gopcln.PlaceBits - 1))
	}
	s.parked.Walk(all, s.which, func(j, k int) { sights[j].stack = int32(k) })
	for len(s.global) < len(s.parked.Stacks) {
		s.global = append(s.global, noStack)
	}
}

// place returns the index of a stack in r.Stacks. A stack that ends early differs from
// a complete one with the same frames.
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

// Wait returns the reason that g waits for, in the runtime's words; "": it does not
// wait, or the reason is unknown.
func (r *Routines) Wait(g *Routine) string {
	if words := r.census.Reasons(); int(g.Goroutine.Reason) < len(words) {
		return words[g.Goroutine.Reason]
	}
	return ""
}

// Tasks is Look in the form that a recording stores.
func (r *Routines) Tasks() (*trace.Tasks, error) {
	begin := target.Now()
	tids := r.t.numbers()
	if err := r.look(); err != nil {
		return nil, err
	}
	t := &trace.Tasks{At: target.Now(), What: "goroutine", Reasons: r.census.Reasons(), Lost: r.Lost}
	for _, s := range r.Stacks {
		words := make([]event.Word, len(s))
		for i := range s {
			words[i] = event.WordOf(&s[i])
		}
		t.Stacks = append(t.Stacks, words)
	}
	order := r.order
	if len(order) > trace.MaxTasks {
		t.Lost += len(order) - trace.MaxTasks
		order = order[:trace.MaxTasks]
	}
	t.List = make([]trace.Task, len(order))
	for i, at := range order {
		t.List[i] = task(&r.all[at], &r.sights[at], tids)
	}
	t.Took = int64(target.Now() - begin)
	return t, nil
}

// task returns g in the form that a recording stores; tids are as in Target.numbers.
func task(g *gopcln.Goroutine, s *sight, tids map[stack.TID]stack.TID) trace.Task {
	x := trace.Task{ID: g.ID & event.MaxTask, Parent: g.Parent & event.MaxTask, State: g.Status.State(), Reason: g.Reason, Since: g.Since,
		Locked: g.Locked, Stack: int(s.stack), Cut: s.reason}
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
	return x
}

// numbers maps the TIDs that the process itself sees to ours; nil: they are equal.
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
