package calls

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Regions numbers the stacks of each thread by the mappings that contain them. A stack keeps its
// number until its thread ends, although mappings come, go and grow: hits are processed some time
// after they occurred.
type Regions struct {
	// Maps reads the mappings of the process, by address.
	Maps func() []stack.Mapping
	// Now is the clock that bounds how often they are read; ns.
	Now func() stack.Time

	maps    []stack.Mapping
	read    stack.Time
	threads map[stack.TID][]region
}

type region struct {
	lo, hi uint64
	id     uint64 // where it ended when it was first seen: stacks grow at the other end
}

const (
	// mapsEvery is the least time between two readings of the mappings, in ns: programs that start
	// thousands of threads a second have new stacks as often.
	mapsEvery = 20_000_000
	// around is the assumed extent of a stack that is not mapped any more, in bytes.
	around = 1 << 20
)

// Of is the number of the stack of a thread that has addr.
func (r *Regions) Of(tid stack.TID, addr uint64) uint64 {
	known := r.threads[tid]
	for i := range known {
		if x := &known[i]; addr >= x.lo && addr < x.hi {
			return x.id
		}
	}
	m, ok := r.find(addr)
	if now := r.Now(); !ok && (r.maps == nil || now-r.read >= mapsEvery) {
		r.maps, r.read = r.Maps(), now
		m, ok = r.find(addr)
	}
	x := region{m.Start, m.End, m.End}
	if !ok {
		x = region{addr - min(addr, around), addr + around, addr}
	}
	for i := range known { // it grew
		if y := &known[i]; ok && y.id == x.id {
			y.lo = min(y.lo, x.lo)
			return y.id
		}
	}
	if r.threads == nil {
		r.threads = map[stack.TID][]region{}
	}
	r.threads[tid] = append(known, x)
	return x.id
}

func (r *Regions) find(addr uint64) (stack.Mapping, bool) {
	i, ok := slices.BinarySearchFunc(r.maps, addr, func(m stack.Mapping, a uint64) int {
		switch {
		case m.End <= a:
			return -1
		case m.Start > a:
			return 1
		}
		return 0
	})
	if !ok {
		return stack.Mapping{}, false
	}
	return r.maps[i], true
}

// Gone forgets a thread.
func (r *Regions) Gone(tid stack.TID) { delete(r.threads, tid) }
