package live

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Runtimes adds the functions of managed runtimes to the samples of a process, for each
// runtime from the time at which it is ready. For a process without one it only checks
// the files whenever code was mapped.
type Runtimes struct {
	t     *Target
	take  func(trace.Captured)
	fresh chan struct{}
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu     sync.Mutex // guards kernel, and the fields of followed
	of     []*followed
	kernel *kernelFrames // nil: see NameKernel
}

// followed is one kind of runtime.
type followed struct {
	seeker
	table *managed.Table

	told    int           // number of functions passed to take
	problem error         // why a runtime that was found cannot be read
	found   bool          // the runtime was found
	took    time.Duration // time to find it, for a slow seeker
	late    bool          // it was found only at the end
}

// seeker looks for one kind of runtime.
type seeker struct {
	*lang.Language
	// seek makes walks resolve the functions of the runtime by their indexes in table if the
	// process has that runtime (found; also if they already do). again: the runtime is there but
	// not ready. seek is called again when code was mapped, whatever it returned.
	seek func(table *managed.Table) (found, again bool, err error)
}

// seekers returns a seeker for each kind of runtime.
func (t *Target) seekers() (all []seeker) {
	for _, l := range Languages() {
		all = append(all, seeker{l, func(table *managed.Table) (found, again bool, err error) {
			rt := t.Runtime(l)
			if rt == nil {
				rt, err = t.Follow(l, table)
			}
			if rt == nil {
				return false, err != nil && !l.Final(err), err
			}
			return true, false, rt.Problem()
		}})
	}
	return all
}

const (
	// A runtime that is just starting is retried after startEach, then after twice the
	// time up to startMost.
	startEach = 5 * time.Millisecond
	startMost = time.Second
	// tellEach is how long new functions are collected.
	tellEach = 20 * time.Millisecond
	// lateFind is how long a slow runtime may take to be found before that is reported:
	// more than it takes on a machine that is not overloaded.
	lateFind = 500 * time.Millisecond
)

// FollowRuntimes starts following the runtimes. take, if not nil, receives the data
// that name functions later; it may be called from another goroutine. Call
// FollowRuntimes only once.
func (t *Target) FollowRuntimes(take func(trace.Captured)) *Runtimes {
	r := &Runtimes{t: t, take: take, fresh: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	for _, s := range t.seekers() {
		r.of = append(r.of, &followed{seeker: s, table: managed.NewTable(s.Range, r.fresh)})
	}
	again := r.look(false)
	go func() {
		again = r.look(true) || again
		r.run(again)
	}()
	return r
}

// FindRuntimes looks once for the runtimes that are present, so that Info can use them.
func (t *Target) FindRuntimes() {
	for _, s := range t.seekers() {
		if s.Slow {
			continue
		}
		_, _, _ = s.seek(managed.NewTable(s.Range, nil)) // without it threads have the kernel's names
	}
}

// run seeks again whenever something may have changed. again: a runtime is present but
// not ready.
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

// seek looks for all runtimes that were not found yet.
func (r *Runtimes) seek() (again bool) {
	again = r.look(false)
	return r.look(true) || again
}

// look runs the slow seekers, or the others.
func (r *Runtimes) look(slow bool) (again bool) {
	for _, f := range r.of {
		if f.Slow != slow {
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
			r.t.addRange(f.Range)
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

// addRange adds the addresses of a table to the maps.
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

// withRange returns maps with a range of synthetic addresses added. It does not change maps.
func withRange(maps []stack.Mapping, rng managed.Range) []stack.Mapping {
	i, _ := MappingAt(maps, rng.Start)
	return slices.Insert(slices.Clone(maps), i, rng.Mapping())
}

// Tell passes the functions to take that were not passed before.
func (r *Runtimes) Tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.of {
		f.told = r.pass(f.table, f.told)
	}
	if k := r.kernel; k != nil {
		k.passed = r.pass(k.table, k.passed)
	}
}

// pass passes the functions of a table from the n-th on to take, and returns how many there are.
func (r *Runtimes) pass(t *managed.Table, n int) int {
	b, all := t.Since(n)
	if all <= 1 || all == n {
		return n // the first one represents those that have no room
	}
	if r.take != nil {
		r.take(trace.Captured{What: t.Range().What, At: target.Now(), Data: b})
	}
	return all
}

// Find returns the function at addr of a managed.Range.
func (r *Runtimes) Find(addr uint64) (symbol.Frame, bool) {
	if k := r.t.kernel; k != nil && addr >= k.table.Range().Start && addr < k.table.Range().End {
		if fn := k.table.Find(addr); fn != nil {
			return naming.ManagedFrame(fn, addr), true
		}
	}
	for _, f := range r.of {
		if addr < f.Range.Start || addr >= f.Range.End {
			continue
		}
		if fn := f.table.Find(addr); fn != nil {
			return naming.ManagedFrame(fn, addr), true
		}
	}
	return symbol.Frame{}, false
}

// Problems returns the reasons why functions of a runtime are missing, if they should be reported.
func (r *Runtimes) Problems() (out []string) {
	if n := r.t.left.Load(); n > 0 {
		out = append(out, fmt.Sprintf("%s with code %s not opened: at most %d of a process are", plural.Of(n, "mapped file"), plural.Word(n, "was", "were"), codeFiles()))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.of {
		switch {
		case f.problem != nil:
			out = append(out, f.problem.Error())
		case !f.Slow || !f.found:
		case f.late:
			out = append(out, fmt.Sprintf("%s functions have no names: the recording ended before %s was found", f.Name, f.Stacks.Name))
		case f.took > lateFind:
			out = append(out, fmt.Sprintf("%s functions have no names in the first %.1f s, until %s was found", f.Name, f.took.Seconds(), f.Stacks.Name))
		}
	}
	return out
}

// Close ends following. It passes the remaining functions to take.
func (r *Runtimes) Close() {
	r.once.Do(func() {
		close(r.stop)
		<-r.done
		r.seek() // updates the problems
		r.Tell()
	})
}
