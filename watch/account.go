package watch

import (
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/target"
)

// Kept is a Watcher's statistics apart from its samples.
type Kept struct {
	Targets   int    // watched now
	Taken     uint64 // watched so far
	RingBytes int64  // memory of the rings in use now, all targets together
	RingLimit int64  // limit of that memory
	Short     uint64 // times that a ring did not get the memory it needed
	Fired     map[string]uint64
	Dumps     map[string]uint64 // by reason
	DumpBytes int64             // written, all formats together
	Failed    uint64            // dumps that could not be written
	Broken    uint64            // checks of triggers that ended in a panic
	Interval  time.Duration     // between two samples of a thread, now
}

// ended holds the statistics of targets that are gone.
type ended struct {
	account session.Account
	stops   int64 // CPU time of stops, ns
	held    int64 // for which they stopped threads, ns
	short   uint64
	taken   uint64
	fired   map[string]uint64
	dumps   map[string]uint64
	bytes   int64
}

// Account returns the sampling statistics of all targets since the Watcher began,
// including ended ones. Its counters never decrease.
func (w *Watcher) Account() session.Account {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := session.Account{At: target.Now(), SelfCPU: target.SelfCPU() - w.self + w.past.stops}
	add(&sum, &w.past.account)
	for _, t := range w.targets {
		if f := t.flight.Load(); f != nil {
			a := f.Account()
			add(&sum, &a)
			sum.Threads += a.Threads
			sum.SelfCPU += f.StopCPU()
			sum.Load.Fill = max(sum.Load.Fill, a.Load.Fill)
		}
	}
	sum.Load.Bytes = w.past.bytes
	return sum
}

// Kept may be called from any goroutine.
func (w *Watcher) Kept() Kept {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := Kept{Targets: len(w.targets), Taken: w.past.taken, Short: w.past.short, Fired: map[string]uint64{}, Dumps: map[string]uint64{},
		DumpBytes: w.past.bytes, Failed: uint64(w.failed), Broken: uint64(w.broken), Interval: w.governor.interval()}
	for kind, n := range w.past.fired {
		k.Fired[kind] = n
	}
	for reason, n := range w.past.dumps {
		k.Dumps[reason] = n
	}
	for _, t := range w.targets {
		if m := t.mem.Load(); m != nil {
			used, limit := m.Used()
			k.RingBytes, k.RingLimit = k.RingBytes+used, k.RingLimit+limit
		}
		if f := t.flight.Load(); f != nil {
			k.Short += f.Recorder().Short()
		}
	}
	return k
}

// close adds t's counters to the past; w.mu is held.
func (e *ended) close(f *session.Flight) {
	a := f.Account()
	add(&e.account, &a)
	e.short += f.Recorder().Short()
	e.stops += f.StopCPU()
	e.held += f.Held()
}

// add adds the counters that only grow.
func add(to, a *session.Account) {
	for i := range a.Roles {
		r := &a.Roles[i]
		find := func(role string) (int, bool) {
			return slices.BinarySearchFunc(to.Roles, role, func(x sampler.RoleAccount, s string) int { return strings.Compare(x.Role, s) })
		}
		role := r.Role
		k, ok := find(role)
		if !ok && len(to.Roles) >= maxRoles {
			role = sampler.RoleOther
			k, ok = find(role)
		}
		if !ok {
			to.Roles = slices.Insert(to.Roles, k, sampler.RoleAccount{Role: role})
		}
		x := &to.Roles[k]
		x.Threads += r.Threads
		x.Stats.Add(&r.Stats)
		addPauses(&x.Pauses, &r.Pauses)
	}
	to.Pauses.Count += a.Pauses.Count
	to.Pauses.Under += a.Pauses.Under
	to.Pauses.Max = max(to.Pauses.Max, a.Pauses.Max)
	to.Load.Overwritten += a.Load.Overwritten
	to.Load.Peak = max(to.Load.Peak, a.Load.Peak)
}

// addPauses adds a distribution with the same bounds, which all distributions of the
// sampler have.
func addPauses(to, d *sampler.Distribution) {
	if to.Counts == nil {
		to.Bounds, to.Counts = d.Bounds, make([]uint64, len(d.Counts))
	}
	for i, n := range d.Counts {
		to.Counts[i] += n
	}
	to.Count, to.Sum, to.Max = to.Count+d.Count, to.Sum+d.Sum, max(to.Max, d.Max)
}

// maxRoles limits the roles of all targets together; further ones count as others.
const maxRoles = 128
