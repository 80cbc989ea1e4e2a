package live

import (
	"errors"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/python"
	"github.com/sliverprof/sliver/wait"
)

// seekPython is the seeker for CPython.
func (t *Target) seekPython(table *managed.Table) (found, again bool, err error) {
	if t.space.Python() != nil {
		return true, false, nil
	}
	rt, err := t.space.FollowPython(table)
	var version *python.VersionError
	return rt != nil, err != nil && !errors.As(err, &version), err
}

// ownNames are the names of threads in their runtime, by the TIDs that the process
// itself sees.
type ownNames struct {
	mu sync.Mutex // guards the fields below
	at time.Time
	of map[int32]string
}

// Names are read again after namesEach for a thread without one, and after namesLast
// for a thread whose name may have changed.
const (
	namesEach = 100 * time.Millisecond
	namesLast = time.Second
)

// ownName returns a thread's name in Python or Java; "" if that carries no information.
func (t *Target) ownName(in *stack.ThreadInfo) string {
	rt, vm := t.space.Python(), t.space.JVM()
	if rt == nil && vm == nil || in.Main {
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
		if vm != nil {
			o.of = vm.NamesByTID()
		} else {
			o.of = rt.NamesByTID((*memory)(t))
		}
		o.at = time.Now()
		name = o.of[tid]
	}
	return name
}

// gils are the locations of the GILs of the process's interpreters.
type gils struct {
	mu  sync.Mutex // guards the fields below
	at  time.Time
	rt  *python.Runtime
	all []gil
}

type gil struct {
	interp    uint64
	addr, end uint64
}

// gilsEach is how long the locations of the locks are cached: interpreters come and go
// rarely.
const gilsEach = time.Second

// gilTries bounds how often a lock is read if it changes hands during the read.
const gilTries = 3

// GIL implements wait.Config.GIL.
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
	interps, _ := rt.Interpreters((*memory)(t)) // the readable ones
	for _, in := range interps {
		if g, err := rt.GIL((*memory)(t), in); err == nil {
			x.all = append(x.all, gil{in, g.Addr, g.End})
		}
	}
	return x.all
}
