package live

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/naming"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Runtimes has the functions of managed runtimes in the samples of a process, of each
// from the time on at which it is there and ready. A process without one costs a look
// at its files whenever code was mapped.
type Runtimes struct {
	t     *Target
	take  func(trace.Captured)
	fresh chan struct{}
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu sync.Mutex // guards what followed says it does
	of []*followed
}

// followed is one kind of runtime.
type followed struct {
	seeker
	table *managed.Table

	told    int           // functions that take was handed
	problem error         // why the runtime that is there cannot be read
	found   bool          // it was
	took    time.Duration // to find it, where it is a slow one
	late    bool          // that was as all ended
}

// seeker looks for one kind of runtime.
type seeker struct {
	rng managed.Range
	// seek has walks show the functions of the runtime, by their places in table, if
	// the process has it (found; also where they do already). again: it is there and
	// not ready. It is called again when code was mapped, whatever it said.
	seek func(table *managed.Table) (found, again bool, err error)
	// slow: to look takes longer than the first sample may wait. It knows of no threads.
	// V8 alone is so.
	slow bool
}

// seekers are the kinds that there are.
func (t *Target) seekers() []seeker {
	return []seeker{
		{managed.Python, t.seekPython, false},
		{managed.JS, t.seekV8, true},
		{managed.Java, t.seekJVM, false},
	}
}

const (
	// A runtime that is just starting is tried again after startEach, twice as long
	// each time up to startMost.
	startEach = 5 * time.Millisecond
	startMost = time.Second
	// tellEach is how long new functions are gathered.
	tellEach = 20 * time.Millisecond
	// lateFind is how long a slow runtime may take to be found before that is told: more
	// than on a machine with time for it.
	lateFind = 500 * time.Millisecond
)

// FollowRuntimes begins that. take, if not nil, is handed what is to be kept of
// functions, so that they have names later; it may come from another goroutine.
// It is to be called once.
func (t *Target) FollowRuntimes(take func(trace.Captured)) *Runtimes {
	r := &Runtimes{t: t, take: take, fresh: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	for _, s := range t.seekers() {
		r.of = append(r.of, &followed{seeker: s, table: managed.NewTable(s.rng, r.fresh)})
	}
	again := r.look(false)
	go func() {
		again = r.look(true) || again
		r.run(again)
	}()
	return r
}

// FindRuntimes looks once for the runtimes that are there, for what Info says of threads.
func (t *Target) FindRuntimes() {
	for _, s := range t.seekers() {
		if s.slow {
			continue
		}
		_, _, _ = s.seek(managed.NewTable(s.rng, nil)) // without it threads have the kernel's names
	}
}

// run looks again whenever that may bring something. again: a runtime is there
// that is not ready.
func (r *Runtimes) run(again bool) {
	defer close(r.done)
	wait := startEach
	for {
		var later, gather <-chan time.Time
		if again {
			later = time.After(wait)
		}
		select {
		case <-r.stop:
			return
		case <-r.t.changed:
			wait = startEach
			again = r.seek()
		case <-later:
			wait = min(2*wait, startMost)
			again = r.seek()
		case <-r.fresh:
			gather = time.After(tellEach)
		}
		if gather != nil {
			select {
			case <-r.stop:
				return
			case <-gather:
				r.Tell()
			}
		}
	}
}

// seek looks for all that were not found yet.
func (r *Runtimes) seek() (again bool) {
	again = r.look(false)
	return r.look(true) || again
}

// look seeks the slow ones of these, or the others.
func (r *Runtimes) look(slow bool) (again bool) {
	for _, f := range r.of {
		if f.slow != slow {
			continue
		}
		began := time.Now()
		found, more, err := f.seek(f.table)
		r.mu.Lock()
		f.problem = err
		if found && !f.found {
			f.found, f.took, f.late = true, time.Since(began), r.ending()
		}
		r.mu.Unlock()
		if found {
			r.t.addRange(f.rng)
		}
		again = again || more
	}
	return again
}

// ending reports whether Close was called.
func (r *Runtimes) ending() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// addRange has the addresses of a table among the maps.
func (t *Target) addRange(rng managed.Range) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.ranges, rng) {
		return
	}
	t.ranges = append(t.ranges, rng)
	t.maps = withRange(t.maps, rng)
	if t.onMap != nil {
		t.onMap(t.maps, target.Now(), false)
	}
}

// withRange adds a range of made addresses to maps, which stay as they are.
func withRange(maps []stack.Mapping, rng managed.Range) []stack.Mapping {
	i, _ := MappingAt(maps, rng.Start)
	return slices.Insert(slices.Clone(maps), i, rng.Mapping())
}

// Tell hands on what functions there are that were not handed on before.
func (r *Runtimes) Tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.of {
		b, n := f.table.Since(f.told)
		if n <= 1 || n == f.told {
			continue // the first stands for those that have no room
		}
		f.told = n
		if r.take != nil {
			r.take(trace.Captured{What: f.rng.What, At: target.Now(), Data: b})
		}
	}
}

// Find names the place at addr of a managed.Range.
func (r *Runtimes) Find(addr uint64) (symbol.Frame, bool) {
	for _, f := range r.of {
		if addr < f.rng.Start || addr >= f.rng.End {
			continue
		}
		if fn := f.table.Find(addr); fn != nil {
			return naming.ManagedFrame(fn, addr), true
		}
	}
	return symbol.Frame{}, false
}

// Problems are why there are no functions of a runtime, where that is to be told.
func (r *Runtimes) Problems() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.of {
		switch {
		case f.problem != nil:
			out = append(out, f.problem.Error())
		case !f.slow || !f.found:
		case f.late:
			out = append(out, "JavaScript's functions have no names: the recording was over before V8 was found")
		case f.took > lateFind:
			out = append(out, fmt.Sprintf("JavaScript's functions have no names in the first %.1f s: so long it took to find V8", f.took.Seconds()))
		}
	}
	return out
}

// Close ends it. What is not handed on yet is.
func (r *Runtimes) Close() {
	r.once.Do(func() {
		close(r.stop)
		<-r.done
		r.seek() // what is a problem by now
		r.Tell()
	})
}
