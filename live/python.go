package live

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/python"
	"github.com/sliverprof/sliver/wait"
)

// Python has the functions of CPython in the samples of a process, from the time
// on at which there is an interpreter that is ready. A process without one
// costs a look at its files whenever code was mapped.
type Python struct {
	t    *Target
	take func(trace.Captured)
	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu      sync.Mutex // guards what follows
	told    int        // functions that take was handed
	problem error      // why the interpreter that is there cannot be read
}

const (
	// An interpreter that is just starting is tried again after startEach, twice
	// as long each time up to startMost.
	startEach = 5 * time.Millisecond
	startMost = time.Second
	// tellEach is how long new functions are gathered.
	tellEach = 20 * time.Millisecond
)

// FollowPython begins that. take, if not nil, is handed what is to be kept of
// functions, so that they have names later; it may come from another goroutine.
// It is to be called once.
func (t *Target) FollowPython(take func(trace.Captured)) *Python {
	p := &Python{t: t, take: take, stop: make(chan struct{}), done: make(chan struct{})}
	t.mu.Lock()
	t.table = python.NewTable()
	t.mu.Unlock()
	go p.run(p.look())
	return p
}

// run looks again whenever that may bring something. again: an interpreter is
// there that is not ready.
func (p *Python) run(again bool) {
	defer close(p.done)
	wait := startEach
	for {
		var later, gather <-chan time.Time
		if again {
			later = time.After(wait)
		}
		select {
		case <-p.stop:
			return
		case <-p.t.changed:
			wait = startEach
			again = p.look()
		case <-later:
			wait = min(2*wait, startMost)
			again = p.look()
		case <-p.t.table.Fresh():
			gather = time.After(tellEach)
		}
		if gather != nil {
			select {
			case <-p.stop:
				return
			case <-gather:
				p.Tell()
			}
		}
	}
}

// look seeks the interpreter where none was found yet.
func (p *Python) look() (again bool) {
	t := p.t
	if t.space.Python() != nil {
		return false
	}
	rt, err := t.space.FollowPython(t.table)
	var version *python.VersionError
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problem = err
	if rt == nil {
		return err != nil && !errors.As(err, &version)
	}
	t.addRange()
	return false
}

// addRange has the addresses of the table among the maps.
func (t *Target) addRange() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ranged {
		return
	}
	t.ranged = true
	t.maps = withRange(t.maps)
	if t.onMap != nil {
		t.onMap(t.maps, target.Now(), false)
	}
}

// withRange adds the range of the table's addresses to maps, which stay as they are.
func withRange(maps []stack.Mapping) []stack.Mapping {
	i, _ := MappingAt(maps, python.TableBase)
	return slices.Insert(slices.Clone(maps), i, stack.Mapping{Start: python.TableBase, End: python.TableEnd, Exec: true, Path: python.Module})
}

// Tell hands on what functions there are that were not handed on before.
func (p *Python) Tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, n := p.t.table.Since(p.told)
	if n <= 1 || n == p.told {
		return // the first stands for those that have no room
	}
	p.told = n
	if p.take != nil {
		p.take(trace.Captured{What: "python", At: target.Now(), Data: b})
	}
}

// Find names the place at addr of the table's range.
func (p *Python) Find(addr uint64) (symbol.Frame, bool) {
	f := p.t.table.Find(addr)
	if f == nil {
		return symbol.Frame{}, false
	}
	return symbol.Frame{Func: cmp.Or(f.Name, "?"), File: f.File, Line: f.Line(addr), StartFile: f.File, StartLine: f.First, Start: f.Addr}, true
}

// Problems are why there are no functions of Python, where that is to be told.
func (p *Python) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == nil {
		return nil
	}
	return []string{p.problem.Error()}
}

// Close ends it. What is not handed on yet is.
func (p *Python) Close() {
	p.once.Do(func() {
		close(p.stop)
		<-p.done
		p.Tell()
	})
}

// ownNames are the names that Python's threads have in it, by the TIDs that the
// process itself sees.
type ownNames struct {
	mu sync.Mutex // guards what follows
	at time.Time
	of map[int32]string
}

// Names are read again namesEach after the last time for a thread that had none, and
// after namesLast for one that may have another.
const (
	namesEach = 100 * time.Millisecond
	namesLast = time.Second
)

// ownName is what a thread of Python is called there; "" where that says nothing.
func (t *Target) ownName(in *stack.ThreadInfo) string {
	rt := t.space.Python()
	if rt == nil || in.Main {
		return ""
	}
	tid := int32(in.TID)
	if in.NSTID > 0 {
		tid = int32(in.NSTID)
	}
	o := &t.own
	o.mu.Lock()
	defer o.mu.Unlock()
	name, ok := o.of[tid]
	if since := time.Since(o.at); since > namesLast || !ok && since > namesEach {
		o.of = rt.NamesByTID((*memory)(t))
		o.at = time.Now()
		name = o.of[tid]
	}
	return name
}

// gils are where the locks of the process's interpreters are.
type gils struct {
	mu  sync.Mutex // guards what follows
	at  time.Time
	rt  *python.Runtime
	all []gil
}

type gil struct {
	interp    uint64
	addr, end uint64
}

// gilsEach is how long the locks are taken to be where they were: interpreters
// come and go rarely.
const gilsEach = time.Second

// gilTries is how often a lock is read that changes hands meanwhile.
const gilTries = 3

// GIL is wait.Config.GIL.
func (t *Target) GIL(addr uint64) (wait.GIL, bool) {
	rt := t.space.Python()
	if rt == nil {
		return wait.GIL{}, false
	}
	for _, x := range t.findGILs(rt) {
		if addr < x.addr || addr >= x.end {
			continue
		}
		var out wait.GIL
		for range gilTries {
			g, err := rt.GIL((*memory)(t), x.interp)
			if err != nil || g.Addr != x.addr {
				return wait.GIL{}, false
			}
			out = wait.GIL{Addr: g.Addr, Locked: g.Locked, Holder: rt.Owner((*memory)(t), x.interp, &g)}
			if !out.Locked || out.Holder != 0 {
				break
			}
		}
		return out, true
	}
	return wait.GIL{}, false
}

func (t *Target) findGILs(rt *python.Runtime) []gil {
	x := &t.gils
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rt == rt && time.Since(x.at) < gilsEach {
		return x.all
	}
	x.rt, x.at, x.all = rt, time.Now(), nil
	interps, _ := rt.Interpreters((*memory)(t)) // those that could be read
	for _, in := range interps {
		if g, err := rt.GIL((*memory)(t), in); err == nil {
			x.all = append(x.all, gil{in, g.Addr, g.End})
		}
	}
	return x.all
}
